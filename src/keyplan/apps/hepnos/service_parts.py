"""A HEPnOS server's requests, those that wait and those that have begun, and their answers as frames, whole or in parts.

Each part is an operation of its own, as of one state.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keyplan.apps.hepnos.frames import FRAMES_PATH, Frame
from keyplan.apps.hepnos.operations import MORE_HEADER, PAGE_KEYS_MAX
from keyplan.engine import KeyRange
from keyplan.errors import KeyplanError
from keyplan.operations import JSON, Operation, write_answer
from keyplan.server import (
    LOGGER,
    REQUEST_ID,
    AnswerError,
    Holding,
    RequestLine,
    address_of,
    caller_of,
    told_failure,
)

__all__ = [
    "PARTS",
    "Asked",
    "Credit",
    "FrameAnswer",
    "Parts",
    "WaitingFrames",
    "cancel_soon",
    "cancelled_error",
    "failure_of",
    "line_of",
    "no_page",
]

_PART_BYTES: Final = 1 << 20
"""Why: a processor's cache holds it, and the client works on one while the next is read."""

_FIRST_KEYS: Final = 256
"""Of a part of values, before it is known how large they are."""


_WAITING_MAX: Final = 256
"""Frames that have come and are not begun, before no more is read."""

_WAITING_BYTES_MAX: Final = 4 << 20
"""Of their bodies. Why: the first bytes of each are nobody's, and of hundreds they would be many."""


class WaitingFrames:
    """The frames of a connection that have come and are not begun, in their order."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.ids: set[int] = set()
        """Theirs, and that of one that was taken and may not begin yet, until whoever took it removes it."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def are_enough(self) -> bool:
        """Whether no more is read meanwhile."""
        return len(self._frames) > _WAITING_MAX or self._bytes > _WAITING_BYTES_MAX

    def append(self, found: Frame) -> None:
        """Have one wait behind the others."""
        self._frames.append(found)
        self.ids.add(found.id)
        self._bytes += len(found.body)

    def next(self) -> Frame:
        """Take the first. Its id stays among `ids`."""
        found = self._frames.popleft()
        self._bytes -= len(found.body)
        return found

    def clear(self) -> None:
        """Have none wait."""
        self._frames.clear()
        self.ids.clear()
        self._bytes = 0


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
        """Let so many more be sent. None are no sign of a client that goes on."""
        self.parts += parts
        if parts:
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


class Asked:
    """A request that has begun: its frame, who asks, and what it holds."""

    __slots__ = ("began", "frame", "holding", "operation", "request")

    def __init__(self, found: Frame, operation: Operation, request: Request, holding: Holding, began: float) -> None:
        self.frame = found
        self.operation = operation
        self.request = request
        self.holding = holding
        self.began = began


def failure_of(error: Exception, asked: Asked) -> AnswerError:
    """Return what a request is answered with that has raised an error; one that nobody foresaw is logged."""
    if isinstance(error, AnswerError):
        return error
    request_id = asked.request.scope[REQUEST_ID]
    if isinstance(error, KeyplanError):
        return told_failure(error, request_id)
    facts = {"request_id": request_id, "route": asked.operation.name}
    LOGGER.error("a request failed", exc_info=error, extra={"facts": facts})
    return AnswerError(500, "internal_error", "the server failed", {"request_id": request_id})


def line_of(
    request: Request, route: str, request_id: str, status: int, seconds: float, error: AnswerError | None
) -> RequestLine:
    """Return the line of a frame on the connection that `request` has opened."""
    caller = caller_of(request)
    name = caller.name if caller else None
    reason, why = (None, None) if error is None else (error.code, error.message)
    address = address_of(request.scope)
    return RequestLine(request_id, "FRAME", FRAMES_PATH, route, status, seconds, name, address, reason, why)


def cancel_soon(task: asyncio.Task[None]) -> None:
    """Cancel a task once it has begun. Why not now: one that has had no turn yet would answer nobody, and give nothing back."""
    asyncio.get_running_loop().call_soon(task.cancel)


def cancelled_error() -> AnswerError:
    """Return what a request that is not wanted any more is answered with."""
    return AnswerError(499, "cancelled", "who asked wants no answer any more")
