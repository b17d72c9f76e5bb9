"""Each check of the confined engine is one that a test asks for: without it, what the test tries gets through."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Area,
    Commit,
    ConfinedEngine,
    Delete,
    DeleteRange,
    Engine,
    KeyAbsent,
    KeyRange,
    MemoryEngine,
    Outside,
    OwnedLeases,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Reach,
    WrappedEngine,
)
from keyplan.engine.confined_commits import FencedCommits
from keyplan.engine.confined_reads import Border, ConfinedSnapshot, ConfinedWatch
from keyplan.errors import AccessDeniedError, HistoryCompactedError, LeaseNotFoundError

FENCE = (b"\x00fence", b"open")
MINE = KeyRange.of_prefix(b"m")
FENCED = KeyRange.of_prefix(b"n")
GRANTED = Reach([Area(MINE, can_write=True), Area(FENCED, can_write=True, fence=FENCE), Area(KeyRange.of_prefix(b"o"))])


def stored() -> Engine:
    inner = MemoryEngine()
    inner.load([FENCE, (b"a", b"theirs"), (b"m1", b"mine"), (b"n1", b"fenced"), (b"o1", b"shown"), (b"z", b"theirs")])
    return inner


def close_fence(inner: Engine) -> None:
    inner.commit(Commit((), (Put(FENCE[0], b"shut"),)))


def confined(inner: Engine, outside: Outside = Outside.REFUSED) -> ConfinedEngine:
    leases = OwnedLeases(inner, "ann", b"\x00leases ")
    return ConfinedEngine(inner, lambda: GRANTED, outside=outside, leases=leases)


def a_key_outside_is_refused() -> None:
    engine = confined(stored())
    with engine.snapshot() as snapshot:
        for read in (engine.value, snapshot.get, snapshot.value, lambda key: snapshot.values([key])):
            with pytest.raises(AccessDeniedError):
                read(b"z")


def a_key_outside_is_absent() -> None:
    engine = confined(stored(), Outside.ABSENT)
    with engine.snapshot() as snapshot:
        assert engine.value(b"z") is None
        assert snapshot.get_many([b"a", b"m1", b"z"])[::2] == [None, None]


def a_range_is_cut() -> None:
    with confined(stored(), Outside.ABSENT).snapshot() as snapshot:
        assert list(snapshot.keys(ALL_KEYS)) == [b"m1", b"n1", b"o1"]
        assert list(snapshot.keys(ALL_KEYS, limit=2, reverse=True)) == [b"o1", b"n1"]
        assert snapshot.count(ALL_KEYS) == 3


def a_range_that_is_not_within_is_refused() -> None:
    with confined(stored()).snapshot() as snapshot:
        for asked in (ALL_KEYS, KeyRange(b"l", b"n"), KeyRange(b"o", b"q")):
            with pytest.raises(AccessDeniedError):
                snapshot.count(asked)
            with pytest.raises(AccessDeniedError):
                snapshot.scan(asked)


def a_closed_fence_closes_reads() -> None:
    inner = stored()
    engine = confined(inner)
    with engine.snapshot() as before:
        close_fence(inner)
        assert before.value(b"n1") == b"fenced"
    with pytest.raises(AccessDeniedError):
        engine.value(b"n1")
    with engine.snapshot() as snapshot:
        for read in (snapshot.get, snapshot.value, lambda _: snapshot.scan(FENCED), lambda _: snapshot.count(FENCED)):
            with pytest.raises(AccessDeniedError):
                read(b"n1")


def a_write_outside_is_refused() -> None:
    inner = stored()
    for outside in Outside:
        engine = confined(inner, outside)
        for write in (Put(b"z", b""), Delete(b"z"), DeleteRange(KeyRange(b"m", b"zz")), Put(b"o1", b""), Delete(b"o1")):
            with pytest.raises(AccessDeniedError):
                engine.commit(Commit((), (Put(b"m2", b""), write)))
    assert inner.value(b"m2") is None


def a_guard_outside_is_refused() -> None:
    for outside in Outside:
        engine = confined(stored(), outside)
        for guard in (KeyAbsent(b"y"), RangeEmpty(KeyRange(b"x", b"y")), RangeEmpty(KeyRange(b"m2", b"zz"))):
            with pytest.raises(AccessDeniedError):
                engine.commit(Commit((guard,), (Put(b"m2", b""),)))


def a_key_beside_its_range_is_refused() -> None:
    with pytest.raises(AccessDeniedError):
        confined(stored()).commit(Commit((RangeUnchanged(KeyRange(b"m", b"n"), 9, (b"m1", b"z")),), ()))


def a_closed_fence_closes_writes() -> None:
    inner = stored()
    engine = confined(inner)
    engine.commit(Commit((), (Put(b"n2", b""),)))
    close_fence(inner)
    for commit in (Commit((), (Put(b"n3", b""),)), Commit((KeyAbsent(b"n3"),), (Put(b"m2", b""),))):
        with pytest.raises(AccessDeniedError):
            engine.commit(commit)
    assert inner.value(b"n3") is None


class _ShutsBefore(WrappedEngine):
    """Closes the fence when a commit is on its way: between the look and the engine."""

    def commit(self, commit: Commit) -> int:
        close_fence(self.inner)
        return self.inner.commit(commit)


def a_fence_that_closes_on_the_way_stops_the_commit() -> None:
    inner = stored()
    with pytest.raises(AccessDeniedError) as caught:
        confined(_ShutsBefore(inner)).commit(Commit((), (Put(b"n2", b""),)))
    assert caught.value.__context__ is None
    assert inner.value(b"n2") is None


def another_s_lease_is_not_found() -> None:
    inner = stored()
    theirs = inner.lease(600).id
    engine = confined(inner)
    with pytest.raises(LeaseNotFoundError):
        engine.commit(Commit((), (Put(b"m2", b"", theirs),)))
    with pytest.raises(LeaseNotFoundError):
        engine.lease(600, resume=theirs)


def a_watch_shows_the_reach_alone() -> None:
    inner = stored()
    watch = confined(inner, Outside.ABSENT).watch(ALL_KEYS, after=1)
    inner.commit(Commit((), (Put(b"m1", b""), Put(b"na", b""), Put(b"p", b""), Put(b"l", b""))))
    assert [event.key for event in watch.poll(0)] == [b"m1", b"na"]
    with pytest.raises(AccessDeniedError):
        confined(inner).watch(ALL_KEYS, after=1)


def a_watch_ends_with_the_fence() -> None:
    inner = stored()
    watch = confined(inner).watch(FENCED, after=1)
    inner.commit(Commit((), (Put(b"n1", b""), Put(FENCE[0], b"shut"))))
    for _ in range(2):
        with pytest.raises(AccessDeniedError):
            watch.poll(0)


def a_watch_does_not_guess() -> None:
    inner = stored()
    watch = confined(inner).watch(FENCED, after=1)
    close_fence(inner)
    inner.commit(Commit((), (Put(b"n1", b"of another"),)))
    inner.commit(Commit((), (Put(*FENCE),)))
    for _ in range(2):
        with pytest.raises(HistoryCompactedError):
            watch.poll(0)


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        a_key_outside_is_refused,
        a_key_outside_is_absent,
        a_range_is_cut,
        a_range_that_is_not_within_is_refused,
        a_closed_fence_closes_reads,
        a_write_outside_is_refused,
        a_guard_outside_is_refused,
        a_key_beside_its_range_is_refused,
        a_closed_fence_closes_writes,
        a_fence_that_closes_on_the_way_stops_the_commit,
        another_s_lease_is_not_found,
        a_watch_shows_the_reach_alone,
        a_watch_ends_with_the_fence,
        a_watch_does_not_guess,
    )
}

Patch = pytest.MonkeyPatch
EVERYTHING = Reach.everything()


def _open_reach(patch: Patch) -> None:
    patch.setattr(Border, "reaches", lambda _: iter((EVERYTHING, EVERYTHING)))


MUTANTS: dict[str, tuple[Callable[[Patch], None], tuple[str, ...]]] = {
    "reads of many keys ask no reach": (_open_reach, ("a_key_outside_is_refused", "a_key_outside_is_absent")),
    "fences of reads always hold": (
        lambda patch: patch.setattr(ConfinedSnapshot, "_is_open", lambda *_: True),
        ("a_closed_fence_closes_reads",),
    ),
    "a range is not cut": (
        lambda patch: patch.setattr(ConfinedSnapshot, "readable", lambda _, asked: [asked]),
        ("a_range_is_cut", "a_range_that_is_not_within_is_refused"),
    ),
    "a range is cut where it should be refused": (
        lambda patch: patch.setattr(ConfinedSnapshot, "_in_reach", lambda _, reach, asked: list(reach.within(asked))),
        ("a_range_that_is_not_within_is_refused",),
    ),
    "commits touch nothing": (
        lambda patch: patch.setattr(FencedCommits, "_touched", lambda *_: {}),
        ("a_write_outside_is_refused", "a_guard_outside_is_refused", "a_closed_fence_closes_writes"),
    ),
    "keys beside a guard's range pass": (
        lambda patch: patch.setattr(FencedCommits, "_refuse_keys_beside_the_range", lambda *_: None),
        ("a_key_beside_its_range_is_refused",),
    ),
    "a commit is sent without the fences": (
        lambda patch: patch.setattr(
            FencedCommits, "_send", lambda commits, commit, guards, epoch: commits._inner.commit(commit)
        ),
        ("a_fence_that_closes_on_the_way_stops_the_commit",),
    ),
    "leases are anybody's": (
        lambda patch: patch.setattr(FencedCommits, "_check_leases", lambda *_: None),
        ("another_s_lease_is_not_found",),
    ),
    "a watch is not judged": (
        lambda patch: patch.setattr(ConfinedWatch, "_is_judged", lambda _: True),
        ("a_watch_ends_with_the_fence", "a_watch_does_not_guess"),
    ),
    "a watch believes the fence of today": (
        lambda patch: patch.setattr(ConfinedWatch, "_refuse_doubtful", lambda *_: None),
        ("a_watch_does_not_guess",),
    ),
}


def fails(case: str) -> bool:
    with suppress(Exception, pytest.fail.Exception):
        CASES[case]()
        return False
    return True


@pytest.mark.parametrize("case", CASES)
def test_the_confined_engine_keeps_to_its_reach(case: str) -> None:
    CASES[case]()


@pytest.mark.usefixtures("brief_failures")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_check_that_is_taken_out_is_missed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, cases = MUTANTS[mutant]
    plant(monkeypatch)
    assert all(map(fails, cases)), [case for case in cases if not fails(case)]
