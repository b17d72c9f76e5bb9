"""What `keyplan patroni up` takes for ready, and how it ends. No part runs here, but others in their place."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from keyplan.apps.patroni import Broker, Cell
from keyplan.apps.patroni import up as module
from keyplan.apps.patroni.processes import Running
from keyplan.apps.patroni.up import Everything, UpSettings
from keyplan.errors import EngineUnavailableError
from keyplan.store import open_store
from tests.servers.patroni import until

Keep = Callable[[Callable[[], None]], bool]
"""What is done for a part that is kept, with what the agent of a cell does to announce itself; whether it was started."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Keep], None]:
    """Start everything with one cell, whose record an agent that was killed has left."""

    def started(keep: Keep) -> None:
        url = f"lmdb:{tmp_path}/store"
        with open_store(url) as store, store.lease(600, keep_alive=False) as lease:
            cells = Broker(store).cells

            def announce() -> None:
                cells.put("cell1", Cell(), lease=lease)

            announce()
            monkeypatch.setattr(module._Part, "keep", lambda _part: keep(announce))
            monkeypatch.setattr(Everything, "_are_answering", lambda _: True)
            everything = Everything(UpSettings(tmp_path / "up", url, "127.0.0.1:1", 1))
            try:
                everything.start(Event())
            finally:
                everything.close()

    return started


def test_a_record_that_a_killed_agent_left_is_no_cell_that_is_ready(start: Callable[[Keep], None]) -> None:
    def end_without_a_word(_announce: Callable[[], None]) -> bool:
        return True

    with pytest.raises(EngineUnavailableError, match="cell1 does not start"):
        start(end_without_a_word)


def test_a_cell_is_ready_that_has_announced_itself_or_has_run_all_along(start: Callable[[Keep], None]) -> None:
    def announce_itself(announce: Callable[[], None]) -> bool:
        announce()
        return True

    def run_on(_announce: Callable[[], None]) -> bool:
        return False

    start(announce_itself)
    start(run_on)


PART = """
import signal, subprocess, sys
below, told = subprocess.Popen(["sleep", "60"]), []
def end(number, _frame):
    told.append(number)
    if len(told) > 1 and {deaf!r} not in sys.argv:
        below.kill()
        below.wait()
        sys.exit()
signal.signal(signal.SIGTERM, end)
print("below", below.pid, flush=True)
while True:
    signal.pause()
"""
"""Ends what it has begun when it is told for the second time, as a cell ends its nodes."""


@pytest.mark.parametrize(
    ("deaf", "is_impatient", "left"),
    [("nobody", True, []), ("cell1", True, ["cell1"]), ("nobody", False, ["cell1"])],
    ids=["impatient", "one is deaf", "the first signal is lost"],
)
def test_what_is_told_to_end_leaves_nothing_behind_but_of_what_hears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: str, left: list[str], *, is_impatient: bool
) -> None:
    monkeypatch.setattr(module, "_PROGRAM", PART.format(deaf=deaf))
    if left:
        monkeypatch.setattr(module, "_IMPATIENT_SECONDS_MAX", 3.0)
    if not is_impatient:
        # A server and a router are told again by and by; a cell would kill its nodes, and is given time.
        monkeypatch.setattr(module, "_TELL_AGAIN_SECONDS", 0.1)
        monkeypatch.setattr(module, "_STOP_SECONDS_MAX", 5.0)
    everything = Everything(UpSettings(tmp_path / "up", f"lmdb:{tmp_path}/store", "127.0.0.1:1", 1))
    parts = [everything._router, *everything._cells, *everything._servers.values()]
    below: dict[str, Running] = {}

    def have_begun() -> bool:
        told = {part.name: (part.folder / "log").read_text().split() for part in parts}
        found = {name: Running.of_pid(int(words[1])) for name, words in told.items() if len(words) == 2}
        below.update({name: one for name, one in found.items() if one is not None})
        return len(below) == len(parts)

    impatient = Event()
    if is_impatient:
        impatient.set()
    try:
        for part in parts:
            part.keep()
        until(have_begun, 30, lambda: str(below))
        assert everything.stop(impatient) == left
        assert [name for name, one in below.items() if one.is_alive] == left
    finally:
        everything.close()
        for one in below.values():
            one.send(signal.SIGKILL)
        for part in parts:
            part.process.send(signal.SIGKILL)


def test_a_process_of_gateways_imports_nothing_of_the_broker() -> None:
    """Nodes are without their store for as long as it starts, and it keeps what it has imported."""
    program = (
        "import sys; from keyplan.server import service_builders; service_builders(('etcd-v2', 'etcd-v3', 'patroni-broker'));"
        "print(*(name for name in ('psycopg', 'httpx', 'keyplan.apps.patroni.broker_loop') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
