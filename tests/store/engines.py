"""Engines that let a test decide when another writer comes between."""

from collections.abc import Callable

from keyplan.engine import Commit, Engine, WrappedEngine
from keyplan.store import Backoff

__all__ = ["Race", "no_waiting"]


class Race(WrappedEngine):
    """Runs what `between` was given just before a commit is carried out, once for each; writes inside it are not raced."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.commits: list[Commit] = []
        self._pending: list[Callable[[], object]] = []

    def between(self, action: Callable[[], object], *, times: int = 1) -> None:
        """Let another writer do `action` before each of the next `times` commits."""
        self._pending += [action] * times

    def commit(self, commit: Commit) -> int:
        if self._pending:
            action, later, self._pending = self._pending[0], self._pending[1:], []
            action()
            self._pending = later
        self.commits.append(commit)
        return self.inner.commit(commit)


def no_waiting(waits: list[float] | None = None) -> Backoff:
    """Return a backoff that does not wait but notes how long it would have."""
    noted: list[float] = [] if waits is None else waits
    return Backoff(sleep=noted.append, chance=lambda: 1.0)
