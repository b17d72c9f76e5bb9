"""A node's configuration as a value, processes that are found again, ports; what a cell refuses. No PostgreSQL runs here."""

import fcntl
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import typer

from keyplan import Secret
from keyplan.apps.patroni import Credentials, address_of
from keyplan.apps.patroni.cli import app
from keyplan.apps.patroni.cli_options_cells import NodeOptions
from keyplan.apps.patroni.node_config import Gateway, NodePlan, merged, patroni_configuration
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_ports import PortRange
from keyplan.apps.patroni.node_process import Node, found_nodes
from keyplan.apps.patroni.processes import Running, Spawned
from keyplan.errors import InvalidInputError
from keyplan.testing.faults import FakeClock
from tests.servers.authority import Authority
from tests.servers.etcd import free_port
from tests.servers.patroni import until

PLAN = NodePlan(
    instance="f1",
    node="a.b",
    port=25432,
    rest_port=28008,
    superuser=Credentials(username="postgres", password=Secret("super-secret")),
    replication=Credentials(username="replicator", password=Secret("copy-secret")),
    rest=Credentials(username="admin", password=Secret("rest-secret")),
    gateway=Gateway("127.0.0.1:2379", "etcd", password=Secret("gate-secret")),
    parameters={"fsync": "off"},
)


def test_patroni_is_told_scope_name_store_and_users() -> None:
    told = patroni_configuration(PLAN, home=Path("/srv/n/home"), programs=Path("/usr/lib/postgresql/15/bin"))
    assert told["scope"] == "f1"
    assert told["name"] == "a_b"  # 1.3: dots replaced, because it names a replication slot
    assert told["namespace"] == "/service/"
    assert told["etcd"] == {"hosts": "127.0.0.1:2379", "username": "cell", "password": "gate-secret"}
    assert told["restapi"]["authentication"] == {"username": "admin", "password": "rest-secret"}
    assert told["postgresql"]["data_dir"] == "/srv/n/home/data"
    assert told["postgresql"]["connect_address"] == "127.0.0.1:25432"
    assert told["postgresql"]["authentication"]["replication"] == {"username": "replicator", "password": "copy-secret"}
    assert told["postgresql"]["parameters"]["fsync"] == "off"
    assert told["bootstrap"]["dcs"]["ttl"] == 20


@pytest.mark.parametrize(("mode", "name"), [("etcd", "cluster.f1"), ("etcd3", "cluster:f1")])
def test_a_clusters_name_has_no_colon_where_a_name_ends_at_one(mode: Literal["etcd", "etcd3"], name: str) -> None:
    gateway = Gateway("127.0.0.1:2379", mode, "cluster:f1", Secret("a token"))
    plan = msgspec.structs.replace(PLAN, gateway=gateway)
    told = patroni_configuration(plan, home=Path("/h"), programs=Path("/p"))[mode]
    assert told == {"hosts": "127.0.0.1:2379", "username": name, "password": "a token"}


def test_an_address_of_ipv6_is_registered_as_members_advertise_it() -> None:
    plan = msgspec.structs.replace(PLAN, address="::1")
    told = patroni_configuration(plan, home=Path("/h"), programs=Path("/p"))["postgresql"]
    node = Node(Path("/h"), plan, Host(Path(), "", Path()))
    assert node.address == told["connect_address"] == address_of("postgres://[::1]:25432/postgres") == "[::1]:25432"


def test_a_node_of_a_restored_cluster_begins_with_the_cells_command() -> None:
    assert "method" not in patroni_configuration(PLAN, home=Path("/h"), programs=Path("/p"))["bootstrap"]
    plan = msgspec.structs.replace(PLAN, restore="file:///b/it's", restore_command="/opt/fetch --fast")
    told = patroni_configuration(plan, home=Path("/h"), programs=Path("/p"))["bootstrap"]
    assert told["method"] == "restore"
    assert told["restore"] == {"command": """/opt/fetch --fast 'file:///b/it'"'"'s'"""}


def test_a_node_with_a_certificate_talks_to_nobody_without_tls() -> None:
    plain = patroni_configuration(PLAN, home=Path("/n/home"), programs=Path("/p"))["postgresql"]
    assert "ssl" not in plain["parameters"]
    assert plain["pg_hba"] == ["host replication all all scram-sha-256", "host all all all scram-sha-256"]
    plan = msgspec.structs.replace(PLAN, has_tls=True)
    told = patroni_configuration(plan, home=Path("/n/home"), programs=Path("/p"))["postgresql"]
    assert told["pg_hba"] == ["hostssl replication all all scram-sha-256", "hostssl all all all scram-sha-256"]
    shown = {name: value for name, value in told["parameters"].items() if name.startswith("ssl_")}
    assert told["parameters"]["ssl"] == "on"
    assert shown == {
        "ssl_cert_file": "/n/server.crt",
        "ssl_key_file": "/n/server.key",
        "ssl_min_protocol_version": "TLSv1.2",
    }


@pytest.mark.parametrize("given", [("cert", None), (None, "cert"), ("cert", "none")])
def test_a_certificate_goes_with_its_key(tmp_path: Path, given: tuple[str | None, str | None]) -> None:
    (tmp_path / "cert").write_text("-----BEGIN CERTIFICATE-----")
    certificate, key = (None if name is None else tmp_path / name for name in given)
    with pytest.raises(InvalidInputError):
        NodeOptions(certificate=certificate, key=key).words()
    assert NodeOptions().tls is None


def test_a_cell_of_up_is_given_what_up_was_given(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    certificate, key = authority.certificate("server"), authority.key("server")
    options = NodeOptions(
        parameter=["a=1", "b=2"],
        patroni=["ttl=20", "synchronous_mode=true"],
        bucket_keys=["b=/keys"],
        further=[Path("/other/bin")],
        certificate=certificate,
        key=key,
    )
    assert options.keys_of_buckets == {"b": "/keys"}
    assert options.parameters == {"a": "1", "b": "2"}
    assert options.dynamic == {"ttl": 20, "synchronous_mode": True}
    with pytest.raises(InvalidInputError, match="ttl is a whole number"):
        _ = NodeOptions(patroni=["ttl=" + "9" * 5_000]).dynamic
    command: Any = typer.main.get_command(app)
    parsed = command.commands["cell"].make_context("cell", ["c", "--gateway", "h:1", "--data", "d", *options.words()])
    assert NodeOptions(**{name: parsed.params[name] for name in NodeOptions._fields}) == options


def test_timing_keeps_patronis_rule() -> None:
    told = patroni_configuration(PLAN, home=Path("/h"), programs=Path("/p"))["bootstrap"]["dcs"]
    assert told["loop_wait"] + 2 * told["retry_timeout"] <= told["ttl"]


def test_a_node_is_told_whom_to_rewind_as_and_says_which_logins_it_has_read() -> None:
    def told(**changed: Any) -> dict[str, Any]:
        plan = msgspec.structs.replace(PLAN, **changed)
        return patroni_configuration(plan, home=Path("/h"), programs=Path("/p"))

    assert "rewind" not in told()["postgresql"]["authentication"], "Patroni rewinds as the superuser then"
    assert "tags" not in told()
    rewind = Credentials(username="rewinder_2", password=Secret("back"))
    after = told(rewind=rewind, logins=2)
    assert after["postgresql"]["authentication"]["rewind"] == {"username": "rewinder_2", "password": "back"}
    assert after["tags"] == {"keyplan_logins": 2}


def test_a_node_keeps_the_programs_of_its_datas_version_when_the_machine_is_given_another(tmp_path: Path) -> None:
    """As where a newer package was installed beside: PostgreSQL starts on data of its own major version alone."""
    programs = {version: tmp_path / version / "bin" for version in ("15", "18")}
    for folder in programs.values():
        folder.mkdir(parents=True)
        (folder / "postgres").write_text("")
    host = Host(programs["18"], "", Path(), version="18", others=tmp_path)
    node, data = Node(tmp_path / "node", PLAN, host), tmp_path / "node" / "home" / "data"

    def programs_told() -> str:
        node.prepare()
        return str(json.loads((tmp_path / "node" / "patroni.yml").read_text())["postgresql"]["bin_dir"])

    assert programs_told() == str(programs["18"])
    data.mkdir()
    # What whoever has the cluster may write there chooses among versions, and nothing else.
    for written, version in (("15\n", "15"), ("18\n", "18"), ("../15", "18"), ("", "18")):
        (data / "PG_VERSION").write_text(written)
        assert programs_told() == str(programs[version])
    (data / "PG_VERSION").write_text("14\n")
    with pytest.raises(InvalidInputError, match="its data are of this version, and there are programs of 18"):
        programs_told()


@pytest.mark.parametrize("secret", ["super-secret", "copy-secret", "rest-secret", "gate-secret"])
def test_printing_a_plan_shows_no_password(secret: str) -> None:
    assert secret not in repr(PLAN)
    assert secret not in repr(PLAN.gateway)


def test_settings_of_an_order_are_laid_over_those_of_the_cell() -> None:
    base = {"ttl": 20, "postgresql": {"use_slots": True, "parameters": {"max_connections": 100}}}
    above = {"ttl": 30, "postgresql": {"parameters": {"work_mem": "4MB", "max_connections": None}}}
    assert merged(base, above) == {"ttl": 30, "postgresql": {"use_slots": True, "parameters": {"work_mem": "4MB"}}}
    assert base["ttl"] == 20


def test_a_process_is_found_again_by_its_file_and_ended(tmp_path: Path) -> None:
    file = tmp_path / "process"
    mine = Spawned(file)
    mine.start(["sleep", "600"], environment={"PATH": "/usr/bin:/bin"}, log=tmp_path / "log")
    until(lambda: mine.running is not None and mine.running.command == ["sleep", "600"], 60, file.read_text)
    found = Running.of_file(file)
    assert found == mine.running
    assert found is not None
    found.send(signal.SIGKILL)
    until(lambda: not mine.is_alive, 60, file.read_text)
    assert Running.of_file(file) is None
    mine.forget()
    assert not file.exists()


def test_another_process_of_the_same_id_is_not_taken_for_it(tmp_path: Path) -> None:
    file = tmp_path / "process"
    fields = Path("/proc/self/stat").read_text()
    assert fields.startswith(f"{os.getpid()} ")
    file.write_text(fields)
    assert Running.of_file(file) == Running.of_pid(os.getpid())
    head, _, tail = fields.rpartition(") ")
    words = tail.split()
    words[19] = "1"
    file.write_text(f"{head}) {' '.join(words)}")
    assert Running.of_file(file) is None


@pytest.mark.parametrize("text", ["", "12", "garbage (", "1 (a) S"])
def test_a_file_that_says_nothing_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "process").write_text(text)
    assert Running.of_file(tmp_path / "process") is None


def test_a_port_that_somebody_listens_on_is_left_out() -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", first)):
        assert first not in PortRange(first, first + 3).free("127.0.0.1", taken=set())
    assert first + 1 not in PortRange(first, first + 3).free("127.0.0.1", taken={first + 1})


@pytest.mark.parametrize("text", ["", "1", "5-5", "9-2", "0-5", "1-65536", "a-b", "-5", f"1-{9:0>5000}"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        PortRange.of_text(text)


def test_a_process_counts_from_its_start_although_it_is_not_written_down_yet(tmp_path: Path) -> None:
    """Whoever asks a moment after the start must not take it for ended, and remove its folder."""
    slow = Spawned(tmp_path / "process")
    slow.start(["/bin/sleep", "600"], environment={}, log=tmp_path / "log")
    assert slow.running is not None
    slow.send(signal.SIGKILL)
    until(lambda: not slow.is_alive, 30, lambda: "it is killed, written down or not")


def test_a_process_that_cannot_be_written_down_is_not_started(tmp_path: Path) -> None:
    process = Spawned(tmp_path)
    with pytest.raises(InvalidInputError, match="Is a directory"):
        process.start(["/bin/true"], environment={}, log=tmp_path / "log")
    assert not process.is_alive


def test_whoever_comes_after_a_start_finds_its_process(tmp_path: Path) -> None:
    """An agent may die right after the start, before the process is written down: the next one must not start a second."""
    for number in range(20):
        file = tmp_path / str(number)
        first = Spawned(file)
        first.start(["/bin/sleep", "600"], environment={}, log=tmp_path / "log")
        second = Spawned(file)
        try:
            assert second.running == Running.of_pid(first.running.pid if first.running is not None else 0)
            second.start(["/bin/sleep", "600"], environment={}, log=tmp_path / "log")
            assert second.running == first.running
        finally:
            second.send(signal.SIGKILL)
            first.send(signal.SIGKILL)
        until(lambda: not first.is_alive, 30, lambda: "it is killed")  # noqa: B023


def test_a_start_beside_another_is_refused_in_words(tmp_path: Path) -> None:
    process = Spawned(tmp_path / "process")
    with process.file.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InvalidInputError, match="another start of it goes on: try again"):
            process.start(["/bin/true"], environment={}, log=tmp_path / "log")
    assert not process.is_alive


def test_a_start_that_does_not_end_is_told_and_stops_no_other_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyplan.apps.patroni.processes._START_SECONDS_MAX", 0.05)
    host = Host(Path("/usr/bin"), sys.executable, tmp_path / "patroni.py", "")
    for name in ("n1", "n2"):
        Node(tmp_path / name, PLAN, host).prepare()
    with (tmp_path / "n1" / "process").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = found_nodes(tmp_path, host)
        assert list(found.damaged) == ["n1"]
        assert "does not begin. End the shell" in found.damaged["n1"]
        assert [node.folder.name for node in found.nodes] == ["n2"]
    assert found_nodes(tmp_path, host).damaged == {}


def test_a_node_whose_user_the_machine_has_lost_keeps_no_other_from_being_found(tmp_path: Path) -> None:
    host = Host(Path("/usr/bin"), "", Path())
    for name in ("n1", "n2"):
        Node(tmp_path / name, PLAN, host).prepare()
    file = tmp_path / "n1" / "node.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "user": "no-such-user-here"}))
    found = found_nodes(tmp_path, host)
    assert [node.folder.name for node in found.nodes] == ["n2"]
    assert "no-such-user-here" in found.damaged["n1"]


def test_a_node_says_how_large_its_data_are_and_measures_them_now_and_then(tmp_path: Path) -> None:
    clock = FakeClock()
    node = Node(tmp_path / "n1", PLAN, Host(Path("/usr/bin"), "", Path()), clock)
    assert node.data_bytes() == 0
    data = tmp_path / "n1" / "home" / "data"
    (data / "base").mkdir(parents=True)
    (data / "base" / "1").write_text("rows")
    (data / "elsewhere").symlink_to("/usr")
    assert node.data_bytes() == 0
    clock.advance(10)
    assert node.data_bytes() == len("rows") + len("/usr")
