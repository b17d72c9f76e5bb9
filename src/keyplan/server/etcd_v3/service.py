"""The JSON gateway as a service of `keyplan serve`: `--app etcd-v3`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from prometheus_client import Gauge
from starlette.routing import Route

from keyplan.engine import Capability
from keyplan.errors import UnsupportedByEngineError
from keyplan.server.confined import ConfinedContext
from keyplan.server.etcd_member import (
    BOOKS,
    EtcdRoute,
    MemberSettings,
    Membership,
    load_identity,
    not_found_route,
    version_route,
)
from keyplan.server.etcd_v3.endpoint import Endpoint
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.watching import Watches
from keyplan.server.service import Service, ServiceContext
from keyplan.settings import Setting, of_service, read_settings

__all__ = ["SERVICE_NAME", "build"]

SERVICE_NAME: Final = "etcd-v3"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdV3Settings(MemberSettings):
    """What `keyplan serve --setting etcd-v3.NAME=TEXT` says. `progress` is etcd's own."""

    progress: Annotated[
        float, Setting("how many seconds pass between two notices where it stands, for a watch that asked", least=0.001)
    ] = 600.0


_CALLS: Final = {
    "/v3/kv/range": "Read a key or a range.",
    "/v3/kv/put": "Write a value.",
    "/v3/kv/deleterange": "Delete a key or a range.",
    "/v3/kv/txn": "Compare, and carry out one of two lists of requests.",
    "/v3/kv/compaction": "Forget history.",
    "/v3/lease/grant": "Grant a lease.",
    "/v3/lease/keepalive": "Renew leases.",
    "/v3/lease/revoke": "End a lease.",
    "/v3/lease/timetolive": "Tell how long a lease still lives.",
    "/v3/watch": "Follow changes.",
    "/v3/cluster/member/list": "List the gateways.",
    "/v3/maintenance/status": "Tell the version and the revision.",
    "/v3/auth/authenticate": "Get a token for a password.",
}


def build(context: ServiceContext) -> Service:
    """Build the service.

    The settings are those of EtcdV3Settings. Raises InvalidInputError for one that cannot be read, UnsupportedByEngineError for
    an engine without revisions, watches or leases.
    """
    for capability in (Capability.REVISIONS, Capability.WATCH, Capability.LEASES):
        if not context.engine.profile.claims(capability):
            raise UnsupportedByEngineError(engine=context.engine.profile.name, capability=capability.value)
    confined = ConfinedContext(context)
    watches = Watches(confined)
    gauge = Gauge("keyplan_etcd_v3_watches", "Watches that are open.", registry=context.metrics)
    gauge.set_function(lambda: watches.watches)
    settings = read_settings(EtcdV3Settings, of_service(context.settings, SERVICE_NAME))
    endpoint = Endpoint(confined, watches, progress_seconds=settings.progress)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        identity = await context.run(load_identity, confined.own(BOOKS))
        endpoint.begin(identity, Membership(identity, settings.advertise))
        async with _ending_with(confined, watches):
            yield

    return Service(
        SERVICE_NAME, _routes(endpoint), {"paths": _described()}, running, has_own_access=True, is_confined=True
    )


@asynccontextmanager
async def _ending_with(context: ConfinedContext, watches: Watches) -> AsyncIterator[None]:
    """End the watches when the server begins to stop: it waits for its requests."""

    async def end() -> None:
        await context.closing.wait()
        await watches.close()

    ending = asyncio.create_task(end())
    try:
        yield
    finally:
        ending.cancel()
        await watches.close()


def _routes(endpoint: Endpoint) -> list[Route]:
    functions = {
        "/v3/kv/range": endpoint.read_range(),
        "/v3/kv/put": endpoint.unary(lambda calls: calls.put, RECORDS.PutRequest),
        "/v3/kv/deleterange": endpoint.unary(lambda calls: calls.delete_range, RECORDS.DeleteRangeRequest),
        "/v3/kv/txn": endpoint.unary(lambda calls: calls.transact, RECORDS.TxnRequest),
        "/v3/kv/compaction": endpoint.unary(lambda calls: calls.compact, RECORDS.CompactionRequest),
        "/v3/lease/grant": endpoint.unary(lambda calls: calls.grant, RECORDS.LeaseGrantRequest),
        "/v3/lease/keepalive": endpoint.keep_alive,
        "/v3/lease/revoke": endpoint.unary(lambda calls: calls.revoke, RECORDS.LeaseRevokeRequest),
        "/v3/kv/lease/revoke": endpoint.unary(lambda calls: calls.revoke, RECORDS.LeaseRevokeRequest),
        "/v3/lease/timetolive": endpoint.unary(lambda calls: calls.time_to_live, RECORDS.LeaseTimeToLiveRequest),
        "/v3/kv/lease/timetolive": endpoint.unary(lambda calls: calls.time_to_live, RECORDS.LeaseTimeToLiveRequest),
        "/v3/watch": endpoint.watch,
        "/v3/cluster/member/list": endpoint.members,
        "/v3/maintenance/status": endpoint.unary(lambda calls: calls.status, RECORDS.StatusRequest, is_read=True),
        "/v3/auth/authenticate": endpoint.authenticate,
    }
    calls = [EtcdRoute(path, function, methods=("POST",)) for path, function in functions.items()]
    return [*calls, not_found_route("/v3/{rest:path}", "Not Found\n"), version_route()]


def _described() -> dict[str, Any]:
    return {
        path: {
            "post": {
                "summary": summary,
                "tags": ["etcd-v3"],
                "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                "responses": {
                    "200": {"description": "The answer as grpc-gateway writes it."},
                    "default": {"description": "`error`, `message`, `code`."},
                },
            }
        }
        for path, summary in _CALLS.items()
    }
