"""What the store knows of a cluster's backups and its archive: read, and nothing asked of anybody."""

from collections.abc import Iterable
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from keyplan.apps.patroni.backups.records import Archive, Backup, BackupBook, Span
from keyplan.apps.patroni.layout import BookKey, Broker, NodeKey, OrderKey
from keyplan.apps.patroni.records import InstanceState, NodeReport
from keyplan.apps.patroni.refusals import RefusedError

__all__ = [
    "Beginning",
    "begin_span",
    "beginning_of",
    "chosen_backup",
    "end_span",
    "is_refuted",
    "is_verified",
    "last_verified",
    "leaders_report",
    "newest_book",
    "put_book",
    "recovery_target",
    "shown_time",
    "sound_backups",
    "version_of",
]


def newest_book(broker: Broker, instance: str) -> BackupBook | None:
    """Return the book of the archive that an instance has, or of the last one that it had; None where nothing is known."""
    state = broker.instances.get(instance)
    if state is not None and state.archive is not None:
        return broker.backup_books.get(BookKey(instance, state.archive.stanza))
    books = [book for _, book in broker.backup_books.list(instance)]
    return max(books, key=lambda book: book.looked_at, default=None)


class Beginning(NamedTuple):
    """What a restore begins with: the book of an archive, a backup of it, and the time that it goes on to; None: its end."""

    book: BackupBook
    backup: Backup
    target: datetime | None


def beginning_of(instance: str, books: Iterable[tuple[BookKey, BackupBook]], target: datetime | None) -> Beginning:
    """Return how an instance is had as it was at a time; as it is at the end of its log, where none is given.

    Each archive has one line of log alone. An instance that was restored in place has had several: that counts which it had at
    the time. Raises RefusedError: 404 where nothing is known of backups, 400 where none had ended by then.
    """
    at = inf if target is None else target.timestamp()
    found = [(span, book) for _, book in books for span in book.spans or [Span(since=0.0)]]
    if not found:
        raise RefusedError(404, f"nothing is known of backups of {instance}")
    by_then = [one for one in found if one[0].since <= at]
    if not by_then:
        raise RefusedError(400, f"its first archive began at {shown_time(min(one[0].since for one in found))}")
    _, book = max(by_then, key=lambda one: one[0].since)
    backup = chosen_backup(book, target)
    # Why its end: behind the last commit of an archive that nobody writes to any more a recovery waits for one in vain.
    is_over = all(span.until and span.until <= at for span in book.spans or [Span(since=0.0)])
    return Beginning(book, backup, None if is_over else target)


def recovery_target(target: datetime | None) -> str:
    """Return a time as PostgreSQL reads it; empty where there is none."""
    return "" if target is None else target.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")


def put_book(broker: Broker, instance: str, state: InstanceState, archive: Archive, *, since: float) -> BackupBook:
    """Write what the instance is into the book of its archive, and return the book. A new one begins at a time."""
    key = BookKey(instance, archive.stanza)
    book = broker.backup_books.get(key) or BackupBook(archive=archive, spans=[Span(since=since)])
    book.archive = archive
    book.service_id, book.plan_id, book.node_count = state.service_id, state.plan_id, state.node_count
    book.version = state.version or _reported_version(broker, instance) or book.version
    broker.backup_books.put(key, book)
    return book


def end_span(broker: Broker, instance: str, archive: Archive, now: float) -> None:
    """Note that an instance has an archive no longer, in its book where there is one."""
    key = BookKey(instance, archive.stanza)
    book = broker.backup_books.get(key)
    if book is not None:
        spans = book.spans or [Span(since=0.0)]
        book.spans = [*spans[:-1], replace(spans[-1], until=spans[-1].until or now)]
        broker.backup_books.put(key, book)


def begin_span(broker: Broker, instance: str, archive: Archive, now: float) -> None:
    """Note that an instance has an archive again, in its book where there is one."""
    key = BookKey(instance, archive.stanza)
    book = broker.backup_books.get(key)
    if book is not None:
        book.spans = [*book.spans, Span(since=now)]
        broker.backup_books.put(key, book)


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
    """Return a time of Unix as people and commands read it, in UTC; one that is none as a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        # Why no error: it stands in a record that others may write, and what is said of other clusters does not wait for it.
        return f"{seconds:g} s of Unix time"


def version_of(broker: Broker, instance: str) -> str:
    """Return the major version of PostgreSQL that an instance is of; empty: nobody has said so yet."""
    state = broker.instances.get(instance)
    return (state.version if state is not None else "") or _reported_version(broker, instance)


def _reported_version(broker: Broker, instance: str) -> str:
    report = leaders_report(broker, instance)
    return report.version if report is not None else ""


def leaders_report(broker: Broker, instance: str) -> NodeReport | None:
    """Return what the cell says of the node that leads an instance; None where nobody does, or the cell says nothing."""
    leader = broker.leaders.get(instance)
    cell = broker.nodes.get(NodeKey(instance, leader)) if leader is not None else None
    return None if leader is None or cell is None else broker.reports.get(OrderKey(cell, leader))
