"""An engine around an engine: each kind adds one thing and passes the rest on.

Closing one closes the engine inside, unless it was told to leave it open. Here are the plain one and the one for reading only;
prefixed.py, delayed.py and recording.py hold the others.
"""

from collections.abc import Iterable, Iterator, Sequence

from keyplan.engine.admission import refuse_writing
from keyplan.engine.interface import NO_LEASE, Commit, Engine, Entry, KeyRange, Lease, Snapshot, Watch
from keyplan.engine.lineage import Lineage
from keyplan.engine.profile import Profile

__all__ = ["ReadOnlyEngine", "WrappedEngine", "WrappedSnapshot"]


class WrappedEngine(Engine):
    """An engine that passes every call on to `inner`; what a subclass does not override is unchanged."""

    def __init__(self, inner: Engine, *, closes_inner: bool = True) -> None:
        self.inner = inner
        self._closes_inner = closes_inner

    @property
    def profile(self) -> Profile:
        return self.inner.profile

    def lineage(self) -> Lineage:
        return self.inner.lineage()

    def snapshot(self) -> Snapshot:
        return self.inner.snapshot()

    def commit(self, commit: Commit) -> int:
        return self.inner.commit(commit)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return self.inner.watch(key_range, after=after)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        return self.inner.lease(ttl_seconds, resume=resume)

    def compact(self, revision: int) -> None:
        self.inner.compact(revision)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        return self.inner.load(entries)

    def close(self) -> None:
        if self._closes_inner:
            self.inner.close()


class WrappedSnapshot(Snapshot):
    """A snapshot that passes every call on to `inner`."""

    def __init__(self, inner: Snapshot) -> None:
        self.inner = inner

    @property
    def revision(self) -> int:
        return self.inner.revision

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    def read_along(self, keys: Sequence[bytes]) -> None:
        self.inner.read_along(keys)

    def get(self, key: bytes) -> Entry | None:
        return self.inner.get(key)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        return self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)

    def count(self, key_range: KeyRange) -> int:
        return self.inner.count(key_range)

    def close(self) -> None:
        self.inner.close()


class ReadOnlyEngine(WrappedEngine):
    """Reads and watches pass; whatever would write raises UnsupportedByEngineError. A lease can be looked at by its id."""

    def commit(self, commit: Commit) -> int:
        raise refuse_writing(self.profile)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        if resume == NO_LEASE:
            raise refuse_writing(self.profile)
        return _WatchedLease(self.inner.lease(ttl_seconds, resume=resume), self.profile)

    def compact(self, revision: int) -> None:
        raise refuse_writing(self.profile)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        raise refuse_writing(self.profile)


class _WatchedLease:
    """A lease that somebody else holds."""

    def __init__(self, inner: Lease, profile: Profile) -> None:
        self._inner = inner
        self._profile = profile

    @property
    def id(self) -> int:
        return self._inner.id

    @property
    def ttl_seconds(self) -> float:
        return self._inner.ttl_seconds

    def seconds_left(self) -> float:
        return self._inner.seconds_left()

    def keep_alive(self) -> float:
        raise refuse_writing(self._profile)

    def revoke(self) -> None:
        raise refuse_writing(self._profile)
