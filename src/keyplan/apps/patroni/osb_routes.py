"""The service broker API: HTTP in, one call of the broker, HTTP out. Specification: Open Service Broker API 2.17."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from keyplan.apps.patroni.broker_bindings import Bindings, RouterAddress, credentials_shown
from keyplan.apps.patroni.catalog import Catalog, Plan
from keyplan.apps.patroni.layout import BindingKey, Broker
from keyplan.apps.patroni.operations import FAILED, IN_PROGRESS, SUCCESS, Beginnings, Wanted
from keyplan.apps.patroni.osb_bodies import (
    BindBody,
    ProvisionBody,
    UpdateBody,
    broker_body,
    check_maintenance,
    check_parameters,
    check_provision_parameters,
    id_of,
    is_asked_to_wait,
    removal_query,
)
from keyplan.apps.patroni.osb_edge import BrokerEdge
from keyplan.apps.patroni.records import Binding as BindingRecord
from keyplan.apps.patroni.records import InstanceState, Operation
from keyplan.apps.patroni.refusals import CONCURRENCY, RefusedError
from keyplan.server import JsonAnswer, ServiceContext
from keyplan.store import Store

__all__ = ["BrokerRoutes"]

_STATES: Final = {IN_PROGRESS: "in progress", SUCCESS: "succeeded", FAILED: "failed"}
_RETRY: Final = {"Retry-After": "1"}


class BrokerRoutes:
    """The routes below /v2. `router` is where bindings say it is; `on_begun` is called when an operation was begun."""

    def __init__(
        self,
        context: ServiceContext,
        store: Store,
        catalog: Catalog,
        beginnings: Beginnings,
        bindings: Bindings,
        *,
        router: RouterAddress,
        on_begun: Any,
    ) -> None:
        self._context = context
        self._store = store
        self._broker = Broker(store)
        self._catalog = catalog
        self._beginnings = beginnings
        self._bindings = bindings
        self._router = router
        self._on_begun = on_begun

    def routes(self, edge: BrokerEdge) -> list[BaseRoute]:
        """Return the routes."""
        one = "/v2/service_instances/{instance}"
        bound = f"{one}/service_bindings/{{binding}}"
        return [
            edge.route("/v2/catalog", {"GET": self.catalog}),
            edge.route(
                one, {"PUT": self.provision, "PATCH": self.update, "DELETE": self.deprovision, "GET": self.instance}
            ),
            edge.route(f"{one}/last_operation", {"GET": self.last_operation}),
            edge.route(bound, {"PUT": self.bind, "DELETE": self.unbind, "GET": self.binding}),
            edge.route(f"{bound}/last_operation", {"GET": self.last_binding_operation}),
        ]

    async def catalog(self, request: Request) -> Response:
        headers = {"ETag": self._catalog.tag}
        if request.headers.get("if-none-match") == self._catalog.tag:
            return Response(status_code=304, headers=headers)
        return JsonAnswer(self._catalog.to_json(), headers=headers)

    # ---- instances -----------------------------------------------------------------------------------------------------

    async def provision(self, request: Request) -> Response:
        instance, may_wait = id_of(request, "instance"), is_asked_to_wait(request)
        body = await broker_body(request, ProvisionBody)
        plan = self._catalog.plan(body.service_id, body.plan_id)
        check_maintenance(body.maintenance_info)
        name = (body.context or {}).get("instance_name", "")
        wanted = Wanted(
            service_id=body.service_id,
            plan=plan,
            organization_guid=body.organization_guid,
            space_guid=body.space_guid,
            name=name if isinstance(name, str) else "",
            parameters=check_provision_parameters(body.parameters),
        )
        operation, is_complete = await self._context.run(
            self._beginnings.provision, instance, wanted, may_wait=may_wait
        )
        return JsonAnswer({}) if is_complete else self._accepted(operation)

    async def update(self, request: Request) -> Response:
        instance, may_wait = id_of(request, "instance"), is_asked_to_wait(request)
        body = await broker_body(request, UpdateBody)
        plan = None if body.plan_id is None else self._catalog.plan(body.service_id, body.plan_id)
        check_maintenance(body.maintenance_info)
        parameters = check_parameters(body.parameters)
        operation = await self._context.run(
            self._beginnings.update, instance, body.service_id, plan, parameters, may_wait=may_wait
        )
        return JsonAnswer({}) if operation is None else self._accepted(operation)

    async def deprovision(self, request: Request) -> Response:
        instance, may_wait = id_of(request, "instance"), is_asked_to_wait(request)
        service_id, plan_id = removal_query(request)
        operation = await self._context.run(
            self._beginnings.deprovision, instance, service_id, plan_id, may_wait=may_wait
        )
        return self._accepted(operation)

    def _accepted(self, operation: Operation) -> Response:
        self._on_begun()
        return JsonAnswer({"operation": operation.id}, 202)

    async def instance(self, request: Request) -> Response:
        instance = id_of(request, "instance")
        state, operation = await self._context.read(self._state, instance)
        if operation.kind == "update" and operation.status == IN_PROGRESS:
            raise RefusedError(422, "the instance is being updated", word=CONCURRENCY)
        if operation.kind == "deprovision" or (operation.kind, operation.status) in {
            ("provision", IN_PROGRESS),
            ("provision", FAILED),
        }:
            raise RefusedError(404, "there is no such instance, or not yet")
        return JsonAnswer(
            {"service_id": state.service_id, "plan_id": state.plan_id, "parameters": state.parameters},
        )

    def _state(self, instance: str) -> tuple[InstanceState, Operation]:
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            state, operation = broker.instances.get(instance), broker.operations.get(instance)
        if state is None:
            raise RefusedError(404, "there is no such instance")
        return state, operation or Operation(id="", kind="", status=SUCCESS)

    async def last_operation(self, request: Request) -> Response:
        instance, asked = id_of(request, "instance"), request.query_params.get("operation")
        operation = await self._context.read(self._broker.operations.get, instance)
        if operation is None or asked not in {None, operation.id}:
            # Why by the word: the record of a deletion is forgotten after a day, and who deletes may ask later.
            if (asked or "").startswith("deprovision-"):
                raise RefusedError(410, "the instance is gone")
            raise RefusedError(404, "there is no such operation")
        shown: dict[str, Any] = {"state": _STATES[operation.status], "description": operation.message}
        if operation.status == FAILED and operation.kind != "provision":
            shown |= {"instance_usable": operation.kind == "update", "update_repeatable": operation.kind == "update"}
        return JsonAnswer(shown, headers=_RETRY if operation.status == IN_PROGRESS else None)

    # ---- bindings ------------------------------------------------------------------------------------------------------

    async def bind(self, request: Request) -> Response:
        key = BindingKey(id_of(request, "instance"), id_of(request, "binding"))
        is_asked_to_wait(request)
        body = await broker_body(request, BindBody)
        plan = self._catalog.plan(body.service_id, body.plan_id)
        parameters = check_parameters(body.parameters, known=())
        is_new = await self._context.run(
            self._bindings.bind, key, body.service_id, plan, body.application(), parameters
        )
        return JsonAnswer(await self._context.read(self._shown, key), 201 if is_new else 200)

    async def unbind(self, request: Request) -> Response:
        key = BindingKey(id_of(request, "instance"), id_of(request, "binding"))
        is_asked_to_wait(request)
        service_id, plan_id = removal_query(request)
        database = self._plan(service_id, plan_id).database
        await self._context.run(self._bindings.unbind, key, service_id, plan_id, database)
        return JsonAnswer({})

    async def binding(self, request: Request) -> Response:
        key = BindingKey(id_of(request, "instance"), id_of(request, "binding"))
        return JsonAnswer(await self._context.read(self._shown, key))

    async def last_binding_operation(self, request: Request) -> Response:
        key = BindingKey(id_of(request, "instance"), id_of(request, "binding"))
        await self._context.read(self._ready, key)
        return JsonAnswer({"state": "succeeded", "description": "bindings are made at once"})

    def _ready(self, key: BindingKey) -> tuple[BindingRecord, InstanceState, int | None]:
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            record, state = broker.bindings.get(key), broker.instances.get(key.instance)
            reads = broker.replica_ports.get(key.instance)
        if record is None or state is None or record.state != "ready":
            raise RefusedError(404, "there is no such binding")
        return record, state, reads

    def _shown(self, key: BindingKey) -> dict[str, Any]:
        record, state, reads = self._ready(key)
        plan = self._plan(record.service_id, record.plan_id)
        port = state.allocated_port or 0
        superuser = state.superuser_credentials if plan.shows_superuser else None
        ports = [port] if reads is None else [port, reads]
        return {
            "credentials": credentials_shown(
                self._router, port, plan.database, record.credentials, reads=reads, superuser=superuser
            ),
            "endpoints": [{"host": self._router.host, "ports": [str(each) for each in ports]}],
            "parameters": record.parameters,
        }

    def _plan(self, service_id: str, plan_id: str) -> Plan:
        """Return the plan of what exists; a plan that was taken out of the catalog had, as far as is known, the defaults."""
        try:
            return self._catalog.plan(service_id, plan_id)
        except RefusedError:
            return Plan(id=plan_id, name="", description="")
