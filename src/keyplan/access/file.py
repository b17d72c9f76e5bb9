"""The access file on disk: only its owner may read it, it is looked at again while it is used, and an error opens nothing."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from keyplan.access.changes import PrincipalChange, changes_between
from keyplan.access.policy import Policy
from keyplan.access.reading import read_policy
from keyplan.errors import InvalidInputError
from keyplan.files import folder_turn, read_private, write_whole

__all__ = ["ACCESS_BYTES_MAX", "LOOK_SECONDS", "AccessFile", "change_access_file", "read_access_text"]

ACCESS_BYTES_MAX: Final = 1 << 18
"""Why: a thousand principals; reading so much again takes a server a fifth of a second, in which it answers nobody."""

LOOK_SECONDS: Final = 1.0
"""Why: a change counts within a second, and a server with many requests reads the file once a second."""


def read_access_text(path: Path) -> str:
    """Return the text of an access file.

    Raises InvalidInputError: where there is no file, when others than its owner may read or write it, when it is too long, and
    when it is no text.
    """
    return read_private(
        path,
        bytes_max=ACCESS_BYTES_MAX,
        missing="`keyplan access add` makes it",
        exposed="chmod 600, and rotate the tokens that it has names for",
        too_long="an application with so many principals has its own log-in",
    )


def change_access_file(path: Path, change: Callable[[str], str], *, new: str | None = None) -> None:
    """Write an access file anew, whole, with mode 600: `change` makes the new text of the old one. Commands take turns.

    Where there is no file, `new` is the old text; None: it must be there. A link stays one, and what it leads to is written;
    the superuser leaves a file its owner. Raises InvalidInputError, and what `change` raises: then the file stays as it is.
    """
    target = Path(os.path.realpath(path))
    with folder_turn(target.parent):
        is_new = new is not None and not target.exists()
        text = new if new is not None and is_new else read_access_text(target)
        found = None if is_new or os.geteuid() != 0 else target.stat()
        write_whole(target, change(text), owner=(found.st_uid, found.st_gid) if found else None)


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
        self._followers: list[Callable[[Sequence[PrincipalChange]], object]] = []

    def tell(self, follower: Callable[[Sequence[PrincipalChange]], object]) -> None:
        """Have `follower` called with what changes in the file, before a new sound state counts."""
        self._followers.append(follower)

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
            policy = read_policy(text, source=str(self.path))
        except InvalidInputError as error:
            self._on_change(error)
            return
        changes = list(changes_between(self._policy, policy)) if self._followers else []
        for follower in self._followers:
            follower(changes)
        self._policy = policy
        self._on_change(None)
