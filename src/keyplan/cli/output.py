"""How commands print: rich on a terminal, plain text in a pipe, JSON when asked for."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

__all__ = ["print_grid", "print_json", "print_text", "with_progress"]

T = TypeVar("T")


def print_json(value: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) + "\n")


def print_text(text: str) -> None:
    """Print text as it is."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns: with rules and colour on a terminal, separated by tabs in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write("\t".join(row) + "\n")
        return
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in head:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    Console(highlight=False).print(grid, markup=False)


def with_progress(items: Iterable[T], *, total: int, title: str) -> Iterator[T]:
    """Yield `items` while a bar on standard error shows how far it is; no bar when that is not a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=title)
