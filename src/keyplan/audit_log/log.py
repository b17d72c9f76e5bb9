"""An audit log that a server writes: lines in a file that only grows, each with the digest of the one before.

One thread writes. What came meanwhile is written together, and flushed to the disk together; whoever asked for a line has its
number when the line is there. One process has a log. A file that is large enough is renamed to an older one, and the first line
of the new one names the last line of the old one; so it does where another program (`logrotate`) renamed it, at `reopen`.
"""

import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from keyplan.audit_log.chain import Head
from keyplan.audit_log.ends import End, end_of
from keyplan.audit_log.files import OlderFile, end_in, head_beside, is_same, older_files, opened, taken, words_of
from keyplan.audit_log.reading import first_number_in, page_of
from keyplan.audit_log.records import AuditRecord, Event, RemovedFile, digest_of_line, line_of, sound, time_text
from keyplan.errors import AuditLogError, AuditLogIncompleteError, InvalidInputError
from keyplan.files import sync_folder

__all__ = ["LINES_WAITING_MAX", "NO_ROTATION", "AuditLog", "Notice", "Rotation"]

LINES_WAITING_MAX: Final = 10_000
"""Why: a server refuses work beyond a tenth of this; so many lines are a few megabytes."""

_LINES_TOGETHER_MAX: Final = 1_000
_PAGE_BYTES_MAX: Final = 1 << 20
"""Why: lines are a few hundred bytes as a rule; whoever writes long ones is not to fill the memory of who reads them."""

_MADE: Final = frozenset({Event.DONE, Event.FAILED, Event.UNKNOWN})
"""What must be written in the end, whatever happened: it tells of what was done."""


class Rotation(NamedTuple):
    """When a log goes on in a new file, and how many older ones are kept; None: never, and all.

    A file may be longer than `bytes_max` by the lines that were written together last.
    """

    bytes_max: int | None = None
    files_kept: int | None = None


NO_ROTATION: Final = Rotation()


class Notice(NamedTuple):
    """What the log has to tell whoever looks after the server: words, facts, and whether it is a problem."""

    words: str
    facts: Mapping[str, object]
    is_problem: bool = False


_OF_EVERYBODY: Final = stat.S_IROTH | stat.S_IWOTH
"""Why not a group's: sites let one read their logs."""


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
    """The audit log of one server, open for writing. Safe for use by several threads, and by the process that opened it alone.

    With `syncs`, a line counts as written when it is on the disk; else when the system has it, which outlives the process and
    no loss of power. `wall` is the clock on the wall. `on_notice` is called in any thread, and must not raise. Raises
    InvalidInputError for a file that cannot be opened, that is no audit log, or that another process writes.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], float],
        syncs: bool = True,
        rotation: Rotation = NO_ROTATION,
        on_notice: Callable[[Notice], object] = lambda _notice: None,
    ) -> None:
        self.path = path
        self._syncs = syncs
        self._wall = wall
        self._rotation = rotation
        self._on_notice = on_notice
        self._process = os.getpid()
        self._lock = taken(path, time_text(wall()))
        try:
            self._file = opened(path)
            try:
                end = end_of(self._file, path, earlier=lambda: head_beside(path))
                self._first = first_number_in(self._file) or end.head.number + 1
            except BaseException:
                os.close(self._file)
                raise
        except BaseException:
            os.close(self._lock)
            raise
        self._head = end.head
        self._size = os.fstat(self._file).st_size
        self._full_at = rotation.bytes_max
        self._asked: deque[_Asked | _Reopening] = deque()
        self._owed: list[_Asked] = []
        """Ends of changes that found no room: they come first as soon as there is some."""
        self._is_closed = False
        self._problem = ""
        self._changed = threading.Condition()
        self._moving = threading.RLock()
        """Held while files are renamed or changed, and while somebody finds the one to read."""
        try:
            self._begin(end)
        except OSError as error:
            os.close(self._file)
            os.close(self._lock)
            raise InvalidInputError(source=str(path), problem=f"it cannot be written: {words_of(error)}") from error
        self._note("the audit log is open")
        if os.fstat(self._file).st_mode & _OF_EVERYBODY:
            self._note("the audit log is not for its owner alone", "everybody on this machine may read or write it")
        self._thread = threading.Thread(target=self._run, name="keyplan-audit-log", daemon=True)
        self._thread.start()

    def _begin(self, end: End) -> None:
        if end.is_line_open:
            self._size += os.write(self._file, b"\n")
        if end.torn is not None:
            self._write([self._asking(Event.TORN, torn=end.torn)])
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
        """Have a line written, with these fields of AuditRecord; the number of the line when it is. Very long texts are cut.

        The future raises AuditLogError where it cannot be written, and nothing of it is in the file; of the end of a change
        AuditLogIncompleteError: that line is written as soon as it can be. Raises AuditLogError when too many lines wait.
        """
        asked = self._asking(event, **{name: sound(name, value) for name, value in fields.items()})
        # Why once more than needed: what cannot be a line is its caller's mistake, and keeps no others from being written.
        line_of(AuditRecord(number=1, previous="", **asked.fields))
        with self._changed:
            self._require_open()
            if len(self._asked) >= LINES_WAITING_MAX and not asked.is_of_end:
                raise AuditLogError(problem=f"{LINES_WAITING_MAX} lines wait to be written")
            self._asked.append(asked)
            self._changed.notify()
        return asked.written

    def reopen(self) -> "Future[Head]":
        """Go on in the file that has the log's name now, if it is another one; the head of the old one when that is done.

        The future raises InvalidInputError for a new file that is not empty or cannot be opened; then the old one goes on. What
        came of it is noted, too.
        """
        reopening = _Reopening(Future())
        with self._changed:
            self._require_open()
            self._asked.append(reopening)
            self._changed.notify()
        return reopening.done

    def close(self) -> None:
        """Write what was asked for, and that the log is closed; let the next one have the file. Closing twice is harmless."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            if self._process == os.getpid():
                self._asked.append(self._asking(Event.CLOSED))
                self._changed.notify()
        if self._process == os.getpid():
            self._thread.join()
            if self._owed:
                problem = f"{len(self._owed)} lines that tell how changes ended could not be written"
                self._note("the audit log is incomplete", problem)
            self._note("the audit log ends")
        os.close(self._file)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _require_open(self) -> None:
        """Raise AuditLogError where no line would be written. Why the process: the thread that writes is in no fork of it."""
        if self._is_closed:
            raise AuditLogError(problem="it is closed")
        if self._process != os.getpid():
            raise AuditLogError(problem=f"process {self._process} writes it, of which this one is a fork")

    def _asking(self, event: Event, **fields: Any) -> _Asked:
        return _Asked({"at": time_text(self._wall()), "event": event, **fields}, Future())

    def _note(self, words: str, problem: str = "", **facts: object) -> None:
        where = {"audit_log": str(self.path), "line": self._head.number, "head": self._head.digest}
        self._on_notice(
            Notice(words, where | facts | ({"problem": problem} if problem else {}), is_problem=bool(problem))
        )

    # ---- reading --------------------------------------------------------------------------------------------------------

    def lines_behind(self, number: int, *, limit: int) -> list[AuditRecord]:
        """Return the records behind the line of this number: at most so many, and about a megabyte at most.

        None where there are no more. The older files are read too, which this log has renamed. Raises InvalidInputError.
        """
        found: list[AuditRecord] = []
        room = _PAGE_BYTES_MAX
        while True:
            try:
                descriptor, last = self._file_behind(number)
                try:
                    page = page_of(descriptor, number, limit=limit - len(found), bytes_max=room)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise InvalidInputError(source=str(self.path), problem=words_of(error)) from error
            found += page.records
            room -= page.bytes
            if last is None or len(found) == limit or room <= 0:
                return found
            number = last

    def _file_behind(self, number: int) -> tuple[int, int | None]:
        """Return the file in which the line behind this number is, opened, and its last line; None for the present one."""
        with self._moving:
            for older in older_files(self.path):
                if older.last > number:
                    return os.open(older.path, os.O_RDONLY | os.O_CLOEXEC), older.last
            # Why not by its name: somebody may have renamed it.
            return os.dup(self._file), None

    # ---- the thread that writes -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._asked and not self._is_closed:
                    self._changed.wait()
                if not self._asked:
                    return
                together = self._taken_together()
            try:
                if isinstance(together, _Reopening):
                    self._reopen(together)
                else:
                    self._carry_out(together)
                    # Why not at the end: the last file would tell of nothing but that it was opened.
                    if self._full_at is not None and self._size >= self._full_at and not self._is_closed:
                        self._rotate()
            except Exception as error:  # noqa: BLE001  # Why all: without this thread everybody would wait for ever.
                self._note("the audit log failed", repr(error))

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
            self._require_file()
            numbers = self._write([*owed, *together])
        except Exception as error:  # noqa: BLE001  # Why all: as above.
            problem = words_of(error) if isinstance(error, OSError | InvalidInputError) else type(error).__name__
            self._owed = [*owed, *(one for one in together if one.is_of_end)]
            for asked in together:
                kind = AuditLogIncompleteError if asked.is_of_end else AuditLogError
                if not asked.written.cancelled():
                    asked.written.set_exception(kind(problem=problem))
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
                self._problem = f"a flush to the disk failed ({words_of(error)}): start the server anew"
                raise
        self._head = Head(number, digest)
        self._size += len(content)
        return numbers

    def _cut(self) -> None:
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self._problem = f"what was half written cannot be taken back ({words_of(error)}): start the server anew"

    # ---- its files ------------------------------------------------------------------------------------------------------

    def _require_file(self) -> None:
        """Look at the file that is written: lines are not to go where nobody finds them. Raises InvalidInputError, OSError."""
        found = os.fstat(self._file)
        if found.st_nlink == 0:
            self._change_to(opened(self.path))
            self._note("the audit log goes on in a new file", "somebody removed the old one, with its lines")
        elif found.st_size != self._size:
            # Why on: what others do to the file, its chain shows; refusing would leave the next changes untold, too.
            size, self._size = self._size, found.st_size
            if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
                self._size += os.write(self._file, b"\n")
            problem = f"somebody else changed it: it had {size} bytes, and has {found.st_size}"
            self._note("the audit log is not as it was written", problem)

    def _reopen(self, reopening: _Reopening) -> None:
        old_head = self._head
        try:
            if not is_same(self.path, self._file):
                self._change_to(opened(self.path))
                self._note_new_file(old_head)
        except (InvalidInputError, OSError) as error:
            self._note("the audit log stays in its old file", words_of(error))
            reopening.done.set_exception(error)
            return
        reopening.done.set_result(old_head)

    def _change_to(self, fresh: int) -> None:
        """Go on in a new file. Raises InvalidInputError, OSError; then the old one goes on."""
        if os.fstat(fresh).st_size:
            os.close(fresh)
            raise InvalidInputError(source=str(self.path), problem="the new file is not empty: the old one goes on")
        with self._moving:
            old = self._file, self._size, self._first
            self._file, self._size, self._first = fresh, 0, self._head.number + 1
            try:
                self._write([self._asking(Event.OPENED)])
            except OSError:
                self._file, self._size, self._first = old
                os.close(fresh)
                raise
            sync_folder(self.path.parent)
            os.close(old[0])
        self._full_at = self._rotation.bytes_max

    def _rotate(self) -> None:
        """Leave the file as an older one. Where that fails it goes on, and it is tried again when it has twice the size."""
        old_head = self._head
        try:
            with self._moving:
                self._leave(OlderFile.of(self.path, self._first, old_head.number))
        except (InvalidInputError, OSError) as error:
            self._full_at = 2 * self._size
            self._note("the audit log stays in its old file", words_of(error))
            return
        self._note_new_file(old_head)
        self._remove_older()

    def _leave(self, older: OlderFile) -> None:
        """Rename the file, and go on in a new one. Who comes after somebody who is killed in between finds the renamed one."""
        if is_same(self.path, self._file):
            if os.path.lexists(older.path):
                raise InvalidInputError(source=str(older.path), problem=f"there is a file {older.path.name}: remove it")
            os.rename(self.path, older.path)
        try:
            self._change_to(opened(self.path))
        except (InvalidInputError, OSError):
            with suppress(OSError):
                # Why a rename: it takes the place of a new file that could not be written.
                os.rename(older.path, self.path)
            raise

    def _remove_older(self) -> None:
        """Remove older files beyond those that are kept, each behind a line that says so."""
        kept = self._rotation.files_kept
        found = [] if kept is None else older_files(self.path)
        for older in found[: max(0, len(found) - (kept or 0))]:
            try:
                self._remove(older)
            except (InvalidInputError, OSError) as error:
                self._note("an older file of the audit log is not removed", words_of(error), file=older.path.name)

    def _remove(self, older: OlderFile) -> None:
        end = end_in(older.path)
        if end.head.number != older.last:
            raise InvalidInputError(source=str(older.path), problem=f"its last line is number {end.head.number}")
        gone = RemovedFile(older.path.name, older.first, older.last, end.head.digest)
        self._write([self._asking(Event.REMOVED, removed=gone)])
        older.path.unlink()

    def _note_new_file(self, old_head: Head) -> None:
        self._note("the audit log goes on in a new file", line_before=old_head.number, head_before=old_head.digest)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
