"""A watch that outlives connections, servers and leaders, and says so when the history it needs is gone.

It is a stream of one server, and the revision up to which everything was delivered. A stream that breaks is opened again at
another server, from that revision. Two things need care:

- Debian's etcd 3.4.23 can lose deletes when a watch begins exactly at the compacted revision. A watch here begins after a
  revision that can still be read, and looks again, before it hands on what came out of the history, whether it still can.
- A range in which nothing happens brings no messages, so that the watch would stay behind while the store moves on. From time
  to time it asks how far the store is, and then either asks the server for progress, or, where the answer might overtake
  events (before 3.4.25 and 3.5.8), reads the changes of all keys up to there in a `Sweep`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.etcd.client import FIRST_KEY, EtcdClient
from keyplan.engine.etcd.failures import NAME, WENT_BACK, refusal
from keyplan.engine.etcd.ranges import etcd_range
from keyplan.engine.etcd.sweep import Sweep
from keyplan.engine.etcd.transactions import entry_of
from keyplan.engine.etcd.transport import Message, Stream, TransportError, messages
from keyplan.engine.interface import Event, EventKind, KeyRange
from keyplan.errors import EngineRefusedError, EngineUnavailableError, HistoryCompactedError, KeyplanError

__all__ = ["EtcdWatch", "compacted_revision"]

_CREATED_SECONDS_MAX: Final = 3.0
"""A server that has not confirmed a watch in this time is left."""
_CALL_SECONDS_MAX: Final = 1.0
"""What a poll may spend on one question beside its own time."""
_LOOK_SECONDS_FIRST: Final = 0.2
_LOOK_SECONDS_MAX: Final = 5.0
"""Why: a quiet watch costs its cluster one small read in five seconds, and notices in that time that its server is stuck."""
_SWEEP_REVISIONS_MAX: Final = 10_000
"""Why: so many revisions are replayed in a second; a watch that is farther behind waits for etcd's own notices."""
_POLL_EVENTS_MAX: Final = 1_000
"""A poll ends after the response that brings it to this many events. Why: a resumed watch must not build one huge list."""
_BEHIND_SECONDS_FIRST: Final = 3.0
_BEHIND_SECONDS_MAX: Final = 300.0
"""How long a stream may be known to be behind before it is left. Why it doubles with each one that is: a server that needs ten
seconds to read what a large revision replaced would otherwise begin again for ever, and never bring it."""
_SLICE_SECONDS: Final = 0.02
_PAUSE_SECONDS_FIRST: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0
_PATIENCE_SECONDS: Final = 60.0
"""A watch that found no server for so long says so in a poll, and goes on with the next one."""

_DELETE: Final = 1
"""etcd's number for the event that a key is gone; the other one is a put."""


class EtcdWatch:
    """One range, from one revision on. Made by `open`, which raises when the history is gone or no server answers."""

    def __init__(self, client: EtcdClient, key_range: KeyRange, after: int) -> None:
        self._client = client
        self._range = key_range
        # Why: nothing can be in an empty range; it is watched like a key, and every event left out.
        self._limits = etcd_range(key_range) or (FIRST_KEY, b"")
        self._revision = after
        self._epoch = client.sightings.epoch
        self._is_reached = client.sightings.has_seen(after)  # the store has come as far as the watch stands
        self._is_closed = False
        self._stream: Stream | None = None
        self._endpoint = ""
        self._is_created = False
        self._is_verified = False  # since the stream was opened, the history was looked at after events had come
        self._fragments: list[Message] = []
        self._created_until = 0.0
        self._reopen_at = 0.0
        self._pause_seconds = _PAUSE_SECONDS_FIRST
        self._broken_since: float | None = None
        self._look_at = 0.0
        self._look_seconds = _LOOK_SECONDS_FIRST
        self._is_asked_for_progress = False
        self._expected = 0  # a sweep has seen an event of this revision that the stream has not brought yet
        self._behind_until = 0.0
        self._behind_seconds = _BEHIND_SECONDS_FIRST
        self._sweep: Sweep | None = None  # Invariant: it began where the watch stands.

    def open(self, timeout_seconds: float) -> None:
        """Begin. Raises HistoryCompactedError, EngineRefusedError, EngineUnavailableError."""
        give_up_at = _now() + timeout_seconds
        while not self._is_created:
            self._check_open()
            remaining = give_up_at - _now()
            if remaining <= 0:
                raise EngineUnavailableError(engine=NAME, problem="no server has confirmed the watch in time")
            # Why nothing is lost: what comes before the confirmation is none of the watch's events.
            self._step(remaining)

    @property
    def revision(self) -> int:
        return self._revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        give_up_at = _now() + timeout_seconds
        while True:
            self._check_open()
            try:
                events = self._step(max(give_up_at - _now(), 0))
            except KeyplanError:
                self._drop_stream()  # so that the next poll finds the same, if it is still so
                raise
            if events:
                return self._with_more(events)
            if _now() >= give_up_at:
                return []

    def _with_more(self, events: list[Event]) -> list[Event]:
        """Add what has come already, up to some number. Why: a watch that is behind catches up in a few polls."""
        try:
            while len(events) < _POLL_EVENTS_MAX and self._stream is not None:
                response = self._stream.receive(0)
                if response is None:
                    break
                events += self._take(response)
        except (KeyplanError, TransportError):
            self._drop_stream()  # Why not raised: these events were taken; the next poll finds the same, if it is still so
        return events

    def close(self) -> None:
        self._is_closed = True
        if self._client.is_foreign:
            return
        stream, sweep = self._stream, self._sweep
        if stream is not None:
            stream.close()
        if sweep is not None:
            sweep.close()

    def _check_open(self) -> None:
        self._client.check_open()
        if self._is_closed:
            raise EngineUnavailableError(engine=NAME, problem="the watch was closed")
        if self._client.sightings.epoch != self._epoch:
            raise HistoryCompactedError(revision=self._revision, compacted_revision=0, problem=WENT_BACK)

    # ---- one step --------------------------------------------------------------------------------------------------------

    def _step(self, seconds: float) -> list[Event]:
        """Wait at most so long for one thing to happen, and return the events that are complete with it."""
        try:
            if self._stream is None:
                self._wait_and_open(seconds)
                return []
            response = self._stream.receive(min(seconds, self._seconds_to_wait()))
            events = self._take(response) if response is not None else []
            if not events:
                self._attend()
        except TransportError as failure:
            self._break(failure)
            return []
        return events

    def _seconds_to_wait(self) -> float:
        if self._sweep is not None:
            return _SLICE_SECONDS
        return max(self._look_at - _now(), 0.0) if self._is_created else max(self._created_until - _now(), 0.0)

    def _wait_and_open(self, seconds: float) -> None:
        wait_seconds = self._reopen_at - _now()
        if wait_seconds > 0:
            self._client.transport.wait(min(seconds, wait_seconds, _SLICE_SECONDS))
            return
        try:
            # Why before each stream: it also renews the token, which a watch is refused for without a reason.
            self._verify(self._revision)
            endpoint, stream = self._client.watch_stream()
        except EngineUnavailableError as error:
            self._check_open()
            raise TransportError("UNAVAILABLE", str(error.facts["problem"])) from error
        self._endpoint, self._stream = endpoint, stream
        self._is_created = self._is_verified = False
        self._created_until = _now() + _CREATED_SECONDS_MAX
        request = messages.WatchRequest()
        create = request.create_request
        create.key, create.range_end = self._limits
        create.start_revision = max(self._revision, 1) + 1
        create.progress_notify = create.prev_kv = create.fragment = True
        stream.send(request)
        if self._is_closed:
            stream.close()

    def _verify(self, revision: int) -> None:
        """Raise HistoryCompactedError when what came after `revision` is not kept in full any more."""
        is_kept = self._client.can_read_at(revision, self._limits[0], timeout_seconds=_CALL_SECONDS_MAX)
        # Why: what is yet to come is waited for; what was there before, and is yet to come again, was lost.
        if is_kept is False or (is_kept is None and self._is_reached):
            raise self._compacted()
        self._is_reached = self._is_reached or is_kept is True

    def _compacted(self) -> HistoryCompactedError:
        return HistoryCompactedError(revision=self._revision, compacted_revision=compacted_revision(self._client))

    def _break(self, failure: TransportError) -> None:
        """Leave the stream and its server, and try another one in a moment."""
        self._check_open()
        if self._stream is not None:
            self._client.leave(self._endpoint)
        self._drop_stream()
        now = _now()
        self._reopen_at = now + self._pause_seconds
        self._pause_seconds = min(self._pause_seconds * 2, _PAUSE_SECONDS_MAX)
        if self._broken_since is None:
            self._broken_since = now
        elif now - self._broken_since > _PATIENCE_SECONDS:
            self._broken_since = None
            problem = f"the watch has found no server for {_PATIENCE_SECONDS:g} s; the last one: {failure.details}"
            raise EngineUnavailableError(engine=NAME, problem=problem)

    def _drop_stream(self) -> None:
        """Forget the stream and what it has brought in part. The next step opens another one."""
        if self._stream is not None:
            self._stream.close()
        self._end_sweep()
        self._stream = None
        self._fragments.clear()
        self._expected = 0
        self._is_asked_for_progress = False

    # ---- what comes ------------------------------------------------------------------------------------------------------

    def _take(self, response: Message) -> list[Event]:
        if response.canceled:
            raise self._cancelled(response)
        if response.created:
            self._is_created = True
            self._broken_since = None
            self._look_soon()
            return []
        if not response.events:
            # A notice of progress: everything up to its revision has been sent.
            self._is_asked_for_progress = False
            self._pause_seconds = _PAUSE_SECONDS_FIRST
            self._behind_seconds = _BEHIND_SECONDS_FIRST
            if not self._fragments:
                self._move_to(int(response.header.revision))
            return []
        self._fragments += response.events
        if response.fragment:
            self._behind_until = _now() + self._behind_seconds  # it is under way
            return []
        raw, self._fragments = self._fragments, []
        return self._deliver(raw, int(response.header.revision))

    def _deliver(self, raw: Sequence[Message], store_revision: int) -> list[Event]:
        last = max(event.kv.mod_revision for event in raw)
        # Why: a live stream brings one revision at a time; the rest comes out of the history, which may be compacted meanwhile.
        if not self._is_verified or store_revision > last or raw[0].kv.mod_revision != last:
            self._verify_or_break(self._revision)
            self._is_verified = True
        events = [
            self._event(event)
            for event in raw
            if event.kv.mod_revision > self._revision and event.kv.key in self._range
        ]
        events.sort(key=_place)
        self._move_to(last)
        self._pause_seconds = _PAUSE_SECONDS_FIRST
        self._behind_seconds = _BEHIND_SECONDS_FIRST
        self._look_soon()
        return events

    def _verify_or_break(self, revision: int) -> None:
        try:
            self._verify(revision)
        except EngineUnavailableError as error:
            raise TransportError("UNAVAILABLE", str(error.facts["problem"])) from error

    def _event(self, event: Message) -> Event:
        pair = event.kv
        is_deleted = event.type == _DELETE
        previous = entry_of(event.prev_kv) if event.HasField("prev_kv") else None
        if previous is None and (is_deleted or pair.version > 1):
            # Why: etcd reads the previous value when it sends, and leaves it out when that was compacted.
            self._verify_or_break(pair.mod_revision - 1)
        if is_deleted:
            return Event(EventKind.DELETED, pair.key, pair.mod_revision, None, previous)
        kind = EventKind.CREATED if pair.version == 1 else EventKind.UPDATED
        return Event(kind, pair.key, pair.mod_revision, entry_of(pair), previous)

    def _cancelled(self, response: Message) -> Exception:
        """Return why the server has ended the watch."""
        if response.compact_revision:
            return HistoryCompactedError(revision=self._revision, compacted_revision=int(response.compact_revision))
        reason = str(response.cancel_reason)
        if "permission denied" in reason or "PermissionDenied" in reason:
            # Why: with a token that is too old, a watch is refused in the same words; the next one gets a new token.
            self._client.renew_token()
            return refusal(TransportError("PERMISSION_DENIED", reason))
        return TransportError("UNAVAILABLE", reason or "the server has ended the watch")

    def _move_to(self, revision: int) -> None:
        self._is_reached = self._is_reached or revision >= self._revision
        if revision > self._revision:
            self._revision = revision
            # Why: where a sweep began is behind the watch now, and may be compacted though nothing is missing here.
            self._end_sweep()

    # ---- what is looked after while nothing comes --------------------------------------------------------------------------

    def _look_soon(self) -> None:
        self._look_seconds = _LOOK_SECONDS_FIRST
        self._look_at = _now() + _LOOK_SECONDS_FIRST

    def _attend(self) -> None:
        """Do what is due. Raises TransportError when the stream is to be left."""
        now = _now()
        if not self._is_created:
            if now >= self._created_until:
                raise TransportError("DEADLINE_EXCEEDED", "the server has not confirmed the watch")
        elif self._sweep is not None:
            self._go_on_sweeping(self._sweep)
        elif self._is_asked_for_progress and now >= self._behind_until:
            self._wait_for_what_is_missing("the server does not tell its progress")
        elif now >= self._look_at:
            self._look()

    def _look(self) -> None:
        """See how far the store is, and find out whether anything of it is missing here."""
        if self._expected > self._revision:
            self._wait_for_what_is_missing("the stream has not brought an event that others have seen")
            return
        self._look_seconds = min(self._look_seconds * 2, _LOOK_SECONDS_MAX)
        try:
            revision = self._client.revision(self._limits[0], timeout_seconds=_CALL_SECONDS_MAX)
            if revision < self._revision and self._is_reached:
                raise self._compacted()
            if revision > self._revision:
                self._ask_for_progress(revision)
        except EngineUnavailableError:
            self._check_open()  # an election, perhaps; the stream tells when its server is gone
        except EngineRefusedError:
            pass  # not allowed to read; etcd's own notices of progress have to do
        self._look_at = _now() + self._look_seconds

    def _wait_for_what_is_missing(self, problem: str) -> None:
        """Let a stream that is behind go on. Raises TransportError when it has had its time."""
        if _now() >= self._behind_until:
            self._behind_seconds = min(self._behind_seconds * 2, _BEHIND_SECONDS_MAX)
            raise TransportError("DEADLINE_EXCEEDED", problem)
        self._look_at = self._behind_until

    def _ask_for_progress(self, revision: int) -> None:
        assert self._stream is not None
        if self._client.has_ordered_progress:
            request = messages.WatchRequest()
            request.progress_request.SetInParent()
            self._stream.send(request)
            if not self._is_asked_for_progress:
                self._is_asked_for_progress = True
                self._behind_until = _now() + self._behind_seconds
        elif revision - self._revision <= _SWEEP_REVISIONS_MAX:
            self._sweep = Sweep(self._client, self._range, after=self._revision, until=revision)

    def _go_on_sweeping(self, sweep: Sweep) -> None:
        try:
            is_over = sweep.has_ended()
        except (TransportError, EngineUnavailableError):
            self._check_open()
            is_over = True  # it is only a way to know more; the next look begins another one
        if is_over:
            # Why: a sweep that began where the history ends by now may have been brought less than everything.
            self._verify_or_break(self._revision)
            # Why safe: the sweep has seen every change up to there, and none of them is in the range.
            self._move_to(sweep.clean_until)
            self._expected = sweep.expected
            self._behind_until = _now() + self._behind_seconds
            self._end_sweep()
            self._look_at = _now() + self._look_seconds

    def _end_sweep(self) -> None:
        if self._sweep is not None:
            self._sweep.close()
            self._sweep = None


def _place(event: Event) -> tuple[int, bytes]:
    return event.revision, event.key


def compacted_revision(client: EtcdClient) -> int:
    """Return the newest revision that was compacted; 0 when there is none, or no server tells in time.

    Why by a watch: it is the one answer of etcd that carries this number.
    """
    give_up_at = _now() + _CALL_SECONDS_MAX
    try:
        _, stream = client.watch_stream()
    except (TransportError, EngineUnavailableError):
        return 0
    try:
        request = messages.WatchRequest()
        request.create_request.key, request.create_request.start_revision = FIRST_KEY, 1
        stream.send(request)
        return _first(stream, give_up_at, lambda response: int(response.compact_revision))
    except TransportError:
        return 0
    finally:
        stream.close()


def _first(stream: Stream, give_up_at: float, read: Callable[[Message], int]) -> int:
    """Return the first number that is not 0 in what a stream brings in time."""
    while (remaining := give_up_at - _now()) > 0:
        response = stream.receive(remaining)
        if response is not None and (found := read(response)):
            return found
    return 0


_now = SYSTEM_CLOCK.monotonic
