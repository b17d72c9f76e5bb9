"""The gateway as a service of `keyplan serve`: `--app etcd-v3`. JSON over HTTP, and gRPC where it is set to listen."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Final

from prometheus_client import Gauge
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from keyplan.engine import Capability
from keyplan.errors import UnsupportedByEngineError
from keyplan.operations import described, operations_of
from keyplan.protobuf import ETCD
from keyplan.server.etcd_member import (
    BOOKS,
    URLS_FORM,
    EtcdRoute,
    MemberSettings,
    Membership,
    load_identity,
    not_found_route,
    version_route,
)
from keyplan.server.etcd_v3.declared import CONTRACT, GatewayCalls
from keyplan.server.etcd_v3.endpoint import Endpoint
from keyplan.server.etcd_v3.forms import JsonForm, ProtobufForm
from keyplan.server.etcd_v3.json_streams import JsonStreams
from keyplan.server.etcd_v3.messages import RECORDS
from keyplan.server.etcd_v3.rpc_streams import RpcStreams
from keyplan.server.etcd_v3.watching import Watches
from keyplan.server.rpc import RpcPlace, RpcRoute, require_grpc
from keyplan.server.service import Service, ServiceContext
from keyplan.settings import Setting, TextForm, of_service, read_settings

__all__ = ["SERVICE_NAME", "build"]

SERVICE_NAME: Final = "etcd-v3"

RequestFunction = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdV3Settings(MemberSettings):
    """What `keyplan serve --setting etcd-v3.NAME=TEXT` says. `progress` is etcd's own."""

    grpc: Annotated[
        str,
        Setting(
            "where gRPC is spoken, too; port 0 is any free one", form=TextForm(str, "`HOST:PORT`"), default="nowhere"
        ),
    ] = ""
    grpc_advertise: Annotated[
        tuple[str, ...],
        Setting(
            "the addresses of gRPC of all gateways on this store, the same list for each, for clients that ask for the members",
            form=URLS_FORM,
            default="where it listens",
        ),
    ] = ()

    progress: Annotated[
        float, Setting("how many seconds pass between two notices where it stands, for a watch that asked", least=0.001)
    ] = 600.0


_ALSO_BELOW_KEYS: Final = ("/v3/lease/revoke", "/v3/lease/timetolive", "/v3/lease/leases")

DESCRIPTION: Final = described(operations_of(GatewayCalls).values(), CONTRACT)


def build(context: ServiceContext) -> Service:
    """Build the service.

    The settings are those of EtcdV3Settings. Raises InvalidInputError for one that cannot be read, UnsupportedByEngineError for
    an engine without revisions, watches or leases.
    """
    for capability in (Capability.REVISIONS, Capability.WATCH, Capability.LEASES):
        if not context.profile.claims(capability):
            raise UnsupportedByEngineError(engine=context.profile.name, capability=capability.value)
    watches = Watches(context)
    gauge = Gauge("keyplan_etcd_v3_watches", "Watches that are open.", registry=context.metrics)
    gauge.set_function(lambda: watches.watches)
    settings = read_settings(EtcdV3Settings, of_service(context.settings, SERVICE_NAME))
    json, grpc = Endpoint(context, JsonForm()), Endpoint(context, ProtobufForm())
    json_streams = JsonStreams(context, watches, json, progress_seconds=settings.progress)
    routes: list[BaseRoute] = _json_routes(json, json_streams)
    place = None
    if settings.grpc:
        place = RpcPlace(settings.grpc, f"{SERVICE_NAME}.grpc")
        require_grpc(place.source)
        routes += _rpc_routes(grpc, RpcStreams(context, watches, grpc, progress_seconds=settings.progress))

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        identity = await context.run(load_identity, context.own(BOOKS))
        json.begin(identity, Membership(identity, settings.advertise))
        grpc.begin(identity, Membership(identity, settings.grpc_advertise))
        async with _ending_with(context, watches):
            yield

    return Service(SERVICE_NAME, routes, DESCRIPTION, running, has_own_access=True, is_confined=True, rpc=place)


@asynccontextmanager
async def _ending_with(context: ServiceContext, watches: Watches) -> AsyncIterator[None]:
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


_RECORDS_OF_CALLS: Final = {
    "put": RECORDS.PutRequest,
    "delete_range": RECORDS.DeleteRangeRequest,
    "transact": RECORDS.TxnRequest,
    "compact": RECORDS.CompactionRequest,
    "grant": RECORDS.LeaseGrantRequest,
    "revoke": RECORDS.LeaseRevokeRequest,
    "time_to_live": RECORDS.LeaseTimeToLiveRequest,
}
"""What each call that answers once takes, of those that are no short reads."""


def _unary_calls(endpoint: Endpoint) -> dict[str, RequestFunction]:
    """Return the functions of the calls that answer once, by their names in GatewayCalls: the same in every form."""
    declared = operations_of(GatewayCalls)
    return {
        **{
            name: endpoint.unary(attrgetter(name), record, declared=declared[name])
            for name, record in _RECORDS_OF_CALLS.items()
        },
        "range": endpoint.read_range(),
        "leases": endpoint.unary(attrgetter("leases"), RECORDS.LeaseLeasesRequest),
        "members": endpoint.members,
        "status": endpoint.unary(attrgetter("status"), RECORDS.StatusRequest, is_read=True),
        "authenticate": endpoint.authenticate,
    }


def _json_routes(endpoint: Endpoint, streams: JsonStreams) -> list[BaseRoute]:
    functions = {**_unary_calls(endpoint), "keep_alive": streams.keep_alive, "watch": streams.watch}
    paths = {one.path: functions[name] for name, one in operations_of(GatewayCalls).items()}
    # Why twice: clients of older versions ask there.
    paths |= {path.replace("/v3/lease/", "/v3/kv/lease/"): paths[path] for path in _ALSO_BELOW_KEYS}
    calls = [EtcdRoute(path, function, methods=("POST",)) for path, function in paths.items()]
    return [*calls, not_found_route("/v3/{rest:path}", "Not Found\n"), version_route()]


_RPCS: Final = {
    "range": ("KV", "Range"),
    "put": ("KV", "Put"),
    "delete_range": ("KV", "DeleteRange"),
    "transact": ("KV", "Txn"),
    "compact": ("KV", "Compact"),
    "watch": ("Watch", "Watch"),
    "grant": ("Lease", "LeaseGrant"),
    "revoke": ("Lease", "LeaseRevoke"),
    "keep_alive": ("Lease", "LeaseKeepAlive"),
    "time_to_live": ("Lease", "LeaseTimeToLive"),
    "leases": ("Lease", "LeaseLeases"),
    "members": ("Cluster", "MemberList"),
    "alarms": ("Maintenance", "Alarm"),
    "status": ("Maintenance", "Status"),
    "authenticate": ("Auth", "Authenticate"),
}
"""The calls by their names in gRPC."""


def _rpc_routes(endpoint: Endpoint, streams: RpcStreams) -> list[RpcRoute]:
    functions = {
        **_unary_calls(endpoint),
        "keep_alive": streams.keep_alive,
        "watch": streams.watch,
        "alarms": endpoint.unary(attrgetter("alarms"), RECORDS.AlarmRequest, is_read=True),
    }
    methods = {name: ETCD.method(*called) for name, called in _RPCS.items()}
    return [RpcRoute(one.path, functions[name], takes_stream=one.takes_stream) for name, one in methods.items()]
