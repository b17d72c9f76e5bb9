"""What a raw key is, and what a store holds there: template, fields, record, the index entries it should have, history, lease.

Entries that point at a record without being called for cannot be found from the record: that takes a check.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from keyplan.engine import NO_LEASE, Capability, Engine, Entry
from keyplan.errors import CorruptionError, KeyplanError, LeaseNotFoundError, RecordError, UnsupportedByEngineError
from keyplan.jobs import Lookup
from keyplan.layout import BoundIndex, BoundLayout, Kind, Layout, Meaning, bound_layout_of
from keyplan.maintenance.examine import Examiner, calls_for, primary_of
from keyplan.maintenance.findings import Finding
from keyplan.store import index_entries_of

__all__ = ["DueEntry", "EntryState", "KeyExplanation", "PointedAt", "explain_key", "lease_life"]


class EntryState(Enum):
    """How an index entry that a record should have is found."""

    PRESENT = "present"
    MISSING = "missing"
    OF_ANOTHER_RECORD = "of another record"
    ON_ANOTHER_LEASE = "on another lease"


class PointedAt(Enum):
    """What an index entry points at."""

    RECORD = "present"
    NOTHING = "missing"
    STRANGER = "present, but does not call for this entry"
    DAMAGED = "present, but cannot be read"
    NOWHERE = "the entry names no record"


@dataclass(frozen=True, slots=True)
class DueEntry:
    """An index entry that a record should have, and how it is found."""

    index: str
    raw_key: bytes
    state: EntryState


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """Everything about one raw key, in one state of the store.

    `meanings` has more than one where templates collide; `meaning` is the first, or says what is nearest. `entry` is None when
    nothing is stored; then all that follows is empty. `record` is the typed record, also when it is None; `has_record` tells.
    `entries` are those that the record should have. `points_at` is the raw key of the record that an index entry leads to.
    `next_number` is a counter's. `lease_ttl_seconds` is the life that the entry's lease has from each keep-alive, and
    `lease_seconds_left` what is left of it; None when there is no lease or the engine does not say. `findings` are what a
    check would say about the key.
    """

    meaning: Meaning
    meanings: tuple[Meaning, ...]
    entry: Entry | None = None
    has_record: bool = False
    record: object = None
    problem: str = ""
    entries: tuple[DueEntry, ...] = ()
    points_at: bytes | None = None
    pointed_at: PointedAt | None = None
    next_number: int | None = None
    lease_ttl_seconds: float | None = None
    lease_seconds_left: float | None = None
    findings: tuple[Finding, ...] = ()


def explain_key(
    engine: Engine, layout: Layout | BoundLayout, raw_key: bytes, *, beside: Sequence[BoundLayout] = ()
) -> KeyExplanation:
    """Return what is known about a raw key: from one snapshot, but for the lease, which is asked about after it.

    Never fails for what is stored: what cannot be read is said in `problem`. Raises EngineError.
    """
    bound = bound_layout_of(layout)
    with engine.snapshot() as snapshot:
        read = Lookup(snapshot)
        explanation = _explained(
            bound, raw_key, read, Examiner(bound, beside=beside, key_bytes_max=engine.profile.key_bytes_max)
        )
    entry = explanation.entry
    if entry is None or entry.lease == NO_LEASE:
        return explanation
    ttl_seconds, seconds_left = lease_life(engine, entry.lease)
    return replace(explanation, lease_ttl_seconds=ttl_seconds, lease_seconds_left=seconds_left)


def _explained(bound: BoundLayout, raw_key: bytes, read: Lookup, examiner: Examiner) -> KeyExplanation:
    meanings = bound.meanings(raw_key)
    meaning = meanings[0] if meanings else bound.meaning(raw_key)
    entry = read.get(raw_key)
    if entry is None:
        return KeyExplanation(meaning, meanings)
    findings = tuple(examiner.examine([entry], read))
    item = str(meaning.item)
    match meaning.kind:
        case Kind.RECORD:
            return _record(meaning, meanings, entry, read, findings, bound)
        case Kind.INDEX_ENTRY:
            raw_primary, pointed_at = _pointed_at(bound.indexes[item], entry, read)
            return KeyExplanation(
                meaning, meanings, entry, points_at=raw_primary, pointed_at=pointed_at, findings=findings
            )
        case Kind.COUNTER:
            try:
                number = bound.counters[item].decode(entry.value)
            except CorruptionError as error:
                return KeyExplanation(meaning, meanings, entry, problem=str(error), findings=findings)
            return KeyExplanation(meaning, meanings, entry, next_number=number, findings=findings)
        case _:
            return KeyExplanation(meaning, meanings, entry, findings=findings)


def _record(
    meaning: Meaning,
    meanings: tuple[Meaning, ...],
    entry: Entry,
    read: Lookup,
    findings: tuple[Finding, ...],
    bound: BoundLayout,
) -> KeyExplanation:
    table = bound.table(str(meaning.item))
    try:
        record = table.form.decode(entry.value)
    except KeyplanError as error:
        return KeyExplanation(meaning, meanings, entry, problem=str(error), findings=findings)
    problem = ""
    entries: tuple[DueEntry, ...] = ()
    try:
        index_entries = index_entries_of(table, meaning.key, record)
    except RecordError as error:
        problem = str(error)
    else:
        read.fetch(index_entries)
        entries = tuple(
            DueEntry(index_entry.source.name, key, _state(read.get(key), index_entry.raw_value, entry.lease))
            for key, index_entry in index_entries.items()
        )
    return KeyExplanation(
        meaning, meanings, entry, has_record=True, record=record, problem=problem, entries=entries, findings=findings
    )


def _state(found: Entry | None, expected: bytes, lease: int) -> EntryState:
    if found is None:
        return EntryState.MISSING
    if found.value != expected:
        return EntryState.OF_ANOTHER_RECORD
    return EntryState.PRESENT if found.lease == lease else EntryState.ON_ANOTHER_LEASE


def _pointed_at(index: BoundIndex, entry: Entry, read: Lookup) -> tuple[bytes | None, PointedAt]:
    primary = primary_of(index, entry)
    if primary is None:
        return None, PointedAt.NOWHERE
    key, raw_key = primary
    record = read.get(raw_key)
    if record is None:
        return raw_key, PointedAt.NOTHING
    match calls_for(index, key, record, entry.key):
        case True:
            return raw_key, PointedAt.RECORD
        case False:
            return raw_key, PointedAt.STRANGER
        case None:
            return raw_key, PointedAt.DAMAGED


def lease_life(engine: Engine, lease: int) -> tuple[float, float] | tuple[None, None]:
    """Return the life in seconds that a lease has from each keep-alive, and what is left of it now; None of one that is gone.

    None, too, where the engine does not say. Raises EngineError.
    """
    if not engine.profile.claims(Capability.LEASES):
        return None, None
    try:
        # Why: a lease that is taken up by its id keeps its own life and its time is not restarted; the one given is not used.
        held = engine.lease(1.0, resume=lease)
        return held.ttl_seconds, held.seconds_left()
    except (LeaseNotFoundError, UnsupportedByEngineError):
        return None, None
