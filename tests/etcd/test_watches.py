"""Watches: large revisions in one batch, the edge of what was compacted, and moving on over what does not concern them."""

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, Event, EventKind, KeyRange, Put, open_engine
from keyplan.engine.etcd import EtcdEngine
from keyplan.engine.etcd import watch as watch_module
from keyplan.engine.etcd.sweep import Sweep
from keyplan.errors import HistoryCompactedError
from keyplan.testing.engine_suite import eventually
from tests.servers.etcd import EtcdServer


def first_batch(engine: Engine, key_range: KeyRange, *, after: int) -> list[Event]:
    """The first batch that is not empty."""
    watch = engine.watch(key_range, after=after)
    try:
        while True:
            events = list(watch.poll(5))
            if events:
                return events
    finally:
        watch.close()


def test_a_revision_that_comes_in_fragments_is_one_batch(etcd: Engine) -> None:
    keys = [b"%03d" % number for number in range(100)]
    start = 0
    for value in (b"1", b"2"):
        start = etcd.commit(Commit((), tuple(Put(key, value * 14_000) for key in keys)))
    # Why: values before and after are 2.8 MB, and a response of etcd is cut at 1.5 MiB.
    live = etcd.watch(ALL_KEYS, after=start)
    last = etcd.commit(Commit((), tuple(Put(key, b"3" * 14_000) for key in keys)))
    batches: list[list[Event]] = []
    while live.revision < last:
        batches += [events] if (events := list(live.poll(5))) else []
    live.close()
    for batch in (*batches, first_batch(etcd, ALL_KEYS, after=start)):
        assert [(event.key, event.revision, event.kind) for event in batch] == [
            (key, last, EventKind.UPDATED) for key in keys
        ]
        assert {event.previous and event.previous.value for event in batch} == {b"2" * 14_000}
    assert len(batches) == 1


def test_a_watch_is_never_opened_at_the_compacted_revision(etcd: Engine) -> None:
    etcd.commit(Commit((), (Put(b"a", b""), Put(b"b", b""))))
    deleted = etcd.commit(Commit((), (Delete(b"a"),)))
    last = etcd.commit(Commit((), (Put(b"c", b""),)))
    etcd.compact(deleted)
    # Why refused: etcd would open it, and on some versions leave the delete out, which compaction has removed.
    with pytest.raises(HistoryCompactedError) as caught:
        etcd.watch(ALL_KEYS, after=deleted - 1)
    assert caught.value.facts == {"revision": deleted - 1, "compacted_revision": deleted}
    with pytest.raises(HistoryCompactedError):
        etcd.watch(ALL_KEYS, after=0)
    assert [event.revision for event in first_batch(etcd, ALL_KEYS, after=deleted)] == [last]


def test_a_new_store_is_watched_from_its_beginning(etcd_program: None) -> None:
    with EtcdServer() as server, open_engine(server.url) as engine:
        first = engine.commit(Commit((), (Put(b"a", b""),)))
        engine.commit(Commit((), (Delete(b"a"),)))
        for after in (0, 1):
            assert [event.kind for event in first_batch(engine, ALL_KEYS, after=after)] == [
                EventKind.CREATED,
                EventKind.DELETED,
            ]
        assert first == 2, "an etcd store begins at revision 1"


@pytest.mark.parametrize("asks_for_progress", [False, True], ids=["by a sweep", "by asking for progress"])
def test_a_quiet_watch_moves_on_and_misses_nothing(
    etcd: Engine, monkeypatch: pytest.MonkeyPatch, *, asks_for_progress: bool
) -> None:
    assert isinstance(etcd, EtcdEngine)
    # Why: newer servers are asked for their progress, which this one can do, though not always in order.
    monkeypatch.setattr(type(etcd._client), "has_ordered_progress", asks_for_progress)
    start = etcd.commit(Commit((), (Put(b"b", b""),)))
    watch = etcd.watch(KeyRange.of_prefix(b"b"), after=start)
    for number in range(300):
        last = etcd.commit(Commit((), (Put(b"a", b"%d" % number),)))
    seen: list[Event] = []

    def has_reached(revision: int) -> bool:
        seen.extend(watch.poll(0.05))
        return watch.revision >= revision

    eventually(lambda: has_reached(last))
    assert seen == []
    mine = etcd.commit(Commit((), (Put(b"b", b"mine"),)))
    etcd.commit(Commit((), (Put(b"a", b""),)))
    last = etcd.commit(Commit((), (Delete(b"b"),)))
    etcd.commit(Commit((), (Put(b"a", b""),)))
    eventually(lambda: has_reached(last + 1))
    assert [(event.kind, event.revision) for event in seen] == [(EventKind.UPDATED, mine), (EventKind.DELETED, last)]
    watch.close()


def test_a_watch_that_reads_nothing_holds_up_nobody_and_gets_everything_later(etcd: Engine) -> None:
    start = etcd.commit(Commit((), (Put(b"a", b""),)))
    watch = etcd.watch(ALL_KEYS, after=start)
    last = start
    for number in range(200):
        last = etcd.commit(Commit((), tuple(Put(b"%d" % key, b"%d" % number * 500) for key in range(20))))
    seen: list[int] = []
    while watch.revision < last:
        seen += [event.revision for event in watch.poll(5)]
    watch.close()
    assert seen == [revision for revision in range(start + 1, last + 1) for _ in range(20)]


def test_a_sweep_that_a_compaction_has_overtaken_is_not_believed(etcd: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(etcd, EtcdEngine)
    monkeypatch.setattr(type(etcd._client), "has_ordered_progress", False)
    start = etcd.commit(Commit((), (Put(b"b", b""),)))
    sweeps: list[int] = []

    class Overtaken(Sweep):
        """The history goes before it has ended, so that it may have been brought less than everything."""

        def has_ended(self) -> bool:
            if not super().has_ended():
                return False
            sweeps.append(self.after)
            etcd.compact(last)
            return True

    monkeypatch.setattr(watch_module, "Sweep", Overtaken)

    def poll_until(revision: int) -> None:
        while watch.revision < revision:
            assert watch.poll(0.05) == []

    watch = etcd.watch(KeyRange.of_prefix(b"b"), after=start)
    last = max(etcd.commit(Commit((), (Put(b"a", b"%d" % number),))) for number in range(10))
    with pytest.raises(HistoryCompactedError) as caught:
        poll_until(last)
    assert sweeps == [start]
    assert caught.value.facts == {"revision": start, "compacted_revision": last}
    watch.close()


def test_a_watch_that_overtook_its_sweep_does_not_need_the_history_where_that_began(
    etcd: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(etcd, EtcdEngine)
    monkeypatch.setattr(type(etcd._client), "has_ordered_progress", False)
    start = etcd.commit(Commit((), (Put(b"b", b""),)))
    moved: list[int] = []

    class Overtaken(Sweep):
        """It ends no sooner than its watch has come further by what its stream brought, and the history up to there is gone."""

        def has_ended(self) -> bool:
            if self.after == start and not moved:
                moved.append(etcd.commit(Commit((), (Put(b"b", b"moved"),))))
            if watch.revision < moved[0]:
                return False
            etcd.compact(moved[0])
            return super().has_ended()

    monkeypatch.setattr(watch_module, "Sweep", Overtaken)
    watch = etcd.watch(KeyRange.of_prefix(b"b"), after=start)
    etcd.commit(Commit((), (Put(b"a", b""),)))
    seen: list[int] = []

    def has_seen(revision: int) -> bool:
        seen.extend(event.revision for event in watch.poll(0.05))
        return watch.revision >= revision

    eventually(lambda: has_seen(start + 2))
    etcd.compact(moved[0])
    beside = etcd.commit(Commit((), (Put(b"a", b"again"),)))
    eventually(lambda: has_seen(beside))
    last = etcd.commit(Commit((), (Put(b"b", b"last"),)))
    eventually(lambda: has_seen(last))
    assert seen == [*moved, last]
    watch.close()
