"""What the operator of the broker sees and does, without secrets: cells, instances, findings; the lead moved off a cell."""

from collections.abc import Callable
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from keyplan.apps.patroni.backups import Backups, CallbackFailedError, ClusterData
from keyplan.apps.patroni.catalog import Catalog
from keyplan.apps.patroni.clusters import cell_loads, clusters
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.layout import Broker, MemberKey
from keyplan.apps.patroni.operations import Beginnings
from keyplan.apps.patroni.osb_bodies import id_of
from keyplan.apps.patroni.osb_edge import BrokerEdge
from keyplan.apps.patroni.patroni_rest import SwitchoverFailedError, switch_over
from keyplan.apps.patroni.records import Operation
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.server import JsonAnswer, ServiceContext
from keyplan.store import Store

__all__ = ["AdminRoutes", "Recreations"]


class Recreations:
    """Instances that were lost, made again from what the site's callbacks have kept of them. Raises RefusedError."""

    def __init__(
        self, beginnings: Beginnings, catalog: Catalog, backups: Backups | None, *, on_begun: Callable[[], None]
    ) -> None:
        self._beginnings = beginnings
        self._catalog = catalog
        self._backups = backups
        self._on_begun = on_begun

    def begin(self, instance: str) -> Operation:
        """Begin to make an instance again, and return the operation."""
        data = self._asked(lambda backups: backups.restore(instance))
        operation = self._beginnings.recreate(instance, data, self._catalog.plan(data.service_id, data.plan_id))
        self._on_begun()
        return operation

    def kept(self, space: str, name: str) -> dict[str, Any]:
        """Return what is kept of the instance of that name in a space, without its users' passwords."""
        data = self._asked(lambda backups: backups.find(space, name))
        return {field: getattr(data, field) for field in data.__struct_fields__ if not field.endswith("_credentials")}

    def _asked(self, ask: Callable[[Backups], ClusterData | None]) -> ClusterData:
        if self._backups is None:
            raise RefusedError(404, "this broker has no callbacks for backups")
        try:
            data = ask(self._backups)
        except CallbackFailedError as error:
            raise RefusedError(500, str(error)) from error
        if data is None:
            raise RefusedError(404, "nothing is kept of such an instance")
        return data


class AdminRoutes:
    """The routes below /admin."""

    def __init__(self, context: ServiceContext, store: Store, recreations: Recreations) -> None:
        self._context = context
        self._store = store
        self._recreations = recreations

    def routes(self, edge: BrokerEdge) -> list[BaseRoute]:
        """Return the routes."""
        return [
            edge.route("/admin/cells", {"GET": self.cells}),
            edge.route("/admin/cells/{cell}/demote", {"POST": self.demote}),
            edge.route("/admin/service_instances", {"GET": self.instances}),
            edge.route("/admin/service_instances/{instance}", {"GET": self.instance}),
            edge.route("/admin/service_instances/{instance}/recreate", {"POST": self.recreate}),
            edge.route("/admin/spaces/{space}/clusterdata_backup_by_name/{name}", {"GET": self.kept}),
            edge.route("/admin/findings", {"GET": self.findings}),
        ]

    async def cells(self, _request: Request) -> Response:
        return JsonAnswer({"cells": await self._context.run(self._cells)})

    def _cells(self) -> list[dict[str, Any]]:
        with self._store.snapshot() as state:
            broker = Broker(state)
            hosts = {name: cell.host for name, cell in broker.cells.list()}
            return [{**cell._asdict(), "host": hosts[cell.guid]} for cell in cell_loads(broker)]

    async def instances(self, _request: Request) -> Response:
        return JsonAnswer({"service_instances": await self._context.run(self._instances)})

    def _instances(self) -> list[dict[str, Any]]:
        with self._store.snapshot() as state:
            return [
                {**view._asdict(), "nodes": [node._asdict() for node in view.nodes]} for view in clusters(Broker(state))
            ]

    async def instance(self, request: Request) -> Response:
        return JsonAnswer(await self._context.run(self._instance, id_of(request, "instance")))

    def _instance(self, instance: str) -> dict[str, Any]:
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            state, operation = broker.instances.get(instance), broker.operations.get(instance)
            replica_port = broker.replica_ports.get(instance)
            nodes = [{"node_id": key.node, "cell_guid": cell} for key, cell in broker.nodes.list(instance)]
            bindings = [
                {"binding_id": key.binding, "state": record.state, "app_guid": record.app_guid}
                for key, record in broker.bindings.list(instance)
            ]
        if state is None:
            raise RefusedError(404, "there is no such instance")
        return {
            "instance_id": instance,
            "service_id": state.service_id,
            "plan_id": state.plan_id,
            "organization_guid": state.organization_guid,
            "space_guid": state.space_guid,
            "service_instance_name": state.service_instance_name,
            "allocated_port": state.allocated_port,
            "replica_port": replica_port,
            "node_count": state.node_count,
            "cells": state.cells,
            "parameters": state.parameters,
            "nodes": nodes,
            "bindings": bindings,
            "operation": operation,
        }

    async def recreate(self, request: Request) -> Response:
        operation = await self._context.run(self._recreations.begin, id_of(request, "instance"))
        return JsonAnswer({"operation": operation.id}, 202)

    async def kept(self, request: Request) -> Response:
        space, name = id_of(request, "space"), id_of(request, "name")
        return JsonAnswer(await self._context.run(self._recreations.kept, space, name))

    async def findings(self, _request: Request) -> Response:
        found = await self._context.run(diagnose, self._store)
        return JsonAnswer({"findings": [finding._asdict() for finding in found]})

    async def demote(self, request: Request) -> Response:
        results = await self._context.run(self._demoted, id_of(request, "cell"))
        has_failed = any(result["status"] == "failed" for result in results)
        return JsonAnswer({"results": results}, 207 if has_failed else 200)

    def _demoted(self, cell: str) -> list[dict[str, Any]]:
        """Ask each cluster that is led from the cell to move its lead; one line for each."""
        broker = Broker(self._store)
        if not broker.cells.exists(cell) and cell not in {placed for _, placed in broker.nodes.list()}:
            raise RefusedError(404, "there is no such cell")
        results: list[dict[str, Any]] = []
        for key, placed in broker.nodes.list():
            if placed != cell or broker.leaders.get(key.instance) != key.node:
                continue
            state, member = broker.instances.get(key.instance), broker.members.get(MemberKey(*key))
            result = {"instance_id": key.instance, "node_id": key.node, "status": "asked", "description": ""}
            try:
                if state is None:
                    raise SwitchoverFailedError("there is no such instance")
                switch_over(member, key.node, state.admin_credentials)
            except (SwitchoverFailedError, httpx.HTTPError) as error:
                result |= {"status": "failed", "description": str(error)}
            results.append(result)
        return results
