"""Changes as the original tells them (3.4): each with the revisions before and after it, of one table or of a whole name space.

The layout's own watches (`chamber.layout.blades.watch("rack1")`) give typed changes of one table, and tokens to resume from.
"""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple, Self

from keyplan.apps.cloudchamber.conditions import Address
from keyplan.apps.cloudchamber.go_inventory import LISTED
from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.layout_keys import GUARDS
from keyplan.apps.cloudchamber.namespaces import range_of_tests
from keyplan.engine import SYSTEM_CLOCK, Engine, Entry, Event, EventKind, KeyRange, Watch
from keyplan.errors import ConflictError, CorruptionError, EngineUnavailableError
from keyplan.layout import BoundLayout, Kind, shown_key
from keyplan.protobuf import Message

__all__ = ["AlreadyClosedError", "RecordEvent", "RecordWatch", "watch_records"]

_WAIT_SECONDS: Final = 1.0


class AlreadyClosedError(ConflictError):
    """A watch was closed before. Fact: `watched`. Nothing else came of it."""

    code: ClassVar[str] = "already-closed"
    summary: ClassVar[str] = "the watch is closed already"


class RecordEvent(NamedTuple):
    """One change of one key, at the store's `revision`.

    What was not there has revision 0 and no record. `address` is None for a key that is none of the layout's, and `problem`
    says so; it also tells of a record that cannot be read, which is None then.
    """

    kind: EventKind
    revision: int
    key: str
    address: Address | None
    old_revision: int
    new_revision: int
    old: Message | None
    new: Message | None
    problem: str = ""


class RecordWatch:
    """Changes by revision, then by raw key; none left out. Apart from `close`, for one thread at a time.

    Raises HistoryCompactedError when the history was compacted before it was read: list, and watch from the list's revision.
    """

    def __init__(self, bound: BoundLayout, watch: Watch, hidden: KeyRange | None, watched: str) -> None:
        self._bound = bound
        self._watch = watch
        self._hidden = hidden
        self._watched = watched
        self._is_closed = False

    def poll(self, timeout_seconds: float = 0.0) -> list[RecordEvent]:
        """Wait at most so long for changes and return those there are. Raises EngineUnavailableError after `close`."""
        # Why: waiting takes real time, whatever clock the leases go by.
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while True:
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            shown = _shown(self._bound, self._watch.poll(max(remaining, 0.0)), self._hidden)
            # Why on: what came may have been hidden, and who waits is told nothing of it.
            if shown or remaining <= 0:
                return shown

    @property
    def revision(self) -> int:
        """Everything up to and including this revision was delivered."""
        return self._watch.revision

    def __iter__(self) -> Iterator[RecordEvent]:
        """Yield changes as they come, until the watch is closed, here or by another thread."""
        while not self._is_closed:
            try:
                yield from self.poll(_WAIT_SECONDS)
            except EngineUnavailableError:
                if not self._is_closed:
                    raise

    def close(self) -> None:
        """End the watch. Raises AlreadyClosedError when it was closed before, which is otherwise harmless."""
        if self._is_closed:
            raise AlreadyClosedError(watched=self._watched)
        self._is_closed = True
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_closed:
            self.close()


def watch_records(
    engine: Engine, bound: BoundLayout, table: str | None, prefix: tuple[Any, ...], *, after: int
) -> RecordWatch:
    """Watch the records of a table that begin with `prefix`, or with None the whole name space, entries and guards left out.

    Production does not show its tests (R14). `after` is a revision, as that of a list: every later change is delivered.
    """
    if table is None:
        watched, hidden = KeyRange.of_prefix(bound.root), _hidden_of(bound)
    else:
        watched, hidden = KeyRange(*bound.tables[table].keys.range(prefix)), None
    return RecordWatch(bound, engine.watch(watched, after=after), hidden, shown_key(watched.start))


def _hidden_of(bound: BoundLayout) -> KeyRange | None:
    """Production does not show its tests (R14)."""
    return next((range_of_tests(side=side) for side in LayoutSide if side.bound().root == bound.root), None)


def _shown(bound: BoundLayout, events: Iterable[Event], hidden: KeyRange | None) -> list[RecordEvent]:
    return [
        _record_event(bound, event)
        for event in events
        if not (hidden is not None and event.key in hidden) and not _is_entry(bound, event.key)
    ]


def _is_entry(bound: BoundLayout, raw_key: bytes) -> bool:
    """Tell whether a key only lists, finds or guards a record, which has a key of its own."""
    meaning = bound.meaning(raw_key)
    return meaning.kind is Kind.INDEX_ENTRY or meaning.item == GUARDS or str(meaning.item).startswith(LISTED)


def _record_event(bound: BoundLayout, event: Event) -> RecordEvent:
    meaning = bound.meaning(event.key)
    old_revision, new_revision = (entry.mod_revision if entry else 0 for entry in (event.previous, event.entry))
    told = (event.kind, event.revision, shown_key(event.key))
    if meaning.kind is not Kind.RECORD:
        return RecordEvent(*told, None, old_revision, new_revision, None, None, "the key is none of the layout's")
    address = Address(str(meaning.item), meaning.key)
    old, old_problem = _decoded(bound, address.table, event.previous)
    new, new_problem = _decoded(bound, address.table, event.entry)
    return RecordEvent(*told, address, old_revision, new_revision, old, new, new_problem or old_problem)


def _decoded(bound: BoundLayout, table: str, entry: Entry | None) -> tuple[Message | None, str]:
    if entry is None:
        return None, ""
    try:
        record: Message = bound.tables[table].form.decode(entry.value)
    except CorruptionError as error:
        return None, str(error.facts["problem"])
    return record, ""
