"""Watches: one follower of the store, and for each stream a queue in the event loop that it is read from."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Engine, Event, EventKind, KeyRange, Reach
from keyplan.errors import AccessDeniedError, EngineUnavailableError, HistoryCompactedError, KeyplanError
from keyplan.protobuf import EventType, FilterType
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_member import Follower
from keyplan.server.etcd_v3.changes import beside_reserved
from keyplan.server.etcd_v3.messages import RECORDS, key_value, range_of
from keyplan.server.service import ServiceContext

__all__ = ["Selection", "Stream", "WatchHub", "Watches"]

_UNREAD_BATCHES_MAX: Final = 10_000
"""Why: etcd, too, ends the watch of a client that does not read."""

_REACH_ATTEMPTS: Final = 5
"""Why: what a caller may see does not change so often while a watch is opened."""

_LINGER_SECONDS: Final = 10.0
"""Why: who watches again at once is told by the follower that there is; who does not must not keep a thread for ever."""

_HUBS_OF_CALLER_MAX: Final = 4
"""Why: each keeps a thread, and who makes key spaces changes what they may see as often as they like."""

_CATCH_UP_POLL_SECONDS: Final = 0.05
_CATCH_UP_SECONDS_MAX: Final = 30.0


class Selection:
    """What one watch wants to be told of."""

    def __init__(self, request: Any) -> None:
        """Read a create request, a record of the etcd table. Raises CallFailure."""
        self.range: KeyRange = range_of(request.key, request.range_end)
        self.start_revision: int = request.start_revision
        self.has_progress: bool = request.progress_notify
        self._has_previous: bool = request.prev_kv
        self._is_without_puts = FilterType.NOPUT in request.filters
        self._is_without_deletes = FilterType.NODELETE in request.filters

    def confined(self) -> Self:
        """Let it want nothing of keyplan's own keys, unless it wants nothing else; return it."""
        self.range = beside_reserved(self.range)
        return self

    def shown(self, events: Sequence[Event], *, after: int) -> list[Any]:
        """Return those events of a batch that are wanted, of later revisions than `after`, as records."""
        return [
            self._event(event)
            for event in events
            if event.revision > after and event.key in self.range and not self._is_left_out(event)
        ]

    def _is_left_out(self, event: Event) -> bool:
        return self._is_without_deletes if event.kind is EventKind.DELETED else self._is_without_puts

    def _event(self, event: Event) -> Any:
        if event.entry is None:
            gone = RECORDS.KeyValue(key=event.key, mod_revision=event.revision)
            shown = RECORDS.Event(type=EventType.DELETE, kv=gone)
        else:
            shown = RECORDS.Event(kv=key_value(event.entry, event.revision))
        if self._has_previous and event.previous is not None:
            shown.prev_kv = key_value(event.previous, event.revision)
        return shown


class Stream:
    """One watch: what has come for it and was not sent yet. A batch of no events ends it, with the error."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.after = 0
        self.error: KeyplanError | None = None
        self.is_ended = False
        self._unread: asyncio.Queue[tuple[Sequence[Event], int]] = asyncio.Queue(_UNREAD_BATCHES_MAX)

    def give(self, events: Sequence[Event], reached: int) -> None:
        """Take a batch in; end the watch when its client does not read."""
        try:
            self._unread.put_nowait((events, reached))
        except asyncio.QueueFull:
            self.end(EngineUnavailableError(engine="watch", problem="the client did not read"))

    def end(self, error: KeyplanError | None = None) -> None:
        """Let the stream end."""
        self.error = error
        self.is_ended = True
        if not self._unread.full():
            self._unread.put_nowait(((), 0))

    async def next_batch(self, timeout_seconds: float) -> tuple[list[Any], int] | None:
        """Return events and the revision they reach; no events when the time is over; None at the end."""
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while not self.is_ended:
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            try:
                events, reached = await asyncio.wait_for(self._unread.get(), max(0.0, remaining))
            except TimeoutError:
                return [], self.after
            shown = self.selection.shown(events, after=self.after)
            self.after = max(self.after, reached)
            if shown:
                return shown, self.after
        return None


class WatchHub:
    """All watches on one store, as far as one reach goes. The follower starts with the first of them."""

    def __init__(self, context: ServiceContext, store: CallerStore, reach: Reach) -> None:
        self._context = context
        self.store = store
        self.reach = reach
        self._streams: set[Stream] = set()
        self._opening = 0
        self._follower: Follower | None = None
        self._starting = asyncio.Lock()
        self._started = 0
        self._lost = 0
        self._reached = 0
        self._is_closed = False

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._streams)

    @property
    def is_idle(self) -> bool:
        """True when nobody watches, or is about to."""
        return not (self._streams or self._opening)

    async def _start(self) -> None:
        async with self._starting:
            if self._follower is not None or self._is_closed:
                return
            loop = asyncio.get_running_loop()

            def sink(events: Sequence[Event], reached: int) -> None:
                loop.call_soon_threadsafe(self._deliver, events, reached)

            # Why counted: a follower may be lost before it is assigned here, and would be taken for one that lives.
            self._started += 1
            number = self._started

            def lost(error: KeyplanError) -> None:
                loop.call_soon_threadsafe(self._lose, error, number)

            revision = await self._context.read(_revision, self.store.shown)
            self._reached = revision
            follower = await self._context.run(Follower, self.store.shown, after=revision, sink=sink, lost=lost)
            if self._lost < number:
                self._follower = follower

    def _deliver(self, events: Sequence[Event], reached: int) -> None:
        self._reached = max(self._reached, reached)
        for stream in self._streams:
            # Why looked at here: most batches concern few of many watches, and a task that wakes for nothing costs more.
            if any(event.key in stream.selection.range for event in events):
                stream.give(events, reached)

    def _lose(self, error: KeyplanError, number: int) -> None:
        """End every watch: its client begins again where it was, and finds the engine there again, or not."""
        self._lost = number
        self._follower = None
        for stream in self._streams:
            stream.end(self._told(error, stream))
        self._streams.clear()

    def _told(self, error: KeyplanError, stream: Stream) -> KeyplanError:
        """What a watch is told that is lost with all others. Why not denied: another one's keys may be what is gone."""
        if isinstance(error, AccessDeniedError) and self.store.reach().covering(stream.selection.range) is not None:
            return EngineUnavailableError(engine="watch", problem="what may be seen has changed; watch again")
        return error

    async def open(self, selection: Selection) -> tuple[Stream, int, list[Any]]:
        """Begin a watch. Return it, the store's revision, and what happened since its start.

        Raises HistoryCompactedError, EngineUnavailableError.
        """
        self._opening += 1
        try:
            return await self._opened(selection)
        finally:
            self._opening -= 1

    async def _opened(self, selection: Selection) -> tuple[Stream, int, list[Any]]:
        await self._start()
        stream = Stream(selection)
        now = await self._context.read(_revision, self.store.shown)
        stream.after = selection.start_revision - 1 if selection.start_revision else now
        # Invariant: what comes from here on is in the stream's queue; what came before is read from the history.
        reached = self._reached
        self._streams.add(stream)
        if self._follower is None and not self._is_closed:
            stream.end(EngineUnavailableError(engine="watch", problem="the store is being found again; watch again"))
        past: list[Any] = []
        try:
            if stream.after < reached:
                events = await self._past(stream, reached)
                past = selection.shown(events, after=stream.after)
                stream.after = reached
        except BaseException:
            # Why of any kind: a client that goes while its past is read cancels this, and nobody else knows of the stream.
            self.leave(stream)
            raise
        if self._is_closed:
            stream.end()
        return stream, now, past

    async def _past(self, stream: Stream, reached: int) -> list[Event]:
        """Return what a new watch has missed. Raises HistoryCompactedError."""
        look = partial(self._context.run, _history, self.store.shown)
        try:
            return await look(stream.after, reached, stream.selection.range)
        except HistoryCompactedError as error:
            # Why: clients begin at the revision that they have read, and have that; with what follows nothing is missing.
            if error.facts["compacted_revision"] != stream.after + 1:
                raise
            stream.after += 1
            return await look(stream.after, reached, stream.selection.range) if stream.after < reached else []

    def leave(self, stream: Stream) -> None:
        """Forget a watch; one that is not there is no error."""
        self._streams.discard(stream)

    async def close(self) -> None:
        """End every watch, and those that come."""
        self._is_closed = True
        for stream in self._streams:
            stream.end()
        if self._follower is not None:
            follower, self._follower = self._follower, None
            await asyncio.to_thread(follower.stop)


class Watches:
    """The watches of all callers: a hub for each store, and for each reach of it that one was opened in."""

    def __init__(self, context: ServiceContext, *, linger_seconds: float = _LINGER_SECONDS) -> None:
        self._context = context
        self._linger_seconds = linger_seconds
        self._hubs: dict[CallerStore, list[WatchHub]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return sum(hub.watches for hubs in self._hubs.values() for hub in hubs)

    async def open(self, store: CallerStore, selection: Selection) -> tuple[WatchHub, Stream, int, list[Any]]:
        """Begin a watch as `WatchHub.open` does; return its hub, too. Raises AccessDeniedError."""
        for _ in range(_REACH_ATTEMPTS):
            if not store.is_whole:
                await self._context.read(_look, store.engine, selection.range)
            reach = store.reach()
            hub = await self._hub(store, reach)
            try:
                stream, now, past = await hub.open(selection)
            except BaseException:
                self._rest(hub)
                raise
            # Why again: what the hub follows is what could be seen when it began, and all of the selection must be in it.
            if store.reach() is reach:
                return hub, stream, now, past
            self.leave(hub, stream)
        raise EngineUnavailableError(engine="watch", problem="what may be seen changes all the time")

    async def _hub(self, store: CallerStore, reach: Reach) -> WatchHub:
        hubs = self._hubs.setdefault(store, [])
        for hub in hubs:
            if hub.reach is reach:
                return hub
        hub = WatchHub(self._context, store, reach)
        hubs.append(hub)
        # Why the oldest: its watches are told to begin again, and find what may be seen now.
        oldest = hubs[:-_HUBS_OF_CALLER_MAX]
        del hubs[:-_HUBS_OF_CALLER_MAX]
        for one in oldest:
            await one.close()
        if self._is_closed:
            await hub.close()
        return hub

    def leave(self, hub: WatchHub, stream: Stream) -> None:
        """Forget a watch; with the last one of a caller who does not see everything goes its follower, a little later."""
        hub.leave(stream)
        self._rest(hub)

    def _rest(self, hub: WatchHub) -> None:
        if hub.is_idle and not hub.reach.is_everything:
            asyncio.get_running_loop().call_later(self._linger_seconds, self._let_go, hub)

    def _let_go(self, hub: WatchHub) -> None:
        hubs = self._hubs.get(hub.store, [])
        if not hub.is_idle or hub not in hubs:
            return
        hubs.remove(hub)
        if not hubs:
            del self._hubs[hub.store]
        ending = asyncio.create_task(hub.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End every watch, and those that come."""
        self._is_closed = True
        if self._ending:
            await asyncio.wait(self._ending)
        for hub in [hub for hubs in self._hubs.values() for hub in hubs]:
            await hub.close()


def _look(engine: Engine, key_range: KeyRange) -> None:
    """Raise AccessDeniedError when a part of a range may not be read now."""
    with engine.snapshot() as snapshot:
        next(iter(snapshot.keys(key_range, limit=1)), None)


def _revision(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.revision


def _history(engine: Engine, after: int, up_to: int, key_range: KeyRange) -> list[Event]:
    """Return the events after one revision up to another. Raises HistoryCompactedError when they are no longer known."""
    give_up_at = SYSTEM_CLOCK.monotonic() + _CATCH_UP_SECONDS_MAX
    found: list[Event] = []
    # Why all keys: only of a watch on all keys is it sure that it comes to reach the revision.
    watch = engine.watch(ALL_KEYS, after=after)
    try:
        while watch.revision < up_to:
            if SYSTEM_CLOCK.monotonic() > give_up_at:
                raise EngineUnavailableError(engine=engine.profile.name, problem="the history did not come")
            events = watch.poll(_CATCH_UP_POLL_SECONDS)
            found += [event for event in events if event.revision <= up_to and event.key in key_range]
    finally:
        watch.close()
    return found
