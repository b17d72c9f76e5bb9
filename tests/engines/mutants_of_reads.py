"""Counts and limits, snapshots that move, answers of another state."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import pytest

from keyplan.engine import (
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Fences,
    KeyPrefix,
    KeyRange,
    Mutation,
    PrefixedSnapshot,
    Snapshot,
)
from keyplan.engine.memory import Memory, MemoryEngine
from keyplan.errors import HistoryCompactedError
from tests.engines.planting import MUTANTS, Plant, SnapshotOf, gap, refused_by, replace

# ---- counts, limits, many keys ---------------------------------------------------------------------------------------


def counted(patch: pytest.MonkeyPatch, change: Callable[[int, KeyRange], int]) -> None:
    """Let a count be what `change` makes of it."""
    replace(patch, SnapshotOf, "count", lambda count: lambda snapshot, r: change(count(snapshot, r), r))


@refused_by("test_many_keys_are_counted_exactly")
def a_count_of_five_thousand_is_one_less(patch: pytest.MonkeyPatch) -> None:
    counted(patch, lambda count, _: count - (count >= 5_000))


@refused_by("test_many_keys_are_counted_exactly")
def a_count_saturates(patch: pytest.MonkeyPatch) -> None:
    counted(patch, lambda count, _: min(count, 1_000))


@refused_by("test_many_keys_are_counted_exactly", "test_a_range_holds_its_start_and_not_its_end")
def a_count_to_the_end_is_one_less(patch: pytest.MonkeyPatch) -> None:
    counted(patch, lambda count, r: count - (r.end is None and r.start != b"" and count > 1))


def scanned(patch: pytest.MonkeyPatch, change: Callable[[Any, Any, KeyRange, Any, bool, bool], Any]) -> None:
    """Replace `scan`: `change` gets the present one and what it was asked."""

    def make(scan: Any) -> Any:
        def changed(
            snapshot: Any, r: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
        ) -> Any:
            return change(scan, snapshot, r, limit, reverse, keys_only)

        return changed

    replace(patch, SnapshotOf, "scan", make)


@refused_by("test_a_limit_beyond_a_page_is_kept")
def a_limit_beyond_a_page_is_ignored(patch: pytest.MonkeyPatch) -> None:
    scanned(
        patch,
        lambda scan, snapshot, r, limit, reverse, keys_only: scan(
            snapshot, r, limit=limit if limit is None or limit <= 1_000 else None, reverse=reverse, keys_only=keys_only
        ),
    )


@refused_by("test_a_limit_beyond_a_page_is_kept", "test_a_limit_takes_the_first_or_the_last_entries")
def a_large_limit_in_reverse_takes_the_first(patch: pytest.MonkeyPatch) -> None:
    def changed(scan: Any, snapshot: Any, r: KeyRange, limit: int | None, reverse: bool, keys_only: bool) -> Any:  # noqa: FBT001
        if reverse and limit is not None and limit > 10:
            return iter(list(scan(snapshot, r, limit=limit, keys_only=keys_only))[::-1])
        return scan(snapshot, r, limit=limit, reverse=reverse, keys_only=keys_only)

    scanned(patch, changed)


def put_sorted(patch: pytest.MonkeyPatch, change: Callable[..., int]) -> None:
    """Replace `put_sorted`."""
    patch.setattr(MemoryEngine, "put_sorted", change)


@refused_by("test_many_keys_that_are_put_again_are_not_counted_as_new")
def a_thousand_keys_all_count_as_new(patch: pytest.MonkeyPatch) -> None:
    def put(engine: Engine, keys: Sequence[bytes], values: Any = None, **options: Any) -> int:
        new = Engine.put_sorted(engine, keys, values, **options)
        return new if len(keys) < 1_000 else len(keys)

    put_sorted(patch, put)


@refused_by("test_every_part_of_many_keys_is_under_the_guards")
def only_the_first_part_of_many_keys_is_guarded(patch: pytest.MonkeyPatch) -> None:
    def put(engine: Engine, keys: Sequence[bytes], values: Any = None, *, guards: Any = (), **options: Any) -> int:
        new = 0
        for start in range(0, len(keys), 500):
            part = slice(start, start + 500)
            own = guards if start == 0 else ()
            new += Engine.put_sorted(engine, keys[part], values and values[part], guards=own, **options)
            gap()
        return new

    put_sorted(patch, put)


@refused_by("test_many_keys_are_got_in_the_order_asked")
def entries_beyond_128_are_not_got(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        SnapshotOf, "get_many", lambda snapshot, keys: [*map(snapshot.get, keys[:128]), *(None for _ in keys[128:])]
    )


@refused_by("test_many_keys_are_got_in_the_order_asked")
def values_beyond_128_are_not_got(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        SnapshotOf, "values", lambda snapshot, keys: [*map(snapshot.value, keys[:128]), *(None for _ in keys[128:])]
    )


@refused_by("test_a_commit_as_large_as_the_engine_takes_is_applied_whole")
def a_commit_is_cut_at_two_thousand(patch: pytest.MonkeyPatch) -> None:
    replace(
        patch,
        MemoryEngine,
        "commit",
        lambda commit: lambda engine, wanted: commit(engine, Commit(wanted.guards, wanted.mutations[:2_000])),
    )


@refused_by("test_a_range_of_many_keys_is_deleted_at_one_revision")
def a_deleted_range_ends_after_a_thousand(patch: pytest.MonkeyPatch) -> None:
    def make(apply: Any) -> Any:
        def cutting(state: Memory, mutations: Iterable[Mutation]) -> Any:
            parts: list[Mutation] = []
            for mutation in mutations:
                if isinstance(mutation, DeleteRange):
                    parts += [Delete(entry.key) for entry in islice(state.entries.scan(mutation.range), 1_000)]
                else:
                    parts.append(mutation)
            return apply(state, parts)

        return cutting

    replace(patch, Memory, "apply", make)


# ---- snapshots that move ---------------------------------------------------------------------------------------------


def moved(snapshot: Any) -> Any:
    """Return a snapshot of what is stored now, in the place of an older one."""
    return SnapshotOf(snapshot._engine, snapshot._engine._state.entries, snapshot._revision)


def moving(name: str) -> Plant:
    """Return the mutant whose snapshots show the latest state by one of their methods, and the right one by all others."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def make(method: Any) -> Any:
            def moving_method(snapshot: Any, *arguments: Any, **options: Any) -> Any:
                snapshot._check_open()
                return method(moved(snapshot), *arguments, **options)

            return moving_method

        replace(patch, SnapshotOf, name, make)

    return plant


for _name in ("get", "get_many", "value", "values", "scan", "keys", "pairs", "columns", "count"):
    MUTANTS[f"{_name}_of_a_snapshot_moves"] = moving(_name), ("test_each_read_of_a_snapshot_stays_as_it_was",)


@refused_by("test_each_read_of_a_snapshot_stays_as_it_was")
def the_second_scan_of_a_snapshot_moves(patch: pytest.MonkeyPatch) -> None:
    def changed(scan: Any, snapshot: Any, r: KeyRange, limit: Any, reverse: Any, keys_only: Any) -> Any:
        snapshot.scans = getattr(snapshot, "scans", 0) + 1
        seen = moved(snapshot) if snapshot.scans > 1 else snapshot
        return scan(seen, r, limit=limit, reverse=reverse, keys_only=keys_only)

    scanned(patch, changed)


@refused_by("test_each_read_begins_with_the_state_that_the_snapshot_was_taken_of")
def a_reversed_scan_moves(patch: pytest.MonkeyPatch) -> None:
    scanned(
        patch,
        lambda scan, snapshot, r, limit, reverse, keys_only: scan(
            moved(snapshot) if reverse else snapshot, r, limit=limit, reverse=reverse, keys_only=keys_only
        ),
    )


@refused_by("test_the_revision_of_a_snapshot_is_that_of_its_state")
def the_revision_of_a_snapshot_is_older_than_its_state(patch: pytest.MonkeyPatch) -> None:
    def snapshot(engine: Any) -> Any:
        engine.check_open()
        revision = engine._state.revision
        gap()
        return SnapshotOf(engine, engine._state.entries, revision)

    patch.setattr(MemoryEngine, "snapshot", snapshot)


@refused_by("test_compaction_changes_nothing_in_an_open_snapshot")
def compaction_ends_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    def make(check: Any) -> Any:
        def checking(snapshot: Any) -> None:
            check(snapshot)
            if snapshot._revision < snapshot._engine._state.compacted:
                raise HistoryCompactedError(revision=snapshot._revision, compacted_revision=0)

        return checking

    replace(patch, SnapshotOf, "_check_open", make)


@refused_by("test_each_read_is_refused_once_the_snapshot_is_closed")
def a_closed_snapshot_is_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotOf, "count", lambda snapshot, r: snapshot._entries.count_in(r))


# ---- answers ---------------------------------------------------------------------------------------------------------


@refused_by("test_a_commit_returns_the_revision_that_its_keys_have")
def a_commit_returns_the_revision_of_the_store(patch: pytest.MonkeyPatch) -> None:
    def make(commit: Any) -> Any:
        def answering(engine: Any, wanted: Commit) -> int:
            commit(engine, wanted)
            gap()
            latest: int = engine._state.revision
            return latest

        return answering

    replace(patch, MemoryEngine, "commit", make)


def fenced(patch: pytest.MonkeyPatch, answer: Callable[[Any, bytes, Fences], tuple[bool, bytes | None]]) -> None:
    """Replace `fenced_value`."""
    patch.setattr(MemoryEngine, "fenced_value", answer)


def are_held(engine: Any, fences: Fences) -> bool:
    """Look at fences, whatever the engine remembers of them."""
    return all(engine.value(key) == value for key, value in fences)


@refused_by("test_a_value_and_its_fence_are_of_one_state")
def a_fence_is_read_after_its_value(patch: pytest.MonkeyPatch) -> None:
    def answer(engine: Any, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        value = engine.value(key)
        gap()
        return are_held(engine, fences), value

    fenced(patch, answer)


@refused_by("test_a_value_and_its_fence_are_of_one_state")
def a_fence_is_read_before_its_value(patch: pytest.MonkeyPatch) -> None:
    def answer(engine: Any, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        holds = are_held(engine, fences)
        gap()
        return holds, engine.value(key)

    fenced(patch, answer)


@refused_by("test_a_value_is_read_together_with_its_fence")
def a_fence_that_held_once_holds_for_ever(patch: pytest.MonkeyPatch) -> None:
    held: set[Fences] = set()

    def answer(engine: Any, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        if are_held(engine, fences):
            held.add(fences)
        return (True, engine.value(key)) if fences in held else (False, None)

    fenced(patch, answer)


@refused_by("test_all_of_several_fences_must_hold")
def one_of_several_fences_is_enough(patch: pytest.MonkeyPatch) -> None:
    def answer(engine: Any, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        holds = any(engine.value(fence) == value for fence, value in fences)
        return (True, engine.value(key)) if holds else (False, None)

    fenced(patch, answer)


@refused_by("test_the_fences_of_a_snapshot_are_of_its_state")
def a_snapshot_looks_at_the_latest_fences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotOf, "holds", lambda snapshot, fences: are_held(snapshot._engine, fences))


def share_of(engine: MemoryEngine, prefix: bytes) -> Snapshot:
    return PrefixedSnapshot(engine.snapshot(), KeyPrefix(prefix))


@refused_by("test_a_fenced_snapshot_is_of_the_keys_below_its_prefix_in_a_state_in_which_the_fences_hold")
def a_fenced_snapshot_asks_for_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryEngine, "fenced_snapshot", lambda engine, prefix, _: share_of(engine, prefix))


@refused_by("test_a_fenced_snapshot_is_of_the_keys_below_its_prefix_in_a_state_in_which_the_fences_hold")
def a_fenced_snapshot_is_of_the_whole_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        MemoryEngine,
        "fenced_snapshot",
        lambda engine, _, fences: engine.snapshot() if are_held(engine, fences) else None,
    )


@refused_by("test_a_fenced_snapshot_is_of_the_state_in_which_its_fences_hold")
def a_fenced_snapshot_is_taken_after_the_look_at_the_fences(patch: pytest.MonkeyPatch) -> None:
    def taken(engine: Any, prefix: bytes, fences: Fences) -> Snapshot | None:
        holds = are_held(engine, fences)
        gap()
        return share_of(engine, prefix) if holds else None

    patch.setattr(MemoryEngine, "fenced_snapshot", taken)


@refused_by("test_what_is_read_along_is_of_the_snapshot_s_state")
def what_is_read_along_is_the_latest(patch: pytest.MonkeyPatch) -> None:
    brought: dict[bytes, Any] = {}

    def read_along(snapshot: Any, keys: Sequence[bytes]) -> None:
        gap()
        brought.update({key: snapshot._engine._state.entries.get(key) for key in keys})

    def make(get: Any) -> Any:
        return lambda snapshot, key: brought[key] if key in brought else get(snapshot, key)

    patch.setattr(SnapshotOf, "read_along", read_along)
    replace(patch, SnapshotOf, "get", make)


@refused_by("test_the_latest_value_is_told_after_every_way_to_write")
def a_value_is_remembered(patch: pytest.MonkeyPatch) -> None:
    def value(engine: Any, key: bytes) -> Any:
        engine.check_open()
        known = engine.__dict__.setdefault("known", {})
        if key not in known:
            entry = engine._state.entries.get(key)
            known[key] = entry and entry.value
        return known[key]

    patch.setattr(MemoryEngine, "value", value)


@refused_by("test_a_closed_engine_does_nothing_more")
def a_closed_engine_tells_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryEngine, "value", lambda engine, key: getattr(engine._state.entries.get(key), "value", None))


@refused_by("test_a_closed_engine_does_nothing_more")
def a_closed_engine_takes_many_keys(patch: pytest.MonkeyPatch) -> None:
    def put(engine: Any, keys: Sequence[bytes], values: Any = None, **options: Any) -> int:
        return 0 if engine.is_closed else Engine.put_sorted(engine, keys, values, **options)

    put_sorted(patch, put)
