"""Who waits for which events. Lives in the event loop: a waiting client is a queue in a dictionary, not a thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from keyplan.server.etcd_v2.backfill import KEPT_BYTES_MAX, Counted
from keyplan.server.etcd_v2.records import EventRecord
from keyplan.server.etcd_v2.tree import ROOT, ancestors, is_hidden_below, is_within

__all__ = ["Hub", "Waiter"]

_UNREAD_EVENTS_MAX: Final = 100
"""etcd's own bound: a stream whose client reads more slowly is ended."""

_UNREAD_BYTES_MAX: Final = 32 << 20
"""The same for large values."""


class Waiter:
    """One waiting request: events of `path`, with `is_recursive` below it too, from number `since` on.

    Of events that `may_show` says no to it hears nothing: they count for it as if they were none.
    """

    def __init__(
        self,
        path: str,
        *,
        is_recursive: bool,
        is_stream: bool,
        since: int,
        may_show: Callable[[EventRecord], bool] | None = None,
    ) -> None:
        self.path = path
        self.is_stream = is_stream
        self._is_recursive = is_recursive
        self._since = since
        self._may_show = may_show
        self._unread: deque[EventRecord] = deque()
        self._unread_bytes = 0
        self._has_news = asyncio.Event()
        self._is_ended = False
        self._is_full = False

    def is_past(self, index: int) -> bool:
        """Tell whether nothing up to a number is waited for."""
        return self._since > index

    def takes(self, record: EventRecord) -> bool:
        """Tell whether the event is one that is waited for."""
        return record.index >= self._since and self._is_about(record) and (not self._may_show or self._may_show(record))

    def _is_about(self, record: EventRecord) -> bool:
        if record.path == self.path:
            return True
        if record.is_directory_end and is_within(self.path, record.path):
            return True
        return self._is_recursive and is_within(record.path, self.path) and not is_hidden_below(record.path, self.path)

    def give(self, record: EventRecord) -> bool:
        """Take an event in. Return False when nothing more is waited for."""
        self._since = record.index + 1
        self._unread.append(record)
        self._unread_bytes += len(record.body)
        is_more = len(self._unread) > 1 and self._unread_bytes > _UNREAD_BYTES_MAX
        self._is_full = not self.is_stream
        self._is_ended = self._is_ended or is_more or len(self._unread) > _UNREAD_EVENTS_MAX
        self._has_news.set()
        return not (self._is_ended or self._is_full)

    def end(self) -> None:
        """Let the request end with what there is."""
        self._is_ended = True
        self._has_news.set()

    def resume(self) -> None:
        """Want one more event, in the place of one that is not shown."""
        self._is_full = False

    async def next_event(self) -> EventRecord | None:
        """Return the next event; None at the end."""
        while not self._unread:
            if self._is_ended or self._is_full:
                return None
            self._has_news.clear()
            await self._has_news.wait()
        if self.is_stream and self._is_ended:
            return None  # Why: a client that was too slow must notice a gap, by the end of the answer.
        record = self._unread.popleft()
        self._unread_bytes -= len(record.body)
        return record


class Hub:
    """Waiters by path, and the events that are kept for those who ask about the past.

    Invariant: whoever waits is given every event that it waits for, or its wait ends. What was missed is found by the numbers
    in the States that are read, whoever wrote them: a gateway cannot know what others forgot.
    """

    def __init__(self, *, history_events: int) -> None:
        self._history_events = history_events
        self._kept: deque[EventRecord] = deque()
        self._kept_bytes = 0
        self._waiters: dict[str, set[Waiter]] = {}
        self._is_closed = False
        self.index = 0
        """The number up to which everything was told."""
        self.cleared = 0
        """The number up to which nobody can be told any more."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiters.values()))

    def wait(self, waiter: Waiter) -> bool:
        """Give a waiter what has happened already, and let it wait for the rest. False: events it asks for are forgotten."""
        if not waiter.is_past(self.cleared):
            return False
        for record in self._kept:
            if waiter.takes(record) and not waiter.give(record):
                return True
        if self._is_closed:
            waiter.end()
        else:
            self._waiters.setdefault(waiter.path, set()).add(waiter)
        return True

    def leave(self, waiter: Waiter) -> None:
        """Forget a waiter; one that is not there is no error."""
        found = self._waiters.get(waiter.path)
        if found is not None:
            found.discard(waiter)
            if not found:
                del self._waiters[waiter.path]

    def deliver(self, counted: Sequence[Counted]) -> None:
        """Tell the waiters of new events. Where events were forgotten before they came here, end the waits for them."""
        for each in counted:
            if each.index < self.index:
                # Why: the store was put back, and its numbers are given again; nobody knows which of them were told.
                self.end_waits()
                self._forget(each.index)
            elif each.cleared > self.index:
                self._forget(each.cleared)
            for record in each.records:
                if record.index > self.index:
                    self._tell(record)
            self.index = max(self.index, each.index)

    def _forget(self, cleared: int) -> None:
        self._kept.clear()
        self._kept_bytes = 0
        self.index = self.cleared = cleared
        for waiter in [waiter for waiters in self._waiters.values() for waiter in waiters]:
            if not waiter.is_past(cleared):
                waiter.end()
                self.leave(waiter)

    def _tell(self, record: EventRecord) -> None:
        self._kept.append(record)
        self._kept_bytes += len(record.body)
        while len(self._kept) > self._history_events or (self._kept_bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            oldest = self._kept.popleft()
            self._kept_bytes -= len(oldest.body)
            self.cleared = oldest.index
        for waiter in list(self._concerned(record)):
            if waiter.takes(record) and not waiter.give(record):
                self.leave(waiter)

    def _concerned(self, record: EventRecord) -> Iterator[Waiter]:
        for path in (ROOT, *ancestors(record.path), record.path):
            yield from self._waiters.get(path, ())
        if record.is_directory_end:
            for path, waiters in self._waiters.items():
                if is_within(path, record.path):
                    yield from waiters

    def end_waits(self) -> None:
        """End every wait, with an answer that holds no event."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.end()
        self._waiters.clear()

    def close(self) -> None:
        """End every wait, and those that come."""
        self._is_closed = True
        self.end_waits()
