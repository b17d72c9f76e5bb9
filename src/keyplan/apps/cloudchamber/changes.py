"""The latest changes of one name space, kept for the clients that wait for them: what of the store's watch goes over HTTP.

One thread follows the store as long as the server runs, from the first time that somebody asks.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final, NamedTuple

from keyplan.apps.cloudchamber.namespace_store import NamespaceStore
from keyplan.apps.cloudchamber.waiting import Wakeup
from keyplan.apps.cloudchamber.watches import AlreadyClosedError, RecordEvent, RecordWatch
from keyplan.errors import KeyplanError
from keyplan.server import LOGGER

__all__ = ["ChangeFeed", "Changes"]

KEPT_MAX: Final = 1_000
"""Changes kept in memory. Why: a client that polls comes back within seconds; older ones are read from the store's history."""

_TURNS_MAX: Final = 30
_POLL_SECONDS: Final = 1.0
_JOIN_SECONDS_MAX: Final = 10.0


class Changes(NamedTuple):
    """Changes in order, and the revision that they reach: what to ask for next."""

    events: Sequence[RecordEvent]
    revision: int


class ChangeFeed:
    """Changes after a revision, for any number of waiters of one event loop. `run` makes a call in a thread."""

    def __init__(self, chamber: NamespaceStore[Any], run: Callable[..., Awaitable[Any]]) -> None:
        self.wakeup = Wakeup()
        self._chamber = chamber
        self._run = run
        self._follower: _Follower | None = None
        self._starting = asyncio.Lock()
        self._kept: deque[Changes] = deque()
        self._kept_count = 0
        self._known_after = 0
        self._reached = 0

    @property
    def reached(self) -> int:
        """Everything up to this revision is known here."""
        return self._reached

    @property
    def is_following(self) -> bool:
        """Whether changes come in."""
        return self._follower is not None

    async def begin(self) -> None:
        """Follow the store from now on, unless that is done. Raises UnsupportedByEngineError, EngineUnavailableError."""
        async with self._starting:
            if self._follower is None:
                loop = asyncio.get_running_loop()
                revision: int = await self._run(lambda: self._chamber.store.revision)
                self._kept.clear()
                self._kept_count = 0
                self._known_after = self._reached = revision
                self._follower = await self._run(self._followed, loop, revision)

    def known(self, revision: int) -> list[RecordEvent] | None:
        """Return the changes after a revision that came in so far; None when some of them are no longer kept."""
        if revision < self._known_after:
            return None
        return [one for kept in self._kept for one in kept.events if one.revision > revision]

    async def caught_up(self, revision: int) -> Changes:
        """Read the changes after a revision from the store's history, as far as a batch goes. Raises HistoryCompactedError."""
        changes: Changes = await self._run(self._read, revision, self._reached)
        return changes

    async def end(self) -> None:
        """Follow no more."""
        follower, self._follower = self._follower, None
        if follower is not None:
            await self._run(follower.stop)

    # ---- in threads ------------------------------------------------------------------------------------------------------

    def _followed(self, loop: asyncio.AbstractEventLoop, revision: int) -> "_Follower":
        def call(act: Callable[..., None], *arguments: Any) -> None:
            # Why: a loop that is closed by now has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(act, *arguments)

        return _Follower(
            self._chamber.watch(after=revision), lambda changes: call(self._take, changes), lambda: call(self._lose)
        )

    def _read(self, revision: int, up_to: int) -> Changes:
        events: list[RecordEvent] = []
        with self._chamber.watch(after=revision) as watch:
            for _ in range(_TURNS_MAX):
                if watch.revision >= up_to or len(events) >= KEPT_MAX:
                    break
                events += watch.poll(_POLL_SECONDS)
            return Changes(events, watch.revision)

    # ---- in the event loop -----------------------------------------------------------------------------------------------

    def _take(self, changes: Changes) -> None:
        self._reached = changes.revision
        if changes.events:
            self._kept.append(changes)
            self._kept_count += len(changes.events)
        while self._kept_count > KEPT_MAX and len(self._kept) > 1:
            dropped = self._kept.popleft()
            self._kept_count -= len(dropped.events)
            self._known_after = dropped.revision
        self.wakeup.wake()

    def _lose(self) -> None:
        self._follower = None
        self.wakeup.wake()


class _Follower:
    """A thread that hands on what a watch brings, until it is stopped; `lost` is called when the watch fails."""

    def __init__(self, watch: RecordWatch, take: Callable[[Changes], None], lost: Callable[[], None]) -> None:
        self._watch = watch
        self._take = take
        self._lost = lost
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="cloudchamber-changes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch and wait for the thread."""
        self._is_stopping = True
        with suppress(AlreadyClosedError):
            self._watch.close()
        self._thread.join(_JOIN_SECONDS_MAX)

    def _run(self) -> None:
        reached = self._watch.revision
        try:
            while not self._is_stopping:
                events = self._watch.poll(_POLL_SECONDS)
                if events or self._watch.revision != reached:
                    reached = self._watch.revision
                    self._take(Changes(events, reached))
        except KeyplanError as error:
            if not self._is_stopping:
                LOGGER.warning("changes of the store are no longer followed", extra={"facts": {"error": str(error)}})
                self._lost()
        except Exception:
            # Why: nobody sees a thread end, and others would wait for its changes for ever.
            self._lost()
            raise
        finally:
            with suppress(AlreadyClosedError):
                self._watch.close()
