"""The v2 keys API as a service of `keyplan serve`: `--app etcd-v2`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from keyplan.errors import InvalidInputError
from keyplan.server.etcd_member import EtcdRoute, Membership, answer_unknown, version_route
from keyplan.server.etcd_v2.endpoint import PREFIX, KeysEndpoint
from keyplan.server.etcd_v2.figures import GatewayFigures
from keyplan.server.etcd_v2.gateway import Gateway
from keyplan.server.etcd_v2.journal import HISTORY_EVENTS_DEFAULT
from keyplan.server.etcd_v2.members import MembersRoutes
from keyplan.server.etcd_v2.openapi import OPENAPI
from keyplan.server.service import Service, ServiceContext

__all__ = ["SERVICE_NAME", "build"]

SERVICE_NAME: Final = "etcd-v2"

_HISTORY_EVENTS_MIN: Final = 100


def build(context: ServiceContext) -> Service:
    """Build the service.

    Settings: `advertise`, the addresses of all gateways on this store, separated by commas; `history`, how many events are
    kept, the same number for all of them. Raises InvalidInputError for a setting that cannot be read, UnsupportedByEngineError
    for an engine without revisions, watches or leases.
    """
    gateway = Gateway(context, history_events=_history_events(context.settings))
    members = MembersRoutes(gateway, context.clock, tuple(Membership.read(context.settings)))
    keys = KeysEndpoint(gateway)
    context.metrics.register(GatewayFigures(gateway))
    routes = [
        _KeysRoute(PREFIX + "/{path:path}", keys),
        *members.routes(),
        version_route(),
        EtcdRoute("/health", _health_of(gateway), methods=("GET", "HEAD")),
    ]
    # Why its own access: who is not let in is told so in etcd's words, which its clients know.
    return Service(SERVICE_NAME, routes, OPENAPI, gateway.running, has_own_access=True, unknown=answer_unknown)


class _KeysRoute(Route):
    """The keys and everything below. Trap: a path parameter of Starlette's takes no line's end, which a key may hold."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the prefix."""
        path: str = scope["path"]
        if path != PREFIX and not path.startswith(PREFIX + "/"):
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": {}}


def _history_events(settings: Mapping[str, str]) -> int:
    text = settings.get("history", str(HISTORY_EVENTS_DEFAULT))
    if not (text.isascii() and text.isdigit() and int(text) >= _HISTORY_EVENTS_MIN):
        raise InvalidInputError(source="history", problem=f"{text!r} is no number of {_HISTORY_EVENTS_MIN} or more")
    return int(text)


def _health_of(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that tells, in etcd's words, whether the store can be read."""

    async def answer(_request: Request) -> Response:
        if await gateway.is_readable():
            return Response(b'{"health":"true"}', media_type="application/json")
        return Response(b'{"health":"false"}', 503, media_type="application/json")

    return answer
