"""What queues are in a store, and what is done with them there: each act one commit. Types and waiting are elsewhere.

    queues/states/NAME/TYPE                       the next item's number
    queues/producers/NAME/TYPE/PRODUCER           who puts items, until when consumers wait for it, how many it has put
    queues/waits/NAME/TYPE/DEADLINE/PRODUCER      which of them is waited for longest
    queues/items/NAME/TYPE/NUMBER                 an item that nobody has
    queues/taken/NAME/TYPE/NUMBER                 one that somebody has taken, until it is done or the deadline is over
    queues/deadlines/NAME/TYPE/DEADLINE/NUMBER    which of them comes back first
    queues/takers/NAME/TYPE/TAKER                 what a taker has, whose answer was lost

An item is moved to `taken` in one commit, and removed when its taker says that it is done. So a consumer that dies, and an
answer that is lost, lose nothing: whoever takes next after the deadline has the item again. So do producers have names and
deadlines: one that dies is not waited for without end, and what is asked again, after an answer was lost, is done once.

A producer's record is the fence of what it puts: a put without one adds nothing. So a request that comes late, behind its own
repetition and the producer's end, adds no item again and makes nobody wait.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Annotated, Final, NamedTuple, Self, TypeVar

import msgspec

from keyplan.apps.hepnos.errors import MissingError
from keyplan.codec import Percent
from keyplan.engine import SYSTEM_CLOCK, Clock, Commit, Delete, DeleteRange, Engine, KeyRange, KeyUnchanged, Mutation
from keyplan.errors import AlreadyExistsError, CorruptionError, HistoryCompactedError, InvalidInputError
from keyplan.jobs import CommitRoom
from keyplan.layout import Layout, Table, TableView, Unique, UniqueView, readable_rows
from keyplan.store import Backoff, Store

__all__ = [
    "LEASE_SECONDS_MAX",
    "LOOK_SECONDS",
    "HEPnOSQueues",
    "Place",
    "QueueKey",
    "QueueRecords",
    "QueueState",
    "QueueWatch",
    "Taken",
    "lease_checked",
    "missing",
]

V = TypeVar("V")

_NUMBER_DIGITS: Final = 20
_MILLISECONDS: Final = 1_000

LEASE_SECONDS_MAX: Final = 86_400.0
"""Why: what somebody has who is gone comes back within a day."""

_FORGOTTEN_SECONDS: Final = LEASE_SECONDS_MAX
"""How long the record stays of a producer that is not waited for. Why so long: a slow one goes on, and asks again in safety."""

LOOK_SECONDS: Final = 1.0
"""Why: a consumer that waits looks at the queue at least this often, whatever it hears: a lease that is over is no change."""

_PUT_OPERATIONS: Final = 12
"""How much a put writes and relies on beside its items, at most: the queue's state, the producer and its entry by deadline."""
_PUT_KEY_BYTES: Final = 2_048
"""How many bytes each of the keys may have, at most."""

_LOCKS: Final = 64

_SWEPT_AT_ONCE: Final = 100
"""Records of forgotten producers that a take removes."""


class QueueKey(NamedTuple):
    """A queue: its name, and the name of its items' type."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]


class ItemKey(NamedTuple):
    """An item of a queue, by the order in which it came."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]
    number: int


class DeadlineKey(NamedTuple):
    """A taken item of a queue, by when it comes back."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]
    deadline: int
    number: int


class TakerKey(NamedTuple):
    """A taken item of a queue, by who has it."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]
    taker: Annotated[str, Percent()]


class ProducerKey(NamedTuple):
    """A producer that has a queue open, by its name."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]
    producer: Annotated[str, Percent()]


class WaitKey(NamedTuple):
    """A producer that has a queue open, by until when it is waited for."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]
    deadline: int
    producer: Annotated[str, Percent()]


class Place(NamedTuple):
    """A producer at a queue: its name, what names the queue beside others of its name, for how long it is waited for."""

    producer: str
    made_at: int
    lease_seconds: float


class QueueState(msgspec.Struct, frozen=True):
    """The next item's number, and whether it ever had a producer.

    Why no number of producers: one that died would be counted for good, and one whose answer was lost twice.
    """

    next_number: int = 0
    has_had_producer: bool = False


class Producer(msgspec.Struct, frozen=True):
    """Until when a producer is waited for, in milliseconds since 1970, and the number of the last item that it has put."""

    deadline: int
    last: int = 0


class TakenItem(msgspec.Struct, frozen=True):
    """An item that somebody has: by which name, until when in milliseconds since 1970, and its bytes."""

    taker: Annotated[str, Percent()]
    deadline: int
    item: bytes


class HEPnOSQueues(Layout, root="queues/"):
    """The database of queues, which the document does not have: the C++ program keeps them in memory."""

    states = Table("states/{name}/{type}", key=QueueKey, value=QueueState)
    producers = Table("producers/{name}/{type}/{producer}", key=ProducerKey, value=Producer)
    producers_by_deadline = Unique(
        f"waits/{{name}}/{{type}}/{{deadline:decimal(width={_NUMBER_DIGITS})}}/{{producer}}",
        of=producers,
        key=WaitKey,
        note="which producer of a queue is waited for longest",
    )
    items = Table(f"items/{{name}}/{{type}}/{{number:decimal(width={_NUMBER_DIGITS})}}", key=ItemKey, value=bytes)
    taken = Table(f"taken/{{name}}/{{type}}/{{number:decimal(width={_NUMBER_DIGITS})}}", key=ItemKey, value=TakenItem)
    taken_by_deadline = Unique(
        f"deadlines/{{name}}/{{type}}/{{deadline:decimal(width={_NUMBER_DIGITS})}}/{{number:decimal(width={_NUMBER_DIGITS})}}",
        of=taken,
        key=DeadlineKey,
        note="which taken item of a queue comes back first",
    )
    taken_by_taker = Unique(
        "takers/{name}/{type}/{taker}", of=taken, key=TakerKey, note="what a taker has whose answer was lost"
    )


class Taken(msgspec.Struct, frozen=True):
    """What a taker was given: an item by its number, or none; and then the queue's state, as of the same commit.

    `state` is None for a queue that is not there; `has_taken`: others have items that may come back; `has_producers`: some have
    it open that are waited for.
    """

    number: int = -1
    item: bytes = b""
    state: QueueState | None = None
    has_taken: bool = False
    has_producers: bool = False

    @property
    def is_item(self) -> bool:
        """Whether there was one."""
        return self.number >= 0


class _Turns:
    """Locks by queue. Why so few: a lock for each would stay for each that ever was."""

    def __init__(self) -> None:
        self._locks = [Lock() for _ in range(_LOCKS)]

    def of(self, key: QueueKey) -> Lock:
        return self._locks[hash(key) % _LOCKS]


class QueueRecords:
    """The queues of one store, in bytes. Safe for use by several threads."""

    def __init__(self, store: Store, clock: Clock = SYSTEM_CLOCK) -> None:
        self.store = store
        self._clock = clock
        self._layout = HEPnOSQueues(store)
        # Why: those that take from a queue, or settle, want the same few records, and so do those that put. Of many threads at
        # once, as a server has them, one would lose its race again and again, and be told so at last.
        self._putting, self._taking = _Turns(), _Turns()

    def exists(self, key: QueueKey) -> bool:
        """Tell whether there is a queue."""
        return self._layout.states.exists(key)

    def keys(self) -> list[QueueKey]:
        """Return all queues, sorted."""
        return list(self._layout.states.keys())

    def create(self, key: QueueKey) -> None:
        """Create a queue. Raises AlreadyExistsError."""
        try:
            self._layout.states.insert(key, QueueState())
        except AlreadyExistsError as error:
            raise AlreadyExistsError(table="queues", key=f"{key.name}#{key.type}") from error

    def enter(self, key: QueueKey, producer: str, lease_seconds: float) -> int:
        """Open a queue as a producer of a name, or with "" as a consumer; again does nothing more.

        Return what names it beside others of its name, made before or later. Raises MissingError.
        """

        def enter(layout: HEPnOSQueues) -> int:
            found = layout.states.versioned(key)
            if found is None:
                raise missing(key)
            if producer:
                own = ProducerKey(*key, producer)
                known = layout.producers.get(own)
                self._keep(layout, own, lease_seconds, 0 if known is None else known.last)
                if not found.record.has_had_producer:
                    layout.states.update(key, msgspec.structs.replace(found.record, has_had_producer=True))
            return found.create_revision

        return self._layout.run(enter)

    def leave(self, key: QueueKey, producer: str, made_at: int) -> None:
        """Close a queue as a producer; again does nothing more."""

        def leave(layout: HEPnOSQueues) -> None:
            own = ProducerKey(*key, producer)
            if _state(layout, key, made_at) is not None and layout.producers.exists(own):
                layout.producers.delete(own)

        self._layout.run(leave)

    def put(self, key: QueueKey, place: Place, number: int, items: Sequence[bytes]) -> None:
        """Add items at the end, a producer's first of all with the number 1; of those that it has put already none again.

        As many as the engine takes go into one commit: where it fails, the first ones may be there. Raises MissingError for a
        queue that was destroyed, whatever has its name now; and for a producer that does not have it open: one that was not
        heard of for a day longer than it is waited for has it open no more.
        """

        def add(part: Sequence[bytes], number: int, layout: HEPnOSQueues) -> None:
            state = _state(layout, key, place.made_at)
            if state is None:
                raise missing(key)
            own = ProducerKey(*key, place.producer)
            known = layout.producers.get(own)
            if known is None:
                where, problem = (
                    f"{key.name}#{key.type} {place.producer}",
                    "it has the queue open no more: open it again",
                )
                raise MissingError(table="producers", key=where, problem=problem)
            new = part[max(known.last + 1 - number, 0) :]
            if not new:
                return
            self._keep(layout, own, place.lease_seconds, number + len(part) - 1)
            for place_in_queue, item in enumerate(new, state.next_number):
                layout.items.insert(ItemKey(*key, place_in_queue), item)
            layout.states.update(key, msgspec.structs.replace(state, next_number=state.next_number + len(new)))

        for part in self._parts(items):
            with self._putting.of(key):
                self._layout.run(partial(add, part, number))
            number += len(part)

    def _parts(self, items: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Yield as many at a time as go into one commit; one that is too large by itself is for the engine to refuse."""
        room = CommitRoom.of(
            self.store.engine.profile, operations=_PUT_OPERATIONS, size=_PUT_OPERATIONS * _PUT_KEY_BYTES
        )
        begin, size = 0, 0
        for at, item in enumerate(items):
            size += _PUT_KEY_BYTES + len(item)
            if at > begin and (at - begin >= room.guarded or size > room.bytes):
                yield items[begin:at]
                begin, size = at, _PUT_KEY_BYTES + len(item)
        yield items[begin:]

    def _keep(self, layout: HEPnOSQueues, own: ProducerKey, lease_seconds: float, last: int) -> None:
        """Have a producer be waited for from now on, also one that was gone meanwhile."""
        layout.producers.put(own, Producer(_milliseconds(self._clock.wall() + lease_seconds), last))

    def take(self, key: QueueKey, taker: str, lease_seconds: float) -> Taken:
        """Take the item that a taker of this name has already, one whose deadline is over, or the first; or tell of none.

        The lease is counted from this call on. At most LEASE_SECONDS_MAX.
        """
        with self._taking.of(key):
            return self._layout.run(partial(self._take, key, taker, lease_seconds))

    def _take(self, key: QueueKey, taker: str, lease_seconds: float, layout: HEPnOSQueues) -> Taken:
        now = self._clock.wall()
        given = partial(TakenItem, taker, _milliseconds(now + lease_seconds))
        for item_key, own in layout.taken_by_taker.list(*key, taker, limit=1):
            layout.taken.update(item_key, given(own.item))
            return Taken(item_key.number, own.item)
        first = _first(layout.taken_by_deadline, key)
        if first is not None and _is_over(first[1].deadline, now):
            layout.taken.update(first[0], given(first[1].item))
            return Taken(first[0].number, first[1].item)
        found = _first(layout.items, key)
        if found is not None:
            layout.items.delete(found[0])
            layout.taken.insert(found[0], given(found[1]))
            return Taken(found[0].number, found[1])
        has_producers = self._has_producers(key, now, layout)
        return Taken(state=layout.states.get(key), has_taken=first is not None, has_producers=has_producers)

    def _has_producers(self, key: QueueKey, now: float, layout: HEPnOSQueues) -> bool:
        """Tell whether a producer is waited for; remove the records of those that are forgotten."""
        listed = layout.producers_by_deadline
        forgotten = listed.rows(*key, below=_milliseconds(now - _FORGOTTEN_SECONDS), limit=_SWEPT_AT_ONCE)
        # Why those too: nobody is waited for so long, so that the clock was set back since.
        too_late = listed.rows(*key, at_least=_latest(now) + 1, limit=_SWEPT_AT_ONCE)
        for own, _ in readable_rows([*forgotten, *too_late], _pass_over):
            layout.producers.delete(own)
        # Why keys: until when it is waited for the index says, also where its record is damaged.
        waited_for = listed.keys(*key, at_least=_milliseconds(now) + 1, below=_latest(now) + 1, limit=1)
        return next(waited_for, None) is not None

    def settle(self, key: QueueKey, number: int, taker: str, *, is_done: bool) -> bool:
        """Remove a taken item that is done, or give it back to its place. Return False when the taker has it no more."""

        def settle(layout: HEPnOSQueues) -> bool:
            item_key = ItemKey(*key, number)
            found = layout.taken.get(item_key)
            if found is None or found.taker != taker:
                return False
            layout.taken.delete(item_key)
            if not is_done:
                layout.items.insert(item_key, found.item)
            return True

        with self._taking.of(key):
            return self._layout.run(settle)

    def is_empty(self, key: QueueKey) -> bool:
        """Tell whether there is no item now that nobody has."""
        return next(iter(self._layout.items.keys(*key, limit=1)), None) is None

    def destroy(self, key: QueueKey) -> None:
        """Remove a queue and its items, also those that somebody has, all at once. Raises MissingError."""
        Backoff().until_committed(partial(_destroy, self.store.engine, key))

    def waiting(self, key: QueueKey) -> "QueueWatch":
        """Return what waits for something to happen to queues, for a `with` block."""
        return QueueWatch(self.store.engine)


class QueueWatch:
    """Waits in its thread, for what happens to any queue of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._revision = 0

    def mark(self) -> None:
        """Have `wait` end with what happens from now on."""
        with self._engine.snapshot() as snapshot:
            self._revision = snapshot.revision

    def wait(self, seconds: float) -> None:
        """Wait until something happens after the mark, or until it is time to look again; no longer than so."""
        # Why suppressed: what was compacted has happened.
        with suppress(HistoryCompactedError):
            watch = self._engine.watch(KeyRange.of_prefix(HEPnOSQueues.bound().root), after=self._revision)
            try:
                watch.poll(min(seconds, LOOK_SECONDS))
            finally:
                watch.close()

    def stir(self) -> None:
        """It ends soon by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to end."""


def _first(
    view: TableView[ItemKey, V] | UniqueView[DeadlineKey, ItemKey, V], key: QueueKey
) -> tuple[ItemKey, V] | None:
    """Return the first of a queue's records that can be read. A damaged one stays, and keeps nobody from those behind it."""
    try:
        return next(iter(view.list(*key, limit=1)), None)
    except CorruptionError:
        # Why not at once: in a transaction all that is read is a premise, and this reads some behind the first.
        return next(readable_rows(view.rows(*key), _pass_over), None)


def _pass_over(_damaged: object) -> None:
    """Do nothing: it stays where it is, and whoever asks for it by its key is told."""


def _milliseconds(seconds: float) -> int:
    return int(seconds * _MILLISECONDS)


def _latest(now: float) -> int:
    """Return the latest deadline that may have been made. Why twice: clocks differ a little."""
    return _milliseconds(now + 2 * LEASE_SECONDS_MAX)


def _is_over(deadline: int, now: float) -> bool:
    # Why also later ones: nobody takes for so long, so that the clock was set back since.
    return not _milliseconds(now) < deadline <= _latest(now)


def lease_checked(name: str, seconds: float) -> float:
    """Return a time for which somebody has something. Raises InvalidInputError for none, and for more than a day."""
    if not 0 < seconds <= LEASE_SECONDS_MAX:
        problem = f"it is more than 0 and at most {LEASE_SECONDS_MAX:.0f} seconds, and not {seconds}"
        raise InvalidInputError(source=name, problem=problem)
    return seconds


def missing(key: QueueKey) -> MissingError:
    """Return the error that there is no such queue."""
    return MissingError(table="queues", key=f"{key.name}#{key.type}")


def _state(layout: HEPnOSQueues, key: QueueKey, made_at: int) -> QueueState | None:
    """Return the state of a queue; None when it was destroyed, whatever has its name now."""
    found = layout.states.versioned(key)
    return None if found is None or found.create_revision != made_at else found.record


def _destroy(engine: Engine, key: QueueKey) -> None:
    """Remove state and items in one commit: items that stayed would be those of the next queue of the name."""
    tables = HEPnOSQueues.bound().tables
    raw_key = tables["states"].keys.encode(key)
    with engine.snapshot() as snapshot:
        entry = snapshot.get(raw_key)
        epoch = snapshot.epoch
    if entry is None:
        raise missing(key)
    own = raw_key.removeprefix(HEPnOSQueues.bound().root + b"states/")
    below = (
        HEPnOSQueues.bound().root + kind + own + b"/"
        for kind in (b"items/", b"taken/", b"deadlines/", b"takers/", b"producers/", b"waits/")
    )
    ranges: list[Mutation] = [DeleteRange(KeyRange.of_prefix(prefix)) for prefix in below]
    guard = KeyUnchanged(raw_key, entry.mod_revision)
    engine.commit(Commit((guard,), (Delete(raw_key), *ranges), epoch))
