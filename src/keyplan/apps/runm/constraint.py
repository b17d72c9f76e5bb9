"""What an ObjectFilter asks for, expanded against the partitions and types that there are."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.bounds import EVERY_PROJECT
from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.records import ObjectType, ObjectTypeScope
from keyplan.apps.runm.refusal import denied, invalid, missing
from keyplan.apps.runm.session import Caller

__all__ = ["ITEM", "Constraint", "constraints_of", "digits_of", "range_of_digits"]

_NO_UUID: Final = UUID(int=0)
ITEM: Final = attrgetter("key", "value")


class _Properties(NamedTuple):
    """A PropertyFilter: all non-empty parts must hold."""

    require_items: frozenset[tuple[str, str]]
    require_keys: frozenset[str]
    forbid_items: frozenset[tuple[str, str]]
    forbid_keys: frozenset[str]
    any_items: frozenset[tuple[str, str]]
    any_keys: frozenset[str]

    def hold(self, message: Any) -> bool:
        if self is _ANY_PROPERTIES:
            return True
        items = set(map(ITEM, message.properties))
        if not (
            self.require_items <= items
            and self.forbid_items.isdisjoint(items)
            and (not self.any_items or not self.any_items.isdisjoint(items))
        ):
            return False
        if not (self.require_keys or self.forbid_keys or self.any_keys):
            return True
        keys = {key for key, _ in items}
        return (
            self.require_keys <= keys
            and self.forbid_keys.isdisjoint(keys)
            and (not self.any_keys or not self.any_keys.isdisjoint(keys))
        )


class _Tags(NamedTuple):
    """A TagFilter."""

    require: frozenset[str]
    forbid: frozenset[str]
    any: frozenset[str]

    def hold(self, message: Any) -> bool:
        if self is _ANY_TAGS:
            return True
        tags = frozenset(message.tags)
        return self.require <= tags and not self.forbid & tags and (not self.any or bool(self.any & tags))


_NOTHING: Final = frozenset[Any]()
_ANY_PROPERTIES: Final = _Properties(*[_NOTHING] * len(_Properties._fields))
_ANY_TAGS: Final = _Tags(*[_NOTHING] * len(_Tags._fields))


class Constraint(NamedTuple):
    """One filter, expanded: an object must fit all of it.

    `partitions` are those that are asked for, by their UUIDs as they are spelled. `scopes` are the types that are asked for,
    each with whether its objects belong to projects; of those that do, objects of `projects` fit (None: of any). `digits` are
    the first of the UUID's (all 32: that one object); `name` is empty for any name.
    """

    partitions: Mapping[str, UUID]
    scopes: Mapping[str, bool]
    projects: frozenset[str] | None
    digits: str
    name: str
    is_name_prefix: bool
    properties: _Properties
    tags: _Tags

    def holds_place(self, message: Any) -> bool:
        """Whether an object fits, whatever its properties and tags are: what the caller may read of them decides on those."""
        has_project = self.scopes.get(message.object_type)
        if has_project is None or message.partition not in self.partitions:
            return False
        if has_project and self.projects is not None and message.project not in self.projects:
            return False
        if self.digits and not message.uuid.startswith(self.digits):
            return False
        name = self.name
        return not name or (message.name.startswith(name) if self.is_name_prefix else message.name == name)

    def holds_rest(self, message: Any) -> bool:
        """Whether the properties and tags of an object, as far as the caller may read it, fit."""
        return self.properties.hold(message) and self.tags.hold(message)


# ---- from the wire -----------------------------------------------------------------------------------------------------


def constraints_of(deployment: Deployment, caller: Caller, state: State, filters: Sequence[Any]) -> list[Constraint]:
    """Return what the ObjectFilters ask for; an object is found when it fits any of them.

    Raises RefusedError, FAILED_PRECONDITION, when there are filters, and none of them can be met: they name no partition or no
    type that there is. PERMISSION_DENIED when one of them names a project whose objects are not the session's to see, and could
    show such: an answer without them would look whole.
    """
    if not filters:
        return [_expanded(deployment, caller, state, None)]
    found = [_expanded(deployment, caller, state, one) for one in filters]
    possible = [one for one in found if one.partitions and one.scopes]
    if not possible:
        raise missing("failed to expand object filters.")
    for one in possible:
        if one.projects is not None and not one.projects and any(one.scopes.values()):
            raise denied("a filter names a project that is not the session's: ask in a session of that project.")
    return possible


def _projects(caller: Caller, given: Any) -> frozenset[str] | None:
    """The projects whose objects a filter is for, none where it names another's; None: all."""
    named = EVERY_PROJECT if given is None else spelled_project(given.project)
    if caller.has_every_project and named in {"", EVERY_PROJECT}:
        return caller.bounds.projects
    project = caller.project if given is None or not given.project else named
    return frozenset({project}) if caller.sees_project(project) else frozenset()


def _expanded(deployment: Deployment, caller: Caller, state: State, given: Any) -> Constraint:
    scopes = {code: kind.scope is ObjectTypeScope.PROJECT for code, kind in _types_for(deployment, given).items()}
    if given is None:
        return Constraint(
            partitions={caller.partition.hex: caller.partition},
            scopes=scopes,
            projects=_projects(caller, None),
            digits="",
            name="",
            is_name_prefix=False,
            properties=_ANY_PROPERTIES,
            tags=_ANY_TAGS,
        )
    if given.HasField("object_type_filter"):
        scopes = _of_codes(scopes, given.object_type_filter.code_filter)
    return Constraint(
        partitions=_partitions(caller, state, given),
        scopes=scopes,
        projects=_projects(caller, given),
        digits=digits_of(given.uuid_filter),
        name=given.name_filter.name,
        is_name_prefix=given.name_filter.use_prefix,
        properties=_properties(given.property_filter) if given.HasField("property_filter") else _ANY_PROPERTIES,
        tags=_tags(given.tag_filter) if given.HasField("tag_filter") else _ANY_TAGS,
    )


def _types_for(deployment: Deployment, given: Any) -> Mapping[str, ObjectType]:
    """The types that a filter may mean. Why not always all: one that is named, and was read before, need not be read again."""
    code_filter = None if given is None else given.object_type_filter.code_filter
    if code_filter is not None and code_filter.code and not code_filter.use_prefix:
        kind = deployment.object_type(code_filter.code)
        if kind is None:
            deployment.refuse_damaged_type(code_filter.code)
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


def _partitions(caller: Caller, state: State, given: Any) -> dict[str, UUID]:
    """The partitions that a filter names; the caller's when it names none, never all of them."""
    named = given.partition_filter.uuids
    if not named:
        return {caller.partition.hex: caller.partition}
    ordered = sorted({uuid for uuid in map(parsed_uuid, named) if uuid is not None})
    known = state.partitions.get_many(ordered)
    return {uuid.hex: uuid for uuid, record in zip(ordered, known, strict=True) if record is not None}


def digits_of(uuid_filter: Any) -> str:
    """Return the first digits of the UUIDs that a UuidFilter asks for, all 32 for one UUID; empty for any."""
    text = uuid_filter.uuid
    if not text:
        return ""
    uuid = parsed_uuid(text)
    if uuid is not None:
        return uuid.hex
    digits = str(text).replace("-", "").lower()
    if not uuid_filter.use_prefix or not 0 < len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        raise invalid("the uuid filter is no UUID.")
    return digits


def range_of_digits(digits: str, after: UUID | None = None) -> tuple[UUID, UUID | None]:
    """Return the least UUID with these first digits that comes after `after`, and the least one after all of them.

    No digits: of all UUIDs. None when there is none after them; two equal UUIDs when there is none between.
    """
    least = max(int(digits.ljust(32, "0"), 16), 0 if after is None else after.int + 1)
    end = (int(digits or "0", 16) + 1) << 4 * (32 - len(digits))
    if least >= end:
        return _NO_UUID, _NO_UUID
    return UUID(int=least), UUID(int=end) if end < 1 << 128 else None


def _properties(given: Any) -> _Properties:
    return _Properties(
        *(_items(given.require_items), frozenset(given.require_keys)),
        *(_items(given.forbid_items), frozenset(given.forbid_keys)),
        *(_items(given.any_items), frozenset(given.any_keys)),
    )


def _items(given: Sequence[Any]) -> frozenset[tuple[str, str]]:
    return frozenset((one.key, one.value) for one in given) if given else _NOTHING


def _tags(given: Any) -> _Tags:
    return _Tags(frozenset(given.require), frozenset(given.forbid), frozenset(given.any))
