"""A HEPnOS server in this process: served by uvicorn from a thread, on a free port of loopback."""

import asyncio
import socket
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import uvicorn

from keyplan.apps.hepnos.service import build
from keyplan.engine import open_engine
from keyplan.server import Access, Application, EdgeBounds

__all__ = ["HepnosServer"]

_START_SECONDS_MAX: Final = 90.0


class HepnosServer:
    """A server for a `with` block: `server.url`. Settings are those of the service, without its name."""

    def __init__(
        self, settings: Mapping[str, str], *, access: Access | None = None, bounds: EdgeBounds | None = None
    ) -> None:
        own = {f"hepnos.{name}": value for name, value in settings.items()}
        self._engine = open_engine("memory:")
        self._application = Application.build(
            self._engine, {"hepnos": build}, settings=own, access=access, bounds=bounds
        )
        config = uvicorn.Config(
            self._application.asgi, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5
        )
        self._server = uvicorn.Server(config)
        # Trap: asyncio sends small answers at once only on a socket that says that it is TCP; others wait 40 ms for the client.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(1_024)
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hepnos-server", daemon=True)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with self._application.running():
            self._is_up.set()
            await self._server.serve(sockets=[self._socket])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(_START_SECONDS_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._engine.close()
