"""Events of clusters, written in the commit of what they tell, and bounded in number for each cluster."""

import secrets
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from typing import Final, NamedTuple

from keyplan.apps.patroni.event_records import Event, EventKind
from keyplan.apps.patroni.layout import Broker, EventKey
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.records import Operation
from keyplan.engine import Clock
from keyplan.store import Store

__all__ = ["EVENTS_KEPT", "EventLog", "NotedEvent", "forget_events", "newest_events"]

EVENTS_KEPT: Final = 100
"""Of each cluster, so that one in trouble takes no place of another. Why so few: at its end they are deleted in one commit."""
_DELETED_AT_ONCE: Final = 4
"""Why more than one: two writers that note something at the same moment may each leave one too many."""
_TEXT_CHARACTERS_MAX: Final = 500
_ID_BYTES: Final = 4
_NANOSECONDS: Final = 1_000_000_000
_MOMENT_NANOSECONDS: Final = 1_000_000
"""Why no longer: a clock that was set back is right from then on."""


class NotedEvent(NamedTuple):
    """An event with its key."""

    key: EventKey
    event: Event

    @property
    def seconds(self) -> float:
        """When it was noted, in seconds of Unix time."""
        return self.key.at / _NANOSECONDS


class EventLog:
    """Writes events as a part of transactions that `store.run` runs. An event that cannot be read hinders nobody."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted_at = 0

    def note(
        self, broker: Broker, cluster: str, kind: EventKind, text: str, *, member: str = "", cause: str = ""
    ) -> None:
        """Write an event, and delete the cluster's oldest beyond `EVENTS_KEPT`."""
        key = EventKey(cluster, self._now(), secrets.token_hex(_ID_BYTES))
        broker.events.insert(key, Event(kind=kind, member=member, text=text[:_TEXT_CHARACTERS_MAX], cause=cause))
        # Why beside the transaction: the list would be a guard on each of them, and any two writers would race.
        with self._store.snapshot() as state:
            there = list(Broker(state).events.keys(cluster, limit=EVENTS_KEPT + _DELETED_AT_ONCE, reverse=True))
        for old in there[EVENTS_KEPT - 1 :]:
            broker.events.delete(old, damaged_ok=True)

    def _now(self) -> int:
        """Return the time, a little later for what is noted at one moment, so that it is listed in its order."""
        now = round(self._clock.wall() * _NANOSECONDS)
        if 0 <= self._noted_at - now < _MOMENT_NANOSECONDS:
            now = self._noted_at + 1
        self._noted_at = now
        return now

    def begun(self, broker: Broker, instance: str, operation: Operation) -> None:
        """Note that an operation was begun."""
        count = len(operation.steps)
        text = f"{operation.kind}: {count} step{'s' * (count != 1)}"
        self.note(broker, instance, EventKind.OPERATION_BEGUN, text, cause=operation.id)

    def ended(self, broker: Broker, instance: str, operation: Operation, *, is_success: bool) -> None:
        """Note that an operation has ended, and how."""
        kind = EventKind.OPERATION_ENDED if is_success else EventKind.OPERATION_FAILED
        self.note(broker, instance, kind, f"{operation.kind}: {operation.message}", cause=operation.id)


def newest_events(broker: Broker, cluster: str = "", *, count: int) -> list[NotedEvent]:
    """Return the newest events of a cluster, or of all, oldest first. What cannot be read is passed over, and logged."""
    rows = broker.events.rows(cluster, reverse=True) if cluster else broker.events.rows()
    found: Iterator[NotedEvent] = (NotedEvent(*row) for row in readable(rows))
    if cluster:
        return list(islice(found, count))[::-1]
    return nlargest(count, found, key=lambda noted: (noted.key.at, noted.key))[::-1]


def forget_events(store: Store, before: float) -> list[str]:
    """Delete the events of clusters that are gone, whose newest is older than `before`; return their names.

    Gone is a cluster of which there is no instance, no operation, no member and no port. What else was noted of it goes, too.
    """
    with store.snapshot() as state:
        broker = Broker(state)
        # Trap: a member's record goes with its lease, and is not there while a cluster is stopped; its configuration is.
        there = {*broker.instances.keys(), *broker.operations.keys(), *broker.allocations.keys()}  # tables
        there |= {*broker.configurations.keys(), *(key.cluster for key in broker.members.keys())}  # noqa: SIM118
        newest: dict[str, int] = {}
        for key in broker.events.keys():  # noqa: SIM118  # a table
            if key.cluster not in there:
                newest[key.cluster] = max(key.at, newest.get(key.cluster, 0))
    old = [cluster for cluster, at in newest.items() if at < before * _NANOSECONDS]
    for cluster in old:
        store.run(lambda binding, cluster=cluster: _forget(store, Broker(binding), cluster))  # type: ignore[misc]
    return old


def _forget(store: Store, broker: Broker, cluster: str) -> None:
    with store.snapshot() as state:
        keys = list(Broker(state).events.keys(cluster, limit=EVENTS_KEPT))
    for key in keys:
        broker.events.delete(key, damaged_ok=True)
    broker.seen_clusters.delete(cluster, damaged_ok=True)
