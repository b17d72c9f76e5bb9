"""Bindings in a real PostgreSQL: a role of its own for each, dead after unbind, what it made stays."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from keyplan import Secret
from keyplan.apps.patroni import Binding as BindingRecord
from keyplan.apps.patroni import BindingKey, Broker, Cell, Credentials, MemberKey, NodeKey, Operation
from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.operation_progress import Waits
from keyplan.apps.patroni.operations import new_password
from keyplan.apps.patroni.postgresql_roles import create_role
from keyplan.engine import SYSTEM_CLOCK
from keyplan.layout import Binding
from keyplan.store import Store, open_store
from tests.apps.patroni.conftest import Deployment, broker_server
from tests.apps.patroni.osb_platform import SOLO, Platform
from tests.apps.patroni.paper_cell import PaperCells
from tests.apps.patroni.paper_cluster import PaperCluster
from tests.servers.authority import Authority
from tests.servers.etcd import free_port

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed: apt-get install postgresql-15"),
]
HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n"


def as_user(*command: str) -> list[str]:
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "env", *command]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[tuple[Path, int]]:
    """A PostgreSQL server: the folder of its socket, and its port."""
    folder, port = Path(tempfile.mkdtemp(prefix="keyplan-pg-")), free_port()
    data, programs = folder / "data", PROGRAMS[-1]
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    try:
        initdb = as_user(str(programs / "initdb"), "-D", str(data), "-U", "postgres", "--no-sync", "-A", "trust")
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
        (data / "pg_hba.conf").write_text(HBA)
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c log_statement=all"
        control = [str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
        subprocess.run(as_user(*control, "-o", options, "start"), check=True, capture_output=True, cwd=folder)
        try:
            yield folder, port
        finally:
            subprocess.run(as_user(*control, "-m", "immediate", "stop"), check=True, capture_output=True, cwd=folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bindable(postgresql: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A broker with the instance `db`, whose leader is the PostgreSQL server."""
    folder, port = postgresql
    url = f"lmdb:{tmp_path_factory.mktemp('bindings')}/store.kv"

    def led(instance: str) -> str:
        password = Broker(store).instances.require(instance).superuser_credentials.password.reveal()
        with psycopg.connect(host=str(folder), port=port, user="postgres", dbname="postgres") as connection:
            connection.execute(psycopg.sql.SQL("ALTER ROLE postgres PASSWORD {}").format(password))
        return f"127.0.0.1:{port}"

    authority = Authority.create(tmp_path_factory.mktemp("authority")).ca
    tls = f"tls-authority={authority}"
    with (
        open_store(url) as store,
        broker_server(url, "host=router.example", "replica-ports=34000", tls) as server,
        PaperCells(store, "n1", postgresql=led),
    ):
        platform = Platform(server.url)
        assert platform.provision("db", SOLO).status_code == 202
        assert platform.ended("db")["state"] == "succeeded"
        yield Deployment(server, store, Broker(store), platform)


def connected(credentials: dict[str, str], port: int) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(
        host="127.0.0.1",
        port=port,
        user=credentials["username"],
        password=credentials["password"],
        dbname=credentials["name"],
        connect_timeout=30,
    )


def test_a_binding_lives_and_dies_and_its_tables_stay(bindable: Deployment, postgresql: tuple[Path, int]) -> None:
    platform, port = bindable.platform, postgresql[1]
    first, second = platform.bind("db", "b1", SOLO), platform.bind("db", "b2", SOLO)
    assert [first.status_code, second.status_code] == [201, 201]
    one, two = first.json()["credentials"], second.json()["credentials"]
    assert one["username"] != two["username"]
    assert (one["host"], one["port"], one["name"]) == ("router.example", 33000, "postgres")
    log_in = f"postgres://{one['username']}:{one['password']}@router.example"
    assert one["uri"] == f"{log_in}:33000/postgres?sslmode=verify-full"
    assert one["jdbcUrl"].endswith(f"password={one['password']}&sslmode=verify-full")
    assert (one["read_port"], one["read_uri"]) == (34000, f"{log_in}:34000/postgres?sslmode=verify-full")
    assert one["ca_certificate"].startswith("-----BEGIN CERTIFICATE-----")
    assert first.json()["endpoints"] == [{"host": "router.example", "ports": ["33000", "34000"]}]
    again = platform.bind("db", "b1", SOLO)
    assert (again.status_code, again.json()) == (200, first.json())
    assert platform.bind("db", "b1", SOLO, app_guid="another").status_code == 409
    path = "/v2/service_instances/db/service_bindings/b1"
    assert platform.http.get(path).json() == first.json()
    assert platform.http.get(f"{path}/last_operation").json()["state"] == "succeeded"
    assert platform.bind("db", "b3", SOLO, parameters={"colour": "blue"}).status_code == 400

    with connected(one, port) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    session = connected(one, port)
    try:
        assert platform.unbind("db", "b1", SOLO).status_code == 200
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    finally:
        session.close()
    with pytest.raises(psycopg.OperationalError):
        connected(one, port)
    assert platform.unbind("db", "b1", SOLO).status_code == 410
    assert platform.http.get(path).status_code == 404
    with connected(two, port) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
        connection.execute("DROP TABLE kept")


def test_no_log_and_no_admin_answer_holds_a_password(bindable: Deployment, postgresql: tuple[Path, int]) -> None:
    platform = bindable.platform
    password = platform.bind("db", "secret", SOLO).json()["credentials"]["password"]
    shown = platform.http.get("/admin/service_instances/db")
    assert {"binding_id": "secret", "state": "ready", "app_guid": ""} in shown.json()["bindings"]
    log = (postgresql[0] / "log").read_text()
    assert "SCRAM-SHA-256$" in log
    assert password not in shown.text + bindable.server.log + log


def test_a_binding_whose_broker_died_is_made_by_a_repeat(bindable: Deployment, postgresql: tuple[Path, int]) -> None:
    """What a broker leaves that dies between the record and the role: the record, in state creating."""
    platform, store = bindable.platform, bindable.store
    credentials = platform.bind("db", "half", SOLO).json()["credentials"]
    with psycopg.connect(host=str(postgresql[0]), port=postgresql[1], user="postgres", dbname="postgres") as superuser:
        superuser.execute(psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(credentials["username"])))
    set_creating(store)
    assert platform.http.get("/v2/service_instances/db/service_bindings/half").status_code == 404
    repeated = platform.bind("db", "half", SOLO)
    assert (repeated.status_code, repeated.json()["credentials"]) == (201, credentials)
    connected(credentials, postgresql[1]).close()


def set_creating(store: Store) -> None:
    broker = Broker(store)
    ((key, record),) = [item for item in broker.bindings.list("db") if item[0].binding == "half"]
    record.state = "creating"
    broker.bindings.put(key, record)


def connected_as(role: Credentials, port: int, **given: str) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(
        host="127.0.0.1",
        port=port,
        user=role.username,
        password=role.password.reveal(),
        dbname="postgres",
        connect_timeout=30,
        autocommit=True,
        **given,  # type: ignore[arg-type]
    )


class SingleNode:
    """A cluster on paper whose one node is a real PostgreSQL, and whose Patroni reads what it is told and logs in by it."""

    def __init__(self, cluster: PaperCluster, postgresql: tuple[Path, int], stack: ExitStack) -> None:
        self._cluster, self._broker, self._port = cluster, cluster.broker, postgresql[1]
        self._heartbeat: psycopg.Connection[tuple[object, ...]] | None = None
        self._folder = postgresql[0]
        stack.callback(self._restore)
        for node in ("a", "c"):
            self._broker.nodes.delete(NodeKey("f1", node))
            self._broker.members.delete(MemberKey("f1", node))
        member = self._broker.members.require(MemberKey("f1", "b"))
        member.conn_url = Secret(f"postgres://127.0.0.1:{self._port}/postgres")
        self._broker.members.put(MemberKey("f1", "b"), member, lease=cluster.lease)
        self._broker.cells.put("cell-b", Cell(), lease=cluster.lease)
        self._broker.operations.put("f1", Operation(id="p", kind="provision", status="success"))
        state = self._broker.instances.require("f1")
        state.superuser_credentials = self._made("postgres", "SUPERUSER")
        state.replication_credentials = self._made("replicator", "REPLICATION")
        state.rewind_credentials = self._made("rewinder", "")
        self._broker.instances.put("f1", state)
        cluster.waits, cluster.on_pause = Waits(step_seconds_max=120.0, look_seconds=0.01), self._read

    def _made(self, name: str, attributes: str) -> Credentials:
        role = Credentials(username=name, password=new_password())
        verb = "ALTER" if name == "postgres" else "CREATE"
        self._as_owner(f"{verb} ROLE {name} LOGIN {attributes} PASSWORD '{role.password.reveal()}'")
        return role

    def _as_owner(self, statement: str) -> None:
        with psycopg.connect(host=str(self._folder), port=self._port, user="postgres") as connection:
            connection.execute("SET log_statement = none")
            connection.execute(statement.encode())

    def _restore(self) -> None:
        """The module's other tests have the server as it was."""
        if self._heartbeat is not None:
            self._heartbeat.close()
        self._as_owner("ALTER ROLE postgres VALID UNTIL 'infinity'")

    def _read(self) -> None:
        """Patroni's loop."""
        self._cluster.say("b", tags={"keyplan_logins": self._broker.instances.require("f1").logins})
        with suppress(psycopg.Error):
            if self._heartbeat is not None:
                self._heartbeat.execute("SELECT 1")
                return
        self._heartbeat = connected_as(self.logins()[0], self._port, application_name="Patroni heartbeat")

    def bind(self) -> Credentials:
        """Make a binding, as a platform's was made, and return its user."""
        role = Credentials(username="ub1", password=new_password())
        create_role(f"127.0.0.1:{self._port}", self.logins()[0], "postgres", role)
        record = BindingRecord(service_id="s", plan_id="p", state="ready", credentials=role)
        self._broker.bindings.put(BindingKey("f1", "b1"), record)
        return role

    def binding(self) -> Credentials:
        return self._broker.bindings.require(BindingKey("f1", "b1")).credentials

    def logins(self) -> tuple[Credentials, ...]:
        state = self._broker.instances.require("f1")
        return state.superuser_credentials, state.replication_credentials, state.rewind_credentials

    def takes(self, role: Credentials) -> bool:
        try:
            connected_as(role, self._port).close()
        except psycopg.OperationalError:
            return False
        return True

    def begin(self, keep_seconds: float) -> Operation:
        return Actions(self._cluster.store, SYSTEM_CLOCK).begin(
            "f1", Action(kind=ActionKind.ROTATE, keep_seconds=keep_seconds)
        )


class Killed(BaseException):
    """The broker ends here: nothing else of it is done."""


class MortalStore:
    """A cluster's store, whose broker dies at each of its commits twice: before it is made, and when it is."""

    def __init__(self, cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaths = 0
        self._cluster = cluster
        self._died: set[tuple[object, ...]] = set()
        self._run = cluster.store.run
        monkeypatch.setattr(cluster.store, "run", self.run)

    def run(self, work: Callable[[Binding], Any]) -> Any:
        operation = self._cluster.broker.operations.require("f1")
        self._die(operation, "before")
        revision = self._cluster.store.revision
        done = self._run(work)
        if self._cluster.store.revision > revision:
            self._die(operation, "after")
        return done

    def _die(self, operation: Operation, when: str) -> None:
        step = operation.steps[operation.completed_steps : operation.completed_steps + 1]
        place = (when, operation.completed_steps, operation.message, *(each.mark for each in step))
        if place not in self._died:
            self._died.add(place)
            self.deaths += 1
            raise Killed

    def carried_out(self) -> Operation:
        """What becomes of the operation that broker after broker goes on with."""
        while (found := self._cluster.broker.operations.require("f1")).status == "in-progress":
            with suppress(Killed):
                self._cluster.carried_out(found)
        return found


def test_logins_are_replaced_by_brokers_that_die_at_each_commit_and_nobody_is_refused(
    postgresql: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node, with all that PostgreSQL is asked for: roles made, used, and ended."""
    port = postgresql[1]
    with ExitStack() as stack:
        cluster = PaperCluster()
        single = SingleNode(cluster, postgresql, stack)
        binding = single.bind()
        first = single.logins()
        assert all(single.takes(role) for role in (*first, binding))

        single.begin(keep_seconds=3600)
        mortal = MortalStore(cluster, monkeypatch)
        assert mortal.carried_out().message == "done"
        assert mortal.deaths > 20
        monkeypatch.undo()
        second, rebound = single.logins(), single.binding()
        assert [role.username for role in (*second, rebound)] == ["postgres_2", "replicator_2", "rewinder_2", "ub1_2"]
        # Both count meanwhile, and the sessions of the former ones go on.
        assert all(single.takes(role) for role in (*first, *second, binding, rebound))
        with connected_as(rebound, port) as connection:
            shown = connection.execute("SELECT session_user, current_user").fetchone()
        assert shown == ("ub1_2", "keyplan_app")

        assert cluster.carried_out(single.begin(keep_seconds=0)).message == "done"
        third, again = single.logins(), single.binding()
        assert [role.username for role in (*third, again)] == ["postgres_3", "replicator_3", "rewinder_3", "ub1_3"]
        assert all(single.takes(role) for role in (*third, again))
        assert not any(single.takes(role) for role in (*first, *second, binding, rebound))
        with connected_as(third[0], port) as superuser:
            left = superuser.execute("SELECT rolname FROM pg_roles")
            names = {row[0] for row in left}
            assert names >= {"postgres", "postgres_3", "replicator_3", "rewinder_3", "ub1_3"}
            assert names.isdisjoint(
                {"postgres_2", "replicator", "replicator_2", "rewinder", "rewinder_2", "ub1", "ub1_2"}
            )
            # What others have called so is theirs.
            superuser.execute("CREATE ROLE postgres_4 NOLOGIN")
        assert cluster.carried_out(single.begin(keep_seconds=0)).message == "done"
        assert single.logins()[0].username == "postgres_5"
        with connected_as(single.logins()[0], port) as superuser:
            theirs = superuser.execute("SELECT rolsuper, rolvaliduntil FROM pg_roles WHERE rolname = 'postgres_4'")
            assert theirs.fetchall() == [(False, None)]
            superuser.execute("DROP ROLE postgres_4")
    log = (postgresql[0] / "log").read_text()
    assert not [role for role in (*first, *second, *third, again) if role.password.reveal() in log]
