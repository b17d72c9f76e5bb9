"""Waking those who wait in an event loop."""

import asyncio
from contextlib import suppress

__all__ = ["Wakeup"]


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
