"""Acceptance cases on watches; each quotes its number in the specification's section 7, and 3.4 is what the original tells."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar, cast

import pytest

from keyplan.apps.cloudchamber import (
    Address,
    AlreadyClosedError,
    Blade,
    BladeKey,
    Capacity,
    Chamber,
    CloudChamber,
    CloudChamberIndexed,
    RecordEvent,
    Tor,
    User,
    begin_indexes,
    layout_in_use,
)
from keyplan.apps.cloudchamber.changes import _Follower
from keyplan.engine import Commit, EventKind, KeyRange, Put, Watch, WrappedEngine
from keyplan.engine import Event as EngineEvent
from keyplan.errors import EngineUnavailableError, HistoryCompactedError
from keyplan.layout import Change, ChangeKind, Only
from keyplan.store import Store

P = "/CloudChamber/V0.1/"
T = TypeVar("T")
NINE = BladeKey("rack1", 9)
SECONDS_MAX = 60.0


def polled(poll: Callable[[float], list[T]], count: int) -> list[T]:
    """Wait for so many changes, and see that no further one is there."""
    found: list[T] = []
    while len(found) < count:
        more = poll(SECONDS_MAX)
        assert more, f"{len(found)} of {count} changes came"
        found += more
    return found + poll(0)


def test_a_watch_of_a_racks_blades_sees_them_and_nothing_else(chamber: CloudChamber) -> None:
    """AC-35, as typed changes of the layout."""
    empty, full = Blade(), Blade(capacity=Capacity(cores=1))
    with chamber.blades.watch("rack1") as changes:
        first = chamber.blades.insert(NINE, empty)
        second = chamber.blades.update(NINE, full)
        chamber.tor.insert("rack1", Tor())
        chamber.blades.insert(BladeKey("rack10", 1), full)
        last = chamber.blades.delete(NINE)
        assert [change[:5] for change in polled(changes.poll, 3)] == [
            (ChangeKind.INSERTED, NINE, None, empty, first),
            (ChangeKind.CHANGED, NINE, empty, full, second),
            (ChangeKind.REMOVED, NINE, full, None, last),
        ]


def test_two_users_created_in_one_transaction_come_at_one_revision(chamber: CloudChamber) -> None:
    """AC-36."""
    with chamber.users.watch() as changes:
        with chamber.transaction() as tx:
            tx.users.insert("b", User(name="b"))
            tx.users.insert("a", User(name="a"))
        found: list[Change[str, User]] = polled(changes.poll, 2)
    assert [(change.kind, change.key, change.revision) for change in found] == [
        (ChangeKind.INSERTED, "a", tx.revision),
        (ChangeKind.INSERTED, "b", tx.revision),
    ]


def test_a_watch_from_the_revision_of_a_list_has_no_gap_and_no_duplicate(chamber: CloudChamber) -> None:
    """AC-37."""
    chamber.users.insert("a", User(name="a"))
    with chamber.snapshot() as pinned:
        listed, revision = dict(pinned.users.list()), pinned.revision
    chamber.users.insert("b", User(name="b"))
    chamber.users.update("a", User(name="a", enabled=True))
    chamber.users.delete("b")
    with chamber.users.watch(after=revision) as changes:
        found = polled(changes.poll, 3)
    assert list(listed) == ["a"]
    assert [(change.kind, change.key, change.revision) for change in found] == [
        (ChangeKind.INSERTED, "b", revision + 1),
        (ChangeKind.CHANGED, "a", revision + 2),
        (ChangeKind.REMOVED, "b", revision + 3),
    ]


def test_compacted_history_is_an_error_with_its_revision(chamber: CloudChamber, store: Store) -> None:
    """AC-38, of both kinds of watches."""
    first = chamber.users.insert("a", User(name="a"))
    last = chamber.users.update("a", User(name="a", enabled=True))
    store.engine.compact(last)
    with pytest.raises(HistoryCompactedError) as caught, chamber.users.watch(after=first) as changes:
        next(changes)
    assert caught.value.compacted_revision == last
    with pytest.raises(HistoryCompactedError), Chamber(store).watch("users", after=first) as events:
        next(iter(events))


def test_closing_a_watch_of_the_layout_ends_it_and_closing_it_twice_is_harmless(chamber: CloudChamber) -> None:
    changes = chamber.users.watch()
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(list, changes)
        changes.close()
        changes.close()
        assert seen.result(timeout=30) == []


# ---- as the original tells them ------------------------------------------------------------------------------------------


def test_an_event_tells_both_revisions_and_both_records(store: Store) -> None:
    """AC-35, 3.4: of a create the old revision is 0 and of a delete the new one; what is unknown in a record is told too."""
    chamber = Chamber(store)
    full = Blade(unknown_fields={"a": 1})
    where = (f"{P}rack/rack1/blades/9", Address("blades", NINE))
    with chamber.watch("blades", "rack1") as events:
        first = chamber.layout.blades.insert(NINE, Blade())
        second = chamber.layout.blades.update(NINE, full)
        chamber.layout.tor.insert("rack1", Tor())
        chamber.layout.blades.insert(BladeKey("rack10", 1), full)
        last = chamber.layout.blades.delete(NINE)
        assert polled(events.poll, 3) == [
            RecordEvent(EventKind.CREATED, first, *where, 0, first, None, Blade()),
            RecordEvent(EventKind.UPDATED, second, *where, first, second, Blade(), full),
            RecordEvent(EventKind.DELETED, last, *where, second, 0, full, None),
        ]


def test_a_watch_of_one_key_sees_that_key_alone(store: Store) -> None:
    chamber = Chamber(store)
    with chamber.watch("users", "al") as events:
        for name in ("al", "alice", "a"):
            chamber.layout.users.insert(name, User(name=name))
        assert [event.address for event in polled(events.poll, 1)] == [Address("users", "al")]


@pytest.mark.leaves("unknown-key", "damaged-record")
def test_what_is_no_key_or_no_record_is_an_event_with_a_problem(store: Store) -> None:
    with Chamber(store).watch("users") as events:
        revision = store.engine.commit(
            Commit((), (Put(f"{P}users/a/b".encode(), b"{}"), Put(f"{P}users/c".encode(), b"no JSON")))
        )
        odd, damaged = polled(events.poll, 2)
    assert odd == RecordEvent(
        EventKind.CREATED, revision, f"{P}users/a/b", None, 0, revision, None, None, "the key is none of the layout's"
    )
    assert (damaged.address, damaged.new_revision, damaged.new) == (Address("users", "c"), revision, None)
    assert damaged.problem == "the value is no User: it is not JSON"


def test_a_watch_of_all_shows_neither_tests_nor_index_entries(store: Store) -> None:
    """R14."""
    begin_indexes(store)
    chamber = Chamber(store, layout=layout_in_use(store))
    tests = Chamber(store, namespace="Test/Standard/")
    with chamber.watch() as events, tests.watch() as events_of_tests:
        tests.layout.users.insert("bob", User(name="bob", can_manage_accounts=True))
        chamber.layout.users.insert("alice", User(name="alice", can_manage_accounts=True))
        chamber.layout.users.delete("alice")
        assert [event.key for event in polled(events.poll, 2)] == [f"{P}users/alice"] * 2
        assert [event.key for event in polled(events_of_tests.poll, 1)] == [f"{P}Test/Standard/users/bob"]
    CloudChamberIndexed(store).indexes_begun.delete(Only())


def test_a_poll_waits_on_when_what_came_is_hidden(store: Store) -> None:
    chamber, tests = Chamber(store), Chamber(store, namespace="Test/Standard/")
    polling = Event()

    class Told(WrappedEngine):
        """Says when a watch that was brought something is asked for more."""

        def watch(self, key_range: KeyRange, *, after: int) -> Watch:
            return Asked(self.inner.watch(key_range, after=after))

    class Asked:
        def __init__(self, inner: Watch) -> None:
            self._inner = inner
            self._has_brought = False

        @property
        def revision(self) -> int:
            return self._inner.revision

        def poll(self, timeout_seconds: float) -> Sequence[EngineEvent]:
            if self._has_brought:
                polling.set()
            found = self._inner.poll(timeout_seconds)
            self._has_brought |= bool(found)
            return found

        def close(self) -> None:
            self._inner.close()

    with Chamber(Store(Told(store.engine, closes_inner=False))).watch() as events, ThreadPoolExecutor(1) as pool:
        tests.layout.users.insert("bob", User(name="bob"))
        seen = pool.submit(events.poll, SECONDS_MAX)
        asked_again = polling.wait(SECONDS_MAX / 2)
        chamber.layout.users.insert("alice", User(name="alice"))
        assert [event.key for event in seen.result(SECONDS_MAX)] == [f"{P}users/alice"]
        assert asked_again


def test_closing_an_events_watch_ends_it_and_a_second_close_is_told(store: Store) -> None:
    """AC-39."""
    events = Chamber(store).watch("users")
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(list, events)
        events.close()
        assert seen.result(timeout=30) == []
    with pytest.raises(AlreadyClosedError) as caught:
        events.close()
    assert caught.value.facts["watched"] == f"{P}users/"
    with pytest.raises(EngineUnavailableError):
        events.poll()
    with Chamber(store).watch("users") as closed_within:
        closed_within.close()


def test_a_thread_that_hands_changes_on_says_that_it_is_lost_whatever_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    class Failing:
        revision = 0

        def poll(self, _: float) -> list[RecordEvent]:
            raise ZeroDivisionError

        def close(self) -> None:
            """Nothing."""

    lost = Event()
    follower = _Follower(cast("Any", Failing()), lambda _: None, lost.set)
    assert lost.wait(60)
    follower.stop()
