"""A write set against a dictionary: what is read through it, what its commit does, and what its guards let pass."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.engine import Commit, Delete, Entry, KeyRange, MemoryEngine, Mutation, Put, Reads, WriteSet
from keyplan.errors import CommitConflictError

WRITTEN = -1
KEYS = [bytes([letter]) for letter in b"abcdefgh"]
EDGES = [*KEYS, b"d\x00", b"i"]

Model = dict[bytes, bytes]

keys = st.sampled_from(KEYS)
values = st.sampled_from([b"1", b"2"])
models = st.dictionaries(keys, values)
ranges = st.builds(KeyRange, st.sampled_from(EDGES), st.sampled_from([*EDGES, None]))


class Step(NamedTuple):
    """A write: what the write set is asked for, and of what."""

    name: str
    key: bytes
    value: bytes
    range: KeyRange


steps = st.builds(Step, st.sampled_from(["put", "delete", "delete_unread", "delete_range"]), keys, values, ranges)


def store_of(model: Model) -> MemoryEngine:
    engine = MemoryEngine()
    engine.commit(Commit((), tuple(Put(key, value) for key, value in model.items())))
    return engine


def content(engine: MemoryEngine) -> Model:
    with engine.snapshot() as snapshot:
        return {entry.key: entry.value for entry in snapshot.scan(KeyRange(b"", None))}


def take(step: Step, writes: WriteSet, model: Model) -> None:
    if step.name == "put":
        writes.put(step.key, step.value)
        model[step.key] = step.value
    elif step.name == "delete_range":
        writes.delete_range(step.range)
        for key in [key for key in model if key in step.range]:
            del model[key]
    else:
        (writes.delete if step.name == "delete" else writes.delete_unread)(step.key)
        model.pop(step.key, None)


def assert_reads_as(writes: WriteSet, model: Model, key_range: KeyRange) -> None:
    assert {key: entry.value for key in KEYS if (entry := writes.get(key)) is not None} == model
    inside = sorted((key, value) for key, value in model.items() if key in key_range)
    stored = list(writes.reads.look_through(key_range))
    assert [(entry.key, entry.value) for entry in writes.over(stored, key_range)] == inside
    backwards = writes.over(stored[::-1], key_range, reverse=True)
    assert [(entry.key, entry.value) for entry in backwards] == inside[::-1]
    assert key_range.is_empty or writes.holds_any(key_range) == bool(inside)


@given(models, st.lists(steps, max_size=12), ranges)
def test_reads_see_the_writes_and_the_commit_makes_them_true(
    model: Model, asked: list[Step], key_range: KeyRange
) -> None:
    engine, wanted = store_of(model), dict(model)
    with engine.snapshot() as snapshot:
        writes = WriteSet(Reads.of(snapshot), revision_written=WRITTEN)
        for step in asked:
            take(step, writes, wanted)
            assert_reads_as(writes, wanted, key_range)
        commit = writes.commit()
        told = {key: writes.get(key) for key in KEYS}
        assert commit.guards == (), "nothing is guarded by reading alone"
        assert writes.operations == len(commit.mutations)
        assert writes.has_writes == bool(commit.mutations)

    revision = engine.commit(commit)

    assert content(engine) == wanted
    with engine.snapshot() as snapshot:
        for key, entry in told.items():
            assert snapshot.get(key) == (None if entry is None else _committed(entry, revision))


def _committed(entry: Entry, revision: int) -> Entry:
    created, modified = (revision if told == WRITTEN else told for told in (entry.create_revision, entry.mod_revision))
    return entry._replace(create_revision=created, mod_revision=modified)


class Looks(NamedTuple):
    """What decisions rest on: keys, scans that end after some entries, ranges that shall be empty."""

    keys: Sequence[bytes]
    scans: Sequence[tuple[KeyRange, int, bool]]
    empty: Sequence[KeyRange]


looks = st.builds(
    Looks,
    st.lists(keys, max_size=2),
    st.lists(st.tuples(ranges, st.integers(0, 4), st.booleans()), max_size=2),
    st.lists(ranges, max_size=1),
)


@given(models, looks, st.dictionaries(keys, st.none() | values, max_size=2))
def test_a_commit_is_refused_when_and_only_when_what_it_rests_on_is_different(
    model: Model, rests_on: Looks, foreign: dict[bytes, bytes | None]
) -> None:
    engine = store_of(model)
    with engine.snapshot() as snapshot:
        reads = Reads.of(snapshot)
        reads.read_set.update(rests_on.keys)
        for key_range, most, is_reverse in rests_on.scans:
            assert len(list(islice(reads.scan(key_range, reverse=is_reverse), most))) <= most
        for key_range in rests_on.empty:
            reads.guard_empty(key_range)
        writes = WriteSet(reads, revision_written=WRITTEN)
        writes.put(b"z", b"own")
        commit = writes.commit()
    engine.commit(Commit((), tuple(_as_mutations(foreign))))
    changed = {key for key, value in foreign.items() if value is not None or key in model}
    now = content(engine)
    is_same = changed.isdisjoint(rests_on.keys)
    is_same &= not any(_learnt(model, changed, *scan) for scan in rests_on.scans)
    is_same &= not any(key in key_range for key_range in rests_on.empty for key in now)

    if is_same:
        engine.commit(commit)
    else:
        with pytest.raises(CommitConflictError):
            engine.commit(commit)


def _as_mutations(foreign: dict[bytes, bytes | None]) -> Iterator[Mutation]:
    for key, value in foreign.items():
        yield Delete(key) if value is None else Put(key, value)


def _learnt(model: Model, changed: set[bytes], key_range: KeyRange, most: int, is_reverse: bool) -> bool:  # noqa: FBT001
    """Tell whether a change is in the part of a scan's range that was consumed."""
    found = sorted((key for key in model if key in key_range), reverse=is_reverse)
    if most == 0:
        return False
    if most > len(found):
        return any(key in key_range for key in changed)
    last = found[most - 1]
    return any(key in key_range and (key >= last if is_reverse else key <= last) for key in changed)
