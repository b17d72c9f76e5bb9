"""An engine that writes down what it was asked and what it answered."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from keyplan.engine.interface import NO_LEASE, Commit, Engine, Entry, KeyRange, Lease, Snapshot, Watch
from keyplan.engine.wrap import WrappedEngine, WrappedSnapshot
from keyplan.errors import KeyplanError

__all__ = ["Call", "RecordingEngine"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One call and its answer: the value returned (for a scan, what was read of it), or the error raised."""

    method: str
    arguments: tuple[object, ...]
    result: object = None
    error: KeyplanError | None = None


def _itself(result: object) -> object:
    return result


def _nothing(_: object) -> object:
    return None


def _revision(snapshot: Snapshot) -> object:
    return snapshot.revision


def _lease_id(lease: Lease) -> object:
    return lease.id


class RecordingEngine(WrappedEngine):
    """Writes the conversation down in `calls`: reads, commits, leases granted, compactions, watches opened."""

    def __init__(self, inner: Engine, *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self.calls: list[Call] = []

    def snapshot(self) -> Snapshot:
        return _RecordingSnapshot(self._recorded("snapshot", (), self.inner.snapshot, shown=_revision), self)

    def commit(self, commit: Commit) -> int:
        return self._recorded("commit", (commit,), lambda: self.inner.commit(commit))

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return self._recorded(
            "watch", (key_range, after), lambda: self.inner.watch(key_range, after=after), shown=_nothing
        )

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        arguments = (ttl_seconds, resume)
        return self._recorded("lease", arguments, lambda: self.inner.lease(ttl_seconds, resume=resume), shown=_lease_id)

    def compact(self, revision: int) -> None:
        self._recorded("compact", (revision,), lambda: self.inner.compact(revision))

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        pairs = tuple(entries)
        return self._recorded("load", (pairs,), lambda: self.inner.load(pairs))

    def _recorded(
        self,
        method: str,
        arguments: tuple[object, ...],
        call: Callable[[], Result],
        *,
        shown: Callable[[Result], object] = _itself,
    ) -> Result:
        try:
            result = call()
        except KeyplanError as error:
            self.calls.append(Call(method, arguments, error=error))
            raise
        self.calls.append(Call(method, arguments, shown(result)))
        return result


class _RecordingSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, engine: RecordingEngine) -> None:
        super().__init__(inner)
        self._calls = engine.calls

    def get(self, key: bytes) -> Entry | None:
        entry = self.inner.get(key)
        self._calls.append(Call("get", (key,), entry))
        return entry

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        read: list[Entry] = []
        # Why: noted at once and filled as it is read, so that a scan that is given up early is in its place, too.
        self._calls.append(Call("scan", (key_range, limit, reverse, keys_only), read))
        for entry in self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only):
            read.append(entry)
            yield entry

    def count(self, key_range: KeyRange) -> int:
        count = self.inner.count(key_range)
        self._calls.append(Call("count", (key_range,), count))
        return count
