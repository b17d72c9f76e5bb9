"""From an engine's events to typed changes: pure functions of the old and the new record, for tables and for indexes."""

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import NamedTuple

from keyplan.engine import Entry, Event, KeyRange
from keyplan.errors import CorruptionError, KeyplanError
from keyplan.layout import BoundIndex, BoundTable, ChangeKind
from keyplan.store.decoding import decode_record
from keyplan.store.listing import Listing, listing

__all__ = ["IndexSelection", "Selection", "TableSelection", "Typed"]


class Typed(NamedTuple):
    """What an event says about a list, before it has its token."""

    kind: ChangeKind
    key: object
    old: object | None
    new: object | None


class Selection(ABC):
    """Which changes a watch is about. `range` is what the engine watches; `fingerprint` and `digest` bind tokens to the list.

    Invariant: what is typed of an event depends on the event and the layout alone, so that places inside a revision are counted
    alike whenever it is read again.
    """

    table: BoundTable
    name: str
    range: KeyRange
    digest: str

    @property
    def fingerprint(self) -> str:
        """The layout's."""
        return self.table.layout.fingerprint

    @abstractmethod
    def typed(self, event: Event) -> Typed | CorruptionError | None:
        """Return the change; the error in its place when the record cannot be read; None when it is not of this list."""

    def unreadable(self, key: object, entry: Entry, error: KeyplanError) -> CorruptionError:
        """Return the error that is delivered in the place of a record."""
        facts = {"table": self.table.name, "key": key, "raw_key": entry.key.hex(), "revision": entry.mod_revision}
        problem = error.facts.get("problem", error.summary)
        return CorruptionError(**{**error.facts, **facts, "problem": problem})


class TableSelection(Selection):
    """The records of a table that are listed. What else stands in their range is not shown."""

    def __init__(self, table: BoundTable, listed: Listing) -> None:
        self.table = table
        self.name = table.name
        self.range = listed.range
        self.digest = listed.digest
        self.read = listed.read

    def typed(self, event: Event) -> Typed | CorruptionError | None:
        key = self.read(event.key)
        if key is None:
            return None
        old, new = None, None
        if event.previous is not None:
            # Why: where the record before cannot be read, what counts is what is there now.
            with suppress(CorruptionError):
                old = decode_record(self.table, event.key, event.previous.value)
        if event.entry is not None:
            try:
                new = decode_record(self.table, event.key, event.entry.value)
            except CorruptionError as error:
                return self.unreadable(key, event.entry, error)
        return Typed(_kind(had=event.previous is not None, has=event.entry is not None), key, old, new)


class IndexSelection(Selection):
    """The records that have one of the listed entries of an index. Watched is the table: an entry follows its record."""

    def __init__(self, index: BoundIndex, listed: Listing) -> None:
        self.table = index.table
        self.name = index.name
        self.range = listing(index.table).range
        self.digest = listed.digest
        self._entries = index.entries
        self._listed = listed

    def typed(self, event: Event) -> Typed | CorruptionError | None:
        key = self.table.keys.decode(event.key)
        if key is None:
            return None
        old, had = None, False
        if event.previous is not None:
            # Why: a record that cannot be read or indexed was delivered as an error, and counts as gone since.
            with suppress(KeyplanError):
                record = decode_record(self.table, event.key, event.previous.value)
                had = self._is_listed(key, record)
                old = record
        new, has = None, False
        if event.entry is not None:
            try:
                new = decode_record(self.table, event.key, event.entry.value)
                has = self._is_listed(key, new)
            except KeyplanError as error:
                return self.unreadable(key, event.entry, error)
        return Typed(_kind(had=had, has=has), key, old, new) if had or has else None

    def _is_listed(self, key: object, record: object) -> bool:
        key_range, read = self._listed.range, self._listed.read
        return any(raw in key_range and read(raw) is not None for raw, _ in self._entries(key, record))


def _kind(*, had: bool, has: bool) -> ChangeKind:
    if had and has:
        return ChangeKind.CHANGED
    return ChangeKind.INSERTED if has else ChangeKind.REMOVED
