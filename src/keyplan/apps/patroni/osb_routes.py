"""The service broker API: operations on instances and bindings. Specification: Open Service Broker API 2.17."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from keyplan.apps.patroni.broker_bindings import Bindings, RouterAddress, credentials_shown
from keyplan.apps.patroni.catalog import PARAMETERS_OF_CREATION, Catalog, Plan
from keyplan.apps.patroni.layout import BindingKey, Broker
from keyplan.apps.patroni.operations import FAILED, IN_PROGRESS, SUCCESS, Beginnings, Wanted
from keyplan.apps.patroni.osb_bodies import (
    BindingParameters,
    BindingShown,
    Id,
    InstanceParameters,
    InstanceShown,
    LastOperation,
    Maintenance,
    MayWait,
    NewInstanceParameters,
    Object,
    OperationBegun,
    OwnerId,
    PassedOver,
    PathId,
    PlanId,
    RemovedId,
    ServiceId,
    UnreadObject,
    check_maintenance,
    check_parameters,
)
from keyplan.apps.patroni.osb_edge import administered
from keyplan.apps.patroni.records import Binding as BindingRecord
from keyplan.apps.patroni.records import InstanceState, Operation
from keyplan.apps.patroni.refusals import CONCURRENCY, RefusedError
from keyplan.operations import Act, Answered, Change, Disclosure, In, Outcome, Place, Schema
from keyplan.store import Store

__all__ = ["ServiceBroker"]

_STATES: Final = {IN_PROGRESS: "in progress", SUCCESS: "succeeded", FAILED: "failed"}
_RETRY: Final = {"Retry-After": "1"}

_ONE: Final = "/v2/service_instances/{instance}"
_BOUND: Final = f"{_ONE}/service_bindings/{{binding}}"
_DONE: Final = "Nothing is to be done, or it is done."
_BEGUN: Final = "It was begun: poll its last operation."
_ACCEPTED: Final = {202: Outcome(_BEGUN, OperationBegun)}

Nothing = dict[str, Any]
"""An object without fields."""


class ServiceBroker:
    """The operations below /v2. `router` is where bindings say it is; `on_begun` is called when an operation was begun."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        beginnings: Beginnings,
        bindings: Bindings,
        *,
        router: RouterAddress,
        on_begun: Callable[[], None],
    ) -> None:
        self._store = store
        self._broker = Broker(store)
        self._catalog = catalog
        self._beginnings = beginnings
        self._bindings = bindings
        self._router = router
        self._on_begun = on_begun

    @administered(
        Act.READ,
        "GET",
        "/v2/catalog",
        name="getCatalog",
        answers="The catalog.",
        also={304: Outcome("It is that of If-None-Match.")},
        is_quick=True,
    )
    def catalog(
        self,
        *,
        known: Annotated[
            str | None, In("If-None-Match", place=Place.HEADER), Schema("The ETag of the catalog that is known.")
        ] = None,
    ) -> Answered[dict[str, Any] | None]:
        """List services and plans."""
        headers = {"ETag": self._catalog.tag}
        if known == self._catalog.tag:
            return Answered(None, 304, headers)
        return Answered(self._catalog.to_json(), headers=headers)

    # ---- instances -----------------------------------------------------------------------------------------------------

    @administered(
        Act.WRITE,
        "PUT",
        _ONE,
        name="provision",
        change=Change("provision", "{instance}"),
        answers=_DONE,
        also=_ACCEPTED,
        failures=(409, 415, 422),
        body_name="BrokerProvision",
        takes_unknown_fields=True,
    )
    def provision(
        self,
        instance: PathId,
        *,
        may_wait: MayWait = False,
        service_id: ServiceId,
        plan_id: PlanId,
        organization_guid: OwnerId,
        space_guid: OwnerId,
        context: Annotated[Object, Schema("What the platform says; `instance_name` names the instance.")] = None,
        parameters: NewInstanceParameters = None,
        maintenance_info: Maintenance = None,
    ) -> Answered[Nothing | OperationBegun]:
        """Begin to make an instance."""
        plan = self._catalog.plan(service_id, plan_id)
        check_maintenance(maintenance_info)
        name = (context or {}).get("instance_name", "")
        wanted = Wanted(
            service_id=service_id,
            plan=plan,
            organization_guid=organization_guid,
            space_guid=space_guid,
            name=name if isinstance(name, str) else "",
            parameters=check_parameters(parameters, PARAMETERS_OF_CREATION),
        )
        begun, is_complete = self._beginnings.provision(instance, wanted, may_wait=may_wait)
        return Answered(Nothing()) if is_complete else self._accepted(begun)

    @administered(
        Act.WRITE,
        "PATCH",
        _ONE,
        name="updateInstance",
        change=Change("update", "{instance}"),
        answers=_DONE,
        also=_ACCEPTED,
        failures=(404, 415, 422),
        body_name="BrokerUpdate",
        takes_unknown_fields=True,
    )
    def update(
        self,
        instance: PathId,
        *,
        may_wait: MayWait = False,
        service_id: ServiceId,
        plan_id: Annotated[Id | None, Schema("Another plan of the service.")] = None,
        context: UnreadObject = None,
        parameters: InstanceParameters = None,
        previous_values: UnreadObject = None,
        maintenance_info: Maintenance = None,
    ) -> Answered[Nothing | OperationBegun]:
        """Begin to change an instance's plan, number of nodes, or cells."""
        plan = None if plan_id is None else self._catalog.plan(service_id, plan_id)
        check_maintenance(maintenance_info)
        checked = check_parameters(parameters)
        begun = self._beginnings.update(instance, service_id, plan, checked, may_wait=may_wait)
        return Answered(Nothing()) if begun is None else self._accepted(begun)

    @administered(
        Act.WRITE,
        "DELETE",
        _ONE,
        name="deprovision",
        change=Change("deprovision", "{instance}"),
        answers=_BEGUN,
        status=202,
        failures=(410, 422),
    )
    def deprovision(
        self, instance: PathId, *, may_wait: MayWait = False, service_id: RemovedId, plan_id: RemovedId
    ) -> Answered[OperationBegun]:
        """Begin to delete an instance; one that is being made is halted."""
        return self._accepted(self._beginnings.deprovision(instance, service_id, plan_id, may_wait=may_wait))

    def _accepted(self, begun: Operation) -> Answered[OperationBegun]:
        self._on_begun()
        return Answered(OperationBegun(begun.id), 202)

    @administered(Act.READ, "GET", _ONE, name="getInstance", answers="It.", failures=(404, 422), is_quick=True)
    def instance(self, instance: PathId) -> InstanceShown:
        """Read an instance."""
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            state, last = broker.instances.get(instance), broker.operations.get(instance)
        if state is None:
            raise RefusedError(404, "there is no such instance")
        kind, status = ("", SUCCESS) if last is None else (last.kind, last.status)
        if kind == "update" and status == IN_PROGRESS:
            raise RefusedError(422, "the instance is being updated", word=CONCURRENCY)
        if kind == "deprovision" or (kind == "provision" and status in {IN_PROGRESS, FAILED}):
            raise RefusedError(404, "there is no such instance, or not yet")
        return InstanceShown(state.service_id, state.plan_id, state.parameters)

    @administered(
        Act.READ,
        "GET",
        f"{_ONE}/last_operation",
        name="getLastOperation",
        answers="How far it is.",
        failures=(404, 410),
        is_quick=True,
    )
    def last_operation(
        self,
        instance: PathId,
        *,
        asked: Annotated[Id | None, In("operation"), Schema("What was begun; without it the last one.")] = None,
        service_id: PassedOver = None,
        plan_id: PassedOver = None,
    ) -> Answered[LastOperation]:
        """Tell how far an operation is."""
        last = self._broker.operations.get(instance)
        if last is None or asked not in {None, last.id}:
            # Why by the word: the record of a deletion is forgotten after a day, and who deletes may ask later.
            if (asked or "").startswith("deprovision-"):
                raise RefusedError(410, "the instance is gone")
            raise RefusedError(404, "there is no such operation")
        shown = LastOperation(_STATES[last.status], last.message)
        if last.status == FAILED and last.kind != "provision":
            shown.instance_usable = shown.update_repeatable = last.kind != "deprovision"
        return Answered(shown, headers=_RETRY if last.status == IN_PROGRESS else {})

    # ---- bindings ------------------------------------------------------------------------------------------------------

    @administered(
        Act.WRITE,
        "PUT",
        _BOUND,
        name="bind",
        change=Change("bind", "{instance}/{binding}"),
        answers="The same binding was there.",
        also={201: "It was made."},
        failures=(404, 409, 415, 422, 500),
        body_name="BrokerBind",
        takes_unknown_fields=True,
    )
    def bind(
        self,
        instance: PathId,
        binding: PathId,
        *,
        may_wait: MayWait = False,  # a binding is made at once
        service_id: ServiceId,
        plan_id: PlanId,
        app_guid: Annotated[str | None, Schema("The application, as older platforms say it.")] = None,
        bind_resource: Annotated[Object, Schema("`app_guid` is the application.")] = None,
        context: UnreadObject = None,
        parameters: BindingParameters = None,
    ) -> Answered[BindingShown]:
        """Make a binding: a role of its own."""
        key = BindingKey(instance, binding)
        plan = self._catalog.plan(service_id, plan_id)
        checked = check_parameters(parameters, {})
        # Why either: the application has two spellings in the API.
        application = (bind_resource or {}).get("app_guid") or app_guid or ""
        is_new = self._bindings.bind(
            key, service_id, plan, application if isinstance(application, str) else "", checked
        )
        return Answered(self._shown(key), 201 if is_new else 200)

    @administered(
        Act.WRITE,
        "DELETE",
        _BOUND,
        name="unbind",
        change=Change("unbind", "{instance}/{binding}"),
        answers=_DONE,
        failures=(410, 422, 500),
    )
    def unbind(
        self,
        instance: PathId,
        binding: PathId,
        *,
        may_wait: MayWait = False,  # a binding is dropped at once
        service_id: RemovedId,
        plan_id: RemovedId,
    ) -> Nothing:
        """Drop a binding's role and its sessions."""
        database = self._plan(service_id, plan_id).database
        self._bindings.unbind(BindingKey(instance, binding), service_id, plan_id, database)
        return {}

    @administered(
        Act.READ,
        "GET",
        _BOUND,
        name="getBinding",
        discloses=Disclosure("show binding", "{instance}/{binding}"),
        answers="It.",
        failures=(404,),
        is_quick=True,
    )
    def binding(self, instance: PathId, binding: PathId) -> BindingShown:
        """Read a binding."""
        return self._shown(BindingKey(instance, binding))

    @administered(
        Act.READ,
        "GET",
        f"{_BOUND}/last_operation",
        name="getLastBindingOperation",
        answers="How far it is.",
        failures=(404,),
        is_quick=True,
    )
    def last_binding_operation(self, instance: PathId, binding: PathId) -> LastOperation:
        """Tell that a binding was made."""
        self._ready(BindingKey(instance, binding))
        return LastOperation("succeeded", "bindings are made at once")

    def _ready(self, key: BindingKey) -> tuple[BindingRecord, InstanceState, int | None]:
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            record, state = broker.bindings.get(key), broker.instances.get(key.instance)
            reads = broker.replica_ports.get(key.instance)
        if record is None or state is None or record.state != "ready":
            raise RefusedError(404, "there is no such binding")
        return record, state, reads

    def _shown(self, key: BindingKey) -> BindingShown:
        record, state, reads = self._ready(key)
        plan = self._plan(record.service_id, record.plan_id)
        port = state.allocated_port or 0
        superuser = state.superuser_credentials if plan.shows_superuser else None
        ports = [port] if reads is None else [port, reads]
        credentials = credentials_shown(
            self._router, port, plan.database, record.credentials, reads=reads, superuser=superuser
        )
        endpoint = {"host": self._router.host, "ports": [str(each) for each in ports]}
        return BindingShown(credentials, [endpoint], record.parameters)

    def _plan(self, service_id: str, plan_id: str) -> Plan:
        """Return the plan of what exists; a plan that was taken out of the catalog had, as far as is known, the defaults."""
        try:
            return self._catalog.plan(service_id, plan_id)
        except RefusedError:
            return Plan(id=plan_id, name="", description="")
