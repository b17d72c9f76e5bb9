"""Synchronous code that awaits: `drive` runs it in a greenlet on the event loop, and `wait` inside it awaits something.

Between the two stands ordinary synchronous code, which knows nothing of it. Nothing else here imports greenlet.
"""

from collections.abc import Awaitable, Callable
from threading import local
from typing import Any, Final, Generic, TypeVar, cast

from keyplan.errors import InvalidInputError

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ModuleNotFoundError as error:
    advice = "keyplan.aio needs the package 'greenlet': pip install 'keyplan[aio]'"
    raise ModuleNotFoundError(advice, name="greenlet") from error

__all__ = ["Drive", "drive", "is_driven", "wait"]

R = TypeVar("R")

_IDLE_MAX: Final = 64
"""Greenlets that a thread keeps for the next work, some 20 KiB each. Why: a new one takes ten times as long as a switch."""


class _End:
    """What a greenlet hands back when its work has ended; everything else that it hands back is to be awaited."""

    __slots__ = ("error", "result")

    def __init__(self, result: Any, error: BaseException | None) -> None:
        self.result = result
        self.error = error


class _Driven(greenlet):
    """A greenlet that does one work after the other. Its parent is that of the event loop."""


def _serve(work: Callable[[], object] | None) -> None:
    """Do work, hand back its end, and go on with what is handed in then, until that is nothing."""
    while work is not None:
        try:
            end = _End(work(), None)
        except GreenletExit:
            raise  # Why: whoever drove this is gone, and so is whoever would hand in more.
        except BaseException as error:  # noqa: BLE001  # Why: it is raised where the work is driven.
            end = _End(None, error)
        work = None
        parent = getcurrent().parent
        assert parent is not None
        work = parent.switch(end)
        del end


class _Idle(local):
    """The greenlets of this thread that have nothing to do."""

    def __init__(self) -> None:
        self.greenlets: list[_Driven] = []


_idle: Final = _Idle()


class Drive(Generic[R]):
    """`work`, called at once, as far as to its first wait; `rest` is to be awaited unless it `is_done` then.

    Raises what `work` raises before it waits.
    """

    __slots__ = ("_driven", "_step", "is_done", "result")

    result: R
    """What `work` returned."""
    _step: Any

    def __init__(self, work: Callable[[], R]) -> None:
        loop_side = getcurrent()
        kept = _idle.greenlets
        self._driven = driven = kept.pop() if kept else _Driven(_serve)
        driven.parent = loop_side
        driven.gr_context = loop_side.gr_context  # Why: context variables are those of the task, in both directions.
        self.is_done = False
        self._take(driven.switch(work))

    def _take(self, step: Any) -> None:
        """Take in what the greenlet hands back: the end of the work, or what it waits for."""
        if step.__class__ is not _End:
            self._step = step
            return
        self.is_done = True
        if len(_idle.greenlets) < _IDLE_MAX:
            _idle.greenlets.append(self._driven)
        else:
            self._driven.switch(None)
        if step.error is not None:
            try:
                raise step.error
            finally:
                del step  # Why: an error holds this frame, and so itself.
        self.result = step.result

    async def rest(self) -> R:
        """Await what `work` waits for, until it returns; return what it returns, and raise what it raises.

        Cancelling raises CancelledError at the place where `work` waits.
        """
        driven = self._driven
        while not self.is_done:
            try:
                answer = await self._step
            except BaseException as error:  # noqa: BLE001  # Why: it is raised where `work` waits.
                step = driven.throw(error)
            else:
                step = driven.switch(answer)
            self._take(step)
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
    return cast(R, _loop_side().switch(awaitable))


def _loop_side() -> greenlet:
    # Why apart: a greenlet that its own frame refers to would not be unwound as soon as nobody drives it.
    driven = getcurrent()
    if not isinstance(driven, _Driven) or driven.parent is None:
        raise InvalidInputError(source="engine", problem="its calls await, and can be made by keyplan.aio alone")
    return driven.parent
