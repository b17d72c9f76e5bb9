"""The fence of an open key space: the guard that every commit carries, and what it means when it does not hold.

Every commit is guarded by "the fence is as I know it", in the epoch in which it was read: where a store was replaced, the same
revision may be another fence's. When that fails, nothing was written, and the fence is read: the same
generation, open to writers, at another revision (disabled and enabled meanwhile) is taken over and the commit sent again; all
else is the error that says what became of the key space.
"""

from threading import Lock
from typing import Final, NamedTuple

from keyplan.engine import Engine, KeyUnchanged
from keyplan.errors import (
    EngineUnavailableError,
    GenerationMismatchError,
    KeyplanError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceDisabledError,
    KeySpaceNotFoundError,
    KeySpaceRestoringError,
)
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.records import Fence, FenceForm, State

__all__ = ["FenceGuard", "HeldFence", "fence_key", "refusal"]

_FORM: Final = FenceForm()


def fence_key(name: str) -> bytes:
    """Return the raw key of the fence of a key space."""
    return KeySpaceRegistry.bound().tables["fences"].keys.encode(name)


def refusal(name: str, generation: int, fence: Fence | None, *, writable: State = State.ENABLED) -> KeyplanError | None:
    """Return why a handle of that generation may not write while the fence is so; None when it may."""
    if fence is None:
        return KeySpaceNotFoundError(name=name)
    if fence.generation != generation:
        return GenerationMismatchError(name=name, generation=generation, current=fence.generation)
    if fence.state is writable:
        return None
    match fence.state:
        case State.DISABLED:
            return KeySpaceDisabledError(name=name)
        case State.DELETING:
            return KeySpaceDeletingError(name=name)
        case State.DELETED:
            return KeySpaceDeletedError(name=name)
        case State.RESTORING:
            return KeySpaceRestoringError(name=name)
        case State.ENABLED:
            return GenerationMismatchError(name=name, generation=generation, problem="the restore has ended")


class HeldFence(NamedTuple):
    """The guard that a fence was found with, and the epoch in which its revision counts."""

    guard: KeyUnchanged
    epoch: str


class FenceGuard:
    """The guard of one handle. `closed_by` is why the handle is closed for good: its key space is no more."""

    def __init__(self, engine: Engine, name: str, generation: int, *, writable: State = State.ENABLED) -> None:
        self._engine = engine
        self._name = name
        self._generation = generation
        self._writable = writable
        self._key = fence_key(name)
        self._lock = Lock()
        self.closed_by: KeyplanError | None = None
        self.held = HeldFence(KeyUnchanged(self._key, 0), "")
        error = self.look()
        if error is not None:
            raise error

    @property
    def key(self) -> bytes:
        """The raw key of the fence."""
        return self._key

    @property
    def guard(self) -> KeyUnchanged:
        """What a commit is guarded by that has the epoch of its own reads."""
        return self.held.guard

    def look(self) -> KeyplanError | None:
        """Read the fence and take its revision over; return why no commit may be made, None when one may.

        A key space that is being deleted, is gone, or is another one now closes the handle for good.
        """
        if self.closed_by is not None:
            return self.closed_by
        # Why not under the lock: where engines await, two commits of one thread may look at once.
        with self._engine.snapshot() as snapshot:
            entry, epoch = snapshot.get(self._key), snapshot.epoch
        fence = None if entry is None else _FORM.decode(entry.value)
        error = refusal(self._name, self._generation, fence, writable=self._writable)
        if error is not None and not isinstance(error, KeySpaceDisabledError):
            self.shut(error)
        elif entry is not None and error is None:
            with self._lock:
                # Why not the later of two: revisions go back when a cluster is restored, and a guard that stayed ahead would
                # never hold again. Of two looks at once the one that began first may end last: then the next commit fails on
                # its guard, and looks again.
                self.held = HeldFence(KeyUnchanged(self._key, entry.mod_revision), epoch)
        return error

    def shut(self, error: KeyplanError) -> None:
        """Close the handle for good: its key space was found gone elsewhere."""
        with self._lock:
            if self.closed_by is None:
                self.closed_by = error

    def check_readable(self) -> None:
        """Raise why the handle is closed for good, if it is."""
        if self.closed_by is not None:
            raise again(self.closed_by)

    def end(self) -> None:
        """Refuse everything from now on: the handle was closed by its holder."""
        self.shut(EngineUnavailableError(engine=self._engine.profile.name, problem="the key space was closed"))

    def changing(self) -> KeyplanError:
        """Return the error for a fence that changes faster than a commit can follow."""
        return EngineUnavailableError(
            engine=self._engine.profile.name, problem=f"key space {self._name!r} is enabled and disabled all the time"
        )


def again(error: KeyplanError) -> KeyplanError:
    """Return an equal error. Why: one object that is raised in several threads would collect all their tracebacks."""
    return type(error)(**error.facts)
