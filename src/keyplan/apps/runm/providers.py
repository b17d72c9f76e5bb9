"""Providers as the front end shows them: an object of type runm.provider, and what stands beside it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.answers import partition_message, provider_type_message
from keyplan.apps.runm.constraint import constraints_of
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.ordering import Options
from keyplan.apps.runm.readable import log_damage, readable_many, readable_one
from keyplan.apps.runm.records import Partition, ProviderRecord, ProviderType
from keyplan.apps.runm.search import search
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.type_calls import provider_type_of
from keyplan.apps.runm.walk import WANTED_MAX, walked
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import CorruptionError

__all__ = ["PROVIDER_FIELDS", "Found", "found_providers", "provider_messages"]

_ObjectFilter = messages.ObjectFilter
_Provider = messages.Provider

EVERYTHING: Final = Options(limit=0, marker="", sort=())


class Found(NamedTuple):
    """A provider. One that was stored as a mere object, by the original for instance, has nothing beside it."""

    message: Any
    beside: ProviderRecord | None

    @property
    def provider_type(self) -> str:
        """Its provider type's code; empty when nobody said."""
        return "" if self.beside is None else self.beside.provider_type


PROVIDER_FIELDS: Final[Mapping[str, Callable[[Found], str]]] = {
    "uuid": lambda found: found.message.uuid,
    "name": lambda found: found.message.name,
    "partition": lambda found: found.message.partition,
    "provider_type": lambda found: found.provider_type,
}
"""What providers can be sorted by."""


def found_providers(
    deployment: Deployment, caller: Caller, state: State, filters: Iterable[Any], options: Options = EVERYTHING
) -> Iterator[Found]:
    """Yield the providers that fit any of the ProviderFilters, by UUID; all of the session's partition without filters.

    Of the options, marker and limit say where to begin and how many are likely to be taken; the caller ends the list. The state
    must stay open meanwhile.
    """
    given = tuple(filters) or (messages.ProviderFilter(),)
    merged = merge(*(_found(deployment, caller, state, one, options) for one in given), key=_uuid)
    return (next(same) for _, same in groupby(merged, key=_uuid))


def provider_messages(state: State, found: Sequence[Found]) -> list[Any]:
    """Providers. A parent is shown with UUID and name, without a parent of its own."""
    parents = [uuid for one in found if one.beside is not None and (uuid := parsed_uuid(one.beside.parent))]
    state.read_ahead(
        [
            *state.ahead.of_partitions({one.message.partition for one in found}),
            *state.ahead.of_sub_types(PROVIDER, {one.provider_type for one in found} - {""}),
            *state.ahead.of_objects(parents, None),
        ]
    )
    return [_message(state, one) for one in found]


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _uuid(found: Found) -> str:
    uuid: str = found.message.uuid
    return uuid


def _found(deployment: Deployment, caller: Caller, state: State, given: Any, options: Options) -> Iterator[Found]:
    object_filters = _object_filters(state, given)
    if not object_filters:
        return
    if options.limit:
        constraints = constraints_of(deployment, caller, state, object_filters)
        found = walked(deployment, caller, state, constraints, options.after, options.limit)
    else:
        found = search(deployment, caller, state, object_filters, options)
    while batch := list(islice(found, min(options.limit or WANTED_MAX, WANTED_MAX))):
        beside = readable_many(state.beside.providers, [UUID(message.uuid) for message in batch])
        for one in map(Found, batch, beside):
            if _is_of_type(one, given.provider_type_filter):
                yield one


def _message(state: State, found: Found) -> Any:
    shown = found.message
    uuid = UUID(shown.partition)
    partition = readable_one(state.partitions, uuid) or Partition(uuid, "")
    message = _Provider(
        partition=partition_message(partition),
        provider_type=provider_type_message(_type_of(state, found.provider_type)),
        uuid=shown.uuid,
        name=shown.name,
        properties=shown.properties,
        tags=shown.tags,
        generation=shown.generation,
    )
    parent = parsed_uuid(found.beside.parent) if found.beside is not None else None
    if parent is not None:
        above = readable_one(state.runm.objects, parent)
        message.parent.CopyFrom(_Provider(uuid=parent.hex, name="" if above is None else above.name))
    return message


def _type_of(state: State, code: str) -> ProviderType:
    """A provider's type; the bare code where there is none, or none that can be read."""
    try:
        return (provider_type_of(state, code) if code else None) or ProviderType(code)
    except CorruptionError as error:
        log_damage(error)
        return ProviderType(code)


def _object_filters(state: State, given: Any) -> list[Any]:
    """A provider filter as object filters: two when it searches for the beginning of a name or of a UUID."""
    made = _ObjectFilter(object_type_filter={"code_filter": {"code": PROVIDER}}, property_filter=given.property_filter)
    if given.partition_filter.search:
        uuids = _partitions(state, given.partition_filter)
        if not uuids:
            return []
        made.partition_filter.uuids.extend(uuids)
    primary = given.primary_filter
    if not primary.search:
        return [made]
    filters = []
    if parsed_uuid(primary.search) is None:
        named = _copy(made)
        named.name_filter.name, named.name_filter.use_prefix = primary.search, primary.use_prefix
        filters.append(named)
    digits = primary.search.replace("-", "").lower()
    is_whole = parsed_uuid(primary.search) is not None
    if is_whole or (primary.use_prefix and len(digits) <= 32 and set(digits) <= set("0123456789abcdef")):
        identified = _copy(made)
        identified.uuid_filter.uuid, identified.uuid_filter.use_prefix = digits, primary.use_prefix
        filters.append(identified)
    return filters


def _copy(message: Any) -> Any:
    other = type(message)()
    other.CopyFrom(message)
    return other


def _partitions(state: State, given: Any) -> list[str]:
    """The UUIDs of the partitions that a search names, by UUID or name, or by the beginning of a name."""
    uuid = parsed_uuid(given.search)
    if uuid is not None:
        return [uuid.hex]
    return [found.hex for found in state.partitions.uuids_named(given.search, is_beginning=given.use_prefix)]


def _is_of_type(found: Found, given: Any) -> bool:
    if not given.search:
        return True
    code = found.provider_type
    return code.startswith(given.search) if given.use_prefix else code == given.search
