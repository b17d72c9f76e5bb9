"""Waking those who wait in an event loop."""

import asyncio
from contextlib import suppress

__all__ = ["Bell"]


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
