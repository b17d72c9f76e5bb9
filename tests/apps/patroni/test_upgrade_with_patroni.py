"""An upgrade from Debian's PostgreSQL 15 to 18, with real Patroni and a writer at the router; broker and cell are killed."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.diagnosis import diagnose
from tests.apps.patroni.operated import StoryWriter, bind, command, operation_of, provision, superuser_uri
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


def is_at(everything: UpProcess, kind: str) -> bool:
    """Whether the operation is making a step of this kind."""
    found = operation_of(everything)
    assert found.status == "in-progress", found.message
    return found.completed_steps < len(found.steps) and found.steps[found.completed_steps].kind == kind


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_cluster_is_upgraded_and_loses_nothing_though_broker_and_cells_are_killed(everything: UpProcess) -> None:
    provision(everything, "pair")
    uri = bind(everything, "b1", "pair")
    until(lambda: psql(uri, MADE).endswith("1"), 60, everything.logs)
    assert psql(superuser_uri(everything, "f1", sslmode="disable"), ROLE).endswith("1")
    with StoryWriter(uri) as writer:
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
    superuser = superuser_uri(everything, "f1", sslmode="disable")
    assert psql(superuser, "select rolconfig from pg_roles where rolname = 'reader'") == "{work_mem=7MB}"
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
