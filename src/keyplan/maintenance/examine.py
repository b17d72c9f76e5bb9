"""What is wrong with single entries, judged in one snapshot: records against their entries, entries against their records.

Both directions come from one pass over the keys: a record asks for its entries, an entry asks for its record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from keyplan.engine import NO_LEASE, Entry
from keyplan.errors import CorruptionError, KeyplanError, RecordError
from keyplan.jobs import Lookup
from keyplan.layout import BoundIndex, BoundLayout, Kind, Meaning, shown_key
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.store import IndexEntry, index_entries_of, index_state_key

__all__ = ["SYSTEM_AREA", "Examiner", "NestedRoots", "calls_for", "indexes_not_ready", "primary_of"]


SYSTEM_AREA: Final = b"\x00k"
"""What keyplan itself keeps in a store begins so: index states (00 ki), the registry of key spaces (00 kp)."""


def indexes_not_ready(bound: BoundLayout, read: Lookup) -> frozenset[str]:
    """Return the names of the indexes that are being built: that entries are missing from them is no fault."""
    keys = {name: index_state_key(index) for name, index in bound.indexes.items()}
    read.fetch(keys.values())
    return frozenset(name for name, raw_key in keys.items() if read.get(raw_key) is not None)


def primary_of(index: BoundIndex, entry: Entry) -> tuple[object, bytes] | None:
    """Return the primary key that an entry points at, and its raw key; None when it names none."""
    try:
        key = index.primary_key(entry.key, entry.value)
        return key, index.table.keys.encode(key)
    except (CorruptionError, RecordError):
        return None


def calls_for(index: BoundIndex, key: object, record: Entry, raw_key: bytes) -> bool | None:
    """Tell whether the record stored at the primary key should have an entry at `raw_key`; None when it cannot be read."""
    try:
        return any(raw_key == own for own, _ in index.entries(key, index.table.form.decode(record.value)))
    except (CorruptionError, RecordError):
        return None


@dataclass(frozen=True, slots=True)
class _Record:
    """A record that was read, with the entries that it should have."""

    entry: Entry
    index_entries: Mapping[bytes, IndexEntry]

    @property
    def wanted(self) -> Iterable[bytes]:
        return self.index_entries


@dataclass(frozen=True, slots=True)
class _Pointing:
    """An index entry that was read, with the record that it points at."""

    entry: Entry
    index: BoundIndex
    primary_key: object
    record_key: bytes

    @property
    def wanted(self) -> Iterable[bytes]:
        return (self.record_key,)


_Question: TypeAlias = _Record | _Pointing


class Examiner:
    """Examines entries of one layout. Not for use by two threads at once.

    Keys that one of the layouts `beside` can read are theirs, as are keys below other roots of this layout; that one of `known`
    can read them is told. `key_bytes_max`: the longest key that the engine takes; a record whose entry is longer does not fit
    its index.
    """

    def __init__(
        self,
        bound: BoundLayout,
        *,
        beside: Sequence[BoundLayout] = (),
        known: Sequence[BoundLayout] = (),
        key_bytes_max: int | None = None,
    ) -> None:
        self._bound = bound
        self._beside = beside
        self._known = known
        self._key_bytes_max = key_bytes_max
        self._nested = [NestedRoots(layout) for layout in (bound, *beside)]

    @property
    def layout(self) -> BoundLayout:
        """The layout whose entries are examined."""
        return self._bound

    def examine(self, entries: Sequence[Entry], read: Lookup) -> list[Finding]:
        """Return what is wrong with the entries, all of them read from the snapshot of `read`."""
        findings: list[Finding] = []
        questions: list[_Question] = []
        read.add(entries)
        for entry in entries:
            told = self._told_by_itself(entry)
            for answer in told:
                if isinstance(answer, Finding):
                    findings.append(answer)
                else:
                    questions.append(answer)
        read.fetch(raw_key for question in questions for raw_key in question.wanted)
        not_ready = indexes_not_ready(self._bound, read)
        for question in questions:
            if isinstance(question, _Record):
                findings += self._entries_of(question, read, not_ready)
            else:
                findings += self._record_of(question, read)
        return findings

    # ---- what an entry says by itself --------------------------------------------------------------------------------

    def _told_by_itself(self, entry: Entry) -> Iterator[Finding | _Question]:
        meanings = self._bound.meanings(entry.key)
        if not meanings:
            yield from self._stranger(entry)
            return
        meaning, *others = meanings
        if others:
            readings = " or ".join(f"{reading.kind.value} of {reading.item}" for reading in meanings)
            yield Finding(FindingKind.AMBIGUOUS_KEY, entry.key, meaning.item, detail=readings)
        if meaning.kind is Kind.RECORD:
            yield from self._record(meaning, entry)
        elif meaning.kind is Kind.INDEX_ENTRY:
            yield self._pointing(meaning, entry)
        else:
            yield from self._counter(meaning, entry)

    def _stranger(self, entry: Entry) -> Iterator[Finding]:
        raw_key, root = entry.key, self._bound.root
        if raw_key.startswith(SYSTEM_AREA) and not root.startswith(SYSTEM_AREA):
            return
        if any(nested.root_of(raw_key) is not None for nested in self._nested):
            return
        if any(layout.meanings(raw_key) for layout in self._beside):
            return
        meaning = self._bound.meaning(raw_key)
        if meaning.kind is Kind.NAMESPACE:
            yield Finding(FindingKind.NAMESPACE_KEY, raw_key, meaning.item)
            return
        for layout in self._known:
            others = layout.meanings(raw_key)
            if others:
                detail = f"{layout.name} reads it as {others[0].kind.value} of {others[0].item}"
                yield Finding(FindingKind.OTHER_LAYOUT_KEY, raw_key, detail=detail)
                return
        nearest = "" if meaning.item is None else f"nearest is {meaning.template}, "
        detail = f"{nearest}departs at byte {meaning.position}"
        yield Finding(FindingKind.UNKNOWN_KEY, raw_key, meaning.item, detail=detail)

    def _record(self, meaning: Meaning, entry: Entry) -> Iterator[Finding | _Question]:
        table = self._bound.table(str(meaning.item))
        if table.spec.has_lease != (entry.lease != NO_LEASE):
            kind = FindingKind.UNLEASED_RECORD if table.spec.has_lease else FindingKind.LEASED_RECORD
            yield Finding(kind, entry.key, table.name)
        try:
            record = table.form.decode(entry.value)
        except KeyplanError as error:
            problem = str(error.facts.get("problem", error.summary))
            yield Finding(FindingKind.DAMAGED_RECORD, entry.key, table.name, detail=problem)
            return
        try:
            index_entries = index_entries_of(table, meaning.key, record)
        except RecordError as error:
            # Why: not the error's whole text: it may show the value that does not fit.
            problem = str(error.facts.get("problem", error.summary))
            yield Finding(FindingKind.UNINDEXABLE_RECORD, entry.key, table.name, detail=problem)
            return
        longest = max(index_entries, key=len, default=b"")
        if self._key_bytes_max is not None and len(longest) > self._key_bytes_max:
            detail = (
                f"its entry of {index_entries[longest].source.name} has {len(longest)} bytes, {self._key_bytes_max} fit"
            )
            yield Finding(FindingKind.UNINDEXABLE_RECORD, entry.key, table.name, detail=detail)
            index_entries = {
                raw_key: index_entry
                for raw_key, index_entry in index_entries.items()
                if len(raw_key) <= self._key_bytes_max
            }
        if index_entries:
            yield _Record(entry, index_entries)

    def _pointing(self, meaning: Meaning, entry: Entry) -> Finding | _Question:
        index = self._bound.indexes[str(meaning.item)]
        primary = primary_of(index, entry)
        if primary is None:
            return Finding(FindingKind.DAMAGED_ENTRY, entry.key, index.name)
        return _Pointing(entry, index, *primary)

    def _counter(self, meaning: Meaning, entry: Entry) -> Iterator[Finding]:
        counter = self._bound.counters[str(meaning.item)]
        try:
            number = counter.decode(entry.value)
        except CorruptionError:
            yield Finding(FindingKind.DAMAGED_COUNTER, entry.key, counter.name)
            return
        if number < counter.start:
            detail = f"next is {number}, the declared start {counter.start}"
            yield Finding(FindingKind.COUNTER_BEHIND, entry.key, counter.name, detail=detail)

    # ---- what it takes two entries to see ----------------------------------------------------------------------------

    def _entries_of(self, question: _Record, read: Lookup, not_ready: frozenset[str]) -> Iterator[Finding]:
        record = question.entry
        for raw_key, index_entry in question.index_entries.items():
            index = index_entry.source
            found = read.get(raw_key)
            if found is None:
                if index.name not in not_ready:
                    yield Finding(FindingKind.MISSING_ENTRY, raw_key, index.name, record.key)
            elif found.value != index_entry.raw_value:
                kind, detail = self._misdirected(index, found, read)
                yield Finding(kind, raw_key, index.name, record.key, detail)
            elif found.lease != record.lease:
                detail = f"lease {found.lease}, the record's is {record.lease}"
                yield Finding(FindingKind.ENTRY_LEASE, raw_key, index.name, record.key, detail)

    def _misdirected(self, index: BoundIndex, found: Entry, read: Lookup) -> tuple[FindingKind, str]:
        primary = primary_of(index, found)
        if not index.spec.is_unique or primary is None:
            return (
                FindingKind.WRONG_ENTRY,
                "its value names no record" if primary is None else "it should have no value",
            )
        key, raw_primary = primary
        other = read.get(raw_primary)
        detail = f"it points at {shown_key(raw_primary)}"
        # Why: a record that cannot be read may call for it; then nobody can tell whose it is.
        is_contested = other is not None and calls_for(index, key, other, found.key) is not False
        return (FindingKind.CONTESTED_ENTRY if is_contested else FindingKind.WRONG_ENTRY), detail

    def _record_of(self, question: _Pointing, read: Lookup) -> Iterator[Finding]:
        entry, index = question.entry, question.index
        record = read.get(question.record_key)
        if record is None:
            yield Finding(FindingKind.DANGLING_ENTRY, entry.key, index.name, question.record_key)
        elif calls_for(index, question.primary_key, record, entry.key) is False:
            yield Finding(FindingKind.STALE_ENTRY, entry.key, index.name, question.record_key)


# ---- roots below a root ----------------------------------------------------------------------------------------------


class NestedRoots:
    """The roots below one bound layout's root that other parameters give: what is there belongs to them.

    CloudChamber's production root holds the roots of its tests: `/CloudChamber/V0.1/` and `/CloudChamber/V0.1/Test/Standard/`
    are one template with two values. A key that this root's templates do not spell, but that begins with a longer root which
    the template can produce, is none of this root's business.
    """

    def __init__(self, bound: BoundLayout) -> None:
        self._template = bound.spec.root
        self._root = bound.root
        self._latest = b""

    @cached_property
    def _states(self) -> frozenset[int]:
        """Where the automaton of roots stands behind this root."""
        states = frozenset({0})
        for byte in self._root:
            states = self._template.automaton.step(states, byte)
        return states

    def root_of(self, raw_key: bytes) -> bytes | None:
        """Return the shortest of these roots that the key lies below; None when it lies below none."""
        if not self._template.fields or not raw_key.startswith(self._root):
            return None
        if self._latest and raw_key.startswith(self._latest):
            return self._latest  # Why: keys come in order, and a nested root holds many.
        states, automaton = self._states, self._template.automaton
        for position in range(len(self._root), len(raw_key)):
            states = automaton.step(states, raw_key[position])
            if not states:
                return None
            prefix = raw_key[: position + 1]
            # Why: the automaton drops long bounds on lengths; the language is exact.
            if not states.isdisjoint(automaton.accepting) and self._template.language.accepts(prefix):
                self._latest = prefix
                return prefix
        return None
