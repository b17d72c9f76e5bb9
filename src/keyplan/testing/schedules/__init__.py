"""Interleavings of store operations, explored: actors in every order of their engine calls, judged after each run.

    check_schedules(Scenario(actor(reserve), actor(reserve, "again"), setup=one_apple, layouts=[Shop]), complete=True)

What parks and what it touches: parking.py, footprint.py. How orders are searched: traces.py. docs/guide/schedules.md begins.
"""

from keyplan.testing.schedules.actors import actor_waits, compacts, passes, renews, restarts
from keyplan.testing.schedules.batons import BatonKind
from keyplan.testing.schedules.checking import ScheduleFailure, check_schedules, explore, replay, schedule_by
from keyplan.testing.schedules.exploration import Exploration, Failure
from keyplan.testing.schedules.faults import Fault
from keyplan.testing.schedules.invariants import (
    acknowledged,
    as_in_some_order,
    explained_by,
    healthy,
    never,
    settles,
    stays,
    watched,
)
from keyplan.testing.schedules.judging import DeadlockError, NotDeterministicError
from keyplan.testing.schedules.outcome import Outcome
from keyplan.testing.schedules.parking import ParkingEngine
from keyplan.testing.schedules.running import Acknowledged
from keyplan.testing.schedules.scenario import ACTOR_ERRORS, Actor, Invariant, Scenario, actor
from keyplan.testing.schedules.strategies import Exhaustive, Pct, Portfolio, Preemptions, Strategy, Walk
from keyplan.testing.schedules.strings import Schedule

__all__ = [
    "ACTOR_ERRORS",
    "Acknowledged",
    "Actor",
    "BatonKind",
    "DeadlockError",
    "Exhaustive",
    "Exploration",
    "Failure",
    "Fault",
    "Invariant",
    "NotDeterministicError",
    "Outcome",
    "ParkingEngine",
    "Pct",
    "Portfolio",
    "Preemptions",
    "Scenario",
    "Schedule",
    "ScheduleFailure",
    "Strategy",
    "Walk",
    "acknowledged",
    "actor",
    "actor_waits",
    "as_in_some_order",
    "check_schedules",
    "compacts",
    "explained_by",
    "explore",
    "healthy",
    "never",
    "passes",
    "renews",
    "replay",
    "restarts",
    "schedule_by",
    "settles",
    "stays",
    "watched",
]
