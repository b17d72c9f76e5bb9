"""What of a cluster's log before a node led is in the archive: looked up there, and archived by who leads where it is not.

Trap: a standby notes each segment that it receives as archived, whoever archives it, or nobody. So where a leader dies that
archived late, PostgreSQL says of the next one that all is archived, and never archives what is not. Every later restore from
a backup of before would end there.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.backups.archive_state import ArchiveLook
from keyplan.apps.patroni.backups.node_programs import PgBackRest, TaskFailedError
from keyplan.apps.patroni.logs import LOGGER

__all__ = ["look_at_archive", "whole_since"]

_SEGMENT: Final = re.compile(r"[0-9A-F]{24}")
_ARCHIVED: Final = re.compile(rb"^[0-9.]+-([0-9]{1,9})/[0-9A-F]{16}/([0-9A-F]{24})-[0-9a-f]{40}", re.MULTILINE)
"""A segment in the archive: below a folder for each system that the stanza was of, by number, of which the last counts."""
_DONE: Final = ".done"
_OTHER_CONTENT: Final = 45
"""pgBackRest's exit code where the archive has a segment of this name with other content: that of who led before."""
_LOG_BYTES: Final = 2**32
_SEGMENT_BYTES: Final = 16 * 2**20
_PUSHED_MAX: Final = 2_000
"""Why: 32 GB, more than a node keeps. What is older is not looked for, and counts as missing."""


def look_at_archive(program: PgBackRest, timeline: int) -> ArchiveLook:
    """Archive what a node that leads on a timeline has of the log before it, and the archive lacks; return what is whole.

    Raises TaskFailedError where the archive cannot be asked, or does not take it.
    """
    log = program.programs.node.folder / "home" / "data" / "pg_wal"
    archived = _archived(program.run("repo-ls", "--recurse", program.folder))
    before = _streamed(log, timeline)
    for name in before:
        if name not in archived:
            result = program.tried("archive-push", "--no-archive-async", str(log / name))
            if result.code not in {0, _OTHER_CONTENT}:
                raise TaskFailedError(f"pgbackrest archive-push: {result.problem}")
            LOGGER.info("%s: segment %s is archived, which its former leader has not", program.stanza, name)
            archived.add(name)
    since = whole_since(archived, before, timeline, segment_bytes=_segment_bytes(log, before))
    return ArchiveLook(program.stanza, timeline, since)


def _archived(listed: bytes) -> set[str]:
    found = [(int(system), name.decode()) for system, name in _ARCHIVED.findall(listed)]
    last = max((system for system, _ in found), default=0)
    return {name for system, name in found if system == last}


def _streamed(log: Path, timeline: int) -> list[str]:
    """Return the newest segments of former timelines that the node has, and that PostgreSQL takes for archived, in order."""
    try:
        # Why by the notes: a file of such a name may be one that is kept for later, with anything in it.
        names = [entry.name.removesuffix(_DONE) for entry in os.scandir(log / "archive_status")]
    except OSError as error:
        raise TaskFailedError(f"its log cannot be read: {error.strerror}") from error
    there = (name for name in names if _SEGMENT.fullmatch(name) and int(name[:8], 16) < timeline)
    return sorted(name for name in there if (log / name).exists())[-_PUSHED_MAX:]


def _segment_bytes(log: Path, names: Iterable[str]) -> int:
    for name in names:
        try:
            return (log / name).stat().st_size or _SEGMENT_BYTES
        except OSError:
            continue  # Why: PostgreSQL removes what it needs no more.
    return _SEGMENT_BYTES


def whole_since(
    archived: Iterable[str], before: Iterable[str], timeline: int, *, segment_bytes: int = _SEGMENT_BYTES
) -> str:
    """Return the place from which on an archive has all of the log, as the last 16 digits of a segment's name.

    `archived` are names of segments; `before` those of former timelines that the leader on this one has. What it writes itself
    follows, and waits where it is not archived yet. Of a segment that several timelines have, one is enough.
    """
    per_log = _LOG_BYTES // segment_bytes

    def number(name: str) -> int:
        return int(name[8:16], 16) * per_log + int(name[16:24], 16)

    numbers = {number(name) for name in archived if int(name[:8], 16) <= timeline}
    own = [number(name) for name in archived if int(name[:8], 16) == timeline]
    at = min(own) if own else max((number(name) + 1 for name in before), default=max(numbers, default=-1) + 1)
    while at - 1 in numbers:
        at -= 1
    return f"{at // per_log:08X}{at % per_log:08X}"
