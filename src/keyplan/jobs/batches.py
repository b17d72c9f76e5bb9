"""Work in batches: many reads of one snapshot as few, many small writes as few commits, each within what the engine takes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, NamedTuple, Self, TypeVar

from keyplan.engine import (
    Commit,
    Delete,
    Engine,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Profile,
    Put,
    Snapshot,
)
from keyplan.errors import CommitConflictError

__all__ = [
    "BATCH_KEYS_MAX",
    "CommitRoom",
    "Lookup",
    "batch_of",
    "batches_of",
    "cut",
    "halved",
    "joined",
    "operations_max",
    "read_batches",
    "size_of",
]

T = TypeVar("T")
A = TypeVar("A")

# ---- writes ----------------------------------------------------------------------------------------------------------


_OPERATIONS_MAX: Final = 512
"""Why: where an engine has no bound, a larger commit only holds up the others' for longer."""

_BYTES_MAX: Final = 1 << 20
"""Why: below what every engine with a bound takes, etcd's 1.5 MiB being the least."""


def operations_max(profile: Profile) -> int:
    """Return how many operations to put into one commit."""
    return min(profile.commit_operations_max or _OPERATIONS_MAX, _OPERATIONS_MAX)


class CommitRoom(NamedTuple):
    """How much one commit takes: so many mutations and as many guards, of both no more than `together`, and so many bytes.

    Why apart: engines with a bound count the greater of the two.
    """

    operations: int
    bytes: int
    together: int = _OPERATIONS_MAX

    @classmethod
    def of(cls, profile: Profile, *, operations: int = 0, size: int = 0) -> Self:
        """Return what an engine takes beside so many operations and bytes."""
        bytes_max = min(profile.commit_bytes_max or _BYTES_MAX, _BYTES_MAX)
        return cls(operations_max(profile) - operations, bytes_max - size, _OPERATIONS_MAX - operations)

    @property
    def guarded(self) -> int:
        """How many mutations go into one commit that have a guard each."""
        return min(self.operations, self.together // 2)

    def takes(self, operations: int, size: int, guards: int = 0) -> bool:
        """Tell whether so much goes into one commit."""
        return (
            max(operations, guards) <= self.operations and operations + guards <= self.together and size <= self.bytes
        )


def size_of(operation: Mutation | Guard) -> int:
    """Return what a mutation or a guard counts for in the bytes of a commit."""
    if isinstance(operation, Put):
        return len(operation.key) + len(operation.value)
    return len(operation.key) if isinstance(operation, Delete | KeyAbsent | KeyUnchanged) else 0


def joined(commits: Sequence[Commit], room: CommitRoom) -> Iterator[tuple[list[int], Commit]]:
    """Join commits of one snapshot in order, as many as fit into one; yield each with the places of those that are in it.

    A guard that several share counts once. No two that write one key are joined.
    """
    places: list[int] = []
    guards: dict[Guard, None] = {}
    mutations: dict[bytes, Mutation] = {}
    size = 0
    for place, commit in enumerate(commits):
        own = {mutation.key: mutation for mutation in commit.mutations if isinstance(mutation, Put | Delete)}
        new = [guard for guard in commit.guards if guard not in guards]
        own_size = sum(map(size_of, (*own.values(), *new)))
        has_room = room.takes(len(mutations) + len(own), size + own_size, len(guards) + len(new))
        if places and (not has_room or own.keys() & mutations.keys()):
            yield places, Commit(tuple(guards), tuple(mutations.values()), commit.epoch)
            places, guards, mutations, size = [], {}, {}, 0
            own_size = sum(map(size_of, (*own.values(), *commit.guards)))
        places.append(place)
        guards.update(dict.fromkeys(commit.guards))
        mutations.update(own)
        size += own_size
    if places:
        yield places, Commit(tuple(guards), tuple(mutations.values()), commits[-1].epoch)


def cut(mutations: Iterable[Mutation], room: CommitRoom, *, guards_each: int = 0) -> Iterator[list[Any]]:
    """Yield mutations in order, as many at a time as fit into one commit, each with so many guards of its own."""
    batch: list[Mutation] = []
    size = 0
    for mutation in mutations:
        own = size_of(mutation)
        operations = len(batch) + 1
        if batch and not room.takes(operations, size + own, operations * guards_each):
            yield batch
            batch, size = [], 0
        batch.append(mutation)
        size += own
    if batch:
        yield batch


def halved(items: Sequence[T], attempt: Callable[[Sequence[T]], list[A]], alone: Callable[[T], A]) -> list[A]:
    """Attempt all items at once; where that loses a race, each half of them, and at last each one `alone`.

    Why: a writer is at one of them, and the others are not held up by it.
    """
    if len(items) == 1:
        return [alone(items[0])]
    try:
        return attempt(items)
    except CommitConflictError:
        middle = len(items) // 2
        return [*halved(items[:middle], attempt, alone), *halved(items[middle:], attempt, alone)]


# ---- reads -----------------------------------------------------------------------------------------------------------


BATCH_KEYS_MAX: Final = 256
"""Why: large enough that opening a snapshot does not count, small enough that none is held for longer than a moment."""

_BATCH_BYTES_MAX: Final = 4 << 20
"""Why: records may be of any size; a batch is held in memory whole."""


def batch_of(snapshot: Snapshot, key_range: KeyRange, keys_max: int = BATCH_KEYS_MAX) -> list[Entry]:
    """Return the first entries of the range: at most `keys_max`, and not many more bytes than fit a few MiB."""
    size = 0

    def has_room(_entry: Entry) -> bool:
        return size <= _BATCH_BYTES_MAX

    entries: list[Entry] = []
    for entry in takewhile(has_room, snapshot.scan(key_range, limit=keys_max)):
        entries.append(entry)
        size += len(entry.key) + len(entry.value)
    return entries


def batches_of(engine: Engine, key_range: KeyRange, keys_max: int = BATCH_KEYS_MAX) -> Iterator[list[Entry]]:
    """Yield the entries of a range in key order, batch by batch. No snapshot is open while the caller works."""
    while not key_range.is_empty:
        with engine.snapshot() as snapshot:
            batch = batch_of(snapshot, key_range, keys_max)
        if not batch:
            return
        yield batch
        key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)


def read_batches(
    engine: Engine, key_range: KeyRange, keys_max: int = BATCH_KEYS_MAX, *, rest: Callable[[], object] = int
) -> Iterator[tuple[list[Entry], Snapshot]]:
    """Yield the entries of a range as `batches_of` does, each batch with its snapshot, for who looks at more in that state.

    `rest` is called after each batch, when its snapshot is closed.
    """
    while not key_range.is_empty:
        with engine.snapshot() as snapshot:
            batch = batch_of(snapshot, key_range, keys_max)
            if not batch:
                return
            yield batch, snapshot
        rest()
        key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)


class _PutOff(Exception):  # noqa: N818  # Why: no error, and nobody sees it.
    """An answer asks for what was not read yet."""


class Lookup:
    """Reads of one snapshot. Memory grows with the keys asked for: make one for each batch.

    `is_near`: the engine has local reads, and nothing is gained by reading together.
    """

    def __init__(self, snapshot: Snapshot, *, is_near: bool = False) -> None:
        self._snapshot = snapshot
        self._is_near = is_near
        self._known: dict[bytes, Entry | None] = {}
        self._wanted: dict[bytes, None] | None = None
        """What answers that were put off ask for; None while every read is made when it is asked for."""

    @property
    def epoch(self) -> str:
        """What a commit must carry whose guards come from here."""
        return self._snapshot.epoch

    def fetch(self, raw_keys: Iterable[bytes]) -> None:
        """Read these keys at once. Why: over a network each read is a round trip."""
        missing = [raw_key for raw_key in dict.fromkeys(raw_keys) if raw_key not in self._known]
        if not missing:
            return
        if self._wanted is not None:
            self._wanted.update(dict.fromkeys(missing))
            raise _PutOff
        self._known.update(zip(missing, self._snapshot.get_many(missing), strict=True))

    def add(self, entries: Iterable[Entry]) -> None:
        """Take in entries that were read from the same snapshot."""
        self._known.update((entry.key, entry) for entry in entries)

    def get(self, raw_key: bytes) -> Entry | None:
        """Return the entry at the key, or None."""
        if raw_key not in self._known:
            self.fetch((raw_key,))
        return self._known[raw_key]

    def each(self, items: Sequence[T], answer: Callable[[T], A]) -> list[A]:
        """Return the answer to each item, and read what the answers ask for together: over a network that is what takes long.

        An answer that asks for a key that was not read yet is put off, and begun anew when what all of them ask for has been
        read at once. So it does nothing but read here and compute.
        """
        if self._is_near:
            return [answer(item) for item in items]
        answers: dict[int, A] = {}
        while len(answers) < len(items):
            wanted: dict[bytes, None] = {}
            self._wanted = wanted
            try:
                for place, item in enumerate(items):
                    if place not in answers:
                        with suppress(_PutOff):
                            answers[place] = answer(item)
            finally:
                self._wanted = None
            self.fetch(wanted)
        return [answers[place] for place in range(len(items))]
