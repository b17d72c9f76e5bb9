"""A watch that is awaited: the synchronous stream of changes, used by a task that outlives who waits for it.

The promises stand in keyplan.layout's AsyncChanges.
"""

from asyncio import Task, sleep, wait
from collections import deque
from collections.abc import Callable, Generator, MutableSet
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import finalize

from keyplan.aio.bridge import LoopBridge
from keyplan.aio.greenlets import Drive
from keyplan.errors import EngineUnavailableError
from keyplan.layout import AsyncChanges, Change, Changes

__all__ = ["AwaitedChanges"]


class AwaitedChanges(AsyncChanges[object, object]):
    """The changes of the stream that `begin` opens. `living` has those that their store must close.

    Invariant: `_pending` is the one task that uses the stream. A wait that is cancelled leaves it running, and what it finds
    is `_ready` for the next one, so that nothing is lost.
    """

    def __init__(
        self, bridge: LoopBridge, begin: Callable[[], Changes[object, object]], living: "MutableSet[AwaitedChanges]"
    ) -> None:
        self._bridge = bridge
        self._begin = begin
        self._living = living
        self._stream: Changes[object, object] | None = None
        self._pending: Task[object] | None = None
        self._ready: deque[Change[object, object]] = deque()
        self._token = ""
        self._token_after_ready = ""
        self._is_closed = False
        self._finalizer: finalize[..., AwaitedChanges] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[object, object]:
        while not self._ready:
            if self._is_closed:
                raise StopAsyncIteration
            try:
                await self._used(self._take_next)
            except EngineUnavailableError:
                if not self._is_closed:
                    raise
        return self._handed_over()

    async def poll(self, timeout_seconds: float = 0.0) -> list[Change[object, object]]:
        self._check_open()
        pending = self._pending
        if pending is not None:
            # Why: a wait that was cancelled; it may go on for longer than this one should. Trap: meanwhile `close`, or another
            # task, may have taken its outcome.
            await wait({pending}, timeout=timeout_seconds)
            self._check_open()
            if not pending.done():
                return []
            await self._used(self._take_next)
            timeout_seconds = 0.0
        if not self._ready:
            await self._used(partial(self._take, timeout_seconds))
        self._check_open()
        return [self._handed_over() for _ in range(len(self._ready))]

    @property
    def token(self) -> str:
        return self._token

    async def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._living.discard(self)
        pending, self._pending = self._pending, None
        if pending is None:
            self._close_stream()
            return
        # Trap: what is under way may hold a lock of the stream, in this very thread; closing must come after it.
        pending.add_done_callback(self._close_stream)
        try:
            # Why: a task that is cancelled before it begins never tells the code that it drives, which would wait for ever.
            await sleep(0)
        finally:
            pending.cancel()
        await wait({pending})

    def _close_stream(self, ended: Task[object] | None = None) -> None:
        if ended is not None and not ended.cancelled():
            ended.exception()  # Why: asked for, so that asyncio does not report an error that nobody waits for.
        if self._stream is not None:
            self._stream.close()
        if self._finalizer is not None:
            self._finalizer.detach()

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._stream is None:
            await self._used(self._opened)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- pieces --------------------------------------------------------------------------------------------------------

    async def _used(self, use: Callable[[], object]) -> None:
        """Await the use of the stream that is under way, or else this one."""
        self._bridge.check_loop()
        if self._pending is None:
            drive = Drive(use)
            if drive.is_done:
                return
            self._pending = self._bridge.loop.create_task(drive.rest(), name="keyplan-watch")
        pending = self._pending
        await wait({pending})
        if self._pending is pending:
            self._pending = None
        if pending.cancelled():
            raise EngineUnavailableError(problem="the watch was closed")
        pending.result()

    # ---- driven --------------------------------------------------------------------------------------------------------

    def _opened(self) -> Changes[object, object]:
        if self._stream is None:
            self._stream = self._begin()
            self._living.add(self)
            # Why: a loop that was left by `break` has nobody who closes it.
            self._finalizer = finalize(self, _close_soon, self._bridge, self._stream)
            self._token = self._token_after_ready = self._stream.token
        return self._stream

    def _take_next(self) -> None:
        stream = self._opened()
        try:
            change = next(stream, None)
            if change is None:
                self._is_closed = True  # Why: a fault has ended the stream, see `Changes`.
            else:
                self._found(change)
        finally:
            self._moved(stream)

    def _take(self, timeout_seconds: float) -> None:
        stream = self._opened()
        try:
            self._found(*stream.poll(timeout_seconds))
        finally:
            self._moved(stream)

    def _found(self, *changes: Change[object, object]) -> None:
        if not self._is_closed:
            self._ready.extend(changes)

    def _moved(self, stream: Changes[object, object]) -> None:
        """Note the place behind what is ready, which is the place of who has been given everything."""
        self._token_after_ready = stream.token
        if not self._ready:
            self._token = self._token_after_ready

    def _handed_over(self) -> Change[object, object]:
        change = self._ready.popleft()
        self._token = change.token if self._ready else self._token_after_ready
        return change

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineUnavailableError(problem="the watch was closed")


def _close_soon(bridge: LoopBridge, stream: Changes[object, object]) -> None:
    if not bridge.loop.is_closed():
        bridge.loop.call_soon_threadsafe(stream.close)
