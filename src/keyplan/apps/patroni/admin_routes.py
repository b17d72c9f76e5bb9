"""What the operator of the broker sees and does, without secrets: cells, instances, findings; the lead moved off a cell."""

from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.admin_bodies import (
    ActionAnswered,
    BindingState,
    Cells,
    CellShown,
    Demoted,
    Demotions,
    Faults,
    FaultShown,
    InstanceRecord,
    Instances,
    KeptInstance,
    PlacedNode,
)
from keyplan.apps.patroni.catalog import NODES_MAX, Catalog
from keyplan.apps.patroni.clusters import cell_loads, clusters
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.layout import Broker, MemberKey
from keyplan.apps.patroni.logins import KEEP_SECONDS, KEEP_SECONDS_MAX
from keyplan.apps.patroni.operations import Beginnings
from keyplan.apps.patroni.osb_bodies import TRUTH, Object, OperationBegun, PathId
from keyplan.apps.patroni.osb_edge import administered
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError, switch_over
from keyplan.apps.patroni.records import Operation
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.site_callbacks import CallbackFailedError, ClusterData, SiteCallbacks
from keyplan.operations import Act, Answered, Change, In, Schema
from keyplan.store import Store

__all__ = ["Administration", "Recreations"]

_ONE: Final = "/admin/service_instances/{instance}"


class Recreations:
    """Instances that were lost, made again from what the site's callbacks have kept of them. Raises RefusedError."""

    def __init__(
        self, beginnings: Beginnings, catalog: Catalog, callbacks: SiteCallbacks | None, *, on_begun: Callable[[], None]
    ) -> None:
        self._beginnings = beginnings
        self._catalog = catalog
        self._callbacks = callbacks
        self._on_begun = on_begun

    def begin(self, instance: str) -> Operation:
        """Begin to make an instance again, and return the operation."""
        data = self._asked(lambda callbacks: callbacks.restore(instance))
        operation = self._beginnings.recreate(instance, data, self._catalog.plan(data.service_id, data.plan_id))
        self._on_begun()
        return operation

    def kept(self, space: str, name: str) -> KeptInstance:
        """Return what is kept of the instance of that name in a space, without its users' passwords."""
        data = self._asked(lambda callbacks: callbacks.find(space, name))
        return KeptInstance(**{name: getattr(data, name) for name in KeptInstance.__struct_fields__})

    def _asked(self, ask: Callable[[SiteCallbacks], ClusterData | None]) -> ClusterData:
        if self._callbacks is None:
            raise RefusedError(404, "this broker has no callbacks for backups")
        try:
            data = ask(self._callbacks)
        except CallbackFailedError as error:
            raise RefusedError(500, str(error)) from error
        if data is None:
            raise RefusedError(404, "nothing is kept of such an instance")
        return data


class Administration:
    """The operations below /admin."""

    def __init__(
        self, store: Store, recreations: Recreations, actions: Actions, *, on_begun: Callable[[], None]
    ) -> None:
        self._store = store
        self._recreations = recreations
        self._actions = actions
        self._on_begun = on_begun

    @administered(Act.READ, "GET", "/admin/cells", name="listCells", answers="Them.")
    def cells(self) -> Cells:
        """List cells and their loads."""
        with self._store.snapshot() as state:
            broker = Broker(state)
            hosts = {name: cell.host for name, cell in broker.cells.list()}
            loads = cell_loads(broker)
            return Cells([CellShown(*cell[:-1], versions=[*cell.versions], host=hosts[cell.guid]) for cell in loads])

    @administered(
        Act.ADMINISTER,
        "POST",
        "/admin/cells/{cell}/demote",
        name="demoteCell",
        change=Change("demote cell", "{cell}"),
        answers="All were asked.",
        also={207: "Some failed."},
        failures=(404,),
    )
    def demote(self, cell: PathId) -> Answered[Demotions]:
        """Move the lead of every cluster that is led from this cell."""
        results = self._demoted(cell)
        has_failed = any(result.status == "failed" for result in results)
        return Answered(Demotions(results), 207 if has_failed else 200)

    @administered(Act.READ, "GET", "/admin/service_instances", name="listInstances", answers="Them.")
    def instances(self) -> Instances:
        """List clusters with their nodes."""
        with self._store.snapshot() as state:
            return Instances([*clusters(Broker(state))])

    @administered(Act.READ, "GET", _ONE, name="describeInstance", answers="It.", failures=(404,))
    def instance(self, instance: PathId) -> InstanceRecord:
        """Read an instance's record."""
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            state, last = broker.instances.get(instance), broker.operations.get(instance)
            replica_port = broker.replica_ports.get(instance)
            nodes = [PlacedNode(key.node, cell) for key, cell in broker.nodes.list(instance)]
            bindings = [
                BindingState(key.binding, record.state, record.app_guid)
                for key, record in broker.bindings.list(instance)
            ]
        if state is None:
            raise RefusedError(404, "there is no such instance")
        return InstanceRecord(
            instance_id=instance,
            service_id=state.service_id,
            plan_id=state.plan_id,
            organization_guid=state.organization_guid,
            space_guid=state.space_guid,
            service_instance_name=state.service_instance_name,
            allocated_port=state.allocated_port,
            replica_port=replica_port,
            node_count=state.node_count,
            cells=state.cells,
            parameters=state.parameters,
            nodes=nodes,
            bindings=bindings,
            # Why without it: a configuration may hold a secret, as an archive's key, and this has none.
            operation=replace(last, configuration={}) if last is not None else None,
        )

    @administered(
        Act.ADMINISTER,
        "POST",
        f"{_ONE}/actions",
        name="actOnInstance",
        change=Change("act", "{instance} {kind}"),
        answers="The steps that it would have: nothing was begun.",
        also={202: "It has begun."},
        failures=(404, 415, 422),
        body_name="BrokerAction",
    )
    def act(
        self,
        instance: PathId,
        *,
        is_trial: Annotated[
            bool, In("dry_run", TRUTH), Schema("Whether it is only told what would be done; nothing is written then.")
        ] = False,
        kind: Annotated[ActionKind, Schema("What is to be done.")],
        node: Annotated[str, Meta(max_length=255), Schema("Who is to lead, restart, be copied anew or move.")] = "",
        cell: Annotated[str, Meta(max_length=255), Schema("The cell that a node moves to.")] = "",
        configuration: Annotated[Object, Schema("What changes in Patroni's; null removes a key.")] = None,
        only: Annotated[
            list[str] | None, Schema("What of the logins is rotated, as `superuser` or `binding:ID`; none: all.")
        ] = None,
        keep_seconds: Annotated[
            float, Meta(ge=0, le=KEEP_SECONDS_MAX), Schema("How long logins count that were replaced.")
        ] = KEEP_SECONDS,
        node_count: Annotated[int, Meta(ge=0, le=NODES_MAX), Schema("How many nodes there are to be.")] = 0,
    ) -> Answered[ActionAnswered]:
        """Hand over the lead of a cluster; restart, copy or move members; change their number, configuration or logins."""
        action = Action(
            kind=kind,
            node=node,
            cell=cell,
            configuration=configuration or {},
            only=only or [],
            keep_seconds=keep_seconds,
            node_count=node_count,
        )
        if is_trial:
            return Answered(ActionAnswered("", self._actions.planned(instance, action)))
        begun = self._actions.begin(instance, action)
        self._on_begun()
        return Answered(ActionAnswered(begun.id, begun.steps), 202)

    @administered(
        Act.ADMINISTER,
        "POST",
        f"{_ONE}/recreate",
        name="recreateInstance",
        change=Change("recreate", "{instance}"),
        answers="It has begun.",
        status=202,
        failures=(404, 409, 422, 500),
    )
    def recreate(self, instance: PathId) -> OperationBegun:
        """Make an instance that was lost again from its backups, with its users and its port."""
        return OperationBegun(self._recreations.begin(instance).id)

    @administered(
        Act.READ,
        "GET",
        "/admin/spaces/{space}/clusterdata_backup_by_name/{name}",
        name="findKeptInstance",
        answers="It.",
        failures=(404, 500),
    )
    def kept(self, space: PathId, name: PathId) -> KeptInstance:
        """Read what is kept of an instance."""
        return self._recreations.kept(space, name)

    @administered(Act.AUDIT, "GET", "/admin/findings", name="listFindings", answers="What is wrong.")
    def findings(self) -> Faults:
        """Examine the store."""
        return Faults([FaultShown(*fault) for fault in diagnose(self._store)])

    def _demoted(self, cell: str) -> list[Demoted]:
        """Ask each cluster that is led from the cell to move its lead; one line for each."""
        broker = Broker(self._store)
        if not broker.cells.exists(cell) and cell not in {placed for _, placed in broker.nodes.list()}:
            raise RefusedError(404, "there is no such cell")
        results: list[Demoted] = []
        for key, placed in broker.nodes.list():
            if placed != cell or broker.leaders.get(key.instance) != key.node:
                continue
            state, member = broker.instances.get(key.instance), broker.members.get(MemberKey(*key))
            result = Demoted(key.instance, key.node)
            try:
                if state is None:
                    raise PatroniRefusedError("there is no such instance")
                switch_over(member, key.node, state.admin_credentials)
            except PatroniRefusedError as error:
                result.status, result.description = "failed", str(error)
            results.append(result)
        return results
