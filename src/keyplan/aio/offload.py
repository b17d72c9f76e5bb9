"""An engine that blocks, for store code that is driven on the loop: each call is made in a thread, and awaited.

From any other place (a thread in which a whole operation runs) the calls pass straight on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from keyplan.aio.bridge import LoopBridge
from keyplan.aio.greenlets import is_driven, wait
from keyplan.aio.notifier import CommitNotifier
from keyplan.engine import (
    NO_LEASE,
    SYSTEM_CLOCK,
    Commit,
    Engine,
    Entry,
    Event,
    Fences,
    Guard,
    KeyRange,
    Lease,
    Snapshot,
    Watch,
    WrappedEngine,
    WrappedSnapshot,
)

__all__ = ["ThreadOffloadEngine"]

T = TypeVar("T")

_CHUNK_ENTRIES_FIRST: Final = 16
_CHUNK_ENTRIES_MAX: Final = 256
"""Why: a thread costs as much as some hundred entries; a scan that is given up early should not have read many."""


class ThreadOffloadEngine(WrappedEngine):
    """`inner`, called in threads from driven code. Watches wait for `notifier` without holding a thread."""

    def __init__(self, inner: Engine, bridge: LoopBridge, notifier: CommitNotifier) -> None:
        super().__init__(inner)
        self._bridge = bridge
        self._notifier = notifier

    def snapshot(self) -> Snapshot:
        return _OffloadedSnapshot(self._bridge.offload(self.inner.snapshot, Snapshot.close), self._bridge)

    def value(self, key: bytes) -> bytes | None:
        return self._bridge.offload(partial(self.inner.value, key))

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        return self._bridge.offload(partial(self.inner.fenced_value, key, fences))

    def commit(self, commit: Commit) -> int:
        return self._bridge.offload(partial(self.inner.commit, commit))

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        watch = self._bridge.offload(partial(self.inner.watch, key_range, after=after), _close)
        return _OffloadedWatch(watch, key_range, self._bridge, self._notifier) if is_driven() else watch

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        # Why: a lease that was granted to nobody is given back; one that was taken up is somebody else's.
        undo = _revoke if resume == NO_LEASE else None
        return self._bridge.offload(partial(self.inner.lease, ttl_seconds, resume=resume), undo)

    def compact(self, revision: int) -> None:
        self._bridge.offload(partial(self.inner.compact, revision))

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        return self._bridge.offload(partial(self.inner.load, entries))

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        return self._bridge.offload(partial(self.inner.put_sorted, keys, values, guards=guards, overwrite=overwrite))


def _close(watch: Watch) -> None:
    watch.close()


def _revoke(lease: Lease) -> None:
    lease.revoke()


class _OffloadedSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, bridge: LoopBridge) -> None:
        super().__init__(inner)
        self._offload = bridge.offload

    @property
    def revision(self) -> int:
        return self._offload(lambda: self.inner.revision)

    def get(self, key: bytes) -> Entry | None:
        return self._offload(partial(self.inner.get, key))

    def value(self, key: bytes) -> bytes | None:
        return self._offload(partial(self.inner.value, key))

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return self._offload(partial(self.inner.get_many, keys))

    def holds(self, fences: Fences) -> bool:
        return self._offload(partial(self.inner.holds, fences))

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        scan = partial(self.inner.scan, key_range, limit=limit, reverse=reverse, keys_only=keys_only)
        return self._in_chunks(self._offload(scan)) if is_driven() else scan()

    def _in_chunks(self, found: Iterator[T]) -> Iterator[T]:
        size = _CHUNK_ENTRIES_FIRST
        while chunk := self._offload(_taker(found, size)):
            yield from chunk
            size = min(2 * size, _CHUNK_ENTRIES_MAX)

    def count(self, key_range: KeyRange) -> int:
        return self._offload(partial(self.inner.count, key_range))


def _taker(found: Iterator[T], size: int) -> Callable[[], list[T]]:
    return lambda: list(islice(found, size))


class _OffloadedWatch:
    """A watch that polls without waiting whenever something was committed, and waits for that on the loop."""

    def __init__(self, inner: Watch, key_range: KeyRange, bridge: LoopBridge, notifier: CommitNotifier) -> None:
        self._inner = inner
        self._offload = bridge.offload
        self._notifier = notifier
        self._wakeup = notifier.wakeup(key_range)

    @property
    def revision(self) -> int:
        return self._inner.revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        # Why: waiting takes real time, whatever clock the leases go by.
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while True:
            self._wakeup.clear()  # Why: before it looks, so that what comes while it looks is heard.
            events = self._offload(partial(self._inner.poll, 0.0))
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            if events or remaining <= 0:
                return events
            wait(self._wakeup.wait(remaining))

    def close(self) -> None:
        self._notifier.remove(self._wakeup)
        self._inner.close()
