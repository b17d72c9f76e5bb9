"""How far a node's log is archived, by what PostgreSQL keeps of it beside the log; and what a restore would lose.

`pg_wal/archive_status/SEGMENT.ready` says that a segment is complete and waits, `.done` that it is archived. The file is made
when the segment is complete, and renamed when it is archived: so its time is that of the last write in the segment.
"""

import os
import re
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.backups.records import Archive, ArchiveState

__all__ = ["archive_state", "is_failing", "unsafe_since"]

_SEGMENT: Final = re.compile(r"([0-9A-F]{24})\.(ready|done)")
_ENTRIES_MAX: Final = 100_000
"""Why: a terabyte and a half of log; nobody has to know more exactly how full the disk is."""
_SLACK_SECONDS: Final = 60.0
"""How late PostgreSQL may look whether a segment is due, and the archiver take it."""
_FAILING_PERIODS: Final = 3


def archive_state(data: Path, stanza: str, former: ArchiveState | None) -> ArchiveState:
    """Return how the log in a data folder is archived. `former` is what was found before: PostgreSQL removes what is old.

    A standby archives nothing, and of it nothing is said.
    """
    found = ArchiveState(stanza=stanza)
    if former is not None and former.stanza == stanza:
        found.last_wal, found.safe_until = former.last_wal, former.safe_until
    if (data / "standby.signal").exists():
        return found
    for name, status, made_at in _segments(data / "pg_wal" / "archive_status"):
        if status == "ready":
            found.waiting += 1
            found.waiting_since = min(found.waiting_since or made_at, made_at)
        elif name > found.last_wal:
            found.last_wal, found.safe_until = name, made_at
    return found


def _segments(folder: Path) -> list[tuple[str, str, float]]:
    # Trap: whoever has the cluster may put a link there, and anything behind it; names are all that is taken from it.
    segments: list[tuple[str, str, float]] = []
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_ENTRIES_MAX), entries, strict=False):
                if found := _SEGMENT.fullmatch(entry.name):
                    segments.append((found[1], found[2], entry.stat(follow_symlinks=False).st_mtime))
    except OSError:
        return segments  # Why: PostgreSQL renames and removes files meanwhile; the next look has them.
    return segments


def unsafe_since(archive: Archive, state: ArchiveState | None, now: float) -> float | None:
    """Return the time whose later writes a restore would lose now; None: none, as far as can be told. 0: all of them.

    Where somebody writes, a segment is complete after `archive_seconds`. Where none is for longer, nothing was written.
    """
    if state is None or not state.last_wal:
        return 0.0
    if not state.waiting and now - state.safe_until > archive.policy.archive_seconds + _SLACK_SECONDS:
        return None
    return state.safe_until


def is_failing(archive: Archive, state: ArchiveState, now: float) -> bool:
    """Whether segments wait for longer than an archive that works lets them."""
    return bool(state.waiting) and now - state.waiting_since > _FAILING_PERIODS * archive.policy.archive_seconds
