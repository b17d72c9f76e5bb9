"""Reading a server's audit log: its files, the older ones first; verified; and a page of a file that is being written."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from keyplan.audit_log.chain import FIRST_PREVIOUS, Chain, Head
from keyplan.audit_log.files import older_files
from keyplan.audit_log.records import LINE_BYTES_MAX, AuditRecord, Event, TornEnd, line_of, link_of, record_in
from keyplan.errors import InvalidInputError

__all__ = [
    "FileVerdict",
    "Line",
    "Page",
    "first_number_in",
    "page_of",
    "read_lines",
    "verified_files",
    "verified_records",
]

_BLOCK_BYTES: Final = 4 * LINE_BYTES_MAX
_TORN_BYTES_MAX: Final = 2 * _BLOCK_BYTES


class Line(NamedTuple):
    """A line of a file as it stands there, without its end; the record is None where it is none."""

    file: Path
    raw: bytes
    record: AuditRecord | None


class FileVerdict(NamedTuple):
    """Whether files are a whole log. `first` and `last` are the numbers of the first and the last good line, 0: there is none.

    `broken_at` is the number of the first line that is missing, or is not as it was written, and `file` the one where that was
    found. `head` is the digest of the last good line. `torn` are the numbers of the lines that tell of a loss of power before
    them. `removed` is the number of the last line of the older files that a server removed, as a line tells; 0: there are none.
    """

    is_whole: bool
    first: int
    last: int
    broken_at: int | None
    problem: str
    file: str | None
    head: str
    torn: tuple[int, ...]
    removed: int


def read_lines(files: Sequence[Path]) -> Iterator[Line]:
    """Yield the lines of files, the older ones first, however they are given; with those that a server renamed beside them.

    A server may write and rename them meanwhile. Raises InvalidInputError for a missing one.
    """
    with ExitStack() as stack:
        for path, file in sorted(_sources(files, stack), key=lambda one: _first_number(*one)):
            for raw in _lines_of(path, file):
                yield Line(path, raw, record_in(raw))


def verified_files(files: Sequence[Path], *, after: str | None = None, head: str | None = None) -> FileVerdict:
    """Go through the files of one log. A line that was changed, removed or put in breaks the chain.

    The first file begins with line 1; or, with `after`, behind the line of this digest; or behind what a later line tells that
    its server removed. With `head`, a line of this digest has to be there: kept from an earlier verification, it shows that
    nothing was cut off up to there. Raises InvalidInputError.
    """
    return _Verification(read_lines(files), after, head).verdict()


def verified_records(
    records: Iterable[AuditRecord], *, source: str, after: str | None = None, head: str | None = None
) -> FileVerdict:
    """Go through a log as the server that writes it tells it, `source`; as `verified_files`.

    A line's digest is that of the line that its record makes. What a loss of power left of a line is not told, and taken as the
    server says it.
    """
    lines = (Line(Path(), line_of(record), record) for record in records)
    found = _Verification(lines, after, head, has_torn=False).verdict()
    return found if found.file is None else found._replace(file=source)


class _Verification:
    """One pass over the lines. What cannot be read is kept until the next line tells whether a server found it torn."""

    def __init__(self, lines: Iterable[Line], after: str | None, head: str | None, *, has_torn: bool = True) -> None:
        self._lines = lines
        self._has_torn = has_torn
        self._after = after
        self._wanted_head = head
        self._is_head_there = head is None or head == after
        self._chain: Chain | None = None
        self._first = 0
        self._file: Path | None = None
        self._first_file: Path | None = None
        self._unread: list[bytes] = []
        self._torn: list[int] = []
        self._removed: Head | None = None
        """What a line has to tell that was removed: all before the first line there is. None: nothing lacks."""

    def verdict(self) -> FileVerdict:
        for line in self._lines:
            self._file = line.file
            if not self._add(line):
                break
        else:
            if self._unread or self._chain is None:
                self._break()
        assert self._chain is not None
        found = self._chain.verdict()
        is_whole, broken_at, problem = found.is_whole, found.broken_at, found.problem
        if self._removed is not None:
            # Why whatever else is broken: it is the first.
            is_whole, broken_at, problem, self._file = False, 1, "it is missing", self._first_file
        if is_whole and not self._is_head_there:
            is_whole, broken_at, problem = False, found.last + 1, "it is missing: no line has the digest that was kept"
        file = None if is_whole or self._file is None else str(self._file)
        first = 1 if self._removed is not None else self._first
        last = found.last if self._removed is None and self._first and found.last >= self._first else 0
        removed = self._first - 1 if is_whole and self._after is None and self._first else 0
        return FileVerdict(is_whole, first, last, broken_at, problem, file, found.head, tuple(self._torn), removed)

    def _add(self, line: Line) -> bool:
        """Take the next line; False when it is known where the chain breaks."""
        record = line.record
        if record is None:
            self._unread.append(line.raw)
            return sum(map(len, self._unread)) <= _TORN_BYTES_MAX or self._break()
        if self._unread or record.event is Event.TORN:
            is_found = record.torn == _torn_end(self._unread) or not self._has_torn
            if record.event is not Event.TORN or not is_found:
                return self._break()
            self._torn.append(record.number)
            self._unread = []
        link = link_of(record, line.raw)
        self._is_head_there = self._is_head_there or link.digest == self._wanted_head
        goes_on = self._begun(record.number, link.previous).add(record.number, link)
        gone = record.removed
        if goes_on and gone is not None and record.event is Event.REMOVED and self._removed == (gone.last, gone.digest):
            self._removed = None
        return goes_on

    def _begun(self, number: int, previous: str) -> Chain:
        """Return the chain, which begins with the first line; that has this number, and names this digest before it."""
        if self._chain is None:
            self._first, self._first_file = number, self._file
            before = Head(number - 1, self._after or (previous if number > 1 else FIRST_PREVIOUS))
            self._removed = before if self._after is None and number > 1 else None
            self._chain = Chain(before)
        return self._chain

    def _break(self) -> bool:
        """End where a line should follow, and what is there is none."""
        chain = self._begun(1, FIRST_PREVIOUS)
        return chain.add(chain.last.number + 1, None)


def _torn_end(lines: Sequence[bytes]) -> TornEnd:
    torn = b"\n".join(lines)
    return TornEnd(len(torn), hashlib.sha256(torn).hexdigest())


def _sources(files: Sequence[Path], stack: ExitStack) -> list[tuple[Path, BinaryIO | None]]:
    """Return the files, each once; open those that a server may rename, so that each is read under the name that it had."""
    found: dict[tuple[int, int], tuple[Path, BinaryIO | None]] = {}
    for path in files:
        try:
            file = stack.enter_context(path.open("rb"))
        except OSError as error:
            # Why: whoever is killed between two files leaves the older ones alone.
            if not isinstance(error, FileNotFoundError) or not older_files(path):
                raise _unreadable(path, error) from error
        else:
            found.setdefault(_identity(os.fstat(file.fileno())), (path, file))
    for older in (older for path in files for older in older_files(path)):
        try:
            found.setdefault(_identity(older.path.stat()), (older.path, None))
        except OSError as error:
            raise _unreadable(older.path, error) from error
    return list(found.values())


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lines_of(path: Path, file: BinaryIO | None) -> Iterator[bytes]:
    """Yield the lines of a file from its beginning, without their ends. Raises InvalidInputError."""
    try:
        if file is None:
            with path.open("rb") as opened:
                yield from _lines_in(opened)
        else:
            yield from _lines_in(file)
    except OSError as error:
        raise _unreadable(path, error) from error


def _lines_in(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    # Why a bound: a file of one endless line is none of ours, and is not to be held in memory.
    while raw := file.readline(LINE_BYTES_MAX):
        yield raw.removesuffix(b"\n")


def _unreadable(path: Path, error: OSError) -> InvalidInputError:
    return InvalidInputError(source=str(path), problem=f"it cannot be read: {error.strerror or error}")


def _first_number(path: Path, file: BinaryIO | None) -> int:
    return next((record.number for raw in _lines_of(path, file) if (record := record_in(raw)) is not None), 0)


# ---- a page ----------------------------------------------------------------------------------------------------------


class Page(NamedTuple):
    """Records, and how many bytes their lines have."""

    records: list[AuditRecord]
    bytes: int


def page_of(descriptor: int, number: int, *, limit: int, bytes_max: int) -> Page:
    """Return the records of an open file behind the line of this number: at most so many, of about so many bytes.

    The file may be written meanwhile. Where they begin is searched for by halves: a page costs the same in a long file. Raises
    OSError.
    """
    found: list[AuditRecord] = []
    size = 0
    for raw in _whole_lines(descriptor, _place_before(descriptor, number)):
        record = record_in(raw)
        if record is not None and record.number > number:
            found.append(record)
            size += len(raw)
        if len(found) >= limit or size >= bytes_max:
            break
    return Page(found, size)


def first_number_in(descriptor: int) -> int:
    """Return the number of the first line of an open file, 0 where there is none. Raises OSError."""
    return next((record.number for raw in _whole_lines(descriptor, 0) if (record := record_in(raw)) is not None), 0)


def _whole_lines(descriptor: int, place: int) -> Iterator[bytes]:
    """Yield the lines behind a place, without their ends; one without an end is being written, and is left out.

    Why by places: others read the same open file meanwhile.
    """
    rest = b""
    while block := os.pread(descriptor, _BLOCK_BYTES, place):
        place += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > _TORN_BYTES_MAX:
            rest = b"?"  # Why: it is no line of ours, and not to be held in memory.


def _place_before(descriptor: int, number: int) -> int:
    """Return the place of a line at most a block before the one behind `number`."""
    low, high = 0, os.fstat(descriptor).st_size
    while high - low > _BLOCK_BYTES:
        middle = (low + high) // 2
        place, record = _line_from(descriptor, middle)
        if record is not None and record.number <= number:
            low = place
        else:
            high = middle
    return low


def _line_from(descriptor: int, place: int) -> tuple[int, AuditRecord | None]:
    """Return the first line that begins behind a place, and where; None when there is none within a block."""
    block = os.pread(descriptor, _BLOCK_BYTES, place)
    begin = block.find(b"\n") + 1
    while begin:
        end = block.find(b"\n", begin)
        if end < 0:
            break
        if (record := record_in(block[begin:end])) is not None:
            return place + begin, record
        begin = end + 1
    return place, None
