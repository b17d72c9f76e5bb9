"""Frames on a HEPnOS server's side: the way to a connection for them, and what all such connections have in common.

From where it is read, a request goes the way of one of HTTP: `DatabasesResponder.carry_out` finds the caller's databases,
decides, notes and performs. What a connection needs beside it is in `service_session.py`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.frames import FRAMES_PATH, FRAMES_PROTOCOL
from keyplan.apps.hepnos.service_databases import DatabasesResponder
from keyplan.apps.hepnos.service_figures import FrameFigures
from keyplan.apps.hepnos.service_parts import FrameAnswer
from keyplan.apps.hepnos.service_queues import KeptQueues
from keyplan.apps.hepnos.service_session import FramesSession
from keyplan.operations import Operation
from keyplan.server import ServiceContext, Upgraded

__all__ = ["FramesResponder"]


class FramesResponder(DatabasesResponder):
    """Answers frames, and has the route by which a connection becomes one for frames. Of `log_each` one has a line."""

    def __init__(self, context: ServiceContext, databases: Databases, queues: KeptQueues, *, log_each: int) -> None:
        super().__init__(context, databases, queues)
        self._figures = FrameFigures(context, log_each)
        self._left: set[asyncio.Task[None]] = set()

    def way_in(self) -> BaseRoute:
        """Return the route that a client asks for a connection for frames."""

        async def endpoint(request: Request) -> Response:
            return Upgraded(request, FRAMES_PROTOCOL, FramesSession(self, request, self._figures, self._left))

        return Route(FRAMES_PATH, endpoint, methods=["GET"])

    def write(self, operation: Operation, result: Any, status: int, headers: Mapping[str, str]) -> Response:
        return FrameAnswer(operation, result, status, headers)
