"""Backups by the clock: what each instance's policy asks for, and when the last one was made, say whether one is due."""

from collections.abc import Iterator
from typing import Final, Literal

from keyplan.apps.patroni.backups.archive_state import has_gap
from keyplan.apps.patroni.backups.books import leaders_report, newest_book, sound_backups
from keyplan.apps.patroni.backups.plans import BackupKind, BackupPlans
from keyplan.apps.patroni.backups.records import BackupBook, BackupPolicy
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.operations import IN_PROGRESS
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.records import Operation
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import Clock
from keyplan.errors import ConflictError, CorruptionError
from keyplan.store import Store

__all__ = ["BackupSchedule", "due_kind", "is_verification_due"]

_HOUR: Final = 3_600.0
_AGAIN_SECONDS: Final = 600.0
"""How long after a backup that failed the next one is begun. Why: between two of them other operations find their turn."""


class BackupSchedule:
    """Begins the backups that are due, of all instances of a store. Any number of brokers may do so: one begins each."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._plans = BackupPlans(store, clock)

    def begin_due(self) -> list[str]:
        """Begin them, an operation each, and return whose. What cannot begin now is looked at again. Raises EngineError."""
        begun: list[str] = []
        for instance, kind in list(self._due()):
            try:
                if kind == "verify":
                    self._plans.verify(instance)
                else:
                    self._plans.back_up(instance, kind)
            except RefusedError as error:
                LOGGER.info("the backup of %s waits: %s", instance, error.description)
            except (CorruptionError, ConflictError) as error:
                LOGGER.error("no backup of %s is begun by the clock: %s", instance, error)
            else:
                begun.append(instance)
        return begun

    def _due(self) -> Iterator[tuple[str, BackupKind | Literal["verify"]]]:
        now = self._clock.wall()
        with self._store.snapshot() as pinned:
            broker = Broker(pinned)
            for instance, state in readable(broker.instances.rows()):
                if state.archive is None:
                    continue
                try:
                    book, operation = newest_book(broker, instance), broker.operations.get(instance)
                    report = leaders_report(broker, instance)
                except CorruptionError as error:
                    LOGGER.error("no backup of %s is made by the clock: %s", instance, error)
                    continue
                if book is not None and not _is_hindered(operation, now):
                    policy, kind = state.archive.policy, due_kind(state.archive.policy, book, now)
                    if policy.every_hours and has_gap(book, report.archive if report is not None else None):
                        kind = kind or "incr"
                    if kind is not None:
                        yield instance, kind
                    elif is_verification_due(state.archive.policy, book):
                        yield instance, "verify"


def _is_hindered(operation: Operation | None, now: float) -> bool:
    """Whether something goes on with the instance, or the last backup or verification failed a moment ago."""
    if operation is None or operation.status == IN_PROGRESS:
        return True
    is_ours = operation.kind in {"backup", "verify-backup"}
    return is_ours and operation.status == "failed" and now - operation.ended_at < _AGAIN_SECONDS


def is_verification_due(policy: BackupPolicy, book: BackupBook) -> bool:
    """Whether the newest backup is to be verified: so many were made since one was, and it was not tried yet."""
    sound = sound_backups(book)
    if not policy.verify_every or not sound or sound[-1].label in book.verifications:
        return False
    return book.unverified >= policy.verify_every


def due_kind(policy: BackupPolicy, book: BackupBook, now: float) -> BackupKind | None:
    """Return the kind of backup that is due; None where none is.

    Counted from where the last one began, so that what a backup takes does not add up.
    """
    sound = sound_backups(book)
    if not policy.every_hours:
        return None
    if not sound:
        return "full"
    # Why not by itself: a machine whose clock was ahead has made a backup of the future, and it was seen when it was made.
    last = max(backup.began_at for backup in sound)
    last = min(last, book.looked_at or last)
    if now - last < policy.every_hours * _HOUR:
        return None
    full = max((backup.began_at for backup in sound if backup.kind == "full" and backup.began_at <= now), default=0.0)
    return "full" if now - full >= policy.full_every_hours * _HOUR else "incr"
