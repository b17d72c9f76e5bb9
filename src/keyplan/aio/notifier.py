"""One thread for each store that waits for commits, whoever makes them, and wakes the watches that they concern.

For engines whose watches block. A watch that was woken reads by itself; nothing is handed over but the wake-up.
"""

from asyncio import AbstractEventLoop, Event, TimerHandle, timeout
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition, Thread
from typing import Final

from keyplan.engine import ALL_KEYS, Engine, KeyRange, Watch
from keyplan.engine import Event as EngineEvent
from keyplan.errors import EngineError, HistoryCompactedError

__all__ = ["CommitNotifier", "Wakeup"]

_POLL_SECONDS: Final = 60.0
_END_SECONDS_MAX: Final = 5.0
"""Why: closing its watch wakes the thread at once, unless the engine hangs; closing must not hang with it."""

_TROUBLE_SECONDS: Final = 1.0
"""Why: an engine that fails is asked again, but not without end in a circle."""

_OTHERS_SECONDS: Final = 0.1
"""How late a watch hears of what does not concern it. Why: it moves on over that, and so stays in the kept history."""


class Wakeup:
    """Wakes one watch that waits. Used on the loop."""

    def __init__(self, key_range: KeyRange) -> None:
        self.range = key_range
        self._event = Event()

    def wake(self) -> None:
        """Wake the watch."""
        self._event.set()

    def clear(self) -> None:
        """Take every wake-up so far as heard."""
        self._event.clear()

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until it was woken since it was cleared, at most so long."""
        # Trap: on Python 3.11, wait_for swallows a cancellation that comes together with the wake-up.
        with suppress(TimeoutError):
            async with timeout(timeout_seconds):
                await self._event.wait()


class CommitNotifier:
    """The thread, which lives while there are wakeups, and the wakeups."""

    def __init__(self, engine: Engine, loop: AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._wakeups: set[Wakeup] = set()
        self._later: TimerHandle | None = None
        self._condition = Condition()
        self._is_wanted = False
        self._thread: Thread | None = None
        self._watch: Watch | None = None
        self._is_ended = False
        """True when the watch was closed from outside. All from `_is_wanted` on is under `_condition`."""

    # ---- on the loop ---------------------------------------------------------------------------------------------------

    def wakeup(self, key_range: KeyRange) -> Wakeup:
        """Return a wakeup that wakes its watch soon after each commit in the range."""
        wakeup = Wakeup(key_range)
        self._wakeups.add(wakeup)
        with self._condition:
            self._is_wanted = True
            if self._thread is None:
                self._thread = Thread(target=self._work, name="keyplan-aio-notifier", daemon=True)
                self._thread.start()
        return wakeup

    def remove(self, wakeup: Wakeup) -> None:
        """Take a wakeup away, and end the thread with the last. Who waits at it wakes."""
        wakeup.wake()
        self._wakeups.discard(wakeup)
        if not self._wakeups:
            self._end()

    def close(self) -> None:
        """Wake everybody and wait for the end of the thread."""
        for wakeup in list(self._wakeups):
            self.remove(wakeup)
        if self._later is not None:
            self._later.cancel()
        thread = self._thread
        if thread is not None:
            thread.join(_END_SECONDS_MAX)

    def _end(self) -> None:
        with self._condition:
            self._is_wanted = False
            watch = self._watch
            self._is_ended = watch is not None
            self._condition.notify_all()
        if watch is not None:
            watch.close()

    def _wake(self, events: Sequence[EngineEvent]) -> None:
        for wakeup in self._wakeups:
            if any(event.key in wakeup.range for event in events):
                wakeup.wake()
        if self._later is None:
            self._later = self._loop.call_later(_OTHERS_SECONDS, self._wake_all)

    def _wake_all(self) -> None:
        self._later = None
        for wakeup in self._wakeups:
            wakeup.wake()

    # ---- in the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._begin():
            try:
                self._listen()
            except HistoryCompactedError:
                continue  # Why: it begins again at the latest revision, and wakes everybody.
            except EngineError:
                if not self._was_ended():
                    self._tell(None)  # Why: the watches will find the same error, and raise it.
                    self._pause()

    def _begin(self) -> bool:
        """Tell whether there are wakeups; note the end of the thread if not."""
        with self._condition:
            if not self._is_wanted:
                self._thread = None
            return self._is_wanted

    def _was_ended(self) -> bool:
        """Tell whether the error is that the last wakeup was taken away. There may be new ones already."""
        with self._condition:
            was_ended, self._is_ended = self._is_ended, False
            return was_ended

    def _listen(self) -> None:
        with self._engine.snapshot() as snapshot:
            revision = snapshot.revision
        watch = self._engine.watch(ALL_KEYS, after=revision)
        try:
            with self._condition:
                self._watch = watch
                if not self._is_wanted:
                    return
            self._tell(None)  # Why: what was committed before this watch began, a wakeup's watch may not have seen.
            while self._is_wanted:
                events = watch.poll(_POLL_SECONDS)
                if events:
                    self._tell(events)
        finally:
            with self._condition:
                self._watch = None
            watch.close()

    def _pause(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: not self._is_wanted, _TROUBLE_SECONDS)

    def _tell(self, events: Sequence[EngineEvent] | None) -> None:
        # Why suppressed: the loop was closed without the store, so that nobody waits any more.
        with suppress(RuntimeError):
            if events is None:
                self._loop.call_soon_threadsafe(self._wake_all)
            else:
                self._loop.call_soon_threadsafe(self._wake, events)
