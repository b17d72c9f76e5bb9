"""How commands print: rich on a terminal, plain text in a pipe, JSON when asked for."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeVar

__all__ = ["json_line", "print_grid", "print_json", "print_record", "print_text", "printable", "with_progress"]

T = TypeVar("T")

_GRID_ROWS_MAX: Final = 500
"""Why: columns are as wide as these rows need; a longer list is printed in parts, so that memory does not grow with it."""

_BAR_AFTER_SECONDS: Final = 0.5

_LAST_COLUMN_WIDTH_MIN: Final = 20
"""Why: a record of which less than this is seen says nothing; then the line is wrapped by the terminal."""


def json_line(value: Any, *, encoding: str | None = "utf-8") -> str:
    """Return one JSON document on one line, with its end: in escapes where text of `encoding` could not hold it.

    A number that JSON has no word for is the text "NaN", "Infinity" or "-Infinity", as in the JSON of protobuf messages.
    """
    is_unicode = (encoding or "").lower().replace("-", "") == "utf8"
    try:
        text = json.dumps(value, ensure_ascii=not is_unicode, separators=(", ", ": "), allow_nan=False)
    except ValueError:
        text = json.dumps(_in_words(value), ensure_ascii=not is_unicode, separators=(", ", ": "))
    return text + "\n"


def _in_words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _in_words(one) for name, one in value.items()}
    return [_in_words(one) for one in value] if isinstance(value, list | tuple) else value


def print_json(value: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json_line(value, encoding=sys.stdout.encoding))


def print_record(value: Any) -> None:
    """Print one JSON document: in colour and on many lines on a terminal, on one line in a pipe."""
    if not sys.stdout.isatty():
        print_json(value)
        return
    from rich.console import Console  # noqa: PLC0415  # Why: rich costs more than a command; only terminals see it.

    Console().print_json(json_line(value), indent=2)


def print_text(text: str) -> None:
    """Print text as it is."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def printable(text: str) -> str:
    """Return `text` with everything that does not print, such as a terminal's control characters, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def print_grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns: one line each.

    On a terminal with a head, aligned, the last column cut to the terminal's width. In a pipe without a head, whole, separated
    by tabs. What does not print is escaped in both.
    """
    clean = ([printable(cell) for cell in row] for row in rows)
    if not sys.stdout.isatty():
        for row in clean:
            sys.stdout.write("\t".join(row) + "\n")
        return
    first = list(islice(clean, _GRID_ROWS_MAX))
    if first:
        _print_columns(head, first, clean)


def _print_columns(head: Sequence[str], first: list[list[str]], others: Iterator[list[str]]) -> None:
    # Why: rich costs more than a command; only terminals see it.
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    widths = [0] * len(head)
    parts = chain([first], iter(lambda: list(islice(others, _GRID_ROWS_MAX)), []))
    for number, part in enumerate(parts):
        needed = [max(map(cell_len, column)) for column in zip(head, *part, strict=True)]
        widths = list(map(max, widths, needed))  # Why: a later part may need more room, and keys are never cut.
        room = console.width - sum(width + 2 for width in widths[:-1])
        widths[-1] = min(widths[-1], max(room, _LAST_COLUMN_WIDTH_MIN))
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=number == 0)
        for name, width in zip(head, widths, strict=True):
            grid.add_column(name, min_width=width, max_width=width, no_wrap=True, overflow="ellipsis")
        for row in part:
            grid.add_row(*(_verbatim(cell) for cell in row))
        console.print(grid, width=max(sum(widths) + 2 * len(widths), console.width), no_wrap=True, crop=False)


def _verbatim(cell: str) -> Any:
    from rich.text import Text  # noqa: PLC0415  # Why: as above. A str would be read as markup: "[red]" is a key like others.

    return Text(cell)


def with_progress(items: Iterable[T], *, total: int, title: str) -> Iterator[T]:
    """Yield `items` while a bar on standard error shows how far it is.

    No bar when that is not a terminal, nor during the first half second: what is soon done needs none.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from keyplan.engine import SYSTEM_CLOCK  # noqa: PLC0415  # Why: errors are printed by this module too, without a store.

    rest = iter(items)
    bar_at = SYSTEM_CLOCK.monotonic() + _BAR_AFTER_SECONDS
    for done, item in enumerate(rest, start=1):
        yield item
        if SYSTEM_CLOCK.monotonic() >= bar_at:
            yield from _with_bar(rest, done=done, total=total, title=title)


def _with_bar(items: Iterable[T], *, done: int, total: int, title: str) -> Iterator[T]:
    # Why: rich costs more than a command; only terminals see it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, completed=done)
        for item in items:
            yield item
            progress.advance(task)
