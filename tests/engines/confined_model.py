"""What a confined engine has to answer, by the plainest rules: a dict, filtered by the grants, key by key."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from keyplan.engine import (
    Area,
    Commit,
    DeleteRange,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)

KEYS = [bytes(parts) for length in (1, 2) for parts in product(b"\x00ab\xff", repeat=length)]
FENCES = (b"b\x00", b"\xff\xff")
FENCE_VALUES = (b"on", b"off")

PROBES = sorted({probe for key in (b"", *KEYS) for probe in (key, key + b"\x00", key + b"\xff\xff")})
"""One key at least of each part into which borders of KEYS can cut all keys: who judges all of them, judges a range."""

Value = tuple[bytes, int]
State = Mapping[bytes, Value]


class RefusedError(Exception):
    """A model's: nothing that was granted allows it."""


def allows(granted: Iterable[Area], state: State, key: bytes, *, writing: bool = False) -> bool:
    """Tell whether one of the grants allows it in a state."""
    return any(
        key in area.range
        and (area.can_write or not writing)
        and (area.fence is None or state.get(area.fence[0], (None, 0))[0] == area.fence[1])
        for area in granted
    )


@dataclass
class Seen:
    """A state as a caller with grants sees it."""

    state: State
    granted: Sequence[Area]
    is_refusing: bool

    def may_read(self, where: bytes | KeyRange) -> bool:
        return self._may(where, writing=False)

    def may_write(self, where: bytes | KeyRange) -> bool:
        return self._may(where, writing=True)

    def _may(self, where: bytes | KeyRange, *, writing: bool) -> bool:
        probes = [where] if isinstance(where, bytes) else [probe for probe in PROBES if probe in where]
        return all(allows(self.granted, self.state, probe, writing=writing) for probe in probes)

    def _look(self, where: bytes | KeyRange) -> None:
        if self.is_refusing and not self.may_read(where):
            raise RefusedError

    def get(self, key: bytes) -> Value | None:
        self._look(key)
        return self.state.get(key) if allows(self.granted, self.state, key) else None

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[bytes, Value]]:
        self._look(key_range)
        found = sorted(
            (key, value)
            for key, value in self.state.items()
            if key in key_range and allows(self.granted, self.state, key)
        )
        return (found[::-1] if reverse else found)[:limit]


@dataclass
class Store:
    """All keys, with value and mod revision, and what happened to each."""

    state: dict[bytes, Value] = field(default_factory=dict)
    revision: int = 0
    log: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)

    def apply(self, mutations: Sequence[Mutation], revision: int) -> None:
        """Carry out mutations that the engine has carried out, at the revision that it gave."""
        changed: dict[bytes, bytes | None] = {}
        for mutation in mutations:
            if isinstance(mutation, Put):
                changed[mutation.key] = mutation.value
                continue
            where = mutation.range if isinstance(mutation, DeleteRange) else KeyRange.of_key(mutation.key)
            changed.update((key, None) for key in self.state if key in where)
        assert revision == self.revision + bool(changed)
        self.revision = revision
        for key, value in sorted(changed.items()):
            self.log.append((revision, key, value))
            if value is None:
                del self.state[key]
            else:
                self.state[key] = (value, revision)

    def failing(self, guards: Sequence[Guard]) -> list[Guard]:
        """Return the guards that do not hold."""
        return [guard for guard in guards if not self._holds(guard)]

    def _holds(self, guard: Guard) -> bool:
        match guard:
            case KeyAbsent(key):
                return key not in self.state
            case KeyUnchanged(key, revision):
                return key in self.state and self.state[key][1] == revision
            case RangeEmpty(key_range):
                return not any(key in key_range for key in self.state)
            case RangeUnchanged(key_range, revision, keys):
                found = {key: value for key, value in sorted(self.state.items()) if key in key_range}
                return tuple(found) == keys and all(changed <= revision for _, changed in found.values())


def writes_twice(mutations: Sequence[Mutation]) -> bool:
    """Tell whether two mutations could touch one key."""
    ranges = [
        mutation.range if isinstance(mutation, DeleteRange) else KeyRange.of_key(mutation.key) for mutation in mutations
    ]
    return any(
        one.start < (other.end or b"\xff" * 9) and other.start < (one.end or b"\xff" * 9)
        for at, one in enumerate(ranges)
        for other in ranges[at + 1 :]
        if not one.is_empty and not other.is_empty
    )


def touched_by(commit: Commit) -> Iterator[tuple[bytes | KeyRange, bool]]:
    """Yield what a commit guards or writes, and whether it writes there."""
    for guard in commit.guards:
        yield (guard.key if isinstance(guard, KeyAbsent | KeyUnchanged) else guard.range), False
    for mutation in commit.mutations:
        yield (mutation.range if isinstance(mutation, DeleteRange) else mutation.key), True
