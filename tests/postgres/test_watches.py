"""Watches with and without notifications, whole revisions however large, histories that end, leases that many look at."""

from threading import Thread

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Event, EventKind, KeyRange, Put, Watch
from keyplan.errors import HistoryCompactedError
from tests.servers.patroni import until
from tests.servers.postgres import PostgresServer

SECONDS_MAX = 60.0


def polled(watch: Watch, *, until_revision: int) -> list[list[Event]]:
    """Poll until the watch has come so far; the batches that were not empty."""
    batches: list[list[Event]] = []

    def has_come() -> bool:
        batches.append(list(watch.poll(0.2)))
        return watch.revision >= until_revision

    until(has_come, SECONDS_MAX, lambda: f"the watch stands at {watch.revision}")
    return [batch for batch in batches if batch]


@pytest.mark.parametrize(("writes", "reads"), [("on", "on"), ("off", "on"), ("on", "off"), ("off", "off")])
def test_a_watch_sees_other_engines_commits_whether_or_not_they_are_told(
    engine: Engine, postgres_server: PostgresServer, writes: str, reads: str
) -> None:
    with (
        postgres_server.opened("own", notify=writes) as writer,
        postgres_server.opened("own", notify=reads) as reader,
    ):
        watch = reader.watch(ALL_KEYS, after=0)
        for number in range(1, 6):
            assert writer.commit(Commit((), (Put(b"a", b"%d" % number),))) == number
        batches = polled(watch, until_revision=5)
        assert [event.revision for batch in batches for event in batch] == [1, 2, 3, 4, 5]
        watch.close()


def test_a_revision_of_many_events_comes_whole(engine: Engine) -> None:
    keys = [b"%05d" % number for number in range(2_500)]
    engine.commit(Commit((), tuple(Put(key, b"") for key in keys[:600])))
    engine.commit(Commit((), tuple(Put(key, b"") for key in keys)))
    engine.commit(Commit((), (Put(b"00001", b"x"),)))
    watch = engine.watch(ALL_KEYS, after=0)
    first = list(watch.poll(30))
    assert watch.revision == 2, "it ends with the revision that brings it to a thousand"
    assert [event.revision for event in first] == [1] * 600 + [2] * 2_500
    assert [event.key for event in first[600:]] == keys
    assert [event.key for event in watch.poll(30)] == [b"00001"]
    watch.close()


def test_events_of_a_range_say_what_was_there_before(engine: Engine) -> None:
    engine.load([(b"a1", b"one"), (b"b1", b"other")])
    engine.commit(Commit((), (Put(b"a1", b"two"), Put(b"b1", b"another"))))
    watch = engine.watch(KeyRange.of_prefix(b"a"), after=0)
    (created, updated) = watch.poll(30)
    assert (created.kind, created.entry and created.entry.value, created.previous) == (EventKind.CREATED, b"one", None)
    assert (updated.kind, updated.previous and updated.previous.value) == (EventKind.UPDATED, b"one")
    watch.close()


def test_the_history_is_trimmed_as_it_grows(engine: Engine, postgres_server: PostgresServer) -> None:
    with postgres_server.opened("own", history="10", durability="none") as short:
        threads = [
            Thread(target=lambda: [short.commit(Commit((), (Put(b"a", b""),))) for _ in range(52)]) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(HistoryCompactedError) as caught:
            short.watch(ALL_KEYS, after=900)
        compacted = caught.value.facts["compacted_revision"]
        # It is trimmed by thousands: the commit that made revision 1,000, or a batch just beyond, left ten.
        assert isinstance(compacted, int)
        assert 990 <= compacted <= 1_029
        assert postgres_server.query("SELECT min(revision) > %s FROM own.history", compacted) == [(True,)]
        watch = short.watch(ALL_KEYS, after=1_035)
        assert [event.revision for batch in polled(watch, until_revision=1_040) for event in batch] == [
            1_036, 1_037, 1_038, 1_039, 1_040,
        ]  # fmt: skip
        watch.close()


def test_a_store_whose_whole_history_is_gone_counts_on(engine: Engine, postgres_server: PostgresServer) -> None:
    for _ in range(3):
        engine.commit(Commit((), (Put(b"a", b""),)))
    engine.compact(3)
    assert postgres_server.query("SELECT count(*) FROM own.history") == [(0,)]
    with engine.snapshot() as snapshot:
        assert snapshot.revision == 3
    assert engine.commit(Commit((), (Put(b"a", b""),))) == 4


def test_a_lease_ends_in_one_revision_although_many_look(engine: Engine, postgres_server: PostgresServer) -> None:
    others = [postgres_server.opened("own") for _ in range(3)]
    try:
        lease = engine.lease(600)
        before = engine.commit(Commit((), tuple(Put(b"%d" % number, b"", lease.id) for number in range(5))))
        watches = [other.watch(ALL_KEYS, after=before) for other in others]
        postgres_server.age_leases("own", 601)
        seen: list[list[tuple[EventKind, int]]] = [[] for _ in others]

        def follow(watch: Watch, into: list[tuple[EventKind, int]]) -> None:
            into += [
                (event.kind, event.revision) for batch in polled(watch, until_revision=before + 1) for event in batch
            ]

        threads = [Thread(target=follow, args=pair) for pair in zip(watches, seen, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [[(EventKind.DELETED, before + 1)] * 5] * 3
        with engine.snapshot() as snapshot:
            assert (snapshot.revision, snapshot.count(ALL_KEYS)) == (before + 1, 0)
    finally:
        for other in others:
            other.close()
