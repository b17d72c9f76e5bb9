"""What operators do with their own tools beside keyplan: etcdctl on its data, several processes on one rack."""

import os
import select
import subprocess
import time
from pathlib import Path
from typing import IO

import pytest

import keyplan
from keyplan.apps.cloudchamber import CloudChamber, Rack, User, begin_indexes
from tests.apps.cloudchamber.conftest import raw_keys
from tests.apps.cloudchamber.rack_writers import Note, played, run_writers, verified
from tests.servers.etcd import EtcdServer, etcdctl_environment, etcdctl_options

SECONDS_MAX = 60.0


def line_with(stream: IO[str], text: str) -> list[str]:
    """Read lines until one has `text`; return them all."""
    lines: list[str] = []
    until = time.monotonic() + SECONDS_MAX
    while not any(text in line for line in lines):
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"no line with {text!r} in {lines}"
        # Why: unbuffered, so that `select` tells of everything that was not read.
        lines += os.read(stream.fileno(), 65_536).decode().splitlines()
    return lines


@pytest.mark.slow
def test_etcdctl_watches_and_purges_the_tests_and_leaves_production(etcd_server: EtcdServer) -> None:
    """R15, AC-21: the document's own commands, on what keyplan wrote."""
    below = "/CloudChamber/V0.1/Test/"
    with keyplan.open(etcd_server.emptied().url) as store:
        production = CloudChamber(store)
        tests = [CloudChamber(store, namespace=f"Test/{name}/") for name in ("Standard", "mine")]
        watching = subprocess.Popen(
            ["etcdctl", *etcdctl_options(etcd_server), "watch", "--prefix", below],
            stdout=subprocess.PIPE,
            text=True,
            env=etcdctl_environment(),
        )
        try:
            assert watching.stdout is not None
            # Why: etcdctl does not say when it watches; the first event that it shows does.
            lines: list[str] = []
            for number in range(200):
                tests[0].users.put("probe", User(user_id=number + 1))
                if select.select([watching.stdout], [], [], 0.1)[0]:
                    break
            production.users.insert("alice", User(name="alice"))
            for chamber in tests:
                chamber.users.insert("alice", User(name="alice"))
                chamber.racks.insert("rack1", Rack())
            tests[1].users.insert("last", User(name="last"))
            lines += line_with(watching.stdout, "users/last")
            assert {line for line in lines if line.startswith("/") and not line.endswith("probe")} == {
                f"{below}Standard/users/alice",
                f"{below}Standard/racks/rack1",
                f"{below}mine/users/alice",
                f"{below}mine/racks/rack1",
                f"{below}mine/users/last",
            }
            assert etcd_server.etcdctl("del", "--prefix", below).strip() == "6"
            lines = line_with(watching.stdout, "mine/users/last")
            assert "DELETE" in lines
            assert "PUT" not in lines
        finally:
            watching.terminate()
            watching.wait()
            assert watching.stdout is not None
            watching.stdout.close()
        assert raw_keys(store) == [b"/CloudChamber/V0.1/users/alice"]
        assert [list(chamber.users.keys()) for chamber in tests] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "plain"])
def test_four_processes_that_write_one_rack_lose_nothing_and_leave_a_sound_store(
    store_url: str, tmp_path: Path, *, is_indexed: bool
) -> None:
    """The short form of issue 6's minute, which is `scripts/chamber-writers`."""
    with keyplan.open(store_url) as store:
        if is_indexed:
            begin_indexes(store)
        before = store.revision
    files = run_writers(store_url, tmp_path, processes=4, acts=40, seconds=60, seed=1)
    written = verified(store_url, files, revision_before=before)
    assert sum(written.acts.values()) > 20
    assert written.turns > 10, "they wrote one after another"


def test_a_lost_write_is_noticed() -> None:
    """The proof can fail: of a history without one of its writes, or in another order."""
    rack, blade = ("racks", ["rack1"], 0), ("blades", ["rack1", 1], 0)
    changed = ("blades", ["rack1", 1], 5)
    made, updated = Note(5, "create_rack", [rack, blade], []), Note(6, "update_blade", [changed], [])
    again = Note(7, "update_blade", [("blades", ["rack1", 1], 6)], [])
    gone = Note(8, "delete_rack", [], [], "rack")
    assert played([made, updated, again]) == {("racks", ("rack1",)): 5, ("blades", ("rack1", 1)): 7}
    assert played([made, updated, gone]) == {}
    for history in ([made, again], [updated, made], [made, updated, gone, again]):
        with pytest.raises(AssertionError, match="another revision"):
            played(history)
