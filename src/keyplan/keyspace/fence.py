"""The fence of an open key space: commits are guarded by it, reads look at it; and what it means when it does not hold.

Every commit is guarded by "the fence is as I know it", in the epoch in which it was read: where a store was replaced, the same
revision may be another fence's. When that fails, nothing was written, and the fence is read: the same
generation, open to writers, at another revision (disabled and enabled meanwhile) is taken over and the commit sent again; all
else is the error that says what became of the key space.

Every read looks, in the state that it reads, whether fence and header have the values that were judged before. Where they have
others, these are judged in that state. So what a read returns is of the key space that was opened, whenever it is made.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

from keyplan.engine import Engine, Entry, Fences, KeyAbsent, KeyUnchanged, Snapshot
from keyplan.errors import (
    CorruptionError,
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
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.records import Fence, FenceForm, Header, State
from keyplan.keyspace.rows import key_of
from keyplan.layout import Only

__all__ = ["FenceGuard", "HeldFence", "KeySpaceFence", "again", "fence_key", "refusal"]

_FORM: Final = FenceForm()

_NEVER: Final[Fences] = ((b"\x00", None), (b"\x00", b""))
"""What holds in no state: of a closed handle. Why so: reads look at the fences, and at nothing else."""

_CARE: Final = (KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceRestoringError)
"""What keeps an application from reading and not an administrator: there are data, and they are the key space's."""


def fence_key(name: str) -> bytes:
    """Return the raw key of the fence of a key space."""
    return key_of("fences", name)


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

    guard: KeyUnchanged | KeyAbsent
    epoch: str


class FenceGuard(ABC):
    """The guard of one handle: `keys` are looked at by reads, the first of them is what commits are guarded by.

    `closed_by` is why the handle is closed for good: its key space is no more. `fences` is what `keys` held when they were
    judged last, for reads; another tuple whenever that changes.
    """

    def __init__(self, engine: Engine, keys: tuple[bytes, ...]) -> None:
        self._engine = engine
        self._lock = Lock()
        self.keys = keys
        self.closed_by: KeyplanError | None = None
        self.held = HeldFence(KeyUnchanged(keys[0], 0), "")
        self.fences: Fences = ()

    @property
    def key(self) -> bytes:
        """The raw key that commits are guarded by."""
        return self.keys[0]

    @property
    def guard(self) -> KeyUnchanged | KeyAbsent:
        """What a commit is guarded by that has the epoch of its own reads."""
        return self.held.guard

    @abstractmethod
    def judged(self, found: Sequence[Entry | None], state: Snapshot) -> KeyplanError | None:
        """Return why no commit may be made while the keys hold what was found, in this state; None when one may."""

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
        found = state.get_many(self.keys)
        error = self.judged(found, state)
        if not self.may_read(error):
            assert error is not None
            self.shut(error)
            return error
        fences = tuple(
            (key, None if entry is None else entry.value) for key, entry in zip(self.keys, found, strict=True)
        )
        with self._lock:
            if self.fences != fences and self.closed_by is None:
                self.fences = fences
            if error is None:
                # Why not the later of two: revisions go back when a cluster is restored, and a guard that stayed ahead would
                # never hold again. Of two looks at once the one that began first may end last: then the next commit fails on
                # its guard, and looks again.
                guard = KeyAbsent(self.key) if found[0] is None else KeyUnchanged(self.key, found[0].mod_revision)
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
        super().__init__(engine, (fence_key(name), key_of("header", Only())))
        self.name = name
        self.generation = generation
        self._writable = writable
        self._for_care = for_care
        self._cluster = ""
        error = self.look()
        if error is not None and not (for_care and self.may_read(error)):
            raise again(error)

    def may_read(self, error: KeyplanError | None) -> bool:
        return super().may_read(error) or (self._for_care and isinstance(error, _CARE))

    def on(self, engine: Engine) -> "KeySpaceFence":
        return KeySpaceFence(engine, self.name, self.generation, writable=self._writable, for_care=self._for_care)

    def judged(self, found: Sequence[Entry | None], state: Snapshot) -> KeyplanError | None:
        fence, header = found
        cluster = "" if header is None else _cluster_in(header.value)
        if self._cluster and cluster and cluster != self._cluster:
            return RegistryMismatchError(name=self.name, registry=self._cluster, store=cluster)
        error = refusal(
            self.name,
            self.generation,
            None if fence is None else _FORM.decode(fence.value),
            writable=self._writable,
        )
        self._cluster = self._cluster or cluster
        return error


def _cluster_in(raw: bytes) -> str:
    """Return the cluster that a header names; nothing for one that is damaged: the fence says enough without it."""
    try:
        header = KeySpaceRegistry.bound().tables["header"].form.decode(raw)
    except CorruptionError:
        return ""
    return header.cluster if isinstance(header, Header) else ""


def again(error: KeyplanError) -> KeyplanError:
    """Return an equal error. Why: one object that is raised in several threads would collect all their tracebacks."""
    return type(error)(**error.facts)
