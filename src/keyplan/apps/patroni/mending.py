"""What is wrong in the store of a broker is mended where that is safe: what nobody has anything of is removed."""

from collections.abc import Sequence
from contextlib import suppress
from threading import Event
from typing import Any, Final

from keyplan.apps.patroni.bootstraps import HungBootstrap, hung_bootstrap, take_initialize_away
from keyplan.apps.patroni.clusters import Advertised, advertised_addresses
from keyplan.apps.patroni.diagnosis import (
    Fault,
    FaultKind,
    is_ordered_rightly,
    is_reported,
    is_whole,
    registration_fault,
    trace_of,
)
from keyplan.apps.patroni.layout import Broker, NodeKey, OrderKey, RegistrationKey
from keyplan.apps.patroni.leaked_ports import free_leaked_ports
from keyplan.apps.patroni.operations import IN_PROGRESS
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import CorruptionError, IndexNotReadyError
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["MENDABLE", "mend", "mend_all"]

_LASTING_SECONDS: Final = 15.0
"""Why 15: as long as an operation looks at a bootstrap, before it lets it begin again."""
_LOOK_SECONDS: Final = 0.25

MENDABLE = frozenset(
    {
        FaultKind.STALE_REGISTRATION,
        FaultKind.UNRESOLVED_REGISTRATION,
        FaultKind.ORPHAN_NODE,
        FaultKind.STALE_ORDER,
        FaultKind.LOST_PORT,
        FaultKind.LEAKED_PORT,
        FaultKind.HUNG_BOOTSTRAP,
    }
)
"""The kinds that `mend` removes something of."""

_MUST_LAST: Final = frozenset({FaultKind.ORPHAN_NODE, FaultKind.LOST_PORT, FaultKind.HUNG_BOOTSTRAP})
"""Those that rest on what is not there, which may be so for a moment."""


def mend(store: Store, fault: Fault, *, lasting_seconds: float = _LASTING_SECONDS) -> bool:
    """Remove what a fault names, as `mend_all` does; return whether it was removed."""
    return fault in mend_all(store, [fault], lasting_seconds=lasting_seconds)


def mend_all(store: Store, faults: Sequence[Fault], *, lasting_seconds: float = _LASTING_SECONDS) -> set[Fault]:
    """Remove what faults name that are still there and still wrong, one commit each; return those that were removed.

    That nothing of a cluster is there, or that its bootstrap hangs, must be so at every look for `lasting_seconds`, which this
    blocks for, once for all: Patroni says anew within ten seconds what somebody has deleted of a cluster that lives.
    """
    lasting = _lasting(store, [fault for fault in faults if fault.kind in _MUST_LAST], lasting_seconds)
    return {fault for fault in faults if (fault in lasting or fault.kind not in _MUST_LAST) and _mend(store, fault)}


def _mend(store: Store, fault: Fault) -> bool:
    if fault.kind is FaultKind.LEAKED_PORT:
        # Why: which ports are leaked is not known before; the next doctor looks again.
        with suppress(IndexNotReadyError):
            return bool(free_leaked_ports(store, int(fault.subject)))
        return False

    def work(binding: Binding) -> bool:
        broker = Broker(binding)
        if fault.kind in {FaultKind.STALE_REGISTRATION, FaultKind.UNRESOLVED_REGISTRATION}:
            # Why beside the transaction: every member that it reads would be guarded, and heartbeats rewrite them all the time.
            with store.snapshot() as state:
                advertised, is_known = advertised_addresses(Broker(state)), is_whole(Broker(state))
            return is_known and _mend_registration(broker, fault, advertised)
        if fault.kind is FaultKind.LOST_PORT:
            if not broker.allocations.exists(fault.subject) or trace_of(broker, fault.subject):
                return False
            broker.allocations.delete(fault.subject)
            broker.replica_ports.delete(fault.subject, damaged_ok=True)
            return True
        if fault.kind is FaultKind.HUNG_BOOTSTRAP:
            with store.snapshot() as state:
                is_mendable = _is_mendable(hung_bootstrap(Broker(state), fault.subject))
            operation = broker.operations.get(fault.subject)
            if operation is not None and operation.status == IN_PROGRESS:
                return False  # Why: the operation mends it, and knows what it has done already.
            return is_mendable and take_initialize_away(broker, fault.subject, "")
        if fault.kind is FaultKind.ORPHAN_NODE:
            return _mend_node(broker, NodeKey(*fault.subject.split("/", 1)))
        if fault.kind is FaultKind.STALE_ORDER:
            key = OrderKey(*fault.subject.split("/", 1))
            order = broker.orders.get(key)
            if order is None or order.remove or is_ordered_rightly(broker, key, order.instance):
                return False
            broker.orders.delete(key)
            return True
        return False

    try:
        return store.run(work)
    except CorruptionError:
        return False  # Why: what cannot be read is no evidence.


def _is_mendable(hung: HungBootstrap | None) -> bool:
    return hung is not None and not hung.held and not hung.unfinished


def _lasting(store: Store, faults: Sequence[Fault], seconds: float) -> set[Fault]:
    """Return those faults that are, at every look for so long, as they are now."""
    give_up = SYSTEM_CLOCK.monotonic() + seconds
    first = _evidence(store, faults)
    found = {fault: evidence for fault, evidence in first.items() if evidence is not None}
    while found and SYSTEM_CLOCK.monotonic() < give_up:
        Event().wait(_LOOK_SECONDS)
        now = _evidence(store, [*found])
        found = {fault: evidence for fault, evidence in found.items() if now[fault] == evidence}
    return set(found)


def _evidence(store: Store, faults: Sequence[Fault]) -> dict[Fault, object]:
    """Return what speaks for each fault, as of one state; None where nothing does."""
    found: dict[Fault, Any] = dict.fromkeys(faults)
    with store.snapshot() as state:
        broker = Broker(state)
        for fault in faults:
            with suppress(CorruptionError):  # Why: what cannot be read is no evidence.
                found[fault] = _evidence_of(broker, fault)
    return found


def _evidence_of(broker: Broker, fault: Fault) -> object:
    if fault.kind is FaultKind.HUNG_BOOTSTRAP:
        hung = hung_bootstrap(broker, fault.subject)
        return hung if _is_mendable(hung) else None
    if fault.kind is FaultKind.LOST_PORT:
        return None if trace_of(broker, fault.subject) else broker.allocations.get(fault.subject)
    return _cell_of_orphan(broker, NodeKey(*fault.subject.split("/", 1)))


def _mend_registration(broker: Broker, fault: Fault, advertised: Advertised) -> bool:
    image, _, rest = fault.subject.partition("/")
    host, container, port = rest.split(":")
    key = RegistrationKey(image, host, container, int(port))
    address = broker.registrations.get(key)
    if address is None or (registration_fault(broker, key, address, advertised) or (None,))[0] is not fault.kind:
        return False
    broker.registrations.delete(key)
    return True


def _mend_node(broker: Broker, key: NodeKey) -> bool:
    cell = _cell_of_orphan(broker, key)
    if cell is None:
        return False
    broker.orders.delete(OrderKey(cell, key.node))
    broker.nodes.delete(key)
    broker.node_intents.delete(key)
    return True


def _cell_of_orphan(broker: Broker, key: NodeKey) -> str | None:
    """Return the cell of a node that nobody has anything of; None where somebody does."""
    cell = broker.nodes.get(key) or broker.node_intents.get(key)
    if cell is None or trace_of(broker, key.instance, with_nodes=False) or is_reported(broker, cell, key.node):
        return None
    return cell
