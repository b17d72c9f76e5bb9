"""Declared key spaces: what should be, compared with what is; the steps between; carrying them out.

The comparison is pure. A step that cannot be undone (delete) is planned only where the declaration says that it is complete.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Any, NamedTuple

import msgspec

from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.keyspace.answers import KeySpace, KeySpaceIdentity
from keyplan.keyspace.names import checked_application, checked_description, checked_name
from keyplan.keyspace.operations import RegistryOperations
from keyplan.keyspace.prefixes import bytes_of_hex
from keyplan.keyspace.records import Configuration, Quota, State

__all__ = [
    "Applied",
    "Declaration",
    "DeclaredKeySpace",
    "Step",
    "StepKind",
    "apply_steps",
    "plan_for",
    "plan_steps",
    "read_declaration",
]


class DeclaredKeySpace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key space as it should be. What is left out is not looked at."""

    name: str
    application: str
    description: str | None = None
    prefix: str | None = None
    state: State = State.ENABLED
    quota: Quota | None = None
    adopt_existing_data: bool = False
    allow_legacy_prefix: bool = False


class Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All key spaces as they should be. `is_complete`: one that is not declared is to be deleted."""

    keyspaces: list[DeclaredKeySpace] = []
    configuration: dict[str, Any] = {}
    is_complete: bool = False


class StepKind(StrEnum):
    """What a step does."""

    CONFIGURE = auto()
    CREATE = auto()
    ADOPT = auto()
    UPDATE = auto()
    ENABLE = auto()
    DISABLE = auto()
    QUOTA = auto()
    DELETE = auto()
    REFUSED = auto()


class Step(NamedTuple):
    """One step. One of the kind REFUSED cannot be taken: `problem` says what the declaration asks that is not possible.

    `expected` is the key space that the step was planned for: it is not taken when the name is another's by then. None: a
    step of no key space, or of one that an earlier step of the plan makes.
    """

    kind: StepKind
    name: str
    change: Mapping[str, Any]
    problem: str = ""
    expected: KeySpaceIdentity | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"kind": str(self.kind), "name": self.name, "change": dict(self.change), "problem": self.problem}


class Applied(NamedTuple):
    """A step that was tried, and the error that stopped it, if one did."""

    step: Step
    error: KeyplanError | None


def read_declaration(value: object) -> Declaration:
    """Return the declaration that plain data (read from JSON, TOML, YAML) describes. Raises InvalidInputError, RecordError."""
    try:
        declaration = msgspec.convert(value, Declaration)
    except msgspec.ValidationError as error:
        raise InvalidInputError(source="declaration", problem=str(error)) from error
    seen: set[str] = set()
    prefixes: dict[bytes, str] = {}
    for keyspace in declaration.keyspaces:
        checked_name(keyspace.name)
        checked_application(keyspace.application)
        if keyspace.description is not None:
            checked_description(keyspace.description)
        if keyspace.prefix is not None:
            _refuse_nested(prefixes, keyspace.name, bytes_of_hex(keyspace.prefix))
        if keyspace.state not in {State.ENABLED, State.DISABLED}:
            raise InvalidInputError(
                source="declaration", problem=f"{keyspace.name}: ENABLED or DISABLED can be declared"
            )
        if keyspace.name in seen:
            raise InvalidInputError(source="declaration", problem=f"{keyspace.name} is declared twice")
        seen.add(keyspace.name)
    return declaration


def _refuse_nested(prefixes: dict[bytes, str], name: str, prefix: bytes) -> None:
    """Refuse a prefix that is, begins or continues an earlier one: the plan would stop in its middle."""
    for other, holder in prefixes.items():
        if other.startswith(prefix) or prefix.startswith(other):
            problem = f"the prefixes of {holder} ({other.hex()}) and {name} ({prefix.hex()}) overlap"
            raise InvalidInputError(source="declaration", problem=problem)
    prefixes[prefix] = name


def plan_steps(
    declaration: Declaration,
    present: Iterable[KeySpace],
    *,
    configuration: Configuration,
    quotas: Mapping[str, Quota],
) -> list[Step]:
    """Return the steps from what is to what should be, in the order in which they are to be taken."""
    steps: list[Step] = []
    current, wanted_switches = msgspec.to_builtins(configuration), _as_stored(declaration.configuration)
    changed = {name: value for name, value in wanted_switches.items() if current.get(name) != value}
    if changed:
        steps.append(Step(StepKind.CONFIGURE, "", changed))
    live = {keyspace.name: keyspace for keyspace in present if keyspace.state is not State.DELETED}
    declared = {keyspace.name for keyspace in declaration.keyspaces}
    if declaration.is_complete:
        steps += [
            _deletion(keyspace)
            for name, keyspace in live.items()
            if name not in declared and keyspace.state is not State.DELETING
        ]
    for wanted in declaration.keyspaces:
        found = live.get(wanted.name)
        steps += _creation(wanted) if found is None else _changes(wanted, found, quotas.get(wanted.name, Quota()))
    return steps


def _as_stored(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return declared switches as the registry stores them: reserved prefixes in lower-case digits."""
    stored = dict(configuration)
    reserved = stored.get("reservations")
    if isinstance(reserved, list):
        stored["reservations"] = [prefix.lower() if isinstance(prefix, str) else prefix for prefix in reserved]
    return stored


def _deletion(found: KeySpace) -> Step:
    if found.state is State.RESTORING:
        problem = "it is not declared, and is being restored: declare it, or delete it by its name"
        return Step(StepKind.REFUSED, found.name, {}, problem)
    return Step(StepKind.DELETE, found.name, {"prefix": found.prefix}, expected=found.identity)


def _creation(wanted: DeclaredKeySpace) -> list[Step]:
    kind = StepKind.ADOPT if wanted.adopt_existing_data else StepKind.CREATE
    if kind is StepKind.ADOPT and wanted.prefix is None:
        return [Step(StepKind.REFUSED, wanted.name, {}, "to adopt existing data needs the prefix that it is below")]
    change: dict[str, Any] = {"application": wanted.application, "description": wanted.description or ""}
    if wanted.prefix is not None:
        change |= {"prefix": wanted.prefix.lower(), "allow_legacy_prefix": wanted.allow_legacy_prefix}
    steps = [Step(kind, wanted.name, change)]
    if wanted.quota is not None and wanted.quota != Quota():
        steps.append(_quota_step(wanted.name, wanted.quota))
    if wanted.state is State.DISABLED:
        steps.append(Step(StepKind.DISABLE, wanted.name, {}))
    return steps


def _changes(wanted: DeclaredKeySpace, found: KeySpace, quota: Quota) -> list[Step]:
    name = wanted.name
    if found.state in {State.DELETING, State.RESTORING}:
        return [Step(StepKind.REFUSED, name, {}, f"it is {found.state.lower()}")]
    if found.application != wanted.application:
        return [Step(StepKind.REFUSED, name, {}, f"it belongs to {found.application}, for ever")]
    if wanted.prefix is not None and found.prefix != wanted.prefix.lower():
        return [Step(StepKind.REFUSED, name, {}, f"its prefix is {found.prefix}, for ever")]
    steps: list[Step] = []
    meant = found.identity
    if wanted.description is not None and wanted.description != found.description:
        steps.append(Step(StepKind.UPDATE, name, {"description": wanted.description}, expected=meant))
    if wanted.quota is not None and wanted.quota != quota:
        steps.append(_quota_step(name, wanted.quota, meant))
    if wanted.state is not found.state:
        kind = StepKind.ENABLE if wanted.state is State.ENABLED else StepKind.DISABLE
        steps.append(Step(kind, name, {}, expected=meant))
    return steps


def _quota_step(name: str, quota: Quota, meant: KeySpaceIdentity | None = None) -> Step:
    return Step(StepKind.QUOTA, name, {"keys": quota.keys, "bytes": quota.bytes}, expected=meant)


def plan_for(registry: RegistryOperations, declaration: Declaration) -> list[Step]:
    """Return the steps from what the registry has to what is declared. Changes nothing."""
    present = list(registry.all())
    quotas = {keyspace.name: registry.quota(keyspace.name) for keyspace in present}
    return plan_steps(declaration, present, configuration=registry.configuration(), quotas=quotas)


def apply_steps(
    registry: RegistryOperations, steps: Sequence[Step], *, on_applied: Callable[[Applied], object] | None = None
) -> list[Applied]:
    """Take the steps in order, and stop at the first that fails, which is the last that is returned.

    Each is one commit; planning and applying again goes on where it stopped. A step is taken only on the key space that it
    was planned for: GenerationMismatchError and OwnerConflictError say that the name is another's now. `on_applied` is
    called behind each step. Raises InvalidInputError, before anything is written, when a step cannot be taken.
    """
    for step in steps:
        if step.kind is StepKind.REFUSED:
            raise InvalidInputError(source="declaration", problem=f"{step.name}: {step.problem}")
    applied: list[Applied] = []
    made: dict[str, KeySpaceIdentity] = {}
    for step in steps:
        error: KeyplanError | None = None
        try:
            keyspace = _take(registry, step, step.expected or made.get(step.name))
        except KeyplanError as raised:
            error = raised
        else:
            if keyspace is not None:
                made[step.name] = keyspace.identity
        applied.append(Applied(step, error))
        if on_applied is not None:
            on_applied(applied[-1])
        if error is not None:
            break
    return applied


def _take(registry: RegistryOperations, step: Step, expected: KeySpaceIdentity | None) -> KeySpace | None:
    """Take a step; return the key space that it made, if it made one."""
    change = dict(step.change)
    match step.kind:
        case StepKind.CONFIGURE:
            registry.configure(change)
        case StepKind.CREATE:
            return registry.create(step.name, **change)
        case StepKind.ADOPT:
            return registry.adopt(step.name, **change)
        case StepKind.UPDATE:
            registry.update(step.name, change["description"], expected=expected)
        case StepKind.ENABLE:
            registry.enable(step.name, expected=expected)
        case StepKind.DISABLE:
            registry.disable(step.name, expected=expected)
        case StepKind.QUOTA:
            registry.set_quota(step.name, **change, expected=expected)
        case StepKind.DELETE:
            registry.delete(step.name, expected=expected)
        case StepKind.REFUSED:
            raise InvalidInputError(source="declaration", problem=step.problem)
    return None
