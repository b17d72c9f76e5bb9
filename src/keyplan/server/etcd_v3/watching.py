"""Watches: one follower of the store, and for each stream a queue in the event loop that it is read from."""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Engine, Event, EventKind, KeyRange, Reach, Watch
from keyplan.errors import AccessDeniedError, EngineUnavailableError, HistoryCompactedError, KeyplanError
from keyplan.protobuf import EventType, FilterType
from keyplan.server.answers import AnswerError
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_member import Follower
from keyplan.server.etcd_v3.changes import beside_reserved
from keyplan.server.etcd_v3.messages import RECORDS, key_value
from keyplan.server.service import ServiceContext

__all__ = ["Selection", "Stream", "Unread", "WatchHub", "Watches"]

_UNREAD_BYTES_MAX: Final = 32 << 20
"""Why: etcd, too, ends the watch of a client that does not read. Values are counted, for they may be large."""

_EVENT_BYTES: Final = 200
"""What an event is counted as beside its keys and values."""

_REACH_ATTEMPTS: Final = 5
"""Why: what a caller may see does not change so often while a watch is opened."""

_LINGER_SECONDS: Final = 10.0
"""Why: who watches again at once is told by the follower that there is; who does not must not keep a thread for ever."""

_HUBS_OF_CALLER_MAX: Final = 4
"""Why: each keeps a thread, and who makes key spaces changes what they may see as often as they like."""

_CATCH_UP_POLL_SECONDS: Final = 0.05
_CATCH_UP_SECONDS_MAX: Final = 30.0

_FIRST_KEY: Final = b"\x00"


class Selection:
    """What one watch wants to be told of: not of keyplan's own keys, unless it wants nothing else."""

    def __init__(self, request: Any) -> None:
        """Read a create request, a record of the etcd table."""
        key, end = request.key or _FIRST_KEY, request.range_end
        # Why: without a key etcd watches from the first one on, where a range without a key is refused.
        selected = KeyRange.of_key(key) if not end else KeyRange(key, None if end == _FIRST_KEY else end)
        self.range: KeyRange = beside_reserved(selected)
        self.is_empty = bool(end) and end != _FIRST_KEY and end <= key
        self.watch_id: int = request.watch_id
        self.start_revision: int = request.start_revision
        self.has_progress: bool = request.progress_notify
        self.is_fragmented: bool = request.fragment
        self._has_previous: bool = request.prev_kv
        self._is_without_puts = FilterType.NOPUT in request.filters
        self._is_without_deletes = FilterType.NODELETE in request.filters

    def is_about(self, keys: Sequence[bytes]) -> bool:
        """Tell whether one of these keys, in order, is wanted."""
        at = bisect_left(keys, self.range.start)
        return at < len(keys) and keys[at] in self.range

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


class Unread:
    """How much has come for the watches of one client's stream that was not sent yet."""

    def __init__(self) -> None:
        self._bytes = 0
        self._batches = 0

    def add(self, number: int) -> None:
        """Count a batch of so many bytes."""
        self._bytes += number
        self._batches += 1

    def take(self, number: int) -> None:
        """Count it no more."""
        self._bytes -= number
        self._batches -= 1

    @property
    def is_too_much(self) -> bool:
        """True when the client does not read. Why not of one batch: it may be as large as it likes."""
        return self._bytes > _UNREAD_BYTES_MAX and self._batches > 1


class Stream:
    """One watch: what has come for it and was not sent yet, behind what the history still holds for it."""

    def __init__(self, selection: Selection, hub: "WatchHub", unread: Unread) -> None:
        self.selection = selection
        self.after = 0
        """Nothing of this revision, or of an earlier one, is told any more."""
        self.reached = 0
        """Everything up to this revision of the store was told."""
        self.error: KeyplanError | None = None
        self.is_ended = False
        self.past: Watch | None = None
        """Where it reads the history; None once it has caught up."""
        self._hub = hub
        self._unread: deque[tuple[Sequence[Event], int, int]] = deque()
        self._of_client = unread
        self._has_news = asyncio.Event()
        self._has_moved = asyncio.Event()

    async def reach(self, revision: int) -> None:
        """Wait until everything up to a revision was told, or the watch ends."""
        while self.reached < revision and not self.is_ended:
            self._has_moved.clear()
            await self._has_moved.wait()

    def _move(self, reached: int) -> None:
        self.reached = max(self.reached, reached)
        self._has_moved.set()

    def give(self, events: Sequence[Event], reached: int) -> None:
        """Take a batch in, of events that are wanted; end the watch when its client does not read."""
        if not events:
            if not self._unread:
                self._move(reached)
            return
        size = sum(map(_bytes_of, events))
        self._unread.append((events, reached, size))
        self._of_client.add(size)
        self._has_news.set()
        if self._of_client.is_too_much:
            self.end(EngineUnavailableError(engine="watch", problem="the client did not read"))

    def end(self, error: KeyplanError | None = None) -> None:
        """Let the stream end."""
        self.error = error
        self.is_ended = True
        for _, _, size in self._unread:
            self._of_client.take(size)
        self._unread.clear()
        self._has_news.set()
        self._has_moved.set()

    async def next_batch(self, timeout_seconds: float) -> tuple[list[Any], int] | None:
        """Return events and the revision they reach; no events when the time is over; None at the end."""
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while not self.is_ended:
            if self.past is not None:
                events = await self._hub.read_past(self, self.past)
            elif self._unread:
                unread, reached, size = self._unread.popleft()
                self._of_client.take(size)
                events = self.told(unread, reached)
            else:
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                self._has_news.clear()
                try:
                    await asyncio.wait_for(self._has_news.wait(), max(0.0, remaining))
                except TimeoutError:
                    return [], self.reached
                continue
            if events:
                return events, self.reached
        return None

    def told(self, events: Sequence[Event], reached: int) -> list[Any]:
        """Return what is wanted of a batch, as records, and count it as told."""
        shown = self.selection.shown(events, after=self.after)
        self.after = max(self.after, reached)
        self._move(reached)
        return shown


def _bytes_of(event: Event) -> int:
    values = sum(len(entry.value) for entry in (event.entry, event.previous) if entry is not None)
    return values + 2 * len(event.key) + _EVENT_BYTES


class WatchHub:
    """All watches on one store, as far as one reach goes. The follower starts with the first of them."""

    def __init__(self, context: ServiceContext, store: CallerStore, reach: Reach) -> None:
        self._context = context
        self.store = store
        self.reach = reach
        self._streams: set[Stream] = set()
        self._behind: set[Stream] = set()
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
        return len(self._streams) + len(self._behind)

    @property
    def is_idle(self) -> bool:
        """True when nobody watches, or is about to."""
        return not (self.watches or self._opening)

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
        # Why looked at here, by the order of keys: most batches concern few of many watches, and may be long.
        keys = sorted({event.key for event in events})
        for stream in self._streams:
            wanted: Sequence[Event] = ()
            if stream.selection.is_about(keys):
                wanted = [event for event in events if event.key in stream.selection.range]
            stream.give(wanted, self._reached)

    def _lose(self, error: KeyplanError, number: int) -> None:
        """End every watch: its client begins again where it was, and finds the engine there again, or not."""
        self._lost = number
        self._follower = None
        for stream in (*self._streams, *self._behind):
            stream.end(self._told(error, stream))
        self._streams.clear()

    def _told(self, error: KeyplanError, stream: Stream) -> KeyplanError:
        """What a watch is told that is lost with all others. Why not denied: another one's keys may be what is gone."""
        if isinstance(error, AccessDeniedError) and self.store.reach().covering(stream.selection.range) is not None:
            return EngineUnavailableError(engine="watch", problem="what may be seen has changed; watch again")
        return error

    async def open(self, selection: Selection, unread: Unread) -> tuple[Stream, int]:
        """Begin a watch. Return it and the store's revision; what happened since its start comes first.

        Raises HistoryCompactedError, EngineUnavailableError.
        """
        self._opening += 1
        try:
            return await self._opened(selection, unread)
        except AnswerError as error:
            raise _busy() from error
        finally:
            self._opening -= 1

    async def _opened(self, selection: Selection, unread: Unread) -> tuple[Stream, int]:
        await self._start()
        stream = Stream(selection, self, unread)
        now = max(await self._context.read(_revision, self.store.shown), self._reached)
        stream.after = selection.start_revision - 1 if selection.start_revision else now
        stream.reached = now
        if stream.after < self._reached:
            stream.reached = stream.after
            stream.past = await self._past_of(stream)
            self._behind.add(stream)
        else:
            self._streams.add(stream)
        if self._is_closed:
            stream.end()
        elif self._follower is None:
            stream.end(EngineUnavailableError(engine="watch", problem="the store is being found again; watch again"))
        return stream, now

    # ---- what a watch has missed ----------------------------------------------------------------------------------------

    async def _past_of(self, stream: Stream) -> Watch:
        """Return where a watch reads what it has missed. Raises HistoryCompactedError."""
        opening = asyncio.ensure_future(self._context.run(_watch_past, self.store.shown, stream.after))
        try:
            stream.after, past = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Why: a client that goes meanwhile cancels this, and nobody else would close what is opened.
            opening.add_done_callback(_close_opened)
            raise
        return past

    async def read_past(self, stream: Stream, past: Watch) -> list[Any]:
        """Return the next events that a watch has missed, a part of them; one that has caught up is told with all others.

        Why a part: the history may be longer than memory, and a client slower than it is read.
        """
        give_up_at = SYSTEM_CLOCK.monotonic() + _CATCH_UP_SECONDS_MAX
        before = past.revision
        try:
            events: Sequence[Event] = ()
            while past.revision == before < self._reached and not stream.is_ended:
                if SYSTEM_CLOCK.monotonic() > give_up_at:
                    raise EngineUnavailableError(engine=self._context.profile.name, problem="the history did not come")
                events = await self._context.run(past.poll, _CATCH_UP_POLL_SECONDS)
        except AnswerError:
            stream.end(_busy())
            return []
        except KeyplanError as error:
            stream.end(self._told(error, stream))
            return []
        shown = stream.told(events, past.revision)
        # Invariant: what the follower brings from here on is given to the stream; what came before it has read.
        if past.revision >= self._reached and not stream.is_ended:
            self._behind.discard(stream)
            self._streams.add(stream)
            self._end_past(stream)
        return shown

    def _end_past(self, stream: Stream) -> None:
        past, stream.past = stream.past, None
        if past is not None:
            asyncio.get_running_loop().run_in_executor(None, _close, past)

    def leave(self, stream: Stream) -> None:
        """Forget a watch; one that is not there is no error."""
        self._streams.discard(stream)
        self._behind.discard(stream)
        self._end_past(stream)

    async def close(self) -> None:
        """End every watch, and those that come."""
        self._is_closed = True
        for stream in (*self._streams, *self._behind):
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

    async def open(
        self, store: CallerStore, selection: Selection, unread: Unread | None = None
    ) -> tuple[WatchHub, Stream, int]:
        """Begin a watch as `WatchHub.open` does; return its hub, too. Raises AccessDeniedError.

        `unread` is that of all watches of one stream of a client; None for a watch that has its own.
        """
        unread = unread or Unread()
        for _ in range(_REACH_ATTEMPTS):
            if not store.is_whole:
                await self._context.read(_look, store.engine, selection.range)
            reach = store.reach()
            hub = await self._hub(store, reach)
            try:
                stream, now = await hub.open(selection, unread)
            except BaseException:
                self._rest(hub)
                raise
            # Why again: what the hub follows is what could be seen when it began, and all of the selection must be in it.
            if store.reach() is reach:
                return hub, stream, now
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


def _watch_past(engine: Engine, after: int) -> tuple[int, Watch]:
    """Return a watch of everything after a revision, and that revision. Raises HistoryCompactedError.

    Why of all keys: only of such a one is it sure that it comes to reach the present revision.
    """
    try:
        return after, engine.watch(ALL_KEYS, after=after)
    except HistoryCompactedError as error:
        # Why: clients begin at the revision that they have read, and have that; with what follows nothing is missing.
        if error.facts["compacted_revision"] != after + 1:
            raise
        return after + 1, engine.watch(ALL_KEYS, after=after + 1)


def _close_opened(opening: "asyncio.Future[tuple[int, Watch]]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, _close, opening.result()[1])


def _close(watch: Watch) -> None:
    with suppress(KeyplanError):  # Why: it ends either way, and nobody reads it any more.
        watch.close()


def _busy() -> EngineUnavailableError:
    return EngineUnavailableError(engine="watch", problem="the server has too much to do; watch again")
