"""`/v2/machines`, `/v2/members`, `/v2/stats`: what clients ask of the cluster rather than of its keys."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from keyplan.engine import Clock
from keyplan.server.etcd_member import CORS_HEADERS, EtcdRoute, Member, Membership
from keyplan.server.etcd_v2.gateway import Gateway

__all__ = ["MembersRoutes"]

_HEADERS: Final = {name.decode(): value.decode() for name, value in CORS_HEADERS}


class MembersRoutes:
    """The routes beside the keys. `advertised` are the addresses of all gateways on the store, if they are configured."""

    def __init__(
        self,
        gateway: Gateway,
        clock: Clock,
        advertised: Sequence[str] = (),
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._advertised = advertised
        self._started_at = clock.wall()

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            EtcdRoute("/v2/machines", self.machines, methods=("GET", "HEAD"), needs_caller=True),
            EtcdRoute("/v2/members", self.members, needs_caller=True),
            EtcdRoute("/v2/members/", self.members, needs_caller=True),
            EtcdRoute("/v2/members/leader", self.leader, needs_caller=True),
            EtcdRoute("/v2/members/{rest:path}", self.no_member, needs_caller=True),
            EtcdRoute("/v2/stats/self", self.own_statistics, needs_caller=True),
            EtcdRoute("/v2/stats/store", self.store_statistics, needs_caller=True),
            EtcdRoute("/v2/stats/leader", self.leader_statistics, needs_caller=True),
        ]

    def _members(self, request: Request) -> list[Member]:
        return Membership(self._gateway.identity, self._advertised).members(request.scope)

    async def machines(self, request: Request) -> Response:
        """Tell the addresses that a client may use, as text."""
        text = ", ".join(member.url for member in self._members(request))
        return Response(text, media_type="text/plain", headers=_HEADERS)

    async def members(self, request: Request) -> Response:
        """Tell the members."""
        return self._membership({"members": [_shown(member) for member in self._members(request)]})

    async def leader(self, request: Request) -> Response:
        """Tell the member that leads: there is always one, for the store decides alone."""
        return self._membership(_shown(self._members(request)[0]))

    async def no_member(self, _request: Request) -> Response:
        """Tell that there is no such member."""
        headers = _HEADERS | {"X-Etcd-Cluster-Id": self._gateway.identity.cluster_hex}
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

    async def store_statistics(self, _request: Request) -> Response:
        """Tell what this gateway counted."""
        return _json(self._gateway.statistics.report(self._gateway.hub.waiting))

    async def leader_statistics(self, request: Request) -> Response:
        """Tell of followers: there are none."""
        return _json({"leader": f"{self._members(request)[0].id:x}", "followers": {}})

    def _membership(self, body: dict[str, Any]) -> Response:
        headers = _HEADERS | {"X-Etcd-Cluster-Id": self._gateway.identity.cluster_hex}
        return Response(msgspec.json.encode(body) + b"\n", media_type="application/json", headers=headers)


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json", headers=_HEADERS)


def _shown(member: Member) -> dict[str, Any]:
    return {"id": f"{member.id:x}", "name": member.name, "peerURLs": [member.url], "clientURLs": [member.url]}
