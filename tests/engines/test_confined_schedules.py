"""A right that is withdrawn between any two calls: nothing is shown or written that the state does not allow."""

from collections.abc import Callable

import pytest

from keyplan import Store
from keyplan.engine import Area, Commit, ConfinedEngine, KeyRange, Outside, Put, Reach
from keyplan.errors import AccessDeniedError
from keyplan.testing.schedules import Outcome, Scenario, actor, check_schedules

FENCE = (b"\x00fence", b"open")
OWN = KeyRange.of_prefix(b"n")
REACH = Reach([Area(OWN, can_write=True, fence=FENCE)])
DENIED = "denied"


def begin(store: Store) -> None:
    store.engine.commit(Commit((), (Put(*FENCE), Put(b"n1", b"own"))))


def withdraw(store: Store) -> None:
    store.engine.commit(Commit((), (Put(FENCE[0], b"shut"),)))
    store.engine.commit(Commit((), (Put(b"n1", b"another's"), Put(b"n2", b"another's"))))


def a_get(engine: ConfinedEngine) -> object:
    return engine.value(b"n1")


def gets_of_a_snapshot(engine: ConfinedEngine) -> object:
    with engine.snapshot() as snapshot:
        return snapshot.value(b"n1"), snapshot.get_many([b"n1", b"n2"]), snapshot.get(b"n1")


def a_list(engine: ConfinedEngine) -> object:
    with engine.snapshot() as snapshot:
        return list(snapshot.pairs(OWN)), snapshot.count(OWN)


def a_commit(engine: ConfinedEngine) -> object:
    return engine.commit(Commit((), (Put(b"n1", b"late"),)))


def by_the_caller(work: Callable[[ConfinedEngine], object]) -> Callable[[Store], object]:
    def attempt(store: Store) -> object:
        engine = ConfinedEngine(store.engine, lambda: REACH, outside=Outside.REFUSED, closes_inner=False)
        try:
            return work(engine)
        except AccessDeniedError:
            return DENIED

    return attempt


def nothing_of_another_is_shown_or_overwritten(outcome: Outcome) -> None:
    assert "another's" not in str(outcome.answers["ann"])
    assert outcome.store.engine.value(b"n1") == b"another's"


@pytest.mark.parametrize("work", [a_get, gets_of_a_snapshot, a_list, a_commit])
def test_a_right_that_is_withdrawn_meanwhile(work: Callable[[ConfinedEngine], object]) -> None:
    check_schedules(
        Scenario(
            actor(by_the_caller(work), "ann", answers=True),
            actor(withdraw, "admin"),
            setup=begin,
            invariants=[nothing_of_another_is_shown_or_overwritten],
        ),
        complete=True,
    )
