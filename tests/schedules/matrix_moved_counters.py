"""The lines of counters that get another key: no number is handed out twice, whoever draws one beside whatever run."""

from collections.abc import Callable, Iterator
from functools import partial

from keyplan.errors import MigrationRefusedError
from keyplan.jobs import UNPACED
from keyplan.maintenance import MigrationPlan, check, clean_up_migration, migrate, plan_migration, roll_back_migration
from keyplan.store import Store
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, Scenario, actor
from tests.maintenance.goods import Numbers, Tickets
from tests.schedules.lines import Line, line_name
from tests.schedules.migrating import NO_WAIT

__all__ = ["moved_counters"]

Act = Callable[[Store], object]


def _plan(store: Store) -> MigrationPlan:
    renames = {"tickets": "numbers"}
    return plan_migration(store.engine, Tickets.bound(), Numbers.bound(), renames=renames)


ACTS: dict[str, Act] = {
    "switch": lambda store: migrate(store, _plan(store), is_switched=True, backoff=NO_WAIT, pace=UNPACED).is_settled,
    "clean up": lambda store: clean_up_migration(store, _plan(store), backoff=NO_WAIT, pace=UNPACED).is_cleaned,
    "roll back": lambda store: roll_back_migration(store, _plan(store), backoff=NO_WAIT, pace=UNPACED).is_rolled_back,
    "old draw": lambda store: Tickets(store).tickets.next(),
    "new draw": lambda store: Numbers(store).numbers.next(),
}


def _begun(state: str, store: Store) -> None:
    Tickets(store).tickets.next()
    if state == "settled":
        ACTS["switch"](store)
        Numbers(store).numbers.next()


def _no_number_comes_twice(outcome: Outcome) -> None:
    """The next number is none that was handed out; and so it is at the end of the way, forward or back."""
    store = outcome.store
    drawn = [answer for name, answer in outcome.answers.items() if "draw" in name]
    assert len(set(drawn)) == len(drawn), f"twice: {drawn}"
    if outcome.answers.get("roll back"):
        following = Tickets(store).tickets.next()
    else:
        _ended(store)
        following = Numbers(store).numbers.next()
        assert list(check(store, Numbers(store))) == [], "something is left of the old layout"
    assert all(following > number for number in drawn), f"back: {drawn} were handed out, and now {following}"


def _ended(store: Store) -> None:
    try:
        ACTS["switch"](store)
    except MigrationRefusedError:
        ACTS["roll back"](store)
        ACTS["switch"](store)
    assert ACTS["clean up"](store), "the clean-up does not end"


def _line(state: str, names: tuple[str, ...], faults: str = "") -> Scenario:
    return Scenario(
        *[actor(ACTS[name], name) for name in names],
        setup=partial(_begun, state),
        layouts=[Tickets],
        invariants=[_no_number_comes_twice],
        only_raises=(*ACTOR_ERRORS, MigrationRefusedError),
        faults={names[0]: faults} if faults else "",
    )


def moved_counters() -> Iterator[Line]:
    """Who draws numbers beside a run; and runs that break off, beside who draws."""
    beside = {
        "fresh": [("switch", "old draw")],
        "settled": [
            ("switch", "new draw"),
            ("clean up", "new draw"),
            ("roll back", "new draw"),
        ],
    }
    for state, pairs in beside.items():
        for names in pairs:
            yield Line(f"{state}: {line_name(*names)}", partial(_line, state, names))
            yield Line(f"{state}: {line_name(*names)}, broken", partial(_line, state, names, "cn"), is_long=True)
