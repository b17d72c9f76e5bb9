"""Synchronous code that awaits: `drive` runs it in a greenlet on the event loop, and `wait` inside it awaits something.

Between the two stands ordinary synchronous code, which knows nothing of it. Nothing else here imports greenlet.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

__all__ = ["drive", "is_driven", "wait"]

R = TypeVar("R")


class _Driven(greenlet):
    """A greenlet that `drive` runs. Its parent is that of the event loop."""


async def drive(work: Callable[[], R]) -> R:
    """Call `work` here, on the event loop, and return what it returns; what it waits for is awaited meanwhile.

    Cancelling raises CancelledError at the place where `work` waits. Raises what `work` raises.
    """
    loop_side = getcurrent()
    driven = _Driven(work, loop_side)
    driven.gr_context = loop_side.gr_context  # Why: context variables are those of the task, in both directions.
    step: Any = driven.switch()
    while not driven.dead:
        try:
            answer = await step
        except BaseException as error:  # noqa: BLE001  # Why: it is raised where `work` waits.
            step = driven.throw(error)
            continue
        step = driven.switch(answer)
    return cast(R, step)


def is_driven() -> bool:
    """Tell whether the code that calls this runs inside `drive`, so that it may `wait`."""
    return isinstance(getcurrent(), _Driven)


def wait(awaitable: Awaitable[R]) -> R:
    """Await something from synchronous code that runs inside `drive`, and return its result or raise its error."""
    parent = getcurrent().parent
    assert is_driven(), "only inside drive"
    assert parent is not None
    return cast(R, parent.switch(awaitable))
