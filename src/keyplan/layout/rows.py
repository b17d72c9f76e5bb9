"""What lists and pages are made of: a record with its history, or the report that what stands there cannot be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from keyplan.errors import CorruptionError

__all__ = ["Damaged", "Page", "Versioned"]

K = TypeVar("K")
V = TypeVar("V")


class Versioned(NamedTuple, Generic[K, V]):
    """A record with its history. Revisions are the store's; `version` counts the writes since creation, from 1.

    `lease` is 0 when the record hangs on none.
    """

    key: K
    record: V
    create_revision: int
    revision: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class Damaged(Generic[K]):
    """A stored record that cannot be read: its place in a list, and why. The bytes stay where they are.

    No tuple, so that it cannot be unpacked in the place of a record. `raw_key` and `revision` are those of the damaged entry.
    `key` is the record's; None where an index entry is damaged itself, so that it does not say whose it is.
    """

    key: K | None
    raw_key: bytes
    revision: int
    error: CorruptionError


class Page(NamedTuple, Generic[K, V]):
    """A part of a list, and the token that continues it; `next_token` is empty on the last page.

    `revision` is that of the snapshot that the page was read from. `damaged` holds what stands in this part of the list and
    cannot be read; who goes on without looking at it leaves these out.
    """

    records: list[tuple[K, V]]
    next_token: str
    revision: int
    damaged: Sequence[Damaged[K]] = ()
