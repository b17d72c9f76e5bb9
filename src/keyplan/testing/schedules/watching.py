"""Watches and leases that park."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from keyplan.engine import Event, KeyRange, Lease, Memory, Watch
from keyplan.errors import HistoryCompactedError, KeyplanError
from keyplan.testing.contract import controls
from keyplan.testing.schedules.footprint import (
    CLOCK,
    EMPTINESS,
    Footprint,
    history_key,
    lease_key,
    placed_range,
    revision_key,
)
from keyplan.testing.schedules.steps import Parking, Step, Wait, failed, note

__all__ = ["ParkingLease", "ParkingWatch", "end_of_lease"]

T = TypeVar("T")


@controls(Watch)
class ParkingWatch:
    """A watch that never waits for time: a poll with a timeout is let go when something is there, or nobody else goes on."""

    def __init__(self, inner: Watch, key_range: KeyRange, run: Parking, place: tuple[int, Memory]) -> None:
        self._inner = inner
        self._range = key_range
        self._run = run
        self._number, self._memory = place

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        run, number, memory = self._run, self._number, self._memory
        looked = Footprint()
        looked.keys_read |= {history_key(number), revision_key(number)}
        looked.ranges_read.append(placed_range(number, self._range))
        wait: Wait | None = None
        if timeout_seconds > 0:
            begun = run.time
            looked.keys_read |= {CLOCK, EMPTINESS}
            wait = Wait(lambda: run.time != begun or self._has_something(), looked)
        step = run.park("poll", self._range, wait=wait)
        step.take_in(looked)
        if step.fault == "h":
            raise failed(step, HistoryCompactedError(revision=self.revision, compacted_revision=memory.revision))
        try:
            events = self._inner.poll(0)
        except KeyplanError as error:
            step.outcome = error
            raise
        note(step, "poll", self._range, list(events))
        return events

    def _has_something(self) -> bool:
        memory = self._memory
        if self._inner.revision < memory.compacted:
            return True
        return any(
            event.key in self._range
            for revision in range(self._inner.revision + 1, memory.revision + 1)
            for event in memory.history[revision]
        )

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()


@controls(Lease)
class ParkingLease:
    """A lease of which every call that asks the engine parks."""

    def __init__(self, inner: Lease, run: Parking, place: tuple[int, Memory]) -> None:
        self._inner = inner
        self._run = run
        self._number, self._memory = place

    @property
    def id(self) -> int:
        return self._inner.id

    @property
    def ttl_seconds(self) -> float:
        return self._inner.ttl_seconds

    def keep_alive(self) -> float:
        step = self._park("keep_alive")
        step.keys_written.add(lease_key(self._number, self.id))
        return self._answered(step, self._inner.keep_alive)

    def seconds_left(self) -> float:
        step = self._park("seconds_left")
        step.keys_read.add(lease_key(self._number, self.id))
        return self._answered(step, self._inner.seconds_left)

    def revoke(self) -> None:
        step = self._park("revoke")
        end_of_lease(step, self._memory, self.id, (self._number, self._run.revisions_matter))
        self._answered(step, self._inner.revoke)

    def _park(self, call: str) -> Step:
        step = self._run.park(call, self.id)
        step.keys_read.add(CLOCK)
        return step

    def _answered(self, step: Step, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except KeyplanError as error:
            step.outcome = error
            raise
        note(step, step.call, self.id, answer)
        return answer


def end_of_lease(step: Step, memory: Memory, lease: int, place: tuple[int, bool]) -> None:
    """Join what the end of a lease writes: the lease and every key on it; and the revision, where revisions matter."""
    number, revisions_matter = place
    step.keys_written.add(lease_key(number, lease))
    if lease in memory.leases:
        if revisions_matter and memory.leases[lease].keys:
            step.keys_written.add(revision_key(number))
        prefix = b"%c" % number
        step.keys_written.update([prefix + key for key in memory.leases[lease].keys])
