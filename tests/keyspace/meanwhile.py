"""Somebody else who acts in the middle: an engine that lets another's whole act happen before any one of its calls."""

from collections.abc import Callable, Iterator

from keyplan.engine import Commit, Engine, Fences, KeyRange, Snapshot, Watch, WrappedEngine

__all__ = ["Meanwhile", "at_every_call"]


class Meanwhile(WrappedEngine):
    """Counts its calls; before the one of number `at_call` it lets `act` happen, on the engine below."""

    def __init__(self, inner: Engine, at_call: int | None, act: Callable[[], object]) -> None:
        super().__init__(inner, closes_inner=False)
        self.calls = 0
        self._at_call = at_call
        self._act = act

    def begin(self, at_call: int | None) -> None:
        """Count from here on, and let `act` happen before that call."""
        self.calls, self._at_call = 0, at_call

    def snapshot(self) -> Snapshot:
        self._count()
        return self.inner.snapshot()

    def value(self, key: bytes) -> bytes | None:
        self._count()
        return self.inner.value(key)

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        self._count()
        return self.inner.fenced_value(key, fences)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._count()
        return self.inner.watch(key_range, after=after)

    def commit(self, commit: Commit) -> int:
        self._count()
        return self.inner.commit(commit)

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._at_call:
            self._act()


def at_every_call(calls: int) -> Iterator[int | None]:
    """Yield every place at which the other may act: before each of so many calls; and behind the last (None)."""
    yield from range(1, calls + 1)
    yield None
