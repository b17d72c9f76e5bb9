"""How a cluster's backups and archive are, for `status`, `top`, the page of clusters, figures and `doctor`.

Damaged records count as absent.
"""

from math import inf
from typing import ClassVar

from msgspec import Struct

from keyplan.apps.patroni.backups.archive_state import has_gap, is_failing, unsafe_since
from keyplan.apps.patroni.backups.books import is_refuted, last_verified, shown_time, sound_backups
from keyplan.apps.patroni.backups.records import Archive, ArchiveState, BackupBook
from keyplan.apps.patroni.layout import BookKey, Broker, NodeKey, OrderKey
from keyplan.apps.patroni.readable import readable_of
from keyplan.apps.patroni.records import InstanceState
from keyplan.errors import CorruptionError

__all__ = [
    "ArchiveView",
    "archive_problem",
    "archive_view",
    "backup_problem",
    "former_text",
    "lost_by_way_back",
    "verification_problem",
]


class ArchiveView(Struct, frozen=True):
    """The last good backup of an instance, and what a restore would lose now, as of one state.

    `backup` is its label, empty where there is none, and `backup_at` when it had ended. `verified` and `verified_backup_at` are
    those of the newest backup that an instance was made of. `problem` is why none could be made of the last that was tried. A
    restore would lose what was written since `lost_since`: 0 is everything, and None nothing. Times are seconds of Unix time.
    `text` says it in words.
    """

    schema_name: ClassVar[str] = "BrokerArchiveView"
    backup: str
    backup_at: float
    verified: str
    verified_backup_at: float
    problem: str
    lost_since: float | None
    text: str

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look at it."""
        return bool(self.backup) and not self.problem

    def lost_seconds(self, now: float) -> float:
        """Return the writes of how many seconds a restore would lose; infinity: of all."""
        if self.lost_since is None:
            return 0.0
        return max(0.0, now - self.lost_since) if self.lost_since else inf


def archive_view(broker: Broker, instance: str, archive: Archive, now: float) -> ArchiveView:
    """Return how an instance's archive is."""
    book = readable_of(broker.backup_books, BookKey(instance, archive.stanza), _ignore)
    if book is None or not (sound := sound_backups(book)):
        return ArchiveView("", 0.0, "", 0.0, "", 0.0, "no backup: a restore would lose everything")
    last, verified, problem = sound[-1], last_verified(book), _refutation(book)
    state = _state_of(broker, instance)
    unsafe = unsafe_since(archive, state, now)
    if has_gap(book, state):
        unsafe = last.ended_at
        lost = f"what was written since {shown_time(unsafe)}, at most: a part of the log behind it is in no archive"
    elif unsafe is None:
        lost = "nothing"
    elif unsafe == 0.0:
        # Why so: what was archived before the leader's cell could be asked is not known.
        unsafe = last.ended_at
        lost = f"what was written since {shown_time(unsafe)}, at most"
    else:
        lost = f"what was written since {shown_time(unsafe)}, {max(0.0, now - unsafe):.0f} s"
    if verified is None:
        said = "none is verified"
    else:
        said = "verified" if verified is last else f"the last that is verified is {verified.label}"
    parts = [f"backup {last.label} of {shown_time(last.ended_at)}", said, *([problem] if problem else [])]
    text = "; ".join([*parts, f"a restore would lose {lost}"])
    label, ended_at = (verified.label, verified.ended_at) if verified is not None else ("", 0.0)
    return ArchiveView(last.label, last.ended_at, label, ended_at, problem, unsafe, text)


def _refutation(book: BackupBook) -> str:
    """Return what is wrong with the last backup that was tried; empty where it is good, or none was."""
    tried = [backup for backup in book.backups if backup.label in book.verifications]
    if not tried or not is_refuted(book, tried[-1]):
        return ""
    return f"{tried[-1].label} could not be restored: {book.verifications[tried[-1].label].problem}"


def former_text(state: InstanceState) -> str:
    """Return which former cluster an instance has, in words; empty where it has none."""
    former = state.former
    if former is None:
        return ""
    nodes = ", ".join(f"{node} on {cell}" for node, cell in former.nodes.items())
    is_upgraded = former.version not in {"", state.version}
    version, command = (f", of PostgreSQL {former.version},", "upgrade") if is_upgraded else ("", "restore")
    return (
        f"its former cluster{version} is halted since {shown_time(former.laid_aside_at)}: {nodes}; `{command} --back` returns "
        f"to it, `{command} --finish` removes it"
    )


def lost_by_way_back(broker: Broker, instance: str) -> str:
    """Return what an instance lacks when its former cluster is back, in words; empty where nobody has written since."""
    state = broker.instances.get(instance)
    former = state.former if state is not None else None
    # Why only then: nobody has come to lead yet, and the former one has all that was acknowledged.
    if state is None or former is None or state.recovery is not None or state.upgrade is not None:
        return ""
    return (
        f"what was written since {shown_time(former.laid_aside_at)} is in the present cluster alone, which is "
        "halted with its data: the same command returns to it"
    )


def archive_problem(broker: Broker, instance: str, archive: Archive, now: float) -> str:
    """Return what is wrong with the archive of an instance; empty when it works, or nobody can tell."""
    found = _state_of(broker, instance)
    book = readable_of(broker.backup_books, BookKey(instance, archive.stanza), _ignore)
    if book is not None and has_gap(book, found):
        return (
            "a leader died before its log was archived, and a restore ends there; a new backup is one to begin from: "
            "`keyplan patroni backup`, or the broker by its clock"
        )
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


def verification_problem(broker: Broker, instance: str, archive: Archive) -> str:
    """Return what is wrong with the last backup of an instance that was verified; empty when it was good, or none was."""
    book = readable_of(broker.backup_books, BookKey(instance, archive.stanza), _ignore)
    if book is None or not (problem := _refutation(book)):
        return ""
    found = last_verified(book)
    good = f"the last that is verified is {found.label}" if found is not None else "none is verified"
    return f"{problem}; {good}. `keyplan patroni backup` makes another, `verify-backup` tries one"


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
