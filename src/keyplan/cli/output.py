"""How commands print: rich on a terminal, plain text in a pipe, JSON when asked for; also when the reader has gone."""

import errno
import io
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from keyplan.jobs import Progress

__all__ = [
    "Bar",
    "ReaderGone",
    "deliver_output",
    "document_of",
    "ends_with_reader",
    "json_line",
    "print_answer",
    "print_grid",
    "print_json",
    "print_lines",
    "print_record",
    "print_text",
    "printable",
    "progress_bar",
    "standard_streams",
    "with_progress",
]


T = TypeVar("T")

_GRID_ROWS_MAX: Final = 500
"""Why: columns are as wide as these rows need. A longer list is printed in parts, so that memory does not grow with it."""

_BAR_AFTER_SECONDS: Final = 0.5

_LAST_COLUMN_WIDTH_MIN: Final = 20
"""Why: less than this of a record shows nothing; then the terminal wraps the line."""


def json_line(value: Any, *, encoding: str | None = "utf-8") -> str:
    """Return one JSON document on one line, with the end of the line; in escapes where `encoding` is not UTF-8.

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


def print_lines(*lines: str) -> None:
    """Print lines of text, with everything that does not print as escapes."""
    for line in lines:
        print_text(printable(line))


def print_answer(document: Any, *lines: str, json: bool) -> None:
    """Print the answer of a command: one JSON document, or lines of text."""
    if json:
        print_json(document)
    else:
        print_lines(*lines)


def document_of(report: object) -> Any:
    r"""Return a report as JSON values: its fields in their order, a raw key as text with \xNN."""
    # Why here: errors are printed by this module too, without what a report needs.
    from msgspec import to_builtins  # noqa: PLC0415

    return _with_shown_keys(to_builtins(report, builtin_types=(bytes,)))


def _with_shown_keys(value: Any) -> Any:
    from keyplan.layout import shown_key  # noqa: PLC0415  # Why: as above.

    match value:
        case bytes():
            return shown_key(value)
        case dict():
            return {name: _with_shown_keys(one) for name, one in value.items()}
        case list() | tuple():
            return [_with_shown_keys(one) for one in value]
        case _:
            return value


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
    with progress_bar(title, lambda: total) as progress:
        for number, item in enumerate(items, start=done + 1):
            yield item
            progress(number)


class Bar:
    """Called with how much of the work is done, and with how much there is in all where that has changed."""

    def __init__(self, update: Callable[[int, int | None], object] | None = None) -> None:
        self._update = update

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show it, where somebody sees the bar."""
        if self._update is not None:
            self._update(done, total)

    def told(self, now: "Progress") -> None:
        """Show how far a job of keyplan is."""
        self(now.done)


@contextmanager
def progress_bar(title: str, total: Callable[[], int] | None = None) -> Iterator[Bar]:
    """Yield what is called with how far the work is. `total` is called only where somebody sees the bar.

    The bar says how much is done, how fast, and how long the rest takes; of work whose parts begin with 0, of each. Where
    nobody knows how much there is in all, it says how much is done.
    """
    if not sys.stderr.isatty():
        yield Bar()
        return
    # Why: rich costs more than a command; only terminals see it.
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns = (
        # Why no markup: a file may be called "[red]".
        *(progress.TextColumn("{task.description}", markup=False), progress.BarColumn()),
        *(progress.TextColumn("{task.fields[amount]}"), progress.TextColumn("{task.fields[rate]}")),
        progress.TimeRemainingColumn(),
    )
    # Why from the beginning: a part of the work may take longer than the half minute that rich looks back.
    bar = progress.Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=inf)
    with bar as shown:
        first = None if total is None else total()
        task = shown.add_task(printable(title), total=first, amount=_amount(0, first), rate="")
        shown.advance(
            task, 0
        )  # Why: rich takes a speed from one report to the next, and the first work is behind no other.

        def update(done: int, total: int | None) -> None:
            if done < shown.tasks[task].completed:
                # Why: the next part of the work begins, whose speed is its own.
                shown.reset(task)
                shown.advance(task, 0)
            seconds = shown.tasks[task].elapsed
            rate = f"{done / seconds:,.0f}/s" if done and seconds else ""
            whole = shown.tasks[task].total if total is None else total
            shown.update(task, completed=done, total=total, amount=_amount(done, whole), rate=rate)

        yield Bar(update)


def _amount(done: int, total: float | None) -> str:
    """How much is done, and of how much where that is known; nothing while neither is."""
    if total is None:
        return f"{done}" if done else ""
    return f"{done:{len(str(int(total)))}}/{int(total)}"


# ---- standard streams ----------------------------------------------------------------------------------------------------


_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class ReaderGone(BaseException):
    """Nobody reads the output of a command that only prints. No error: it ends the command, like Ctrl-C."""


class _Output(io.RawIOBase):
    """A descriptor that accepts all bytes, also when its reader is gone or its disk full. `failure`: why some were lost.

    `is_seen`: somebody may read it; it does not stand for a stream that the caller closed.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.is_all_there_is = False
        self.is_seen = True
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]  # any buffer, as io calls it
        if self.failure is None:
            try:
                return os.write(self._descriptor, data)
            except OSError as error:
                self.failure = error
        if self.is_all_there_is and self.failure.errno == errno.EPIPE:
            raise ReaderGone
        return len(data)


_output: _Output | None = None


def ends_with_reader() -> None:
    """Let the running command end with exit code 0 when nobody reads its output any more. For commands that only print."""
    if _output is not None:
        _output.is_all_there_is = True


def deliver_output() -> None:
    """Bring what was printed to where standard output leads, onto its disk if that is a file.

    For what is shown once, before the act that counts on its having been seen. Raises OSError where it does not get there: the
    disk is full, the reader gone, the stream closed.
    """
    sys.stdout.flush()
    if _output is None:
        return
    if not _output.is_seen:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    if _output.failure is not None:
        raise _output.failure
    if stat.S_ISREG(os.fstat(_output.fileno()).st_mode):
        os.fsync(_output.fileno())  # Why: some file systems say only then that they have no room.


@contextmanager
def standard_streams() -> Iterator["_Output | None"]:
    """Replace the standard streams for a block, also those that the caller closed (`>&-`), by streams that lose no error.

    Yields the output that stands behind `sys.stdout`; its `failure` is the first error. None when that is no file of the
    system's.
    """
    global _output  # noqa: PLW0603  # Why: a process has one standard output.
    is_seen = sys.stdout is not None
    with ExitStack() as stack:
        for name, mode in _STREAMS:
            if getattr(sys, name) is None:
                nowhere = stack.enter_context(Path(os.devnull).open(mode, encoding="utf-8"))
                setattr(sys, name, nowhere)
                stack.callback(setattr, sys, name, None)
        _output = _replaced(stack, "stdout")
        if _output is not None:
            _output.is_seen = is_seen
        _replaced(stack, "stderr")
        try:
            yield _output
        finally:
            _output = None


def _replaced(stack: ExitStack, name: str) -> _Output | None:
    """Put an `_Output` behind a standard stream until the stack ends. None when it is no file of the system's, as in tests."""
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper):
        return None
    # Why: a record may hold text that the terminal's encoding has no bytes for; an escape helps more than a failure.
    stream.reconfigure(errors="backslashreplace")
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    stream.flush()
    output = _Output(descriptor)
    is_line_wise = stream.line_buffering or name == "stderr"
    raw: Any = output  # Why: type checkers hold the write of a raw stream to types that have no name.
    buffer = io.BufferedWriter(raw)
    text = io.TextIOWrapper(buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=is_line_wise)
    setattr(sys, name, text)

    def restore() -> None:
        setattr(sys, name, stream)
        output.is_all_there_is = False  # what is left over is thrown away in silence
        text.close()

    stack.callback(restore)
    return output
