"""What a history can break, and how a finding of it is told."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from keyplan.engine import Entry, Event

__all__ = ["Finding", "Wrong", "difference"]


class Wrong(Enum):
    """What a history can break."""

    LOG = "the log contradicts itself, or does not lead to what is stored"
    LOST = "an acknowledged commit is not at its revision"
    TWICE = "a commit happened more than once"
    HALF = "a commit is there in part"
    REFUSED = "a commit that was said not to be written is there"
    STRANGER = "a revision was made by nobody"
    GUARD = "a commit was applied although a guard did not hold"
    CONFLICT = "a conflict that was none"
    TIME = "a revision that real time contradicts"
    READ = "a read saw something else than its revision"
    WATCH = "a watch left out, repeated, reordered, made up or never brought an event"
    COMPACTED = "a watch was told that history is gone which nobody gave up"
    LEASE = "a lease ended early, did not end, or told what is not so"
    ACT = "a typed operation is not what its caller was told"


class Finding(NamedTuple):
    """Something wrong, and where."""

    wrong: Wrong
    detail: str


def difference(found: Iterable[Entry | Event], expected: Iterable[Entry | Event]) -> str:
    """Tell where two lists part, by keys and revisions alone: values may be long."""
    told, due = [_place(one) for one in found], [_place(one) for one in expected]
    at = next((number for number, pair in enumerate(zip(told, due, strict=False)) if pair[0] != pair[1]), None)
    if at is None and len(told) == len(due):
        return "the same places with other contents"
    at = min(len(told), len(due)) if at is None else at
    return f"{len(told)} instead of {len(due)}; at {at}: {told[at : at + 3]} instead of {due[at : at + 3]}"


def _place(one: Entry | Event) -> tuple[int, bytes]:
    return (one.mod_revision, one.key) if isinstance(one, Entry) else (one.revision, one.key)
