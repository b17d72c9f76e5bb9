"""An upgrade from Debian's PostgreSQL 15 to 18, with real Patroni and a writer at the router; broker and cell are killed."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

import keyplan
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.records import Operation
from tests.apps.patroni.up_process import UpProcess, psql, up_process, why_no_up
from tests.apps.patroni.versions import FORMER, programs_of_18, why_no_upgrade
from tests.servers.patroni import until

MADE = """
create table story (n int primary key);
create sequence counted; select setval('counted', 41);
select 1
"""
ROLE = "create role reader; grant select on story to reader; alter role reader set work_mem = '7MB'; select 1"


@pytest.fixture
def everything() -> Iterator[UpProcess]:
    problem = why_no_upgrade() or why_no_up()
    if problem is not None:
        pytest.skip(f"needs PostgreSQL 15 and 18, and Patroni: {problem}")
    options = ("--postgresql", str(FORMER), "--also-postgresql", str(programs_of_18()))
    # Why without TLS: the wheel's programs are built without it.
    with up_process(cells=2, options=options, has_tls=False) as process:
        yield process


class Writer:
    """Writes numbers through the router, one transaction each, and knows which were acknowledged, and for how long none was."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._stop = Event()
        self._thread = Thread(target=self._run, name="writer")
        self.acknowledged: list[int] = []
        self.refused_seconds = 0.0

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number, last = 0, time.monotonic()
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._uri, connect_timeout=2, autocommit=True) as connection:
                    while not self._stop.wait(0.02):
                        number += 1
                        connection.execute("insert into story values (%s)", (number,))
                        self.acknowledged.append(number)
                        now = time.monotonic()
                        self.refused_seconds, last = max(self.refused_seconds, now - last), now
            except psycopg.Error:
                self._stop.wait(0.1)


def command(everything: UpProcess, words: str) -> str:
    return everything.bash(f"keyplan patroni {words} --store lmdb:/srv/clusters/store")


def operation_of(everything: UpProcess) -> Operation:
    with keyplan.open(everything.ready["store"]) as store:
        return Broker(store).operations.require("f1")


def is_at(everything: UpProcess, kind: str) -> bool:
    """Whether the operation is making a step of this kind."""
    found = operation_of(everything)
    assert found.status == "in-progress", found.message
    return found.completed_steps < len(found.steps) and found.steps[found.completed_steps].kind == kind


def bound_cluster(everything: UpProcess) -> str:
    """Make f1 of two nodes; return how a binding of it logs in."""
    service = everything.call("GET", "/v2/catalog")[1]["services"][0]
    plan = next(plan["id"] for plan in service["plans"] if plan["name"] == "pair")
    ids = {"service_id": service["id"], "plan_id": plan, "organization_guid": "o", "space_guid": "s"}
    assert everything.call("PUT", "/v2/service_instances/f1?accepts_incomplete=true", ids)[0] == 202
    assert everything.until_done("f1") == "succeeded", everything.logs()
    status, answer = everything.call("PUT", "/v2/service_instances/f1/service_bindings/b1", ids)
    assert status == 201, answer
    return str(answer["credentials"]["uri"])


def superuser_uri(everything: UpProcess) -> str:
    """How to log in as f1's superuser, at its leader, in the database of its bindings."""
    with keyplan.open(everything.ready["store"]) as store:
        broker = Broker(store)
        user, port = broker.instances.require("f1").superuser_credentials, broker.allocations.require("f1")
    return f"postgres://{user.username}:{user.password.reveal()}@127.0.0.1:{port}/postgres"


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_cluster_is_upgraded_and_loses_nothing_though_broker_and_cells_are_killed(everything: UpProcess) -> None:
    uri = bound_cluster(everything)
    until(lambda: psql(uri, MADE).endswith("1"), 60, everything.logs)
    assert psql(superuser_uri(everything), ROLE).endswith("1")
    with Writer(uri) as writer:
        begun = time.monotonic()
        provisioned = operation_of(everything)
        assert "upgrade a copy of the data" in command(everything, "upgrade f1 --to 18 --dry-run")
        assert operation_of(everything) == provisioned
        assert psql(uri, "show server_version").startswith("15.")

        command(everything, "upgrade f1 --to 18 --yes --no-wait")
        until(lambda: is_at(everything, "wait_upgraded"), 150, everything.logs)
        for name in ("broker", "cell1", "cell2"):
            everything.part(name).send(signal.SIGKILL)
        assert everything.until_done("f1") == "succeeded", f"{operation_of(everything).message}\n{everything.logs()}"
        before = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > before + 10, 60, everything.logs)
    print(f"upgraded in {time.monotonic() - begun:.1f} s, and nobody wrote for {writer.refused_seconds:.1f} s of them")

    assert psql(uri, "show server_version").startswith("18.")
    rows = {int(line) for line in psql(uri, "select n from story").splitlines()}
    assert set(writer.acknowledged) <= rows
    assert psql(uri, "select nextval('counted')") == "42"
    assert psql(uri, "select has_table_privilege('reader', 'story', 'select')") == "t"
    assert (
        psql(superuser_uri(everything), "select rolconfig from pg_roles where rolname = 'reader'") == "{work_mem=7MB}"
    )
    told = command(everything, "status f1")
    assert "upgrade success" in told
    assert "its former cluster, of PostgreSQL 15, is halted since" in told
    assert "upgrade" in command(everything, "events f1")
    with keyplan.open(everything.ready["store"]) as store:
        broker = Broker(store)
        assert len(list(broker.members.list("f1"))) == 2
        assert [fault.kind for fault in diagnose(store)] == []

    told = command(everything, "upgrade f1 --finish --yes")
    assert told.splitlines()[-1] == "keyplan: done", told
    nodes = [path for path in Path(everything.data).glob("cells/*/nodes/*") if path.is_dir()]
    assert [(path / "home" / "data" / "PG_VERSION").read_text().strip() for path in nodes] == ["18", "18"]
