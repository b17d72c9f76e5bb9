"""What deleted key spaces held is removed: in the background, by whichever server of the store comes first; and when asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import Counter

from keyplan.errors import KeyplanError
from keyplan.keyspace import BATCH_KEYS_DEFAULT, KeySpaces, Stage, Sweeper, SweepProgress
from keyplan.server.logs import LOGGER
from keyplan.server.service import ServiceContext

__all__ = ["Sweeping"]

_LOOK_SECONDS: Final = 5.0
"""Why: a deletion is not urgent, and looking reads the registry's list."""


_TURN_SECONDS: Final = 2.0
"""Why: well within the time after which clients and proxies give a request up; who wants more asks again."""


class Sweeping:
    """Looks for deletions every few seconds and takes each as far as it goes. A failure is logged, and tried again."""

    def __init__(self, context: ServiceContext, registry: KeySpaces, *, keys_per_second: float | None) -> None:
        self._context = context
        self._registry = registry
        self._keys_per_second = keys_per_second
        self._due = asyncio.Event()
        self._completed = Counter(
            "keyplan_keyspaces_swept", "Deletions of key spaces that were completed here.", registry=context.metrics
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Sweep for the length of a block; a batch that has begun is ended."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._context.closing.set()
            await task

    def take_further(self, registry: KeySpaces, name: str, *, by: str) -> SweepProgress:
        """Sweep one key space for a moment, as `registry`'s caller, at the server's speed. Raises KeySpaceNotFoundError."""
        registry.get(name)
        clock = self._context.clock
        until = clock.monotonic() + _TURN_SECONDS
        sweeper = self._sweeper(registry, by=by)
        removed = 0
        while True:
            progress = sweeper.step(name)
            removed += progress.removed_keys
            is_over = self._context.closing.is_set or clock.monotonic() >= until
            if progress.stage is not Stage.SWEEPING or is_over:
                self._tell([progress])
                return progress._replace(removed_keys=removed)

    def look_soon(self) -> None:
        """Look now rather than in a few seconds: a deletion has begun here."""
        self._due.set()

    async def _run(self) -> None:
        closing = self._context.closing
        sweeper = self._sweeper(self._registry, by="server")
        while not await self._rested():
            try:
                done = await self._context.run(sweeper.sweep_all, stop=closing.event)
            except KeyplanError as error:
                _log_failure("", error)
            else:
                self._tell(done)

    async def _rested(self) -> bool:
        """Wait until it is time to look; return whether the server stops."""
        waits = {asyncio.ensure_future(self._context.closing.wait()), asyncio.ensure_future(self._due.wait())}
        _, others = await asyncio.wait(waits, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        self._due.clear()
        return self._context.closing.is_set

    def _tell(self, done: list[SweepProgress]) -> None:
        for progress in done:
            if progress.stage is Stage.COMPLETED:
                self._completed.inc()
                facts = {"name": progress.name, "deleted_keys": progress.deleted_keys}
                LOGGER.info("a key space was deleted", extra={"facts": facts})

    def _sweeper(self, registry: KeySpaces, *, by: str) -> Sweeper:
        rate = self._keys_per_second
        # Why fewer at a low speed: the pause behind a batch is a second at most, so that a turn ends in time.
        batch = BATCH_KEYS_DEFAULT if rate is None else max(1, min(BATCH_KEYS_DEFAULT, int(rate)))
        return Sweeper(
            registry, by=by, batch_keys=batch, keys_per_second=rate, pause=self._pause, on_failure=_log_failure
        )

    def _pause(self, seconds: float) -> None:
        self._context.closing.wait_in_thread(min(seconds, _TURN_SECONDS))


def _log_failure(name: str, error: KeyplanError) -> None:
    facts = {"name": name, "code": error.code, "error": str(error)}
    LOGGER.warning("the sweep failed", extra={"facts": facts})
