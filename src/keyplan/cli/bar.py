"""A bar on standard error for work that tells how far it is; nothing where that is not a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Progressed", "progress_bar"]


class Progressed(Protocol):
    """Told how much of the work is done, and how much there is in all when that is news."""

    def __call__(self, done: int, total: int | None = None, /) -> None: ...


@contextmanager
def progress_bar(title: str, total: Callable[[], int] | None = None) -> Iterator[Progressed]:
    """Give a function that is told how far the work is; `total` is asked for only when somebody sees it."""
    if not sys.stderr.isatty():
        yield _unseen
        return
    # Why: rich costs more than a command; only terminals see it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None if total is None else total())

        def seen(done: int, total: int | None = None, /) -> None:
            progress.update(task, completed=done, total=total)

        yield seen


def _unseen(_done: int, _total: int | None = None, /) -> None:
    """Show nothing."""
