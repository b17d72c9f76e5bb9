"""Health that follows the store: what a balancer is told is whether calls can be answered, not whether a process runs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from keyplan.apps.runm.logs import LOGGER
from keyplan.errors import KeyplanError

__all__ = ["followed_health"]

_LOOK_SECONDS: Final = 1.0
"""Why: as often as the original asks its store again; a read of one key costs the store nothing."""

_PATIENCE_SECONDS: Final = 3.0
"""How long a look may take. Why: a store that hangs raises no error for a while, and some never."""


@contextmanager
def followed_health(
    look: Callable[[], object],
    tell: Callable[[bool], None],
    *,
    look_seconds: float = _LOOK_SECONDS,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Generator[None, None, None]:
    """Call `tell` with whether the store answers, whenever that changes, for the length of a block.

    At first it counts as answering. `look` reads something, and raises an error while it cannot. No look begins before the last
    one has ended.
    """
    follower = _Follower(look, tell, patience_seconds)
    over = Event()

    def follow() -> None:
        while not over.wait(look_seconds):
            follower.look_once(over)

    # Why daemons: one that waits for a store that hangs must hold up nobody's end.
    Thread(target=follow, name="runm-health", daemon=True).start()
    try:
        yield
    finally:
        over.set()


class _Follower:
    """Looks, and tells what has changed."""

    def __init__(self, look: Callable[[], object], tell: Callable[[bool], None], patience_seconds: float) -> None:
        self._look = look
        self._tell = tell
        self._patience_seconds = patience_seconds
        self._answers = True

    def look_once(self, over: Event) -> None:
        """Look, and return when the look has ended, or everything has."""
        answered, is_answer, errors = Event(), Event(), list[KeyplanError]()

        def ask() -> None:
            try:
                self._look()
                is_answer.set()
            except KeyplanError as error:
                errors.append(error)
            finally:
                answered.set()

        Thread(target=ask, name="runm-health-look", daemon=True).start()
        while not answered.wait(self._patience_seconds):
            if over.is_set():
                return
            self._note(f"it has not answered for {self._patience_seconds:g} seconds", answers=False)
        if not over.is_set():
            self._note("".join(map(str, errors)), answers=is_answer.is_set())

    def _note(self, why: str, *, answers: bool) -> None:
        if answers == self._answers:
            return
        self._answers = answers
        if answers:
            LOGGER.warning("the store answers again: health is SERVING")
        else:
            LOGGER.warning("the store cannot be reached: health is NOT_SERVING: %s", why)
        self._tell(answers)
