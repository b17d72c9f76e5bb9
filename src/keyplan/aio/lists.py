"""Lists that are iterated with `async for`: a synchronous iterator, advanced in parts or one by one."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from keyplan.errors import KeyplanError

__all__ = ["in_parts", "one_by_one"]

T = TypeVar("T")

_PART_RECORDS_FIRST: Final = 16
_PART_RECORDS_MAX: Final = 512
"""Why: a thread costs as much as some fifty records; parts grow, so that who wants a few does not wait for many."""

_END: Final = object()


async def in_parts(run: Callable[[Callable[[], Any]], Awaitable[Any]], found: Iterator[T]) -> AsyncGenerator[T, None]:
    """Yield what `found` does; `run` advances it by a part at a time. An error comes after what was found before it."""
    size = _PART_RECORDS_FIRST
    try:
        while True:
            part, error = await run(partial(_taken, found, size))
            for item in part:
                yield item
            if error is not None:
                raise error
            if len(part) < size:
                return
            size = min(2 * size, _PART_RECORDS_MAX)
    finally:
        _close(found)


async def one_by_one(run: Callable[[Callable[[], Any]], Awaitable[Any]], found: Iterator[T]) -> AsyncGenerator[T, None]:
    """Yield what `found` does; `run` advances it for each, so that nothing is read that was not asked for."""
    try:
        while (item := await run(partial(next, found, _END))) is not _END:
            yield item
    finally:
        _close(found)


def _taken(found: Iterator[T], size: int) -> tuple[list[T], KeyplanError | None]:
    part: list[T] = []
    try:
        part.extend(islice(found, size))
    except KeyplanError as error:
        return part, error
    return part, None


def _close(found: Iterator[object]) -> None:
    close: Callable[[], object] | None = getattr(found, "close", None)
    if close is not None:
        close()
