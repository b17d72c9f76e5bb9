"""The router: follows leaders, members and ports, and makes every public port lead to its leader or, for reads, its replicas.

A leader is who holds the leader key, once it says by its REST interface that it takes writes: the key changes hands a moment
before PostgreSQL does. Where that interface cannot be asked, the key alone counts. While nobody holds it, who led last is the
leader for as long as it says that it leads on in failsafe mode. A store that cannot be reached changes nothing: ports lead
where they led.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, Final, Protocol

import msgspec

from keyplan.apps.patroni.layout import Broker, MemberKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.records import Member, RouterReport
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.router_checks import PrimaryChecks
from keyplan.apps.patroni.router_failsafe import FailsafeLeaders
from keyplan.apps.patroni.router_routes import (
    Candidate,
    ReplicaRoute,
    Route,
    Seen,
    replica_routes,
    routes,
)
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import CorruptionError, EngineError, InvalidInputError, KeyplanError, LeaseNotFoundError
from keyplan.layout import ChangeKind, Changes
from keyplan.store import Lease, Store

__all__ = ["Router", "Switchboard"]

_POLL_SECONDS: Final = 0.5
_PENDING_POLL_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
_ALLOCATE_AGAIN_SECONDS: Final = 5.0
_LEASE_SECONDS: Final = 15.0
"""How long a router that died counts as alive."""


class Switchboard(Protocol):
    """What carries connections: HAProxy, or this process."""

    def apply(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute] = ()) -> None:
        """Lead each port where its route says; ports for reads to replicas. Raises OSError and InvalidInputError."""
        ...

    def stop(self) -> None:
        """End it, and all connections."""
        ...


class Router:
    """Drives a switchboard by the store. `run` until it is told to stop; the switchboard is the caller's to stop."""

    def __init__(
        self,
        store: Store,
        switchboard: Switchboard,
        *,
        name: str = "",
        by: str = "",
        ports: PortAllocator | None = None,
        last_leaders: Path | None = None,
    ) -> None:
        """`name` is the router's, unique in the store; without one it tells nobody of itself. `by` is what carries.

        `ports` gives clusters a port that nobody ordered here; without it they have none. `last_leaders` is a file that
        tells the next router whom to ask for failsafe mode.
        """
        self._store = store
        self._ports = ports
        self._asked_at: dict[str, float] = {}
        self._broker = Broker(store)
        self._switchboard = switchboard
        self._name = name
        self._report = RouterReport(by=by, gives=str(ports.ports) if ports is not None else "")
        self._reported: RouterReport | None = None
        self._lease: Lease | None = None
        self._allocations: dict[str, int] = {}
        self._leaders: dict[str, str] = {}
        self._members: dict[MemberKey, Member] = {}
        self._replica_ports: dict[str, int] = {}
        self._led: dict[str, str] = {}
        self._watches: list[tuple[Changes[Any, Any], dict[Any, Any]]] = []
        self._confirmed: dict[str, Candidate] = {}
        self._checks = PrimaryChecks()
        self._failsafe = FailsafeLeaders(last_leaders)
        self._pending = 0
        self._applied: tuple[Route, ...] | None = None

    def run(self, stop: Event) -> None:
        """Follow the store until `stop` is set."""
        while not stop.is_set():
            try:
                self.step(_PENDING_POLL_SECONDS if self._pending else _POLL_SECONDS)
            except EngineError as error:
                LOGGER.warning("the store: %s; ports lead where they led", error)
                self.close()
                stop.wait(_RETRY_SECONDS)
            except (OSError, InvalidInputError) as error:
                LOGGER.error("connections cannot be led where they should be: %s", error)
                self._applied = None
                stop.wait(_RETRY_SECONDS)

    def step(self, wait_seconds: float = 0.0) -> None:
        """Learn of changes, waiting for them at most so long, and lead ports accordingly. Raises EngineError, OSError."""
        if not self._watches:
            self._begin()
        else:
            self._learn(wait_seconds)
        self._allocate()
        seen, found = self._failsafe.beside(Seen(self._allocations, self._leaders, self._members, self._replica_ports))
        self._confirm(found)
        wanted = routes(seen, self._confirmed)
        # Why who led last counts while nobody does: it may take writes still, and is no replica before somebody else leads.
        self._led = {name: led for name, led in self._led.items() if name in self._replica_ports} | {**seen.leaders}
        self._switchboard.apply(wanted, replica_routes(seen._replace(leaders=self._led)))
        if wanted != self._applied:
            self._tell(wanted)
            self._applied = wanted
        self._tell_store(wanted)

    def _allocate(self) -> None:
        """Give each cluster that is led and has no port one. Why no failure ends the look: the others are to be led to."""
        if self._ports is None:
            return
        now = SYSTEM_CLOCK.monotonic()
        self._asked_at = {instance: at for instance, at in self._asked_at.items() if instance in self._leaders}
        for instance in sorted(self._leaders.keys() - self._allocations.keys()):
            if now < self._asked_at.get(instance, now):
                continue
            self._asked_at[instance] = now + _ALLOCATE_AGAIN_SECONDS
            try:
                port = self._ports.allocate_to_appeared(instance)
            except (KeyplanError, RefusedError) as error:
                LOGGER.error("cluster %s gets no port: %s", instance, error)
                continue
            if port is not None:
                self._allocations[instance] = port

    def _tell_store(self, wanted: tuple[Route, ...]) -> None:
        """Say how it goes, on a lease, when that has changed. Raises EngineError."""
        if not self._name:
            return
        report = self._report
        report.ports, report.leading = len(wanted), sum(route.leader is not None for route in wanted)
        report.pending, report.failsafe = self._pending, self._failsafe.leaders
        if self._lease is None or self._lease.is_over:
            self._lease, self._reported = self._store.lease(_LEASE_SECONDS), None
        if report != self._reported:
            try:
                self._broker.routers.put(self._name, report, lease=self._lease)
            except LeaseNotFoundError:
                self._lease = None  # Why: this process stood still; the next step says it on another one.
            else:
                self._reported = msgspec.structs.replace(report)

    def leave(self) -> None:
        """Take back what was said of this router, as far as the store can be reached; the end of `run` is before it."""
        if self._lease is not None:
            with suppress(EngineError):
                self._lease.revoke()
            self._lease = None

    def close(self) -> None:
        """End the watches; the next step begins anew."""
        for changes, _ in self._watches:
            changes.close()
        self._watches = []

    def _begin(self) -> None:
        known: tuple[dict[Any, Any], ...] = (self._leaders, self._members, self._allocations, self._replica_ports)
        seen: tuple[dict[Any, Any], ...] = ({}, {}, {}, {})
        followed: tuple[Changes[Any, Any], ...] = (
            self._broker.leaders.follow(),
            self._broker.members.follow(),
            self._broker.allocations.follow(),
            self._broker.replica_ports.follow(),
        )
        # Invariant: what was known stays in use until the lists are whole, or ports would lead nowhere for a moment.
        for changes, records, before in zip(followed, seen, known, strict=True):
            self._watches.append((changes, records))
            while not changes.token:
                _take(changes, records, 0.0, before)
        self._leaders, self._members, self._allocations, self._replica_ports = seen

    def _learn(self, wait_seconds: float) -> None:
        # Why the leaders wait: theirs are the changes that somebody out there waits for.
        for number, (changes, records) in enumerate(self._watches):
            _take(changes, records, wait_seconds if number == 0 else 0.0, records)

    def _confirm(self, found: dict[str, Candidate]) -> None:
        for instance in [*self._confirmed]:
            if found.get(instance) != self._confirmed[instance]:
                # Why even so when only its address changed: sessions with the former place are of no use.
                del self._confirmed[instance]
        unasked = {name: candidate for name, candidate in found.items() if name not in self._confirmed}
        self._confirmed |= {name: candidate for name, candidate in unasked.items() if not candidate.leader.health}
        asked = {name: candidate for name, candidate in unasked.items() if candidate.leader.health}
        confirmed = self._checks.confirmed(asked)
        self._confirmed |= {name: asked[name] for name in confirmed}
        self._pending = len(asked) - len(confirmed)

    def _tell(self, wanted: tuple[Route, ...]) -> None:
        before = {route.instance: route for route in self._applied or ()}
        for route in wanted:
            if before.get(route.instance) != route:
                place = f"{route.leader.host}:{route.leader.port}" if route.leader else "nobody"
                LOGGER.info("port %d of %s leads to %s", route.port, route.instance, place)
                self._report.switches += 1


def _take(changes: Changes[Any, Any], records: dict[Any, Any], wait_seconds: float, known: Mapping[Any, Any]) -> None:
    """Take changes into `records`. Of a record that cannot be read, what was `known` of it stays in use."""
    try:
        for change in changes.poll(wait_seconds):
            if change.kind is ChangeKind.REMOVED or change.new is None:
                records.pop(change.key, None)
            else:
                records[change.key] = change.new
    except CorruptionError as error:
        key = error.facts["key"]
        if key in known:
            records[key] = known[key]
            LOGGER.error("a record cannot be read, and what was known of it stays in use: %s", error)
        else:
            LOGGER.error("a record cannot be read, and nothing is known of it: %s", error)
