"""Who may read what a cell, a node and `up` write: their owner alone, whatever the umask is. No PostgreSQL runs here."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Credentials
from keyplan.apps.patroni.node_config import Gateway, NodePlan
from keyplan.apps.patroni.node_host import Host, make_passage
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.processes import Spawned
from keyplan.apps.patroni.up import Everything, UpSettings
from keyplan.errors import InvalidInputError
from tests.apps.patroni.up_process import open_to_others
from tests.servers.patroni import until

NOBODY = (65534, 65534)
"""The ids of the user nobody on Linux."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that lets everybody read what says nothing else."""
    before = os.umask(0)
    yield
    os.umask(before)


def plan() -> NodePlan:
    return NodePlan(
        instance="f1",
        node="n1",
        port=25432,
        rest_port=28008,
        superuser=Credentials(username="postgres", password=Secret("super-secret")),
        replication=Credentials(),
        rest=Credentials(),
        gateway=Gateway("127.0.0.1:2379", password=Secret("gate-secret")),
    )


@pytest.mark.parametrize("owner", [None, pytest.param(NOBODY, marks=needs_root)])
def test_nothing_of_up_is_open_to_others(tmp_path: Path, owner: tuple[int, int] | None) -> None:
    data = tmp_path / "data"
    everything = Everything(UpSettings(data, f"lmdb:{data}/store", "127.0.0.1:1", 2, node_owner=owner))
    everything.close()
    assert open_to_others(data) == []
    passages = [data, data / "cells", data / "cells" / "cell2"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in passages} == {0o700 if owner is None else 0o710}
    if owner is not None:
        assert {(each.stat().st_uid, each.stat().st_gid) for each in passages} == {(0, owner[1])}
    for private in ("server", "router", "cells/cell1/agent"):
        assert stat.S_IMODE((data / private).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("file", "raw", "problem"),
    [
        ("credentials.json", b"{brok", "it is no JSON object of texts"),
        ("credentials.json", b"\xff", "it is no JSON object of texts"),
        ("credentials.json", b'{"username": "broker"}', "it has no password"),
        ("credentials.json", b'{"username": "a b", "password": "c"}', "the name or the password is empty"),
        ("cells.token", b"\xff", "it holds no token"),
        ("cells.token", b"\n", "it holds no token"),
    ],
)
def test_what_up_keeps_and_cannot_read_is_named(tmp_path: Path, file: str, raw: bytes, problem: str) -> None:
    settings = UpSettings(tmp_path, f"lmdb:{tmp_path}/store", "127.0.0.1:1", 1)
    Everything(settings).close()
    (tmp_path / file).write_bytes(raw)
    for _ in range(2):  # Why again: who was refused has given the folder free
        with pytest.raises(InvalidInputError, match=problem) as refused:
            Everything(settings)
        assert refused.value.facts["source"] == str(tmp_path / file)
    (tmp_path / file).unlink()
    Everything(settings).close()


@needs_root
def test_what_a_node_reads_its_user_alone_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "cell" / "nodes" / "n1"
    node = Node(folder, plan(), Host(Path("/usr/bin"), "", Path(), "nobody"))
    node.prepare()
    assert open_to_others(tmp_path / "cell") == []
    assert {(each.name, each.stat().st_uid, stat.S_IMODE(each.stat().st_mode)) for each in folder.iterdir()} == {
        ("node.json", 0, 0o600),
        ("patroni.yml", NOBODY[0], 0o600),
        ("home", NOBODY[0], 0o700),
    }


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    make_passage(shared / "cell", None)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (shared, shared / "cell")] == [0o755, 0o700]


def test_what_a_started_program_writes_is_private(tmp_path: Path) -> None:
    process = Spawned(tmp_path / "process")
    process.start(
        ["/bin/sh", "-c", f"echo x >{tmp_path}/made; mkdir {tmp_path}/folder"], environment={}, log=tmp_path / "log"
    )
    until(lambda: not process.is_alive and (tmp_path / "folder").is_dir(), 30, lambda: "it ends")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"process": 0o600, "made": 0o600, "folder": 0o700, "log": 0o600}
