"""What can be wrong with a registry: a pure comparison of its tables with one another and with its log.

How it is read and repaired: doctor.py. A registry that only keyplan has written is sound after every commit, and so after a
kill at any moment. What is looked for here is the work of others: raw writes, half a restore of raw keys, a damaged disk.

An entry is there, or not there, or unread. Nothing that follows from "not there" is done while an unread entry could be the
one that is missing: what is lost is made again, from records or the log, and what cannot be is left for somebody to decide.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from itertools import pairwise
from shlex import quote
from typing import Annotated, Any, NamedTuple, Self

from msgspec import structs

from keyplan.keyspace.audit import AuditVerdict
from keyplan.keyspace.evidence import Evidence, history_records
from keyplan.keyspace.layout import HistoryKey
from keyplan.keyspace.prefixes import PrefixCodec, prefix_range
from keyplan.keyspace.records import (
    Configuration,
    Deletion,
    Fence,
    Header,
    KeySpaceRecord,
    Mark,
    MarkKind,
    PrefixHolder,
    Quota,
    State,
)
from keyplan.keyspace.rows import key_of
from keyplan.layout import Only, shown_key
from keyplan.operations import Schema

__all__ = ["Defect", "Fault", "FaultKind", "Fix", "Tables", "defects_of"]


class FaultKind(StrEnum):
    """What is wrong."""

    UNREADABLE = auto()
    NO_HEADER = auto()
    CONFIGURATION = auto()
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
    """Something wrong; `is_repairable` unless keyplan cannot know what is right.

    `raw_key` is that of the entry that is wrong, or missing, in hex; `remedy` names the command that mends it.
    """

    kind: FaultKind
    name: Annotated[str, Schema("The key space; empty for the registry's own.")]
    problem: str
    is_repairable: bool = False
    raw_key: Annotated[str, Schema("The entry that is wrong or missing, in hexadecimal digits.")] = ""
    remedy: Annotated[str, Schema("The command that mends it.")] = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the fault that a JSON object describes. Raises KeyError, ValueError."""
        texts = (str(value["name"]), str(value["problem"]))
        # Why: a server of an earlier version does not tell them.
        place = (str(value.get("raw_key", "")), str(value.get("remedy", "")))
        return cls(FaultKind(value["kind"]), *texts, bool(value["is_repairable"]), *place)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**self._asdict(), "kind": str(self.kind)}


class Defect(NamedTuple):
    """A fault with the writes that put it right."""

    fault: Fault
    fixes: tuple[Fix, ...]


@dataclass
class Tables:
    """The registry in memory: what was read, and by table what was not.

    `unread` has the keys of damaged entries with what is wrong; `strange` tells of raw keys that are none of their table.
    `codec` is None where it is not known. `stray` has the first key of data below prefixes that were freed. `now` is written
    as the registry writes times.
    """

    now: str
    codec: PrefixCodec | None
    evidence: Evidence
    header: Header | None = None
    configuration: Configuration | None = None
    records: dict[str, KeySpaceRecord] = field(default_factory=dict)
    holders: dict[bytes, PrefixHolder] = field(default_factory=dict)
    fences: dict[str, Fence] = field(default_factory=dict)
    history: dict[HistoryKey, KeySpaceRecord] = field(default_factory=dict)
    marks: dict[bytes, Mark] = field(default_factory=dict)
    deletions: dict[str, Deletion] = field(default_factory=dict)
    order: dict[int, PrefixHolder] = field(default_factory=dict)
    usage: dict[str, object] = field(default_factory=dict)
    quotas: dict[str, Quota] = field(default_factory=dict)
    floors: dict[str, object] = field(default_factory=dict)
    unread: dict[str, dict[Any, str]] = field(default_factory=dict)
    strange: dict[bytes, str] = field(default_factory=dict)
    audit: AuditVerdict | None = None
    stray: dict[bytes, bytes] = field(default_factory=dict)

    def is_unread(self, table: str, key: object) -> bool:
        """Tell whether there is an entry at the key that cannot be read."""
        return key in self.unread.get(table, {})

    def has_no_record(self, name: str) -> bool:
        """Tell whether it is certain that no key space has the name: no record, read or not, and none ever, by the log."""
        return name not in self.records and not self.is_unread("records", name) and self.evidence.was_never(name)

    def prefixes_held(self) -> list[bytes]:
        """Every registered prefix, whether it can be read whose it is or not."""
        return sorted([*self.holders, *self.unread.get("holders", {})])


def defects_of(tables: Tables) -> list[Defect]:
    """Return all that is wrong, with its repair, in a stable order."""
    found = [_defect(FaultKind.UNREADABLE, "", problem, at=key) for key, problem in tables.strange.items()]
    found += _unread(tables)
    found += _faults_of_registry(tables)
    found += _lost_records(tables)
    for record in tables.records.values():
        found += _faults_of_record(tables, record)
    found += _faults_of_holders(tables)
    found += _leftovers(tables)
    found += _faults_of_marks(tables)
    return found


# ---- what cannot be read, and what is lost -------------------------------------------------------------------------------


def _unread(tables: Tables) -> Iterator[Defect]:
    for table, keys in tables.unread.items():
        for key, problem in keys.items():
            name = key if isinstance(key, str) else getattr(key, "name", "")
            fixes = tuple(_made_again(tables, table, key))
            kind = FaultKind.DELETION if (table, bool(fixes)) == ("deletions", True) else FaultKind.UNREADABLE
            yield _defect(kind, name, f"the entry{_shown(key)} of {table}: {problem}", fixes, at=key_of(table, key))


def _made_again(tables: Tables, table: str, key: Any) -> Iterator[Fix]:
    """Yield the write that makes an unread entry again, if what was read tells what it was."""
    record = tables.records.get(key) if isinstance(key, str) else None
    match table:
        case "records":
            rebuilt = _rebuilt(tables, key)
            if rebuilt is not None:
                yield Fix(table, key, rebuilt)
        case "fences" if record is not None:
            yield from _fence_made_again(tables, record)
        case "holders" | "order":
            yield from _places_made_again(tables, table, key)
        case "deletions" if record is not None:
            deletion = _rebuilt_deletion(tables, record) if record.state is State.DELETING else None
            if deletion is not None or record.state is not State.DELETING:
                yield Fix(table, key, deletion)
        case "marks" if isinstance(key, bytes) and not tables.is_unread("holders", key):
            yield Fix(table, key, _mark_made_again(tables, key))
        case "usage" | "floors":
            yield Fix(table, key, None)  # counted again when it is asked for; forgotten again when that is wanted
        case "quotas" if record is not None:
            life = tables.evidence.last_life(record.name)
            if life is not None and life.detail.get("generation") == record.generation:
                yield Fix(table, key, life.quota)
        case "history" if tables.codec is not None and tables.evidence.is_whole and isinstance(key, HistoryKey):
            past = history_records(tables.evidence, key.name, tables.codec)
            yield from (Fix(table, key, one) for one in past if one.generation == key.generation)
        case _:
            return


def _fence_made_again(tables: Tables, record: KeySpaceRecord) -> Iterator[Fix]:
    # Why not without a header: the fence names the registry, and one that is lost is made again first, where that can be.
    if tables.header is not None:
        yield Fix("fences", record.name, Fence(record.generation, record.state, tables.header.cluster))


def _mark_made_again(tables: Tables, prefix: bytes) -> Mark | None:
    """Return a mark that keeps a prefix from being given out for as long as any that it can have been; None: it is in use."""
    if prefix in tables.holders:
        return None
    past = [*tables.records.values(), *tables.history.values()]
    epoch = max((record.prefix_epoch for record in past if record.prefix == prefix.hex()), default=0)
    if any(other.startswith(prefix) for other in tables.prefixes_held()):
        return Mark(kind=MarkKind.LEGACY_CONTAINER, epoch=epoch)
    # Why for ever: until when it was to cool down is lost with it.
    return Mark(kind=MarkKind.COOLING_DOWN if epoch else MarkKind.QUARANTINED, epoch=epoch)


def _places_made_again(tables: Tables, table: str, key: Any) -> Iterator[Fix]:
    for record in tables.records.values():
        place: object = record.sequence if table == "order" else bytes.fromhex(record.prefix)
        if place == key and (table == "order" or record.state is not State.DELETED):
            yield Fix(table, key, PrefixHolder(record.name, record.generation))
            return


def _faults_of_registry(tables: Tables) -> Iterator[Defect]:
    is_there = bool(tables.records or tables.holders or any(tables.unread.values()) or _has_log(tables))
    header, switches = tables.evidence.header, tables.evidence.configuration
    if tables.header is None and is_there:
        fixes = () if header is None or not tables.evidence.is_whole else (Fix("header", Only(), header),)
        problem = "there are key spaces, but no header that can be read: the prefix code is not known"
        yield _defect(FaultKind.NO_HEADER, "", problem, fixes, at=key_of("header", Only()))
    if tables.configuration is None and is_there:
        fixes = () if switches is None or not tables.evidence.is_whole else (Fix("configuration", Only(), switches),)
        problem = "the registry's switches are lost: nothing is made or moved by their defaults"
        yield _defect(FaultKind.CONFIGURATION, "", problem, fixes, at=key_of("configuration", Only()))
    if tables.audit is not None and not tables.audit.is_whole:
        at = key_of("audit", tables.audit.broken_at)
        yield _defect(FaultKind.AUDIT_BROKEN, "", f"entry {tables.audit.broken_at}: {tables.audit.problem}", at=at)


def _has_log(tables: Tables) -> bool:
    return tables.audit is not None and tables.audit.entries > 0


def _lost_records(tables: Tables) -> Iterator[Defect]:
    """Names that the log, or another entry, knows, and that have no record at all."""
    known = {*tables.evidence.lives, *tables.fences, *tables.deletions}
    known |= {holder.name for holder in (*tables.holders.values(), *tables.order.values())}
    for name in sorted(known - tables.records.keys()):
        if tables.is_unread("records", name) or tables.has_no_record(name) or not name:
            continue
        rebuilt = _rebuilt(tables, name)
        fixes = () if rebuilt is None else (Fix("records", name, rebuilt),)
        yield _defect(FaultKind.RECORD, name, "its record is lost", fixes, at=key_of("records", name))


def _rebuilt(tables: Tables, name: str) -> KeySpaceRecord | None:
    """Return the record of a name as the log tells it, if nothing that was read says otherwise."""
    life = tables.evidence.last_life(name)
    record = None if life is None or tables.codec is None else life.record(name, tables.codec)
    if record is None:
        return None
    own = PrefixHolder(name, record.generation)
    fence, holder = tables.fences.get(name), tables.holders.get(bytes.fromhex(record.prefix))
    if fence is not None and not fence.is_of(record):
        return None
    if holder is not None and (holder == own) != (record.state is not State.DELETED):
        return None
    place = tables.order.get(record.sequence)
    return record if place is None or place == own else None


def _rebuilt_deletion(tables: Tables, record: KeySpaceRecord) -> Deletion | None:
    """Return the entry of a deletion as the log tells it: with the grace that was given."""
    life = tables.evidence.last_life(record.name)
    if life is None or life.detail.get("generation") != record.generation:
        return None
    return life.rebuilt_deletion(record, tables.now)


# ---- what does not agree ---------------------------------------------------------------------------------------------------


def _faults_of_record(tables: Tables, record: KeySpaceRecord) -> Iterator[Defect]:
    name, prefix = record.name, bytes.fromhex(record.prefix)
    yield from _faults_of_fence(tables, record)
    holder = PrefixHolder(name, record.generation)
    is_held = tables.holders.get(prefix) == holder or tables.is_unread("holders", prefix)
    if record.state is not State.DELETED and not is_held:
        held_by = tables.holders.get(prefix)
        is_free = held_by is None or _is_not_live(tables, held_by, prefix)
        fixes = (Fix("holders", prefix, holder),) if is_free else ()
        problem = f"its prefix {record.prefix} is not registered to it"
        yield _defect(FaultKind.HOLDER, name, problem, fixes, at=key_of("holders", prefix))
    if tables.order.get(record.sequence) != holder and not tables.is_unread("order", record.sequence):
        problem = f"the list does not have it at its place {record.sequence}"
        at_place = tables.order.get(record.sequence)
        other = None if at_place is None else tables.records.get(at_place.name)
        is_taken = at_place is not None and (
            (other is not None and other is not record and other.sequence == record.sequence)
            or tables.is_unread("records", at_place.name)
        )
        fixes = () if is_taken else (Fix("order", record.sequence, holder),)
        yield _defect(FaultKind.ORDER, name, problem, fixes, at=key_of("order", record.sequence))
    yield from _faults_of_content(tables, record, prefix)
    yield from _faults_of_deletion(tables, record)


def _faults_of_fence(tables: Tables, record: KeySpaceRecord) -> Iterator[Defect]:
    fence, at = tables.fences.get(record.name), key_of("fences", record.name)
    fixes = tuple(_fence_made_again(tables, record))
    if tables.is_unread("fences", record.name):
        return
    if fence is None or not fence.is_of(record):
        said = "nothing" if fence is None else f"generation {fence.generation}, {fence.state}"
        problem = f"the fence says {said}, the record generation {record.generation}, {record.state}"
        yield _defect(FaultKind.FENCE, record.name, problem, fixes, at=at)
    elif tables.header is not None and fence.cluster != tables.header.cluster:
        problem = f"the fence is of the registry {fence.cluster!r}, and this is {tables.header.cluster!r}"
        yield _defect(FaultKind.FENCE, record.name, problem, fixes, at=at)


def _faults_of_content(tables: Tables, record: KeySpaceRecord, prefix: bytes) -> Iterator[Defect]:
    at = key_of("records", record.name)
    end = (prefix_range(prefix).end or b"").hex()
    if (record.range.start, record.range.end) != (record.prefix, end):
        yield _defect(FaultKind.RECORD, record.name, f"its range is not that of the prefix {record.prefix}", at=at)
    if tables.codec is not None and record.prefix_number != tables.codec.number_of(prefix):
        yield _defect(
            FaultKind.RECORD, record.name, f"its prefix number is not that of the prefix {record.prefix}", at=at
        )
    if (record.delete_completed_at is not None) != (record.state is State.DELETED) or (
        record.deleted_at is not None
    ) != (record.state in {State.DELETING, State.DELETED}):
        yield _defect(FaultKind.RECORD, record.name, f"its state is {record.state}, and its times say otherwise", at=at)


def _faults_of_deletion(tables: Tables, record: KeySpaceRecord) -> Iterator[Defect]:
    deletion = tables.deletions.get(record.name)
    if record.state is not State.DELETING:
        if deletion is not None:
            problem = "it is not being deleted, and something says how far"
            yield _defect(FaultKind.DELETION, record.name, problem, (Fix("deletions", record.name, None),))
    elif deletion is not None:
        if bytes.fromhex(deletion.cursor) not in prefix_range(bytes.fromhex(record.prefix)):
            problem = f"its deletion has reached {deletion.cursor}, which is not in its prefix {record.prefix}"
            again = structs.replace(deletion, cursor=record.prefix)
            yield _defect(FaultKind.DELETION, record.name, problem, (Fix("deletions", record.name, again),))
    elif not tables.is_unread("deletions", record.name):
        rebuilt = _rebuilt_deletion(tables, record)
        fixes = () if rebuilt is None else (Fix("deletions", record.name, rebuilt),)
        at = key_of("deletions", record.name)
        yield _defect(FaultKind.DELETION, record.name, "it is being deleted, and nothing says how far", fixes, at=at)


def _faults_of_holders(tables: Tables) -> Iterator[Defect]:
    for prefix, holder in tables.holders.items():
        if _is_not_live(tables, holder, prefix):
            problem = f"the prefix {prefix.hex()} is registered to it, and it is not there, or has another"
            yield _defect(FaultKind.HOLDER, holder.name, problem, (Fix("holders", prefix, None),))
        if tables.codec is not None:
            yield from _faults_of_container(tables, tables.codec.codeword_of(prefix), prefix, holder.name)
    for shorter, longer in pairwise(tables.prefixes_held()):
        if longer.startswith(shorter):
            problem = f"its prefix {shorter.hex()} is the beginning of {longer.hex()}, another's"
            holder_name = tables.holders[shorter].name if shorter in tables.holders else ""
            yield _defect(FaultKind.NESTED_PREFIXES, holder_name, problem, at=key_of("holders", longer))


def _faults_of_container(tables: Tables, container: bytes | None, prefix: bytes, name: str) -> Iterator[Defect]:
    if container is None:
        problem = f"the prefix {prefix.hex()} lies in no codeword"
        yield _defect(FaultKind.HOLDER, name, problem, at=key_of("holders", prefix))
    elif container != prefix and not _is_container(tables, container):
        fix = Fix("marks", container, Mark(kind=MarkKind.LEGACY_CONTAINER))
        problem = f"the container {container.hex()} of its legacy prefix is not marked"
        yield _defect(FaultKind.MARK, name, problem, (fix,))


def _leftovers(tables: Tables) -> Iterator[Defect]:
    """Entries without a key space: taken away where it is certain that there was none, or that it is no more."""
    for table, names in (("fences", tables.fences.keys()), ("deletions", tables.deletions.keys())):
        for name in names - tables.records.keys():
            if tables.has_no_record(name):
                problem = f"an entry of {table} without a key space"
                yield _defect(FaultKind.LEFTOVER, name, problem, (Fix(table, name, None),))
    of_names = {"usage": tables.usage.keys(), "quotas": tables.quotas.keys(), "floors": tables.floors.keys()}
    for table, bounds in of_names.items():
        for name in sorted(bounds):
            record = tables.records.get(name)
            if tables.has_no_record(name) if record is None else record.state is State.DELETED:
                problem = f"an entry of {table} without a key space"
                yield _defect(FaultKind.LEFTOVER, name, problem, (Fix(table, name, None),))
    for number, holder in tables.order.items():
        record = tables.records.get(holder.name)
        if tables.has_no_record(holder.name) if record is None else record.sequence != number:
            problem = f"a place {number} in the list without a key space"
            yield _defect(FaultKind.ORDER, holder.name, problem, (Fix("order", number, None),))
    for key, past in tables.history.items():
        record = tables.records.get(key.name)
        if tables.is_unread("records", key.name) or (record is None and not tables.has_no_record(key.name)):
            continue  # told of as a record that is lost
        if record is None or record.generation <= key.generation or past.generation != key.generation:
            problem = f"generation {key.generation} is history, and the record is not a later one"
            yield _defect(FaultKind.HISTORY, key.name, problem, at=key_of("history", key))


def _faults_of_marks(tables: Tables) -> Iterator[Defect]:
    held = tables.prefixes_held()
    for prefix, mark in tables.marks.items():
        if mark.kind is MarkKind.LEGACY_CONTAINER:
            if not any(other.startswith(prefix) and other != prefix for other in held):
                problem = f"{prefix.hex()} is marked as a container, and no legacy key space is in it"
                yield _defect(FaultKind.MARK, "", problem, (Fix("marks", prefix, None),))
        elif prefix in tables.holders:
            problem = f"{prefix.hex()} is marked as {mark.kind.replace('_', ' ')}, and a key space has it"
            yield _defect(FaultKind.MARK, tables.holders[prefix].name, problem, (Fix("marks", prefix, None),))
    for prefix, first_key in tables.stray.items():
        problem = f"keys came below the prefix {prefix.hex()} after its deletion: {first_key.hex()}"
        yield _defect(FaultKind.STRAY_DATA, "", problem, at=first_key)


def _is_not_live(tables: Tables, holder: PrefixHolder, prefix: bytes) -> bool:
    """Tell whether it is certain that what a holder names does not have the prefix."""
    record = tables.records.get(holder.name)
    if record is None:
        return tables.has_no_record(holder.name)
    has_it = (record.prefix, record.generation) == (prefix.hex(), holder.generation)
    return record.state is State.DELETED or not has_it


def _is_container(tables: Tables, prefix: bytes) -> bool:
    mark = tables.marks.get(prefix)
    return mark is not None and mark.kind is MarkKind.LEGACY_CONTAINER


def _shown(key: object) -> str:
    match key:
        case Only():
            return ""
        case bytes():
            return f" {key.hex()}"
        case HistoryKey():
            return f" {key.name} of generation {key.generation}"
        case _:
            return f" {key}"


def _defect(kind: FaultKind, name: str, problem: str, fixes: tuple[Fix, ...] = (), *, at: bytes = b"") -> Defect:
    """Return a fault with its repair. `at`: the raw key that it is about; the first that the repair writes without it."""
    raw_key = at or (key_of(fixes[0].table, fixes[0].key) if fixes else b"")
    return Defect(
        Fault(kind, name, problem, bool(fixes), raw_key.hex(), _remedy(kind, raw_key, name, bool(fixes))), fixes
    )


def _remedy(kind: FaultKind, raw_key: bytes, name: str, is_repairable: bool) -> str:  # noqa: FBT001  # Why: one caller.
    """Return the command that mends a fault; where somebody must choose, the commands to choose from."""
    key = quote(shown_key(raw_key))
    if is_repairable:
        return "`keyplan doctor --repair` puts it right"
    match kind:
        case FaultKind.CONFIGURATION:
            return "`keyplan keyspace config NAME=VALUE` writes the switches anew"
        case FaultKind.STRAY_DATA:
            return f"`keyplan raw get {key}` shows the first, `keyplan raw delete {key}` removes it"
        case FaultKind.NESTED_PREFIXES:
            spared = f"`keyplan keyspace backup FILE {name or 'NAME'}`"
            return f"move one of the two: {spared}, and restore it with --on-conflict relocate"
        case FaultKind.AUDIT_BROKEN:
            return f"`keyplan audit-log --verify` shows where it ends; {_from_backup(key)}"
        case _:
            return f"{_from_backup(key)}, `keyplan raw quarantine {key} --past-fence` sets it aside"


def _from_backup(key: str) -> str:
    return f"`keyplan extract BACKUP --key {key} --into-store --overwrite --past-fence` takes it from a backup"
