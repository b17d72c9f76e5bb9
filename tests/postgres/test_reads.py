"""Lists of one state while others write, what a read costs in round trips, and connections that are used up."""

import gc
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, KeyRange, Put
from keyplan.engine.postgres import PostgresEngine
from keyplan.engine.postgres.session import Session
from keyplan.errors import EngineUnavailableError
from tests.servers.postgres import PostgresServer

Impatient = Callable[[], AbstractContextManager[None]]
KEYS = [b"%05d" % number for number in range(5_000)]


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The statements of each round trip as they are sent, but for those that set a connection up or look for ended leases."""
    made: list[list[bytes]] = []
    send = Session.send

    def noting(session: Session, *requests: object) -> None:
        names = [request[0].name for request in requests]  # type: ignore[index]  # what a request is
        if names not in ([b"settings"], [b"next_end"]):
            made.append(names)
        send(session, *requests)  # type: ignore[arg-type]  # as above

    monkeypatch.setattr(Session, "send", noting)
    return made


def test_a_list_is_of_one_state_whatever_others_write_meanwhile(
    engine: Engine, postgres_server: PostgresServer
) -> None:
    engine.load((key, b"v" * 100) for key in KEYS)
    with postgres_server.opened("own") as other, engine.snapshot() as snapshot:
        scan = snapshot.scan(ALL_KEYS)
        head = [next(scan).key for _ in range(150)]
        other.commit(Commit((), (*(Delete(key) for key in KEYS[::2]), Put(b"00200x", b""))))
        other.compact(other.commit(Commit((), (Put(KEYS[1], b"new"),))))
        assert head + [entry.key for entry in scan] == KEYS
        assert [key for key, _ in snapshot.pairs(ALL_KEYS, reverse=True)] == KEYS[::-1]
        assert snapshot.count(ALL_KEYS) == 5_000
        assert snapshot.value(KEYS[1]) == b"v" * 100
        assert other.value(KEYS[1]) == b"new"


def test_a_snapshot_that_has_read_nothing_does_not_see_a_later_commit_of_its_engine(engine: Engine) -> None:
    engine.commit(Commit((), (Put(b"a", b"1"),)))
    with engine.snapshot() as early, engine.snapshot() as another:
        done: list[int] = []
        writer = threading.Thread(target=lambda: done.append(engine.commit(Commit((), (Put(b"a", b"2"),)))))
        writer.start()
        writer.join()
        assert done == [2]
        assert (early.value(b"a"), another.revision, another.value(b"a")) == (b"1", 1, b"1")
    assert engine.value(b"a") == b"2"


def test_reads_and_commits_take_the_round_trips_that_are_told(engine: Engine, trips: list[list[bytes]]) -> None:
    engine.commit(Commit((), (Put(b"a", b"1"),)))
    engine.value(b"a")
    with engine.snapshot() as snapshot:
        snapshot.get(b"a")  # Why: its connection is new, and is asked where it leads.
    trips.clear()
    engine.value(b"a")
    assert trips == [[b"value"]]
    trips.clear()
    with engine.snapshot() as snapshot:
        snapshot.get(b"a")
        list(snapshot.scan(ALL_KEYS))
    assert trips == [[b"snapshot", b"get"], [b"entry_ASC"], [b"rollback"]]
    trips.clear()
    engine.commit(Commit((), (Put(b"a", b"2"),)))
    assert trips == [[b"begin", b"lock", b"carry-put"], [b"commit"]]
    trips.clear()
    with engine.snapshot() as snapshot:
        list(snapshot.keys(KeyRange(b"b", b"a")))
        snapshot.get(b"")
        snapshot.get(b"k" * 2_601)
        assert len(trips) == 1


def test_pages_hold_as_many_entries_as_fit(engine: Engine, trips: list[list[bytes]]) -> None:
    engine.load((b"%03d" % number, b"v" * (1 << 16)) for number in range(300))
    with engine.snapshot() as snapshot:
        snapshot.get(b"000")  # Why: its connection is new, and is asked where it leads.
    trips.clear()
    with engine.snapshot() as snapshot:
        assert sum(len(entry.value) for entry in snapshot.scan(ALL_KEYS)) == 300 << 16
    # 100 entries of 64 KiB, and from then on 4 MiB: 63 each.
    assert [trip[-1] for trip in trips] == [*[b"entry_ASC"] * 5, b"rollback"]


def test_snapshots_beyond_the_connections_are_refused_with_what_to_do(
    postgres_server: PostgresServer, impatient: Impatient
) -> None:
    with postgres_server.opened("own", connections="2") as engine:
        held = [engine.snapshot() for _ in range(3)]
        assert [snapshot.revision for snapshot in held[:2]] == [held[0].revision] * 2
        with (
            impatient(),
            pytest.raises(EngineUnavailableError, match=r"all 2 connections are in use by snapshots.*connections="),
        ):
            held[2].get(b"a")
        assert engine.commit(Commit((), (Put(b"z", b""),))) > 0, "a commit has a connection of its own"
        held[0].close()
        with engine.snapshot() as another:
            assert another.value(b"z") == b""
        for snapshot in held:
            snapshot.close()


def test_a_snapshot_that_nobody_closed_gives_its_connection_back(postgres_server: PostgresServer) -> None:
    with postgres_server.opened("own", connections="1", timeout="30") as engine:
        for _ in range(3):
            list(engine.snapshot().scan(ALL_KEYS))
            gc.collect()
        assert engine.snapshot().get(b"absent") is None


def test_threads_share_the_connections(engine: PostgresEngine) -> None:
    engine.load((key, key) for key in KEYS[:500])
    found: list[int] = []

    def read() -> None:
        for _ in range(3):
            with engine.snapshot() as snapshot:
                found.append(snapshot.count(ALL_KEYS))

    threads = [threading.Thread(target=read) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [500] * 60


def test_an_interrupted_read_costs_its_connection_and_nothing_else(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.commit(Commit((), (Put(b"a", b"1"),)))
    waited = Session._wait

    def interrupted(session: Session, give_up_at: float, *, is_answer_wanted: bool = True) -> None:
        monkeypatch.setattr(Session, "_wait", waited)
        raise KeyboardInterrupt

    with engine.snapshot() as snapshot:
        assert snapshot.get(b"a") is not None
        monkeypatch.setattr(Session, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            snapshot.get(b"a")
        with pytest.raises(EngineUnavailableError, match="was interrupted"):
            snapshot.get(b"a")
    monkeypatch.setattr(Session, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.commit(Commit((), (Put(b"a", b"2"),)))
    assert engine.value(b"a") == b"1"
    assert engine.commit(Commit((), (Put(b"a", b"3"),))) == 2
