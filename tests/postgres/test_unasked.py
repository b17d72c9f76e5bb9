"""What a server says without being asked: settings, notices and notifications are taken in; answers and last words are not."""

import struct

import pytest

from keyplan.engine import Commit, Engine, KeyUnchanged, Put
from keyplan.errors import EngineUnavailableError
from keyplan.testing.engine_suite import eventually
from tests.postgres.cutting import CuttingProxy
from tests.postgres.test_faults import through
from tests.servers.postgres import PostgresServer

OWN = "own"


def message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


def notice(severity: bytes, code: bytes) -> bytes:
    fields = b"S%b\x00V%b\x00C%b\x00Msaid unasked\x00\x00" % (severity, severity, code)
    return message(b"N", fields)


HARMLESS = {
    "a setting": message(b"S", b"TimeZone\x00Pacific/Auckland\x00"),
    "a notice": notice(b"NOTICE", b"00000"),
    "a warning": notice(b"WARNING", b"01000"),
    "a notification": message(b"A", struct.pack("!I", 1) + b"channel\x00payload\x00"),
}


@pytest.fixture
def other(engine: Engine, proxy: CuttingProxy, postgres_server: PostgresServer) -> Engine:
    return through(proxy, postgres_server)


@pytest.mark.parametrize("said", HARMLESS.values(), ids=HARMLESS)
def test_a_snapshot_and_a_commit_go_on(other: Engine, proxy: CuttingProxy, said: bytes) -> None:
    with other:
        revision = other.commit(Commit((), (Put(b"a", b"1"),)))
        with other.snapshot() as snapshot:
            assert snapshot.value(b"a") == b"1"
            proxy.say(said)
            assert snapshot.value(b"a") == b"1"
            assert snapshot.value(b"b") is None
        proxy.say(said)
        # Nor is a warning from before taken for one of this commit, whose outcome it would leave unknown.
        other.commit(Commit((KeyUnchanged(b"a", revision),), (Put(b"a", b"2"),)))
        assert other.value(b"a") == b"2"


STRAY = {
    "rows": message(b"D", struct.pack("!H", 0)),
    "the end of a statement": message(b"C", b"SELECT 1\x00"),
    "last words": message(b"E", b"SFATAL\x00VFATAL\x00C57P01\x00Mthe server goes away\x00\x00"),
}


@pytest.mark.parametrize("said", STRAY.values(), ids=STRAY)
def test_an_answer_that_belongs_to_nothing_ends_the_connection(other: Engine, proxy: CuttingProxy, said: bytes) -> None:
    with other:
        other.commit(Commit((), (Put(b"a", b"1"),)))
        with other.snapshot() as snapshot:
            assert snapshot.value(b"a") == b"1"
            proxy.say(said)
            with pytest.raises(EngineUnavailableError):
                snapshot.value(b"a")
        assert other.value(b"a") == b"1"


def test_a_reported_setting_that_is_loaded_anew_ends_no_snapshot(
    engine: Engine, postgres_server: PostgresServer
) -> None:
    revision = engine.commit(Commit((), (Put(b"a", b"1"),)))
    with engine.snapshot() as snapshot:
        assert snapshot.value(b"a") == b"1"
        postgres_server.query("ALTER SYSTEM SET timezone TO 'Pacific/Auckland'")
        try:
            postgres_server.query("SELECT pg_reload_conf()")
            eventually(lambda: postgres_server.query("SHOW timezone") == [("Pacific/Auckland",)])
            for _ in range(2):
                assert snapshot.value(b"a") == b"1"
            engine.commit(Commit((KeyUnchanged(b"a", revision),), (Put(b"a", b"2"),)))
        finally:
            postgres_server.query("ALTER SYSTEM RESET timezone")
            postgres_server.query("SELECT pg_reload_conf()")
        assert snapshot.value(b"a") == b"1"
