"""A HEPnOS server's requests, those that wait and those that have begun, and their answers as frames."""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keyplan.apps.hepnos.frames import OPERATIONS, Frame, FrameKind, key_of_single, single_place
from keyplan.apps.hepnos.operations import MORE_HEADER
from keyplan.apps.hepnos.packed import pack_in_pieces
from keyplan.errors import KeyplanError
from keyplan.operations import JSON, Operation, write_answer
from keyplan.server import (
    FREE_BYTES,
    LOGGER,
    REQUEST_ID,
    AnswerError,
    Holding,
    told_failure,
)

__all__ = [
    "Asked",
    "Credits",
    "FrameAnswer",
    "WaitingFrames",
    "cancel_soon",
    "cancelled_error",
    "failure_of",
]

_PAGE: Final = OPERATIONS[FrameKind.LIST]
_WAITING_MAX: Final = 256
"""Frames that have come and are not begun, before no more is read."""

_WAITING_BYTES_MAX: Final = 4 << 20
"""Of their bodies. Why: the first bytes of each are nobody's, and of hundreds they would be many."""


_TOGETHER_MAX: Final = 16
"""Requests for one value each that are answered together. Why: of 32 under way the client works on one half meanwhile."""


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

    @property
    def first(self) -> Frame:
        """The one that has waited longest."""
        return self._frames[0]

    @property
    def begins_with_single(self) -> bool:
        """Whether the first asks for one value."""
        return bool(self._frames) and single_place(self._frames[0]) is not None

    def singles(self, but: Collection[int]) -> tuple[list[int], list[bytes]]:
        """Return the ids and keys of the first ones if they ask for one value each, of one database; none of those in `but`.

        They go on waiting until they are taken.
        """
        ids: list[int] = []
        keys: list[bytes] = []
        number, where = (self._frames[0].number, single_place(self._frames[0])) if self._frames else (0, None)
        if where is not None:
            for found in islice(self._frames, _TOGETHER_MAX):
                key = key_of_single(found, where) if found.kind == FrameKind.GET and found.number == number else None
                if key is None or len(found.body) > FREE_BYTES or found.id in but:
                    break
                ids.append(found.id)
                keys.append(key)
        return ids, keys

    def take(self, number: int) -> None:
        """Take so many of the first, for good."""
        for _ in range(number):
            self.ids.discard(self.next().id)

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
    """A result as a frame has it: the body of HTTP, in pieces, and nothing beside it. `result` is what was performed."""

    def __init__(self, operation: Operation, result: Any, status: int, headers: Mapping[str, str]) -> None:
        # Why not starlette's own: it makes headers, which take longer than a small read, and are sent to nobody.
        form = operation.answer
        self.pieces: list[bytes]
        if form is None or form.content_type == JSON:
            self.pieces = [msgspec.json.encode(write_answer(operation, result))]
        else:
            self.pieces = pack_in_pieces(*result) if operation is _PAGE else [form.write(result)]
        self.size = sum(map(len, self.pieces))
        self.status_code = status
        self.result = result
        self.has_more = headers.get(MORE_HEADER) == "1"


class _Credit:
    """How many parts of one answer may be sent ahead."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.given = asyncio.Event()
        self.is_over = False


class Credits:
    """How many parts of each answer of a connection may be sent ahead, by the id of its request."""

    def __init__(self) -> None:
        self._of: dict[int, _Credit] = {}
        self._waiting: dict[int, _Credit] = {}
        """Those whose client is waited for, the longest first."""

    @property
    def waiting(self) -> int:
        """How many answers wait for their client."""
        return len(self._waiting)

    def begin(self, id: int, parts: int) -> None:  # noqa: A002  # Why: the frame's word.
        """Know a request. Why before it begins: who asks may let more be sent meanwhile."""
        self._of[id] = _Credit(parts)

    def end(self, id: int) -> None:  # noqa: A002  # Why: as above.
        """Forget a request."""
        self._of.pop(id, None)

    def give(self, id: int, parts: int) -> None:  # noqa: A002  # Why: as above.
        """Let so many more parts be sent of an answer that is known. None are no sign of a client that goes on."""
        credit = self._of.get(id)
        if credit is not None and parts:
            credit.parts += parts
            credit.given.set()

    async def take(self, id: int, seconds_max: float) -> None:  # noqa: A002  # Why: as above.
        """Take one, when there is one. Raises AnswerError (408) for a client that gives none for so long."""
        credit = self._of[id]
        while not credit.parts and not credit.is_over:
            credit.given.clear()
            self._waiting[id] = credit
            try:
                async with asyncio.timeout(seconds_max):
                    await credit.given.wait()
            except TimeoutError:
                credit.is_over = True
            finally:
                self._waiting.pop(id, None)
        if credit.is_over:
            raise AnswerError(408, "too_slow", "no part of the answer was asked for in time")
        credit.parts -= 1

    def take_one(self, id: int) -> bool:  # noqa: A002  # Why: as above.
        """Take one if there is one; return whether there was."""
        credit = self._of[id]
        is_there = credit.parts > 0
        credit.parts -= is_there
        return is_there

    def end_longest(self) -> None:
        """Wait no more for the client of the answer that has waited longest, as if its time were over."""
        for id_, credit in self._waiting.items():
            del self._waiting[id_]
            credit.is_over = True
            credit.given.set()
            return


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


def cancel_soon(task: asyncio.Task[None]) -> None:
    """Cancel a task once it has begun. Why not now: one that has had no turn yet would answer nobody, and give nothing back."""
    asyncio.get_running_loop().call_soon(task.cancel)


def cancelled_error() -> AnswerError:
    """Return what a request that is not wanted any more is answered with."""
    return AnswerError(499, "cancelled", "who asked wants no answer any more")
