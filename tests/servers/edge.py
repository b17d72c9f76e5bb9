"""A server in this process with all of its edge: its protocol and its bounds, over TCP, TLS or a unix socket."""

import asyncio
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvicorn

from keyplan.audit_log import AuditLog
from keyplan.engine import Engine, MemoryEngine
from keyplan.server import Access, Application, EdgeBounds, ServerOptions, ServiceBuilder
from keyplan.server.listen import listener
from keyplan.server.process import GRACE_SECONDS_DEFAULT, uvicorn_config
from tests.servers.authority import Authority

__all__ = ["EdgeServer"]

_START_SECONDS_MAX: Final = 90.0


class EdgeServer:
    """Services for a `with` block: `server.port`, or `server.path` of a unix socket. With an `authority`, over TLS."""

    def __init__(
        self,
        builders: Mapping[str, ServiceBuilder],
        *,
        engine: Engine | None = None,
        access: Access | None = None,
        bounds: EdgeBounds | None = None,
        authority: Authority | None = None,
        path: Path | None = None,
        grace_seconds: float = GRACE_SECONDS_DEFAULT,
        settings: Mapping[str, str] | None = None,
        audit_log: AuditLog | None = None,
    ) -> None:
        self.engine = engine or MemoryEngine()
        self.path = path
        options = ServerOptions(
            "memory:", access=access or Access(), bounds=bounds or EdgeBounds(), grace_seconds=grace_seconds
        )
        if authority is not None:
            options = replace(
                options,
                tls_certificate=authority.certificate("server"),
                tls_key=authority.key("server"),
                tls_client_authority=authority.ca,
            )
        self._application = Application.build(
            self.engine,
            builders,
            access=options.access,
            bounds=options.bounds,
            settings=settings,
            audit_log=audit_log,
        )
        # Why after it: services that cannot be built leave nothing open.
        self._listener = listener(f"unix:{path}" if path else "127.0.0.1:0", allow_remote=False)
        self.port = 0 if path else int(self._listener.socket.getsockname()[1])
        """Where it listens, or has listened."""
        self._scheme = "http" if authority is None else "https"
        self._server = uvicorn.Server(uvicorn_config(self._application, options))
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edge", daemon=True)

    @property
    def url(self) -> str:
        """Where it is, as clients write it."""
        return f"unix:{self.path}" if self.path else f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections it has."""
        return len(self._server.server_state.connections)

    def connect(self) -> socket.socket:
        """Open a connection, which waits for answers at most a minute."""
        if self.path is None:
            return socket.create_connection(("127.0.0.1", self.port), timeout=60)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.settimeout(60)
        opened.connect(str(self.path))
        return opened

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with self._application.running():
            self._is_up.set()
            await self._server.serve(sockets=[self._listener.socket])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(_START_SECONDS_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._application.closing.set()
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
