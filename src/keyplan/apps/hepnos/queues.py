"""Typed queues, first in first out, each item taken once: on the store and shared by processes, or in memory."""

from functools import partial
from types import TracebackType
from typing import Annotated, Any, Final, NamedTuple, Self

import msgspec

from keyplan.apps.hepnos.errors import MissingError, TypeMismatchError
from keyplan.apps.hepnos.types import ProductType, product_type, type_of_value
from keyplan.codec import Percent
from keyplan.engine import SYSTEM_CLOCK, Clock, Commit, Delete, DeleteRange, Engine, KeyRange, KeyUnchanged
from keyplan.errors import AlreadyExistsError, InvalidInputError
from keyplan.layout import Layout, Table
from keyplan.store import Backoff, Store

__all__ = ["HEPnOSQueues", "Queue", "Queues"]

_POLL_SECONDS_MAX: Final = 1.0
"""Why: a consumer that waits looks at the queue at least this often, whatever it hears."""


_NUMBER_DIGITS: Final = 20


class QueueKey(NamedTuple):
    """A queue: its name, and the name of its items' type."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]


class ItemKey(NamedTuple):
    """An item of a queue, by the order in which it came."""

    name: Annotated[str, Percent()]
    type: Annotated[str, Percent()]
    number: int


class QueueState(msgspec.Struct, frozen=True):
    """The next item's number, and how many producers have the queue open, ever had it open."""

    next_number: int = 0
    producers: int = 0
    has_had_producer: bool = False


class HEPnOSQueues(Layout, root="queues/"):
    """The database of queues, which the document does not have: the C++ program keeps them in memory."""

    states = Table("states/{name}/{type}", key=QueueKey, value=QueueState)
    items = Table(f"items/{{name}}/{{type}}/{{number:decimal(width={_NUMBER_DIGITS})}}", key=ItemKey, value=bytes)


class Queues:
    """The queues of a store, by name and type: durable ones, and volatile ones that live as long as the store is open here."""

    def __init__(self, durable: Store, volatile: Store, clock: Clock = SYSTEM_CLOCK) -> None:
        self._durable = durable
        self._volatile = volatile
        self._clock = clock

    def create(self, name: str, type: Any, *, volatile: bool = False) -> None:  # noqa: A002  # Why: the word of the document.
        """Create a queue. Raises AlreadyExistsError; another type under the name is another queue.

        A `volatile` queue costs no flush, is shared by the threads of this process alone, and is gone when the store is closed.
        """
        key = QueueKey(name, product_type(type).name)
        own, other = (self._volatile, self._durable) if volatile else (self._durable, self._volatile)
        if HEPnOSQueues(other).states.exists(key):
            raise AlreadyExistsError(table="queues", key=f"{name}#{key.type}")
        HEPnOSQueues(own).states.insert(key, QueueState())

    def open(self, name: str, type: Any, *, mode: str = "consumer") -> "Queue":  # noqa: A002  # Why: as above.
        """Open a queue as a "producer" or a "consumer". Raises MissingError when there is none of this name and type."""
        if mode not in {"producer", "consumer"}:
            raise InvalidInputError(
                source="mode", problem=f"a queue is opened as producer or consumer, not as {mode!r}"
            )
        kind = product_type(type)
        key = QueueKey(name, kind.name)
        store = self._home_of(key)
        is_producer = mode == "producer"

        def enter(layout: HEPnOSQueues) -> int:
            found = layout.states.versioned(key)
            if found is None:
                raise _missing(key)
            if is_producer:
                layout.states.update(key, _with_producer(found.record))
            return found.create_revision

        made_at = HEPnOSQueues(store).run(enter)
        return Queue(store, key, kind, self._clock, is_producer=is_producer, made_at=made_at)

    def destroy(self, name: str, type: Any) -> None:  # noqa: A002  # Why: as above.
        """Remove a queue and its items, all at once. Raises MissingError."""
        key = QueueKey(name, product_type(type).name)
        engine = self._home_of(key).engine
        Backoff().until_committed(partial(_destroy, engine, key))

    def names(self) -> list[tuple[str, str]]:
        """Return the name and type of every queue, sorted."""
        stores = (self._durable, self._volatile)
        return sorted((key.name, key.type) for store in stores for key in HEPnOSQueues(store).states.keys())  # noqa: SIM118  # Why: a table's keys.

    def _home_of(self, key: QueueKey) -> Store:
        for store in (self._durable, self._volatile):
            if HEPnOSQueues(store).states.exists(key):
                return store
        raise _missing(key)


def _missing(key: QueueKey) -> MissingError:
    return MissingError(table="queues", key=f"{key.name}#{key.type}")


def _destroy(engine: Engine, key: QueueKey) -> None:
    """Remove state and items in one commit: items that stayed would be those of the next queue of the name."""
    states, items = HEPnOSQueues.bound().tables["states"], HEPnOSQueues.bound().tables["items"]
    raw_key = states.keys.encode(key)
    with engine.snapshot() as snapshot:
        entry = snapshot.get(raw_key)
        epoch = snapshot.epoch
    if entry is None:
        raise _missing(key)
    first = items.keys.encode(ItemKey(*key, 0))
    own_items = KeyRange.of_prefix(first[:-_NUMBER_DIGITS])
    guard = KeyUnchanged(raw_key, entry.mod_revision)
    engine.commit(Commit((guard,), (Delete(raw_key), DeleteRange(own_items)), epoch))


def _with_producer(state: QueueState) -> QueueState:
    return msgspec.structs.replace(state, producers=state.producers + 1, has_had_producer=True)


def _without_producer(state: QueueState) -> QueueState:
    return msgspec.structs.replace(state, producers=max(state.producers - 1, 0))


class Queue:
    """An open queue. Producers put, consumers get; a producer that closes wakes the consumers that wait.

    Who produces for a queue that was destroyed is told so, though another is made under its name.
    """

    def __init__(
        self, store: Store, key: QueueKey, kind: ProductType, clock: Clock, *, is_producer: bool, made_at: int
    ) -> None:
        self._store = store
        self._layout = HEPnOSQueues(store)
        self._key = key
        self._kind = kind
        self._clock = clock
        self._is_producer = is_producer
        self._made_at = made_at
        self._is_closed = False

    def put(self, value: Any) -> None:
        """Add an item at the end, durably. Raises TypeMismatchError, InvalidInputError for a consumer, MissingError."""
        if not self._is_producer or self._is_closed:
            raise InvalidInputError(source="queue", problem="only a producer that has it open puts items into a queue")
        if type_of_value(value).name != self._kind.name and not self._is_fit(value):
            raise TypeMismatchError(type=self._kind.name, problem="the item is of another type")
        raw = self._kind.encode(value)

        def add(layout: HEPnOSQueues) -> None:
            state = self._state(layout)
            if state is None:
                raise _missing(self._key)
            layout.items.insert(ItemKey(*self._key, state.next_number), raw)
            layout.states.update(self._key, msgspec.structs.replace(state, next_number=state.next_number + 1))

        self._layout.run(add)

    def _state(self, layout: HEPnOSQueues) -> QueueState | None:
        """Return the state of this queue; None when it was destroyed, whatever has its name now."""
        found = layout.states.versioned(self._key)
        return None if found is None or found.create_revision != self._made_at else found.record

    def _is_fit(self, value: Any) -> bool:
        """True when the type takes the value although it would be stored as another: 5 as an int32."""
        try:
            self._kind.encode(value)
        except TypeMismatchError:
            return False
        return True

    def get(self, timeout_seconds: float | None = None) -> Any:
        """Take the first item; wait for one while there are producers, or until there has been one. None: there is none.

        `timeout_seconds` bounds the wait; None waits for as long as there are producers, and not at all when there are none.
        """
        give_up_at = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        engine = self._store.engine
        while True:
            with engine.snapshot() as snapshot:
                revision = snapshot.revision
            found, state = self._layout.run(self._take)
            if found is not None:
                return self._kind.decode(found)
            # Why that state: a producer who came and went since then has left an item.
            has_producers = state is not None and state.producers > 0
            has_ended = state is None or state.has_had_producer
            remaining = _POLL_SECONDS_MAX if give_up_at is None else give_up_at - self._clock.monotonic()
            if remaining <= 0 or (not has_producers and (give_up_at is None or has_ended)):
                return None
            watch = engine.watch(KeyRange.of_prefix(HEPnOSQueues.bound().root), after=revision)
            try:
                watch.poll(min(remaining, _POLL_SECONDS_MAX))
            finally:
                watch.close()

    def _take(self, layout: HEPnOSQueues) -> tuple[bytes | None, QueueState | None]:
        """Take the first item; when there is none, return the queue's state, as of then."""
        for key, raw in layout.items.list(*self._key, limit=1):
            layout.items.delete(key)
            return raw, None
        return None, layout.states.get(self._key)

    def is_empty(self) -> bool:
        """Tell whether there is no item now."""
        return next(iter(self._layout.items.keys(*self._key, limit=1)), None) is None

    def close(self) -> None:
        """Close it. Of a producer, consumers that wait are told. Closing twice is harmless."""
        if self._is_producer and not self._is_closed:
            self._layout.run(self._leave)
        self._is_closed = True

    def _leave(self, layout: HEPnOSQueues) -> None:
        state = self._state(layout)
        if state is not None:
            layout.states.update(self._key, _without_producer(state))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
