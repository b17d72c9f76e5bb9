"""Objects one by one: made, read and changed with their index entries, each in one guarded commit."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import structs

from keyplan.apps.runm.definitions import definition_at
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State, Stored, generation_of
from keyplan.apps.runm.identity import checked_object
from keyplan.apps.runm.json_schema import property_check
from keyplan.apps.runm.kept_rules import rules_in
from keyplan.apps.runm.permission import PropertyRules, Reader, changed_keys
from keyplan.apps.runm.read_ahead import Scope, fallbacks_of
from keyplan.apps.runm.records import Object, Property, ProviderRecord
from keyplan.apps.runm.refusal import RefusedError, already_exists, denied, invalid, missing, not_found, property_named
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.start import is_untouched_default
from keyplan.engine import Capability, Commit, Mutation, Put
from keyplan.errors import AlreadyExistsError, CorruptionError, UniqueViolationError
from keyplan.grpc_status import GrpcStatus
from keyplan.layout import BoundLayout, TableView
from keyplan.store import Backoff, KeyRef

__all__ = [
    "CreationTerms",
    "RulesByScope",
    "create",
    "created",
    "creation_terms",
    "get",
    "stored_objects",
    "sub_types_or_errors",
    "update",
]

_KEY: Final[Callable[[Property], str]] = attrgetter("key")
_NAME_INDEXES = ("objects_by_name", "objects_by_project_and_name")


class RulesByScope:
    """Which permissions hold for which objects, for one reader in one state. Definitions are read once for each scope.

    Where what they depend on cannot be read, nobody knows what may be seen: CorruptionError for these objects, and no others.
    """

    def __init__(self, state: State, reader: Reader) -> None:
        self._state = state
        self._reader = reader
        self._rules: dict[tuple[Scope, str], PropertyRules] = {}
        self._sub_types: dict[UUID, str | CorruptionError] = {}

    def learn(self, records: Iterable[Object]) -> None:
        """Read what the rules of these objects depend on, at once."""
        records = list(records)
        uuids = [one.uuid for one in records if one.object_type == PROVIDER]
        if not uuids:
            return
        found = sub_types_or_errors(self._state.beside.providers, uuids)
        self._sub_types.update(zip(uuids, found, strict=True))

    def of(self, record: Object) -> PropertyRules:
        """Return the rules for an object: those of the most explicit definition for its partition, type and sub-type.

        Raises CorruptionError.
        """
        sub_type = self._sub_types.get(record.uuid, "")
        if isinstance(sub_type, CorruptionError):
            raise sub_type
        scope = Scope(record.partition, record.object_type, sub_type)
        self._state.ahead.note_scope(record.partition, scope)
        return self.of_scope(scope, record.project)

    def of_scope(self, scope: Scope, project: str) -> PropertyRules:
        """Return the rules for objects of a scope and a project. Raises CorruptionError."""
        reader = self._reader.at(project) if self._reader.has_every_project else self._reader
        rules = self._rules.get((scope, reader.project))
        if rules is None:
            rules = rules_in(self._state, scope, reader)
            self._rules[scope, reader.project] = rules
        return rules


def sub_types_or_errors(view: TableView[UUID, ProviderRecord], uuids: Sequence[UUID]) -> list[str | CorruptionError]:
    """Return the provider type of each provider, empty where nobody said, or the error in the place of one that is damaged."""
    try:
        return ["" if one is None else one.provider_type for one in view.get_many(uuids)]
    except CorruptionError as error:
        # Why not at first: reading all at once is one round trip.
        return [error] if len(uuids) == 1 else [one for uuid in uuids for one in sub_types_or_errors(view, [uuid])]


def stored_objects(state: State, uuids: Sequence[UUID]) -> list[Stored | CorruptionError | None]:
    """Return each object, None where there is none, or the error in the place of one that cannot be read."""
    state.read_ahead(state.ahead.of_objects(uuids, None))
    return [_stored_or_error(state, uuid) for uuid in uuids]


def created(deployment: Deployment, work: Callable[[State], Stored], *refs: KeyRef) -> Stored:
    """Carry out `work`, which creates an object, in one transaction, with what the places hold read at once.

    Raises what `work` raises; RefusedError, ALREADY_EXISTS, for a name or a UUID that is taken.
    """
    try:
        return deployment.store.run(lambda transaction: work(deployment.over(transaction, *refs)))
    except (AlreadyExistsError, UniqueViolationError) as error:
        raise already_exists("object already exists.") from error


class CreationTerms(NamedTuple):
    """What objects must fit that one caller makes in one place. `schema` is that of their definition, if it is enforced."""

    rules: PropertyRules
    schema: str | None

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return self.rules.size + len(self.schema or "")

    def require(self, record: Object) -> None:
        """Raise RefusedError: PERMISSION_DENIED for a property that is not the caller's, INVALID_ARGUMENT by the schema."""
        self.rules.require_writable(map(_KEY, record.properties))
        _require_fitting(self.schema, record)


def creation_terms(deployment: Deployment, state: State, caller: Caller, scope: Scope, project: str) -> CreationTerms:
    """Return what new objects of a scope and a project must fit. Raises RefusedError where the partition is gone."""
    assert scope.partition is not None
    if not state.within(caller.bounds).partitions.exists(scope.partition):
        raise missing(f"Partition {scope.partition.hex} not found")
    rules = RulesByScope(state, caller.reader).of_scope(scope, project)
    return CreationTerms(rules, _enforced_schema(deployment, state, scope))


def create(
    deployment: Deployment, state: State, caller: Caller, record: Object, *, provider: ProviderRecord | None = None
) -> Stored:
    """Store a new object with its index entries, and what belongs beside a provider, as a part of a transaction.

    Raises RefusedError: FAILED_PRECONDITION, INVALID_ARGUMENT for what does not fit, PERMISSION_DENIED for a place or property
    that is not the caller's to write; AlreadyExistsError, UniqueViolationError, which `created` translates.
    """
    caller.require_place(record)
    kept = checked_object(deployment.bound, record, deployment.required_type(record.object_type))
    scope = Scope(kept.partition, kept.object_type, provider.provider_type if provider else "")
    creation_terms(deployment, state, caller, scope, kept.project).require(kept)
    state.runm.objects.insert(kept.uuid, kept)
    if provider is not None:
        state.beside.providers.put(kept.uuid, provider)
    return Stored(kept, 1, 0)


def get(deployment: Deployment, caller: Caller, state: State, uuid: UUID) -> tuple[Stored, PropertyRules]:
    """Return an object that the caller may see, and the rules for its properties. Raises RefusedError, NOT_FOUND."""
    found = state.runm.objects.versioned(uuid)
    if found is None or not caller.may_see(found.record, deployment):
        raise not_found()
    stored = Stored(found.record, generation_of(found.version, found.revision), found.revision)
    rules = RulesByScope(state, caller.reader)
    rules.learn([found.record])
    return stored, rules.of(found.record)


def update(
    deployment: Deployment, caller: Caller, uuid: UUID, generation: int, change: Callable[[Object], Object]
) -> Stored:
    """Replace an object by `change(what the caller sees of it)`, in one commit that moves its index entries.

    Properties that the caller may not read stay. The entry of the object's name is written in any case, so that a watch on the
    names sees every update. With a `generation` (not 0) the object must be at it: ABORTED otherwise; without one, the update is
    tried again when another writer came between. Raises RefusedError as `create` does, NOT_FOUND.
    """

    def attempt() -> Stored:
        with deployment.store.transaction() as transaction:
            state = deployment.over(transaction, *deployment.ahead.of_objects([uuid], caller.partition))
            stored, rules = get(deployment, caller, state, uuid)
            if generation not in {0, stored.generation}:
                raise RefusedError(GrpcStatus.ABORTED, "the object is at another generation.")
            new = _changed(deployment, stored.record, rules, change)
            _require_fitting(_enforced_schema(deployment, state, _scope_of(state, new)), new)
            state.runm.objects.update(uuid, new)
            commit = _with_name_entry(deployment.bound, transaction.collected(), new)
            transaction.close()
        deployment.store.engine.commit(commit)
        return Stored(rules.visible(new), _generation_after(deployment, stored), 0)

    try:
        return Backoff().until_committed(attempt)
    except UniqueViolationError as error:
        raise already_exists("object already exists.") from error


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _changed(deployment: Deployment, old: Object, rules: PropertyRules, change: Callable[[Object], Object]) -> Object:
    wanted = change(rules.visible(old))
    for name in ("partition", "object_type", "project", "uuid"):
        if getattr(wanted, name) != getattr(old, name):
            raise invalid("an object keeps its partition, type, project and UUID.")
    seen = rules.seen(wanted.properties)
    if len(seen) < len(wanted.properties):
        unseen = next(one.key for one in wanted.properties if one not in seen)
        raise denied(f"{property_named(unseen)} may not be written by this project and role.")
    kept = structs.replace(wanted, properties=(*seen, *rules.unseen(old.properties)))
    rules.require_writable(changed_keys(old.properties, kept.properties))
    return checked_object(deployment.bound, kept, deployment.required_type(old.object_type))


def _scope_of(state: State, record: Object) -> Scope:
    """The scope of an object that is there: a provider's with its type. Raises CorruptionError."""
    beside = state.beside.providers.get(record.uuid) if record.object_type == PROVIDER else None
    return Scope(record.partition, record.object_type, "" if beside is None else beside.provider_type)


def _enforced_schema(deployment: Deployment, state: State, scope: Scope) -> str | None:
    """The schema of the definition of a partition and type, or of the type, if one was set and is enforced."""
    if not deployment.rulings.has_enforced_definitions:
        return None
    for candidate in fallbacks_of(scope):
        definition = definition_at(state.runm, candidate)
        if definition is not None:
            return None if is_untouched_default(definition) else definition.schema
    return None


def _require_fitting(schema: str | None, record: Object) -> None:
    """Hold properties against a definition (4.4). Raises RefusedError, INVALID_ARGUMENT."""
    wrong = () if schema is None else property_check(schema).violations(record.properties)
    if wrong:
        raise invalid(
            "\n".join(["the object's properties do not fit their definition:", *(f"- {one}" for one in wrong)])
        )


def _with_name_entry(bound: BoundLayout, commit: Commit, record: Object) -> Commit:
    """Add a put of the entry of the object's name, unless the commit writes it already.

    Why without a guard of its own: the commit guards the record, and nobody can take or give up its name without writing it.
    """
    written = {mutation.key for mutation in commit.mutations if isinstance(mutation, Put)}
    entries = (entry for name in _NAME_INDEXES for entry in bound.indexes[name].entries(record.uuid, record))
    touched: list[Mutation] = [Put(raw_key, value) for raw_key, value in entries if raw_key not in written]
    return Commit(commit.guards, (*commit.mutations, *touched), commit.epoch)


def _generation_after(deployment: Deployment, before: Stored) -> int:
    """The generation that a guarded write gave an object."""
    if deployment.store.engine.profile.claims(Capability.REVISIONS):
        return before.generation + 1
    with deployment.reading() as after:
        now = after.runm.objects.versioned(before.record.uuid)
    return before.generation if now is None else generation_of(now.version, now.revision)


def _stored_or_error(state: State, uuid: UUID) -> Stored | CorruptionError | None:
    try:
        found = state.runm.objects.versioned(uuid)
    except CorruptionError as error:
        return error
    if found is None:
        return None
    return Stored(found.record, generation_of(found.version, found.revision), found.revision)
