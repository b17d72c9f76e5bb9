"""Watches that lose, repeat, reorder or delay."""

from collections.abc import Callable
from itertools import groupby, islice
from typing import Any

import pytest
from msgspec import structs

from keyplan.engine import (
    ALL_KEYS,
    Event,
    EventKind,
)
from tests.engines.planting import WatchOf, gap, refused_by, replace

# ---- events ----------------------------------------------------------------------------------------------------------


def taken_events(patch: pytest.MonkeyPatch, change: Callable[[list[Event]], list[Event]]) -> None:
    """Let a watch take what `change` makes of the events."""
    replace(patch, WatchOf, "_take", lambda take: lambda watch: change(take(watch)))


@refused_by("test_created_updated_and_deleted_come_with_what_was_there_before")
def deletes_are_no_events(patch: pytest.MonkeyPatch) -> None:
    taken_events(patch, lambda events: [event for event in events if event.kind is not EventKind.DELETED])


@refused_by("test_a_range_of_many_keys_is_deleted_at_one_revision")
def events_of_a_revision_beyond_a_thousand_are_lost(patch: pytest.MonkeyPatch) -> None:
    def first_thousand(events: list[Event]) -> list[Event]:
        by_revision = groupby(events, key=lambda event: event.revision)
        return [event for _, group in by_revision for event in islice(group, 1_000)]

    taken_events(patch, first_thousand)


@refused_by("test_a_change_of_lease_alone_is_a_change")
def a_change_of_lease_is_no_event(patch: pytest.MonkeyPatch) -> None:
    def is_seen(event: Event) -> bool:
        return event.entry is None or event.previous is None or event.entry.lease == event.previous.lease

    taken_events(patch, lambda events: [event for event in events if is_seen(event)])


@refused_by("test_a_watch_resumes_where_another_one_ended")
def a_rewrite_of_the_same_value_is_no_event(patch: pytest.MonkeyPatch) -> None:
    def is_seen(event: Event) -> bool:
        return event.entry is None or event.previous is None or event.entry.value != event.previous.value

    taken_events(patch, lambda events: [event for event in events if is_seen(event)])


@refused_by("test_a_watch_that_is_far_behind_gets_every_revision")
def a_watch_two_thousand_revisions_behind_skips(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def skipping(watch: Any) -> Any:
            watch._revision = max(watch._revision, watch._state.revision - 2_000)
            return take(watch)

        return skipping

    replace(patch, WatchOf, "_take", make)


@refused_by("test_changes_come_between_changes_that_do_not_concern_the_watch")
def the_last_event_after_a_quiet_time_is_lost(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def losing(watch: Any) -> Any:
            before = watch._revision
            events = take(watch)
            is_narrow = watch._range != ALL_KEYS and watch._revision - before > 3
            return events[:-1] if is_narrow and len(events) > 2 else events

        return losing

    replace(patch, WatchOf, "_take", make)


@refused_by("test_events_of_a_commit_come_in_one_batch_in_key_order")
def events_of_a_commit_come_backwards(patch: pytest.MonkeyPatch) -> None:
    taken_events(
        patch, lambda events: sorted(events, key=lambda event: (event.revision, [-byte for byte in event.key]))
    )


@refused_by("test_a_range_of_many_keys_is_deleted_at_one_revision", "test_many_entries_of_a_lease_go_at_one_revision")
def many_events_of_a_revision_come_backwards(patch: pytest.MonkeyPatch) -> None:
    taken_events(patch, lambda events: events if len(events) < 20 else events[::-1])


@refused_by("test_a_watch_that_is_far_behind_gets_every_revision")
def a_large_batch_is_out_of_order(patch: pytest.MonkeyPatch) -> None:
    def exchanged(events: list[Event]) -> list[Event]:
        if len({event.revision for event in events}) > 30:
            events[0], events[-1] = events[-1], events[0]
        return events

    taken_events(patch, exchanged)


@refused_by("test_a_range_of_many_keys_is_deleted_at_one_revision")
def a_large_revision_comes_in_two_batches(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def splitting(watch: Any) -> Any:
            events = watch.__dict__.pop("rest", None) or take(watch)
            if len(events) > 500:
                watch.rest = events[500:]
            return events[:500]

        return splitting

    replace(patch, WatchOf, "_take", make)


@refused_by("test_a_watch_begins_with_the_history_after_its_revision")
def old_updates_come_without_what_was_before(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def forgetting(watch: Any) -> Any:
            old = watch._state.revision - 5
            return [structs.replace(event, previous=None) if event.revision < old else event for event in take(watch)]

        return forgetting

    replace(patch, WatchOf, "_take", make)


@refused_by("test_a_range_of_many_keys_is_deleted_at_one_revision")
def deletes_of_a_range_come_without_what_was_before(patch: pytest.MonkeyPatch) -> None:
    def without(events: list[Event]) -> list[Event]:
        deleted = [event for event in events if event.kind is EventKind.DELETED]
        is_range = len(deleted) > 100
        return [
            structs.replace(event, previous=None) if is_range and event in deleted[:1] else event for event in events
        ]

    taken_events(patch, without)


def polls(patch: pytest.MonkeyPatch, make: Callable[[Any], Any]) -> None:
    """Replace `poll`."""
    replace(patch, WatchOf, "poll", make)


@refused_by("test_what_was_delivered_is_not_delivered_again")
def an_empty_poll_brings_the_last_batch_again(patch: pytest.MonkeyPatch) -> None:
    def make(poll: Any) -> Any:
        def repeating(watch: Any, timeout_seconds: float) -> Any:
            events = poll(watch, timeout_seconds)
            last, watch.last = getattr(watch, "last", None), events
            return events or last or []

        return repeating

    polls(patch, make)


@refused_by("test_a_watch_that_is_far_behind_gets_every_revision")
def the_last_revision_of_a_page_comes_again(patch: pytest.MonkeyPatch) -> None:
    def make(take: Any) -> Any:
        def repeating(watch: Any) -> Any:
            events = take(watch)
            if len(events) >= 1_000 and watch._revision < watch._state.revision:
                watch._revision -= 1
            return events

        return repeating

    replace(patch, WatchOf, "_take", make)


@refused_by("test_a_watch_begins_with_the_history_after_its_revision", "test_a_watch_resumes_where_another_one_ended")
def a_watch_tells_the_revision_of_the_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WatchOf, "revision", property(lambda watch: watch._state.revision))


@refused_by("test_a_poll_that_waits_is_woken_long_before_its_time")
def a_poll_looks_once_a_second(patch: pytest.MonkeyPatch) -> None:
    def make(poll: Any) -> Any:
        def looking(watch: Any, timeout_seconds: float) -> Any:
            events = poll(watch, 0)
            if events or timeout_seconds < 1:
                return events or poll(watch, timeout_seconds)
            gap(0.6)
            return poll(watch, timeout_seconds)

        return looking

    polls(patch, make)
