"""An engine that counts what its snapshots are asked for: requests, as they would go over a network, and keys."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from keyplan.engine import Commit, Engine, Entry, KeyRange, Profile, Snapshot, WrappedEngine, WrappedSnapshot

__all__ = ["CountingEngine"]


class _CountingSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, counts: Counter[str]) -> None:
        super().__init__(inner)
        self._counts = counts
        self._along: frozenset[bytes] = frozenset()
        self._brought: frozenset[bytes] = frozenset()

    def read_along(self, keys: Sequence[bytes]) -> None:
        """What is named before the first read comes with it, and is asked for no more."""
        self._along = frozenset(keys)
        self.inner.read_along(keys)

    def get(self, key: bytes) -> Entry | None:
        self._note((key,))
        return self.inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self._note(keys)
        return self.inner.get_many(keys)

    def _note(self, keys: Sequence[bytes]) -> None:
        if not self._brought.issuperset(keys):
            self._counts["read"] += 1
            self._brought |= self._along
        self._counts["key"] += len(keys)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        self._counts["read"] += 1
        for entry in self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only):
            self._counts["key"] += 1
            yield entry

    def value(self, key: bytes) -> bytes | None:
        entry = self.get(key)
        return None if entry is None else entry.value


class CountingEngine(WrappedEngine):
    """`counts` has "read", what over a network is a request; "key", the entries that were read; and "commit"."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, closes_inner=False)
        self.counts = Counter[str]()

    @property
    def profile(self) -> Profile:
        """Why not the inner one's: what would be a request is read together only where reads wait for something."""
        return replace(self.inner.profile, has_local_reads=False)

    def snapshot(self) -> Snapshot:
        return _CountingSnapshot(self.inner.snapshot(), self.counts)

    def commit(self, commit: Commit) -> int:
        self.counts["commit"] += 1
        return self.inner.commit(commit)
