"""Operations on instances as the store records them: how each begins, in one commit; what it is made of; how it ends.

Nothing is carried out here: broker_work.py does that, in whichever broker holds the claim.
"""

import secrets
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final
from uuid import uuid4

from keyplan.apps.patroni.backups.records import new_archive
from keyplan.apps.patroni.catalog import Plan
from keyplan.apps.patroni.cluster_login import new_store_credentials
from keyplan.apps.patroni.clusters import cell_loads, outside_nodes, staying_outside
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import Broker, MemberKey
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.records import Credentials, InstanceState, Operation, OperationInfo, Step
from keyplan.apps.patroni.refusals import CONCURRENCY, RefusedError
from keyplan.apps.patroni.scheduling import available_cells, too_few_cells
from keyplan.apps.patroni.site_callbacks import CallbackFailedError, ClusterData, SiteCallbacks
from keyplan.codec import Secret
from keyplan.engine import Clock
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = [
    "FAILED",
    "IN_PROGRESS",
    "SUCCESS",
    "Beginnings",
    "Wanted",
    "begin_planned",
    "is_usable_after",
    "new_operation",
    "note_progress",
    "operation_on",
    "refuse_under_way",
    "refuse_unusable",
    "write_begun",
]

IN_PROGRESS: Final = "in-progress"
SUCCESS: Final = "success"
FAILED: Final = "failed"
_PASSWORD_BYTES: Final = 18


class Wanted:
    """What an instance is to be: its owner, its plan and the parameters that it was asked for with."""

    def __init__(
        self,
        *,
        service_id: str,
        plan: Plan,
        organization_guid: str = "",
        space_guid: str = "",
        name: str = "",
        parameters: dict[str, Any] | None = None,
    ) -> None:
        self.service_id = service_id
        self.plan = plan
        self.organization_guid = organization_guid
        self.space_guid = space_guid
        self.name = name
        self.parameters = parameters or {}
        self.node_count: int = self.parameters.get("node-count") or plan.node_count
        self.cells: list[str] = self.parameters.get("cells") or []
        self.clone_from: str = self.parameters.get("clone-from") or ""

    def is_that_of(self, state: InstanceState) -> bool:
        """True when a stored instance is what is asked for here."""
        return (
            self.service_id == state.service_id
            and self.plan.id == state.plan_id
            and self.organization_guid == state.organization_guid
            and self.space_guid == state.space_guid
            and self.parameters == state.parameters
        )


class Beginnings:
    """Begins operations: each is one commit, after which any broker goes on with it. Raises RefusedError, nothing written.

    With `gives_logins` a new cluster has a token for its store. Why not always: a server that knows no clusters may refuse it.
    """

    def __init__(
        self,
        store: Store,
        ports: PortAllocator,
        clock: Clock,
        *,
        may_share_cells: bool = False,
        gives_logins: bool = False,
        callbacks: SiteCallbacks | None = None,
    ) -> None:
        self._store = store
        self._gives_logins = gives_logins
        self._callbacks = callbacks
        self._ports = ports
        self._clock = clock
        self._events = EventLog(store, clock)
        self._may_share_cells = may_share_cells
        # Why: every provision writes the next port; those of one process need not race each other for it.
        self._turn = Lock()

    def provision(self, instance: str, wanted: Wanted, *, may_wait: bool) -> tuple[Operation, bool]:
        """Begin to make an instance: state, users, port and operation. Return the operation, and whether it is complete.

        Asked again for the same, nothing is written. `may_wait` is `accepts_incomplete`. NoPortsLeftError when there is none.
        """
        source = self._source(instance, wanted)

        def work(binding: Binding) -> tuple[Operation, bool]:
            broker = Broker(binding)
            state, operation = broker.instances.get(instance), broker.operations.get(instance)
            if state is not None:
                return self._provisioned_before(wanted, state, operation, may_wait=may_wait)
            refuse_under_way(operation)
            refuse_without_waiting(may_wait=may_wait)
            self._refuse_few_cells(wanted.node_count, wanted.cells, used=())
            steps = steps_of_provision(wanted.node_count, has_callbacks=self._callbacks is not None)
            if source is not None:
                steps.insert(0, Step(kind="copy", node=source.instance_id))
            if wanted.plan.backups is not None:
                steps.append(Step(kind="back_up", target="full"))
            begun = new_operation(self._clock, "provision", steps, wanted.parameters)
            begun.plan_id, begun.node_count, begun.cells = wanted.plan.id, wanted.node_count, wanted.cells
            port = self._ports.allocate_in(binding, instance)
            self._ports.allocate_reads_in(binding, instance, port)
            state = self._new_state(instance, wanted, port)
            self._take_over(state, source)
            write_begun(broker, instance, state, begun, self._events)
            return begun, False

        with self._turn:
            return self._store.run(work)

    def recreate(self, instance: str, data: ClusterData, plan: Plan) -> Operation:
        """Begin to make an instance that was lost again, from its backups, with its users and its port."""

        def work(binding: Binding) -> Operation:
            broker = Broker(binding)
            operation = broker.operations.get(instance)
            if broker.instances.exists(instance) or (operation is not None and operation.status == IN_PROGRESS):
                raise RefusedError(409, "there is an instance of this id")
            self._refuse_few_cells(plan.node_count, [], used=())
            wanted = Wanted(
                service_id=data.service_id,
                plan=plan,
                organization_guid=data.organization_guid,
                space_guid=data.space_guid,
                name=data.service_instance_name,
            )
            begun = new_operation(self._clock, "provision", steps_of_provision(plan.node_count, has_callbacks=True), {})
            begun.plan_id, begun.node_count = plan.id, plan.node_count
            port = self._ports.allocate_in(binding, instance, data.allocated_port)
            self._ports.allocate_reads_in(binding, instance, port)
            state = self._new_state(instance, wanted, port)
            self._take_over(state, data)
            write_begun(broker, instance, state, begun, self._events)
            return begun

        with self._turn:
            return self._store.run(work)

    def _source(self, instance: str, wanted: Wanted) -> ClusterData | None:
        """Return the instance that a new one is to be a clone of. Raises RefusedError (400) when there is none."""
        if not wanted.clone_from:
            return None
        if self._callbacks is None:
            raise RefusedError(400, "clone-from needs callbacks for backups, which this broker has none of")
        if Broker(self._store).instances.exists(instance):
            return None  # Why: it is asked for again, and its source may be gone by now.
        try:
            found = self._callbacks.find(wanted.space_guid, wanted.clone_from)
        except CallbackFailedError as error:
            raise RefusedError(500, str(error)) from error
        if found is None or found.space_guid != wanted.space_guid:
            raise RefusedError(400, "clone-from: there is no instance of this name in the space")
        return found

    def _take_over(self, state: InstanceState, source: ClusterData | None) -> None:
        """Give a new instance the users of the one that it is made from: its database knows no others."""
        if source is not None and self._callbacks is not None:
            state.superuser_credentials = source.superuser_credentials
            state.admin_credentials = source.admin_credentials
            state.replication_credentials = source.replication_credentials
            state.restore = self._callbacks.place(state.instance_id)

    def _provisioned_before(
        self, wanted: Wanted, state: InstanceState, operation: Operation | None, *, may_wait: bool
    ) -> tuple[Operation, bool]:
        if not wanted.is_that_of(state):
            raise RefusedError(409, "there is an instance of this id with other attributes")
        if operation is None:
            raise RefusedError(409, "the instance has no record of how it was made")
        if operation.kind == "deprovision":
            raise RefusedError(422, "the instance is being deleted", word=CONCURRENCY)
        if operation.kind == "provision" and operation.status == IN_PROGRESS:
            refuse_without_waiting(may_wait=may_wait)
            return operation, False
        if operation.kind == "provision" and operation.status == FAILED:
            raise RefusedError(409, "the instance could not be made; delete it before it is asked for again")
        return operation, True

    def _new_state(self, instance: str, wanted: Wanted, port: int) -> InstanceState:
        return InstanceState(
            instance_id=instance,
            service_id=wanted.service_id,
            plan_id=wanted.plan.id,
            organization_guid=wanted.organization_guid,
            space_guid=wanted.space_guid,
            service_instance_name=wanted.name,
            allocated_port=port,
            superuser_credentials=Credentials(username="postgres", password=new_password()),
            admin_credentials=Credentials(username="pgadmin", password=new_password()),
            replication_credentials=Credentials(username="replicator", password=new_password()),
            rewind_credentials=Credentials(username="rewinder", password=new_password()),
            store_credentials=new_store_credentials(instance) if self._gives_logins else Credentials(),
            node_count=wanted.node_count,
            cells=wanted.cells,
            parameters=wanted.parameters,
            archive=new_archive(instance, wanted.plan.backups) if wanted.plan.backups is not None else None,
            created_at=self._clock.wall(),
        )

    def update(
        self, instance: str, service_id: str, plan: Plan | None, parameters: dict[str, Any], *, may_wait: bool
    ) -> Operation | None:
        """Begin to change an instance's number of nodes or their cells; None when it is as it is to be.

        What is not given stays; another plan brings its number of nodes. An update that failed may be asked for again.
        """

        def work(binding: Binding) -> Operation | None:
            broker = Broker(binding)
            state = self._usable(broker, instance, service_id)
            node_count, cells = _changed(state, plan, parameters)
            placed = {key.node: cell for key, cell in broker.nodes.list(instance)}
            plan_id = plan.id if plan is not None else state.plan_id
            steps = steps_of_update(placed, node_count, cells, broker.leaders.get(instance))
            is_unchanged = (plan_id, node_count, cells) == (state.plan_id, state.node_count, state.cells)
            if is_unchanged and not steps:
                return None
            refuse_without_waiting(may_wait=may_wait)
            self._refuse_few_cells(node_count, cells, used=placed.values())
            if state.allocated_port is not None:
                # Why: the instance may be older than the setting that gives it one.
                self._ports.allocate_reads_in(binding, instance, state.allocated_port)
            begun = new_operation(
                self._clock, "update", steps or [Step(kind="wait_leader")], {**state.parameters, **parameters}
            )
            begun.plan_id, begun.node_count, begun.cells = plan_id, node_count, cells
            write_begun(broker, instance, state, begun, self._events)
            return begun

        return self._store.run(work)

    def _usable(self, broker: Broker, instance: str, service_id: str) -> InstanceState:
        state, operation = broker.instances.get(instance), broker.operations.get(instance)
        if state is None:
            raise RefusedError(404, "there is no such instance")
        if service_id != state.service_id:
            raise RefusedError(400, "the instance is one of another service")
        refuse_unusable(operation)
        return state

    def deprovision(self, instance: str, service_id: str, plan_id: str, *, may_wait: bool) -> Operation:
        """Begin to delete an instance; one that is being made is halted. Asked again while it goes on, nothing is written."""

        def work(binding: Binding) -> Operation:
            broker = Broker(binding)
            state, operation = broker.instances.get(instance), broker.operations.get(instance)
            if state is None:
                raise RefusedError(410, "there is no such instance")
            if (service_id, plan_id) != (state.service_id, state.plan_id):
                raise RefusedError(400, "service_id and plan_id are not those of the instance")
            refuse_without_waiting(may_wait=may_wait)
            if operation is not None and operation.status == IN_PROGRESS:
                if operation.kind == "deprovision":
                    return operation
                if operation.kind != "provision":
                    refuse_under_way(operation)
            _refuse_outside(broker, instance)
            leader = broker.leaders.get(instance)
            nodes = {key.node for key, _ in broker.nodes.list(instance)}
            nodes |= {key.node for key, _ in broker.node_intents.list(instance)}
            # Why the leader last: a cluster without replicas has nobody to hand over to, and stops at once.
            removals = [
                Step(kind="remove", node=node) for node in sorted(nodes, key=lambda name: (name == leader, name))
            ]
            former = [Step(kind="discard_former")] if state.former is not None else []
            begun = new_operation(self._clock, "deprovision", [*former, *removals, Step(kind="erase")], {})
            write_begun(broker, instance, state, begun, self._events)
            return begun

        return self._store.run(work)

    def _refuse_few_cells(self, node_count: int, allowed: list[str], used: Any) -> None:
        """Raise RefusedError (400) when there are fewer cells than nodes. Read beside the transaction: cells come and go."""
        with self._store.snapshot() as state:
            cells = available_cells(cell_loads(Broker(state)), allowed=allowed, used=set(used))
        outside = staying_outside(used, allowed)
        needed = node_count - outside
        if needed > 0 and (not cells or (len(cells) < needed and not self._may_share_cells)):
            raise RefusedError(400, too_few_cells(node_count, cells, outside=outside))


def new_operation(clock: Clock, kind: str, steps: list[Step], parameters: dict[str, Any]) -> Operation:
    """Return an operation that begins now, and that no broker works on yet."""
    return Operation(
        id=f"{kind}-{secrets.token_hex(8)}",
        kind=kind,
        steps=steps,
        message="waiting for a broker",
        parameters=parameters,
        begun_at=clock.wall(),
    )


def write_begun(broker: Broker, instance: str, state: InstanceState, operation: Operation, events: EventLog) -> None:
    """Write an operation that begins, with the event that it did: all that a transaction needs to begin one of an instance."""
    broker.operations.put(instance, operation)
    note_progress(state, operation)
    broker.instances.put(instance, state)
    events.begun(broker, instance, operation)


def operation_on(clock: Clock, kind: str, steps: Sequence[Step], state: InstanceState) -> Operation:
    """Return an operation that begins now, and leaves plan, number of nodes and cells of an instance as they are."""
    begun = new_operation(clock, kind, [*steps], state.parameters)
    begun.plan_id, begun.node_count, begun.cells = state.plan_id, state.node_count, state.cells
    return begun


def begin_planned(
    store: Store,
    events: EventLog,
    instance: str,
    planned: Callable[[Broker, InstanceState], Operation],
    *,
    is_trial: bool,
) -> Operation:
    """Begin what is planned of one state for an instance that can be used, in one commit. With `is_trial` nothing is written.

    Raises RefusedError: 404 without the instance, 422 for not now, and what planning raises.
    """

    def work(binding: Binding) -> Operation:
        broker = Broker(binding)
        state = broker.instances.get(instance)
        if state is None:
            raise RefusedError(404, "there is no such instance")
        refuse_unusable(broker.operations.get(instance))
        # Why beside the transaction: what Patroni writes all the time would be guarded.
        with store.snapshot() as pinned:
            begun = planned(Broker(pinned), state)
        if not is_trial:
            write_begun(broker, instance, state, begun, events)
        return begun

    return store.run(work)


def is_usable_after(operation: Operation | None) -> bool:
    """True when an instance can be used and changed after its last operation: it was made, and is not being deleted.

    Failures of updates and actions leave a cluster as it was.
    """
    if operation is None or operation.kind == "deprovision":
        return False
    return operation.kind != "provision" or operation.status == SUCCESS


def refuse_unusable(operation: Operation | None) -> None:
    """Raise RefusedError (422) where no operation on an instance can begin: another is in progress, or it cannot be used."""
    refuse_under_way(operation)
    if not is_usable_after(operation):
        raise RefusedError(422, "the instance is not usable; delete it")


def refuse_under_way(operation: Operation | None) -> None:
    """Raise RefusedError (422) where an operation is in progress: which one, and how far it is."""
    if operation is not None and operation.status == IN_PROGRESS:
        which = ", ".join(filter(None, (operation.kind, operation.message)))
        text = f"another operation on this instance is in progress: {which}; ask again when it has ended"
        raise RefusedError(422, text, word=CONCURRENCY)


def _refuse_outside(broker: Broker, instance: str) -> None:
    """Raise RefusedError (422) while nodes run that no cell could end: their data would be left, and nobody would know them."""
    running = [node for node in outside_nodes(broker, instance) if broker.members.exists(MemberKey(instance, node))]
    if running:
        raise RefusedError(
            422,
            f"no cell runs {', '.join(running)}: end Patroni there first, or let `keyplan patroni release` forget the instance",
        )


def refuse_without_waiting(*, may_wait: bool) -> None:
    """Raise RefusedError (422) for a client that does not say that it polls for the end of an operation."""
    if not may_wait:
        raise RefusedError(422, "this takes a while: ask with accepts_incomplete=true", word="AsyncRequired")


def note_progress(state: InstanceState, operation: Operation) -> None:
    """Write into an instance's state how far its operation is."""
    state.info = OperationInfo(
        status=operation.status,
        steps=len(operation.steps),
        completed_steps=operation.completed_steps,
        last_message=operation.message,
    )


def new_password() -> Secret[str]:
    """Return a password of 24 characters that mean nothing in URLs and connection strings."""
    return Secret(secrets.token_urlsafe(_PASSWORD_BYTES))


# ---- steps ---------------------------------------------------------------------------------------------------------------


def _added() -> Step:
    # Why the name now: a step that is made twice must ask for the same node twice.
    return Step(kind="add", node=str(uuid4()))


def steps_of_provision(node_count: int, *, has_callbacks: bool = False) -> list[Step]:
    """Return the steps that make a cluster of so many nodes, and with `has_callbacks` keep the data about it."""
    steps = [*(_added() for _ in range(node_count)), Step(kind="wait_members"), Step(kind="wait_leader")]
    return [*steps, Step(kind="keep_data")] if has_callbacks else steps


def steps_of_update(placed: dict[str, str], node_count: int, allowed: list[str], leader: str | None) -> list[Step]:
    """Return the steps from the nodes that there are, by name with their cells, to `node_count` nodes on `allowed` cells.

    First new nodes, then replicas on other cells go; a leader on another cell hands over before it goes. Empty: nothing to do.
    """
    misplaced = [node for node, cell in sorted(placed.items()) if allowed and cell not in allowed]
    keeping = len(placed) - len(misplaced)
    added = max(0, node_count - keeping)
    surplus = max(0, keeping - node_count)
    steps = [_added() for _ in range(added)]
    if added:
        steps.append(Step(kind="wait_members"))
    replicas = [node for node in misplaced if node != leader]
    for node in replicas:
        steps += [Step(kind="remove", node=node), Step(kind="wait_members")]
    if leader in misplaced:
        steps += [Step(kind="switch", node=str(leader)), Step(kind="remove", node=str(leader))]
    for _ in range(surplus):
        steps += [Step(kind="remove"), Step(kind="wait_members")]
    return [*steps, Step(kind="wait_leader")] if steps else []


def _changed(state: InstanceState, plan: Plan | None, parameters: dict[str, Any]) -> tuple[int, list[str]]:
    """Return number of nodes and cells after an update: what is asked for, else what a new plan says, else what is."""
    node_count = state.node_count
    if plan is not None and plan.id != state.plan_id:
        node_count = plan.node_count
    # Why 0 is no number here: it means the default, which on an update is to leave the cluster as it is.
    node_count = parameters.get("node-count") or node_count
    cells = parameters.get("cells", state.cells)
    return node_count, cells
