"""Waking those who wait in an event loop, and waiting that ends with its client and with the server."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.requests import Request

from keyplan.apps.cloudchamber.refusals import RefusedError
from keyplan.engine import Clock
from keyplan.server import Closing

__all__ = ["Bell", "Waiting"]

_SLICE_SECONDS: Final = 0.25
"""Why: how long nobody may notice that the client is gone or that the server stops."""

WAITING_MAX: Final = 1_000
"""Why: each holds a connection and wakes four times a second."""


class Bell:
    """Wakes everybody who waits for it. For one event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def ring(self) -> None:
        """Wake them."""
        for event in self._waiting:
            event.set()

    async def wait(self, timeout_seconds: float) -> None:
        """Wait for the next ring, at most so long. A ring after the call is never missed."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), max(0.0, timeout_seconds))
        finally:
            self._waiting.discard(event)


class Waiting:
    """Everybody who waits for an answer of one server, and how many they are."""

    def __init__(self, clock: Clock, closing: Closing) -> None:
        self._clock = clock
        self._closing = closing
        self._count = 0

    async def until(
        self,
        is_over: Callable[[], bool],
        request: Request,
        bell: Bell,
        *,
        seconds_max: float | None = None,
        seconds_to_next: Callable[[], float | None] = lambda: None,
    ) -> bool:
        """Wait until `is_over`, asked after every ring, or until the time is over; return whether it is.

        `seconds_to_next` says when to ask again although nobody rings. Raises RefusedError (503): the server stops, the client
        is gone, or too many wait.
        """
        if self._count >= WAITING_MAX:
            raise RefusedError(503, "too many wait already", headers={"Retry-After": "1"})
        ends_at = None if seconds_max is None else self._clock.monotonic() + seconds_max
        self._count += 1
        try:
            while True:
                if self._closing.is_set or await request.is_disconnected():
                    raise RefusedError(503, "the server stops, or nobody waits any more", headers={"Retry-After": "1"})
                if is_over():
                    return True
                left = None if ends_at is None else ends_at - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                bounds = (seconds for seconds in (left, seconds_to_next()) if seconds is not None)
                await bell.wait(min(_SLICE_SECONDS, *bounds, _SLICE_SECONDS))
        finally:
            self._count -= 1
