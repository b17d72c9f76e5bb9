"""Which revision a snapshot reads that has not read anything yet.

A snapshot costs no call of its own: it takes the revision that its first answer carries, so that a single get is a single call.
Until then it must not slip past a commit of its own engine: such a commit fixes it at the revision before itself.
"""

from threading import Lock

__all__ = ["Horizon", "Horizons"]


class Horizon:
    """What the snapshots taken between two commits share. `fixed` is None until a commit came after them."""

    __slots__ = ("fixed", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor  # everything up to here was acknowledged before the snapshots were taken
        self.fixed: int | None = None


class Horizons:
    """The present horizon of an engine."""

    def __init__(self) -> None:
        self.present = Horizon(0)
        self._lock = Lock()  # Invariant: held for a few assignments, never over a call.

    def pass_commit(self, revision: int) -> None:
        """A commit of this engine has made `revision`: snapshots that have read nothing read what was before it."""
        self._fix(revision - 1, revision)

    def pass_revision(self, revision: int) -> None:
        """The store is about to be changed by something that gets no number, and is at `revision` now."""
        self._fix(revision, revision)

    def _fix(self, before: int, after: int) -> None:
        with self._lock:
            horizon = self.present
            # Why the maximum: of two commits at once the later one may be acknowledged first; a snapshot taken then has it.
            horizon.fixed = max(before, horizon.floor)
            self.present = Horizon(max(after, horizon.floor))
