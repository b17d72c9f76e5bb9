"""The etcd gateways in this process: served by uvicorn from a thread, over an engine that the test can also use itself."""

import asyncio
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvicorn

from keyplan.audit_log import AuditLog
from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.server import Access, Application, EdgeBounds, RpcTerms, ServiceBuilder, TrustedProxies, etcd_v2, etcd_v3
from keyplan.server.connections import Connections

__all__ = ["GatewayServer"]

_START_SECONDS_MAX: Final = 90.0
_BUILDERS: Final[Mapping[str, ServiceBuilder]] = {"etcd-v2": etcd_v2.build, "etcd-v3": etcd_v3.build}


class GatewayServer:
    """Both gateways, or others, on any free port or a given one, for a `with` block: `server.url`; the engine stays open.

    With the setting `etcd-v3.grpc` that of v3 speaks gRPC, too: `server.endpoint`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        settings: Mapping[str, str] | None = None,
        access: Access | None = None,
        clock: Clock = SYSTEM_CLOCK,
        port: int = 0,
        builders: Mapping[str, ServiceBuilder] = _BUILDERS,
        audit_log: AuditLog | None = None,
        bounds: EdgeBounds | None = None,
        tls: tuple[Path | None, Path | None] = (None, None),
    ) -> None:
        self.engine = engine
        self._application = Application.build(
            engine, builders, settings=settings, access=access, clock=clock, audit_log=audit_log, bounds=bounds
        )
        config = uvicorn.Config(
            self._application.asgi, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5
        )
        self._server = uvicorn.Server(config)
        # Trap: asyncio sends small answers at once only on a socket that says that it is TCP; others wait 40 ms for the client.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # Why: a server in another process may have been here a moment ago.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(1_024)
        proxies = TrustedProxies() if access is None else access.proxies
        calls = Connections(bounds or EdgeBounds(), proxies, self._application.refusals)
        self._terms = RpcTerms(calls, self._application.closing, tls_certificate=tls[0], tls_key=tls[1])
        self.endpoint = ""
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        """The address, as in http://127.0.0.1:41234."""
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with self._application.running(), self._application.listening_for_rpcs(self._terms) as spoken:
            self.endpoint = spoken[0].partition("://")[2] if spoken else ""
            self._is_up.set()
            await self._server.serve(sockets=[self._socket])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(_START_SECONDS_MAX)
        return self

    def stop(self) -> None:
        """End streams, then the server. Stopping twice is harmless."""
        self._application.closing.set()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
