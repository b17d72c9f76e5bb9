"""The audit log: one entry for each act, each with the digest of the one before, and the verifier of that chain.

The number of an entry is also the registry's turn: see acts.py.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from keyplan.keyspace.records import AuditEntry

__all__ = ["FIRST_PREVIOUS", "AuditVerdict", "digest_of_entry", "verified"]

FIRST_PREVIOUS: Final = "0" * 64
"""What the first entry names as the digest of the one before it."""


class AuditVerdict(NamedTuple):
    """Whether the log is whole. `broken_at` is the number of the first entry that does not follow from the one before."""

    is_whole: bool
    entries: int
    broken_at: int | None
    problem: str
    head: str
    """The digest of the last good entry: kept elsewhere, it shows that the log's end was not cut off."""


def digest_of_entry(number: int, entry: AuditEntry) -> str:
    """Return the SHA-256 of an entry's number and content, as JSON with sorted keys."""
    content = msgspec.json.encode([number, entry], order="sorted")
    return hashlib.sha256(content).hexdigest()


def verified(entries: Iterable[tuple[int, AuditEntry]]) -> AuditVerdict:
    """Go through the log from number 1. An entry that was changed, removed or put in breaks the chain behind it."""
    previous, count = FIRST_PREVIOUS, 0
    for number, entry in entries:
        problem = ""
        if number != count + 1:
            problem = f"entry {count + 1} is missing"
        elif entry.previous != previous:
            problem = "it does not name the digest of the entry before it"
        if problem:
            return AuditVerdict(is_whole=False, entries=count, broken_at=number, problem=problem, head=previous)
        previous, count = digest_of_entry(number, entry), number
    return AuditVerdict(is_whole=True, entries=count, broken_at=None, problem="", head=previous)
