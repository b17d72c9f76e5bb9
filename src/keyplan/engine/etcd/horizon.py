"""Which revision a snapshot reads that has not read anything yet.

A snapshot costs no call of its own: it takes the revision that its first answer carries, so that a single get is a single call.
Until then it must not slip past a later commit of its own engine: the first such commit that is acknowledged fixes it at the
revision before itself. A commit that was under way when the snapshot was taken does not count: others may have seen it, and
committed after it, before the snapshot was taken, and then the revision before it would be too old.
"""

from threading import Lock
from weakref import WeakValueDictionary

__all__ = ["Horizon", "Horizons"]


class Horizon:
    """What the snapshots taken between the beginnings of two commits share. `fixed` is None until a commit came after them."""

    __slots__ = ("__weakref__", "fixed")

    def __init__(self) -> None:
        self.fixed: int | None = None


class Horizons:
    """The present horizon of an engine, and those before it that a snapshot still has and nothing has fixed.

    Only horizons that a snapshot has taken are kept, so that a commit between which nobody reads costs a comparison.
    """

    def __init__(self) -> None:
        self._number = 0  # of the present horizon
        self._taken: WeakValueDictionary[int, Horizon] = WeakValueDictionary()
        self._lock = Lock()  # Invariant: held for a few assignments, never over a call.

    def take(self) -> Horizon:
        """Return the present horizon, for a snapshot."""
        with self._lock:
            horizon = self._taken.get(self._number)
            if horizon is None:
                horizon = self._taken[self._number] = Horizon()
            return horizon

    def begin(self) -> int:
        """A change of this engine is about to be sent: return what tells the snapshots before it from those after it."""
        with self._lock:
            begun = self._number
            self._number = begun + 1
            return begun

    def fix(self, begun: int, revision: int) -> None:
        """Let snapshots taken until `begun` that have read nothing read `revision`, the one before the change.

        Why it is not too old for them: the change began after they were taken, so it came after all that was told until then.
        """
        # Why unlocked: who takes a horizon now takes a later one than `begun`.
        if not self._taken:
            return
        with self._lock:
            for number in [number for number in self._taken if number <= begun]:
                horizon = self._taken.pop(number, None)
                if horizon is not None:
                    horizon.fixed = revision
