"""One thread that follows every change of a store, for any number of waiting clients."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from keyplan.engine import ALL_KEYS, Engine, Event, Watch
from keyplan.errors import KeyplanError

__all__ = ["Follower"]

_POLL_SECONDS: Final = 1.0
"""Why: the bound on how long an end that nobody announced goes unnoticed; changes and `stop` wake the watch at once."""

_JOIN_SECONDS_MAX: Final = 10.0


class Follower:
    """Hands every batch of changes to `sink` with the revision that it reaches, in order, from its own thread.

    When the watch fails, `lost` is called once with the error, from that thread, which then ends; start another one.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        after: int,
        sink: Callable[[Sequence[Event], int], None],
        lost: Callable[[KeyplanError], None],
    ) -> None:
        """Open the watch. Raises HistoryCompactedError when the changes after `after` are no longer known."""
        self._sink = sink
        self._lost = lost
        self._is_stopping = False
        self._watch: Watch = engine.watch(ALL_KEYS, after=after)
        self._thread = threading.Thread(target=self._run, name="keyplan-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        reached = self._watch.revision
        try:
            while not self._is_stopping:
                events = self._watch.poll(_POLL_SECONDS)
                if events or self._watch.revision != reached:
                    reached = self._watch.revision
                    self._sink(events, reached)
        except KeyplanError as error:
            if not self._is_stopping:
                self._lost(error)
        finally:
            with suppress(KeyplanError):
                self._watch.close()

    def stop(self) -> None:
        """End the watch and wait for the thread. Stopping twice is harmless."""
        self._is_stopping = True
        with suppress(KeyplanError):
            self._watch.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS_MAX)
