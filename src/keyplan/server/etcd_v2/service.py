"""The v2 keys API as a service of `keyplan serve`: `--app etcd-v2`."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from keyplan.access import OnOperation
from keyplan.engine import Clock
from keyplan.operations import Act, Operation, described, operations_of
from keyplan.server.access import Access, caller_of
from keyplan.server.answers import REASON
from keyplan.server.etcd_member import (
    EtcdRoute,
    Member,
    MemberSettings,
    Membership,
    answer_unknown,
    insufficient_credentials,
    version_route,
)
from keyplan.server.etcd_v2.declared import CONTRACT, PREFIX, Keys, Members
from keyplan.server.etcd_v2.endpoint import KeysEndpoint
from keyplan.server.etcd_v2.gateway import Gateway
from keyplan.server.etcd_v2.ledger import Ledger
from keyplan.server.etcd_v2.operations import HISTORY_EVENTS_DEFAULT
from keyplan.server.etcd_v2.reach import with_books
from keyplan.server.operations import Endpoint
from keyplan.server.service import Service, ServiceContext
from keyplan.settings import Setting, of_service, read_settings

__all__ = ["DESCRIPTION", "SERVICE_NAME", "build"]

SERVICE_NAME: Final = "etcd-v2"
_STORE_STATISTICS: Final = OnOperation(operations_of(Members)["store_statistics"].name)
DESCRIPTION: Final = described([one for kind in (Keys, Members) for one in operations_of(kind).values()], CONTRACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdV2Settings(MemberSettings):
    """What `keyplan serve --setting etcd-v2.NAME=TEXT` says."""

    history: Annotated[
        int,
        Setting(
            "how many events can be waited for in the past; the same number for all gateways on a store", least=100
        ),
    ] = HISTORY_EVENTS_DEFAULT


def build(context: ServiceContext) -> Service:
    """Build the service.

    The settings are those of EtcdV2Settings. Raises InvalidInputError for one that cannot be read, UnsupportedByEngineError for
    an engine without revisions, watches or leases.
    """
    settings = read_settings(EtcdV2Settings, of_service(context.settings, SERVICE_NAME))
    ledger = Ledger(context.whole_store(), context.clock, history_events=settings.history)
    gateway = Gateway(context.with_books(with_books, ledger.leases), ledger, history_events=settings.history)
    members = MembersRoutes(gateway, context.access, context.clock, settings.advertise)
    keys = KeysEndpoint(gateway, context.audit)
    context.metrics.register(GatewayFigures(gateway))
    routes = [
        _KeysRoute(PREFIX + "/{path:path}", keys),
        *members.routes(),
        version_route(),
        EtcdRoute("/health", _health_of(gateway), methods=("GET", "HEAD")),
    ]
    # Why its own access: who is not let in is told so in etcd's words, which its clients know.
    return Service(
        SERVICE_NAME,
        routes,
        DESCRIPTION,
        gateway.running,
        has_own_access=True,
        is_confined=True,
        unknown=answer_unknown,
    )


class _KeysRoute(Route):
    """The keys and everything below. Trap: a path parameter of Starlette's takes no line's end, which a key may hold."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the prefix."""
        path: str = scope["path"]
        if path != PREFIX and not path.startswith(PREFIX + "/"):
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": {}}


def _health_of(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that tells, in etcd's words, whether the store can be read."""

    async def answer(_request: Request) -> Response:
        if await gateway.is_readable():
            return Response(b'{"health":"true"}', media_type="application/json")
        return Response(b'{"health":"false"}', 503, media_type="application/json")

    return answer


# ---- members and statistics -------------------------------------------------------------------------------------------


class MembersRoutes:
    """The routes beside the keys. `advertised` are the addresses of all gateways on the store, if they are configured."""

    def __init__(
        self,
        gateway: Gateway,
        access: Access,
        clock: Clock,
        advertised: Sequence[str] = (),
    ) -> None:
        self._gateway = gateway
        self._access = access
        self._clock = clock
        self._advertised = advertised
        self._started_at = clock.wall()

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            *(
                route
                for name, declared in operations_of(Members).items()
                for route in _routes_of(declared, getattr(self, name))
            ),
            EtcdRoute("/v2/members/{rest:path}", self.no_member, needs_caller=True),
        ]

    def _members(self, request: Request) -> list[Member]:
        return Membership(self._gateway.identity, self._advertised).members(request.scope)

    async def machines(self, request: Request) -> Response:
        """Tell the addresses that a client may use, as text."""
        text = ", ".join(member.url for member in self._members(request))
        return Response(text, media_type="text/plain")

    async def members(self, request: Request) -> Response:
        """Tell the members."""
        return self._membership({"members": [_shown(member) for member in self._members(request)]})

    async def leader(self, request: Request) -> Response:
        """Tell the member that leads: there is always one, for the store decides alone."""
        return self._membership(_shown(self._members(request)[0]))

    async def no_member(self, _request: Request) -> Response:
        """Tell that there is no such member."""
        headers = {"X-Etcd-Cluster-Id": self._gateway.identity.cluster_hex}
        return Response(b'{"message":"Not found"}', 404, headers, "application/json")

    async def own_statistics(self, request: Request) -> Response:
        """Tell who answers and since when."""
        member = self._members(request)[0]
        started = datetime.fromtimestamp(self._started_at, UTC).isoformat().replace("+00:00", "Z")
        uptime_seconds = self._clock.wall() - self._started_at
        return _json(
            {
                "name": member.name,
                "id": f"{member.id:x}",
                "state": "StateLeader",
                "startTime": started,
                "leaderInfo": {"leader": f"{member.id:x}", "uptime": f"{uptime_seconds:.6f}s", "startTime": started},
                "recvAppendRequestCnt": 0,
                "sendAppendRequestCnt": 0,
            }
        )

    async def store_statistics(self, request: Request) -> Response:
        """Tell what this gateway counted: everybody's requests."""
        caller = caller_of(request)
        if caller is None or not self._access.allows(caller, Act.READ, _STORE_STATISTICS):
            request.scope[REASON] = "access_denied"
            return insufficient_credentials()
        return _json(self._gateway.statistics.report(self._gateway.hub.waiting))

    async def leader_statistics(self, request: Request) -> Response:
        """Tell of followers: there are none."""
        return _json({"leader": f"{self._members(request)[0].id:x}", "followers": {}})

    def _membership(self, body: dict[str, Any]) -> Response:
        headers = {"X-Etcd-Cluster-Id": self._gateway.identity.cluster_hex}
        return Response(msgspec.json.encode(body) + b"\n", media_type="application/json", headers=headers)


def _routes_of(declared: Operation, endpoint: Endpoint) -> list[BaseRoute]:
    paths = [declared.path, *([f"{declared.path}/"] if declared.has_slash else [])]
    # Why: of what etcd tells of itself, the text alone has a HEAD.
    methods = ("GET", "HEAD") if declared.returns is str else ("GET",)
    return [EtcdRoute(path, endpoint, methods=methods, needs_caller=True) for path in paths]


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _shown(member: Member) -> dict[str, Any]:
    return {"id": f"{member.id:x}", "name": member.name, "peerURLs": [member.url], "clientURLs": [member.url]}


# ---- figures ----------------------------------------------------------------------------------------------------------


class GatewayFigures(Collector):
    """What `/v2/stats/store` tells too, and how many operations are queued. Register it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        operations = CounterMetricFamily(
            "keyplan_etcd_v2_operations", "Operations on keys by kind and result.", labels=("kind", "result")
        )
        for kind, result, number in self._gateway.statistics.operations():
            operations.add_metric((kind, result), number)
        yield operations
        expired = CounterMetricFamily("keyplan_etcd_v2_expired", "Keys and directories whose TTL was over.")
        expired.add_metric((), self._gateway.statistics.expired)
        yield expired
        for name, text, value in (
            ("waiters", "Requests that wait for an event.", self._gateway.hub.waiting),
            ("operations_pending", "Operations that wait for a commit.", self._gateway.pending),
            ("uncounted", "Changes of others that have no number yet.", self._gateway.uncounted),
        ):
            yield GaugeMetricFamily(f"keyplan_etcd_v2_{name}", text, value=value)
