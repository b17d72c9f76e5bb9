"""How the queues of `hepnos.aio` wait: the synchronous code runs on the event loop, and what it waits for is awaited.

    task A   look .. nothing | is the first, and hears of commits ... look .. item 7
    task B      look .. nothing | waits for its turn ............................... look .. nothing | is the first, and hears
    task C         look .. nothing | waits for its turn ........................................................................

An act on the store is short, and made in a thread, or awaited where a server has frames. It is carried out once it has begun,
whatever becomes of who awaits it: a take whose task was cancelled gives back what it found. Who finds nothing stands in line,
and the first of a line looks for all: a thousand that wait cost as much as one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Self, TypeVar

from keyplan.aio import CommitNotifier, Wakeup, drive, wait
from keyplan.apps.hepnos.aio_calls import Caller
from keyplan.apps.hepnos.aio_queues import Queues
from keyplan.apps.hepnos.queue_records import LOOK_SECONDS, Place, QueueKey, QueueRecords, Taken
from keyplan.apps.hepnos.queues import Blocking, QueueActs, QueueHome
from keyplan.apps.hepnos.queues import Queues as SyncQueues
from keyplan.apps.hepnos.remote_awaited import Driver
from keyplan.apps.hepnos.remote_queues import LOOK_SECONDS as ASK_SECONDS
from keyplan.engine import ALL_KEYS
from keyplan.errors import EngineUnavailableError, KeyplanError

__all__ = ["AwaitedHome", "queues_at"]

T = TypeVar("T")


def queues_at(home: Callable[[], QueueHome], caller: Caller) -> Queues:
    """Return the queues of a home, which the first call opens, for the loop that runs; `caller` makes what is done there."""
    awaited = AwaitedHome(home, caller)
    return Queues(SyncQueues(awaited, blocking=_Awaiting(awaited)), Driver(caller), awaited.end)


class AwaitedHome:
    """Where queues are made and opened, for synchronous code that is driven on one event loop; a `QueueHome`."""

    def __init__(self, home: Callable[[], QueueHome], caller: Caller) -> None:
        """`home` opens the store's own, the first time that it is called."""
        self._home = home
        self.caller = caller
        self._tasks = set[asyncio.Task[Any]]()
        self._lines = dict[tuple[QueueActs, QueueKey], _Line]()
        self._notifiers = dict[QueueActs, CommitNotifier]()
        self._is_ended = False

    def create(self, key: QueueKey, *, volatile: bool) -> None:
        """Create a queue."""
        self.done(lambda: self._home().create(key, volatile=volatile))

    def enter(self, key: QueueKey, producer: str, lease_seconds: float) -> "tuple[QueueActs, int]":
        """Open a queue."""
        entering = self.begun(lambda: self._home().enter(key, producer, lease_seconds))
        try:
            wait(asyncio.wait({entering}))
        except asyncio.CancelledError:
            if producer:
                self.kept(self._left(entering, key, producer))
            raise
        acts, made_at = entering.result()
        return _AwaitedActs(acts, self), made_at

    async def _left(self, entering: "asyncio.Task[tuple[QueueActs, int]]", key: QueueKey, producer: str) -> None:
        """Close what nobody has opened: consumers would wait for it until its lease is over, as where this fails."""
        with suppress(KeyplanError, asyncio.CancelledError):  # Why: as said.
            acts, made_at = await entering
            await self.caller.call_short(partial(acts.leave, key, producer, made_at))

    def destroy(self, key: QueueKey) -> None:
        """Remove a queue."""
        self.done(lambda: self._home().destroy(key))

    def keys(self) -> list[QueueKey]:
        """Return all queues, sorted."""
        return self.done(lambda: self._home().keys())

    # ---- acts ------------------------------------------------------------------------------------------------------------

    def begun(self, act: Callable[[], T]) -> "asyncio.Task[T]":
        """Begin what is done in the store. Raises EngineUnavailableError for one that is closed."""
        if self._is_ended:
            raise EngineUnavailableError(problem="the store was closed")
        return self.kept(self.caller.call_short(act))

    def done(self, act: Callable[[], T]) -> T:
        """Do it, from driven code."""
        task = self.begun(act)
        wait(asyncio.wait({task}))
        return task.result()

    def kept(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Have it carried out before the store is closed, whoever awaits it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Why: asked for, so that asyncio does not report an error that nobody waits for.

    # ---- waiting ---------------------------------------------------------------------------------------------------------

    def place(self, acts: QueueActs, key: QueueKey) -> "_Place":
        """Return a place in the line of a queue."""
        line = self._lines.get((acts, key))
        if line is None:
            line = self._lines[acts, key] = _Line(
                partial(self._notifier_of, acts), partial(self._lines.pop, (acts, key))
            )
        return _Place(line)

    def _notifier_of(self, acts: QueueActs) -> CommitNotifier | None:
        """Return what tells of commits to queues; None for a server, which tells nobody."""
        if acts not in self._notifiers and isinstance(acts, QueueRecords):
            notifier = CommitNotifier(acts.store.engine, asyncio.get_running_loop())
            notifier.wakeup(ALL_KEYS)  # Why: its thread is not to end whenever nobody waits for a moment.
            self._notifiers[acts] = notifier
        return self._notifiers.get(acts)

    async def end(self) -> None:
        """Wake who waits, who is told that the store was closed, and await what is under way."""
        self._is_ended = True
        for line in self._lines.values():
            line.stir_all()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for notifier in self._notifiers.values():
            notifier.close()


class _AwaitedActs:
    """What is done with an open queue by driven code; see `QueueActs`."""

    def __init__(self, acts: QueueActs, home: AwaitedHome) -> None:
        self._acts = acts
        self._home = home

    def leave(self, key: QueueKey, producer: str, made_at: int) -> None:
        self._home.done(lambda: self._acts.leave(key, producer, made_at))

    def put(self, key: QueueKey, place: Place, number: int, items: Sequence[bytes]) -> None:
        self._home.done(lambda: self._acts.put(key, place, number, items))

    def take(self, key: QueueKey, taker: str, lease_seconds: float) -> Taken:
        looking = self._home.begun(lambda: self._acts.take(key, taker, lease_seconds))
        try:
            wait(asyncio.wait({looking}))
        except asyncio.CancelledError:
            self._home.kept(self._given_back(looking, key, taker))
            raise
        return looking.result()

    async def _given_back(self, looking: "asyncio.Task[Taken]", key: QueueKey, taker: str) -> None:
        """Give back what nobody is given any more. Where that fails, and where its answer was lost, its lease does."""
        # Why suppressed: as said.
        with suppress(KeyplanError, asyncio.CancelledError):
            found = await looking
            if found.is_item:
                # Why past `begun`: the store may be about to be closed, which waits for this.
                await self._home.caller.call_short(partial(self._acts.settle, key, found.number, taker, is_done=False))

    def settle(self, key: QueueKey, number: int, taker: str, *, is_done: bool) -> bool:
        return self._home.done(lambda: self._acts.settle(key, number, taker, is_done=is_done))

    def is_empty(self, key: QueueKey) -> bool:
        return self._home.done(lambda: self._acts.is_empty(key))

    def waiting(self, key: QueueKey) -> "_Place":
        return self._home.place(self._acts, key)


class _Awaiting(Blocking):
    """How queues wait for others: by awaiting, in driven code."""

    def __init__(self, home: AwaitedHome) -> None:
        super().__init__(lambda seconds: wait(asyncio.sleep(seconds)))
        self._home = home

    def lock(self) -> AbstractContextManager[object]:
        return _AwaitedLock()

    def to_end(self, work: Callable[[], T]) -> T:
        return wait(self._to_end(self._home.kept(drive(work))))

    async def _to_end(self, work: "asyncio.Task[T]") -> T:
        """Await it to its end. A cancellation that comes meanwhile is put off until whoever awaits this waits again.

        Why not raised: what was acknowledged is gone from the queue, and so must reach who gets it.
        """
        was_cancelled, task = False, asyncio.current_task()
        assert task is not None
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                was_cancelled = True
        if was_cancelled:
            asyncio.get_running_loop().call_soon(_cancel_again, task)
        return work.result()


def _cancel_again(task: "asyncio.Task[Any]") -> None:
    """Cancel a task whose cancellation was put off, unless it was taken back: by a timeout whose block is over."""
    if task.cancelling() and task.cancel():
        task.uncancel()  # Why: it is the same cancellation, and not one more.


class _AwaitedLock:
    """A lock for driven code, which awaits its turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def __enter__(self) -> None:
        wait(self._lock.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class _Line:
    """Who waits for items of one queue, in the order in which they came. The first looks for all."""

    def __init__(self, notifier: Callable[[], CommitNotifier | None], end: Callable[[], object]) -> None:
        """`notifier` is asked for when somebody waits; `end` is called when nobody is in line any more."""
        self._places = dict["_Place", None]()
        self._find_notifier = notifier
        self._notifier: CommitNotifier | None = None
        self._end = end
        self.news: Wakeup | None = None
        """Wakes the first one, once one has waited."""

    def is_first(self, place: "_Place") -> bool:
        return next(iter(self._places)) is place

    def join(self, place: "_Place") -> None:
        self._places[place] = None

    def leave(self, place: "_Place") -> None:
        was_first = self.is_first(place)
        del self._places[place]
        if self._places:
            if was_first:
                next(iter(self._places)).turn.set()
            return
        if self.news is not None and self._notifier is not None:
            self._notifier.remove(self.news)
        self._end()

    def listen(self) -> Wakeup:
        """Return what wakes the first one; new, it does at once, since nothing was heard before."""
        if self.news is None:
            self._notifier = self._find_notifier()
            self.news = Wakeup(ALL_KEYS) if self._notifier is None else self._notifier.wakeup(ALL_KEYS)
            self.news.wake()
        return self.news

    @property
    def look_seconds(self) -> float:
        """How often the first one looks, whatever it hears."""
        return ASK_SECONDS if self._notifier is None else LOOK_SECONDS

    def stir_all(self) -> None:
        """Have all look again."""
        for place in self._places:
            place.stir()


class _Place:
    """A place in a line, from a `with` block's begin to its end; see `Waiting`."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self.turn = asyncio.Event()
        """Set when this one became the first, or is to look again for another reason."""

    def mark(self) -> None:
        """Have `wait` end with what happens from now on."""
        self.turn.clear()
        if self._line.news is not None and self._line.is_first(self):
            self._line.news.clear()

    def wait(self, seconds: float) -> None:
        """Wait, from driven code: the first one for news, or for the time of its next look; others for their turn."""
        wait(self._wait(seconds))

    async def _wait(self, seconds: float) -> None:
        if self._line.is_first(self) and not self.turn.is_set():
            news = self._line.listen()
            await news.wait(min(seconds, self._line.look_seconds))
            return
        with suppress(TimeoutError):  # Why: whoever waited so long looks for itself what there is.
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self.turn.wait()

    def stir(self) -> None:
        """Look again."""
        self.turn.set()
        if self._line.news is not None:
            self._line.news.wake()

    def __enter__(self) -> Self:
        self._line.join(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.leave(self)
