"""Promise: what holds for three keys holds for three thousand.

Engines work in pages, batches and parts; the faults of such code sit behind the first one. Why these sizes: they lie beyond the
pages of the engines that we know (64 guards, 100 keys of a lease, 128 operations, 1,000 entries or events, 2,000 mutations).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import Final

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Capability,
    Commit,
    DeleteRange,
    Engine,
    Event,
    EventKind,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.errors import CommitConflictError, InvalidInputError
from keyplan.testing.engine_suite.promise import Promise, commit, eventually, everything, needs, polled, put

__all__ = ["SizePromises"]

MANY: Final = 2_500
TTL_SECONDS: Final = 3.0
OPERATIONS_DEFAULT: Final = 100_000


class SizePromises(Promise):
    """Reads, guards, leases, loads and events beyond the first page."""

    # ---- reads -------------------------------------------------------------------------------------------------------

    def test_many_keys_are_counted_exactly(self, engine: Engine) -> None:
        keys = numbered(6_000)
        engine.load((key, b"") for key in keys)
        with engine.snapshot() as snapshot:
            assert snapshot.count(ALL_KEYS) == 6_000
            assert snapshot.count(KeyRange(keys[10], None)) == 5_990
            assert snapshot.count(KeyRange(keys[10], keys[5_010])) == 5_000

    def test_many_keys_are_got_in_the_order_asked(self, engine: Engine) -> None:
        keys = numbered(MANY)
        engine.load((key, b"v" + key) for key in keys)
        asked = [*keys[::-1], b"absent", *keys[::7]]
        expected = [None if key == b"absent" else b"v" + key for key in asked]
        with engine.snapshot() as snapshot:
            assert snapshot.values(asked) == expected
            assert [entry and entry.value for entry in snapshot.get_many(asked)] == expected

    @pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reversed"])
    def test_a_limit_beyond_a_page_is_kept(self, engine: Engine, *, reverse: bool) -> None:
        keys = numbered(MANY)
        engine.load((key, b"") for key in keys)
        expected = (keys[::-1] if reverse else keys)[:1_500]
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS, limit=1_500, reverse=reverse)] == expected
            assert list(snapshot.keys(ALL_KEYS, limit=1_500, reverse=reverse)) == expected
            assert [key for key, _ in snapshot.pairs(ALL_KEYS, limit=1_500, reverse=reverse)] == expected

    # ---- guards ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["absent", "unchanged"])
    def test_the_last_of_many_guards_is_looked_at(self, engine: Engine, kind: str) -> None:
        keys = numbered(100)
        engine.load((key, b"") for key in (keys if kind == "unchanged" else keys[:0]))
        revisions = {entry.key: entry.mod_revision for entry in everything(engine)}
        guards: list[Guard] = [KeyUnchanged(key, revisions[key]) if revisions else KeyAbsent(key) for key in keys]
        commit(engine, Put(b"x", b""), guards=guards)
        put(engine, keys[-1], value=b"changed")
        with pytest.raises(CommitConflictError) as caught:
            commit(engine, Put(b"y", b""), guards=guards)
        assert [failure.guard for failure in failures(caught.value)] == [guards[-1]]
        assert engine.value(b"y") is None

    @needs(Capability.REVISIONS)
    @pytest.mark.parametrize("change", ["the last is rewritten", "one is added", "one is removed"])
    def test_a_range_of_many_keys_is_guarded_to_its_end(self, engine: Engine, change: str) -> None:
        # Why one less: the range costs a comparison as well.
        keys = numbered(min(engine.profile.commit_operations_max or 151, 151) - 1)
        revision = in_parts(engine, (Put(key, b"") for key in keys))
        guard = RangeUnchanged(KeyRange.of_prefix(b"k"), revision, tuple(keys))
        commit(engine, Put(b"x", b""), guards=[guard])
        if change == "the last is rewritten":
            put(engine, keys[-1])
        elif change == "one is added":
            put(engine, b"kz")
        else:
            commit(engine, DeleteRange(KeyRange.of_key(keys[120])))
        with pytest.raises(CommitConflictError) as caught:
            commit(engine, Put(b"y", b""), guards=[guard])
        assert [failure.guard for failure in failures(caught.value)] == [guard]

    def test_a_range_without_an_end_is_guarded(self, engine: Engine) -> None:
        rest = KeyRange(b"\xf0", None)
        commit(engine, Put(b"a", b""), guards=[RangeEmpty(rest)])
        put(engine, b"\xfe")
        with pytest.raises(CommitConflictError):
            commit(engine, Put(b"b", b""), guards=[RangeEmpty(rest)])

    @needs(Capability.REVISIONS)
    def test_a_range_without_an_end_is_guarded_against_changes(self, engine: Engine) -> None:
        guard = RangeUnchanged(KeyRange(b"\xf0", None), put(engine, b"\xf1"), (b"\xf1",))
        commit(engine, Put(b"a", b""), guards=[guard])
        put(engine, b"\xff\xff")
        with pytest.raises(CommitConflictError):
            commit(engine, Put(b"b", b""), guards=[guard])

    # ---- commits -----------------------------------------------------------------------------------------------------

    def test_a_commit_as_large_as_the_engine_takes_is_applied_whole(self, engine: Engine) -> None:
        keys = numbered(min(engine.profile.commit_operations_max or MANY, MANY))
        put(engine, *keys, value=b"")
        assert [entry.key for entry in everything(engine)] == keys

    @needs(Capability.WATCH)
    def test_a_range_of_many_keys_is_deleted_at_one_revision(self, engine: Engine) -> None:
        keys = numbered(MANY)
        engine.load((key, b"old") for key in keys)
        before = now(engine)
        watch = engine.watch(ALL_KEYS, after=before)
        assert commit(engine, DeleteRange(ALL_KEYS)) == before + 1
        assert everything(engine) == []
        (batch,) = batches(watch.poll)
        assert [(event.kind, event.key, event.revision) for event in batch] == [
            (EventKind.DELETED, key, before + 1) for key in keys
        ]
        assert all(event.previous is not None and event.previous.value == b"old" for event in batch)
        assert polled(watch, until=before + 1) == []
        watch.close()

    # ---- many sorted keys --------------------------------------------------------------------------------------------

    def test_many_keys_that_are_put_again_are_not_counted_as_new(self, engine: Engine) -> None:
        keys = numbered(MANY)
        assert engine.put_sorted(keys, keys) == MANY
        assert engine.put_sorted(keys, keys) == 0
        assert engine.put_sorted([*keys, b"l"]) == 1
        with engine.snapshot() as snapshot:
            assert snapshot.count(ALL_KEYS) == MANY + 1

    @needs(Capability.REVISIONS)
    def test_every_part_of_many_keys_is_under_the_guards(self, engine: Engine) -> None:
        fence = put(engine, b"fence")
        keys = numbered(4 * MANY)
        moved: list[int] = []

        def move_the_fence() -> None:
            eventually(lambda: engine.value(keys[0]) is not None)
            moved.append(put(engine, b"fence", value=b"moved"))

        mover = Thread(target=move_the_fence)
        mover.start()
        with suppress(CommitConflictError):  # the fence moved between two parts
            engine.put_sorted(keys, guards=[KeyUnchanged(b"fence", fence)])
        mover.join()
        late = [entry.key for entry in everything(engine, KeyRange.of_prefix(b"k")) if entry.mod_revision > moved[0]]
        assert late == []

    # ---- loads -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("position", [0, 1_500, MANY - 1])
    def test_a_load_overwrites_nothing_wherever_it_stands(self, engine: Engine, position: int) -> None:
        keys = numbered(MANY)
        put(engine, keys[position], value=b"mine")
        with pytest.raises(CommitConflictError):
            engine.load((key, b"loaded") for key in keys)
        assert engine.value(keys[position]) == b"mine"

    @pytest.mark.parametrize("wrong", ["exchanged", "an early one again"])
    @pytest.mark.parametrize("position", [1_000, 2_000, MANY - 1])
    def test_the_order_of_a_load_is_looked_at_to_its_end(self, engine: Engine, position: int, wrong: str) -> None:
        keys = numbered(MANY)
        if wrong == "exchanged":
            keys[position - 1], keys[position] = keys[position], keys[position - 1]
        else:
            keys[position] = keys[3]
        with pytest.raises(InvalidInputError):
            engine.load((key, b"") for key in keys)

    # ---- leases ------------------------------------------------------------------------------------------------------

    @needs(Capability.LEASES)
    @pytest.mark.parametrize("end", ["revoked", "over"])
    def test_many_entries_of_a_lease_go_at_one_revision(
        self, engine: Engine, pass_time: Callable[[float], None], end: str
    ) -> None:
        keys = numbered(300)
        lease = engine.lease(600 if end == "revoked" else TTL_SECONDS * 4)
        before = in_parts(engine, (Put(key, b"", lease.id) for key in keys))
        watch = engine.watch(ALL_KEYS, after=before)
        if end == "revoked":
            lease.revoke()
        else:
            pass_time(lease.ttl_seconds + 0.1)
        eventually(lambda: everything(engine) == [])
        (batch,) = batches(watch.poll)
        assert [(event.kind, event.key, event.revision) for event in batch] == [
            (EventKind.DELETED, key, before + 1) for key in keys
        ]
        assert now(engine) == before + 1
        watch.close()

    # ---- events ------------------------------------------------------------------------------------------------------

    @needs(Capability.WATCH)
    @pytest.mark.parametrize("key_range", [ALL_KEYS, KeyRange.of_prefix(b"mine")], ids=["everything", "a few"])
    def test_a_watch_that_is_far_behind_gets_every_revision(self, engine: Engine, key_range: KeyRange) -> None:
        start = put(engine, b"other")
        threads = [Thread(target=write_alternately, args=(engine, 280)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = now(engine)
        watch = engine.watch(key_range, after=start)
        seen = polled(watch, until=last)
        watch.close()
        everything_seen = polled(engine.watch(ALL_KEYS, after=start), until=last)
        assert [event.revision for event in everything_seen] == list(range(start + 1, last + 1))
        assert seen == [event for event in everything_seen if event.key in key_range]
        assert len(everything_seen) == 8 * 280


def numbered(count: int) -> list[bytes]:
    """Return so many keys that begin with k, in order."""
    return [b"k%05d" % number for number in range(count)]


def now(engine: Engine) -> int:
    """Return the store's revision."""
    with engine.snapshot() as snapshot:
        return snapshot.revision


def in_parts(engine: Engine, mutations: Iterable[Mutation]) -> int:
    """Commit in as few commits as the engine takes; return the last revision."""
    rest = iter(mutations)
    revision = 0
    while part := tuple(islice(rest, engine.profile.commit_operations_max or OPERATIONS_DEFAULT)):
        revision = engine.commit(Commit((), part))
    return revision


def batches(poll: Callable[[float], Sequence[Event]]) -> Iterator[list[Event]]:
    """Yield what a watch brings, poll by poll, until a poll brings nothing more."""
    found: list[list[Event]] = []

    def has_begun() -> bool:
        batch = list(poll(0.05))
        if batch:
            found.append(batch)
        return bool(found)

    eventually(has_begun)
    yield from found
    while batch := list(poll(0)):
        yield batch


def failures(error: CommitConflictError) -> tuple[FailedGuard, ...]:
    """Return the guards that failed, as the error tells them."""
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    return failed


def write_alternately(engine: Engine, times: int) -> None:
    """Make so many commits: every fortieth to a key whose name begins with mine."""
    for number in range(times):
        put(engine, b"mine" if number % 40 == 7 else b"other", value=b"%d" % number)
