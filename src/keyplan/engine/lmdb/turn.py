"""Whose turn it is to write: a lock of our own, which a process holds around each of its write transactions.

Why not LMDB's lock alone: it sleeps in a robust mutex. When a process is killed at the moment in which that mutex has chosen it
to be next, the choice is lost, and others sleep on for ever; and who sleeps there hears neither Ctrl-C nor a time limit. A
process that has the turn finds LMDB's mutex free, or left by a dead process, which LMDB notices.

The turn is a lock on one byte of `turn.lock`, by fcntl: the system releases it with the process that holds it, after it has
released LMDB's mutex; a forked child does not inherit it; and the system tells who holds it. Nothing is ever waited for inside
the system: who finds it taken looks again and again, and so hears an interruption, and the end of its patience.

First come, first served: who has to wait takes a place, which is a lock on one of the bytes behind, beyond all places taken;
and tries for the turn only when nobody holds a place before its own. Who has not waited yet may come between for a few
milliseconds (`_FAIR_SECONDS`), because a turn that changes hands costs more than a commit; then the first one in the queue
forbids that, by a byte in the file. Who dies while it waits loses its place by the same means.

A process that is alone takes no locks, which would cost a tenth of a small commit. One process at a time may work like that,
the **resident**, which has a lock of its own. While the byte `_SHARED` is not set, it writes down since when it writes, and
begins. Another process sets that byte before it takes the turn, and then waits until nothing is written down, or the resident
died. Two of them meet in LMDB's mutex at worst, never three, and two cannot lose a choice. The resident clears the byte when no
other process has the store open for writing: each of them holds one more lock for as long as it does.

Nothing depends on what else the file holds: `_DEMAND` and the holder's name are hints, and may be stale.
"""

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from struct import Struct
from threading import Event
from typing import Final, NamedTuple

from keyplan.engine.clock import SYSTEM_CLOCK, utc_time
from keyplan.errors import EngineError, WriterBusyError
from keyplan.files import FILE_MODE, open_file

__all__ = ["TURN_FILE", "Holder", "TurnFile", "WriteTurn", "observed_turn"]

TURN_FILE: Final = "turn.lock"

_TURN: Final = 0
"""The byte whose lock is the turn."""
_RESIDENT: Final = 1
"""The byte whose lock the resident holds."""
_PRESENT: Final = 1 << 30
"""With the number of a process added, the byte that it holds, shared, while it has the store open for writing."""
_PRESENT_END: Final = 1 << 31
_PLACES: Final = 1 << 32
"""The first byte of the places in the queue."""
_PLACES_END: Final = 1 << 62

_FAIR_SECONDS: Final = 0.003
"""How long others may come between. Why: a wake-up takes 0.1 ms, in which a process carries out several commits."""
_PAUSE_SECONDS_MIN: Final = 0.000_05
_PAUSE_SECONDS_MAX: Final = 0.001
_PAUSE_SECONDS_LONG: Final = 0.005
"""Why: who has waited for a second waits for somebody who is busy for long, or stopped."""
_LONG_SECONDS: Final = 1.0

_PAGE_BYTES: Final = 64
_DEMAND: Final = 0
_SHARED: Final = 1
_ALONE: Final = Struct("<d")
"""Since when the resident writes without the turn, by wall time; 0 while it does not."""
_ALONE_AT: Final = 24
_HOLDER: Final = Struct("<qd")
"""The process that took the turn last, and when, by wall time."""
_HOLDER_AT: Final = 8

_FLOCK: Final = Struct(("<" if sys.byteorder == "little" else ">") + "hh4xqqi4x")
"""struct flock on 64-bit Linux: type, whence, start, length, process."""
_REFUSED: Final = (errno.EAGAIN, errno.EACCES)


class Holder(NamedTuple):
    """A process that has the turn, or waits for it (`is_waiting`). `process` is 0 where it cannot be seen from here."""

    process: int
    is_waiting: bool
    since: float | None
    """Seconds since 1970; None when it is not known."""


class TurnFile:
    """What can be seen of the turn without taking part in it. The process that asks is not told of itself."""

    def __init__(self, descriptor: int, page: bytes | mmap.mmap) -> None:
        self._file = descriptor
        self._page = page

    def holders(self) -> list[Holder]:
        """Return who has the turn, and who waits for it, in their order; without this process."""
        found: list[Holder] = []
        resident = self._conflict(_RESIDENT, _RESIDENT + 1)
        if resident is not None and (since := self._alone_since()):
            found.append(Holder(resident[1], is_waiting=False, since=since))
        holding = self._conflict(_TURN, _TURN + 1)
        if holding is not None and found:
            # Why: who has the turn lets the resident end what it began before, in `_await_resident`.
            found.append(Holder(holding[1], is_waiting=True, since=None))
        elif holding is not None:
            named, since = _HOLDER.unpack_from(self._page, _HOLDER_AT)
            # Trap: a process in another container has no number here, and one that took the turn just now is not named yet.
            is_told = named == holding[1] or holding[1] == 0
            found.append(Holder(holding[1] or named, is_waiting=False, since=since if is_told else None))
        waiting = self._all_between(_PLACES, _PLACES_END)
        return found + [Holder(process, is_waiting=True, since=None) for _, process in waiting]

    def writers(self) -> list[int]:
        """Return the other processes that have the store open for writing."""
        return [process or at - _PRESENT for at, process in self._all_between(_PRESENT, _PRESENT_END)]

    def _all_between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the locks of other processes in a range, by their order."""
        while (lowest := self._conflict(start, end)) is not None:
            while (before := self._conflict(start, lowest[0])) is not None:
                lowest = before
            yield lowest
            start = lowest[0] + 1

    def _conflict(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the byte and the process of a lock that another process holds in a range of bytes; None without one."""
        if start >= end:
            return None
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
        kind, _, at, _, process = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else (at, process)

    def _alone_since(self) -> float:
        since: float = _ALONE.unpack_from(self._page, _ALONE_AT)[0]
        return since


@contextmanager
def observed_turn(folder: Path) -> Iterator[TurnFile]:
    """Look at a store's turn. Raises OSError.

    Trap: not in a process that has the store open. The system takes its locks away when it closes the file here.
    """
    descriptor = os.open(folder / TURN_FILE, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield TurnFile(descriptor, os.pread(descriptor, _PAGE_BYTES, 0).ljust(_PAGE_BYTES, b"\x00"))
    finally:
        os.close(descriptor)


class WriteTurn(TurnFile):
    """One process's access to the turn of a store. Used by one thread at a time: there is one for each open environment.

    `check` is called while it waits; what it raises ends the wait.
    """

    def __init__(
        self,
        folder: Path,
        *,
        mode: int = FILE_MODE,
        owner: tuple[int, int] | None = None,
        seconds: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._seconds = seconds
        self._check = check
        self._process = os.getpid()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = open_file(os.path.join(folder, TURN_FILE), flags, mode=mode, owner=owner)
        page, self._has_page = _page_of(descriptor)
        super().__init__(descriptor, page)
        self._page: mmap.mmap = page
        lock, unlock = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
        self._lock = partial(fcntl.lockf, self._file, lock, 1, _TURN)
        self._unlock = partial(fcntl.lockf, self._file, unlock, 1, _TURN)
        self._leave_queue = partial(fcntl.lockf, self._file, unlock, 0, _PLACES)
        self._end_alone = partial(_ALONE.pack_into, self._page, _ALONE_AT, 0.0)
        self.give_back: Callable[[], object] = self._unlock
        """Give the turn back; harmless without it. Why no Python function: an exception cannot keep it from beginning."""
        self._nothing = Event()
        """Never set: waiting for it passes time, and hears Ctrl-C."""
        self._is_resident = False
        fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _PRESENT + self._process)
        self.look_around()

    def take(self, since: float | None = None) -> None:
        """Return with the turn: at once when it is free, else when it is ours, at most `seconds` after `since` or now.

        Pair with `give_back` in a `finally` that begins before this call. Raises WriterBusyError.
        """
        page = self._page
        if self._is_resident:
            self.give_back = self._end_alone
            _ALONE.pack_into(page, _ALONE_AT, SYSTEM_CLOCK.wall())
            if not page[_SHARED]:
                return
            self._end_alone()
        else:
            page[_SHARED] = 1
        self.give_back = self._unlock
        if page[_DEMAND] or not self._is_taken():
            # Why one beginning for both: who waited behind another one has its own limit, whomever it waits for next.
            since = SYSTEM_CLOCK.monotonic() if since is None else since
            self._wait(since)
        if not self._is_resident and self._alone_since():
            self._await_resident(since)
        _HOLDER.pack_into(page, _HOLDER_AT, self._process, SYSTEM_CLOCK.wall())

    def look_around(self) -> None:
        """See whether this process may work alone. Call it from time to time, while nobody else uses this object."""
        if not self._has_page:
            return
        if not self._is_resident:
            self._is_resident = self._is_locked(_RESIDENT)
            if not self._is_resident:
                return
            self._end_alone()  # what the resident before this one left when it died
        # Invariant: in this order. A process is present before it sets the byte, and so is seen here, or sets it afterwards.
        self._page[_SHARED] = 0
        if self._conflict(_PRESENT, _PRESENT_END) is not None:
            self._page[_SHARED] = 1

    def _await_resident(self, waits_since: float | None) -> None:
        """Wait until the resident has ended what it began before it could see that it is not alone."""
        began = SYSTEM_CLOCK.monotonic() if waits_since is None else waits_since
        give_up_at = began + self._seconds
        pause = _PAUSE_SECONDS_MIN
        while (since := self._alone_since()) and (resident := self._conflict(_RESIDENT, _RESIDENT + 1)) is not None:
            now = SYSTEM_CLOCK.monotonic()
            if now >= give_up_at:
                raise _busy([Holder(resident[1], is_waiting=False, since=since)], now - began)
            self._check()
            self._nothing.wait(pause)
            pause = min(pause * 1.3, _PAUSE_SECONDS_LONG)

    def _is_locked(self, byte: int) -> bool:
        """Try for the lock of a byte. Return True with it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            return False
        return True

    def _is_taken(self) -> bool:
        """Try for the turn. Return True with it."""
        try:
            self._lock()
        except OSError as error:
            if error.errno not in _REFUSED:
                raise EngineError(engine="lmdb", problem=f"{TURN_FILE} cannot be locked: {error.strerror}") from error
            return False
        return True

    def _wait(self, since: float) -> None:
        began = SYSTEM_CLOCK.monotonic()
        give_up_at = since + self._seconds
        pause = _PAUSE_SECONDS_MIN
        try:
            place = self._placed()
            while True:
                now = SYSTEM_CLOCK.monotonic()
                is_first = self._conflict(_PLACES, place) is None
                if is_first:
                    if self._is_taken():
                        # Why before it is asked whether anybody waits: who does sets it again when its patience is over.
                        self._page[_DEMAND] = 0
                        return
                    if now - began >= _FAIR_SECONDS:
                        self._page[_DEMAND] = 1
                if now >= give_up_at:
                    raise _busy(self.holders(), now - since)
                self._check()
                longest = _PAUSE_SECONDS_MAX if now - began < _LONG_SECONDS else _PAUSE_SECONDS_LONG
                # Why: the system would wait for a lock without hearing a time limit.
                self._nothing.wait(pause if is_first else longest)
                pause = min(pause * 1.3, longest)
        finally:
            self._leave_queue()

    def _placed(self) -> int:
        """Take a place behind all others, and return it."""
        place = _PLACES
        while True:
            while (found := self._conflict(place, _PLACES_END)) is not None:
                place = found[0] + 1
            if self._is_locked(place):
                return place

    def close(self) -> None:
        """Give up everything. In a forked child, which has none of the locks, they stay the parent's."""
        self.give_back = int
        self._page.close()
        os.close(self._file)


def _busy(ahead: Sequence[Holder], waited_seconds: float) -> WriterBusyError:
    if not ahead:
        return WriterBusyError(engine="lmdb", problem=f"the turn to write did not come in {waited_seconds:.0f} s")
    first = ahead[0]
    since = "" if first.since is None else f" since {utc_time(first.since)}"
    did = "has waited for the turn to write" if first.is_waiting else "has been writing"
    who = (
        f"process {first.process}"
        if first.process
        else "a process that cannot be seen from here, in another container,"
    )
    problem = f"{who} {did}{since}; gave up after {waited_seconds:.0f} s"
    return WriterBusyError(engine="lmdb", problem=problem)


def _page_of(descriptor: int) -> tuple[mmap.mmap, bool]:
    """Map what processes tell one another; on a full disk, a page that nobody else sees, and False.

    Why allocated: writing into a hole there would be a bus error.
    """
    try:
        os.posix_fallocate(descriptor, 0, _PAGE_BYTES)
        return mmap.mmap(descriptor, _PAGE_BYTES), True
    except OSError:
        return mmap.mmap(-1, _PAGE_BYTES), False
