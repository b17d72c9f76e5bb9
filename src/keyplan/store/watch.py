"""Typed watches of a store: raw events to changes with tokens, resumed where a token says.

A selection types events: pure functions of the old and the new record, for tables and for indexes. A stream hands over what a
source takes in: `WatchSource` here, `FollowSource` in follow.py.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from operator import attrgetter
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from keyplan.engine import SYSTEM_CLOCK, Engine, Entry, Event, KeyRange, Lineage
from keyplan.errors import (
    CorruptionError,
    EngineUnavailableError,
    HistoryCompactedError,
    InvalidInputError,
    InvalidWatchTokenError,
    KeyplanError,
)
from keyplan.layout import BoundIndex, BoundTable, Change, ChangeKind, Changes
from keyplan.store.decoding import check_whole, decode_record
from keyplan.store.listing import Listing, listing, sealed, unsealed

__all__ = [
    "ChangeStream",
    "Delivery",
    "IndexSelection",
    "Selection",
    "Source",
    "TableSelection",
    "Typed",
    "WatchPosition",
    "WatchSource",
    "position_after",
]

# ---- selections -----------------------------------------------------------------------------------------------------------


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


# ---- streams --------------------------------------------------------------------------------------------------------------


_FORMAT: Final = "w2"
_WAIT_SECONDS: Final = 60.0
"""Why: an iteration waits without end, but in turns, so that Ctrl-C is noticed wherever Python delivers it between them."""


class _Content(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: str
    item: str
    fingerprint: str
    arguments: str
    store: str
    epoch: str
    revision: int
    position: int


class WatchPosition(NamedTuple):
    """What was delivered of a list: everything before `revision` and the first `position` of it; 0 stands for all of it."""

    revision: int
    position: int = 0

    @property
    def after(self) -> int:
        """The revision after which an engine's watch must begin."""
        return self.revision - 1 if self.position else self.revision

    def token(self, selection: Selection, lineage: Lineage) -> str:
        """Return the text that a caller may keep. It is good for one store, in one epoch."""
        item = (selection.name, selection.fingerprint, selection.digest)
        return sealed(_Content(_FORMAT, *item, lineage.store, lineage.epoch, self.revision, self.position))


def position_after(after: int | str | None, selection: Selection, engine: Engine) -> WatchPosition:
    """Return where a watch begins: behind a revision, behind what a token was made for, or now.

    Raises InvalidWatchTokenError; HistoryCompactedError for what the store has not reached, or has lost when it went back;
    InvalidInputError for a revision below 0.
    """
    if after is not None and not isinstance(after, str):
        check_whole(after, "after")
    if isinstance(after, int) and after < 0:
        raise InvalidInputError(source="after", problem=f"there is no revision {after}")
    with engine.snapshot() as snapshot:
        revision = snapshot.revision
    if after is None:
        return WatchPosition(revision)
    place = WatchPosition(after) if isinstance(after, int) else _position_of_token(after, selection, engine.lineage())
    if place.revision > revision:
        # Why: waiting for that revision would leave out everything until then, for instance after a restore.
        problem = "the store has not reached this revision: it went back, or is another one; list again"
        raise HistoryCompactedError(revision=place.revision, store_revision=revision, problem=problem)
    return place


def _position_of_token(token: str, selection: Selection, lineage: Lineage) -> WatchPosition:
    try:
        content = unsealed(token, _Content)
    except ValueError as error:
        raise InvalidWatchTokenError(problem="the token is damaged or was never one") from error
    if content.format != _FORMAT or content.revision < 0 or content.position < 0:
        raise InvalidWatchTokenError(problem="the token is of another version of keyplan")
    if (content.item, content.fingerprint) != (selection.name, selection.fingerprint):
        raise InvalidWatchTokenError(problem="the token is of another layout, table or index", item=selection.name)
    if content.arguments != selection.digest:
        raise InvalidWatchTokenError(problem="the token is of a list with other arguments", item=selection.name)
    if content.store != lineage.store:
        raise InvalidWatchTokenError(problem="the token is of another store", item=selection.name)
    if content.epoch != lineage.epoch:
        problem = "the store went back to an older state since the token was made; list again"
        raise HistoryCompactedError(revision=content.revision, problem=problem)
    return WatchPosition(content.revision, content.position)


class Delivery(NamedTuple):
    """A change, or the error in its place; and the place behind it, None while a list is not complete."""

    outcome: Change[object, object] | CorruptionError
    place: WatchPosition | None


class Source(ABC):
    """Where a stream's deliveries come from. Used by one thread at a time, but for `close`."""

    selection: Selection
    engine_name: str
    lineage: Lineage
    """Of the store, when the source last began to watch it."""

    @abstractmethod
    def take(self, timeout_seconds: float) -> Iterator[Delivery]:
        """Wait at most so long for raw news, and return the deliveries that come of it; there may be none.

        The iterator is exhausted before the next call. Raises as `Changes` does.
        """

    @property
    @abstractmethod
    def place(self) -> WatchPosition | None:
        """The place behind everything taken."""

    @abstractmethod
    def close(self) -> None:
        """End the source, and wake who takes from it. Closing twice is harmless."""


class ChangeStream(Changes[object, object]):
    """The changes of a source, one by one or as many as there are."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ready: Iterator[Delivery] = iter(())
        self._pending: deque[Delivery] = deque()
        self._place: WatchPosition | None = source.place
        self._is_closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change[object, object]:
        while not self._is_closed:
            delivery = self._next_ready()
            if delivery is not None:
                return self._handed_over(delivery)
            try:
                self._fetch(_WAIT_SECONDS)
            except EngineUnavailableError:
                if not self._is_closed:
                    raise
        raise StopIteration

    def poll(self, timeout_seconds: float = 0.0) -> list[Change[object, object]]:
        # Why: waiting takes real time, whatever clock the leases go by.
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        found: list[Change[object, object]] = []
        while True:
            self._check_open()
            delivery = self._next_ready()
            if delivery is not None:
                if found and isinstance(delivery.outcome, CorruptionError):
                    self._pending.appendleft(delivery)  # the next call raises it, so that nothing before it is lost
                    return found
                found.append(self._handed_over(delivery))
                continue
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            if found:
                return found
            self._fetch(max(0.0, remaining))
            if remaining <= 0 and not self._peek():
                return found

    @property
    def token(self) -> str:
        place = self._place
        return "" if place is None else place.token(self._source.selection, self._source.lineage)

    def close(self) -> None:
        self._is_closed = True
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- pieces --------------------------------------------------------------------------------------------------------

    def _next_ready(self) -> Delivery | None:
        if self._pending:
            return self._pending.popleft()
        try:
            delivery = next(self._ready, None)
        except BaseException:
            # Why: an index's function failed, or Ctrl-C came. The rest of what was taken is lost, so nothing may come after it.
            self.close()
            raise
        if delivery is None:
            self._place = self._source.place
        return delivery

    def _peek(self) -> bool:
        delivery = self._next_ready()
        if delivery is not None:
            self._pending.appendleft(delivery)
        return delivery is not None

    def _fetch(self, timeout_seconds: float) -> None:
        try:
            self._ready = self._source.take(timeout_seconds)
        except KeyplanError:
            raise
        except BaseException:
            self.close()  # as above: Ctrl-C may come between the engine's taking and our getting
            raise

    def _handed_over(self, delivery: Delivery) -> Change[object, object]:
        self._place = delivery.place
        if isinstance(delivery.outcome, CorruptionError):
            raise delivery.outcome
        return delivery.outcome

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineUnavailableError(engine=self._source.engine_name, problem="the watch was closed")


class WatchSource(Source):
    """The changes of a selection after a place. `note` is told of each event that is typed."""

    def __init__(
        self, engine: Engine, selection: Selection, place: WatchPosition, *, note: Callable[[Event], None] | None = None
    ) -> None:
        self.selection = selection
        self._note = note
        self.engine_name = engine.profile.name
        self.lineage = engine.lineage()
        self._watch = engine.watch(selection.range, after=place.after)
        self._begin = place

    @property
    def place(self) -> WatchPosition:
        # Why: until the rest of a revision was taken, the engine's watch still stands before it.
        return self._begin if self._watch.revision < self._begin.revision else WatchPosition(self._watch.revision)

    def take(self, timeout_seconds: float) -> Iterator[Delivery]:
        return self._deliveries(self._watch.poll(timeout_seconds))

    def _deliveries(self, events: Sequence[Event]) -> Iterator[Delivery]:
        # Why: one revision at a time is decoded; its end must be known for the token of its last change.
        for revision, group in groupby(events, key=attrgetter("revision")):
            events_of_revision = list(group)
            found = [typed for typed in map(self.selection.typed, events_of_revision) if typed is not None]
            if self._note is not None:
                for event in events_of_revision:
                    self._note(event)
            done = self._begin.position if revision == self._begin.revision else 0
            for position, typed in islice(enumerate(found, start=1), done, None):
                place = WatchPosition(revision, 0 if position == len(found) else position)
                yield Delivery(_outcome(typed, revision, place.token(self.selection, self.lineage)), place)

    def close(self) -> None:
        self._watch.close()


def _outcome(typed: Typed | CorruptionError, revision: int, token: str) -> Change[object, object] | CorruptionError:
    if isinstance(typed, CorruptionError):
        return typed
    return Change(typed.kind, typed.key, typed.old, typed.new, revision, token)
