"""Live changes: where their page is, and a watch as server-sent events, resumed by the id of the last event that was read.

Events are `open`, `inserted`, `changed`, `removed`, `damaged` (a record that cannot be read) and `here` (nothing new); at the
end `closing` (the server stops: come back), `compacted` (the history is gone: list again) or `failed`. Their data is JSON.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from keyplan.codec import MASK
from keyplan.engine import Event, EventKind, KeyRange, Watch
from keyplan.errors import CorruptionError, HistoryCompactedError, InvalidArgumentError, KeyplanError
from keyplan.layout import (
    BoundIndex,
    BoundTable,
    Change,
    Changes,
    line_of_value,
    plain_key,
    plain_value,
    prefix_of_words,
    shown_key,
)
from keyplan.server.answers import AnswerError
from keyplan.server.closing import Closing
from keyplan.server.explorer.answers import LivePage
from keyplan.server.explorer.areas import Area, Areas
from keyplan.server.explorer.bounds import (
    RECORD_BYTES_MAX,
    STREAMS_MAX,
    STREAMS_OF_CALLER_MAX,
    SUMMARY_CHARACTERS_MAX,
    VALUE_BYTES_MAX,
)
from keyplan.server.explorer.raw_keys import raw_crumbs
from keyplan.server.explorer.trees import ItemRequest, place_of
from keyplan.server.places import Full, Places
from keyplan.store import Store

__all__ = ["LiveAnswer", "LiveSource", "LiveStreams", "RawSource", "TypedSource", "live_page", "raw_live_page"]

_WAIT_SECONDS: Final = 15.0
"""Why: proxies cut what is silent for longer; a connection that is gone is noticed when something is sent."""

_COME_BACK_MILLISECONDS: Final = 2_000

_FULL: Final = {
    Full.OF_ONE: "you have as many live views as one may have; close one",
    Full.OF_ALL: "there are as many live views as this server has; close one",
}


# ---- the pages ---------------------------------------------------------------------------------------------------------


def live_page(areas: Areas, asked: ItemRequest) -> LivePage:
    """Return where the changes of records are told. Raises UnknownNameError, InvalidKeyError."""
    area, place = place_of(areas, asked)
    return LivePage(
        area=area.name,
        place=place,
        prefix="",
        crumbs=place.crumbs,
        revision=_revision(area),
        stream=area.links.changes(asked.layout, asked.item, asked.words),
        list_href=place.list_href,
    )


def raw_live_page(areas: Areas, area_name: str, prefix: bytes) -> LivePage:
    """Return where the changes of raw keys are told. Raises KeySpaceNotFoundError, KeySpaceDeletedError."""
    area = areas.named(area_name)
    return LivePage(
        area=area.name,
        place=None,
        prefix=shown_key(prefix),
        crumbs=raw_crumbs(area, prefix),
        revision=_revision(area),
        stream=area.links.raw_changes(prefix),
        list_href=area.links.raw(prefix),
    )


def _revision(area: Area) -> int:
    with area.engine.snapshot() as snapshot:
        return snapshot.revision


# ---- what happened -----------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """One server-sent event. An empty id leaves the place where it was."""

    event: str
    id: str
    data: Any

    def encoded(self) -> bytes:
        """As it is sent."""
        head = f"event: {self.event}\n" + (f"id: {self.id}\n" if self.id else "")
        # Invariant: JSON as msgspec writes it is one line.
        return head.encode() + b"data: " + msgspec.json.encode(self.data) + b"\n\n"


class LiveSource(Protocol):
    """A watch that tells what happened. Used by one thread at a time, but for `close`."""

    @property
    def place(self) -> str:
        """The id behind all that was told."""
        ...

    def wait(self, seconds: float) -> Sequence[Told]:
        """Wait at most so long, and return what happened. Raises CorruptionError in the place of a record, EngineError."""
        ...

    def close(self) -> None:
        """End it, from any thread."""
        ...


class TypedSource:
    """The changes of the records of a table, or of those that have entries of an index."""

    def __init__(self, areas: Areas, asked: ItemRequest, *, after: str) -> None:
        """Begin behind a token; empty: now.

        Raises UnknownNameError, InvalidKeyError, InvalidWatchTokenError, HistoryCompactedError, UnsupportedByEngineError.
        """
        self._area = areas.named(asked.area)
        item = self._area.listable(asked.layout, asked.item)
        self._table = item.table if isinstance(item, BoundIndex) else item
        prefix = prefix_of_words(item.keys, asked.words)
        self._changes: Changes[object, object] = _view(self._area, item).watch(*prefix, after=after or None)

    @property
    def place(self) -> str:
        return self._changes.token

    def wait(self, seconds: float) -> Sequence[Told]:
        return [self._told(change) for change in self._changes.poll(seconds)]

    def close(self) -> None:
        self._changes.close()

    def _told(self, change: Change[object, object]) -> Told:
        keys = self._table.keys
        raw_key = keys.encode(change.key)
        new = plain_value(change.new)
        data = {
            "kind": change.kind.value,
            "key": shown_key(raw_key),
            "fields": plain_key(keys, change.key),
            "href": self._area.links.key(raw_key),
            "revision": change.revision,
            "summary": line_of_value(new)[:SUMMARY_CHARACTERS_MAX],
            "old": _bounded(plain_value(change.old)),
            "new": _bounded(new),
        }
        return Told(change.kind.value, change.token, data)


class RawSource:
    """The changes of raw keys below a prefix. Ids are revisions."""

    _KINDS: Final = {EventKind.CREATED: "inserted", EventKind.UPDATED: "changed", EventKind.DELETED: "removed"}

    def __init__(self, areas: Areas, area_name: str, prefix: bytes, *, after: str) -> None:
        """Begin behind a revision; empty: now. Raises InvalidArgumentError, HistoryCompactedError, UnsupportedByEngineError."""
        if after and not (after.isascii() and after.isdigit() and len(after) <= 19):
            raise InvalidArgumentError(argument="after", problem="it is the revision of an event")
        self._areas, self._area = areas, areas.named(area_name)
        begin = int(after) if after else _revision(self._area)
        self._watch: Watch = self._area.engine.watch(KeyRange.of_prefix(prefix), after=begin)

    @property
    def place(self) -> str:
        return str(self._watch.revision)

    def wait(self, seconds: float) -> Sequence[Told]:
        events = self._watch.poll(seconds)
        return list(self._told(events))

    def close(self) -> None:
        self._watch.close()

    def _told(self, events: Sequence[Event]) -> Iterator[Told]:
        for number, event in enumerate(events, start=1):
            # Why: whoever comes back after a revision gets none of it again, so only its last event may have its id.
            is_last = number == len(events) or events[number].revision != event.revision
            value = b"" if event.entry is None else event.entry.value[:VALUE_BYTES_MAX]
            shown = MASK if value and self._areas.is_masked(self._area, event.key) else shown_key(value)
            kind = self._KINDS[event.kind]
            data = {
                "kind": kind,
                "key": shown_key(event.key),
                "fields": {},
                "href": self._area.links.key(event.key),
                "revision": event.revision,
                "summary": shown[:SUMMARY_CHARACTERS_MAX],
                "old": None,
                "new": None if event.entry is None else shown,
            }
            yield Told(kind, str(event.revision) if is_last else "", data)


def _view(area: Area, item: BoundTable | BoundIndex) -> Any:
    """The operations on an item. Why not the layout's: its class may not be there, only its description."""
    store = Store(area.engine)
    if isinstance(item, BoundTable):
        return store.table_view(item)
    return store.unique_view(item) if item.spec.is_unique else store.index_view(item)


def _bounded(plain: object) -> object:
    return plain if len(msgspec.json.encode(plain)) <= RECORD_BYTES_MAX else None


# ---- streams -----------------------------------------------------------------------------------------------------------


class LiveStreams:
    """All live views of a server: each has a thread that waits for its watch, and there are not more than so many.

    Nor more than so many of one caller, who would be told else how many the others have.
    """

    def __init__(
        self, closing: Closing, *, streams_max: int = STREAMS_MAX, of_caller_max: int = STREAMS_OF_CALLER_MAX
    ) -> None:
        self._closing = closing
        self._places = Places(streams_max, of_caller_max)

    @property
    def number(self) -> int:
        """How many there are now."""
        return self._places.number

    async def open(self, begin: Callable[[], LiveSource], *, who: str) -> "LiveAnswer":
        """Begin a watch for somebody and return the answer that tells of it.

        Raises AnswerError (503 `overloaded`) when there are too many, and what `begin` raises.
        """
        full = self._places.take(who)
        if full is not None:
            raise AnswerError(503, "overloaded", _FULL[full], headers={"Retry-After": "30"})
        thread = ThreadPoolExecutor(1, thread_name_prefix="keyplan-live")
        try:
            source = await asyncio.get_running_loop().run_in_executor(thread, begin)
        except BaseException:
            self._ended(thread, who)
            raise
        return LiveAnswer(source, thread, self._closing, lambda: self._ended(thread, who))

    def _ended(self, thread: ThreadPoolExecutor, who: str) -> None:
        self._places.leave(who)
        thread.shutdown(wait=False)


class LiveAnswer(StreamingResponse):
    """A watch as server-sent events, until its client goes, the server stops or the watch fails."""

    media_type = "text/event-stream"

    def __init__(
        self, source: LiveSource, thread: ThreadPoolExecutor, closing: Closing, on_end: Callable[[], object]
    ) -> None:
        # Why no buffering: a proxy that collects an answer before passing it on would keep it for ever.
        super().__init__(self.events(), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._source = source
        self._thread = thread
        self._closing = closing
        self._on_end: Callable[[], object] | None = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events; close the watch when that ends, however it does."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.close()

    def close(self) -> None:
        """End the watch. Closing twice is harmless."""
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            with suppress(KeyplanError):
                self._source.close()
            on_end()

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events as they are sent."""
        yield f"retry: {_COME_BACK_MILLISECONDS}\n".encode()
        yield Told("open", self._source.place, {"place": self._source.place}).encoded()
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while not self._closing.is_set:
                poll = asyncio.get_running_loop().run_in_executor(self._thread, self._source.wait, _WAIT_SECONDS)
                poll.add_done_callback(_forget)
                waiting: set[asyncio.Future[Any]] = {poll, closing}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if not poll.done():
                    break
                try:
                    found = poll.result()
                except CorruptionError as error:
                    yield Told("damaged", self._source.place, _facts(error)).encoded()
                    continue
                except KeyplanError as error:
                    event = "compacted" if isinstance(error, HistoryCompactedError) else "failed"
                    yield Told(event, "", _facts(error)).encoded()
                    return
                if found:
                    yield b"".join(told.encoded() for told in found)
                else:
                    yield Told("here", self._source.place, {"place": self._source.place}).encoded()
            yield Told("closing", "", {}).encoded()
        finally:
            closing.cancel()


def _forget(poll: "asyncio.Future[Any]") -> None:
    """Look at how a wait ended that nobody waits for any more: a watch that was closed under it fails."""
    if not poll.cancelled():
        poll.exception()


def _facts(error: KeyplanError) -> dict[str, Any]:
    return {"code": error.code, "message": error.summary, "detail": error.plain_facts()}
