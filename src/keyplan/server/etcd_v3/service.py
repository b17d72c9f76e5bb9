"""The JSON gateway as a service of `keyplan serve`: `--app etcd-v3`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Final

from prometheus_client import Gauge
from starlette.requests import Request
from starlette.routing import Route

from keyplan.engine import Capability
from keyplan.errors import UnsupportedByEngineError
from keyplan.operations import described, operations_of
from keyplan.server.etcd_member import (
    BOOKS,
    EtcdRoute,
    MemberSettings,
    Membership,
    load_identity,
    not_found_route,
    version_route,
)
from keyplan.server.etcd_v3.declared import CONTRACT, GatewayCalls
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


_ALSO_BELOW_KEYS: Final = ("/v3/lease/revoke", "/v3/lease/timetolive")

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
    endpoint = Endpoint(context, watches, progress_seconds=settings.progress)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        identity = await context.run(load_identity, context.own(BOOKS))
        endpoint.begin(identity, Membership(identity, settings.advertise))
        async with _ending_with(context, watches):
            yield

    return Service(SERVICE_NAME, _routes(endpoint), DESCRIPTION, running, has_own_access=True, is_confined=True)


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


def _routes(endpoint: Endpoint) -> list[Route]:
    declared = operations_of(GatewayCalls)

    def changing(name: str, record: Any) -> Callable[[Request], Any]:
        return endpoint.unary(attrgetter(name), record, declared=declared[name])

    functions = {
        "range": endpoint.read_range(),
        "put": changing("put", RECORDS.PutRequest),
        "delete_range": changing("delete_range", RECORDS.DeleteRangeRequest),
        "transact": changing("transact", RECORDS.TxnRequest),
        "compact": changing("compact", RECORDS.CompactionRequest),
        "grant": changing("grant", RECORDS.LeaseGrantRequest),
        "keep_alive": endpoint.keep_alive,
        "revoke": changing("revoke", RECORDS.LeaseRevokeRequest),
        "time_to_live": endpoint.unary(attrgetter("time_to_live"), RECORDS.LeaseTimeToLiveRequest),
        "watch": endpoint.watch,
        "members": endpoint.members,
        "status": endpoint.unary(attrgetter("status"), RECORDS.StatusRequest, is_read=True),
        "authenticate": endpoint.authenticate,
    }
    paths = {one.path: functions[name] for name, one in declared.items()}
    # Why twice: clients of older versions ask there.
    paths |= {path.replace("/v3/lease/", "/v3/kv/lease/"): paths[path] for path in _ALSO_BELOW_KEYS}
    calls = [EtcdRoute(path, function, methods=("POST",)) for path, function in paths.items()]
    return [*calls, not_found_route("/v3/{rest:path}", "Not Found\n"), version_route()]
