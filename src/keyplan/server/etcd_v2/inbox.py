"""Changes that came from elsewhere and are not counted yet: what the follower brings, and the ledger takes.

A commit that writes the State was made by a gateway, which counted its own changes. All other changes of keys that v2 can
see, and ends of directories' leases, wait here for a number.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from threading import Condition
from typing import Final, NamedTuple

from keyplan.engine import SYSTEM_CLOCK, Event, EventKind
from keyplan.errors import CorruptionError, KeyplanError
from keyplan.server.etcd_v2.failures import Code, KeysFailure
from keyplan.server.etcd_v2.paths import path_of
from keyplan.server.etcd_v2.records import (
    DIRECTORIES,
    EVENTS,
    STATE_KEY,
    EventRecord,
    State,
    unpack_event,
    unpack_state,
)
from keyplan.server.logs import LOGGER

__all__ = ["Inbox", "Uncounted", "readable_events"]

_WAIT_SECONDS_MAX: Final = 5.0
"""Why: etcd answers after 5 to 7 s that it could not find out; clients' own limits are about ten."""


class Uncounted(NamedTuple):
    """A change without a number: the one at `position` among those of its revision that v2 can see."""

    revision: int
    position: int
    event: Event


class Inbox:
    """What is known of the store's changes up to the revision `reached`. Used by several threads."""

    def __init__(self, reached: int) -> None:
        self._condition = Condition()
        self._reached = reached
        self._uncounted: list[Uncounted] = []
        self.error: KeyplanError | None = None
        """Why nothing more comes."""

    def add(self, events: Sequence[Event], reached: int) -> tuple[list[EventRecord], bool]:
        """Take in a batch. Return the events that were counted in it, and whether something waits for a number."""
        records: list[EventRecord] = []
        with self._condition:
            for revision, group in groupby(events, attrgetter("revision")):
                changes = list(group)
                state = next((each.entry for each in changes if each.key == STATE_KEY), None)
                if state is not None:
                    with suppress(CorruptionError):  # Why: the next State counts what this one cannot tell.
                        self._drop_counted(unpack_state(state.value))
                    records += readable_events(
                        each.entry.value for each in changes if each.entry and each.key in EVENTS
                    )
                else:
                    visible = [each for each in changes if _is_visible(each)]
                    self._uncounted += [Uncounted(revision, place, each) for place, each in enumerate(visible)]
            self._reached = max(self._reached, reached)
            self._condition.notify_all()
            return records, bool(self._uncounted)

    def _drop_counted(self, state: State) -> None:
        counted = (state.settled + 1, state.position)
        self._uncounted = [each for each in self._uncounted if (each.revision, each.position) >= counted]

    @property
    def uncounted(self) -> int:
        """How many changes wait for a number."""
        with self._condition:
            return len(self._uncounted)

    def fail(self, error: KeyplanError) -> None:
        """Tell everybody who waits that nothing more comes."""
        with self._condition:
            self.error = error
            self._condition.notify_all()

    def is_settled(self, state: State, revision: int) -> bool:
        """Tell whether every change up to `revision` is known and counted."""
        with self._condition:
            return self._reached >= revision and not self._pending(state, revision)

    def pending(self, state: State, revision: int) -> list[Uncounted]:
        """Return what is not counted up to `revision`, when all of it has come. Raises KeysFailure when it does not come."""
        give_up_at = SYSTEM_CLOCK.monotonic() + _WAIT_SECONDS_MAX
        with self._condition:
            while self._reached < revision:
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                if self.error is not None or remaining <= 0:
                    raise KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request timed out", state.index)
                self._condition.wait(remaining)
            return self._pending(state, revision)

    def _pending(self, state: State, revision: int) -> list[Uncounted]:
        counted = (state.settled + 1, state.position)
        return [
            each for each in self._uncounted if counted <= (each.revision, each.position) and each.revision <= revision
        ]


def readable_events(raw_events: Iterable[bytes]) -> list[EventRecord]:
    """Return the events that can be read: one that is damaged is told to nobody, and hides no other."""
    records: list[EventRecord] = []
    for raw in raw_events:
        try:
            records.append(unpack_event(raw))
        except CorruptionError as error:
            LOGGER.error("an event is left out", extra={"facts": {"error": str(error)}})
    return records


def _is_visible(event: Event) -> bool:
    if event.key in DIRECTORIES:
        return event.kind is EventKind.DELETED
    return path_of(event.key) is not None
