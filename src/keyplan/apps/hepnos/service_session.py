"""One connection for frames on a HEPnOS server's side, which the gate has let in: bounds, parts of long answers, and an end."""

import asyncio
from itertools import chain
from typing import Any, Final

from starlette.requests import Request

from keyplan.apps.hepnos.frames import (
    MORE,
    OPERATIONS,
    PART,
    BrokenFrameError,
    Frame,
    FrameKind,
    FrameReader,
    check_request,
    frame,
    frame_head,
    parts_ahead,
    read_where,
    single_answer,
)
from keyplan.apps.hepnos.service_databases import DatabasesResponder
from keyplan.apps.hepnos.service_figures import FrameFigures
from keyplan.apps.hepnos.service_in_parts import AnswersInParts
from keyplan.apps.hepnos.service_parts import (
    Asked,
    Credits,
    FrameAnswer,
    WaitingFrames,
    cancel_soon,
    cancelled_error,
    failure_of,
)
from keyplan.operations import Operation
from keyplan.server import (
    BODY_BYTES_PER_SECOND_MIN,
    FREE_BYTES,
    REQUEST_ID,
    AnswerError,
    Holding,
    Line,
    failure,
)

__all__ = ["FramesSession"]

_IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that are worked on. Why: there are 16 threads; what comes is not begun meanwhile."""

_TASKS_MAX: Final = 1_024
"""Those with the ones whose client is to let more be sent. Why more: it says so behind what it has asked for meanwhile."""

_AT_ONCE: Final = 64
"""Quick requests that are answered before others have the event loop."""

_ENDING_SECONDS: Final = 3.0
"""What a connection that ends has for what is under way. Why: a server that is stopped is to be gone in five seconds."""

_TICK_SECONDS: Final = 1.0


class FramesSession:
    """One connection. Changes that go on when it is gone are put into `left`, since the event loop has no hold on a task."""

    def __init__(
        self, responder: DatabasesResponder, request: Request, figures: FrameFigures, left: set[asyncio.Task[None]]
    ) -> None:
        self._responder = responder
        self._figures = figures
        self._left = left
        self._context = responder.context
        self._edge = responder.context.edge
        self._request = request
        self._request_id: str = request.scope[REQUEST_ID]
        self._reader = FrameReader()
        self._waiting = WaitingFrames()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._credits = Credits()
        self._holdings: dict[int, Holding] = {}
        """Of frames that are large, from before they are read."""
        self._own_holding = Holding(self._edge.held, request.scope)
        """What small requests hold, one after the other, until one holds more than nothing."""
        self._came_id = 0
        self._last_id = 0
        """Of the request that has begun last; `_came_id` is that of the one that came last."""
        self._is_small = True
        """Whether the last answer was of what is nobody's."""
        self._freed = asyncio.Event()
        """Set when a request ends, or waits for credit."""
        self._stirred = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._in_parts = AnswersInParts(
            responder, self._credits, writable=self._writable, freed=self._freed, send=self._send
        )
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
            for each in found:
                self._take(each)
            self._look_at_begun()
        except BrokenFrameError as error:
            status, code = (413, "body_too_large") if error.is_too_large else (400, "bad_frame")
            self._refuse_frame(error.id, AnswerError(status, code, str(error)))
            self._end()
            return
        self._last_at = now = asyncio.get_running_loop().time()
        if found or not had_begun:
            self._frame_began, self._frame_bytes = now, 0
        self._frame_bytes += len(data)
        if self._waiting.are_enough:
            self._pause("waiting")
            self._freed.set()
        if found:
            self._stirred.set()

    def opened(self, line: Line) -> None:
        self._line = line

    def _take(self, found: Frame) -> None:
        """Take a frame that has come. Raises BrokenFrameError."""
        check_request(found, len(found.body), behind=self._came_id)
        if found.kind == FrameKind.CANCEL:
            self._cancel(found.id)
        elif found.kind == FrameKind.CREDIT:
            self._credits.give(found.id, found.number)
        else:
            self._came_id = found.id
            ahead = parts_ahead(found)
            if ahead:
                self._credits.begin(found.id, ahead)
            self._waiting.append(found)

    def set_full(self, *, is_full: bool) -> None:
        """Begin nothing more while the client does not take what it was answered."""
        if is_full:
            self._writable.clear()
        else:
            self._writable.set()
            self._stirred.set()

    def lost(self) -> None:
        """End: there is nobody left who could be answered."""
        self._is_ending = True
        for event in (self._writable, self._stirred, self._freed):
            event.set()

    def _look_at_begun(self) -> None:
        """Count a large frame that has begun, before it is read; where there is no room for it, read nothing until then.

        Raises BrokenFrameError.
        """
        begun, body_bytes = self._reader.begun, self._reader.body_bytes_of_begun
        if begun is None or self._reader.is_skipping or begun.id in self._holdings:
            return
        check_request(begun, body_bytes, behind=self._came_id)
        number = body_bytes - FREE_BYTES
        if number <= 0:
            return
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
            self._came_id = id
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
        if id in self._cancelled:
            return
        if task is not None and task.get_name() == "read":
            self._cancelled.add(id)
            cancel_soon(task)
        elif id in self._waiting.ids:
            # Why not of any id: a neighbour names millions that were never used, and each would be kept.
            self._cancelled.add(id)
            self._freed.set()

    # ---- its course ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Answer what comes, until the client, the server's end or the time ends it."""
        self._own_holding.enter()
        self._last_at = asyncio.get_running_loop().time()
        others = [asyncio.create_task(self._watch_closing()), asyncio.create_task(self._watch_time())]
        try:
            while not self._is_ending:
                await self._begin_waiting()
                await self._stirred.wait()
                self._stirred.clear()
            await self._finish()
        finally:
            self._end()
            for other in others:
                other.cancel()
            for task in self._tasks.values():
                if task.get_name() == "read":
                    cancel_soon(task)
                else:
                    self._left.add(task)
                    task.add_done_callback(self._left.discard)
            for holding in (*self._holdings.values(), self._own_holding):
                holding.end()

    async def _begin_waiting(self) -> None:
        begun = 0
        # Why not waited for here: an end is not to wait for a client that takes nothing.
        while self._waiting and self._writable.is_set() and not self._is_ending:
            if self._responder.has_local_reads and self._is_small and await self._answer_together():
                # Why each time: they are sent then, and their client works on them while the next are read.
                await asyncio.sleep(0)
                continue
            found = self._waiting.next()
            if not self._waiting.are_enough:
                # Why before it begins: it may wait for requests to end that wait for their client, who says so behind them.
                self._resume("waiting")
            await self._begin(found)
            begun += 1
            if not begun % _AT_ONCE:
                await asyncio.sleep(0)

    async def _answer_together(self) -> int:
        """Answer the first requests if they ask for one value each, of one database; return how many were answered.

        They are let in and decided about once, and read from one state, which begins behind the last of them. What cannot be
        answered so is left, to be refused in its own words.
        """
        if not self._waiting.begins_with_single:
            return 0
        began, operation = self._context.clock.monotonic(), OPERATIONS[FrameKind.GET]
        try:
            self._own_holding.admit()
            arguments = read_where(operation, self._waiting.first)[0].arguments
            served = await self._responder.served_at(self._request, operation, arguments)
            ids, keys = self._waiting.singles(self._cancelled)
            values = served.first_values(arguments["kind"], arguments["number"], keys, FREE_BYTES)
        except Exception:  # noqa: BLE001  # Why: each is asked again by itself, and fails there for its client to see.
            return 0
        self._is_small = bool(values)
        if not values:
            return 0
        ids = ids[: len(values)]
        self._last_id = ids[-1]
        self._waiting.take(len(ids))
        if not self._waiting.are_enough:
            self._resume("waiting")
        assert self._line is not None
        self._line.write(b"".join(chain.from_iterable(map(single_answer, ids, values))))
        seconds = self._context.clock.monotonic() - began
        self._figures.tell_successes(self._request, operation.name, ids, seconds)
        return len(ids)

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
        self._freed.set()
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
            elif self._tasks or self._waiting:
                self._last_at = now
            elif self._line.unread_bytes():
                self._line.require_progress()
                self._last_at = now
            elif now - self._last_at > bounds.idle_seconds_max:
                self._end()

    # ---- one request -----------------------------------------------------------------------------------------------------

    async def _begin(self, found: Frame) -> None:
        self._last_id = found.id
        began = self._context.clock.monotonic()
        operation = OPERATIONS.get(found.kind)
        is_small = len(found.body) <= FREE_BYTES
        is_local = self._responder.has_local_reads and is_small and not parts_ahead(found)
        is_answered_here = is_local and operation is not None and operation.is_quick
        if operation is not None and not is_answered_here:
            await self._wait_for_place(found.id, operation)
        self._waiting.ids.discard(found.id)
        is_cancelled = found.id in self._cancelled
        self._cancelled.discard(found.id)
        if operation is None or (is_cancelled and not operation.changes):
            missing = AnswerError(404, "not_found", f"there is no operation {found.kind}")
            self._refuse_frame(found.id, missing if operation is None else cancelled_error())
            self._credits.end(found.id)
            if found.id in self._holdings:
                self._holdings.pop(found.id).end()
            return
        if is_answered_here:
            await self._answer(Asked(found, operation, self._request, self._own_holding, began))
            if self._own_holding.bytes:
                self._own_holding.end_when_taken()
                self._own_holding = Holding(self._edge.held, self._request.scope)
                self._own_holding.enter()
            return
        # Why a state of its own: it has the databases of who asks, as they were when this began.
        own = {**self._request.scope, REQUEST_ID: f"{self._request_id}.{found.id}", "state": {}}
        holding = self._holdings.pop(found.id, None) or Holding(self._edge.held, self._request.scope)
        asked = Asked(found, operation, Request(own), holding, began)
        self._keep(
            found.id, self._answer_apart(asked, is_small=is_small), name="change" if operation.changes else "read"
        )

    async def _wait_for_place(self, id: int, operation: Operation) -> None:  # noqa: A002  # Why: as above.
        """Wait until a request may begin; not for one that reads and is not wanted any more."""
        while not self._is_ending and self._has_enough_begun() and (operation.changes or id not in self._cancelled):
            if self._waiting.are_enough and len(self._tasks) >= _TASKS_MAX:
                # Why: all may wait for a client that lets them go on behind what is not read any more.
                self._credits.end_longest()
            self._freed.clear()
            await self._freed.wait()

    def _has_enough_begun(self) -> bool:
        return len(self._tasks) - self._credits.waiting >= _IN_FLIGHT_MAX or len(self._tasks) >= _TASKS_MAX

    def _keep(self, id: int, work: Any, *, name: str = "read") -> None:  # noqa: A002  # Why: as above.
        task = self._tasks[id] = asyncio.create_task(work, name=name)

        def ended(_task: object) -> None:
            self._tasks.pop(id, None)
            self._freed.set()
            self._cancelled.discard(id)
            self._last_at = asyncio.get_running_loop().time()

        task.add_done_callback(ended)

    async def _answer_apart(self, asked: Asked, *, is_small: bool) -> None:
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
            self._fail(asked, cancelled_error())
        finally:
            self._credits.end(asked.frame.id)
            asked.holding.end_when_taken()

    async def _answer(self, asked: Asked) -> None:
        try:
            asked.holding.admit()
            where, columns = read_where(asked.operation, asked.frame)
            if where.parts and columns is not None:
                await self._in_parts.answer(asked, where.arguments, columns)
                self._tell(asked)
                return
            answer = await self._responder.carry_out(asked.request, asked.operation, where.arguments, columns)
            assert isinstance(answer, FrameAnswer)
            asked.holding.keep_answer(answer.size)
            self._send(asked, answer)
            self._tell(asked)
        except Exception as error:  # noqa: BLE001  # Why: a failure ends one request, and not all of a connection.
            self._fail(asked, failure_of(error, asked))

    def _send(self, asked: Asked, answer: FrameAnswer, *, is_part: bool = False) -> None:
        """Send an answer, or a part of it. Whoever sends says what is held of it."""
        assert self._line is not None
        flags = PART * is_part | MORE * answer.has_more
        self._is_small = answer.size <= FREE_BYTES
        head = frame_head(asked.frame.id, FrameKind.ANSWER, answer.size, flags=flags, number=answer.status_code)
        # Why apart: to join them would copy a large answer once more.
        for piece in (head, *answer.pieces):
            self._line.write(piece)

    def _fail(self, asked: Asked, error: AnswerError) -> None:
        """Answer with a failure, in the words that it has over HTTP."""
        body = bytes(failure(error).body)
        self._is_small = True
        asked.holding.keep_answer(len(body))
        if self._line is not None and not self._line.is_closing():
            self._line.write(frame(asked.frame.id, FrameKind.ANSWER, body, number=error.status))
        seconds = self._context.clock.monotonic() - asked.began
        self._figures.tell_failure(self._request, asked.operation.name, asked.frame.id, seconds, error)

    def _tell(self, asked: Asked) -> None:
        """Count a request that was answered, and write its line if it has one."""
        seconds = self._context.clock.monotonic() - asked.began
        self._figures.tell_successes(self._request, asked.operation.name, (asked.frame.id,), seconds)

    def _refuse_frame(self, id: int, error: AnswerError) -> None:  # noqa: A002  # Why: as above.
        """Answer a frame that begins no request."""
        assert self._line is not None
        if not self._line.is_closing():
            self._line.write(frame(id, FrameKind.ANSWER, bytes(failure(error).body), number=error.status))
        self._figures.tell_no_request(self._request, id, error)
