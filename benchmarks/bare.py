"""`python -m benchmarks.bare FOLDER`: what a careful programmer serves a key of a store with, on keyplan's own HTTP stack.

uvicorn, httptools and Starlette as they are: each request's body is read, the key that its path is, is read from LMDB, and its
value is the answer. No callers, no bounds, no log, no figures. It prints its port.
"""

import asyncio
import socket
import subprocess
import sys
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import keyplan
from keyplan.engine import Engine

__all__ = ["BareServer", "main"]

_METHODS: Final = ["GET", "POST"]


def main(arguments: list[str]) -> None:
    """Serve the store in a folder until the process is ended."""
    with keyplan.open(f"lmdb:{arguments[0]}") as store, socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(
            _application(store.engine), http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
        )
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def _application(engine: Engine) -> Starlette:
    async def answer(request: Request) -> Response:
        await request.body()
        return Response(engine.value(request.url.path.encode()), media_type="application/json")

    return Starlette(routes=[Route("/{path:path}", answer, methods=_METHODS)])


class BareServer:
    """The same as a process, for a `with` block."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(  # noqa: S603  # Why: our own module, and our own folder.
            [sys.executable, "-m", "benchmarks.bare", self._folder], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


if __name__ == "__main__":
    main(sys.argv[1:])
