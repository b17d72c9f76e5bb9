"""Routes that both gateways have: `/version` as etcd answers it, and what etcd says to an unknown path."""

from importlib.metadata import version
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keyplan.server.etcd_member.identity import CLUSTER_VERSION, SERVER_VERSION

__all__ = ["plain_not_found", "version_route"]

_VERSION: Final = msgspec.json.encode(
    {"etcdserver": SERVER_VERSION, "etcdcluster": CLUSTER_VERSION, "program": "keyplan", "version": version("keyplan")}
)


async def _tell_version(_request: Request) -> Response:
    return Response(_VERSION, media_type="application/json")


def version_route() -> Route:
    """Return the route by which clients find out what they talk to.

    Why not the shell's answer: Patroni looks for `etcdserver` and `etcdcluster`. Trap: it sends a body with its GET.
    """
    return Route("/version", _tell_version, methods=["GET", "HEAD"])


async def plain_not_found(_request: Request) -> Response:
    """Answer as etcd does where it has nothing."""
    return Response(b"404 page not found\n", 404, media_type="text/plain")
