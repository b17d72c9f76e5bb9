"""What can be wrong with a registry: a pure comparison of its tables with one another. How it is read and repaired: doctor.py.

A registry that only keyplan has written is sound after every commit, and so after a kill at any moment. What is looked for here
is the work of others: raw writes, half a restore of raw keys, a damaged disk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from itertools import pairwise
from typing import Any, NamedTuple, Self

from keyplan.keyspace.audit import AuditVerdict
from keyplan.keyspace.layout import HistoryKey
from keyplan.keyspace.prefixes import PrefixCodec, prefix_range
from keyplan.keyspace.records import (
    Deletion,
    Fence,
    Header,
    KeySpaceRecord,
    Mark,
    MarkKind,
    PrefixHolder,
    State,
)

__all__ = ["Defect", "Fault", "FaultKind", "Fix", "Tables", "defects_of"]


class FaultKind(StrEnum):
    """What is wrong."""

    UNREADABLE = auto()
    NO_HEADER = auto()
    AUDIT_BROKEN = auto()
    FENCE = auto()
    HOLDER = auto()
    NESTED_PREFIXES = auto()
    ORDER = auto()
    DELETION = auto()
    MARK = auto()
    RECORD = auto()
    HISTORY = auto()
    LEFTOVER = auto()
    STRAY_DATA = auto()


class Fix(NamedTuple):
    """A write that puts something right: the value at a key of a table of the registry; None removes it."""

    table: str
    key: object
    value: object | None


class Fault(NamedTuple):
    """Something wrong; `is_repairable` unless keyplan cannot know what is right."""

    kind: FaultKind
    name: str
    problem: str
    is_repairable: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the fault that a JSON object describes. Raises KeyError, ValueError."""
        return cls(FaultKind(value["kind"]), str(value["name"]), str(value["problem"]), bool(value["is_repairable"]))

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**self._asdict(), "kind": str(self.kind)}


class Defect(NamedTuple):
    """A fault with the writes that put it right."""

    fault: Fault
    fixes: tuple[Fix, ...]


@dataclass
class Tables:
    """The registry in memory. `stray` has the first key of data below prefixes that were freed."""

    codec: PrefixCodec
    header: Header | None = None
    records: dict[str, KeySpaceRecord] = field(default_factory=dict)
    holders: dict[bytes, PrefixHolder] = field(default_factory=dict)
    fences: dict[str, Fence] = field(default_factory=dict)
    history: dict[HistoryKey, KeySpaceRecord] = field(default_factory=dict)
    marks: dict[bytes, Mark] = field(default_factory=dict)
    deletions: dict[str, Deletion] = field(default_factory=dict)
    order: dict[int, PrefixHolder] = field(default_factory=dict)
    usage: set[str] = field(default_factory=set)
    quotas: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)
    audit: AuditVerdict | None = None
    stray: dict[bytes, bytes] = field(default_factory=dict)


def defects_of(tables: Tables) -> list[Defect]:
    """Return all that is wrong, with its repair, in a stable order."""
    found = [_defect(FaultKind.UNREADABLE, "", problem) for problem in tables.unreadable]
    if tables.header is None and (tables.records or tables.holders):
        found.append(
            _defect(FaultKind.NO_HEADER, "", "there are key spaces, but no header: the prefix code is not known")
        )
    if tables.audit is not None and not tables.audit.is_whole:
        found.append(_defect(FaultKind.AUDIT_BROKEN, "", f"entry {tables.audit.broken_at}: {tables.audit.problem}"))
    for record in tables.records.values():
        found += _faults_of_record(tables, record)
    found += _faults_of_holders(tables)
    found += _leftovers(tables)
    found += _faults_of_marks(tables)
    return found


def _faults_of_record(tables: Tables, record: KeySpaceRecord) -> Iterator[Defect]:
    name, prefix = record.name, bytes.fromhex(record.prefix)
    fence, due = tables.fences.get(name), Fence(record.generation, record.state)
    if fence != due:
        problem = f"the fence says {_said(fence)}, the record {_said(due)}"
        yield _defect(FaultKind.FENCE, name, problem, (Fix("fences", name, due),))
    holder = PrefixHolder(name, record.generation)
    if record.state is not State.DELETED and tables.holders.get(prefix) != holder:
        held_by = tables.holders.get(prefix)
        is_other_live = held_by is not None and _is_live(tables, held_by, prefix)
        fixes = () if is_other_live else (Fix("holders", prefix, holder),)
        problem = f"its prefix {record.prefix} is not registered to it"
        yield _defect(FaultKind.HOLDER, name, problem, fixes)
    if tables.order.get(record.sequence) != holder:
        problem = f"the list does not have it at its place {record.sequence}"
        at_place = tables.order.get(record.sequence)
        other = None if at_place is None else tables.records.get(at_place.name)
        is_taken = other is not None and other is not record and other.sequence == record.sequence
        yield _defect(FaultKind.ORDER, name, problem, () if is_taken else (Fix("order", record.sequence, holder),))
    yield from _faults_of_content(tables, record, prefix)
    yield from _faults_of_deletion(tables, record)


def _faults_of_content(tables: Tables, record: KeySpaceRecord, prefix: bytes) -> Iterator[Defect]:
    end = (prefix_range(prefix).end or b"").hex()
    if (record.range.start, record.range.end) != (record.prefix, end):
        yield _defect(FaultKind.RECORD, record.name, f"its range is not that of the prefix {record.prefix}")
    if record.prefix_number != tables.codec.number_of(prefix):
        yield _defect(FaultKind.RECORD, record.name, f"its prefix number is not that of the prefix {record.prefix}")
    if (record.delete_completed_at is not None) != (record.state is State.DELETED) or (
        record.deleted_at is not None
    ) != (record.state in {State.DELETING, State.DELETED}):
        yield _defect(FaultKind.RECORD, record.name, f"its state is {record.state}, and its times say otherwise")


def _faults_of_deletion(tables: Tables, record: KeySpaceRecord) -> Iterator[Defect]:
    deletion = tables.deletions.get(record.name)
    if record.state is State.DELETING and deletion is None:
        # Why: begun, so that what may have lost keys is never taken back.
        at = record.deleted_at or record.created_at
        begun = Deletion(cursor=record.prefix, not_before=at, clients_until=at, is_begun=True)
        problem = "it is being deleted, and nothing says how far"
        yield _defect(FaultKind.DELETION, record.name, problem, (Fix("deletions", record.name, begun),))
    if record.state is not State.DELETING and deletion is not None:
        problem = "it is not being deleted, and something says how far"
        yield _defect(FaultKind.DELETION, record.name, problem, (Fix("deletions", record.name, None),))


def _faults_of_holders(tables: Tables) -> Iterator[Defect]:
    for prefix, holder in tables.holders.items():
        if not _is_live(tables, holder, prefix):
            problem = f"the prefix {prefix.hex()} is registered to it, and it is not there, or has another"
            yield _defect(FaultKind.HOLDER, holder.name, problem, (Fix("holders", prefix, None),))
        container = tables.codec.codeword_of(prefix)
        if container is None:
            yield _defect(FaultKind.HOLDER, holder.name, f"the prefix {prefix.hex()} lies in no codeword")
        elif container != prefix and not _is_container(tables, container):
            fix = Fix("marks", container, Mark(kind=MarkKind.LEGACY_CONTAINER))
            problem = f"the container {container.hex()} of its legacy prefix is not marked"
            yield _defect(FaultKind.MARK, holder.name, problem, (fix,))
    for shorter, longer in pairwise(sorted(tables.holders)):
        if longer.startswith(shorter):
            problem = f"its prefix {shorter.hex()} is the beginning of {longer.hex()}, another's"
            yield _defect(FaultKind.NESTED_PREFIXES, tables.holders[shorter].name, problem)


def _leftovers(tables: Tables) -> Iterator[Defect]:
    for name in tables.fences.keys() - tables.records.keys():
        yield _defect(FaultKind.LEFTOVER, name, "a fence without a key space", (Fix("fences", name, None),))
    for name in tables.deletions.keys() - tables.records.keys():
        yield _defect(FaultKind.LEFTOVER, name, "a deletion without a key space", (Fix("deletions", name, None),))
    for table, names in (("usage", tables.usage), ("quotas", tables.quotas)):
        for name in sorted(names):
            record = tables.records.get(name)
            if record is None or record.state is State.DELETED:
                problem = f"an entry of {table} without a key space"
                yield _defect(FaultKind.LEFTOVER, name, problem, (Fix(table, name, None),))
    for number, holder in tables.order.items():
        record = tables.records.get(holder.name)
        if record is None or record.sequence != number:
            problem = f"a place {number} in the list without a key space"
            yield _defect(FaultKind.ORDER, holder.name, problem, (Fix("order", number, None),))
    for key, past in tables.history.items():
        record = tables.records.get(key.name)
        if record is None or record.generation <= key.generation or past.generation != key.generation:
            problem = f"generation {key.generation} is history, and the record is not a later one"
            yield _defect(FaultKind.HISTORY, key.name, problem)


def _faults_of_marks(tables: Tables) -> Iterator[Defect]:
    for prefix, mark in tables.marks.items():
        if mark.kind is MarkKind.LEGACY_CONTAINER:
            if not any(other.startswith(prefix) and other != prefix for other in tables.holders):
                problem = f"{prefix.hex()} is marked as a container, and no legacy key space is in it"
                yield _defect(FaultKind.MARK, "", problem, (Fix("marks", prefix, None),))
        elif prefix in tables.holders:
            problem = f"{prefix.hex()} is marked as {mark.kind.replace('_', ' ')}, and a key space has it"
            yield _defect(FaultKind.MARK, tables.holders[prefix].name, problem, (Fix("marks", prefix, None),))
    for prefix, first_key in tables.stray.items():
        problem = f"keys came below the prefix {prefix.hex()} after its deletion: {first_key.hex()}"
        yield _defect(FaultKind.STRAY_DATA, "", problem)


def _is_live(tables: Tables, holder: PrefixHolder, prefix: bytes) -> bool:
    record = tables.records.get(holder.name)
    return (
        record is not None
        and record.state is not State.DELETED
        and (record.prefix, record.generation) == (prefix.hex(), holder.generation)
    )


def _is_container(tables: Tables, prefix: bytes) -> bool:
    mark = tables.marks.get(prefix)
    return mark is not None and mark.kind is MarkKind.LEGACY_CONTAINER


def _said(fence: Fence | None) -> str:
    return "nothing" if fence is None else f"generation {fence.generation}, {fence.state}"


def _defect(kind: FaultKind, name: str, problem: str, fixes: tuple[Fix, ...] = ()) -> Defect:
    return Defect(Fault(kind, name, problem, bool(fixes)), fixes)
