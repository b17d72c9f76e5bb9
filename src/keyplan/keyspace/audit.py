"""The registry's audit log: one entry for each act, each with the digest of the one before (`keyplan.audit_log.chain`).

The number of an entry is also the registry's turn: see transactions.py. Digest and number of the last entry are kept beside the
log, so that its end is bound as well.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from keyplan.audit_log import FIRST_PREVIOUS, Head, Link
from keyplan.audit_log import verified as verified_chain
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
    links = ((number, None if entry is None else _link_of(number, entry)) for number, entry in entries)
    return AuditVerdict(*verified_chain(links, None if head is None else Head(head.number, head.digest)))


def _link_of(number: int, entry: AuditEntry) -> Link:
    return Link(entry.previous, digest_of_entry(number, entry))
