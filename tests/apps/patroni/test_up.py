"""What `keyplan patroni up` takes for ready. No part runs here: what each does when it is started is written down instead."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from keyplan.apps.patroni import Broker, Cell
from keyplan.apps.patroni import up as module
from keyplan.apps.patroni.up import Everything, UpSettings
from keyplan.errors import EngineUnavailableError
from keyplan.store import open_store

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


def test_a_process_of_gateways_imports_nothing_of_the_broker() -> None:
    """Nodes are without their store for as long as it starts, and it keeps what it has imported."""
    program = (
        "import sys; from keyplan.server import service_builders; service_builders(('etcd-v2', 'etcd-v3', 'patroni-broker'));"
        "print(*(name for name in ('psycopg', 'httpx', 'keyplan.apps.patroni.broker_loop') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
