"""Typed queues, first in first out, each item taken once: on the store and shared by processes, in memory, or of a server."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from math import inf
from threading import Lock
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar
from uuid import uuid4

from keyplan.apps.hepnos.errors import ItemLostError, TypeMismatchError
from keyplan.apps.hepnos.queue_records import (
    HEPnOSQueues,
    Place,
    QueueKey,
    QueueRecords,
    Taken,
    lease_checked,
    missing,
)
from keyplan.apps.hepnos.types import ProductType, product_type, type_of_value
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CorruptionError,
    EngineUnavailableError,
    InvalidInputError,
    KeyplanError,
)
from keyplan.store import Backoff, Store

__all__ = [
    "Blocking",
    "HEPnOSQueues",
    "Queue",
    "QueueActs",
    "QueueHome",
    "QueueItem",
    "Queues",
    "StoredQueues",
    "Waiting",
]

_LEASE_SECONDS: Final = 60.0
"""How long a taken item is its taker's by default."""

_PRODUCER_SECONDS: Final = 3_600.0
"""How long a producer is waited for by default that puts nothing."""

_TRIES_MAX: Final = 5
"""Why: an answer that is lost again and again is told."""

_ITEMS_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 1 << 20
"""Why: what is put at once is one request, which a server holds in memory."""

_ABSENCES: Final = (0.1, 0.2, 0.4, 0.8, *(1.0,) * 14)
"""For how many seconds a server that is away is left alone before it is asked again whether it has done something: a server
that was killed is there again after some."""

T = TypeVar("T")


_SLEEP: Final = Backoff().sleep


class Blocking:
    """How queues wait for others: by blocking their thread. `keyplan.apps.hepnos.aio` has them wait otherwise."""

    def __init__(self, sleep: Callable[[float], None] = _SLEEP) -> None:
        """`sleep` takes seconds; tests hand it in."""
        self.sleep = sleep

    def lock(self) -> AbstractContextManager[object]:
        """Return what one caller has at a time, in a `with` block."""
        return Lock()

    def to_end(self, work: Callable[[], T]) -> T:
        """Do what is not to be given up halfway, and return what it returns."""
        return work()


_BLOCKING: Final = Blocking()


class Waiting(Protocol):
    """What one consumer waits by for items of a queue, in a `with` block."""

    def mark(self) -> None:
        """Have `wait` end with what happens from now on."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until something may have happened after the mark, or until it is time to look again; no longer than so."""
        ...

    def stir(self) -> None:
        """End a wait soon, from another thread or task."""
        ...


class QueueActs(Protocol):
    """What is done with an open queue, in bytes: in a store, see QueueRecords, or by a server."""

    def leave(self, key: QueueKey, producer: str, made_at: int) -> None: ...

    def put(self, key: QueueKey, place: Place, number: int, items: Sequence[bytes]) -> None: ...

    def take(self, key: QueueKey, taker: str, lease_seconds: float) -> Taken: ...

    def settle(self, key: QueueKey, number: int, taker: str, *, is_done: bool) -> bool: ...

    def is_empty(self, key: QueueKey) -> bool: ...

    def waiting(self, key: QueueKey) -> AbstractContextManager[Waiting]: ...


class QueueHome(Protocol):
    """Where queues are made and opened: the databases of a store, or a server."""

    def create(self, key: QueueKey, *, volatile: bool) -> None: ...

    def enter(self, key: QueueKey, producer: str, lease_seconds: float) -> tuple[QueueActs, int]: ...

    def destroy(self, key: QueueKey) -> None: ...

    def keys(self) -> list[QueueKey]: ...


class StoredQueues:
    """Queues that are durable, and volatile ones that live as long as these stores are open."""

    def __init__(self, durable: Store, volatile: Store, clock: Clock = SYSTEM_CLOCK) -> None:
        self._durable = QueueRecords(durable, clock)
        self._volatile = QueueRecords(volatile, clock)

    def create(self, key: QueueKey, *, volatile: bool) -> None:
        """Create a queue. Raises AlreadyExistsError."""
        own, other = (self._volatile, self._durable) if volatile else (self._durable, self._volatile)
        if other.exists(key):
            raise AlreadyExistsError(table="queues", key=f"{key.name}#{key.type}")
        own.create(key)

    def home_of(self, key: QueueKey) -> QueueRecords:
        """Return the store that has a queue. Raises MissingError."""
        for records in (self._durable, self._volatile):
            if records.exists(key):
                return records
        raise missing(key)

    def enter(self, key: QueueKey, producer: str, lease_seconds: float) -> tuple[QueueActs, int]:
        """Open a queue, where it is. Raises MissingError."""
        records = self.home_of(key)
        return records, records.enter(key, producer, lease_seconds)

    def destroy(self, key: QueueKey) -> None:
        """Remove a queue and its items. Raises MissingError."""
        self.home_of(key).destroy(key)

    def keys(self) -> list[QueueKey]:
        """Return all queues, sorted."""
        return sorted([*self._durable.keys(), *self._volatile.keys()])

    def close(self) -> None:
        """Close both stores."""
        self._durable.store.close()
        self._volatile.store.close()


class Queues:
    """The queues of a store, by name and type: durable ones, and volatile ones that live as long as the store is open."""

    def __init__(self, home: QueueHome, clock: Clock = SYSTEM_CLOCK, blocking: Blocking = _BLOCKING) -> None:
        self._home = home
        self._clock = clock
        self._blocking = blocking

    def create(self, name: str, type: Any, *, volatile: bool = False) -> None:  # noqa: A002  # Why: the word of the document.
        """Create a queue. Raises AlreadyExistsError; another type under the name is another queue.

        A `volatile` queue costs no flush, is shared by the threads of this process alone, or of a server by all who ask it, and
        is gone when the store is closed there.
        """
        self._home.create(QueueKey(name, product_type(type).name), volatile=volatile)

    def open(
        self,
        name: str,
        type: Any,  # noqa: A002  # Why: as above.
        *,
        mode: str = "consumer",
        lease_seconds: float = _PRODUCER_SECONDS,
    ) -> "Queue":
        """Open a queue as a "producer" or a "consumer". Raises MissingError when there is none of this name and type.

        Consumers wait for a producer until it closes, and for `lease_seconds`, at most a day, after it has opened the queue or
        put its last item: one that has died is not waited for without end. One that puts later puts all the same.
        """
        if mode not in {"producer", "consumer"}:
            problem = f"a queue is opened as producer or consumer, not as {mode!r}"
            raise InvalidInputError(source="mode", problem=problem)
        kind = product_type(type)
        key = QueueKey(name, kind.name)
        lease_checked("lease_seconds", lease_seconds)
        producer = uuid4().hex if mode == "producer" else ""
        acts, made_at = _again(lambda: self._home.enter(key, producer, lease_seconds), self._blocking.sleep)
        return Queue(acts, key, kind, self._clock, Place(producer, made_at, lease_seconds), self._blocking)

    def destroy(self, name: str, type: Any) -> None:  # noqa: A002  # Why: as above.
        """Remove a queue and its items, all at once, also those that somebody has taken. Raises MissingError."""
        self._home.destroy(QueueKey(name, product_type(type).name))

    def names(self) -> list[tuple[str, str]]:
        """Return the name and type of every queue, sorted."""
        return [(key.name, key.type) for key in self._home.keys()]  # noqa: SIM118  # Why: no mapping.


class QueueItem:
    """An item that was taken: this consumer's until its lease is over, unless it is acknowledged or given back before.

    As a context manager it is acknowledged at the end of the block, and given back when the block fails, unless the block has
    done either. What a block fails with is told, also when the lease was over by then.
    """

    def __init__(self, queue: "Queue", found: Taken, taker: str, until: float) -> None:
        """`until`: when the lease is over at the earliest, by the monotonic clock."""
        self._queue = queue
        self._found = found
        self._taker = taker
        self._until = until
        self._is_settled = False

    @property
    def number(self) -> int:
        """Its place in the queue, from 0; no other item of the queue ever has it."""
        return self._found.number

    @property
    def value(self) -> Any:
        """What the producer put. Raises CorruptionError, which names the queue and the item."""
        key = self._queue.key
        try:
            return self._queue.kind.decode(self._found.item)
        except CorruptionError as error:
            raise CorruptionError(**error.facts, queue=f"{key.name}#{key.type}", item=self.number) from error

    def acknowledge(self) -> None:
        """Say that it is done: it goes for good. Raises ItemLostError when its lease was over: it is another's then."""
        self._settle(is_done=True)

    def give_back(self) -> None:
        """Put it back to its place, for whoever takes next. Raises ItemLostError as `acknowledge` does."""
        self._settle(is_done=False)

    def _settle(self, *, is_done: bool) -> None:
        acts, key = self._queue.acts, self._queue.key
        was_lost = False

        def settle() -> bool:
            nonlocal was_lost
            try:
                return acts.settle(key, self.number, self._taker, is_done=is_done)
            except CommitOutcomeUnknownError:
                was_lost = True
                raise

        blocking = self._queue.blocking
        is_own = blocking.to_end(lambda: _again(settle, blocking.sleep))
        # Why the time: of two answers the first was lost, and within the lease nobody else has settled it.
        if not is_own and not (was_lost and self._queue.clock.monotonic() < self._until):
            raise ItemLostError(queue=f"{key.name}#{key.type}", number=self.number)
        self._is_settled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_settled:
            return
        # Why nothing when it failed: an item that is lost is another's already, as if it were given back.
        with suppress(*(() if kind is None else (ItemLostError,))):
            self._settle(is_done=kind is None)


class Queue:
    """An open queue. Producers put, consumers get; a producer that closes wakes the consumers that wait.

    Who produces for a queue that was destroyed is told so, though another is made under its name. Safe for use by several
    threads, whose puts go one after the other, and closing behind those that are under way.
    """

    def __init__(
        self,
        acts: QueueActs,
        key: QueueKey,
        kind: ProductType,
        clock: Clock,
        place: Place,
        blocking: Blocking = _BLOCKING,
    ) -> None:
        """`place` is a producer's; a consumer has no name there."""
        self.acts = acts
        self.key = key
        self.kind = kind
        self.clock = clock
        self.blocking = blocking
        self._place = place
        self._is_producer = bool(place.producer)
        self._is_closed = False
        self._putting = blocking.lock()
        """Why: the store knows what was put by the number of the last, and a producer by its record, which closing removes."""
        self._put = 0
        self._waiting = set[Waiting]()

    def put(self, value: Any) -> None:
        """Add an item at the end, durably, once also when an answer is lost on the way, or its server killed and there again.

        Raises TypeMismatchError; InvalidInputError for a consumer, and for one that is closed; CommitOutcomeUnknownError where
        answers are lost again and again, or the server is away for 15 seconds: it may be in the queue. MissingError for a queue
        that was destroyed, and for a producer that was silent for a day longer than its `lease_seconds`, which opens the queue
        again.
        """
        self._put_items([self._encoded(value)])

    def put_many(self, values: Iterable[Any]) -> int:
        """Add items at the end, in order, and return how many: as `put` does for each, with far fewer commits.

        Others may put between them. Where it fails, the first ones may be in the queue.
        """
        put, items, size = 0, list[bytes](), 0
        for value in values:
            items.append(self._encoded(value))
            size += len(items[-1])
            if len(items) >= _ITEMS_AT_ONCE or size >= _BYTES_AT_ONCE:
                self._put_items(items)
                put, items, size = put + len(items), [], 0
        if items or not put:
            self._put_items(items)
        return put + len(items)

    def _encoded(self, value: Any) -> bytes:
        if type_of_value(value).name != self.kind.name and not self._is_fit(value):
            raise TypeMismatchError(type=self.kind.name, problem="the item is of another type")
        return self.kind.encode(value)

    def _put_items(self, items: Sequence[bytes]) -> None:
        with self._putting:
            if not self._is_producer or self._is_closed:
                raise InvalidInputError(
                    source="queue", problem="only a producer that has it open puts items into a queue"
                )
            if items:
                number = self._put + 1
                self._put += len(items)
                _again(lambda: self.acts.put(self.key, self._place, number, items), self.blocking.sleep)

    def _is_fit(self, value: Any) -> bool:
        """True when the type takes the value although it would be stored as another: 5 as an int32."""
        try:
            self.kind.encode(value)
        except TypeMismatchError:
            return False
        return True

    def get(self, timeout_seconds: float | None = None) -> Any:
        """Take the first item, for good; wait as `take` does. None: there is none.

        It is acknowledged as soon as it has come, so that a consumer which ends while it works on one takes it along: `take`
        gives it to another. Raises CorruptionError for an item that is damaged: it stays in the queue, and is given again in a
        minute; the next call has the item behind it.
        """
        while (item := self.take(timeout_seconds)) is not None:
            # Why first: a damaged item that is acknowledged is gone, and nobody can mend it.
            value = item.value
            try:
                item.acknowledge()
            except ItemLostError:
                continue  # Why: it was so long under way that it is another's.
            return value
        return None

    def take(self, timeout_seconds: float | None = None, *, lease_seconds: float = _LEASE_SECONDS) -> QueueItem | None:
        """Take the first item for so many seconds, to be acknowledged. None: there is none.

        Wait for one while there are producers, or until there has been one, and while others have items that may come back.
        One that is not acknowledged in time is another's: of a consumer that has ended, of an answer that was lost.
        `timeout_seconds` bounds the wait; None waits for as long as there are producers or taken items, and not at all when
        there are none. Closing the queue in another thread ends the wait within a second. Raises InvalidInputError for a lease
        of no time, or of more than a day; for a queue that is closed.
        """
        lease_checked("lease_seconds", lease_seconds)
        self._check_open()
        taker = uuid4().hex
        give_up_at = inf if timeout_seconds is None else self.clock.monotonic() + timeout_seconds
        with self._in_line() as waiting:
            while True:
                waiting.mark()
                # Why before: the lease runs while the answer is under way.
                until = self.clock.monotonic() + lease_seconds
                found = _again(lambda: self.acts.take(self.key, taker, lease_seconds), self.blocking.sleep)
                if found.is_item:
                    return QueueItem(self, found, taker, until)
                # Why that state: a producer who came and went since then has left an item.
                has_ended = found.state is None or found.state.has_had_producer or timeout_seconds is None
                may_come = found.has_taken or found.has_producers or not has_ended
                remaining = give_up_at - self.clock.monotonic()
                if self._is_closed or remaining <= 0 or not may_come:
                    return None
                waiting.wait(remaining)

    @contextmanager
    def _in_line(self) -> Iterator[Waiting]:
        """Give what `take` waits by, and `close` ends."""
        with self.acts.waiting(self.key) as waiting:
            self._waiting.add(waiting)
            try:
                yield waiting
            finally:
                self._waiting.discard(waiting)

    def __iter__(self) -> Iterator[QueueItem]:
        """Take one item after the other, each to be acknowledged, waiting as `take` does, until there is none."""
        while (item := self.take()) is not None:
            yield item

    def is_empty(self) -> bool:
        """Tell whether there is no item now that nobody has taken. Raises InvalidInputError for a queue that is closed."""
        self._check_open()
        return self.acts.is_empty(self.key)

    def close(self) -> None:
        """Close it. Of a producer, consumers that wait are told. Closing twice is harmless; taken items stay taken."""
        with self._putting:
            if self._is_producer and not self._is_closed:
                leave = partial(self.acts.leave, self.key, self._place.producer, self._place.made_at)
                self.blocking.to_end(lambda: _again(leave, self.blocking.sleep))
            self._is_closed = True
        for waiting in list(self._waiting):
            waiting.stir()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInputError(source="queue", problem="it was closed: open it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _again(act: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """Do what may be done twice, again while its answer is lost, or the server away that has lost it.

    Raises CommitOutcomeUnknownError at last.
    """
    lost: CommitOutcomeUnknownError | None = None
    absences = iter(_ABSENCES)
    for _ in range(_TRIES_MAX):
        try:
            return _once_there(act, absences if lost else iter(()), sleep)
        except CommitOutcomeUnknownError as error:
            lost = error
        except KeyplanError as error:
            if lost is None:
                raise
            # Why not that: it says that nothing was done, and what was lost may have been.
            raise lost from error
    assert lost is not None
    raise lost


def _once_there(act: Callable[[], T], absences: Iterator[float], sleep: Callable[[float], None]) -> T:
    """Do it as soon as there is an engine. Raises EngineUnavailableError at last, and whatever it raises."""
    while True:
        try:
            return act()
        except EngineUnavailableError:
            seconds = next(absences, None)
            if seconds is None:
                raise
            sleep(seconds)
