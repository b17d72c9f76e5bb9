"""Guards that are not checked, leases, loads, compactions and lives of keys that go wrong."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from msgspec import structs

from keyplan.engine import (
    ALL_KEYS,
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Event,
    EventKind,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
    memory,
)
from keyplan.engine.guards import check_guards
from keyplan.engine.memory import Memory, MemoryEngine
from keyplan.engine.sorted_entries import Draft
from keyplan.errors import InvalidInputError
from tests.engines.planting import gap, refused_by, replace

# ---- guards ----------------------------------------------------------------------------------------------------------


def checked_guards(patch: pytest.MonkeyPatch, change: Callable[[Iterable[Guard]], Iterable[Guard]]) -> None:
    """Let the engine check what `change` leaves of the guards."""
    patch.setattr(memory, "check_guards", lambda guards, state: check_guards(change(guards), state))


@refused_by("test_key_absent_holds_only_without_the_key")
def guards_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    checked_guards(patch, lambda guards: ())


@refused_by("test_the_last_of_many_guards_is_looked_at")
def guards_beyond_the_64th_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    checked_guards(patch, lambda guards: list(guards)[:64])


@refused_by(
    "test_key_unchanged_holds_only_at_the_revision_that_was_read", "test_every_guard_that_failed_is_named_and_no_other"
)
def an_older_revision_counts_as_unchanged(patch: pytest.MonkeyPatch) -> None:
    def check(guards: Iterable[Guard], state: Snapshot) -> None:
        def holds(guard: Guard) -> bool:
            entry = state.get(guard.key) if isinstance(guard, KeyUnchanged) else None
            return entry is not None and entry.mod_revision <= getattr(guard, "revision", 0)

        check_guards([guard for guard in guards if not holds(guard)], state)

    patch.setattr(memory, "check_guards", check)


@refused_by("test_a_range_of_many_keys_is_guarded_to_its_end")
def a_range_guard_sees_a_hundred_keys(patch: pytest.MonkeyPatch) -> None:
    def first_hundred(guard: Guard) -> Guard:
        if isinstance(guard, RangeUnchanged) and len(guard.keys) > 100:
            return RangeUnchanged(KeyRange(guard.range.start, guard.keys[100]), guard.revision, guard.keys[:100])
        return guard

    checked_guards(patch, lambda guards: map(first_hundred, guards))


@refused_by("test_a_range_without_an_end_is_guarded")
def an_endless_range_counts_as_empty(patch: pytest.MonkeyPatch) -> None:
    checked_guards(patch, lambda guards: (g for g in guards if not (isinstance(g, RangeEmpty) and g.range.end is None)))


@refused_by("test_a_range_without_an_end_is_guarded_against_changes")
def an_endless_range_counts_as_unchanged(patch: pytest.MonkeyPatch) -> None:
    checked_guards(
        patch, lambda guards: (g for g in guards if not (isinstance(g, RangeUnchanged) and g.range.end is None))
    )


@refused_by("test_threads_that_count_with_guards_lose_no_count", "test_of_threads_that_claim_a_key_exactly_one_wins")
def guards_are_checked_before_the_lock_is_taken(patch: pytest.MonkeyPatch) -> None:
    def make(commit: Any) -> Any:
        def racing(engine: Any, wanted: Commit) -> int:
            with engine.snapshot() as state:
                check_guards(wanted.guards, state)
            gap()
            revision: int = commit(engine, Commit((), wanted.mutations))
            return revision

        return racing

    replace(patch, MemoryEngine, "commit", make)


# ---- leases ----------------------------------------------------------------------------------------------------------


def ended_lease(patch: pytest.MonkeyPatch, remove: Callable[[Memory, list[bytes]], object]) -> None:
    """Let a lease that ends remove its keys by `remove`."""

    def end(state: Memory, lease: int) -> None:
        held = state.leases.get(lease)
        if held is not None:
            remove(state, sorted(held.keys))
            del state.leases[lease]

    patch.setattr(Memory, "end_lease", end)


@refused_by("test_revoking_deletes_the_entries_now_and_only_once")
def a_lease_that_ends_removes_nothing(patch: pytest.MonkeyPatch) -> None:
    ended_lease(patch, lambda state, keys: None)


@refused_by("test_many_entries_of_a_lease_go_at_one_revision")
def a_lease_that_ends_removes_a_hundred_keys(patch: pytest.MonkeyPatch) -> None:
    ended_lease(patch, lambda state, keys: state.apply([Delete(key) for key in keys[:100]]))


@refused_by("test_many_entries_of_a_lease_go_at_one_revision")
def a_lease_that_ends_removes_in_parts(patch: pytest.MonkeyPatch) -> None:
    ended_lease(
        patch,
        lambda state, keys: [
            state.apply([Delete(key) for key in keys[start : start + 50]]) for start in range(0, len(keys), 50)
        ],
    )


@refused_by("test_leases_that_are_over_together_all_end")
def one_lease_ends_of_all_that_are_over(patch: pytest.MonkeyPatch) -> None:
    def expire(state: Memory) -> None:
        state.ended = getattr(state, "ended", False)  # type: ignore[attr-defined]  # the mutant's own mark
        for lease, held in list(state.leases.items()):
            if held.deadline <= state.clock.monotonic() and not state.ended:  # type: ignore[attr-defined]
                state.ended = True  # type: ignore[attr-defined]
                state.end_lease(lease)

    patch.setattr(Memory, "expire_leases", expire)


def resumed(patch: pytest.MonkeyPatch, change: Callable[[Any, Any], None]) -> None:
    """Do something to a lease that is taken up again."""

    def make(lease_of: Any) -> Any:
        def taking_up(engine: Any, ttl_seconds: float, *, resume: int = NO_LEASE) -> Any:
            lease = lease_of(engine, ttl_seconds, resume=resume)
            if resume != NO_LEASE:
                change(engine, lease)
            return lease

        return taking_up

    replace(patch, MemoryEngine, "lease", make)


@refused_by("test_a_lease_that_was_taken_up_is_kept_alive")
def a_resumed_lease_is_not_kept_alive(patch: pytest.MonkeyPatch) -> None:
    resumed(patch, lambda engine, lease: setattr(lease, "keep_alive", lambda: lease.ttl_seconds))


@refused_by("test_taking_up_a_lease_does_not_start_its_time_again")
def taking_up_a_lease_starts_its_time_again(patch: pytest.MonkeyPatch) -> None:
    resumed(patch, lambda engine, lease: lease.keep_alive())


@refused_by("test_the_id_of_a_lease_that_ended_is_not_given_again")
def the_id_of_a_lease_is_given_again(patch: pytest.MonkeyPatch) -> None:
    def make(lease_of: Any) -> Any:
        def granting(engine: Any, ttl_seconds: float, *, resume: int = NO_LEASE) -> Any:
            engine._state.leases_granted = max(engine._state.leases, default=0)
            return lease_of(engine, ttl_seconds, resume=resume)

        return granting

    replace(patch, MemoryEngine, "lease", make)


# ---- loads -----------------------------------------------------------------------------------------------------------


def loaded(
    patch: pytest.MonkeyPatch,
    *,
    checks_batch: Callable[[int], bool] = lambda number: True,
    orders_batches: bool = True,
    writes_singly: bool = False,
) -> None:
    """Replace `load` by one that leaves something out."""

    def load(engine: Any, entries: Iterable[tuple[bytes, bytes]]) -> int:
        engine.check_open()
        pairs: Iterator[tuple[bytes, bytes]] = iter(entries)
        number = written = 0
        previous = b""
        while batch := list(islice(pairs, 1_000)):
            previous = previous if orders_batches else b""
            for key, _ in batch:
                if key <= previous:
                    raise InvalidInputError(source="load", problem="keys must ascend")
                previous = key
            if checks_batch(number):
                with engine.snapshot() as state:
                    check_guards([KeyAbsent(key) for key, _ in batch], state)
            for part in [[pair] for pair in batch] if writes_singly else [batch]:
                if writes_singly:
                    gap(0.00005)
                with engine._state.condition:
                    engine._state.apply(Put(key, value) for key, value in part)
            number += 1
            written += len(batch)
        return written

    patch.setattr(MemoryEngine, "load", load)


@refused_by("test_a_key_that_exists_is_refused")
def a_load_overwrites(patch: pytest.MonkeyPatch) -> None:
    loaded(patch, checks_batch=lambda number: False)


@refused_by("test_a_load_overwrites_nothing_wherever_it_stands")
def a_load_overwrites_behind_its_first_batch(patch: pytest.MonkeyPatch) -> None:
    loaded(patch, checks_batch=lambda number: number == 0)


@refused_by("test_the_order_of_a_load_is_looked_at_to_its_end")
def a_load_does_not_compare_its_batches(patch: pytest.MonkeyPatch) -> None:
    loaded(patch, orders_batches=False)


@refused_by("test_of_a_load_and_an_insert_of_one_key_one_is_refused")
def a_load_looks_before_it_writes_singly(patch: pytest.MonkeyPatch) -> None:
    loaded(patch, writes_singly=True)


# ---- compaction ------------------------------------------------------------------------------------------------------


@refused_by("test_compaction_forgets_what_it_was_told_to_and_no_more")
def compaction_forgets_nearly_everything(patch: pytest.MonkeyPatch) -> None:
    def make(compact: Any) -> Any:
        def forgetting(engine: Any, revision: int) -> None:
            latest = engine._state.revision
            compact(engine, revision if latest - revision < 3 else latest - 2)

        return forgetting

    replace(patch, MemoryEngine, "compact", make)


@refused_by("test_watching_from_compacted_history_is_refused")
def compaction_forgets_one_revision_more(patch: pytest.MonkeyPatch) -> None:
    replace(
        patch,
        MemoryEngine,
        "compact",
        lambda compact: lambda engine, revision: compact(engine, min(revision + 1, engine._state.revision)),
    )


@refused_by("test_compaction_forgets_what_it_was_told_to_and_no_more")
def compacting_less_brings_the_history_back(patch: pytest.MonkeyPatch) -> None:
    def make(forget: Any) -> Any:
        def forgetting(state: Memory, revision: int) -> None:
            forget(state, revision)
            if 0 < revision < state.compacted:
                state.compacted = revision

        return forgetting

    replace(patch, Memory, "forget", make)


@refused_by("test_compaction_does_not_touch_leases")
def compaction_removes_leases_without_entries(patch: pytest.MonkeyPatch) -> None:
    def make(compact: Any) -> Any:
        def removing(engine: Any, revision: int) -> None:
            compact(engine, revision)
            for lease, held in list(engine._state.leases.items()):
                if not held.keys:
                    del engine._state.leases[lease]

        return removing

    replace(patch, MemoryEngine, "compact", make)


@refused_by("test_compaction_forgets_what_it_was_told_to_and_no_more")
def compaction_begins_versions_again(patch: pytest.MonkeyPatch) -> None:
    def make(compact: Any) -> Any:
        def resetting(engine: Any, revision: int) -> None:
            compact(engine, revision)
            draft = Draft(engine._state.entries)
            for entry in list(engine._state.entries.scan(ALL_KEYS)):
                draft.put(entry._replace(version=1))
            engine._state.entries = draft.result

        return resetting

    replace(patch, MemoryEngine, "compact", make)


# ---- lives of keys ---------------------------------------------------------------------------------------------------


def living_on(patch: pytest.MonkeyPatch, is_survived: Callable[[Event, Sequence[Mutation]], bool]) -> None:
    """Let a key that was deleted, in the cases of `is_survived`, go on with its versions when it is written again."""

    def make(apply: Any) -> Any:
        def reviving(state: Any, mutations: Iterable[Mutation]) -> Any:
            wanted = tuple(mutations)
            before = state.revision
            revision = apply(state, wanted)
            dead = state.__dict__.setdefault("dead", {})
            draft = Draft(state.entries)
            for event in state.history.get(revision, ()) if revision > before else ():
                if event.kind is EventKind.DELETED and is_survived(event, wanted):
                    dead[event.key] = event.previous
                elif event.kind is EventKind.CREATED and event.key in dead:
                    old = dead.pop(event.key)
                    draft.put(event.entry._replace(version=old.version + 1, create_revision=old.create_revision))
            state.entries = draft.result
            return revision

        return reviving

    replace(patch, Memory, "apply", make)


@refused_by("test_a_key_that_is_written_again_after_its_deletion_begins_a_new_life")
def a_deleted_key_lives_on(patch: pytest.MonkeyPatch) -> None:
    living_on(patch, lambda event, mutations: any(isinstance(mutation, Delete) for mutation in mutations))


@refused_by("test_a_key_that_is_written_again_after_its_deletion_begins_a_new_life")
def a_key_of_a_deleted_range_lives_on(patch: pytest.MonkeyPatch) -> None:
    living_on(patch, lambda event, mutations: any(isinstance(mutation, DeleteRange) for mutation in mutations))


@refused_by("test_a_key_that_is_written_again_after_its_lease_begins_a_new_life")
def a_key_of_a_lease_that_ended_lives_on(patch: pytest.MonkeyPatch) -> None:
    living_on(patch, lambda event, mutations: event.previous is not None and event.previous.lease != NO_LEASE)


@refused_by("test_a_change_of_lease_alone_is_a_change")
def a_change_of_lease_begins_a_new_life(patch: pytest.MonkeyPatch) -> None:
    def make(put: Any) -> Any:
        def beginning(state: Any, draft: Any, wanted: Put, revision: int) -> Any:
            event = put(state, draft, wanted, revision)
            if event.previous is None or event.previous.lease == wanted.lease:
                return event
            entry = event.entry._replace(version=1, create_revision=revision)
            draft.put(entry)
            return structs.replace(event, entry=entry)

        return beginning

    replace(patch, Memory, "_put", make)
