"""How far a node's log is archived, by what PostgreSQL keeps of it beside the log; and what a restore would lose.

`pg_wal/archive_status/SEGMENT.ready` says that a segment is complete and waits, `.done` that it is archived. The file is made
when the segment is complete, and renamed when it is archived: so its time is that of the last write in the segment.

Trap: a standby has `.done` of all that it receives. So a node that came to lead knows of its own timeline alone.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.apps.patroni.backups.records import Archive, ArchiveState, BackupBook

__all__ = ["ArchiveLook", "archive_state", "has_gap", "is_failing", "led_timeline", "unsafe_since"]

_NOTE: Final = re.compile(r"([0-9A-F]{24}|[0-9A-F]{8}\.history)\.(ready|done)")
_SEGMENT_CHARACTERS: Final = 24
_ENTRIES_MAX: Final = 100_000
"""Why: a terabyte and a half of log; nobody has to know more exactly how full the disk is."""
_SLACK_SECONDS: Final = 60.0
"""How late PostgreSQL may look whether a segment is due, and the archiver take it."""
_FAILING_PERIODS: Final = 3


class ArchiveLook(NamedTuple):
    """What was found in an archive itself, when a node had come to lead on a timeline: since where it has all of the log."""

    stanza: str
    timeline: int
    whole_since: str


def led_timeline(data: Path) -> int:
    """Return the timeline that a node leads on, as far as it archives; 0 for a standby, and where nothing is known."""
    return 0 if (data / "standby.signal").exists() else _timeline(_notes(data))


def archive_state(
    data: Path, stanza: str, former: ArchiveState | None, look: ArchiveLook | None = None
) -> ArchiveState:
    """Return how the log in a data folder is archived. `former` is what was found before: PostgreSQL removes what is old.

    A standby archives nothing, and of it nothing is said; nor of a node that came to lead, before there was a `look`.
    """
    found = ArchiveState(stanza=stanza)
    if former is not None and former.stanza == stanza:
        found.last_wal, found.safe_until = former.last_wal, former.safe_until
    if (data / "standby.signal").exists():
        return found
    notes = _notes(data)
    timeline = _timeline(notes)
    is_known = timeline <= 1
    if not is_known and look is not None and (look.stanza, look.timeline) == (stanza, timeline):
        is_known, found.whole_since = True, look.whole_since
    if not is_known:
        found.last_wal, found.safe_until = "", 0.0
    for name, status, made_at in notes:
        if len(name) != _SEGMENT_CHARACTERS:
            continue
        if status == "ready":
            found.waiting += 1
            found.waiting_since = min(found.waiting_since or made_at, made_at)
        elif is_known and name > found.last_wal:
            found.last_wal, found.safe_until = name, made_at
    return found


def _timeline(notes: list[tuple[str, str, float]]) -> int:
    return max((int(name[:8], 16) for name, _, _ in notes), default=0)


def _notes(data: Path) -> list[tuple[str, str, float]]:
    # Trap: whoever has the cluster may put a link there, and anything behind it; names are all that is taken from it.
    notes: list[tuple[str, str, float]] = []
    try:
        with os.scandir(data / "pg_wal" / "archive_status") as entries:
            for _, entry in zip(range(_ENTRIES_MAX), entries, strict=False):
                if found := _NOTE.fullmatch(entry.name):
                    notes.append((found[1], found[2], entry.stat(follow_symlinks=False).st_mtime))
    except OSError:
        return []  # Why: PostgreSQL renames and removes files meanwhile. A part could hide the timeline; the next look has all.
    return notes


def unsafe_since(archive: Archive, state: ArchiveState | None, now: float) -> float | None:
    """Return the time whose later writes a restore would lose now; None: none, as far as can be told. 0: all of them.

    Where somebody writes, a segment is complete after `archive_seconds`. Where none is for longer, nothing was written.
    """
    if state is None or not state.last_wal:
        return 0.0
    if not state.waiting and now - state.safe_until > archive.policy.archive_seconds + _SLACK_SECONDS:
        return None
    return state.safe_until


def has_gap(book: BackupBook, state: ArchiveState | None) -> bool:
    """Whether what is archived ends somewhere behind the newest sound backup, and goes on later: a restore would end there."""
    if state is None or not state.whole_since:
        return False
    newest = next((backup for backup in reversed(book.backups) if not backup.has_errors), None)
    # Why the last: what is between is in the backup.
    return newest is not None and bool(newest.last_wal) and newest.last_wal[8:] < state.whole_since


def is_failing(archive: Archive, state: ArchiveState, now: float) -> bool:
    """Whether segments wait for longer than an archive that works lets them."""
    return bool(state.waiting) and now - state.waiting_since > _FAILING_PERIODS * archive.policy.archive_seconds
