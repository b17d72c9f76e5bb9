"""Commits of threads share a transaction; one that is refused harms no other; the bytes of parameters, by hand."""

import os
import threading

import pytest

from keyplan.engine import Commit, Engine, FailedGuard, KeyAbsent, KeyRange, KeyUnchanged, Put, RangeUnchanged
from keyplan.engine.postgres import PostgresEngine
from keyplan.engine.postgres.session import Session
from keyplan.engine.postgres.wire import bytes_array, copied_entries, number, number_array
from keyplan.errors import CommitConflictError, EngineRefusedError, EngineUnavailableError
from tests.servers.postgres import PostgresServer


def test_parameters_are_the_bytes_that_the_protocol_says() -> None:
    assert number(258).hex() == "0000000000000102"
    assert number(-1).hex() == "ff" * 8
    assert number(1 << 70).hex() == "7f" + "ff" * 7
    assert bytes_array([]).hex() == "000000000000000000000011"
    assert bytes_array([b"a", b""]).hex() == (
        "00000001" + "00000000" + "00000011" + "00000002" + "00000001" + "00000001" + "61" + "00000000"
    )
    assert number_array([7]).hex() == "00000001" + "00000000" + "00000014" + "00000001" + "00000001" + (
        "00000008" + "0000000000000007"
    )
    assert b"".join(copied_entries([(b"k", b"vw")], 3)).hex() == (
        "5047434f50590aff0d0a00" + "00" * 8 + "0006" + "00000001" + "6b" + "00000002" + "7677"
        "00000008" + "0000000000000003" + "00000008" + "0000000000000003"
        "00000008" + "0000000000000001" + "00000008" + "0000000000000000" + "ffff"
    )


def test_commits_that_come_while_one_is_under_way_share_the_next_transaction(
    engine: PostgresEngine, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.commit(Commit((), (Put(b"taken", b""),)))
    stranger = postgres_server.connect()
    stranger.execute("BEGIN")
    stranger.execute("SELECT FROM own.state FOR UPDATE")
    trips: list[int] = []
    send = Session.send

    def noting(session: Session, *requests: object) -> None:
        if len(requests) > 2:  # BEGIN, the lock, and commits
            trips.append(len(requests) - 2)
        send(session, *requests)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(Session, "send", noting)
    told: dict[int, int | Exception] = {}

    def put(place: int) -> None:
        guards = (KeyAbsent(b"taken"),) if place == 3 else ()
        try:
            told[place] = engine.commit(Commit(guards, (Put(b"%d" % place, b""),)))
        except CommitConflictError as error:
            told[place] = error

    first = threading.Thread(target=put, args=(0,))
    first.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'"
    give_up = threading.Event()
    while postgres_server.query(waiting) != [(1,)]:
        assert not give_up.wait(0.01)
    others = [threading.Thread(target=put, args=(place,)) for place in range(1, 6)]
    for thread in others:
        thread.start()
    queue = engine._writer._queue  # Why: what waits can be seen nowhere else.
    while len(queue._waiting) != 6:
        assert not give_up.wait(0.01)
    stranger.execute("ROLLBACK")
    stranger.close()
    for thread in (first, *others):
        thread.join()
    assert trips == [1, 5]
    assert told[0] == 2
    assert isinstance(told.pop(3), CommitConflictError)
    assert sorted(revision for revision in told.values() if isinstance(revision, int)) == [2, 3, 4, 5, 6]


def test_a_commit_that_the_server_refuses_harms_no_other_of_its_transaction(
    engine: Engine, postgres_server: PostgresServer
) -> None:
    postgres_server.query(
        "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF new.key = 'bad' THEN RAISE 'no such key here'; END IF; RETURN new; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON own.entries FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    )
    try:
        told: list[int | str] = []

        def put(key: bytes) -> None:
            try:
                told.append(engine.commit(Commit((), (Put(key, b"secret value"),))))
            except EngineRefusedError as error:
                told.append(str(error))

        threads = [threading.Thread(target=put, args=(key,)) for key in (b"a", b"bad", b"c", b"d")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (refusal,) = (text for text in told if isinstance(text, str))
        assert "no such key here (P0001)" in refusal
        assert "secret" not in refusal
        assert sorted(revision for revision in told if isinstance(revision, int)) == [1, 2, 3]
    finally:
        postgres_server.query("DROP TRIGGER refuse ON own.entries")


def test_a_guard_on_a_long_list_is_judged_key_by_key(engine: Engine) -> None:
    keys = tuple(b"k%05d" % number for number in range(3_000))
    revision = engine.commit(Commit((), tuple(Put(key, b"") for key in keys)))
    guard = RangeUnchanged(KeyRange.of_prefix(b"k"), revision, keys)
    shorter = RangeUnchanged(guard.range, revision, keys[:-1])
    engine.commit(Commit((guard,), (Put(b"x", b""),)))
    with pytest.raises(CommitConflictError) as caught:
        engine.commit(Commit((shorter,), (Put(b"x", b""),)))
    assert failed_of(caught.value) == [FailedGuard(shorter, b"k02999", revision)]
    engine.commit(Commit((), (Put(b"k01500", b"new"),)))
    with pytest.raises(CommitConflictError):
        engine.commit(Commit((guard,), (Put(b"x", b""),)))


def test_one_guard_given_twice_is_named_twice(engine: Engine) -> None:
    guard = KeyUnchanged(b"a", 5)
    with pytest.raises(CommitConflictError) as caught:
        engine.commit(Commit((guard, guard), ()))
    assert failed_of(caught.value) == [FailedGuard(guard, b"a", 0)] * 2


def failed_of(error: CommitConflictError) -> list[FailedGuard]:
    """The failed guards that an error tells of."""
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    return list(failed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_does_not_speak_on_its_parents_connections(engine: Engine) -> None:
    engine.commit(Commit((), (Put(b"a", b"1"),)))
    child = os.fork()
    if child == 0:
        try:
            engine.value(b"a")
        except EngineUnavailableError as error:
            engine.close()
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.value(b"a") == b"1"
