"""`python -m benchmarks.frames_in_flight FOLDER`: requests under way at once on one connection, by hand for asyncio.

Frames of a length, an id and a body: a key, and what one LMDB file has there. What comes at once is read in one transaction and
answered in one write. No names, no placement, no tokens, no bounds, no log: what is left is what the event loops take.
"""

import asyncio
import sys
from collections.abc import Iterator
from struct import Struct
from typing import Final, cast

import lmdb
import uvloop

__all__ = ["AskingByHand", "main"]

_HEAD: Final = Struct("<II")
_MAP_BYTES: Final = 1 << 34


class _Frames(asyncio.Protocol):
    """A connection, and what has come of a frame that is not whole."""

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def _found(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        data, at = self._rest + data, 0
        while len(data) - at >= _HEAD.size:
            length, number = _HEAD.unpack_from(data, at)
            begin = at + _HEAD.size
            if len(data) < begin + length:
                break
            at = begin + length
            yield number, data[begin:at]
        self._rest = data[at:]


class _Answering(_Frames):
    def __init__(self, environment: lmdb.Environment, gone: asyncio.Event) -> None:
        super().__init__()
        self._environment = environment
        self._gone = gone

    def data_received(self, data: bytes) -> None:
        parts: list[bytes] = []
        with self._environment.begin() as transaction:
            for number, key in self._found(data):
                value: bytes = transaction.get(key) or b""
                parts += (_HEAD.pack(len(value), number), value)
        self.transport.write(b"".join(parts))

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()


class AskingByHand(_Frames):
    """The client's side."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._written: list[bytes] = []
        self._number = 0

    async def ask(self, key: bytes) -> bytes:
        """Return the value at a key."""
        self._number += 1
        answer = self._asked[self._number] = self._loop.create_future()
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(_HEAD.pack(len(key), self._number) + key)
        found: bytes = await answer
        return found

    def _send(self) -> None:
        written, self._written = self._written, []
        self.transport.write(b"".join(written))

    def data_received(self, data: bytes) -> None:
        for number, value in self._found(data):
            self._asked.pop(number).set_result(value)


async def _serve(environment: lmdb.Environment) -> None:
    gone = asyncio.Event()
    server = await asyncio.get_running_loop().create_server(lambda: _Answering(environment, gone), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await gone.wait()
    server.close()


def main(folder: str) -> None:
    """Serve a folder on a free port of loopback, whose number is printed, until the first connection ends."""
    # Why uvloop: keyplan's server has it, too.
    with (
        lmdb.open(folder, map_size=_MAP_BYTES) as environment,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(environment))


if __name__ == "__main__":
    main(sys.argv[1])
