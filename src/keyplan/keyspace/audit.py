"""The audit log: one entry for each act, each with the digest of the one before, and the verifier of that chain.

The number of an entry is also the registry's turn: see transactions.py. Digest and number of the last entry are kept beside the
log, so that its end is bound as well.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from keyplan.keyspace.records import COUNT, HEX, AuditEntry, AuditHead
from keyplan.operations import Change

__all__ = ["FIRST_PREVIOUS", "Acts", "AuditVerdict", "digest_of_entry", "digest_of_unread", "verified"]


class Acts:
    """Every act that the log has, as it is written, and read when something is made again from the log.

    Those of the first part are what operations declare; the others are parts of restores and of clearing up.
    """

    INIT: Final = Change("init")
    CONFIGURE: Final = Change("configure")
    REPAIR: Final = Change("repair")
    CREATE: Final = Change("create", "{name}")
    UPDATE: Final = Change("update", "{name}")
    DISABLE: Final = Change("disable", "{name}")
    ENABLE: Final = Change("enable", "{name}")
    DELETE: Final = Change("delete", "{name}")
    UNDELETE: Final = Change("undelete", "{name}")
    COMPLETE: Final = Change("complete", "{name}")
    QUOTA: Final = Change("quota", "{name}")

    RESTORE: Final = Change("restore", "{name}")
    OVERWRITE: Final = Change("overwrite", "{name}")
    RESTORED: Final = Change("restored", "{name}")
    FREE: Final = Change("free", "{name}")


FIRST_PREVIOUS: Final = "0" * 64
"""What the first entry names as the digest of the one before it."""


class AuditVerdict(NamedTuple):
    """Whether the log is whole. `broken_at` is the number of the first entry that is missing, or is not as it was written."""

    is_whole: bool
    entries: COUNT
    broken_at: int | None
    problem: str
    head: HEX
    """The digest of the last good entry: kept elsewhere, it shows that the log and its head were not both written anew."""


def digest_of_entry(number: int, entry: AuditEntry) -> str:
    """Return the SHA-256 of an entry's number and content, as JSON with sorted keys."""
    content = msgspec.json.encode([number, entry], order="sorted")
    return hashlib.sha256(content).hexdigest()


def digest_of_unread(number: int, raw: bytes) -> str:
    """Return what the entry behind a damaged one names as its digest, so that the log goes on. It is that of no entry."""
    return hashlib.sha256(b"unread %d " % number + raw).hexdigest()


def verified(entries: Iterable[tuple[int, AuditEntry | None]], head: AuditHead | None = None) -> AuditVerdict:
    """Go through the log from number 1. An entry that was changed, removed or put in breaks the chain.

    None is an entry that cannot be read. `head` is what is kept of the last one; a log that has none yet ends as it ends.
    """
    chain = _Chain()
    for number, entry in entries:
        if not chain.add(number, entry):
            break
    return chain.verdict(head)


class _Chain:
    """The entries that follow from one another. Two that do not agree are kept until the next tells which was edited."""

    def __init__(self) -> None:
        self._good = [FIRST_PREVIOUS]  # the digests of the last two good entries, or fewer
        self._count = 0
        self._odd: tuple[int, str] | None = None  # the number and digest of an entry that does not follow
        self._broken: tuple[int, str] | None = None

    def add(self, number: int, entry: AuditEntry | None) -> bool:
        """Take the next entry; False when it is known where the chain breaks."""
        if self._odd is not None:
            self._blame(None if entry is None else entry.previous)
        elif number != self._count + 1:
            self._broken = (self._count + 1, "it is missing")
        elif entry is None:
            self._broken = (number, "it cannot be read")
        elif entry.previous != self._good[-1]:
            self._odd = (number, digest_of_entry(number, entry))
        else:
            self._good = [self._good[-1], digest_of_entry(number, entry)]
            self._count = number
        return self._broken is None

    def verdict(self, head: AuditHead | None) -> AuditVerdict:
        if self._odd is not None and self._broken is None:
            self._blame(None if head is None else head.digest)
        if self._broken is None and head is not None and head.number > self._count:
            self._broken = (self._count + 1, "it is missing: the log's head is behind it")
        if self._broken is None and head is not None and head.number == self._count and head.digest != self._good[-1]:
            self._edited(self._count, "it is not as it was written: the log's head has another digest")
        if self._broken is None and head is not None and head.number < self._count:
            self._broken = (head.number + 1, "it was put in: the log's head is before it")
        number, problem = self._broken or (None, "")
        return AuditVerdict(self._broken is None, self._count, number, problem, self._good[-1])

    def _blame(self, follower: str | None) -> None:
        """Say which of two entries that do not agree was edited: not the one that what follows agrees with."""
        assert self._odd is not None
        number, digest = self._odd
        if self._count and digest == follower:
            self._edited(self._count, "it is not as it was written: the entry behind it has another digest")
        else:
            self._broken = (number, "it does not name the digest of the entry before it")

    def _edited(self, number: int, problem: str) -> None:
        self._broken = (number, problem)
        self._good.pop()
        self._count = number - 1
