"""Reading a server's audit log: its files, the older ones first; verified; and a page of a file that is being written."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.audit_log.chain import FIRST_PREVIOUS, Chain, Head
from keyplan.audit_log.records import LINE_BYTES_MAX, AuditRecord, Event, TornEnd, link_of, record_in
from keyplan.errors import InvalidInputError

__all__ = ["FileVerdict", "Line", "lines_behind", "read_lines", "verified_files"]

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
    them.
    """

    is_whole: bool
    first: int
    last: int
    broken_at: int | None
    problem: str
    file: str | None
    head: str
    torn: tuple[int, ...]


def read_lines(files: Sequence[Path]) -> Iterator[Line]:
    """Yield the lines of files, the older ones first, however they are given. Raises InvalidInputError for a missing one."""
    for path in sorted(files, key=_first_number):
        for raw in _lines_of(path):
            yield Line(path, raw, record_in(raw))


def verified_files(files: Sequence[Path], *, after: str | None = None, head: str | None = None) -> FileVerdict:
    """Go through the files of one log. A line that was changed, removed or put in breaks the chain.

    The first file begins with line 1, or, with `after`, behind the line of this digest. With `head`, a line of this digest has
    to be there: kept from an earlier verification, it shows that nothing was cut off up to there. Raises InvalidInputError.
    """
    return _Verification(files, after, head).verdict()


class _Verification:
    """One pass over the lines. What cannot be read is kept until the next line tells whether a server found it torn."""

    def __init__(self, files: Sequence[Path], after: str | None, head: str | None) -> None:
        self._lines = read_lines(files)
        self._after = after
        self._wanted_head = head
        self._is_head_there = head is None or head == after
        self._chain: Chain | None = None
        self._first = 0
        self._file: Path | None = None
        self._unread: list[bytes] = []
        self._torn: list[int] = []

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
        if is_whole and not self._is_head_there:
            is_whole, broken_at, problem = False, found.last + 1, "it is missing: no line has the digest that was kept"
        file = None if is_whole or self._file is None else str(self._file)
        last = found.last if self._first and found.last >= self._first else 0
        return FileVerdict(is_whole, self._first, last, broken_at, problem, file, found.head, tuple(self._torn))

    def _add(self, line: Line) -> bool:
        """Take the next line; False when it is known where the chain breaks."""
        record = line.record
        if record is None:
            self._unread.append(line.raw)
            return sum(map(len, self._unread)) <= _TORN_BYTES_MAX or self._break()
        if self._unread or record.event is Event.TORN:
            if record.event is not Event.TORN or record.torn != _torn_end(self._unread):
                return self._break()
            self._torn.append(record.number)
            self._unread = []
        link = link_of(record, line.raw)
        self._is_head_there = self._is_head_there or link.digest == self._wanted_head
        return self._begun(record.number).add(record.number, link)

    def _begun(self, number: int) -> Chain:
        """Return the chain, which begins with the first line; that has this number."""
        if self._chain is None:
            self._first = 1 if self._after is None else number
            self._chain = Chain(Head(self._first - 1, self._after or FIRST_PREVIOUS))
        return self._chain

    def _break(self) -> bool:
        """End where a line should follow, and what is there is none."""
        chain = self._begun(1)
        return chain.add(chain.last.number + 1, None)


def _torn_end(lines: Sequence[bytes]) -> TornEnd:
    torn = b"\n".join(lines)
    return TornEnd(len(torn), hashlib.sha256(torn).hexdigest())


def _lines_of(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            # Why a bound: a file of one endless line is none of ours, and is not to be held in memory.
            while raw := file.readline(LINE_BYTES_MAX):
                yield raw.removesuffix(b"\n")
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be read: {error.strerror or error}") from error


def _first_number(path: Path) -> int:
    return next((record.number for raw in _lines_of(path) if (record := record_in(raw)) is not None), 0)


# ---- a page ----------------------------------------------------------------------------------------------------------


def lines_behind(path: Path, number: int, *, limit: int) -> list[AuditRecord]:
    """Return the records of a file behind the line of this number, at most so many; the file may be written meanwhile.

    Where they begin is searched for by halves: a page costs the same in a long file. Raises InvalidInputError.
    """
    found: list[AuditRecord] = []
    try:
        with path.open("rb") as file:
            file.seek(_place_before(file.fileno(), number))
            while len(found) < limit and (raw := file.readline(LINE_BYTES_MAX)):
                # Why the end: a line without it is being written.
                record = record_in(raw) if raw.endswith(b"\n") else None
                if record is not None and record.number > number:
                    found.append(record)
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be read: {error.strerror or error}") from error
    return found


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
