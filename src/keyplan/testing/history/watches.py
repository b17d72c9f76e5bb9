"""What the watches of a history brought, judged against its log: everything, once, in order, and in time."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from keyplan.engine import Event
from keyplan.errors import HistoryCompactedError
from keyplan.testing.history.clockwork import Patience, Times
from keyplan.testing.history.findings import Finding, Wrong, difference
from keyplan.testing.history.records import History, Watched
from keyplan.testing.history.replay import Replay

__all__ = ["watch_findings"]


def watch_findings(history: History, replay: Replay, times: Times, patience: Patience) -> Iterator[Finding]:
    """Yield what is wrong with the watches."""
    watches: defaultdict[tuple[str, int], list[Watched]] = defaultdict(list)
    for watched in history.watched:
        watches[watched.client, watched.watch].append(watched)
    for polls in watches.values():
        yield from _WatchCheck(history, replay, times, patience, polls[0]).findings(polls)


class _WatchCheck:
    """One watch, poll by poll: `_place` is where it stands."""

    def __init__(self, history: History, replay: Replay, times: Times, patience: Patience, first: Watched) -> None:
        self._history = history
        self._replay = replay
        self._times = times
        self._patience = patience
        self._place = first.after
        self._idle_until = first.after
        self._given_seconds: float | None = 0.0

    def findings(self, polls: Sequence[Watched]) -> Iterator[Finding]:
        for poll in polls:
            if poll.error:
                yield from self._ended(poll)
                continue
            yield from self._brought(poll)
            yield from self._withheld(poll)

    def _brought(self, poll: Watched) -> Iterator[Finding]:
        """Judge the events, and move on to where the watch says that it stands."""
        who = f"{poll.client}, watch {poll.watch}, from {self._place} to {poll.revision}"
        if poll.revision < self._place:
            yield Finding(Wrong.WATCH, f"{who}: it went backwards")
        expected = [event for event in self._between(self._place, poll.revision) if event.key in poll.range]
        # Why: a watch may begin before the log does, of which nothing is known.
        judged = [event for event in poll.events if event.revision > self._replay.first]
        if judged != expected:
            yield Finding(Wrong.WATCH, f"{who}: {difference(judged, expected)}")
        if poll.revision > self._times.ceiling(poll.end):
            yield Finding(Wrong.TIME, f"{who}: it stands at what was begun later")
        if poll.revision > self._place:
            self._place = poll.revision
            self._given_seconds = None if self._given_seconds is None else 0.0

    def _withheld(self, poll: Watched) -> Iterator[Finding]:
        """Find an event that was acknowledged before the poll began and that the watch, given its time, does not bring."""
        if self._given_seconds is None or poll.events or self._is_idle(poll, self._times.floor(poll.begin)):
            return
        self._given_seconds += poll.timeout_seconds
        if self._given_seconds >= self._patience.seconds:
            self._given_seconds = None  # told once
            who = f"{poll.client}, watch {poll.watch}, at {self._place}"
            yield Finding(
                Wrong.WATCH, f"{who}: it does not bring revision {self._idle_until + 1}, which was acknowledged"
            )

    def _is_idle(self, poll: Watched, until: int) -> bool:
        """Tell whether nothing in the watch's range was changed up to a revision. What was looked at once is passed over."""
        self._idle_until = max(self._idle_until, self._place, self._replay.first)
        while self._idle_until < until:
            events = self._replay.by_revision.get(self._idle_until + 1, ())
            if any(event.key in poll.range for event in events):
                return False
            self._idle_until += 1
        return True

    def _ended(self, poll: Watched) -> Iterator[Finding]:
        if poll.error != HistoryCompactedError.code or self._place < self._replay.first:
            return
        begun = [one.revision for one in self._history.compactions if one.begin <= poll.end]
        behind = self._times.ceiling(poll.end) - self._place
        if max(begun, default=0) <= self._place and behind <= self._patience.kept_revisions:
            who = f"{poll.client}, watch {poll.watch}"
            yield Finding(Wrong.COMPACTED, f"{who}: what follows revision {self._place} was said to be gone")

    def _between(self, after: int, until: int) -> Iterator[Event]:
        for revision in range(max(after, self._replay.first) + 1, until + 1):
            yield from self._replay.by_revision.get(revision, [])
