"""Who may read what a cell, a node and `up` write: their owner alone, whatever the umask is. No PostgreSQL runs here."""

import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from keyplan import Secret
from keyplan.apps.patroni import Credentials
from keyplan.apps.patroni.node_config import Gateway, NodePlan
from keyplan.apps.patroni.node_host import Host, as_user, find_host, make_passage
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.node_users import InstanceUsers, owners_of_homes
from keyplan.apps.patroni.processes import Running, Spawned, processes_of_user, users_of_processes
from keyplan.apps.patroni.up import Everything, UpSettings
from keyplan.errors import InvalidInputError
from tests.apps.patroni.up_process import instance_users, open_to_others
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
    for private in ("broker", "gateway", "router", "cells/cell1/agent"):
        assert stat.S_IMODE((data / private).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("file", "raw", "problem"),
    [
        ("credentials.json", b"{brok", "it is no JSON object of texts"),
        ("credentials.json", b"\xff", "it is no JSON object of texts"),
        ("credentials.json", b'{"username": "broker"}', "it has no password"),
        ("credentials.json", b'{"username": "a b", "password": "c"}', "the name or the password is empty"),
        ("credentials.json", b'{"username": "broker", "password": "short"}', "fewer than 32 characters"),
        ("access.toml", b"[broken", "it cannot be read as TOML"),
        ("access.toml", b"\xff", "it is not text in UTF-8"),
    ],
)
def test_what_up_keeps_and_cannot_read_is_named(tmp_path: Path, file: str, raw: bytes, problem: str) -> None:
    settings = UpSettings(tmp_path, f"lmdb:{tmp_path}/store", "127.0.0.1:1", 1)
    Everything(settings).close()
    (tmp_path / file).write_bytes(raw)
    for _ in range(2):  # Why again: who was refused has given the folder free
        with pytest.raises(InvalidInputError, match=problem) as refused:
            Everything(settings)
        assert str(refused.value.facts["source"]).startswith(str(tmp_path / file))
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


# ---- what whoever broke into a node leaves for the agent -----------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("planted", ["pipe", "link without an end", "folder", "digits without an end"])
def test_what_stands_in_the_place_of_the_postmasters_file_stops_nobody(tmp_path: Path, planted: str) -> None:
    node = Node(tmp_path / "n1", plan(), Host(Path("/usr/bin"), "", Path()))
    node.prepare()
    file = tmp_path / "n1" / "home" / "data" / "postmaster.pid"
    file.parent.mkdir()
    if planted == "pipe":
        os.mkfifo(file)
    elif planted == "folder":
        file.mkdir()
    elif planted == "digits without an end":
        file.write_text("1" * 10_000)
    else:
        file.symlink_to("/dev/zero")
    assert (node.postmaster, node.is_ready) == (None, False)
    assert node.remove()


def test_folders_nested_deeper_than_python_goes_are_removed(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", plan(), Host(Path("/usr/bin"), "", Path()))
    node.prepare()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path / "n1" / "home")
        for _ in range(sys.getrecursionlimit() + 500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)
        os.close(before)
    assert node.remove()
    assert not (tmp_path / "n1").exists()


def test_only_the_process_that_listens_is_the_server(tmp_path: Path) -> None:
    """Another program at the address would be shown the tokens of all nodes."""
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = mine.getsockname()[1]
        other = Spawned(tmp_path / "process")
        other.start(["/bin/sleep", "600"], environment={}, log=tmp_path / "log")
        assert other.running is not None
        assert not other.running.listens_at(port)
        me = Running.of_pid(os.getpid())
        assert me is not None
        assert me.listens_at(port)
        other.send(signal.SIGKILL)
        until(lambda: not other.is_alive, 30, lambda: "it has ended")
    assert not me.listens_at(port)


# ---- users of nodes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), *((text, ("nobody",)) for text in ("nobody", "65534,nobody", "65534-65534", " nobody , "))],
)
def test_users_are_read_by_name_number_and_range(text: str, names: tuple[str, ...]) -> None:
    assert InstanceUsers.of_text(text).names == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("root", "refuses to run as root"),
        ("0", "refuses to run as root"),
        ("no-such-user-here", "useradd --system --no-create-home no-such-user-here"),
        ("4000000000", "useradd --system --no-create-home --uid 4000000000 pg4000000000"),
        ("9-1", "no range"),
        ("1-100000", "no range"),
        ("1" * 5_000, "this machine has no user"),
    ],
)
def test_users_that_postgresql_could_not_run_as_are_refused_with_the_remedy(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        InstanceUsers.of_text(text)


@needs_root
def test_the_user_of_all_nodes_is_no_nodes_own() -> None:
    with pytest.raises(InvalidInputError, match="nobody is the user of all other nodes: leave it out"):
        find_host(user="nobody", instance_users=InstanceUsers(("daemon", "nobody")))


def five_users() -> list[pwd.struct_passwd]:
    """Five users that every Linux has. Nothing runs as them here."""
    found = [pwd.getpwnam(name) for name in ("daemon", "bin", "sys", "games", "nobody")]
    assert len({one.pw_uid for one in found}) == 5
    return found


def test_cells_share_users_out_and_none_has_anothers() -> None:
    names = [one.pw_name for one in five_users()]
    shares = InstanceUsers(tuple(names)).shared_out([(), ()])
    assert sorted(name for share in shares for name in share.names) == sorted(names)
    assert {len(share.names) for share in shares} == {2, 3}


def test_with_other_cells_nodes_keep_their_users_and_no_cell_is_given_anothers() -> None:
    first, second, third, fourth, fifth = five_users()
    users = InstanceUsers(tuple(one.pw_name for one in five_users()))
    shares = users.shared_out([{first.pw_uid, third.pw_uid}, {second.pw_uid, 0}], elsewhere={fourth.pw_uid})
    assert [share.names for share in shares] == [
        (first.pw_name, third.pw_name),
        (second.pw_name, fifth.pw_name),
    ]


def test_a_cell_that_no_user_is_left_for_is_not_started_with_one_for_all(tmp_path: Path) -> None:
    users = InstanceUsers(("nobody",))
    settings = UpSettings(tmp_path, f"lmdb:{tmp_path}/store", "127.0.0.1:1", 2, instance_users=users)
    with pytest.raises(InvalidInputError, match="none is left for cell2: give more users"):
        Everything(settings)
    Everything(replace(settings, instance_users=InstanceUsers(("nobody", "daemon")))).close()


@needs_root
def test_up_leaves_the_users_of_nodes_to_their_cells_and_takes_nobodys_of_a_cell_that_is_not_started(
    tmp_path: Path,
) -> None:
    one, two, three = five_users()[:3]
    for cell, user in (("cell1", one), ("cell2", two)):
        home = tmp_path / "cells" / cell / "nodes" / "damaged" / "home"
        home.mkdir(parents=True)
        os.chown(home, user.pw_uid, -1)
    assert owners_of_homes(tmp_path / "cells" / "cell1" / "nodes") == {one.pw_uid}
    users = InstanceUsers((two.pw_name, one.pw_name))
    settings = UpSettings(tmp_path, f"lmdb:{tmp_path}/store", "127.0.0.1:1", 3, instance_users=users)
    with pytest.raises(InvalidInputError, match="none is left for cell3"):
        Everything(settings)
    with pytest.raises(InvalidInputError, match="none is left for cell1"):
        Everything(replace(settings, cells=1, instance_users=InstanceUsers((two.pw_name,))))
    Everything(replace(settings, instance_users=InstanceUsers((*users.names, three.pw_name)))).close()


def test_a_user_that_something_runs_as_is_given_to_no_node() -> None:
    me = pwd.getpwuid(os.geteuid())
    assert InstanceUsers((me.pw_name,)).free() is None
    assert InstanceUsers(("nobody",)).free({pwd.getpwnam("nobody").pw_uid}) is None


@needs_root
def test_who_lets_a_program_act_for_others_counts_as_running() -> None:
    user = pwd.getpwnam("nobody").pw_uid
    program = f"import os, time; os.setresuid({user}, 0, 0); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as acting:
        try:
            assert acting.stdout is not None
            acting.stdout.readline()
            assert acting.pid in {each.pid for each in processes_of_user(user)}
            assert user in users_of_processes()
        finally:
            acting.kill()


@needs_root
def test_what_still_runs_as_a_nodes_user_ends_with_it(tmp_path: Path) -> None:
    (user,) = InstanceUsers(instance_users()).names[:1] or pytest.skip("needs a user that nothing runs as")
    own = msgspec.structs.replace(plan(), user=user)
    node = Node(tmp_path / "n1", own, Host(Path("/usr/bin"), "", Path(), "nobody"))
    node.prepare()
    assert (tmp_path / "n1" / "home").stat().st_uid == pwd.getpwnam(user).pw_uid
    stray = subprocess.Popen(as_user(user, "/bin/sleep", "600"))
    until(lambda: InstanceUsers((user,)).free() is None, 30, lambda: "it runs")
    until(node.remove, 30, lambda: "the node is removed")
    assert stray.wait(30) == -signal.SIGKILL
    assert InstanceUsers((user,)).free() == user


@needs_root
@pytest.mark.parametrize("is_for_all", [False, True], ids=["one user", "users of their own"])
def test_users_of_nodes_pass_through_and_see_nothing_of_one_another(*, is_for_all: bool) -> None:
    users = instance_users()[:2]
    if len(users) < 2:
        pytest.skip("needs two users that nothing runs as")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        assert_kept_apart(Path(folder) / "cell" / "nodes", users, is_for_all=is_for_all)


def assert_kept_apart(nodes: Path, users: tuple[str, ...], *, is_for_all: bool) -> None:
    host = Host(Path("/usr/bin"), "", Path(), "nobody", has_instance_users=is_for_all)
    host.make_passage(nodes)
    for name, user in zip(("n1", "n2"), users, strict=True):
        Node(nodes / name, msgspec.structs.replace(plan(), user=user), host).prepare()
    for path, sees in (("n1/patroni.yml", is_for_all), ("n1/node.json", False), ("n2/patroni.yml", False)):
        asked = as_user(users[0], "/bin/cat", str(nodes / path))
        assert (subprocess.run(asked, capture_output=True, check=False).returncode == 0) is sees, path
    for folder in (nodes, nodes / "n2", nodes / "n2" / "home"):
        listed = as_user(users[0], "/bin/ls", str(folder))
        assert subprocess.run(listed, capture_output=True, check=False).returncode != 0
