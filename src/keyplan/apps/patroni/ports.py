"""Public ports: one for each instance, handed out once, in the commit of whatever else begins with it.

The document's `/routing/nextport` and `/routing/allocation/{instance}`, with an index by port as the guard against two of one.
"""

from itertools import chain
from typing import Final, NamedTuple

from keyplan.apps.patroni.event_records import EventKind
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.leaked_ports import free_leaked_ports
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.refusals import NoPortsLeftError, RefusedError
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import CommitConflictError, InvalidInputError
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["PORTS_DEFAULT", "PortAllocator", "PortRange", "port_range", "reads_of"]


class PortRange(NamedTuple):
    """The ports that may be handed out, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


PORTS_DEFAULT: Final = PortRange(33000, 33999)


def port_range(text: str) -> PortRange:
    """Read a range, as in 33000-33999. Raises InvalidInputError."""
    first, dash, last = text.partition("-")
    numbers = [int(part) if part.isascii() and part.isdigit() and len(part) <= 5 else 0 for part in (first, last)]
    if not dash or not 1 <= numbers[0] <= numbers[1] <= 65535:
        raise InvalidInputError(source="ports", problem="a range of ports from 1 to 65535, as in 33000-33999")
    return PortRange(*numbers)


def reads_of(text: str, ports: PortRange) -> int:
    """Read the first of the ports for reads: there are as many as ports, in the same order. Raises InvalidInputError."""
    first = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    last = first + ports.last - ports.first
    if first < 1 or last > 65535 or (first <= ports.last and last >= ports.first):
        count = ports.last - ports.first + 1
        problem = f"the first of {count} ports from 1 to 65535, none of them from {ports.first} to {ports.last}"
        raise InvalidInputError(source="replica-ports", problem=problem)
    return first


class PortAllocator:
    """Hands out the ports of a range; any number of them, in brokers and routers, may work on one store."""

    def __init__(
        self,
        store: Store,
        ports: PortRange = PORTS_DEFAULT,
        *,
        reads_first: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`reads_first` is the first of the ports that lead to replicas, one for each port of the range, or None."""
        self._store = store
        self._ports = ports
        self._reads_first = reads_first
        self._events = EventLog(store, clock)

    @property
    def ports(self) -> PortRange:
        """The ports that it hands out."""
        return self._ports

    def allocate(self, instance: str) -> int:
        """Return the instance's port: the one that it has, or the next one. One commit. Raises NoPortsLeftError."""
        return self._store.run(lambda binding: self.allocate_in(binding, instance))

    def allocate_to_appeared(self, instance: str) -> int | None:
        """Give a cluster that nobody ordered here a port, as the document's router does when one appears below `/service`.

        Return its port; None where nobody leads it, or where it is what is left of an instance that was deleted. One commit,
        guarded by the leader key that was seen. An instance whose allocation was lost is given the port that its bindings have.
        Raises NoPortsLeftError, and RefusedError where somebody else has that one.
        """

        def work(binding: Binding) -> int | None:
            broker = Broker(binding)
            operation = broker.operations.get(instance)
            # Why its operation: a node of a cell that was away may lead for the moment until the cell hears that it is to go.
            if not broker.leaders.exists(instance) or (operation is not None and operation.kind == "deprovision"):
                return broker.allocations.get(instance)
            state = broker.instances.get(instance)
            return self.allocate_in(binding, instance, state.allocated_port if state is not None else None)

        return self._store.run(work)

    def allocate_in(self, binding: Binding, instance: str, wanted: int | None = None) -> int:
        """Do the same as a part of a transaction, which `store.run` repeats when another allocator was faster.

        `wanted` is the port that it had before. Raises RefusedError (409) when somebody else has that one.
        """
        broker = Broker(binding)
        allocated = broker.allocations.get(instance)
        if allocated is not None:
            return allocated
        following = broker.next_port.peek()
        port = self._proposed(following) if wanted is None else wanted
        if wanted is not None and broker.instance_by_port.key_of(wanted) is not None:
            raise RefusedError(409, f"port {wanted}, which the instance had, is another's now")
        if broker.instance_by_port.key_of(port) is not None:
            # Why: the proposal was read beside the transaction, whose state is older: that is a race, lost and run again.
            raise CommitConflictError(failed=())
        broker.allocations.insert(instance, port)
        self._events.note(broker, instance, EventKind.PORT_GIVEN, f"port {port}")
        if port >= following:
            broker.next_port.advance_to(port + 1)
        return port

    def allocate_reads_in(self, binding: Binding, instance: str, port: int) -> None:
        """Give an instance that has this port the one for reads that belongs to it, where there are such ports."""
        broker = Broker(binding)
        if self._reads_first is not None and self._ports.first <= port <= self._ports.last:
            broker.replica_ports.put(instance, self._reads_first + port - self._ports.first)

    def _proposed(self, following: int) -> int:
        """Return the port to try: `following` as a rule; behind all others where the counter is missing or behind.

        Read beside the transaction, because a list of all allocations would be a guard on each of them. Only the port itself
        has to be free, and that the commit is guarded by.
        """
        first, last = self._ports
        with self._store.snapshot() as state:
            broker = Broker(state)
            there = readable(broker.allocations.rows())
            allocated: set[int] = {port for _, port in there if first <= port <= last}

            def is_free(port: int) -> bool:
                # Why both: a router of the document's time writes and deletes allocations without their index.
                return port not in allocated and broker.instance_by_port.key_of(port) is None

            if first < following <= last and is_free(following):
                return following
            behind_all: int = max(first, following, *(number + 1 for number in allocated))
            candidates = chain(range(behind_all, last + 1), range(first, min(behind_all, last + 1)))
            free = next(filter(is_free, candidates), None)
        if free is not None:
            return free
        if free_leaked_ports(self._store):
            return self._proposed(following)
        raise NoPortsLeftError(source="ports", problem=f"no ports left: all of {first} to {last} are allocated")
