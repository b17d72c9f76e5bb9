"""A HEPnOS server's answers as frames, whole or in parts: each part is an operation of its own, as of one state."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from starlette.responses import Response

from keyplan.apps.hepnos.operations import MORE_HEADER, PAGE_KEYS_MAX
from keyplan.engine import KeyRange
from keyplan.operations import JSON, Operation, write_answer
from keyplan.server import AnswerError

__all__ = ["PARTS", "Credit", "FrameAnswer", "Parts", "no_page"]

_PART_BYTES: Final = 1 << 20
"""Why: a processor's cache holds it, and the client works on one while the next is read."""

_FIRST_KEYS: Final = 256
"""Of a part of values, before it is known how large they are."""


class FrameAnswer(Response):
    """A result as a frame has it: the body of HTTP, and nothing beside it. `result` is what was performed."""

    def __init__(self, operation: Operation, result: Any, status: int, headers: Mapping[str, str]) -> None:
        # Why not starlette's own: it makes headers, which take longer than a small read, and are sent to nobody.
        form = operation.answer
        is_packed = form is not None and form.content_type != JSON
        self.body = form.write(result) if form and is_packed else msgspec.json.encode(write_answer(operation, result))
        self.status_code = status
        self.result = result
        self.has_more = headers.get(MORE_HEADER) == "1"


Parts: TypeAlias = Generator[dict[str, Any], FrameAnswer, None]
"""Yields the arguments of each part, and is sent the answer to it."""


def _values(arguments: dict[str, Any]) -> Parts:
    keys, at, number = arguments["keys"], 0, _FIRST_KEYS
    while True:
        part = keys[at : at + number]
        answer = yield {**arguments, "keys": part}
        at += len(part)
        if at >= len(keys):
            return
        number = max(1, min(8 * number, PAGE_KEYS_MAX, _PART_BYTES * len(part) // (len(answer.body) + 1)))


def _pages(arguments: dict[str, Any]) -> Parts:
    key_range: KeyRange = arguments["key_range"]
    is_reversed, limit = arguments["reverse"], arguments["limit"]
    number = min(limit, _FIRST_KEYS if arguments["values"] else limit)
    while True:
        answer = yield {**arguments, "key_range": key_range, "limit": number}
        if not answer.has_more:
            return
        if arguments["values"]:
            number = max(1, min(8 * number, limit, _PART_BYTES * number // (len(answer.body) + 1)))
        last = answer.result[0][-1]
        key_range = KeyRange(key_range.start, last) if is_reversed else KeyRange(last + b"\x00", key_range.end)


PARTS: Final[Mapping[str, Callable[[dict[str, Any]], Parts]]] = {"get_values": _values, "page": _pages}
"""How the answers come in parts of the operations that can, by the names of their methods."""


def no_page(operation: Operation, arguments: Mapping[str, Any]) -> FrameAnswer:
    """Return a page without keys, behind which the range goes on."""
    columns: list[list[bytes]] = [[] for _ in range(1 + arguments["values"])]
    return FrameAnswer(operation, columns, operation.status, {MORE_HEADER: "1"})


class Credit:
    """How many parts of an answer may be sent ahead."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.given = asyncio.Event()

    def give(self, parts: int) -> None:
        """Let so many more be sent."""
        self.parts += parts
        self.given.set()

    async def take(self, seconds_max: float) -> None:
        """Take one, when there is one. Raises AnswerError (408) for a client that gives none for so long."""
        while not self.parts:
            self.given.clear()
            try:
                async with asyncio.timeout(seconds_max):
                    await self.given.wait()
            except TimeoutError:
                raise AnswerError(408, "too_slow", "no part of the answer was asked for in time") from None
        self.parts -= 1
