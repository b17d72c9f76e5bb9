"""What an ObjectFilter asks for, expanded against the partitions and types that there are; and which indexes can answer it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.layout import ObjectName, PartitionObjectName, Runm
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope
from keyplan.apps.runm.refusal import invalid, missing
from keyplan.apps.runm.session import Caller
from keyplan.errors import InvalidKeyError

__all__ = ["Constraint", "constraints_of", "digits_of", "range_of_digits"]


class _Properties(NamedTuple):
    """A PropertyFilter: all non-empty parts must hold."""

    require_items: frozenset[tuple[str, str]]
    require_keys: frozenset[str]
    forbid_items: frozenset[tuple[str, str]]
    forbid_keys: frozenset[str]
    any_items: frozenset[tuple[str, str]]
    any_keys: frozenset[str]

    def hold(self, record: Object) -> bool:
        items = {(one.key, one.value) for one in record.properties}
        keys = {key for key, _ in items}
        return (
            self.require_items <= items
            and self.require_keys <= keys
            and not self.forbid_items & items
            and not self.forbid_keys & keys
            and (not self.any_items or bool(self.any_items & items))
            and (not self.any_keys or bool(self.any_keys & keys))
        )


class _Tags(NamedTuple):
    """A TagFilter."""

    require: frozenset[str]
    forbid: frozenset[str]
    any: frozenset[str]

    def hold(self, record: Object) -> bool:
        tags = frozenset(record.tags)
        return self.require <= tags and not self.forbid & tags and (not self.any or bool(self.any & tags))


class Constraint(NamedTuple):
    """One filter, expanded: an object must fit all of it.

    `scopes` are the types that are asked for, each with whether its objects belong to projects. `digits` are the first of the
    UUID's (all 32: that one object); `name` is empty for any name.
    """

    partitions: frozenset[UUID]
    scopes: Mapping[str, bool]
    project: str
    digits: str
    name: str
    is_name_prefix: bool
    properties: _Properties
    tags: _Tags

    def holds(self, record: Object) -> bool:
        """Whether an object, as far as the caller may read it, fits."""
        has_project = self.scopes.get(record.object_type)
        if has_project is None or record.partition not in self.partitions:
            return False
        if has_project and record.project != self.project:
            return False
        if not record.uuid.hex.startswith(self.digits):
            return False
        if self.name and not (record.name.startswith(self.name) if self.is_name_prefix else record.name == self.name):
            return False
        return self.properties.hold(record) and self.tags.hold(record)

    # ---- where candidates can come from ----------------------------------------------------------------------------------

    def sources(self, runm: Runm) -> Iterator[Iterator[UUID]]:
        """Yield the sources, each of which has every object that fits."""
        if self.digits:
            yield self._of_digits(runm)
        for item in self.properties.require_items:
            yield self._of_items(runm, (item,))
        for key in self.properties.require_keys:
            yield self._of_keys(runm, (key,))
        for tag in self.tags.require:
            yield self._of_tags(runm, (tag,))
        if self.properties.any_items:
            yield self._of_items(runm, self.properties.any_items)
        if self.properties.any_keys:
            yield self._of_keys(runm, self.properties.any_keys)
        if self.tags.any:
            yield self._of_tags(runm, self.tags.any)
        yield self._of_names(runm)

    def _of_digits(self, runm: Runm) -> Iterator[UUID]:
        first, below = range_of_digits(self.digits)
        return runm.objects.keys(at_least=first, below=below)

    def _of_items(self, runm: Runm, items: Iterable[tuple[str, str]]) -> Iterator[UUID]:
        keys = runm.objects_by_property.keys
        return chain.from_iterable(_keys(keys, *place, *item) for place in self._places() for item in items)

    def _of_keys(self, runm: Runm, names: Iterable[str]) -> Iterator[UUID]:
        keys = runm.objects_by_property.keys
        return chain.from_iterable(_keys(keys, *place, name) for place in self._places() for name in names)

    def _of_tags(self, runm: Runm, tags: Iterable[str]) -> Iterator[UUID]:
        keys = runm.objects_by_tag.keys
        return chain.from_iterable(_keys(keys, partition, tag) for partition in self.partitions for tag in tags)

    def _of_names(self, runm: Runm) -> Iterator[UUID]:
        for partition, code in self._places():
            place = (partition, code, self.project) if self.scopes[code] else (partition, code)
            index = runm.objects_by_project_and_name if self.scopes[code] else runm.objects_by_name
            if self.name and not self.is_name_prefix:
                yield from _named(runm, partition, code, self.project if self.scopes[code] else "", self.name)
            else:
                yield from _keys(index.keys, *place, starts_with=self.name or None)

    def _places(self) -> Iterator[tuple[UUID, str]]:
        return ((partition, code) for partition in sorted(self.partitions) for code in self.scopes)


def _keys(keys: Callable[..., Iterator[UUID]], *prefix: object, starts_with: str | None = None) -> Iterator[UUID]:
    """What an index holds; nothing for a name or value that no key can have, since no object has it."""
    try:
        return keys(*prefix, starts_with=starts_with)
    except InvalidKeyError:
        return iter(())


def _named(runm: Runm, partition: UUID, code: str, project: str, name: str) -> Iterator[UUID]:
    try:
        if project:
            uuid = runm.objects_by_project_and_name.key_of(ObjectName(partition, code, project, name))
        else:
            uuid = runm.objects_by_name.key_of(PartitionObjectName(partition, code, name))
    except InvalidKeyError:
        return
    if uuid is not None:
        yield uuid


# ---- from the wire -----------------------------------------------------------------------------------------------------


def constraints_of(deployment: Deployment, caller: Caller, state: State, filters: Sequence[Any]) -> list[Constraint]:
    """Return what the ObjectFilters ask for; an object is found when it fits any of them.

    Raises RefusedError, FAILED_PRECONDITION, when there are filters, and none of them can be met: they name no partition or no
    type that there is.
    """
    if not filters:
        return [_expanded(deployment, caller, state, None)]
    found = [_expanded(deployment, caller, state, one) for one in filters]
    possible = [one for one in found if one.partitions and one.scopes]
    if not possible:
        raise missing("failed to expand object filters.")
    return [_of_own_project(one, caller) for one in possible]


def _of_own_project(constraint: Constraint, caller: Caller) -> Constraint:
    """Leave out types that have projects where another project than the caller's is named: it shows nothing of them."""
    if constraint.project == caller.project:
        return constraint
    scopes = {code: has_project for code, has_project in constraint.scopes.items() if not has_project}
    return constraint._replace(scopes=scopes)


def _expanded(deployment: Deployment, caller: Caller, state: State, given: Any) -> Constraint:
    scopes = {code: kind.scope is ObjectTypeScope.PROJECT for code, kind in _types_for(deployment, given).items()}
    if given is None:
        empty = frozenset[Any]()
        properties, tags = _Properties(*[empty] * 6), _Tags(empty, empty, empty)
        return Constraint(frozenset({caller.partition}), scopes, caller.project, "", "", False, properties, tags)  # noqa: FBT003
    if given.HasField("object_type_filter"):
        scopes = _of_codes(scopes, given.object_type_filter.code_filter)
    return Constraint(
        partitions=_partitions(deployment, caller, state, given),
        scopes=scopes,
        project=spelled_project(given.project) if given.project else caller.project,
        digits=digits_of(given.uuid_filter),
        name=given.name_filter.name,
        is_name_prefix=given.name_filter.use_prefix,
        properties=_properties(given.property_filter),
        tags=_Tags(*(frozenset(getattr(given.tag_filter, name)) for name in _Tags._fields)),
    )


def _types_for(deployment: Deployment, given: Any) -> Mapping[str, ObjectType]:
    """The types that a filter may mean. Why not always all: one that is named, and was read before, need not be read again."""
    code_filter = None if given is None else given.object_type_filter.code_filter
    if code_filter is not None and code_filter.code and not code_filter.use_prefix:
        kind = deployment.object_type(code_filter.code)
        return {} if kind is None else {kind.code: kind}
    return deployment.object_types()


def _of_codes(scopes: dict[str, bool], code_filter: Any) -> dict[str, bool]:
    code = code_filter.code
    if not code:
        return scopes
    return {
        known: has_project
        for known, has_project in scopes.items()
        if (known.startswith(code) if code_filter.use_prefix else known == code)
    }


def _partitions(deployment: Deployment, caller: Caller, state: State, given: Any) -> frozenset[UUID]:
    """The partitions that a filter names; the caller's when it names none, never all of them."""
    named = given.partition_filter.uuids
    if not named:
        return frozenset({caller.partition})
    uuids = {uuid for uuid in map(parsed_uuid, named) if uuid is not None}
    if deployment.rulings.is_isolated:
        uuids &= {caller.partition}
    ordered = sorted(uuids)
    return frozenset(
        uuid
        for uuid, record in zip(ordered, state.runm.partitions.get_many(ordered), strict=True)
        if record is not None
    )


def digits_of(uuid_filter: Any) -> str:
    """Return the first digits of the UUIDs that a UuidFilter asks for, all 32 for one UUID; empty for any."""
    text = uuid_filter.uuid
    if not text:
        return ""
    uuid = parsed_uuid(text)
    if uuid is not None:
        return uuid.hex
    digits = str(text).replace("-", "").lower()
    if not uuid_filter.use_prefix or len(digits) > 32 or not set(digits) <= set("0123456789abcdef"):
        raise invalid("the uuid filter is no UUID.")
    return digits


def range_of_digits(digits: str) -> tuple[UUID, UUID | None]:
    """Return the least UUID with these first digits, and the least one after all of them; None when there is none after."""
    after = (int(digits, 16) + 1) << 4 * (32 - len(digits))
    return UUID(int=int(digits.ljust(32, "0"), 16)), UUID(int=after) if after < 1 << 128 else None


def _properties(given: Any) -> _Properties:
    def items(name: str) -> frozenset[tuple[str, str]]:
        return frozenset((one.key, one.value) for one in getattr(given, name))

    def keys(name: str) -> frozenset[str]:
        return frozenset(getattr(given, name))

    return _Properties(
        *(items("require_items"), keys("require_keys")),
        *(items("forbid_items"), keys("forbid_keys")),
        *(items("any_items"), keys("any_keys")),
    )
