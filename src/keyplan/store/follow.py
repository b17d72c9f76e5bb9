"""Listing and watching as one, and where views watch.

`follow` gives what a list holds, then its changes; when history is gone, the differences of a new list. Views of a store watch
its engine; a snapshot or a transaction refuses, since it is one state of the store.
"""

from collections.abc import Iterator
from itertools import islice
from threading import Lock
from typing import Final, NoReturn, Protocol

from keyplan.engine import Engine, Entry, Event, Snapshot
from keyplan.errors import CorruptionError, HistoryCompactedError, UnsupportedByEngineError
from keyplan.layout import Change, ChangeKind, Changes
from keyplan.store.decoding import decode_record
from keyplan.store.watch import (
    ChangeStream,
    Delivery,
    Selection,
    Source,
    TableSelection,
    WatchPosition,
    WatchSource,
    position_after,
)

__all__ = ["EngineWatcher", "FollowSource", "NoWatcher", "Watcher"]


_BATCH_RECORDS: Final = 256
"""Records that are read at once. Why: another thread that closes the stream waits for one batch at most."""
_OF_ANOTHER_EPOCH: Final = -1


class FollowSource(Source):
    """Lists the selection from one snapshot, then watches it from there; again from the start when history is gone.

    Invariant: `_seen` has the revision of each record that was delivered and not removed, by raw key. With `keep_records`,
    `_kept` has their bytes.
    """

    def __init__(self, engine: Engine, selection: TableSelection, *, keep_records: bool) -> None:
        self.selection = selection
        self._table = selection
        self.engine_name = engine.profile.name
        self._engine = engine
        self._keep_records = keep_records
        self._seen: dict[bytes, int] = {}
        self._kept: dict[bytes, bytes] = {}
        self._lock = Lock()
        """Held while the list's snapshot is read, opened or closed."""
        self._is_closed = False
        self._listing: _Listing | None = None
        self._must_list = False
        """A list has to be begun: history is gone, or the list under way could not be read."""
        self._watch: WatchSource | None = None
        self._begin_list()

    @property
    def place(self) -> WatchPosition | None:
        return None if self._must_list or self._listing is not None or self._watch is None else self._watch.place

    def take(self, timeout_seconds: float) -> Iterator[Delivery]:
        try:
            with self._lock:
                if self._must_list and not self._is_closed:
                    self._begin_list()
                if self._listing is not None and not self._is_closed:
                    return iter(self._listed(self._listing))
            assert self._watch is not None
            return self._watch.take(timeout_seconds)
        except HistoryCompactedError:
            self._must_list = True
            return iter(())

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._listing is not None:
                self._listing.snapshot.close()
            watch = self._watch
        if watch is not None:
            watch.close()

    # ---- the list ------------------------------------------------------------------------------------------------------

    def _begin_list(self) -> None:
        """Begin a list, in the place of a watch or a list that has failed. Where it cannot begin, the next take tries again."""
        self._must_list = True
        self._end_earlier()
        snapshot = self._engine.snapshot()
        try:
            # Why: opened before the list is read, so that an engine that cannot watch says so now.
            place = WatchPosition(snapshot.revision)
            watch = WatchSource(self._engine, self._table, place, note=self._note)
        except BaseException:
            snapshot.close()
            raise
        if self._watch is not None and self._watch.lineage != watch.lineage:
            # Why: the same revision may be another write; so nothing that was delivered counts as unchanged.
            self._seen = dict.fromkeys(self._seen, _OF_ANOTHER_EPOCH)
        self._watch, self.lineage = watch, watch.lineage
        self._listing = _Listing(snapshot, self._table)
        self._must_list = False

    def _end_earlier(self) -> None:
        if self._watch is not None:
            self._watch.close()
        listing, self._listing = self._listing, None
        if listing is not None:
            # Why: what a list has found was delivered, whatever became of the rest of it.
            self._seen |= listing.found
            listing.snapshot.close()

    def _listed(self, listing: "_Listing") -> list[Delivery]:
        """The next part of the list; at its end, what was delivered before and is not in it any more."""
        try:
            entries = list(islice(listing.entries, _BATCH_RECORDS))
        except BaseException:
            # Trap: the iterator has ended by that, as if nothing were left, and all the rest would be told as removed.
            self._must_list = True
            raise
        deliveries = [delivery for entry in entries for delivery in self._difference(listing, entry)]
        if len(entries) < _BATCH_RECORDS:
            revision = listing.snapshot.revision
            deliveries += [self._removal(raw_key, revision) for raw_key in sorted(self._seen)]
            self._seen = listing.found
            listing.snapshot.close()
            self._listing = None
        return deliveries

    def _difference(self, listing: "_Listing", entry: Entry) -> Iterator[Delivery]:
        selection = self._table
        key = selection.read(entry.key)
        if key is None:
            return
        listing.found[entry.key] = entry.mod_revision
        seen_revision = self._seen.pop(entry.key, None)
        if seen_revision == entry.mod_revision:
            return
        old = self._known(entry.key)
        self._keep(entry)
        try:
            record = decode_record(selection.table, entry.key, entry.value)
        except CorruptionError as error:
            yield Delivery(selection.unreadable(key, entry, error), None)
            return
        kind = ChangeKind.INSERTED if seen_revision is None else ChangeKind.CHANGED
        yield Delivery(Change(kind, key, old, record, entry.mod_revision, ""), None)

    def _removal(self, raw_key: bytes, revision: int) -> Delivery:
        key = self._table.read(raw_key)
        old = self._known(raw_key)
        self._kept.pop(raw_key, None)
        return Delivery(Change(ChangeKind.REMOVED, key, old, None, revision, ""), None)

    # ---- what was delivered --------------------------------------------------------------------------------------------

    def _note(self, event: Event) -> None:
        if event.entry is None:
            self._seen.pop(event.key, None)
            self._kept.pop(event.key, None)
        elif self._table.read(event.key) is not None:
            self._seen[event.key] = event.revision
            self._keep(event.entry)

    def _keep(self, entry: Entry) -> None:
        if self._keep_records:
            self._kept[entry.key] = entry.value

    def _known(self, raw_key: bytes) -> object | None:
        raw_value = self._kept.get(raw_key)
        if raw_value is None:
            return None
        try:
            return decode_record(self._table.table, raw_key, raw_value)
        except CorruptionError:
            return None


class _Listing:
    """A list under way: its snapshot, what is left to read of it, and the revisions found so far."""

    def __init__(self, snapshot: Snapshot, selection: TableSelection) -> None:
        self.snapshot = snapshot
        key_range = selection.range
        self.entries: Iterator[Entry] = iter(()) if key_range.is_empty else snapshot.scan(key_range)
        self.found: dict[bytes, int] = {}


# ---- where views watch ------------------------------------------------------------------------------------------------


class Watcher(Protocol):
    """The watches of `TableView`, `UniqueView` and `IndexView`; see there for what each promises."""

    def watch(self, selection: Selection, after: int | str | None) -> Changes[object, object]: ...

    def follow(self, selection: TableSelection, *, keep_records: bool) -> Changes[object, object]: ...


class EngineWatcher:
    """Watches an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def watch(self, selection: Selection, after: int | str | None) -> Changes[object, object]:
        place = position_after(after, selection, self._engine)
        return ChangeStream(WatchSource(self._engine, selection, place))

    def follow(self, selection: TableSelection, *, keep_records: bool) -> Changes[object, object]:
        return ChangeStream(FollowSource(self._engine, selection, keep_records=keep_records))


class NoWatcher:
    """Refuses every watch. `bound_to` says what the layout is bound to."""

    def __init__(self, engine: Engine, bound_to: str) -> None:
        self._engine = engine
        self._bound_to = bound_to

    def watch(self, selection: Selection, after: int | str | None) -> Changes[object, object]:
        self._refuse()

    def follow(self, selection: TableSelection, *, keep_records: bool) -> Changes[object, object]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedByEngineError(
            engine=self._engine.profile.name,
            capability=f"watching {self._bound_to}",
            problem="bind the layout to the store to watch it",
        )
