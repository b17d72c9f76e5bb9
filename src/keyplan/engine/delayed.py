"""An engine whose calls wait first: as a network would, or to let another thread come between."""

from collections.abc import Callable, Iterable, Iterator

from keyplan.engine.interface import NO_LEASE, Commit, Engine, Entry, KeyRange, Lease, Snapshot, Watch
from keyplan.engine.wrap import WrappedEngine, WrappedSnapshot

__all__ = ["DelayedEngine"]


class DelayedEngine(WrappedEngine):
    """Calls `wait` with the method's name before each call: to sleep as a network would, or to let another thread pass."""

    def __init__(self, inner: Engine, wait: Callable[[str], None], *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._wait = wait

    def snapshot(self) -> Snapshot:
        self._wait("snapshot")
        return _DelayedSnapshot(self.inner.snapshot(), self._wait)

    def commit(self, commit: Commit) -> int:
        self._wait("commit")
        return self.inner.commit(commit)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._wait("watch")
        return self.inner.watch(key_range, after=after)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self._wait("lease")
        return self.inner.lease(ttl_seconds, resume=resume)

    def compact(self, revision: int) -> None:
        self._wait("compact")
        self.inner.compact(revision)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self._wait("load")
        return self.inner.load(entries)


class _DelayedSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, wait: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._wait = wait

    def get(self, key: bytes) -> Entry | None:
        self._wait("get")
        return self.inner.get(key)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        self._wait("scan")
        return self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)

    def count(self, key_range: KeyRange) -> int:
        self._wait("count")
        return self.inner.count(key_range)
