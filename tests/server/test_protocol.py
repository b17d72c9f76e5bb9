"""What the server's protocol adds to uvicorn's: an answer goes out in one piece. Its bounds: test_process.py."""

import asyncio
from collections.abc import Iterable

from keyplan.server.protocol import GatheringTransport


class Wire(asyncio.Transport):
    """A transport that keeps what it is given, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.is_closed = False

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview]") -> None:
        self.pieces.append(b"".join(list_of_data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def test_what_is_written_in_one_turn_of_the_loop_is_sent_at_once() -> None:
    async def main() -> list[bytes]:
        wire = Wire()
        gathering = GatheringTransport(wire, asyncio.get_running_loop())
        gathering.write(b"head, ")
        gathering.writelines([b"bo", b"dy"])
        await asyncio.sleep(0)
        # A stream's next part waits for nothing but the turn.
        gathering.write(b"event")
        await asyncio.sleep(0)
        return wire.pieces

    assert asyncio.run(main()) == [b"head, body", b"event"]


def test_closing_sends_what_was_written_and_aborting_does_not() -> None:
    async def main() -> list[list[bytes]]:
        wires = [Wire(), Wire()]
        closed, aborted = (GatheringTransport(wire, asyncio.get_running_loop()) for wire in wires)
        for gathering in (closed, aborted):
            gathering.write(b"last words")
        closed.close()
        aborted.abort()
        await asyncio.sleep(0)
        assert closed.is_closing()
        return [wire.pieces for wire in wires]

    assert asyncio.run(main()) == [[b"last words"], []]
