"""A server that is slow to bring a large revision brings it all the same: a watch that is behind does not begin for ever."""

import pytest

from keyplan.engine import ALL_KEYS, Event
from keyplan.engine.etcd import watch
from keyplan.engine.etcd.client import EtcdClient
from keyplan.engine.etcd.lineage import Sightings
from keyplan.engine.etcd.transport import Message, messages
from keyplan.engine.etcd.watch import EtcdWatch

REVISION = 68
LATEST = 70


class Time:
    """A clock that moves on by what is waited."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class SlowStream:
    """Confirms a watch at once, and brings its one large revision so many seconds later."""

    def __init__(self, time: Time, seconds: float) -> None:
        self._time = time
        self._ready_at = time.now + seconds
        self._came = 0

    def send(self, request: object) -> None:
        pass

    def receive(self, timeout_seconds: float) -> Message | None:
        if self._came == 0:
            self._came = 1
            return messages.WatchResponse(created=True)
        if self._came == 1 and self._time.now >= self._ready_at:
            self._came = 2
            return self._large_revision()
        self._time.now += max(timeout_seconds, 0.001)
        return None

    def _large_revision(self) -> Message:
        response = messages.WatchResponse()
        response.header.revision = REVISION
        event = response.events.add()
        event.kv.key, event.kv.version = b"a", 1
        event.kv.mod_revision = event.kv.create_revision = REVISION
        return response

    def close(self) -> None:
        pass


class SlowServer:
    """The part of a client that a watch asks, in front of a server that needs `seconds` for each stream."""

    def __init__(self, time: Time, seconds: float, *, has_ordered_progress: bool) -> None:
        self._time = time
        self._seconds = seconds
        self.has_ordered_progress = has_ordered_progress
        self.transport = self
        self.sightings = Sightings()
        self.streams = 0

    def wait(self, seconds: float) -> None:
        self._time.now += max(seconds, 0.001)

    def check_open(self) -> None:
        pass

    def leave(self, endpoint: str) -> None:
        pass

    def can_read_at(self, revision: int, key: bytes, *, timeout_seconds: float) -> bool:
        return True

    def revision(self, key: bytes, *, timeout_seconds: float) -> int:
        return LATEST

    def watch_stream(self) -> tuple[str, SlowStream]:
        self.streams += 1
        return "slow", SlowStream(self._time, self._seconds)


class SweepThatSeesIt:
    """A sweep that has found the large revision at once."""

    def __init__(self, client: object, key_range: object, *, after: int, until: int) -> None:
        self.after, self.clean_until, self.expected = after, REVISION - 1, REVISION

    def has_ended(self) -> bool:
        return True

    def close(self) -> None:
        pass


@pytest.mark.parametrize("has_ordered_progress", [False, True], ids=["found by a sweep", "asked for progress"])
@pytest.mark.parametrize("seconds", [1.0, 10.0, 100.0])
def test_a_revision_that_the_server_is_slow_to_send_arrives(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, has_ordered_progress: bool
) -> None:
    time = Time()
    monkeypatch.setattr(watch, "_now", time)
    monkeypatch.setattr(watch, "Sweep", SweepThatSeesIt)
    server = SlowServer(time, seconds, has_ordered_progress=has_ordered_progress)
    client: EtcdClient = server  # type: ignore[assignment]  # the part of it that a watch asks
    slow = EtcdWatch(client, ALL_KEYS, REVISION - 1)
    slow.open(5)
    events: list[Event] = []
    polls = 0
    while not events and polls < 100:
        events = list(slow.poll(10))
        polls += 1
    assert [(event.key, event.revision) for event in events] == [(b"a", REVISION)]
    # Why so few: each stream that was left gave its successor twice the time.
    assert server.streams <= 7
