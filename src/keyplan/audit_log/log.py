"""An audit log that a server writes: lines in a file that only grows, each with the digest of the one before.

One thread writes. What came meanwhile is written together, and flushed to the disk together; whoever asked for a line has its
number when the line is there. One process has a file: a lock beside it says which. A file that another one took the place of
(`logrotate` renames it) is left at `reopen`, and the first line of the new one names the last line of the old one.
"""

import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from keyplan.audit_log.chain import Head
from keyplan.audit_log.ends import end_of
from keyplan.audit_log.records import AuditRecord, Event, TornEnd, digest_of_line, line_of, time_text
from keyplan.errors import AuditLogError, AuditLogIncompleteError, InvalidInputError
from keyplan.files import FILE_MODE, open_file, sync_folder

__all__ = ["LINES_WAITING_MAX", "AuditLog"]

LINES_WAITING_MAX: Final = 10_000
"""Why: a server refuses work beyond a tenth of this; so many lines are a few megabytes."""

_LINES_TOGETHER_MAX: Final = 1_000
_HOLDER_BYTES_MAX: Final = 200

_MADE: Final = frozenset({Event.DONE, Event.FAILED, Event.UNKNOWN})
"""What must be written in the end, whatever happened: it tells of what was done."""


class _Asked(NamedTuple):
    """A line that somebody waits for: all fields but the number and the digest of the line before."""

    fields: dict[str, Any]
    written: "Future[int]"

    @property
    def is_of_end(self) -> bool:
        return self.fields["event"] in _MADE


class _Reopening(NamedTuple):
    done: "Future[Head]"


class AuditLog:
    """The audit log of one server, open for writing. Safe for use by several threads.

    With `syncs`, a line counts as written when it is on the disk; else when the system has it, which outlives the process and
    no loss of power. `wall` is the clock on the wall. Raises InvalidInputError for a file that cannot be opened, that is no
    audit log, or that another process writes.
    """

    def __init__(self, path: Path, *, wall: Callable[[], float], syncs: bool = True) -> None:
        self.path = path
        self._syncs = syncs
        self._wall = wall
        self._lock = _taken(path, time_text(wall()))
        try:
            self._file = _opened(path)
            try:
                end = end_of(self._file, path)
            except BaseException:
                os.close(self._file)
                raise
        except BaseException:
            os.close(self._lock)
            raise
        self._head = end.head
        self._size = os.fstat(self._file).st_size
        self._asked: deque[_Asked | _Reopening] = deque()
        self._owed: list[_Asked] = []
        """Ends of changes that found no room: they come first as soon as there is some."""
        self._is_closed = False
        self._problem = ""
        self._changed = threading.Condition()
        try:
            self._begin(end.torn, is_line_open=end.is_line_open)
        except OSError as error:
            os.close(self._file)
            os.close(self._lock)
            raise InvalidInputError(source=str(path), problem=f"it cannot be written: {_words(error)}") from error
        self._thread = threading.Thread(target=self._run, name="keyplan-audit-log", daemon=True)
        self._thread.start()

    def _begin(self, torn: TornEnd | None, *, is_line_open: bool) -> None:
        if is_line_open:
            self._size += os.write(self._file, b"\n")
        if torn is not None:
            self._write([self._asking(Event.TORN, torn=torn)])
        self._write([self._asking(Event.OPENED)])
        sync_folder(self.path.parent)

    # ---- writing --------------------------------------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        """The number and digest of the last line."""
        return self._head

    @property
    def waiting(self) -> int:
        """How many lines wait to be written."""
        return len(self._asked) + len(self._owed)

    def append(self, event: Event, **fields: Any) -> "Future[int]":
        """Have a line written, with these fields of AuditRecord; the number of the line when it is.

        The future raises AuditLogError where it cannot be written, and nothing of it is in the file; of the end of a change
        AuditLogIncompleteError: that line is written as soon as it can be. Raises AuditLogError when too many lines wait.
        """
        asked = self._asking(event, **fields)
        with self._changed:
            if self._is_closed:
                raise self._failure("it is closed")
            if len(self._asked) >= LINES_WAITING_MAX and not asked.is_of_end:
                raise self._failure(f"{LINES_WAITING_MAX} lines wait to be written")
            self._asked.append(asked)
            self._changed.notify()
        return asked.written

    def reopen(self) -> "Future[Head]":
        """Go on in the file that has the log's name now, if it is another one; the head of the old one when that is done.

        The future raises InvalidInputError for a new file that is not empty or cannot be opened; then the old one goes on.
        """
        reopening = _Reopening(Future())
        with self._changed:
            if self._is_closed:
                raise self._failure("it is closed")
            self._asked.append(reopening)
            self._changed.notify()
        return reopening.done

    def close(self) -> None:
        """Write what was asked for, and that the log is closed; let the next one have the file. Closing twice is harmless."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._asked.append(self._asking(Event.CLOSED))
            self._changed.notify()
        self._thread.join()
        os.close(self._file)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _asking(self, event: Event, **fields: Any) -> _Asked:
        return _Asked({"at": time_text(self._wall()), "event": event, **fields}, Future())

    # ---- the thread that writes -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._asked and not self._is_closed:
                    self._changed.wait()
                if not self._asked:
                    return
                together = self._taken_together()
            if isinstance(together, _Reopening):
                self._reopen(together)
            else:
                self._carry_out(together)

    def _taken_together(self) -> list[_Asked] | _Reopening:
        first = self._asked[0]
        if isinstance(first, _Reopening):
            self._asked.popleft()
            return first
        found: list[_Asked] = []
        while self._asked and len(found) < _LINES_TOGETHER_MAX and isinstance(self._asked[0], _Asked):
            asked = self._asked.popleft()
            assert isinstance(asked, _Asked)
            # Why: whoever no longer waits for the line before a change does not make it; what was done is told all the same.
            if asked.written.set_running_or_notify_cancel() or asked.is_of_end:
                found.append(asked)
        return found

    def _carry_out(self, together: list[_Asked]) -> None:
        owed, self._owed = self._owed, []
        try:
            numbers = self._write([*owed, *together])
        except OSError as error:
            self._owed = [*owed, *(one for one in together if one.is_of_end)]
            for asked in together:
                _fail(asked, self._failure(_words(error), of_end=asked.is_of_end))
            return
        for asked, number in zip(together, numbers[len(owed) :], strict=True):
            if not asked.written.cancelled():
                asked.written.set_result(number)

    def _write(self, together: Iterable[_Asked]) -> list[int]:
        """Write lines, all or none, and return their numbers. Raises OSError."""
        if self._problem:
            raise OSError(self._problem)
        number, digest = self._head
        numbers, lines = [], []
        for asked in together:
            number += 1
            line = line_of(AuditRecord(number=number, previous=digest, **asked.fields))
            digest = digest_of_line(line)
            numbers.append(number)
            lines.append(line + b"\n")
        content = b"".join(lines)
        try:
            _write_all(self._file, content)
        except OSError:
            # Why: a part of a line may be there, and the next line must not follow it.
            self._cut()
            raise
        if self._syncs:
            try:
                os.fsync(self._file)
            except OSError as error:
                # Why for good: after a flush that failed, the system may say of the next one that all is on the disk.
                self._problem = f"a flush to the disk failed ({_words(error)}): start the server anew"
                raise
        self._head = Head(number, digest)
        self._size += len(content)
        return numbers

    def _cut(self) -> None:
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self._problem = f"what was half written cannot be taken back ({_words(error)}): start the server anew"

    def _reopen(self, reopening: _Reopening) -> None:
        old_head = self._head
        try:
            if not _is_same(self.path, self._file):
                self._change_to(_opened(self.path))
        except (InvalidInputError, OSError) as error:
            reopening.done.set_exception(error)
            return
        reopening.done.set_result(old_head)

    def _change_to(self, fresh: int) -> None:
        """Go on in a new file. Raises InvalidInputError, OSError; then the old one goes on."""
        if os.fstat(fresh).st_size:
            os.close(fresh)
            raise InvalidInputError(source=str(self.path), problem="the new file is not empty: the old one goes on")
        old = self._file, self._size
        self._file, self._size = fresh, 0
        try:
            self._write([self._asking(Event.OPENED)])
        except OSError:
            self._file, self._size = old
            os.close(fresh)
            raise
        sync_folder(self.path.parent)
        os.close(old[0])

    def _failure(self, problem: str, *, of_end: bool = False) -> AuditLogError | AuditLogIncompleteError:
        kind = AuditLogIncompleteError if of_end else AuditLogError
        return kind(problem=problem)


def _fail(asked: _Asked, error: Exception) -> None:
    if not asked.written.cancelled():
        asked.written.set_exception(error)


# ---- files -----------------------------------------------------------------------------------------------------------


def _opened(path: Path) -> int:
    """Open the file of a log, which is made where it is missing. Raises InvalidInputError."""
    try:
        # Why without waiting: what is no file, as a pipe, is to be refused and not waited for.
        descriptor = open_file(
            path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, mode=FILE_MODE
        )
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be opened: {_words(error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInputError(source=str(path), problem="it is no file: give one")
    return descriptor


def _taken(path: Path, now: str) -> int:
    """Take the lock of a log, which a file beside it holds. Raises InvalidInputError when another process has it."""
    beside = Path(f"{path}.lock")
    try:
        descriptor = open_file(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=FILE_MODE)
    except OSError as error:
        raise InvalidInputError(source=str(beside), problem=f"it cannot be opened: {_words(error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # Why: on a full disk the lock holds without the words.
            os.pwrite(descriptor, f"process {os.getpid()}, since {now}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, _HOLDER_BYTES_MAX, 0).decode("utf-8", "replace").strip() or "another process"
        os.close(descriptor)
        raise InvalidInputError(
            source=str(path), problem=f"{holder} writes this audit log: give another file"
        ) from None
    return descriptor


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _words(error: OSError) -> str:
    return error.strerror or str(error)
