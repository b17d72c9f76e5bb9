"""A bar on standard error for work that tells how far it is; nothing where that is not a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar"]


@contextmanager
def bar(title: str, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how much of the total is done; `total` is asked for only when somebody sees it."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    # Why: rich costs more than a command; only terminals see it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total())
        yield lambda done: progress.update(task, completed=done)
