"""What an engine takes of a unit: its keys and values, and each commit that a migration makes about it, both ways.

Writing the new records, and taking them away or back in a rollback, is one commit each, because half of it would be no state of
either layout: what does not fit is an obstacle of the plan. What may be done in parts is: a renewal under other keys takes away
what stands first, and the clean-up removes index entries before it removes the record.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from keyplan.engine import Commit, Profile
from keyplan.errors import EngineLimitError, InvalidRecordError
from keyplan.jobs import JOB_BYTES_MAX, size_of
from keyplan.maintenance.migration.functions import Converted
from keyplan.maintenance.migration.marks import Copy, Mark, encoded, origin_key
from keyplan.maintenance.migration.plan import TableWork
from keyplan.maintenance.migration.sides import Sides

__all__ = ["Limits", "UnitCheck"]

_TWICE_MAX: Final = 100
"""Why: a function that asks a clock or chance is seen by the first records."""


class Limits(NamedTuple):
    """What the engine takes."""

    key_bytes_max: int | None
    value_bytes_max: int | None
    commit_operations_max: int | None
    commit_bytes_max: int | None

    @classmethod
    def of(cls, profile: Profile) -> Self:
        limits = profile.commit_operations_max, profile.commit_bytes_max
        return cls(profile.key_bytes_max, profile.value_bytes_max, *limits)

    def check(self, raw_key: bytes, raw_value: bytes = b"") -> None:
        """Refuse a key or a value that the engine does not take. Raises EngineLimitError."""
        for name, size, most in (
            ("key_bytes_max", len(raw_key), self.key_bytes_max),
            ("value_bytes_max", len(raw_value), self.value_bytes_max),
        ):
            if most is not None and size > most:
                raise EngineLimitError(limit=name, allowed=most, actual=size, problem=f"{size} bytes, {most} fit")

    def check_commit(self, operations: int, size: int, what: str = "what is made of it") -> None:
        """Refuse what the engine does not take in one commit, beside the run's own. Raises EngineLimitError."""
        # Why: the run's state is guarded, and may be written, as well.
        operations, size = operations + 1, size + JOB_BYTES_MAX
        for name, actual, most, of in (
            ("commit_operations_max", operations, self.commit_operations_max, "operations"),
            ("commit_bytes_max", size, self.commit_bytes_max, "bytes"),
        ):
            if most is not None and actual > most:
                problem = f"{what} is one commit of {actual} {of}, and the engine takes {most}"
                raise EngineLimitError(limit=name, allowed=most, actual=actual, problem=problem)

    def takes(self, commit: Commit) -> bool:
        """Whether the engine takes a commit, beside the run's own."""
        try:
            self.check_commit(
                max(len(commit.guards), len(commit.mutations)), sum(map(size_of, (*commit.guards, *commit.mutations)))
            )
        except EngineLimitError:
            return False
        return True


def _made_within(limits: Limits, migration: bytes, sides: Sides) -> Sequence[Converted]:
    """Return what the old records of a unit become, where the engine takes it: each key, each value, each commit about it.

    Raises what is in UNREADABLE, EngineLimitError.
    """
    made = sides.made
    entries = {raw_key: one.raw_value for record in made for raw_key, one in record.index_entries.items()}
    for one in made:
        limits.check(one.raw_key, one.raw_value)
    for raw_key in entries:
        limits.check(raw_key)
    origins = [origin_key(migration, one.raw_key) for one in made] if sides.route.keeps_origins else []
    mark = Mark(sides.unit, sides.old_digest, tuple(Copy(one.raw_key, sides.old_digest) for one in made))
    records = {one.raw_key: one.raw_value for one in made}
    own = {sides.mark_key: encoded(mark), **dict.fromkeys(origins, sides.unit)}
    limits.check_commit(*_size(sides.old, {**own, **entries, **records}))
    if sides.stays:
        return made
    olds = {raw_key: entry.value for raw_key, entry in sides.old.items() if entry is not None}
    # Why only these of the old entries: one that is not unique, and that stays, has no guard.
    unique = {raw_key for raw_key, one in sides.old_entries.items() if one.source.spec.is_unique}
    limits.check_commit(*_size({*records, *entries, *unique}, {**own, **olds}), "what a rollback does about it")
    return made


class UnitCheck:
    """Converts units of a table, as the engine takes them, and some of them twice: a function makes the same every time.

    Where records stay each is converted twice: nothing else finds it out there. Of others the verification does, after every
    record was copied, so that the first ones are tried before.
    """

    def __init__(self, profile: Profile, migration: bytes, work: TableWork) -> None:
        self._limits, self._migration, self._work = Limits.of(profile), migration, work
        self._count = 0

    def made(self, sides: Sides) -> Sequence[Converted]:
        """Return what a unit's old records become. Raises what is in UNREADABLE, EngineLimitError."""
        made = self.made_again(sides)
        self._count += 1
        if self._work.is_in_place or (self._work.route.has_other_values and self._count <= _TWICE_MAX):
            self._require_the_same(sides, made)
        return made

    def made_again(self, sides: Sides) -> Sequence[Converted]:
        """Return the same once more, for a unit that was looked at before."""
        return _made_within(self._limits, self._migration, sides)

    def _require_the_same(self, sides: Sides, made: Sequence[Converted]) -> None:
        again = self._work.route.made(sides.records)
        if [(one.raw_key, one.raw_value) for one in again] != [(one.raw_key, one.raw_value) for one in made]:
            problem = "the function makes something else of it each time: let it depend on the record alone"
            raise InvalidRecordError(table=self._work.name, problem=problem)


def _size(guarded: Iterable[bytes], written: Mapping[bytes, bytes]) -> tuple[int, int]:
    """How many operations and bytes a commit has that guards these keys, and guards and writes those."""
    keys = {*guarded, *written}
    # Why twice: a key stands in its guard, and in what is written or removed there.
    return len(keys), sum(2 * len(key) for key in keys) + sum(map(len, written.values()))
