"""The signal that the server stops, for coroutines and for threads."""

import asyncio
import threading
from contextlib import suppress

from keyplan.signals import call_from_signal

__all__ = ["Closing"]


class Closing:
    """Set once, when the server begins to stop: new requests are no longer taken, streams and watches are to end.

    May be set and asked from any thread; `wait` is for coroutines of one event loop.
    """

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        """True from the moment on that the server stops."""
        return self._flag.is_set()

    @property
    def event(self) -> threading.Event:
        """The same for threads that take an event to stop by. Do not set it."""
        return self._flag

    def set(self) -> None:
        """Tell everybody. Setting twice is harmless."""
        with self._lock:
            self._flag.set()
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            # Why: a loop that is closed by now has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def set_by_signal(self) -> None:
        """Tell everybody from a signal's handler."""
        call_from_signal(self.set)

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the server stops, or until the time is over; return whether it stops."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._flag.is_set():
                return True
            self._waiting.add(waiter)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(waiter[1].wait(), timeout_seconds)
        finally:
            with self._lock:
                self._waiting.discard(waiter)
        return self._flag.is_set()

    def wait_in_thread(self, timeout_seconds: float | None = None) -> bool:
        """Block this thread until the server stops, or until the time is over; return whether it stops."""
        return self._flag.wait(timeout_seconds)
