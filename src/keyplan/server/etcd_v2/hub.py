"""Who waits for which events. Lives in the event loop: a waiting client is a queue in a dictionary, not a thread."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.server.etcd_v2.records import EventRecord
from keyplan.server.etcd_v2.tree import ROOT, ancestors, is_hidden_below, is_within

__all__ = ["Hub", "Waiter"]

_UNREAD_EVENTS_MAX: Final = 100
"""etcd's own bound: a stream whose client reads more slowly is ended."""


class Waiter:
    """One waiting request: events of `path`, with `is_recursive` below it too, from number `since` on."""

    def __init__(self, path: str, *, is_recursive: bool, is_stream: bool, since: int) -> None:
        self.path = path
        self.is_stream = is_stream
        self._is_recursive = is_recursive
        self._since = since
        self._unread: deque[str] = deque()
        self._has_news = asyncio.Event()
        self._is_ended = False

    def takes(self, record: EventRecord) -> bool:
        """Tell whether the event is one that is waited for."""
        if record.index < self._since:
            return False
        if record.path == self.path:
            return True
        if record.is_directory_end and is_within(self.path, record.path):
            return True
        return self._is_recursive and is_within(record.path, self.path) and not is_hidden_below(record.path, self.path)

    def give(self, record: EventRecord) -> bool:
        """Take an event in. Return False when nothing more is waited for."""
        self._since = record.index + 1
        self._unread.append(record.body)
        if not self.is_stream or len(self._unread) > _UNREAD_EVENTS_MAX:
            self._is_ended = True
        self._has_news.set()
        return not self._is_ended

    def end(self) -> None:
        """Let the request end with what there is."""
        self._is_ended = True
        self._has_news.set()

    async def next_body(self) -> str | None:
        """Return the next event's JSON; None at the end."""
        while not self._unread:
            if self._is_ended:
                return None
            self._has_news.clear()
            await self._has_news.wait()
        if self.is_stream and self._is_ended:
            return None  # Why: a client that was too slow must notice a gap, by the end of the answer.
        return self._unread.popleft()


class Hub:
    """Waiters by path, and the events that are kept for those who ask about the past."""

    def __init__(self, *, history_events: int) -> None:
        self._kept: deque[EventRecord] = deque(maxlen=history_events)
        self._waiters: dict[str, set[Waiter]] = {}
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiters.values()))

    def wait(self, waiter: Waiter) -> None:
        """Give a waiter what has happened already, and let it wait for the rest."""
        for record in self._kept:
            if waiter.takes(record) and not waiter.give(record):
                return
        if self._is_closed:
            waiter.end()
            return
        self._waiters.setdefault(waiter.path, set()).add(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Forget a waiter; one that is not there is no error."""
        found = self._waiters.get(waiter.path)
        if found is not None:
            found.discard(waiter)
            if not found:
                del self._waiters[waiter.path]

    def deliver(self, records: Sequence[EventRecord]) -> None:
        """Tell the waiters of new events."""
        for record in records:
            if self._kept and record.index <= self._kept[-1].index:
                continue
            self._kept.append(record)
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
