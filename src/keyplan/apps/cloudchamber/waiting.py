"""Waiting that ends with its client, with its session and with the server; and how many may wait."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from keyplan.apps.cloudchamber.refusals import RefusedError, no_session
from keyplan.apps.cloudchamber.sessions import AuthenticatedRequest, SessionTable
from keyplan.engine import Clock
from keyplan.server import Closing, Full, Places

__all__ = ["WAITING_OF_USER_MAX", "Waiting", "Wakeup", "poll_seconds"]

_SLICE_SECONDS: Final = 0.25
"""Why: how long nobody may notice that the client is gone or that the server stops."""

WAITING_MAX: Final = 1_000
"""Why: each holds a connection and wakes four times a second."""

WAITING_OF_USER_MAX: Final = 100
"""Why: one user alone must not keep everybody else from waiting."""


_POLL_SECONDS_MAX: Final = 5.0


def _no_place(full: Full) -> RefusedError:
    if full is Full.OF_ONE:
        return RefusedError(429, "you wait for too many answers already", headers={"Retry-After": "1"})
    return RefusedError(503, "too many wait already", headers={"Retry-After": "1"})


def poll_seconds(inactivity_seconds: float) -> float:
    """Return how long a poll waits: so long that a session outlives it."""
    return min(_POLL_SECONDS_MAX, inactivity_seconds / 2)


class Wakeup:
    """Wakes everybody who waits for it. For one event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Wake them."""
        for event in self._waiting:
            event.set()

    async def wait(self, timeout_seconds: float) -> None:
        """Wait for the next wake-up, at most so long. One after the call is never missed."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), max(0.0, timeout_seconds))
        finally:
            self._waiting.discard(event)


class Waiting:
    """Everybody who waits for an answer of one server, and how many they are."""

    def __init__(self, clock: Clock, closing: Closing, sessions: SessionTable) -> None:
        self._clock = clock
        self._closing = closing
        self._sessions = sessions
        self.poll_seconds = poll_seconds(sessions.inactivity_seconds)
        self._places = Places(WAITING_MAX, WAITING_OF_USER_MAX)

    async def until(
        self,
        is_over: Callable[[], bool],
        request: AuthenticatedRequest,
        wakeup: Wakeup,
        *,
        seconds_max: float | None = None,
        seconds_to_next: Callable[[], float | None] = lambda: None,
    ) -> bool:
        """Wait until `is_over`, asked after every wake-up, or until the time is over; return whether it is.

        `seconds_to_next` says when to ask again although nothing wakes it. Raises RefusedError: 503 when the server stops, the
        client is gone, or too many wait; 429 when this user waits too often; 403 when nobody is logged in any more. Raises
        AccessDeniedError when a principal's grant is gone.
        """
        ends_at = None if seconds_max is None else self._clock.monotonic() + seconds_max
        with self._places.held(request.waits_as, _no_place):
            while True:
                if self._closing.is_set or await request.http.is_disconnected():
                    raise RefusedError(503, "the server stops, or nobody waits any more", headers={"Retry-After": "1"})
                # Why each time: whoever logged out, was logged out or has lost their grant is told nothing more.
                await self._check_is_let_in(request)
                if is_over():
                    return True
                left = None if ends_at is None else ends_at - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                bounds = (seconds for seconds in (left, seconds_to_next()) if seconds is not None)
                await wakeup.wait(min(_SLICE_SECONDS, *bounds, _SLICE_SECONDS))

    async def _check_is_let_in(self, request: AuthenticatedRequest) -> None:
        if request.session is None:
            await request.decide()
        elif not self._sessions.is_open(request.session):
            raise no_session()
