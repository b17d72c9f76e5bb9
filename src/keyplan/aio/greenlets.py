"""Synchronous code that awaits: `drive` runs it in a greenlet on the event loop, and `wait` inside it awaits something.

Between the two stands ordinary synchronous code, which knows nothing of it. Nothing else here imports greenlet.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

from keyplan.errors import InvalidInputError

__all__ = ["Drive", "drive", "is_driven", "wait"]

R = TypeVar("R")


class _Driven(greenlet):
    """A greenlet that a drive runs. Its parent is that of the event loop."""


class Drive(Generic[R]):
    """`work`, called at once, as far as to its first wait; `rest` is to be awaited unless it `is_done` then.

    Raises what `work` raises before it waits.
    """

    __slots__ = ("_driven", "_step")

    def __init__(self, work: Callable[[], R]) -> None:
        loop_side = getcurrent()
        self._driven = driven = _Driven(work, loop_side)
        driven.gr_context = loop_side.gr_context  # Why: context variables are those of the task, in both directions.
        self._step: Any = driven.switch()

    @property
    def is_done(self) -> bool:
        """True when `work` has returned."""
        return bool(self._driven.dead)

    @property
    def result(self) -> R:
        """What `work` returned."""
        return cast(R, self._step)

    async def rest(self) -> R:
        """Await what `work` waits for, until it returns; return what it returns, and raise what it raises.

        Cancelling raises CancelledError at the place where `work` waits.
        """
        driven = self._driven
        while not driven.dead:
            try:
                answer = await self._step
            except BaseException as error:  # noqa: BLE001  # Why: it is raised where `work` waits.
                self._step = driven.throw(error)
                continue
            self._step = driven.switch(answer)
        return self.result


async def drive(work: Callable[[], R]) -> R:
    """Call `work` here, on the event loop, and return what it returns; what it waits for is awaited meanwhile."""
    begun = Drive(work)
    return begun.result if begun.is_done else await begun.rest()


def is_driven() -> bool:
    """Tell whether the code that calls this runs inside `drive`, so that it may `wait`."""
    return isinstance(getcurrent(), _Driven)


def wait(awaitable: Awaitable[R]) -> R:
    """Await something from synchronous code that runs inside `drive`, and return its result or raise its error."""
    driven = getcurrent()
    if not isinstance(driven, _Driven) or driven.parent is None:
        raise InvalidInputError(source="engine", problem="its calls await, and can be made by keyplan.aio alone")
    return cast(R, driven.parent.switch(awaitable))
