"""How `hepnos.aio` calls the synchronous API: views of its objects, whose methods are taken over one by one."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from keyplan.apps.hepnos.aio_threads import Steps

__all__ = ["Awaited", "Caller", "View", "awaited", "in_thread", "leading", "maybe"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
I_co = TypeVar("I_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

_PIECE: Final = 1_024
"""Containers that a thread takes at once. Why: handing one over costs more than reading it."""

Awaited = Coroutine[Any, Any, R]


class Caller(Protocol):
    """How calls of the synchronous API are made without holding up the event loop."""

    async def call(self, function: Callable[[], R]) -> R:
        """Return what a call returns, made in a thread."""
        ...

    def call_short(self, function: Callable[[], R]) -> Awaited[R]:
        """Return what a call returns that computes next to nothing."""
        ...

    async def end(self, close: Callable[[], None]) -> None:
        """Wait for the calls that are under way in threads, then close. Cancelled, it ends first all the same."""
        ...


class View(Generic[I_co]):
    """One object of the synchronous API, `sync`, and what makes its calls. Equal when those objects are."""

    __slots__ = ("caller", "sync")

    def __init__(self, sync: I_co, caller: Caller) -> None:
        self.sync = sync
        self.caller = caller

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in a thread of the store's, and return what it returns."""
        return await self.caller.call(partial(function, *args, **kwargs))

    def call_short(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Awaited[R]:
        """Call a function that does hardly more than to wait for the store: in the loop itself where that can be awaited."""
        # Why no coroutine of its own: each takes as long as a tenth of a small load.
        return self.caller.call_short(partial(function, *args, **kwargs))

    async def each(self, items: Callable[[], Iterator[S]], *, at_once: int = _PIECE) -> AsyncGenerator[S, None]:
        """Yield what an iterator has, which is begun and advanced in threads; it is closed when this one is."""
        steps = Steps(items)
        try:
            while piece := await self.call_short(steps.next, at_once):
                for one in piece:
                    yield one
        finally:
            await self.call_short(steps.close)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and other.sync == self.sync

    def __hash__(self) -> int:
        return hash(self.sync)

    def __repr__(self) -> str:
        return f"<awaited {self.sync!r}>"


class awaited(Generic[I_co, P, R]):  # noqa: N801  # Why: used like a decorator.
    """A method of the synchronous object, called in a thread."""

    def __init__(self, method: Callable[Concatenate[I_co, P], R]) -> None:
        self._method: Callable[..., R] = method

    def __get__(self, view: View[I_co], owner: object) -> Callable[P, Awaited[R]]:
        return partial(view.call_short, self._method, view.sync)


class in_thread(awaited[I_co, P, R]):  # noqa: N801  # Why: as above.
    """A method that takes a while beside what it waits for, as many columns at once do: always called in a thread."""

    def __get__(self, view: View[I_co], owner: object) -> Callable[P, Awaited[R]]:
        return partial(view.call, self._method, view.sync)


class leading(Generic[I_co, P, S, V_co]):  # noqa: N801  # Why: as above.
    """A method that returns another object of the synchronous API, of which a view is given."""

    def __init__(self, method: Callable[Concatenate[I_co, P], S], view: Callable[[S, Caller], V_co]) -> None:
        self._method: Callable[..., S] = method
        self._view = view

    def __get__(self, view: View[I_co], owner: object) -> Callable[P, Awaited[V_co]]:
        async def led(*args: P.args, **kwargs: P.kwargs) -> V_co:
            return self._view(await view.call_short(self._method, view.sync, *args, **kwargs), view.caller)

        return led


def maybe(view: Callable[[S, Caller], R]) -> Callable[[S | None, Caller], R | None]:
    """Return what gives a view of an object, or None where there is none."""
    return lambda found, caller: None if found is None else view(found, caller)
