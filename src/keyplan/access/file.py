"""The access file on disk: only its owner may read it, it is looked at again while it is used, and an error opens nothing."""

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from keyplan.access.policy import Policy
from keyplan.access.reading import read_policy
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["ACCESS_BYTES_MAX", "LOOK_SECONDS", "AccessFile", "change_access_file", "read_access_text"]

ACCESS_BYTES_MAX: Final = 1 << 18
"""Why: a thousand principals; reading so much again takes a server a fifth of a second, in which it answers nobody."""

LOOK_SECONDS: Final = 1.0
"""Why: a change counts within a second, and a server with many requests reads the file once a second."""

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_access_text(path: Path) -> str:
    """Return the text of an access file.

    Raises InvalidInputError: where there is no file, when others than its owner may read or write it, when it is too long, and
    when it is no text.
    """
    try:
        # Why without waiting: what is no file, as a pipe, is to be refused and not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mode, content = os.fstat(descriptor).st_mode, b""
            if stat.S_ISREG(mode):
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(ACCESS_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
        text = content.decode()
    except FileNotFoundError as error:
        problem = "there is no such file: `keyplan access add` makes it"
        raise InvalidInputError(source=str(path), problem=problem) from error
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(source=str(path), problem="it is not text in UTF-8: write it as such") from error
    if not stat.S_ISREG(mode):
        raise InvalidInputError(source=str(path), problem="it is no file: give one")
    if mode & _OTHERS:
        problem = "others than its owner may read or write it: chmod 600, and rotate the tokens that it has names for"
        raise InvalidInputError(source=str(path), problem=problem)
    if len(content) > ACCESS_BYTES_MAX:
        problem = (
            f"it has more than {ACCESS_BYTES_MAX} bytes: an application with so many principals has its own log-in"
        )
        raise InvalidInputError(source=str(path), problem=problem)
    return text


def change_access_file(path: Path, change: Callable[[str], str], *, new: str | None = None) -> None:
    """Write an access file anew, whole, with mode 600: `change` makes the new text of the old one. Commands take turns.

    Where there is no file, `new` is the old text; None: it must be there. A link stays one, and what it leads to is written;
    the superuser leaves a file its owner. Raises InvalidInputError, and what `change` raises: then the file stays as it is.
    """
    target = Path(os.path.realpath(path))
    with _turn(target.parent):
        is_new = new is not None and not target.exists()
        text = new if new is not None and is_new else read_access_text(target)
        found = None if is_new or os.geteuid() != 0 else target.stat()
        write_whole(target, change(text), owner=(found.st_uid, found.st_gid) if found else None)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold the folder's lock for a block. Why not the file's: it is another file after each change."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        problem = f"the folder cannot be read: {error.strerror or error}"
        raise InvalidInputError(source=str(folder), problem=problem) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class AccessFile:
    """An access file that is in use. `policy` is that of the last sound state of the file that was seen.

    The file is looked at when the policy is asked for, at most once in LOOK_SECONDS. A state that is not sound changes nothing;
    `on_change` is called with its error, once for each state, and with None for a new sound one. A part of a sound file that
    is being written opens nothing either: a line can only grant. May be asked from any thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        monotonic: Callable[[], float],
        on_change: Callable[[InvalidInputError | None], object] = lambda _error: None,
    ) -> None:
        """Read the file. Raises InvalidInputError when it is not sound."""
        self.path: Final = path
        self._monotonic = monotonic
        self._on_change = on_change
        self._seen = read_access_text(path)
        self._policy = read_policy(self._seen, source=str(path))
        self._looked_at = monotonic()
        self._lock = threading.Lock()

    @property
    def policy(self) -> Policy:
        """The policy as it is now; the same object until it changes."""
        now = self._monotonic()
        # Why nobody waits: whoever comes while another one reads the file is as well served by what it was a moment ago.
        if now - self._looked_at >= LOOK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._looked_at = now
                self._look()
            finally:
                self._lock.release()
        return self._policy

    def _look(self) -> None:
        # Why not by the time of the last change: it has too few digits to tell two changes of one moment apart.
        try:
            text = read_access_text(self.path)
        except InvalidInputError as error:
            if self._seen != str(error):
                self._seen = str(error)
                self._on_change(error)
            return
        if text == self._seen:
            return
        self._seen = text
        try:
            self._policy = read_policy(text, source=str(self.path))
        except InvalidInputError as error:
            self._on_change(error)
        else:
            self._on_change(None)
