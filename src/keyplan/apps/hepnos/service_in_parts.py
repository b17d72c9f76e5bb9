"""A HEPnOS server's answers in parts. Each part is as of one state, and is sent as far as its client lets it."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from typing import Any, Final, Protocol, TypeAlias

from keyplan.apps.hepnos.frames import OPERATIONS, FrameKind
from keyplan.apps.hepnos.operations import MORE_HEADER, PAGE_KEYS_MAX
from keyplan.apps.hepnos.service_databases import DatabasesResponder, ServedDatabases
from keyplan.apps.hepnos.service_parts import Asked, Credits, FrameAnswer
from keyplan.engine import PIECE_PAIRS_MAX, KeyRange
from keyplan.operations import Operation
from keyplan.server import AnswerError

__all__ = ["AnswersInParts", "SendPart"]

_PAGE: Final = OPERATIONS[FrameKind.LIST]
_TURN_BYTES: Final = 2 << 20
"""What is sent as it is read before others have their turn. Why so much: it is two milliseconds, and a turn costs as much as
reading 70 products of 1 KiB."""

_VALUES_BYTES: Final = 1 << 20
"""Of a part of values by their keys. Why more than of a list: who asked for them has all of them in memory anyway."""

_PAGE_BYTES: Final = 512 << 10
"""Of a part of a list where reads are waited for. Why more than of one that is sent as it is read: each is a call."""

_READ_AT_ONCE: Final = 16
"""Of an engine that is waited for, parts that are read at once for a connection. Why no more: there are as many threads."""

_FIRST_KEYS: Final = 256
"""Of a part of values, before it is known how large they are."""

_Parts: TypeAlias = Generator[dict[str, Any], FrameAnswer, None]
"""Yields the arguments of each part, and is sent the answer to it."""


def _values(arguments: dict[str, Any]) -> _Parts:
    keys, at, number = arguments["keys"], 0, _FIRST_KEYS
    while True:
        part = keys[at : at + number]
        answer = yield {**arguments, "keys": part}
        at += len(part)
        if at >= len(keys):
            return
        number = max(1, min(8 * number, PAGE_KEYS_MAX, _VALUES_BYTES * len(part) // (answer.size + 1)))


def _pages(arguments: dict[str, Any]) -> _Parts:
    key_range: KeyRange = arguments["key_range"]
    is_reversed, limit = arguments["reverse"], arguments["limit"]
    number = min(limit, _FIRST_KEYS if arguments["values"] else limit)
    while True:
        answer = yield {**arguments, "key_range": key_range, "limit": number}
        if not answer.has_more:
            return
        if arguments["values"]:
            number = max(1, min(8 * number, limit, _PAGE_BYTES * number // (answer.size + 1)))
        key_range = _behind(key_range, answer.result[0][-1], reverse=is_reversed)


_PARTS: Final[Mapping[str, Callable[[dict[str, Any]], _Parts]]] = {"get_values": _values, "page": _pages}
"""How the answers come in parts of the operations that can, by the names of their methods."""


class SendPart(Protocol):
    """Sends an answer, or a part of it. Whoever sends says what is held of it."""

    def __call__(self, asked: Asked, answer: FrameAnswer, *, is_part: bool = False) -> None: ...


class AnswersInParts:
    """The answers of one connection that come in parts.

    `writable` is set while the client takes what it is sent; `freed` is set when an answer begins to wait for its client.
    """

    def __init__(
        self,
        responder: DatabasesResponder,
        credit: Credits,
        *,
        writable: asyncio.Event,
        freed: asyncio.Event,
        send: SendPart,
    ) -> None:
        self._responder = responder
        self._credit = credit
        self._writable = writable
        self._freed = freed
        self._send = send
        self._turn = asyncio.Semaphore(1 if responder.has_local_reads else _READ_AT_ONCE)
        """Of who reads and sends. Why: a thousand may be let at once, or wait until the client takes more, and all that they
        have read would be in memory."""

    async def answer(self, asked: Asked, arguments: dict[str, Any], columns: bytes) -> None:
        """Answer a request in parts, whose columns are still to be read. Raises what it is refused with."""
        operation = asked.operation
        assert operation.body is not None
        arguments |= operation.body.read(columns)
        # Why not with few keys: a page that is sent as it is read has some hundreds.
        is_sent_as_read = operation is _PAGE and arguments["values"] and arguments["limit"] >= 2 * PIECE_PAIRS_MAX
        if is_sent_as_read and self._responder.has_local_reads:
            await self._send_as_read(asked, arguments)
        else:
            await self._send_one_by_one(asked, arguments)

    async def _send_one_by_one(self, asked: Asked, arguments: dict[str, Any]) -> None:
        """Send parts that are operations of their own, which are performed as others are."""
        operation = asked.operation
        parts = _PARTS[operation.attribute](arguments)
        own: dict[str, Any] | None = next(parts)
        while own is not None:
            is_let = await self._is_let(asked)
            async with self._turn:
                await self._writable.wait()
                if is_let:
                    answer = await self._responder.carry_out(asked.request, operation, own)
                    assert isinstance(answer, FrameAnswer)
                    own = None
                    with suppress(StopIteration):  # Why: it is how the last part is told.
                        own = parts.send(answer)
                else:
                    answer, own = _no_page(operation, arguments), None
                asked.holding.keep_answer(answer.size)
                self._send(asked, answer, is_part=own is not None)
                await self._end_turn(asked, is_last=own is None)

    async def _send_as_read(self, asked: Asked, arguments: dict[str, Any]) -> None:
        """Send pages with values, each as soon as it is read. Why: a processor's cache has it then, and not four at once."""
        rest: KeyRange | None = arguments["key_range"]
        while rest is not None:
            is_let = await self._is_let(asked)
            async with self._turn:
                await self._writable.wait()
                sent_bytes = 0
                if is_let:
                    served = await self._responder.served_at(asked.request, asked.operation, arguments)
                    rest, sent_bytes = self._send_pages(asked, served, arguments, rest)
                else:
                    rest = None
                    self._send(asked, _no_page(asked.operation, arguments))
                asked.holding.keep_answer(sent_bytes)
                await self._end_turn(asked, is_last=rest is None)

    def _send_pages(
        self, asked: Asked, served: ServedDatabases, arguments: Mapping[str, Any], rest: KeyRange
    ) -> tuple[KeyRange | None, int]:
        """Send the next pages of a range, as many as may be, of about 2 MiB.

        Return what is left, None behind the last, and how many bytes they have.
        """
        operation, is_reversed, sent_bytes = asked.operation, arguments["reverse"], 0
        with closing(served.pages(arguments["kind"], arguments["number"], rest, reverse=is_reversed)) as pages:
            for columns in pages:
                answer = FrameAnswer(operation, columns, operation.status, {MORE_HEADER: "1"})
                self._send(asked, answer, is_part=True)
                sent_bytes += answer.size
                rest = _behind(rest, columns[0][-1], reverse=is_reversed)
                if sent_bytes > _TURN_BYTES or not self._credit.take_one(asked.frame.id):
                    return rest, sent_bytes
        self._send(asked, FrameAnswer(operation, [[], []], operation.status, {}))
        return None, sent_bytes

    async def _is_let(self, asked: Asked) -> bool:
        """Wait until the client lets a part be sent; return whether it does. Raises AnswerError where that is a failure."""
        self._freed.set()
        try:
            await self._credit.take(asked.frame.id, self._responder.context.edge.bounds.unread_seconds_max)
        except AnswerError:
            if asked.operation is not _PAGE:
                raise
            # Why no failure: a loop over a range may take its time, and asks on from its last key.
            return False
        return True

    async def _end_turn(self, asked: Asked, *, is_last: bool) -> None:
        """Hold what was sent until it is taken, and let others have their turn."""
        asked.holding.keep_until_taken()
        # Why not behind the last part: who is cancelled there would be answered once more.
        if not is_last:
            await asyncio.sleep(0)  # Why: who waits for nothing would be all that the loop does.


def _behind(key_range: KeyRange, last: bytes, *, reverse: bool) -> KeyRange:
    return KeyRange(key_range.start, last) if reverse else KeyRange(last + b"\x00", key_range.end)


def _no_page(operation: Operation, arguments: Mapping[str, Any]) -> FrameAnswer:
    """Return a page without keys, behind which the range goes on."""
    columns: list[list[bytes]] = [[] for _ in range(1 + arguments["values"])]
    return FrameAnswer(operation, columns, operation.status, {MORE_HEADER: "1"})
