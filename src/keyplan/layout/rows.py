"""What is given and taken with records: rows and pages of lists, changes, expected revisions, leases."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from keyplan.errors import CorruptionError

__all__ = ["Change", "ChangeKind", "Damaged", "ExpectedRevision", "LeaseHandle", "Page", "Versioned", "readable_rows"]

K = TypeVar("K")
V = TypeVar("V")


class Versioned(NamedTuple, Generic[K, V]):
    """A record with its history. Revisions are the store's; `version` counts the writes since creation, from 1.

    `lease` is 0 when the record hangs on none. `epoch` is that of the snapshot which it was read in; "" on an engine that gives
    out no revision twice. Hand the whole of it to `expected_revision`, and a store that went back since refuses it.
    """

    key: K
    record: V
    create_revision: int
    revision: int
    version: int
    lease: int
    epoch: str = ""


ExpectedRevision: TypeAlias = int | Versioned[Any, Any]
"""Which state of a record a writer has seen: the record as it was read, or its bare revision, 0 for absent.

As it was read: it must be of the record that is written, and what the store has lost, or has in another epoch, is refused. It
holds for the store object that has read it; another one may count the epochs of an etcd that went back otherwise.

A bare revision: one of the epoch that the store is in when the call begins. Where `Engine.lineage` leaps no revision is given
out twice (memory, LMDB, PostgreSQL), so that an old number is as good as the record. On etcd, restored from a snapshot without
`--bump-revision`, an old number may be that of another state.
"""


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


def readable_rows(
    rows: Iterable[Versioned[K, V] | Damaged[K]], on_damage: Callable[[Damaged[K]], object]
) -> Iterator[tuple[K, V]]:
    """Yield the records among rows that can be read, with their keys; `on_damage` takes each of the others, in its place.

    For lists that one damaged record shall not end. A bound on what is yielded stands around this, not around the rows.
    """
    for row in rows:
        if isinstance(row, Damaged):
            on_damage(row)
        else:
            yield row.key, row.record


class Page(NamedTuple, Generic[K, V]):
    """A part of a list, and the token that continues it; `next_token` is empty on the last page.

    `revision` is that of the snapshot that the page was read from. `damaged` holds what stands in this part of the list and
    cannot be read; who goes on without looking at it leaves these out.
    """

    records: list[tuple[K, V]]
    next_token: str
    revision: int
    damaged: Sequence[Damaged[K]] = ()


class ChangeKind(Enum):
    """What happened to a record, as a list that is watched shows it."""

    INSERTED = "inserted"
    CHANGED = "changed"
    REMOVED = "removed"


class Change(NamedTuple, Generic[K, V]):
    """One change of one record: what it was before the commit and what it is after it.

    Of a table: INSERTED has no `old`, REMOVED no `new`. Of an index: a record that begins to have an entry in the list is
    INSERTED, one that loses its last there is REMOVED, and both records are given where there are both. `old` is None, too,
    where the record before cannot be read, or is not known (see `follow`).

    `token` continues right after this change: `watch(after=token)`. It is empty while `follow` lists. `revision` is that of the
    commit; of a record that `follow` lists, that of the record.
    """

    kind: ChangeKind
    key: K
    old: V | None
    new: V | None
    revision: int
    token: str


class LeaseHandle(Protocol):
    """What can be given as `lease=` besides a lease's id: the lease of a store or of an engine."""

    @property
    def id(self) -> int:
        """The id, which other processes may use as well."""
        ...
