"""The messages of the routes that wait: simulated time, changes of the store, traces."""

import msgspec

from keyplan.apps.cloudchamber.stepper import StepperPolicy
from keyplan.protobuf import Message

__all__ = [
    "LogAnswer",
    "LogPolicy",
    "StepperStatus",
    "StoreChange",
    "Ticks",
    "Trace",
    "TraceEntry",
    "WatchAnswer",
]


class Ticks(Message, frozen=True):
    """A moment of simulated time."""

    ticks: int = 0


class StepperStatus(Message, frozen=True):
    """How simulated time passes: by hand, or one tick each `measuredDelay`; and how many clients wait for a tick."""

    policy: StepperPolicy = StepperPolicy.INVALID
    measured_delay: str = ""
    now: int = 0
    waiter_count: int = 0
    epoch: int = 0


class StoreChange(Message, frozen=True):
    """What became of one record in one commit: created, updated or deleted. `key` is the record's, below the name space."""

    kind: str = ""
    key: str = ""
    revision: int = 0
    old_revision: int = 0
    new_revision: int = 0


class WatchAnswer(Message, frozen=True):
    """What was waited for, or that it was waited in vain. `revision` is what to ask for next, where changes were asked for."""

    expired: bool = False
    status_response: StepperStatus | None = None
    changes: list[StoreChange] = msgspec.field(default_factory=list)
    revision: int = 0


class Trace(Message, frozen=True):
    """A request that was answered: its method and route, never what was sent. `user` is told to who manages accounts."""

    name: str = ""
    started_at: str = ""
    milliseconds: float = 0.0
    status: int = 0
    user: str = ""


class TraceEntry(Message, frozen=True):
    """A trace and its number; the next trace has the next number."""

    id: int = 0
    entry: Trace | None = None


class LogAnswer(Message, frozen=True):
    """Traces in order. `missed`: some before the first were asked for and are gone; `lastId` is what to ask for next."""

    last_id: int = 0
    missed: bool = False
    entries: list[TraceEntry] = msgspec.field(default_factory=list)


class LogPolicy(Message, frozen=True):
    """How many traces are kept, and the number of the first of them."""

    max_entries_held: int = 0
    first_id: int = 0
