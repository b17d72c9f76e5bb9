"""Connections are cut at every place, servers killed, restarted, halted: what was told is true, and everything goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, EngineUrl, KeyAbsent, Put, Watch, open_engine
from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres import options_of
from keyplan.engine.postgres.pool import open_session
from keyplan.engine.postgres.statements import BEGIN, Statements
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError
from tests.etcd.workload import Workload
from tests.postgres.cutting import CuttingProxy
from tests.servers.patroni import until
from tests.servers.postgres import PASSWORD, PostgresServer

ONE = Commit((KeyAbsent(b"a"),), (Put(b"a", b"secret value"),))
SECONDS_MAX = 60.0
Impatient = Callable[[], AbstractContextManager[None]]


def wait_for(is_true: Callable[[], bool]) -> None:
    """Wait for a condition, long enough for a machine that does ten other things."""
    until(is_true, SECONDS_MAX, lambda: "what was waited for did not happen")


def through(proxy: CuttingProxy, server: PostgresServer, **options: str) -> Engine:
    """Open the store `own` by way of the proxy."""
    return open_engine(server.url(schema="own", **options).replace(f":{server.port}/", f":{proxy.port}/"))


# ---- cuts, at a known place -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_delivered", [True, False], ids=["the answer is lost", "it never came"])
def test_a_cut_during_commit_leaves_the_outcome_unknown(
    engine: Engine, proxy: CuttingProxy, postgres_server: PostgresServer, *, is_delivered: bool
) -> None:
    with through(proxy, postgres_server) as other:
        # Why before: the first commit of a connection is sent with its statements' texts, in which the word stands, too.
        other.commit(Commit((KeyAbsent(b"b"),), (Put(b"b", b""),)))
        proxy.cut_at(b"\x00commit\x00", is_delivered=is_delivered)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            other.commit(ONE)
        assert proxy.cuts == 1
        assert caught.value.facts["mutations"] == 1
        assert "secret value" not in f"{caught.value}{caught.value.__cause__}"
        if is_delivered:
            wait_for(lambda: engine.value(b"a") == b"secret value")
        assert (other.value(b"a") is not None) == is_delivered
        assert other.commit(Commit((), (Put(b"c", b""),))) == (3 if is_delivered else 2)


@pytest.mark.parametrize("is_delivered", [True, False], ids=["the answer is lost", "it never came"])
@pytest.mark.parametrize("word", [b"\x00begin\x00", b"\x00lock\x00"])
def test_a_cut_before_commit_is_made_good_and_the_commit_applied_once(
    engine: Engine, proxy: CuttingProxy, postgres_server: PostgresServer, word: bytes, *, is_delivered: bool
) -> None:
    with through(proxy, postgres_server) as other:
        proxy.cut_at(word, is_delivered=is_delivered)
        assert other.commit(ONE) == 1
        assert proxy.cuts == 1
    with engine.snapshot() as snapshot:
        assert [(entry.key, entry.version) for entry in snapshot.scan(ALL_KEYS)] == [(b"a", 1)]


def test_a_read_that_is_cut_is_made_again_and_a_snapshot_that_is_cut_says_so(
    engine: Engine, proxy: CuttingProxy, postgres_server: PostgresServer
) -> None:
    engine.commit(ONE)
    with through(proxy, postgres_server) as other:
        proxy.cut_at(b"\x00value\x00", is_delivered=True)
        assert other.value(b"a") == b"secret value"
        with other.snapshot() as snapshot:
            assert snapshot.revision == 1
            proxy.cut_all()
            engine.commit(Commit((), (Put(b"a", b"later"),)))
            for _ in range(2):
                with pytest.raises(EngineUnavailableError, match="the snapshot's connection broke"):
                    snapshot.get(b"a")
        assert other.value(b"a") == b"later"


def test_a_watch_goes_on_when_its_connections_are_cut(
    engine: Engine, proxy: CuttingProxy, postgres_server: PostgresServer
) -> None:
    with through(proxy, postgres_server) as other:
        watch = other.watch(ALL_KEYS, after=0)
        seen: list[int] = []
        for number in range(1, 4):
            assert engine.commit(Commit((), (Put(b"a", b""),))) == number
            wait_for(lambda: has_seen(watch, seen, number))  # noqa: B023  # Why: it is called before the next number.
            proxy.cut_all()
        assert seen == [1, 2, 3]
        watch.close()


def has_seen(watch: Watch, seen: list[int], revision: int) -> bool:
    """Take what the watch has, and tell whether it came to a revision."""
    seen += [event.revision for event in watch.poll(0.2)]
    return seen[-1:] == [revision]


# ---- locks ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(postgres_server: PostgresServer) -> "Iterator[psycopg.Connection[tuple[object, ...]]]":
    """A stranger's transaction, which holds the lock of the store `own`."""
    with postgres_server.opened("own"), postgres_server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT FROM own.state FOR UPDATE")
        yield connection


def test_a_commit_that_waits_too_long_for_the_lock_is_not_made(
    engine: Engine, holder: "psycopg.Connection[tuple[object, ...]]", impatient: Impatient
) -> None:
    with impatient(), pytest.raises(EngineUnavailableError, match="timeout="):
        engine.commit(ONE)
    holder.execute("ROLLBACK")
    assert engine.commit(Commit((KeyAbsent(b"a"),), (Put(b"b", b""),))) == 1
    assert engine.value(b"a") is None


def test_who_is_halted_with_the_lock_does_not_keep_it(engine: Engine, postgres_server: PostgresServer) -> None:
    options = options_of(EngineUrl.parse(postgres_server.local_url(schema="own", timeout="1")))
    session, _ = open_session(options, seconds=30, ends_idle_transactions=True)
    try:
        # Why by hand: so stands a connection whose process was halted just before its COMMIT.
        session.run((BEGIN, ()), (Statements("own").lock, ()), give_up_at=SYSTEM_CLOCK.monotonic() + 30)
        assert engine.commit(ONE) == 1
    finally:
        session.close()


# ---- the server -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(postgres_program: None) -> Iterator[PostgresServer]:
    """A server of these tests' own, to be mistreated."""
    with PostgresServer() as server:
        yield server


@pytest.mark.slow
def test_a_commit_whose_backend_is_killed_while_it_waits_is_made_once(server: PostgresServer) -> None:
    schema = server.fresh_schema()
    with server.opened(schema, timeout="60") as engine:
        stranger = server.connect()
        stranger.execute("BEGIN")
        stranger.execute(f"SELECT FROM {schema}.state FOR UPDATE".encode())
        revisions: list[int] = []
        writer = threading.Thread(target=lambda: revisions.append(engine.commit(ONE)))
        writer.start()
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'keyplan'"
        wait_for(lambda: len(server.query(waiting)) == 1)
        ((process,),) = server.query(waiting)
        server.hang_up()
        # All connections end then, the stranger's among them, and the server recovers.
        server.kill_backend(process)
        writer.join(SECONDS_MAX)
        stranger.close()
        assert revisions == [1]
        with engine.snapshot() as snapshot:
            assert [(entry.key, entry.version) for entry in snapshot.scan(ALL_KEYS)] == [(b"a", 1)]


@pytest.mark.slow
def test_writes_and_watches_outlive_restarts_and_kills_of_the_server(server: PostgresServer) -> None:
    with server.opened(server.fresh_schema(), timeout="60") as engine, Workload(engine) as workload:
        workload.let_write(20)
        server.restart()
        workload.let_write(20)
        server.kill()
        server.start()
        workload.let_write(20)


@pytest.mark.slow
def test_what_a_halted_server_was_not_told_to_commit_is_not_done(server: PostgresServer, impatient: Impatient) -> None:
    with server.opened(server.fresh_schema()) as engine:
        engine.commit(Commit((), (Put(b"before", b""),)))
        server.pause()
        try:
            with impatient(), pytest.raises(EngineUnavailableError):
                engine.commit(Commit((), (Put(b"never", b""),)))
        finally:
            server.resume()

        def is_back() -> bool:
            try:
                return engine.commit(Commit((), (Put(b"after", b""),))) > 0
            except EngineUnavailableError:
                return False

        wait_for(is_back)
        # Whoever was halted with a transaction of ours has ended it once the lock was given to another.
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"after", b"before"]


@pytest.mark.slow
def test_a_server_that_is_down_is_told_and_used_again_when_it_is_back(
    server: PostgresServer, impatient: Impatient
) -> None:
    with server.opened(server.fresh_schema()) as engine:
        engine.commit(ONE)
        server.stop()
        with impatient(), pytest.raises(EngineUnavailableError) as caught:
            engine.value(b"a")
        assert PASSWORD not in f"{caught.value}{vars(caught.value)}"
        with impatient(), pytest.raises(EngineUnavailableError):
            engine.commit(Commit((), (Put(b"b", b""),)))
        server.start()

        def is_back() -> bool:
            try:
                return engine.value(b"a") == b"secret value"
            except EngineUnavailableError:
                return False

        wait_for(is_back)
        assert engine.value(b"b") is None
