"""Bindings in a real PostgreSQL: a role of its own for each, dead after unbind, what it made stays."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from keyplan.apps.patroni import Broker
from keyplan.store import Store, open_store
from tests.apps.patroni.conftest import Deployment, broker_server
from tests.apps.patroni.osb_platform import SOLO, Platform
from tests.apps.patroni.paper_cell import PaperCells
from tests.servers.etcd import free_port

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed: apt-get install postgresql-15"),
]
HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


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

    with (
        open_store(url) as store,
        broker_server(url, "host=router.example", "replica-ports=34000", "sslmode=require") as server,
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
    assert one["uri"] == f"{log_in}:33000/postgres?sslmode=require"
    assert one["jdbcUrl"].endswith(f"password={one['password']}&sslmode=require")
    assert (one["read_port"], one["read_uri"]) == (34000, f"{log_in}:34000/postgres?sslmode=require")
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
