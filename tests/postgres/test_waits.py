"""Who waits for whom: a commit not for the holders of snapshots, nobody for a silent host, and what a given-up wait means."""

import socket
from threading import Thread

import pytest

from keyplan.engine import Commit, Put
from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres import PostgresEngine
from keyplan.engine.postgres.session import connect
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError
from keyplan.testing.engine_suite import eventually
from tests.servers.postgres import PASSWORD, SUPERUSER, PostgresServer

OWN = "own"


def test_a_commit_does_not_wait_for_the_holders_of_snapshots(postgres_server: PostgresServer) -> None:
    with postgres_server.opened(OWN, connections="2", timeout="20") as engine:
        held = [engine.snapshot() for _ in range(2)]
        for snapshot in held:
            snapshot.get(b"a")
        unread = engine.snapshot()
        begun = SYSTEM_CLOCK.monotonic()
        engine.commit(Commit((), (Put(b"a", b"1"),)))
        assert SYSTEM_CLOCK.monotonic() < begun + 10
        with pytest.raises(EngineUnavailableError, match="in use by snapshots"):
            unread.get(b"a")
        for snapshot in (*held, unread):
            snapshot.close()


def test_a_wait_for_a_replica_that_is_given_up_leaves_the_outcome_unknown(
    postgres_server: PostgresServer, engine: PostgresEngine
) -> None:
    raised: list[CommitOutcomeUnknownError] = []

    def commit() -> None:
        # Why again and again: the engine's own connection may take the new setting over later than others.
        while not raised:
            try:
                engine.commit(Commit((), (Put(b"a", b"1"),)))
            except CommitOutcomeUnknownError as error:
                raised.append(error)

    def is_waiting() -> bool:
        return bool(postgres_server.query("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

    engine.value(b"a")
    postgres_server.query("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'")
    try:
        postgres_server.query("SELECT pg_reload_conf()")
        # Why in the file's own words: each connection takes the new setting over when it is next idle.
        eventually(lambda: postgres_server.query("SHOW synchronous_standby_names") == [("nobody",)])
        writer = Thread(target=commit)
        writer.start()
        eventually(is_waiting)
        postgres_server.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        writer.join()
    finally:
        postgres_server.query("ALTER SYSTEM RESET synchronous_standby_names")
        postgres_server.query("SELECT pg_reload_conf()")
    (error,) = raised
    assert "synchronous replication" in str(error.facts["problem"])


def test_the_host_that_answered_last_is_asked_first(postgres_server: PostgresServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        keywords = {
            "host": "127.0.0.1,127.0.0.1", "port": f"{silent.getsockname()[1]},{postgres_server.port}",
            "user": SUPERUSER, "password": PASSWORD, "dbname": "postgres",
        }  # fmt: skip
        connect(keywords, seconds=4).close()
        begun = SYSTEM_CLOCK.monotonic()
        connect(keywords, seconds=4).close()
        assert SYSTEM_CLOCK.monotonic() < begun + 1.9, "libpq waits two seconds for a host that is silent"
