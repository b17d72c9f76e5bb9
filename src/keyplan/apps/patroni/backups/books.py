"""What the store knows of a cluster's backups and its archive: read, and nothing asked of anybody."""

from datetime import UTC, datetime

from keyplan.apps.patroni.backups.records import Backup, BackupBook
from keyplan.apps.patroni.layout import BookKey, Broker, NodeKey, OrderKey
from keyplan.apps.patroni.records import NodeReport
from keyplan.apps.patroni.refusals import RefusedError

__all__ = [
    "chosen_backup",
    "is_refuted",
    "is_verified",
    "last_verified",
    "leaders_report",
    "newest_book",
    "shown_time",
    "sound_backups",
]


def newest_book(broker: Broker, instance: str) -> BackupBook | None:
    """Return the book of the archive that an instance has, or of the last one that it had; None where nothing is known."""
    state = broker.instances.get(instance)
    if state is not None and state.archive is not None:
        return broker.backup_books.get(BookKey(instance, state.archive.stanza))
    books = [book for _, book in broker.backup_books.list(instance)]
    return max(books, key=lambda book: book.looked_at, default=None)


def chosen_backup(book: BackupBook, target: datetime | None) -> Backup:
    """Return the backup to begin from: the newest that had ended by then. Raises RefusedError (400) where there is none.

    One that its verification has refuted is the last choice: an older one and more of the log come to the same.
    """
    sound = sound_backups(book)
    if not sound:
        raise RefusedError(400, "there is no backup to begin from")
    # Why a second more: pgBackRest tells whole seconds.
    by_then = [each for each in sound if target is None or each.ended_at + 1 <= target.timestamp()]
    if not by_then:
        raise RefusedError(400, f"the oldest backup ended at {shown_time(sound[0].ended_at + 1)}; give a later time")
    return max(by_then, key=lambda each: (not is_refuted(book, each), each.ended_at))


def sound_backups(book: BackupBook) -> list[Backup]:
    """Return the backups that can be restored, the oldest first: those whose pages were whole."""
    return [backup for backup in book.backups if not backup.has_errors]


def is_verified(book: BackupBook, backup: Backup) -> bool:
    """Whether an instance was made of a backup, and answered."""
    found = book.verifications.get(backup.label)
    return found is not None and not found.problem


def is_refuted(book: BackupBook, backup: Backup) -> bool:
    """Whether no instance could be made of a backup when it was last tried."""
    found = book.verifications.get(backup.label)
    return found is not None and bool(found.problem)


def last_verified(book: BackupBook) -> Backup | None:
    """Return the newest backup that an instance was made of; None where there is none any more."""
    return next((backup for backup in reversed(sound_backups(book)) if is_verified(book, backup)), None)


def shown_time(seconds: float) -> str:
    """Return a time of Unix as people and commands read it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def leaders_report(broker: Broker, instance: str) -> NodeReport | None:
    """Return what the cell says of the node that leads an instance; None where nobody does, or the cell says nothing."""
    leader = broker.leaders.get(instance)
    cell = broker.nodes.get(NodeKey(instance, leader)) if leader is not None else None
    return None if leader is None or cell is None else broker.reports.get(OrderKey(cell, leader))
