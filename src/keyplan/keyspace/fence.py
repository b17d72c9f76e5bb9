"""The fence of an open key space: commits are guarded by it, reads look at it; and what it means when it does not hold.

Every commit is guarded by "the fence is as I know it", in the epoch in which it was read: where a store was replaced, the same
revision may be another fence's. When that fails, nothing was written, and the fence is read: the same
generation, open to writers, at another revision (disabled and enabled meanwhile) is taken over and the commit sent again; all
else is the error that says what became of the key space.

Every read looks, in the state that it reads, whether the fence has the value that was judged before. Where it has another, this
is judged in that state. So what a read returns is of the key space that was opened, whenever it is made, and of that
registry: the fence names it.
"""

from abc import ABC, abstractmethod
from threading import Lock
from typing import Final, NamedTuple, Protocol

from keyplan.engine import Engine, Entry, Fences, KeyAbsent, KeyUnchanged, Snapshot
from keyplan.errors import (
    EngineUnavailableError,
    GenerationMismatchError,
    KeyplanError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceDisabledError,
    KeySpaceNotFoundError,
    KeySpaceRestoringError,
    RegistryMismatchError,
)
from keyplan.keyspace.records import FenceForm, State
from keyplan.keyspace.rows import key_of, value_of
from keyplan.layout import Only

__all__ = ["FenceGuard", "HeldFence", "KeySpaceFence", "again", "fence_key", "refusal"]

_FORM: Final = FenceForm()
_HEADER_KEY: Final = key_of("header", Only())

_NEVER: Final[Fences] = ((b"\x00", None), (b"\x00", b""))
"""What holds in no state: of a closed handle. Why so: reads look at the fences, and at nothing else."""

_CARE: Final = (KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceRestoringError)
"""What keeps an application from reading and not an administrator: there are data, and they are the key space's."""


def fence_key(name: str) -> bytes:
    """Return the raw key of the fence of a key space."""
    return key_of("fences", name)


class _Stated(Protocol):
    """What says in which generation and state a key space is: its fence, or its record."""

    @property
    def generation(self) -> int: ...

    @property
    def state(self) -> State: ...


def refusal(
    name: str, generation: int, fence: _Stated | None, *, writable: State = State.ENABLED
) -> KeyplanError | None:
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

    guard: KeyUnchanged | KeyAbsent
    epoch: str


class FenceGuard(ABC):
    """The guard of one handle, on one raw `key`: reads look at it, and commits are guarded by it.

    `closed_by` is why the handle is closed for good: its key space is no more. `fences` is what the key held when it was
    judged last, for reads; another tuple whenever that changes.
    """

    def __init__(self, engine: Engine, key: bytes) -> None:
        self._engine = engine
        self._lock = Lock()
        self.key = key
        self.closed_by: KeyplanError | None = None
        self.held = HeldFence(KeyUnchanged(key, 0), "")
        self.fences: Fences = ()

    @property
    def guard(self) -> KeyUnchanged | KeyAbsent:
        """What a commit is guarded by that has the epoch of its own reads."""
        return self.held.guard

    @abstractmethod
    def judged(self, found: Entry | None, state: Snapshot) -> KeyplanError | None:
        """Return why no commit may be made while the key holds what was found, in this state; None when one may."""

    @abstractmethod
    def on(self, engine: Engine) -> "FenceGuard":
        """Return a guard of the same key space on another engine of the same store. Raises why it may not be opened."""

    def may_read(self, error: KeyplanError | None) -> bool:
        """Tell whether what was judged so may be read."""
        return error is None or isinstance(error, KeySpaceDisabledError)

    def look(self) -> KeyplanError | None:
        """Read the fence and take its revision over; return why no commit may be made, None when one may.

        A key space that is being deleted, is gone, or is another one now closes the handle for good.
        """
        if self.closed_by is not None:
            return self.closed_by
        # Why not under the lock: where engines await, two commits of one thread may look at once.
        with self._engine.snapshot() as snapshot:
            return self.look_in(snapshot)

    def look_in(self, state: Snapshot) -> KeyplanError | None:
        """Judge the fence in a state and take it over; return why no commit may be made while it is so."""
        found = state.get(self.key)
        error = self.judged(found, state)
        if not self.may_read(error):
            assert error is not None
            self.shut(error)
            return error
        fences = ((self.key, None if found is None else found.value),)
        with self._lock:
            if self.fences != fences and self.closed_by is None:
                self.fences = fences
            if error is None:
                # Why not the later of two: revisions go back when a cluster is restored, and a guard that stayed ahead would
                # never hold again. Of two looks at once the one that began first may end last: then the next commit fails on
                # its guard, and looks again.
                guard = KeyAbsent(self.key) if found is None else KeyUnchanged(self.key, found.mod_revision)
                self.held = HeldFence(guard, state.epoch)
        return error

    def check_in(self, state: Snapshot) -> None:
        """Raise why a state may not be read; nothing is read of it but the fence, and that only where it may have changed."""
        if not state.holds(self.fences):
            error = self.look_in(state)
            if not self.may_read(error):
                assert error is not None
                raise again(error)

    def shut(self, error: KeyplanError) -> None:
        """Close the handle for good: its key space was found gone elsewhere."""
        with self._lock:
            if self.closed_by is None:
                self.closed_by, self.fences = error, _NEVER

    def check_readable(self) -> None:
        """Raise why the handle is closed for good, if it is."""
        if self.closed_by is not None:
            raise again(self.closed_by)

    def check_now(self) -> None:
        """Raise why the latest state may not be read."""
        self.check_readable()
        with self._engine.snapshot() as snapshot:
            self.check_in(snapshot)

    def end(self) -> None:
        """Refuse everything from now on: the handle was closed by its holder."""
        self.shut(EngineUnavailableError(engine=self._engine.profile.name, problem="the key space was closed"))

    def changing(self) -> KeyplanError:
        """Return the error for a fence that changes faster than a commit or a read can follow."""
        problem = "its key space, or the registry, is changed all the time"
        return EngineUnavailableError(engine=self._engine.profile.name, problem=problem)


class KeySpaceFence(FenceGuard):
    """The guard of a handle of one generation of a registered key space, in the registry of one cluster.

    A handle for care is an administrator's: it also opens, and reads, what is disabled, being deleted or restored. Raises why
    the key space may not be opened.
    """

    def __init__(
        self, engine: Engine, name: str, generation: int, *, writable: State = State.ENABLED, for_care: bool = False
    ) -> None:
        super().__init__(engine, fence_key(name))
        self.name = name
        self.generation = generation
        self._writable = writable
        self._for_care = for_care
        self._cluster = ""
        with engine.snapshot() as state:
            state.read_along((_HEADER_KEY,))
            error = self.look_in(state)
        if error is not None and not (for_care and self.may_read(error)):
            raise again(error)

    def may_read(self, error: KeyplanError | None) -> bool:
        return super().may_read(error) or (self._for_care and isinstance(error, _CARE))

    def on(self, engine: Engine) -> "KeySpaceFence":
        return KeySpaceFence(engine, self.name, self.generation, writable=self._writable, for_care=self._for_care)

    def judged(self, found: Entry | None, state: Snapshot) -> KeyplanError | None:
        fence = None if found is None else _FORM.decode(found.value)
        if fence is not None:
            # Why the header only the first time: from then on it is known which registry's fence this has to be.
            cluster = self._cluster or _cluster_in(state) or fence.cluster
            if fence.cluster != cluster:
                # Why no advice to who is open: another registry came into the place, and its doctor finds nothing wrong.
                advice = (
                    {} if self._cluster else {"advice": "run `keyplan doctor --repair`: the fence is not the header's"}
                )
                return RegistryMismatchError(name=self.name, registry=cluster, store=fence.cluster, **advice)
            self._cluster = cluster
        return refusal(self.name, self.generation, fence, writable=self._writable)


def _cluster_in(state: Snapshot) -> str:
    """Return the id of a store's registry; nothing where its header is lost or damaged: the fence says enough without it."""
    header = value_of(state, "header", Only())
    return header.value.cluster if header is not None and header.is_read else ""


def again(error: KeyplanError) -> KeyplanError:
    """Return an equal error. Why: one object that is raised in several threads would collect all their tracebacks."""
    return type(error)(**error.facts)
