"""A PostgreSQL store that went back: a server that did not have every commit took over, or an older copy was put in place.

A promotion is staged by the name of the server that the state row keeps: another one than that of the server that answers.
"""

from collections.abc import Iterator

import pytest

from keyplan.engine import ALL_KEYS, LEAP, Commit, Engine, KeyRange, KeyUnchanged, Put, RangeUnchanged
from keyplan.engine.postgres import PostgresEngine, lineage
from keyplan.errors import CommitConflictError, HistoryCompactedError, StaleRecordError
from keyplan.store import Store
from tests.servers.postgres import PostgresServer
from tests.store.layouts import Rack, Site

OWN = "own"


def put(engine: Engine, key: bytes, value: bytes = b"") -> int:
    return engine.commit(Commit((), (Put(key, value),)))


class Replica:
    """What a server has that took over: the store as it was, under the old server's name."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def keep(self) -> None:
        """Remember the store as it is now."""
        for table in ("entries", "history"):
            self._server.query(f"DROP TABLE IF EXISTS kept_{table}")
            self._server.query(f"CREATE TABLE kept_{table} AS TABLE {OWN}.{table}")

    def take_over(self, *, name: str | None = "of another server:00000001") -> None:
        """Put back what was kept; the connections break, as they do when a server dies."""
        for table in ("entries", "history"):
            self._server.query(f"TRUNCATE {OWN}.{table}")
            self._server.query(f"INSERT INTO {OWN}.{table} TABLE kept_{table}")
        if name is not None:
            self._server.query(f"UPDATE {OWN}.state SET server = '{name}'")
        self._server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keyplan'")


@pytest.fixture
def replica(postgres_server: PostgresServer, engine: PostgresEngine) -> Replica:
    return Replica(postgres_server)


def test_the_server_is_named_by_its_system_and_timeline(
    postgres_server: PostgresServer, engine: PostgresEngine
) -> None:
    ((system,),) = postgres_server.query("SELECT system_identifier::text FROM pg_control_system()")
    assert engine.lineage().epoch.startswith(f"{system}:00000001:")


@pytest.mark.parametrize("name", ["of another server:00000001", None], ids=["another server", "the same server"])
def test_no_revision_is_given_out_twice(engine: PostgresEngine, replica: Replica, name: str | None) -> None:
    kept = put(engine, b"a")
    replica.keep()
    lost = put(engine, b"a", b"lost")
    before = engine.lineage()
    replica.take_over(name=name)
    assert put(engine, b"a", b"after") >= lost + LEAP
    assert engine.lineage().store == before.store
    assert engine.lineage().epoch != before.epoch
    for revision in (kept, lost):
        with pytest.raises(CommitConflictError):
            engine.commit(Commit((KeyUnchanged(b"a", revision),), (Put(b"a", b"over what was never seen"),)))


def test_a_watch_is_told_before_anything_is_written(engine: PostgresEngine, replica: Replica) -> None:
    replica.keep()
    put(engine, b"a")
    watch = engine.watch(ALL_KEYS, after=put(engine, b"a", b"lost"))
    replica.take_over()
    with pytest.raises(HistoryCompactedError):
        watch.poll(10)
    watch.close()


def test_a_range_that_was_read_before_is_no_premise_after(engine: PostgresEngine, replica: Replica) -> None:
    put(engine, b"a", b"1")
    replica.keep()
    put(engine, b"a", b"2")
    with engine.snapshot() as snapshot:
        read = tuple(snapshot.scan(ALL_KEYS))
        revision = snapshot.revision
    assert [entry.value for entry in read] == [b"2"]
    replica.take_over()
    guard = RangeUnchanged(KeyRange(b"a", b"b"), revision, (b"a",))
    with pytest.raises(CommitConflictError) as raised:
        engine.commit(Commit((guard,), (Put(b"sum", b"2"),)))
    assert [failure.guard for failure in raised.value.facts["failed"]] == [guard]  # type: ignore[attr-defined]


def test_what_was_not_lost_is_still_unchanged(engine: PostgresEngine, replica: Replica) -> None:
    kept = put(engine, b"a")
    replica.keep()
    put(engine, b"b")
    replica.take_over()
    engine.commit(Commit((KeyUnchanged(b"a", kept),), (Put(b"a", b"again"),)))


def test_connections_of_one_server_claim_nothing(engine: PostgresEngine, replica: Replica) -> None:
    before = engine.lineage()
    revision = put(engine, b"a")
    replica.keep()
    replica.take_over(name=None)
    assert put(engine, b"b") == revision + 1
    assert engine.lineage() == before


def test_who_only_reads_claims_nothing(
    postgres_server: PostgresServer, engine: PostgresEngine, replica: Replica
) -> None:
    kept = put(engine, b"a")
    replica.keep()
    before = engine.lineage()
    engine.close()
    replica.take_over()
    with postgres_server.opened(OWN, readonly="true") as reader, reader.snapshot() as snapshot:
        assert reader.lineage().store == before.store
        assert snapshot.revision == kept
    ((server,),) = postgres_server.query(f"SELECT server FROM {OWN}.state")
    assert server == "of another server:00000001"


def test_who_is_not_told_the_servers_name_claims_nothing(
    postgres_server: PostgresServer, engine: PostgresEngine, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = put(engine, b"a")
    before = engine.lineage()
    monkeypatch.setattr(lineage, "_SERVER", "nobody_may_ask()")  # an undefined function, as for who lacks the privilege
    with postgres_server.opened(OWN) as unprivileged:
        assert unprivileged.lineage() == before
        assert put(unprivileged, b"b") == revision + 1
    replica.keep()
    replica.take_over(name=None)
    assert put(engine, b"c") == revision + 2
    assert engine.lineage() == before


@pytest.mark.parametrize("form", ["as it was read", "its revision"])
def test_a_record_that_was_read_before_is_not_expected_after(
    engine: PostgresEngine, replica: Replica, form: str
) -> None:
    site = Site(Store(engine))
    site.racks.insert("r1", Rack("hall"))
    replica.keep()
    site.racks.put("r1", Rack("seen"))
    seen = site.racks.versioned("r1")
    assert seen is not None
    replica.take_over()
    assert site.racks.put("r1", Rack("another's")) >= seen.revision + LEAP
    with pytest.raises(StaleRecordError):
        site.racks.put("r1", Rack("lost update"), expected_revision=seen if form == "as it was read" else seen.revision)
    assert site.racks.require("r1").room == "another's"


@pytest.fixture(autouse=True)
def _nothing_is_left(postgres_server: PostgresServer) -> Iterator[None]:
    yield
    for table in ("entries", "history"):
        postgres_server.query(f"DROP TABLE IF EXISTS kept_{table}")
    postgres_server.query(f"UPDATE {OWN}.state SET compacted = 0, leapt = 0, server = ''")
