"""Frames on a HEPnOS server's side: one connection, which the gate has let in, and the requests on it.

From where it is read, a request goes the way of one of HTTP: `DatabasesResponder.carry_out` finds the caller's databases,
decides, notes and performs. Here is what a connection needs beside it: bounds, parts of long answers, and an end.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    FRAMES_PROTOCOL,
    MORE,
    OPERATIONS,
    PART,
    BrokenFrameError,
    Frame,
    FrameKind,
    FrameReader,
    frame,
    parts_ahead,
    read_where,
)
from keyplan.apps.hepnos.service_databases import DatabasesResponder
from keyplan.apps.hepnos.service_parts import PARTS, Credit, FrameAnswer, no_page
from keyplan.errors import KeyplanError
from keyplan.operations import Operation
from keyplan.server import (
    BODY_BYTES_PER_SECOND_MIN,
    FREE_BYTES,
    LOGGER,
    REQUEST_ID,
    AnswerError,
    Holding,
    Line,
    RequestLine,
    ServiceContext,
    Upgraded,
    address_of,
    caller_of,
    failure,
    told_failure,
)

__all__ = ["FramesResponder"]

_IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that wait for a thread or for their client. Why: there are 16 threads; what comes is not read."""

_WAITING_MAX: Final = 256
"""Frames that have come and are not begun, before no more is read."""

_AT_ONCE: Final = 64
"""Quick requests that are answered before others have the event loop."""

_ENDING_SECONDS: Final = 3.0
"""What a connection that ends has for what is under way. Why: a server that is stopped is to be gone in five seconds."""

_TICK_SECONDS: Final = 1.0


class FramesResponder(DatabasesResponder):
    """Answers frames, and has the route by which a connection becomes one for frames.

    Of `log_each` requests that are answered one has a line in the log; each that is refused has, as `RefusalLog` bounds it.
    """

    def __init__(self, context: ServiceContext, databases: Databases, *, log_each: int) -> None:
        super().__init__(context, databases)
        self.log_each = log_each
        self.answered = count(1)
        self._frames = Counter(
            "keyplan_hepnos_frames", "Requests answered as frames.", ("operation", "status"), registry=context.metrics
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        """Why kept: to find one by its labels takes as long as to count. Their number is that of the labels' values."""
        self.left: set[asyncio.Task[None]] = set()
        """Changes that go on when their connection is gone. Why kept: the event loop has no hold on a task."""

    def way_in(self) -> BaseRoute:
        """Return the route that a client asks for a connection for frames."""

        async def endpoint(request: Request) -> Response:
            return Upgraded(request, FRAMES_PROTOCOL, _Session(self, request))

        return Route(FRAMES_PATH, endpoint, methods=["GET"])

    def count_frame(self, operation: str, status: int) -> None:
        """Count a request that was answered."""
        own = self._counters.get((operation, status))
        if own is None:
            own = self._counters[operation, status] = self._frames.labels(operation, status)
        own.inc()

    def write(self, operation: Operation, result: Any, status: int, headers: Mapping[str, str]) -> Response:
        return FrameAnswer(operation, result, status, headers)


class _Asked:
    """A request that has begun: its frame, who asks, and what it holds."""

    __slots__ = ("began", "frame", "holding", "operation", "request")

    def __init__(self, found: Frame, operation: Operation, request: Request, holding: Holding, began: float) -> None:
        self.frame = found
        self.operation = operation
        self.request = request
        self.holding = holding
        self.began = began


class _Session:
    """One connection."""

    def __init__(self, responder: FramesResponder, request: Request) -> None:
        self._responder = responder
        self._context = responder.context
        self._edge = responder.context.edge
        self._request = request
        self._request_id: str = request.scope[REQUEST_ID]
        self._reader = FrameReader()
        self._waiting: deque[Frame] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._credits: dict[int, Credit] = {}
        self._holdings: dict[int, Holding] = {}
        """Of frames that are large, from before they are read."""
        self._own_holding = Holding(self._edge.held, request.scope)
        """What small requests hold, one after the other, until one holds more than nothing."""
        self._last_id = 0
        self._stirred = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused: set[str] = set()
        self._paused_at = 0.0
        self._frame_began, self._frame_bytes = 0.0, 0
        self._last_at = 0.0
        self._is_ending = False
        self._line: Line | None = None

    # ---- what comes ------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take what has come: frames wait for their turn, but for those that are about others."""
        if self._is_ending:
            return
        had_begun = self._reader.has_begun
        try:
            found = self._reader.feed(data)
        except BrokenFrameError as error:
            status, code = (413, "body_too_large") if error.is_too_large else (400, "bad_frame")
            self._refuse_frame(error.id, AnswerError(status, code, str(error)))
            self._end()
            return
        self._last_at = now = asyncio.get_running_loop().time()
        if found or not had_begun:
            self._frame_began, self._frame_bytes = now, 0
        self._frame_bytes += len(data)
        for each in found:
            if each.kind == FrameKind.CANCEL:
                self._cancel(each.id)
            elif each.kind == FrameKind.CREDIT:
                if each.id in self._credits:
                    self._credits[each.id].give(each.number)
            else:
                self._waiting.append(each)
        if self._reader.body_bytes_of_begun > FREE_BYTES:
            self._hold_begun()
        if len(self._waiting) > _WAITING_MAX:
            self._pause("waiting")
        if found:
            self._stirred.set()

    def set_full(self, *, is_full: bool) -> None:
        """Begin nothing more while the client does not take what it was answered."""
        if is_full:
            self._writable.clear()
        else:
            self._writable.set()

    def lost(self) -> None:
        """End: there is nobody left who could be answered."""
        self._is_ending = True
        self._writable.set()
        self._stirred.set()

    def _hold_begun(self) -> None:
        """Count the large frame that has begun, before it is read; where there is no room for it, read nothing until then."""
        begun = self._reader.begun
        if begun is None or begun.id in self._holdings:
            return
        number = self._reader.body_bytes_of_begun - FREE_BYTES
        holding = self._holdings[begun.id] = Holding(self._edge.held, self._request.scope)
        if holding.take(number) is not None:
            self._pause("room")
            self._keep(begun.id | 1 << 32, self._wait_for_room(begun.id, holding, number))

    async def _wait_for_room(self, id: int, holding: Holding, number: int) -> None:  # noqa: A002  # Why: the frame's word.
        try:
            await holding.take_when_there_is_room(number, self._edge.bounds.body_seconds_max)
        except AnswerError as error:
            self._holdings.pop(id).end()
            self._reader.skip_begun()
            self._last_id = max(self._last_id, id)
            self._refuse_frame(id, error)
        finally:
            self._resume("room")

    def _pause(self, why: str) -> None:
        assert self._line is not None
        if not self._paused:
            self._line.pause_reading()
            self._paused_at = asyncio.get_running_loop().time()
        self._paused.add(why)

    def _resume(self, why: str) -> None:
        assert self._line is not None
        if why in self._paused:
            self._paused.discard(why)
            if not self._paused and not self._line.is_closing():
                # Why: what was not read for our sake is not late.
                self._frame_began += asyncio.get_running_loop().time() - self._paused_at
                self._line.resume_reading()

    def _cancel(self, id: int) -> None:  # noqa: A002  # Why: as above.
        """End a request that reads, and has begun or waits. What changes something is answered: it may have been done."""
        task = self._tasks.get(id)
        if task is not None and task.get_name() == "read":
            self._cancelled.add(id)
            task.cancel()
        for each in self._waiting:
            operation = OPERATIONS.get(each.kind)
            if each.id == id and operation is not None and not operation.changes:
                self._cancelled.add(id)

    # ---- its course ------------------------------------------------------------------------------------------------------

    async def run(self, line: Line) -> None:
        """Answer what comes, until the client, the server's end or the time ends it."""
        self._line = line
        self._own_holding.enter()
        self._last_at = asyncio.get_running_loop().time()
        others = [asyncio.create_task(self._watch_closing()), asyncio.create_task(self._watch_time())]
        try:
            while not self._is_ending:
                await self._begin_waiting()
                self._resume("waiting")
                await self._stirred.wait()
                self._stirred.clear()
            await self._finish()
        finally:
            self._end()
            for other in others:
                other.cancel()
            for task in self._tasks.values():
                if task.get_name() == "read":
                    task.cancel()
                else:
                    self._responder.left.add(task)
                    task.add_done_callback(self._responder.left.discard)
            for holding in (*self._holdings.values(), self._own_holding):
                holding.end()

    async def _begin_waiting(self) -> None:
        begun = 0
        while self._waiting and not self._is_ending:
            if not self._writable.is_set():
                await self._writable.wait()
                continue
            await self._begin(self._waiting.popleft())
            begun += 1
            if not begun % _AT_ONCE:
                await asyncio.sleep(0)

    async def _finish(self) -> None:
        """Wait for what is under way, for a while."""
        assert self._line is not None
        tasks = list(self._tasks.values())
        if tasks and not self._line.is_closing():
            await asyncio.wait(tasks, timeout=_ENDING_SECONDS)

    def _end(self) -> None:
        """Say which request was the last that has begun, and begin no other: those behind it may be asked again elsewhere."""
        if self._is_ending:
            return
        self._is_ending = True
        self._waiting.clear()
        self._stirred.set()
        if self._line is not None and not self._line.is_closing():
            self._line.write(frame(self._last_id, FrameKind.FAREWELL))

    async def _watch_closing(self) -> None:
        await self._context.closing.wait()
        self._end()

    async def _watch_time(self) -> None:
        """End a connection that sends a frame too slowly, or nothing at all."""
        bounds, loop = self._edge.bounds, asyncio.get_running_loop()
        assert self._line is not None
        while not self._is_ending:
            await asyncio.sleep(min(_TICK_SECONDS, bounds.idle_seconds_max / 2, bounds.body_seconds_max / 2))
            now = loop.time()
            if self._reader.has_begun and not self._paused:
                allowed = bounds.body_seconds_max + self._frame_bytes / BODY_BYTES_PER_SECOND_MIN
                if now - self._frame_began > allowed:
                    begun = self._reader.begun
                    error = AnswerError(408, "too_slow", "the frame comes too slowly", {"bytes": self._frame_bytes})
                    self._refuse_frame(0 if begun is None else begun.id, error)
                    self._end()
            elif self._tasks or self._waiting or self._line.unread_bytes():
                self._last_at = now
            elif now - self._last_at > bounds.idle_seconds_max:
                self._end()

    # ---- one request -----------------------------------------------------------------------------------------------------

    async def _begin(self, found: Frame) -> None:
        if found.id <= self._last_id:
            message = f"ids ascend: {found.id} came after {self._last_id}"
            self._refuse_frame(found.id, AnswerError(400, "bad_frame", message))
            self._end()
            return
        self._last_id = found.id
        operation = OPERATIONS.get(found.kind)
        if operation is None:
            self._refuse_frame(found.id, AnswerError(404, "not_found", f"there is no operation {found.kind}"))
            return
        if found.id in self._cancelled:
            self._cancelled.discard(found.id)
            self._refuse_frame(found.id, _cancelled_error())
            return
        began = self._context.clock.monotonic()
        is_small = len(found.body) <= FREE_BYTES
        if operation.is_quick and self._responder.has_local_reads and is_small and not parts_ahead(found):
            await self._answer(_Asked(found, operation, self._request, self._own_holding, began))
            if self._own_holding.bytes:
                self._own_holding.end_when_taken()
                self._own_holding = Holding(self._edge.held, self._request.scope)
                self._own_holding.enter()
            return
        while len(self._tasks) >= _IN_FLIGHT_MAX and not self._is_ending:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        # Why a state of its own: it has the databases of who asks, as they were when this began.
        own = {**self._request.scope, REQUEST_ID: f"{self._request_id}.{found.id}", "state": {}}
        holding = self._holdings.pop(found.id, None) or Holding(self._edge.held, self._request.scope)
        asked = _Asked(found, operation, Request(own), holding, began)
        self._keep(
            found.id, self._answer_apart(asked, is_small=is_small), name="change" if operation.changes else "read"
        )

    def _keep(self, id: int, work: Any, *, name: str = "read") -> None:  # noqa: A002  # Why: as above.
        task = self._tasks[id] = asyncio.create_task(work, name=name)

        def ended(_task: object) -> None:
            self._tasks.pop(id, None)
            self._cancelled.discard(id)
            self._last_at = asyncio.get_running_loop().time()

        task.add_done_callback(ended)

    async def _answer_apart(self, asked: _Asked, *, is_small: bool) -> None:
        """Answer a request beside others."""
        asked.holding.enter()
        try:
            if not is_small and not asked.holding.bytes:
                excess = asked.holding.take(len(asked.frame.body) - FREE_BYTES)
                if excess is not None:
                    self._fail(asked, excess.answer)
                    return
            await self._answer(asked)
        except asyncio.CancelledError:
            if asked.frame.id not in self._cancelled:
                raise
            self._cancelled.discard(asked.frame.id)
            self._fail(asked, _cancelled_error())
        finally:
            self._credits.pop(asked.frame.id, None)
            asked.holding.end_when_taken()

    async def _answer(self, asked: _Asked) -> None:
        try:
            asked.holding.admit()
            where, columns = read_where(asked.operation, asked.frame)
            if where.parts and columns is not None:
                await self._answer_in_parts(asked, where.arguments, columns, where.parts)
                return
            answer = await self._responder.carry_out(asked.request, asked.operation, where.arguments, columns)
            assert isinstance(answer, FrameAnswer)
            self._send(asked, answer)
            self._tell(asked, answer.status_code)
        except AnswerError as error:
            self._fail(asked, error)
        except KeyplanError as error:
            self._fail(asked, told_failure(error, asked.request.scope[REQUEST_ID]))
        except Exception:  # noqa: BLE001  # Why: a failure that nobody foresaw ends one request, and not all of a connection.
            facts = {"request_id": asked.request.scope[REQUEST_ID], "route": asked.operation.name}
            LOGGER.exception("a request failed", extra={"facts": facts})
            self._fail(
                asked, AnswerError(500, "internal_error", "the server failed", {"request_id": facts["request_id"]})
            )

    async def _answer_in_parts(self, asked: _Asked, arguments: dict[str, Any], columns: bytes, ahead: int) -> None:
        operation = asked.operation
        assert operation.body is not None
        credit = self._credits[asked.frame.id] = Credit(ahead)
        parts = PARTS[operation.attribute](arguments | dict(operation.body.read(columns)))
        own: dict[str, Any] | None = next(parts)
        while own is not None:
            answer = await self._responder.carry_out(asked.request, operation, own)
            assert isinstance(answer, FrameAnswer)
            own = None
            with suppress(StopIteration):
                own = parts.send(answer)
            try:
                await credit.take(self._edge.bounds.unread_seconds_max)
            except AnswerError:
                if operation.attribute != "page":
                    raise
                # Why no failure: a loop over a range may take its time, and asks on from its last key.
                answer, own = no_page(operation, arguments), None
            await self._writable.wait()
            self._send(asked, answer, is_part=own is not None)
            asked.holding.keep_until_taken()
            await asyncio.sleep(0)  # Why: who waits for nothing would be all that the loop does.
        self._tell(asked, 200)

    def _send(self, asked: _Asked, answer: FrameAnswer, *, is_part: bool = False) -> None:
        assert self._line is not None
        flags = PART * is_part | MORE * answer.has_more
        body = bytes(answer.body)
        asked.holding.keep_answer(len(body))
        self._line.write(frame(asked.frame.id, FrameKind.ANSWER, body, flags=flags, number=answer.status_code))

    def _fail(self, asked: _Asked, error: AnswerError) -> None:
        """Answer with a failure, in the words that it has over HTTP."""
        body = bytes(failure(error).body)
        asked.holding.keep_answer(len(body))
        if self._line is not None and not self._line.is_closing():
            self._line.write(frame(asked.frame.id, FrameKind.ANSWER, body, number=error.status))
        self._tell(asked, error.status, error)

    def _tell(self, asked: _Asked, status: int, error: AnswerError | None = None) -> None:
        """Count a request, and write its line if it has one."""
        responder, name = self._responder, asked.operation.name
        responder.count_frame(name, status)
        number = next(responder.answered)
        if error is None and number % responder.log_each:
            return
        request_id = f"{self._request_id}.{asked.frame.id}"
        line = self._line_of(name, request_id, status, self._context.clock.monotonic() - asked.began, error)
        self._edge.log(line, is_told=lambda: not number % responder.log_each or status >= 500)

    def _refuse_frame(self, id: int, error: AnswerError) -> None:  # noqa: A002  # Why: as above.
        """Answer a frame that begins no request."""
        assert self._line is not None
        if not self._line.is_closing():
            self._line.write(frame(id, FrameKind.ANSWER, bytes(failure(error).body), number=error.status))
        self._responder.count_frame("none", error.status)
        self._edge.log(self._line_of("none", f"{self._request_id}.{id}", error.status, 0.0, error))

    def _line_of(
        self, route: str, request_id: str, status: int, seconds: float, error: AnswerError | None
    ) -> RequestLine:
        caller = caller_of(self._request)
        address = address_of(self._request.scope)
        name = caller.name if caller else None
        reason, why = (None, None) if error is None else (error.code, error.message)
        return RequestLine(request_id, "FRAME", FRAMES_PATH, route, status, seconds, name, address, reason, why)


def _cancelled_error() -> AnswerError:
    return AnswerError(499, "cancelled", "who asked wants no answer any more")
