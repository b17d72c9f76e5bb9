"""How a cluster's backups and archive are, in words, for `status` and `doctor`. Damaged records count as absent."""

from keyplan.apps.patroni.backups.archive_state import is_failing, unsafe_since
from keyplan.apps.patroni.backups.books import shown_time, sound_backups
from keyplan.apps.patroni.backups.records import Archive, ArchiveState
from keyplan.apps.patroni.layout import BookKey, Broker, NodeKey, OrderKey
from keyplan.apps.patroni.readable import readable_of
from keyplan.errors import CorruptionError

__all__ = ["archive_problem", "archive_text", "backup_problem"]


def archive_text(broker: Broker, instance: str, archive: Archive, now: float) -> str:
    """Return the last good backup of an instance, and what a restore would lose now."""
    book = readable_of(broker.backup_books, BookKey(instance, archive.stanza), _ignore)
    sound = sound_backups(book) if book is not None else []
    if not sound:
        return "no backup: a restore would lose everything"
    last = sound[-1]
    unsafe = unsafe_since(archive, _state_of(broker, instance), now)
    if unsafe is None:
        lost = "nothing"
    elif unsafe == 0.0:
        # Why so: what was archived before the leader's cell could be asked is not known.
        lost = f"what was written since {shown_time(last.ended_at)}, at most"
    else:
        lost = f"what was written since {shown_time(unsafe)}, {max(0.0, now - unsafe):.0f} s"
    return f"backup {last.label} of {shown_time(last.ended_at)}; a restore would lose {lost}"


def archive_problem(broker: Broker, instance: str, archive: Archive, now: float) -> str:
    """Return what is wrong with the archive of an instance; empty when it works, or nobody can tell."""
    found = _state_of(broker, instance)
    if found is None or not is_failing(archive, found, now):
        return ""
    return (
        f"{found.waiting} segments of the leader's log wait, the oldest since {shown_time(found.waiting_since)}: they fill its "
        "disk, and a restore would lose them. Why stands in the leader's log, in its cell's folder"
    )


def backup_problem(broker: Broker, instance: str, archive: Archive) -> str:
    """Return what is wrong with the backups of an instance; empty when there is a sound one."""
    book = readable_of(broker.backup_books, BookKey(instance, archive.stanza), _ignore)
    if book is not None and sound_backups(book):
        return ""
    return "there is no sound backup; `keyplan patroni backup` makes one"


def _state_of(broker: Broker, instance: str) -> ArchiveState | None:
    """How the archive of the node that leads is, as its cell says."""
    leader = readable_of(broker.leaders, instance, _ignore)
    cell = readable_of(broker.nodes, NodeKey(instance, leader), _ignore) if leader is not None else None
    if leader is None or cell is None:
        return None
    report = readable_of(broker.reports, OrderKey(cell, leader), _ignore)
    return report.archive if report is not None else None


def _ignore(_key: object, _error: CorruptionError) -> None:
    """The doctor names damaged records."""
