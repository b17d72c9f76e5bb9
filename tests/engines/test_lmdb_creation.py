"""LMDB writes new entries without looking first; what it then finds in the way leaves no trace of the attempt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Entry, KeyAbsent, KeyUnchanged, Put, open_engine
from keyplan.errors import CommitConflictError


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        engine.commit(Commit((), (Put(b"m", b"old"),)))
        yield engine


def stored(engine: Engine) -> list[Entry]:
    with engine.snapshot() as snapshot:
        return list(snapshot.scan(ALL_KEYS))


def failed_keys(conflict: CommitConflictError) -> list[bytes | None]:
    failed = conflict.facts["failed"]
    assert isinstance(failed, tuple)
    return [failure.key for failure in failed]


def test_entries_written_before_one_that_is_in_the_way_are_taken_back(engine: Engine) -> None:
    with pytest.raises(CommitConflictError) as caught:
        engine.commit(Commit((KeyAbsent(b"m"), KeyAbsent(b"a")), (Put(b"a", b"1"), Put(b"m", b"2"), Put(b"z", b"3"))))

    assert failed_keys(caught.value) == [b"m"]
    assert stored(engine) == [Entry(b"m", b"old", 1, 1, 1, 0)]
    assert engine.commit(Commit((), (Put(b"b", b""),))) == 2


def test_an_entry_without_a_guard_is_overwritten_where_the_others_are_new(engine: Engine) -> None:
    assert engine.commit(Commit((KeyAbsent(b"a"),), (Put(b"z", b"3"), Put(b"m", b"new"), Put(b"a", b"1")))) == 2

    assert stored(engine) == [
        Entry(b"a", b"1", 2, 2, 1, 0),
        Entry(b"m", b"new", 1, 2, 2, 0),
        Entry(b"z", b"3", 2, 2, 1, 0),
    ]
    watch = engine.watch(ALL_KEYS, after=1)
    before = {event.key: event.previous for event in watch.poll(0)}
    watch.close()
    assert before == {b"a": None, b"m": Entry(b"m", b"old", 1, 1, 1, 0), b"z": None}


def test_a_guard_beside_new_entries_is_judged_and_named_with_the_others(engine: Engine) -> None:
    puts = (Put(b"a", b"1"), Put(b"b", b"2"))

    with pytest.raises(CommitConflictError) as caught:
        engine.commit(Commit((KeyAbsent(b"a"), KeyUnchanged(b"m", 7), KeyAbsent(b"n")), puts))

    assert failed_keys(caught.value) == [b"m"]
    assert engine.commit(Commit((KeyAbsent(b"a"), KeyUnchanged(b"m", 1)), puts)) == 2
    assert [entry.key for entry in stored(engine)] == [b"a", b"b", b"m"]


def test_a_revision_of_many_new_entries_is_logged_whole(engine: Engine) -> None:
    keys = [b"%06d" % number for number in range(3_000)]  # some 400 KB of events: two parts of the log
    engine.commit(Commit((KeyAbsent(keys[0]),), tuple(Put(key, bytes(100)) for key in keys)))

    watch = engine.watch(ALL_KEYS, after=1)
    events = watch.poll(0)
    watch.close()
    assert [event.key for event in events] == keys
    assert {event.revision for event in events} == {2}
