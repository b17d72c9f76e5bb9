"""Work in batches: many reads of one snapshot as few, many small writes as few commits, each within what the engine takes."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from keyplan.engine import Commit, Entry, Guard, KeyAbsent, KeyUnchanged, Profile, Put, Snapshot

__all__ = ["GuardedPut", "Held", "Lookup", "commits_of", "operations_max"]


# ---- writes ----------------------------------------------------------------------------------------------------------


_OPERATIONS_MAX: Final = 512
"""Why: where an engine has no bound, a larger commit only holds up the others' for longer."""

_BYTES_MAX: Final = 1 << 20
"""Why: below what every engine with a bound takes, etcd's 1.5 MiB being the least."""


class Held(NamedTuple):
    """A guard that many commits rest on, and the epoch in which it holds."""

    guard: Guard
    epoch: str


class GuardedPut(NamedTuple):
    """A put with what must be true for it: about the record that calls for it, and about its own key."""

    put: Put
    guards: tuple[Guard, ...]

    @property
    def size_bytes(self) -> int:
        """What the put and its guards count for in a commit."""
        return len(self.put.key) + len(self.put.value) + sum(_size(guard) for guard in self.guards)


def operations_max(profile: Profile) -> int:
    """Return how many operations to put into one commit."""
    return min(profile.commit_operations_max or _OPERATIONS_MAX, _OPERATIONS_MAX)


def commits_of(puts: Iterable[GuardedPut], profile: Profile, epoch: str) -> Iterator[Commit]:
    """Yield commits that hold all the puts, in order, each with its guards. A guard that several share counts once.

    `epoch` is that of the snapshot from which all the guards come.
    """
    bytes_max = min(profile.commit_bytes_max or _BYTES_MAX, _BYTES_MAX)
    guards: dict[Guard, None] = {}
    mutations: list[Put] = []
    size = 0
    for guarded in puts:
        operations = len(guards) + len(mutations) + len(guarded.guards) + 1
        if mutations and (operations > operations_max(profile) or size + guarded.size_bytes > bytes_max):
            yield Commit(tuple(guards), tuple(mutations), epoch)
            guards, mutations, size = {}, [], 0
        guards.update(dict.fromkeys(guarded.guards))
        mutations.append(guarded.put)
        size += guarded.size_bytes
    if mutations:
        yield Commit(tuple(guards), tuple(mutations), epoch)


def _size(guard: Guard) -> int:
    return len(guard.key) if isinstance(guard, KeyAbsent | KeyUnchanged) else 0


# ---- reads -----------------------------------------------------------------------------------------------------------


class Lookup:
    """Reads of one snapshot. Memory grows with the keys asked for: make one for each batch."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[bytes, Entry | None] = {}

    @property
    def epoch(self) -> str:
        """What a commit must carry whose guards come from here."""
        return self._snapshot.epoch

    def fetch(self, raw_keys: Iterable[bytes]) -> None:
        """Read these keys at once. Why: over a network each read is a round trip."""
        missing = [raw_key for raw_key in dict.fromkeys(raw_keys) if raw_key not in self._known]
        if missing:
            self._known.update(zip(missing, self._snapshot.get_many(missing), strict=True))

    def add(self, entries: Iterable[Entry]) -> None:
        """Take in entries that were read from the same snapshot."""
        self._known.update((entry.key, entry) for entry in entries)

    def get(self, raw_key: bytes) -> Entry | None:
        """Return the entry at the key, or None."""
        if raw_key not in self._known:
            self._known[raw_key] = self._snapshot.get(raw_key)
        return self._known[raw_key]
