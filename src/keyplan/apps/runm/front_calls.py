"""The calls of `runm.RunmAPI`, the front end: documents in place of messages, names in place of UUIDs, providers validated.

In the original this is a process of its own, and providers are in a third one's database; here a provider is one commit.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from keyplan.apps.runm.answers import (
    definition_message,
    partition_message,
    provider_type_message,
    uuid_or_new,
)
from keyplan.apps.runm.definition_document import compiled_definition
from keyplan.apps.runm.definitions import definition_at, resolved, set_definition
from keyplan.apps.runm.deletion import delete
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.documents import ProviderDocument, partition_document, provider_document, read_document
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.json_schema import checked_schema, violations
from keyplan.apps.runm.object_calls import require_own_place
from keyplan.apps.runm.objects import create, created
from keyplan.apps.runm.ordering import options_of
from keyplan.apps.runm.partition_calls import PARTITION_FIELDS, add_partition, find_partitions
from keyplan.apps.runm.providers import PROVIDER_FIELDS, Found, found_providers, provider_messages
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import Object, ProviderRecord
from keyplan.apps.runm.refusal import RefusedError, invalid, missing, not_found
from keyplan.apps.runm.session import Caller, caller_of, partition_named
from keyplan.apps.runm.type_calls import provider_type_of, provider_types
from keyplan.apps.runm.wire_table import messages
from keyplan.grpc_status import GrpcStatus

__all__ = [
    "partition_create",
    "partition_get",
    "partition_list",
    "provider_create",
    "provider_definition_get",
    "provider_definition_set",
    "provider_delete",
    "provider_get",
    "provider_list",
    "provider_type_get",
    "provider_type_list",
]

_NOTHING = "no matching records could be found."
_YAML = 0


# ---- partitions and provider types -------------------------------------------------------------------------------------


def partition_get(deployment: Deployment, request: Any) -> Any:
    """Return the partition of a UUID or a name."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        search = request.filter.primary_filter.search
        if not search:
            raise missing("a name or UUID to search for is required.")
        record = partition_named(state, search)
    if record is None:
        raise not_found()
    return partition_message(record)


def partition_list(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream the partitions that fit any filter, a UUID or name or the beginning of one."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        options = options_of(request.options, PARTITION_FIELDS, identity="uuid")
        filters = [one for given in request.any for one in _partition_filters(given.primary_filter)]
        found = find_partitions(state, filters, options) if filters or not request.any else []
    return map(partition_message, found)


def partition_create(deployment: Deployment, request: Any) -> Any:
    """Make the partition of a document. As in RunmMetadata, no session is asked for unless a bootstrap token is configured."""
    if deployment.rulings.bootstrap_token:
        with deployment.reading_for(request) as state:
            caller_of(request, state)
    given = partition_document(read_document(_payload(request)))
    record = add_partition(deployment, given.name, uuid_or_new(given.uuid))
    return messages.PartitionCreateResponse(partition=partition_message(record))


def provider_type_get(deployment: Deployment, request: Any) -> Any:
    """Return the provider type of a code."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        if not request.filter.search:
            raise missing("A code to search for is required.")
        record = provider_type_of(state, request.filter.search)
    if record is None:
        raise not_found()
    return provider_type_message(record)


def provider_type_list(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream the provider types that fit any filter, a code or the beginning of one."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        fields = {"code": lambda record: record.code, "description": lambda record: record.description}
        options = options_of(request.options, fields, identity="code")
        found = [
            record
            for record in provider_types(state)
            if not request.any
            or any(
                record.code.startswith(one.search) if one.use_prefix else record.code == one.search
                for one in request.any
            )
        ]
    return map(provider_type_message, options.arranged(found, fields["code"], fields))


# ---- definitions -------------------------------------------------------------------------------------------------------


def provider_definition_get(deployment: Deployment, request: Any) -> Any:
    """Return the definition of exactly one of the four levels, as RunmMetadata's gets do."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        definition = definition_at(state.runm, _scope_of(state, request))
    if definition is None:
        raise not_found()
    return definition_message(definition)


def provider_definition_set(deployment: Deployment, request: Any) -> Any:
    """Compile the definition of a document, and set it on one of the four levels."""
    with deployment.reading_for(request) as state:
        caller = caller_of(request, state)
        scope = _scope_of(state, request)
    definition = compiled_definition(read_document(_payload(request)), caller.project)
    stored = set_definition(deployment, scope, "", definition, request.session.user)
    return messages.ObjectDefinitionSetResponse(object_definition=definition_message(stored))


# ---- providers ---------------------------------------------------------------------------------------------------------


def provider_get(deployment: Deployment, request: Any) -> Any:
    """Return the provider of a UUID or a name, in the session's partition unless the filter names another."""
    with deployment.reading_for(request) as state:
        caller = caller_of(request, state)
        if not request.filter.primary_filter.search:
            raise missing("a name or UUID to search for is required.")
        found = list(found_providers(deployment, caller, state, [request.filter]))
        if not found:
            raise not_found()
        if len(found) > 1:
            raise missing("multiple records found (expected single record match).")
        return provider_messages(state, found)[0]


def provider_list(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream the providers that fit any of the filters, those of the session's partition without filters."""
    with deployment.reading_for(request) as state:
        caller = caller_of(request, state)
        options = options_of(request.options, PROVIDER_FIELDS, identity="uuid")
        if options.is_by_identity:
            every = found_providers(deployment, caller, state, request.any, options)
            found = list(islice(every, options.limit or None))
        else:
            found = options.arranged(
                found_providers(deployment, caller, state, request.any), _identity, PROVIDER_FIELDS
            )
        messages = provider_messages(state, found)
    return iter(messages)


def provider_create(deployment: Deployment, request: Any) -> Any:
    """Make the provider of a document, validated whole by the definition that holds for its partition and type."""
    with deployment.reading_for(request) as state:
        caller = caller_of(request, state)
        given = provider_document(read_document(_payload(request)))
        partition = partition_named(state, given.partition)
        if partition is None:
            raise missing(f"Partition {given.partition} not found")
        if provider_type_of(state, given.provider_type) is None:
            raise missing(f"Provider type {given.provider_type} not found")
        parent = _parent(deployment, caller, state, partition.uuid, given.parent)
        holding = resolved(state, Scope(partition.uuid, PROVIDER, given.provider_type))
    if holding is not None:
        _validate(holding[1].schema, given)
    record = Object(
        partition=partition.uuid,
        object_type=PROVIDER,
        uuid=uuid_or_new(given.uuid),
        name=given.name,
        properties=given.properties,
        tags=given.tags,
    )
    require_own_place(deployment, caller, record)
    beside = ProviderRecord(partition.uuid, given.provider_type, record.uuid, parent)
    stored = created(deployment, lambda state: create(deployment, state, caller, record, provider=beside))
    with deployment.reading() as state:
        return messages.ProviderCreateResponse(provider=provider_messages(state, [Found(stored, beside)])[0])


def provider_delete(deployment: Deployment, request: Any) -> Any:
    """Delete the providers of the session's partition that fit any of the filters.

    A filter that asks for nothing is refused, not taken for all.
    """
    with deployment.reading_for(request) as state:
        caller = caller_of(request, state)
        if not request.any or not all(one.ByteSize() and _asks(one) for one in request.any):
            raise missing("at least one filter, which names something, is required.")
        every = found_providers(deployment, caller, state, request.any)
        found = [one for one in every if one.stored.record.partition == caller.partition]
    if not found:
        raise not_found(_NOTHING)
    deleted = delete(deployment, caller, [one.stored.record.uuid for one in found])
    return messages.DeleteResponse(num_deleted=deleted)


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _payload(request: Any) -> bytes:
    if request.format != _YAML:
        raise RefusedError(GrpcStatus.UNIMPLEMENTED, "a payload is a YAML or JSON document.")
    payload: bytes = request.payload
    return payload


def _scope_of(state: State, request: Any) -> Scope:
    partition: UUID | None = None
    if request.partition:
        record = partition_named(state, request.partition)
        if record is None:
            raise missing(f"Partition {request.partition} not found")
        partition = record.uuid
    if request.provider_type and provider_type_of(state, request.provider_type) is None:
        raise missing(f"Provider type {request.provider_type} not found")
    return Scope(partition, PROVIDER, request.provider_type)


def _partition_filters(given: Any) -> list[Any]:
    """A search is for a UUID or for a name, or for the beginning of either."""
    make = messages.PartitionFindFilter
    filters = []
    if given.search:
        filters.append(make(name_filter={"name": given.search, "use_prefix": given.use_prefix}))
        digits = given.search.replace("-", "").lower()
        is_uuid = parsed_uuid(given.search) is not None
        if is_uuid or (given.use_prefix and len(digits) <= 32 and set(digits) <= set("0123456789abcdef")):
            filters.append(make(uuid_filter={"uuid": digits, "use_prefix": given.use_prefix}))
    return filters


def _parent(deployment: Deployment, caller: Caller, state: State, partition: UUID, text: str) -> str:
    """The UUID of the parent provider that a document names, in hex; empty for none."""
    if not text:
        return ""
    filters = [messages.ProviderFilter(primary_filter={"search": text}, partition_filter={"search": partition.hex})]
    found = list(found_providers(deployment, caller, state, filters))
    if len(found) != 1:
        raise missing(f"Parent provider {text} not found")
    return found[0].stored.record.uuid.hex


def _validate(schema_text: str, given: ProviderDocument) -> None:
    wrong = violations(checked_schema(schema_text), dict(given.values))
    if wrong:
        lines = "\n".join(f"- {one}" for one in wrong)
        raise invalid(f"the provider does not fit its definition:\n{lines}")


def _asks(given: Any) -> bool:
    """Whether a filter names anything at all."""
    searches = (given.primary_filter, given.partition_filter, given.provider_type_filter)
    return any(one.search for one in searches) or given.property_filter.ByteSize() > 0


def _identity(found: Found) -> str:
    return found.stored.record.uuid.hex
