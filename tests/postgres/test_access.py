"""Who is let in, what is there, and what is said when it is not: on a real server."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from keyplan.engine import ALL_KEYS, Capability, Commit, Put, Watch, open_engine
from keyplan.errors import (
    EngineOpenError,
    EngineRefusedError,
    StoreMissingError,
    StoreUnreachableError,
    UnsupportedByEngineError,
)
from tests.servers.authority import Authority
from tests.servers.patroni import until
from tests.servers.postgres import PASSWORD, PostgresServer

ONE = Commit((), (Put(b"a", b"1"),))


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error, and all that it carries with it."""
    yield error
    for other in (error.__cause__, error.__context__):
        if other is not None:
            yield from chain_of(other)


def everything_in(error: BaseException) -> str:
    """What a log could ever show of an error: texts, facts and attributes, of its causes and contexts, too."""
    return " ".join(f"{each!r} {each} {each.args} {vars(each)}" for each in chain_of(error))


def test_a_wrong_password_is_said_when_the_store_is_opened_and_not_shown(postgres_server: PostgresServer) -> None:
    with pytest.raises(EngineOpenError) as caught:
        open_engine(postgres_server.url(password="battery-staple"))
    assert not isinstance(caught.value, StoreUnreachableError)
    assert 'password authentication failed for user "postgres"' in str(caught.value)
    assert "battery" not in everything_in(caught.value)


def test_user_and_password_may_come_from_the_environment(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("PGDATABASE", "postgres")
    schema = postgres_server.fresh_schema()
    with open_engine(f"postgresql://127.0.0.1:{postgres_server.port}?schema={schema}") as engine:
        assert engine.commit(ONE) == 1


def test_a_database_that_is_not_there_is_named(postgres_server: PostgresServer) -> None:
    with pytest.raises(EngineOpenError, match='database "elsewhere" does not exist'):
        open_engine(postgres_server.url(database="elsewhere"))


def test_a_store_is_not_made_without_leave(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    with pytest.raises(StoreMissingError, match=f"no keyplan store in the schema '{schema}'"):
        postgres_server.opened(schema, create="false")
    with pytest.raises(StoreMissingError):
        open_engine(postgres_server.local_url(schema=schema), create=False)
    with pytest.raises(StoreMissingError):
        postgres_server.opened(schema, readonly="true")
    postgres_server.opened(schema).close()
    postgres_server.opened(schema, create="false").close()


def test_several_stores_in_one_database_do_not_meet(postgres_server: PostgresServer) -> None:
    first, second = postgres_server.fresh_schema(), postgres_server.fresh_schema()
    with postgres_server.opened(first) as one, postgres_server.opened(second) as other:
        one.commit(ONE)
        assert one.value(b"a") == b"1"
        assert other.value(b"a") is None
        assert other.commit(ONE) == 1


def test_a_schema_of_somebody_else_is_refused(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    postgres_server.query(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.state (name text)")
    with pytest.raises(EngineOpenError, match="of somebody else"):
        postgres_server.opened(schema)
    other = postgres_server.fresh_schema()
    postgres_server.query(f"CREATE SCHEMA {other}; CREATE TABLE {other}.entries (name text)")
    with pytest.raises(EngineOpenError, match="something else by the names"):
        postgres_server.opened(other)
    assert postgres_server.query("SELECT to_regclass(%s)", f"{other}.state") == [(None,)]


def test_a_later_format_is_refused(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    postgres_server.opened(schema).close()
    postgres_server.query(f"UPDATE {schema}.state SET format = 'keyplan 2'")
    with pytest.raises(EngineOpenError, match="are keyplan 2; this keyplan reads 'keyplan 1'"):
        postgres_server.opened(schema)


def test_a_store_without_a_lineage_gets_one(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    with postgres_server.opened(schema) as engine:
        revision = engine.commit(ONE)
    postgres_server.query(f"ALTER TABLE {schema}.state DROP COLUMN store, DROP COLUMN server, DROP COLUMN leapt")
    with pytest.raises(EngineOpenError, match="open the store once for writing"):
        postgres_server.opened(schema, readonly="true")
    with postgres_server.opened(schema) as engine:
        lineage = engine.lineage()
        with engine.snapshot() as snapshot:
            assert snapshot.revision == revision
    with postgres_server.opened(schema) as engine:
        assert lineage.store
        assert engine.lineage() == lineage


def test_a_store_that_several_make_at_once_is_made_once(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    revisions: list[int] = []

    def make() -> None:
        with postgres_server.opened(schema) as engine:
            revisions.append(engine.commit(ONE))

    threads = [Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(revisions) == [1, 2, 3, 4]


def test_a_store_that_is_dropped_under_an_engine_says_so(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    with postgres_server.opened(schema) as engine:
        engine.commit(ONE)
        postgres_server.query(f"DROP SCHEMA {schema} CASCADE")
        with pytest.raises(EngineRefusedError, match="the tables of the store are gone"):
            engine.commit(ONE)
        with engine.snapshot() as snapshot, pytest.raises(EngineRefusedError, match="are gone"):
            snapshot.get(b"a")


@pytest.fixture
def guest(postgres_server: PostgresServer) -> Iterator[str]:
    """A user who may log in, and nothing else; the store `guarded` has one entry."""
    with postgres_server.opened("guarded") as engine:
        postgres_server.emptied("guarded")
        engine.commit(ONE)
    postgres_server.query("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    yield postgres_server.url(user="guest", password="guest", schema="guarded")
    postgres_server.query("DROP OWNED BY guest; DROP ROLE guest")


def test_a_user_without_rights_is_refused_where_they_are_missing(guest: str, postgres_server: PostgresServer) -> None:
    with pytest.raises(EngineOpenError, match="permission denied for schema guarded"):
        open_engine(guest)
    with pytest.raises(EngineOpenError, match="permission denied for database postgres"):
        open_engine(guest.replace("guarded", postgres_server.fresh_schema()))
    postgres_server.query(
        "GRANT USAGE ON SCHEMA guarded TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA guarded TO guest"
    )
    with open_engine(guest) as engine:
        assert engine.value(b"a") == b"1"
        with pytest.raises(EngineRefusedError, match="permission denied for table"):
            engine.commit(Commit((), (Put(b"secret key", b"secret value"),)))


def test_who_may_only_read_reads(guest: str, postgres_server: PostgresServer) -> None:
    postgres_server.query(
        "GRANT USAGE ON SCHEMA guarded TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA guarded TO guest"
    )
    with postgres_server.opened("guarded") as owner, open_engine(guest, readonly=True) as engine:
        lease = owner.lease(60).id
        watch = engine.watch(ALL_KEYS, after=1)
        revision = owner.commit(Commit((), (Put(b"b", b"2", lease),)))
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"a", b"b"]
        assert polled_one(watch) == [revision]
        watch.close()
        held = engine.lease(60, resume=lease)
        assert held.seconds_left() <= 60
        for write in (lambda: engine.commit(ONE), held.revoke, held.keep_alive, lambda: engine.compact(1)):
            with pytest.raises(UnsupportedByEngineError):
                write()


def polled_one(watch: Watch) -> list[int]:
    """Poll until something comes; the revisions."""
    revisions: list[int] = []

    def has_come() -> bool:
        revisions.extend(event.revision for event in watch.poll(0.2))
        return bool(revisions)

    until(has_come, 60.0, lambda: "nothing came")
    return revisions


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_the_encoding_of_a_database_does_not_matter(postgres_server: PostgresServer, encoding: str) -> None:
    database = f"{encoding.lower()}-ü" if encoding == "LATIN1" else encoding.lower()
    postgres_server.query(f'CREATE DATABASE "{database}" ENCODING {encoding} TEMPLATE template0')
    postgres_server.query("ALTER ROLE postgres SET bytea_output = 'escape'")
    try:
        keys = [bytes([number]) for number in range(256)]
        with open_engine(postgres_server.url(database=database)) as engine:
            engine.commit(Commit((), tuple(Put(key, key * 2) for key in keys)))
            with engine.snapshot() as snapshot:
                assert list(snapshot.pairs(ALL_KEYS)) == [(key, key * 2) for key in keys]
            with pytest.raises(EngineOpenError, match="no keyplan store"):
                open_engine(postgres_server.url(database=database, schema="none", create="false"))
    finally:
        postgres_server.query("ALTER ROLE postgres RESET bytea_output")
        postgres_server.query(f'DROP DATABASE "{database}" WITH (FORCE)')


def test_the_settings_of_a_role_do_not_change_what_a_commit_is(postgres_server: PostgresServer) -> None:
    postgres_server.query(
        "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'; "
        "ALTER ROLE postgres SET default_transaction_read_only = on; ALTER ROLE postgres SET search_path = 'nowhere'; "
        "ALTER ROLE postgres SET synchronous_commit = off"
    )
    try:
        with postgres_server.opened(postgres_server.fresh_schema()) as engine, engine.snapshot() as snapshot:
            assert engine.profile.claims(Capability.DURABLE)
            assert snapshot.revision == 0
            assert engine.commit(ONE) == 1
            assert engine.lease(5).keep_alive() == 5
    finally:
        postgres_server.query("ALTER ROLE postgres RESET ALL")


def test_a_store_that_is_not_flushed_does_not_claim_to_be_durable(postgres_server: PostgresServer) -> None:
    with postgres_server.opened(postgres_server.fresh_schema(), durability="none") as engine:
        assert not engine.profile.claims(Capability.DURABLE)
        assert engine.commit(ONE) == 1


@pytest.mark.slow
def test_tls_is_spoken_and_the_servers_certificate_checked(
    authority: Authority, postgres_program: None, tmp_path: Path
) -> None:
    other = Authority.create(tmp_path / "other")
    with PostgresServer(tls=authority, arguments=["-c", "fsync=off"]) as server:
        with open_engine(server.url(sslmode="verify-full", sslrootcert=str(authority.ca))) as engine:
            assert engine.commit(ONE) == 1
            assert not engine.profile.claims(Capability.DURABLE), "the server does not flush"
        with pytest.raises(EngineOpenError, match="certificate verify failed"):
            open_engine(server.url(sslmode="verify-full", sslrootcert=str(other.ca)))
        with pytest.raises(EngineOpenError, match=r"no pg_hba\.conf entry"):
            open_engine(server.url(sslmode="disable"))
