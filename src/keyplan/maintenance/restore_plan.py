"""What a backup of key spaces meets in a registry: one step for each, or the conflict that stands in the way. Writes nothing.

The table is that of docs/design/dump-format.md: by what is live under the name, by whose the prefix is, by the policy.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import Final

import msgspec
from msgspec import structs

from keyplan.engine import Engine, KeyRange
from keyplan.errors import (
    ConflictError,
    InvalidInputError,
    InvalidPrefixError,
    KeyplanError,
    KeySpaceDeletingError,
    KeySpaceExistsError,
    KeySpaceNotFoundError,
    KeySpaceProtectedError,
    KeySpaceRestoringError,
    OwnerConflictError,
    PrefixConflictError,
    PrefixInUseError,
    PrefixNotEmptyError,
)
from keyplan.keyspace import (
    GENERATION_MAX,
    NO_PAST,
    Configuration,
    KeySpace,
    KeySpaceIdentity,
    KeySpaceRecord,
    KeySpaces,
    MarkKind,
    Past,
    State,
    prefix_codec,
)
from keyplan.maintenance.backup_file import BackupSection, utc_text
from keyplan.maintenance.claims import read_claim, space_claim

__all__ = [
    "OnConflict",
    "RestoreAction",
    "RestorePolicy",
    "RestoreStep",
    "bare_section",
    "plan_restore",
    "record_of",
]


GRACE_SECONDS_MAX: Final = 60.0
"""A restore waits for the grace of a holder's deletion up to so long: nobody looks at a command that stands for a day."""


_GENERATION_MAX: Final = GENERATION_MAX // 2
"""Why less than there can be: what a file says must leave room for the generations that follow."""

_HISTORY_MAX: Final = 32
"""Why: they are written in one commit with the key space, and an engine may take 128 operations."""


class OnConflict(StrEnum):
    """What to do when a name or a prefix is in use."""

    ERROR = auto()
    OVERWRITE = auto()
    RELOCATE = auto()


@dataclass(frozen=True, slots=True)
class RestorePolicy:
    """What the caller allows.

    overwrite_holders: key spaces that may be deleted because they have the prefix of one that is restored. Their deletion
        waits for the registry's grace time: a long one is a conflict.
    rename_to: another name for a key space of the backup.
    is_taking_ownership: a key space of another application may be overwritten, and is the backup's application's then.
    expected: which key space a name means that may be overwritten or deleted; otherwise what has the name when it is planned.
    """

    on_conflict: OnConflict = OnConflict.ERROR
    overwrite_holders: Collection[str] = ()
    rename_to: Mapping[str, str] | None = None
    is_taking_ownership: bool = False
    expected: Mapping[str, KeySpaceIdentity] | None = None


class RestoreAction(StrEnum):
    """What becomes of one key space."""

    CREATE = auto()
    """Made, under the backup's prefix or a new one."""
    OVERWRITE = auto()
    """What is there is replaced, under the prefix that it has."""
    RESUME = auto()
    """A restore of the same backup was stopped here: it goes on."""
    FINISHED = auto()
    """A restore of the same backup was stopped behind its end."""
    TOMBSTONE = auto()
    """It was deleted when the backup was made: its record is kept, in the state DELETED."""
    LEFT = auto()
    """It was deleted when the backup was made, and the name has a record here already."""


@dataclass(frozen=True, slots=True)
class RestoreStep:
    """What is to be done for one section. `prefix` None: a new one is chosen. `holders` are deleted before.

    `live` and `holders` are the key spaces that were looked at. Each act on one checks that it is still the one that its name
    means: a name that was deleted and made again meanwhile stops the restore, and its data stays.
    """

    action: RestoreAction
    record: KeySpaceRecord
    name: str
    prefix: bytes | None
    live: KeySpace | None = None
    holders: tuple[KeySpace, ...] = ()
    past: Past = NO_PAST


def record_of(section: BackupSection) -> KeySpaceRecord:
    """Return the key space that a section is of. Raises InvalidInputError for what no key space can be."""
    record = _record(section.keyspace)
    if record.prefix != section.prefix:
        problem = f"the record of {record.name} has the prefix {record.prefix}, its section {section.prefix}"
        raise InvalidInputError(source="backup", problem=problem)
    if record.generation > _GENERATION_MAX:
        problem = f"the generation of {record.name} is {record.generation}: a name is not made so often"
        raise InvalidInputError(source="backup", problem=problem)
    return record


def bare_section(section: BackupSection) -> BackupSection:
    """Return a section with the fields of its records alone. Raises InvalidInputError for what no record can be."""
    history = [msgspec.to_builtins(_record(value)) for value in section.history[-_HISTORY_MAX:]]
    record = None if section.keyspace is None else msgspec.to_builtins(record_of(section))
    return structs.replace(section, keyspace=record, history=history)


def _record(value: object) -> KeySpaceRecord:
    try:
        return msgspec.convert(value, KeySpaceRecord)
    except msgspec.ValidationError as error:
        raise InvalidInputError(source="backup", problem=f"a key space's record cannot be read: {error}") from error


def past_of(section: BackupSection, record: KeySpaceRecord, name: str) -> Past:
    """Return what a restored key space was: under another name it has none of the old one's generations."""
    if name != record.name:
        return Past(created_at=record.created_at)
    history = [_record(value) for value in section.history[-_HISTORY_MAX:]]
    if any(one.name != name or one.generation >= record.generation for one in history):
        raise InvalidInputError(source="backup", problem=f"the history of {name} is not that of the name")
    return Past(record.generation, record.created_at, tuple(history))


def plan_restore(
    engine: Engine, registry: KeySpaces, backup_id: str, sections: Sequence[BackupSection], policy: RestorePolicy
) -> tuple[list[RestoreStep], list[KeyplanError]]:
    """Return a step for each section that can be restored, and the conflict of each that cannot."""
    planner = _Planner(engine, registry, backup_id, policy)
    steps: list[RestoreStep] = []
    conflicts: list[KeyplanError] = []
    names: set[str] = set()
    for section in sections:
        record = record_of(section)
        name = (policy.rename_to or {}).get(record.name, record.name)
        if name in names:
            conflicts.append(
                KeySpaceExistsError(name=name, problem="two key spaces of the backup would have this name")
            )
            continue
        names.add(name)
        try:
            past = past_of(section, record, name)
            steps.append(replace(planner.step(record, name), past=past))
        except (ConflictError, InvalidPrefixError) as error:
            conflicts.append(error)
    strange = sorted({*(policy.expected or ())} - names - {*policy.overwrite_holders})
    if strange:
        problem = f"{', '.join(strange)}: it is neither restored nor a holder that may be deleted"
        raise InvalidInputError(source="expected", problem=problem)
    return steps, conflicts


class _Planner:
    def __init__(self, engine: Engine, registry: KeySpaces, backup_id: str, policy: RestorePolicy) -> None:
        self._engine = engine
        self._registry = registry
        self._backup_id = backup_id
        self._policy = policy
        header = registry.header()
        self._codec = None if header is None else prefix_codec(header.prefix_codec)
        self._spaces = [] if header is None else list(registry.all())
        self._marks = [] if header is None else registry.marks()
        configuration = Configuration() if header is None else registry.configuration()
        self._protected = frozenset(configuration.protected)
        self._grace_seconds = configuration.delete_grace_seconds

    def step(self, record: KeySpaceRecord, name: str) -> RestoreStep:
        """Return the step for one key space. Raises the conflict."""
        live = self._live(name)
        if record.state in (State.DELETING, State.DELETED):
            action = RestoreAction.TOMBSTONE if live is None else RestoreAction.LEFT
            return RestoreStep(action, record, name, None)
        if live is None or live.state is State.DELETED:
            return self._created(record, name)
        resumed = self._resumed(record, name, live)
        return resumed if resumed is not None else self._over(record, name, live)

    def _require_expected(self, found: KeySpace) -> None:
        expected = (self._policy.expected or {}).get(found.name)
        if expected is not None:
            expected.require(found)

    def _live(self, name: str) -> KeySpace | None:
        try:
            return self._registry.get(name)
        except KeySpaceNotFoundError:
            return None

    def _resumed(self, record: KeySpaceRecord, name: str, live: KeySpace) -> RestoreStep | None:
        claim = read_claim(self._engine, space_claim(name))
        if claim is None or claim.source != self._backup_id:
            return None
        if claim.generation != live.generation:
            return None
        if live.state is State.RESTORING:
            return RestoreStep(RestoreAction.RESUME, record, name, live.raw_prefix, live)
        # Why not when overwriting: nothing tells a restore that is repeated, because it was killed, from one that is to undo
        # what was written since; writing the backup's content again is right for both.
        if claim.is_done and self._policy.on_conflict is not OnConflict.OVERWRITE:
            return RestoreStep(RestoreAction.FINISHED, record, name, live.raw_prefix, live)
        return None

    def _over(self, record: KeySpaceRecord, name: str, live: KeySpace) -> RestoreStep:
        """The rows of the table in which the name is live."""
        self._require_expected(live)
        if live.state is State.DELETING:
            raise KeySpaceDeletingError(name=name)
        is_overwriting = self._policy.on_conflict is OnConflict.OVERWRITE
        if live.state is State.RESTORING and not is_overwriting:
            raise KeySpaceRestoringError(name=name)
        if live.application != record.application and not (is_overwriting and self._policy.is_taking_ownership):
            raise OwnerConflictError(name=name, application=record.application, owner=live.application)
        if not is_overwriting:
            raise KeySpaceExistsError(
                name=name, state=str(live.state), application=live.application, prefix=live.prefix
            )
        if name in self._protected:
            raise KeySpaceProtectedError(name=name)
        return RestoreStep(RestoreAction.OVERWRITE, record, name, live.raw_prefix, live)

    def _created(self, record: KeySpaceRecord, name: str) -> RestoreStep:
        """The rows of the table in which the name is free."""
        prefix = bytes.fromhex(record.prefix)
        problems = list(self._prefix_problems(prefix, is_legacy=record.prefix_number is None))
        if not problems:
            return RestoreStep(RestoreAction.CREATE, record, name, prefix)
        if self._policy.on_conflict is OnConflict.RELOCATE:
            return RestoreStep(RestoreAction.CREATE, record, name, None)
        holders = {holder.name: holder for _, holder in problems if holder is not None}
        if self._policy.on_conflict is OnConflict.OVERWRITE and all(
            holder is not None and holder.name in self._policy.overwrite_holders for _, holder in problems
        ):
            self._check_deletable(prefix, holders.values())
            return RestoreStep(RestoreAction.CREATE, record, name, prefix, holders=tuple(holders.values()))
        for holder_name in holders:
            if holder_name in self._protected:
                raise KeySpaceProtectedError(name=holder_name)
        raise problems[0][0]

    def _check_deletable(self, prefix: bytes, holders: Iterable[KeySpace]) -> None:
        """Say what the deletion of key spaces in the way would be refused for: another is meant, it is protected, or waits."""
        for holder in holders:
            self._require_expected(holder)
            if holder.name in self._protected:
                raise KeySpaceProtectedError(name=holder.name)
            if holder.state is not State.DELETED and self._grace_seconds > GRACE_SECONDS_MAX:
                problem = (
                    f"its deletion would wait for the grace time of {self._grace_seconds:g} s:"
                    " delete it first and restore when it is gone, or lower delete-grace-seconds"
                )
                raise PrefixInUseError(prefix=prefix.hex(), holder=holder.name, problem=problem)

    def _prefix_problems(self, prefix: bytes, *, is_legacy: bool) -> Iterator[tuple[KeyplanError, KeySpace | None]]:
        """What is in the way of a prefix, each with the key space that it is because of, if it is one."""
        held = False
        for space in self._spaces:
            other = space.raw_prefix
            if space.state is State.DELETED or not (other.startswith(prefix) or prefix.startswith(other)):
                continue
            held = True
            if other == prefix:
                yield PrefixInUseError(prefix=prefix.hex(), holder=space.name), space
            else:
                yield PrefixConflictError(prefix=prefix.hex(), other=space.prefix, holder=space.name), space
        if self._codec is not None and not is_legacy and self._codec.number_of(prefix) is None:
            yield InvalidPrefixError(prefix=prefix.hex(), reason="not_canonical"), None
        if held:
            return
        for other, mark in self._marks:
            is_nested = other.startswith(prefix) or prefix.startswith(other)
            if is_nested and mark.kind is MarkKind.COOLING_DOWN and self._is_cooling(mark.until):
                problem = "it cools down after a deletion"
                conflict = PrefixInUseError(prefix=prefix.hex(), problem=problem, until=mark.until)
                yield conflict, self._deleted_holder(other)
        with self._engine.snapshot() as snapshot:
            for entry in snapshot.scan(KeyRange.of_prefix(prefix), limit=1, keys_only=True):
                yield PrefixNotEmptyError(prefix=prefix.hex(), first_key=entry.key.hex()), None

    def _deleted_holder(self, prefix: bytes) -> KeySpace | None:
        """The key space that had the prefix, if the caller named it: a restore was stopped behind its deletion."""
        named = (self._live(name) for name in self._policy.overwrite_holders)
        return next((space for space in named if space is not None and space.raw_prefix == prefix), None)

    def _is_cooling(self, until: str | None) -> bool:
        return until is None or until > utc_text(self._registry.clock)
