"""`check_kills` judges jobs that are wrong on purpose: each mistake of theirs is found, and a sound one is not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from keyplan.engine import MEMORY_PROFILE, Commit, Delete, Guard, KeyUnchanged, Put
from keyplan.errors import CommitConflictError, CommitOutcomeUnknownError
from keyplan.store import Store
from keyplan.testing.killing import Ending, KillFailure, KillReport, KillScenario, check_kills

KEYS = [b"a%d" % number for number in range(4)]
CURSOR = b"cursor"
MARK = b"mark"


def fill(store: Store) -> None:
    store.engine.commit(Commit((), tuple(Put(key, b"1") for key in KEYS)))


def raise_one(store: Store, key: bytes, *mutations: Put | Delete, is_guarded: bool = True) -> None:
    """Make a key's number one greater, with further writes in the same commit."""
    with store.engine.snapshot() as snapshot:
        entry = snapshot.get(key)
    assert entry is not None
    guards: tuple[Guard, ...] = (KeyUnchanged(key, entry.mod_revision),) if is_guarded else ()
    put = Put(key, b"%d" % (int(entry.value) + 1))
    try:
        store.engine.commit(Commit(guards, (put, *mutations)))
    except CommitConflictError:
        raise_one(store, key, *mutations, is_guarded=is_guarded)


def due(store: Store) -> list[bytes]:
    done = store.engine.value(CURSOR) or b""
    return [key for key in KEYS if key > done]


def sound(store: Store) -> None:
    """Raise each number once: the cursor is written with the work, and removed at the end."""
    if store.engine.value(MARK) is None:
        for key in due(store):
            raise_one(store, key, Put(CURSOR, key))
        store.engine.commit(Commit((), (Delete(CURSOR), Put(MARK, b"done"))))


def cursor_first(store: Store) -> None:
    for key in due(store):
        store.engine.commit(Commit((), (Put(CURSOR, key),)))
        raise_one(store, key)


def cursor_last(store: Store) -> None:
    for key in due(store):
        raise_one(store, key)
        store.engine.commit(Commit((), (Put(CURSOR, key),)))


def unguarded(store: Store) -> None:
    for key in due(store):
        raise_one(store, key, Put(CURSOR, key), is_guarded=False)


def tried_again(store: Store) -> None:
    """Take a lost answer for a commit that was not made."""
    for key in due(store):
        try:
            raise_one(store, key, Put(CURSOR, key))
        except CommitOutcomeUnknownError:
            raise_one(store, key, Put(CURSOR, key))


@contextmanager
def marked(store: Store) -> Iterator[None]:
    store.engine.commit(Commit((), (Put(MARK, b"under way"),)))
    try:
        yield
    finally:
        store.engine.commit(Commit((), (Delete(MARK),)))


def refused_while_marked(store: Store) -> None:
    """Leave the mark to `finally`, and begin only where none stands: a killed one is never resumed."""
    assert store.engine.value(MARK) is None, "somebody is at it"
    with marked(store):
        sound_without_mark(store)


def sound_without_mark(store: Store) -> None:
    for key in due(store):
        raise_one(store, key, Put(CURSOR, key))


def spoiled_by_cleaning(store: Store) -> None:
    """Forget in `finally` how far the work was: an interruption makes it do things twice."""
    try:
        sound_without_mark(store)
    except BaseException:
        store.engine.commit(Commit((), (Delete(CURSOR),)))
        raise


def add_ten(store: Store) -> None:
    """What an application does meanwhile."""
    with store.engine.snapshot() as snapshot:
        entry = snapshot.get(KEYS[2])
    assert entry is not None
    store.engine.commit(
        Commit((KeyUnchanged(KEYS[2], entry.mod_revision),), (Put(KEYS[2], b"%d" % (int(entry.value) + 10)),))
    )


def checked(job: Callable[[Store], None], *, has_beside: bool = False) -> KillReport:
    return check_kills(KillScenario(job=job, setup=fill, beside=add_ten if has_beside else None))


@pytest.mark.parametrize("has_beside", [False, True])
def test_a_sound_job_is_found_sound_and_each_of_its_steps_is_tried(*, has_beside: bool) -> None:
    report = checked(sound, has_beside=has_beside)
    assert report.steps.count("before commit") == report.steps.count("after commit") == 5
    assert report.variants > len(report.steps) * 2
    assert report == checked(sound, has_beside=has_beside), "the same each time"


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (cursor_first, r"killed at step \d+, after commit: given again it leaves something else"),
        (cursor_last, r"killed at step \d+, after commit: given again it leaves something else"),
        (tried_again, r"the outcome unknown at step \d+, after commit"),
        (refused_while_marked, r"killed at step \d+.*given again it does not end: AssertionError: somebody is at it"),
        (spoiled_by_cleaning, r"interrupted at step \d+.*leaves something else:\n  there: b'a0': \(b'3', False\)"),
    ],
)
def test_what_a_kill_spoils_is_found_and_named(job: Callable[[Store], None], told: str) -> None:
    with pytest.raises(KillFailure, match=told):
        checked(job)


def test_a_write_of_an_application_that_is_overwritten_is_found() -> None:
    checked(unguarded)
    with pytest.raises(KillFailure, match=r"met by the application at step \d+, .*\n.*\n.*wanted: b'a2': \(b'12'"):
        checked(unguarded, has_beside=True)


def test_what_must_hold_is_asked_after_each_end() -> None:
    def holds(store: Store) -> None:
        assert store.engine.value(CURSOR) is None, "the cursor is left"

    scenario = KillScenario(job=sound, setup=fill, holds=holds)
    check_kills(scenario)
    with pytest.raises(KillFailure, match="undisturbed: the cursor is left"):
        check_kills(replace(scenario, job=sound_without_mark))


def test_what_must_hold_draws_other_identifiers_than_the_set_up() -> None:
    drawn: set[str] = set()

    def set_up(store: Store) -> None:
        drawn.update(uuid4().hex for _ in range(10))
        fill(store)

    def holds(store: Store) -> None:
        assert drawn.isdisjoint(uuid4().hex for _ in range(20)), "one of the set-up's"

    check_kills(KillScenario(job=sound, setup=set_up, holds=holds))
    assert len(drawn) == 10


def test_an_error_of_the_job_is_none_of_an_end_unless_it_may_be_told() -> None:
    def told_off(store: Store) -> None:
        if store.engine.value(MARK) is not None:
            raise KeyError("it is done already")
        sound(store)

    scenario = KillScenario(job=told_off, setup=fill)
    with pytest.raises(KillFailure, match="given again it does not end: KeyError"):
        check_kills(scenario)
    check_kills(replace(scenario, told=(KeyError,)))


def test_a_job_that_does_not_end_by_itself_is_said_so() -> None:
    def raises(_store: Store) -> None:
        raise RuntimeError

    with pytest.raises(KillFailure, match="though nobody ends it"):
        checked(raises)


def test_the_second_kill_is_found_where_the_first_one_alone_is_harmless() -> None:
    def counts_resumptions(store: Store) -> None:
        """Go wrong when it is resumed for the second time."""
        times = len(store.engine.value(b"resumed") or b"")
        assert times < 2, "resumed twice"
        store.engine.commit(Commit((), (Put(b"resumed", b"x" * (times + 1)),)))
        sound(store)
        store.engine.commit(Commit((), (Delete(b"resumed"),)))

    scenario = KillScenario(job=counts_resumptions, setup=fill)
    with pytest.raises(KillFailure, match="; then killed at step"):
        check_kills(scenario, seconds_each=None)
    check_kills(scenario, seconds_each=0)


def test_half_of_a_sorted_write_is_tried_where_the_engine_may_do_it_by_half() -> None:
    def put_pairs(store: Store) -> None:
        store.engine.put_sorted([b"p1", b"p2"], [b"1", b"2"])

    profile = replace(MEMORY_PROFILE, commit_operations_max=8)
    report = check_kills(KillScenario(job=put_pairs, setup=fill, profile=profile))
    assert "within put_sorted" in report.steps


def test_each_ending_happens_where_it_can() -> None:
    assert [ending for ending in Ending if ending.fits("scan")] == [Ending.KILLED, Ending.INTERRUPTED, Ending.MET]
    assert all(ending.fits("after commit") for ending in Ending)
