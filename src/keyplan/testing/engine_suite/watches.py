"""Promise: a watch delivers every change once, in order, whole revisions at a time, from history where needed."""

import time
from threading import Event as Flag
from threading import Thread

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Capability,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    Event,
    EventKind,
    KeyRange,
    Put,
    Watch,
)
from keyplan.errors import (
    EngineUnavailableError,
    HistoryCompactedError,
    InvalidInputError,
    UnsupportedByEngineError,
)
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, polled, put

__all__ = ["WatchPromises"]

B_KEYS = KeyRange.of_prefix(b"b")


class WatchPromises(Promise):
    """Watches and compaction."""

    def test_without_watches_a_watch_is_refused(self, engine: Engine) -> None:
        if engine.profile.claims(Capability.WATCH):
            pytest.skip("the engine claims WATCH")
        with pytest.raises(UnsupportedByEngineError):
            engine.watch(ALL_KEYS, after=0)

    def test_without_revisions_compaction_is_refused(self, engine: Engine) -> None:
        if engine.profile.claims(Capability.REVISIONS):
            pytest.skip("the engine claims REVISIONS")
        with pytest.raises(UnsupportedByEngineError):
            engine.compact(0)

    @needs(Capability.WATCH)
    def test_created_updated_and_deleted_come_with_what_was_there_before(self, engine: Engine) -> None:
        start = now(engine)
        watch = engine.watch(ALL_KEYS, after=start)
        first, second, third = (
            put(engine, b"a", value=b"1"),
            put(engine, b"a", value=b"2"),
            commit(engine, Delete(b"a")),
        )
        one = Entry(b"a", b"1", first, first, 1, 0)
        two = Entry(b"a", b"2", first, second, 2, 0)
        assert polled(watch, until=third) == [
            Event(EventKind.CREATED, b"a", first, one, None),
            Event(EventKind.UPDATED, b"a", second, two, one),
            Event(EventKind.DELETED, b"a", third, None, two),
        ]
        watch.close()

    @needs(Capability.WATCH)
    def test_events_of_a_commit_come_in_one_batch_in_key_order(self, engine: Engine) -> None:
        put(engine, b"b2", b"b1", b"d")
        watch = engine.watch(ALL_KEYS, after=now(engine))
        revision = commit(engine, Put(b"c", b""), DeleteRange(B_KEYS), Put(b"a", b""), Delete(b"d"), Delete(b"absent"))
        batches = [watch.poll(0.05)]
        while not any(batches):
            batches.append(watch.poll(10))
        assert [(event.key, event.revision) for batch in batches for event in batch] == [
            (key, revision) for key in (b"a", b"b1", b"b2", b"c", b"d")
        ]
        assert sum(1 for batch in batches if batch) == 1
        watch.close()

    @needs(Capability.WATCH)
    def test_a_watch_sees_its_range_and_nothing_else(self, engine: Engine) -> None:
        watch = engine.watch(KeyRange(b"b", b"c"), after=now(engine))
        put(engine, b"a", b"b", b"b\xff\xff", b"c")
        revision = put(engine, b"a")
        assert [event.key for event in polled(watch, until=revision)] == [b"b", b"b\xff\xff"]
        assert watch.revision == revision, "a watch moves on over revisions that do not concern it"
        watch.close()

    @needs(Capability.WATCH)
    def test_a_watch_begins_with_the_history_after_its_revision(self, engine: Engine) -> None:
        start = now(engine)
        revisions = [put(engine, b"a", value=b"%d" % number) for number in range(10)]
        for position in (0, 4, 9):
            watch = engine.watch(ALL_KEYS, after=revisions[position])
            assert watch.revision == revisions[position]
            seen = polled(watch, until=revisions[-1])
            assert [event.revision for event in seen] == revisions[position + 1 :]
            watch.close()
        watch = engine.watch(ALL_KEYS, after=start)
        seen = polled(watch, until=revisions[-1])
        assert [event.revision for event in seen] == revisions
        assert [event.entry and event.entry.value for event in seen] == [b"%d" % number for number in range(10)]
        assert [event.previous for event in seen[1:]] == [event.entry for event in seen[:-1]]
        watch.close()

    @needs(Capability.WATCH)
    def test_a_watch_resumes_where_another_one_ended(self, engine: Engine) -> None:
        start = now(engine)
        revisions = [put(engine, b"a") for _ in range(3)]
        watch = engine.watch(ALL_KEYS, after=start)
        seen = polled(watch, until=revisions[-1])
        reached = watch.revision
        watch.close()
        revisions += [put(engine, b"a") for _ in range(3)]
        watch = engine.watch(ALL_KEYS, after=reached)
        seen += polled(watch, until=revisions[-1])
        watch.close()
        assert [event.revision for event in seen] == revisions

    @needs(Capability.WATCH)
    def test_a_watch_after_a_future_revision_waits_for_it(self, engine: Engine) -> None:
        start = now(engine)
        watch = engine.watch(ALL_KEYS, after=start + 2)
        revisions = [put(engine, b"a") for _ in range(4)]
        assert [event.revision for event in polled(watch, until=revisions[-1])] == revisions[2:]
        watch.close()

    @needs(Capability.WATCH)
    def test_a_poll_without_news_comes_back_empty_in_time(self, engine: Engine) -> None:
        put(engine, b"a")
        watch = engine.watch(ALL_KEYS, after=now(engine))
        assert list(watch.poll(0)) == []
        assert list(watch.poll(0.01)) == []
        watch.close()

    @needs(Capability.WATCH)
    def test_what_was_delivered_is_not_delivered_again(self, engine: Engine) -> None:
        watch = engine.watch(ALL_KEYS, after=put(engine, b"a"))
        for key in (b"b", b"c"):
            assert [event.key for event in polled(watch, until=put(engine, key))] == [key]
            assert [list(watch.poll(0.01)) for _ in range(3)] == [[], [], []]
        watch.close()

    @needs(Capability.WATCH)
    def test_changes_come_between_changes_that_do_not_concern_the_watch(self, engine: Engine) -> None:
        watch = engine.watch(B_KEYS, after=put(engine, b"a"))
        for number in range(4):
            assert list(watch.poll(0)) == []
            put(engine, *(b"a%d" % other for other in range(5)))
            mine = [put(engine, b"b%d" % count) for count in range(3 + number)]
            put(engine, b"c")
            last = put(engine, b"c")
            assert [event.revision for event in polled(watch, until=last)] == mine
        watch.close()

    @needs(Capability.WATCH)
    def test_a_poll_that_waits_is_woken_long_before_its_time(self, engine: Engine) -> None:
        watch = engine.watch(ALL_KEYS, after=put(engine, b"a"))
        # Why several tries: a busy machine may halt one of them; an engine that only looks now and then is late in all.
        waits = [seconds_until_woken(engine, watch)]
        while min(waits) >= 0.5 and len(waits) < 8:
            waits.append(seconds_until_woken(engine, watch))
        assert min(waits) < 0.5
        watch.close()

    @needs(Capability.WATCH)
    def test_a_commit_wakes_a_poll_that_waits(self, engine: Engine) -> None:
        watch = engine.watch(ALL_KEYS, after=now(engine))
        writer = Thread(target=lambda: put(engine, b"a"))
        writer.start()
        events = watch.poll(30)
        writer.join()
        assert [event.key for event in events] == [b"a"]
        watch.close()

    @needs(Capability.WATCH)
    def test_several_watches_each_see_everything(self, engine: Engine) -> None:
        start = now(engine)
        watches = [engine.watch(ALL_KEYS, after=start) for _ in range(5)]
        revisions = [put(engine, b"k%d" % number) for number in range(20)]
        for watch in watches:
            assert [event.revision for event in polled(watch, until=revisions[-1])] == revisions
            watch.close()

    @needs(Capability.WATCH)
    def test_concurrent_commits_are_each_delivered_once_and_in_order(self, engine: Engine) -> None:
        start = now(engine)
        watch = engine.watch(ALL_KEYS, after=start)
        threads = [Thread(target=put_some, args=(engine, b"%d" % number)) for number in range(4)]
        for thread in threads:
            thread.start()
        seen = polled(watch, until=start + 100)
        for thread in threads:
            thread.join()
        assert [event.revision for event in seen] == list(range(start + 1, start + 101))
        watch.close()

    @needs(Capability.WATCH)
    def test_watching_from_compacted_history_is_refused(self, engine: Engine) -> None:
        first, second, third = put(engine, b"a"), put(engine, b"a"), put(engine, b"a")
        engine.compact(second)
        with pytest.raises(HistoryCompactedError):
            # Why: an engine may tell when the watch is opened, or only when it is polled.
            engine.watch(ALL_KEYS, after=first).poll(10)
        watch = engine.watch(ALL_KEYS, after=second)
        assert [event.revision for event in polled(watch, until=third)] == [third]
        watch.close()

    @needs(Capability.WATCH)
    def test_a_watch_that_falls_behind_the_kept_history_says_so(self, engine: Engine) -> None:
        watch = engine.watch(ALL_KEYS, after=put(engine, b"a"))
        put(engine, b"a")
        last = put(engine, b"a")
        engine.compact(last)
        try:
            seen = [event.revision for event in watch.poll(10)]
        except HistoryCompactedError:
            seen = [last - 1, last]  # an engine that pushes events may have delivered them before
        assert seen == [last - 1, last]
        watch.close()

    @needs(Capability.WATCH)
    def test_compaction_forgets_what_it_was_told_to_and_no_more(self, engine: Engine) -> None:
        revisions = [put(engine, b"a", value=b"%d" % number) for number in range(30)]
        engine.compact(revisions[5])
        engine.compact(revisions[2])
        watch = engine.watch(ALL_KEYS, after=revisions[5])
        assert [event.revision for event in polled(watch, until=revisions[-1])] == revisions[6:]
        watch.close()
        with pytest.raises(HistoryCompactedError):
            engine.watch(ALL_KEYS, after=revisions[2]).poll(10)
        (entry,) = everything(engine)
        assert (entry.create_revision, entry.mod_revision, entry.version) == (revisions[0], revisions[-1], 30)

    @needs(Capability.LEASES)
    def test_compaction_does_not_touch_leases(self, engine: Engine) -> None:
        bare, used = engine.lease(600), engine.lease(600)
        commit(engine, Put(b"a", b"", used.id))
        engine.compact(put(engine, b"b"))
        assert min(bare.keep_alive(), used.keep_alive()) >= 600
        used.revoke()
        assert [entry.key for entry in everything(engine)] == [b"b"]

    @needs(Capability.REVISIONS)
    def test_compaction_does_not_touch_what_is_stored(self, engine: Engine) -> None:
        put(engine, b"a")
        put(engine, b"a", b"b")
        commit(engine, Delete(b"b"))
        with engine.snapshot() as snapshot:
            before = list(snapshot.scan(ALL_KEYS))
            engine.compact(snapshot.revision)
            engine.compact(snapshot.revision)
        with engine.snapshot() as snapshot:
            assert list(snapshot.scan(ALL_KEYS)) == before

    @needs(Capability.REVISIONS)
    def test_compacting_the_future_is_refused(self, engine: Engine) -> None:
        with pytest.raises(InvalidInputError):
            engine.compact(put(engine, b"a") + 1)

    @needs(Capability.WATCH)
    def test_a_closed_watch_ends_and_wakes_its_poll(self, engine: Engine) -> None:
        watch = engine.watch(ALL_KEYS, after=now(engine))
        ended: list[Exception] = []

        def wait() -> None:
            try:
                watch.poll(30)
                watch.poll(30)
            except EngineUnavailableError as error:
                ended.append(error)

        waiting = Thread(target=wait)
        waiting.start()
        watch.close()
        watch.close()
        waiting.join(timeout=20)
        assert len(ended) == 1


def now(engine: Engine) -> int:
    """Return the store's revision."""
    with engine.snapshot() as snapshot:
        return snapshot.revision


def seconds_until_woken(engine: Engine, watch: Watch) -> float:
    """Commit while another thread polls; return the time from the commit to the poll's end."""
    begun = Flag()
    ended: list[float] = []

    def wait() -> None:
        begun.set()
        assert watch.poll(30)
        ended.append(time.monotonic())

    waiting = Thread(target=wait)
    waiting.start()
    begun.wait()
    written_at = time.monotonic()
    put(engine, b"a")
    waiting.join()
    return max(ended) - written_at


def put_some(engine: Engine, name: bytes) -> None:
    """Make twenty-five commits."""
    for number in range(25):
        put(engine, name, value=b"%d" % number)
