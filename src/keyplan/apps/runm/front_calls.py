"""The calls of `runm.RunmAPI`, the front end: documents in place of messages, names in place of UUIDs, providers validated.

In the original this is a process of its own, and providers are in a third one's database; here a provider is one commit.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from keyplan.apps.runm.answers import (
    definition_message,
    object_message,
    partition_message,
    provider_type_message,
    uuid_or_new,
)
from keyplan.apps.runm.calls import CheckedCall, GivenCall, performs
from keyplan.apps.runm.definition_document import compiled_definition
from keyplan.apps.runm.definitions import definition_at, resolved, set_definition
from keyplan.apps.runm.deletion import delete
from keyplan.apps.runm.deployment import PROVIDER, State
from keyplan.apps.runm.documents import ProviderDocument, partition_document, provider_document, read_document
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.json_schema import checked_schema, violations
from keyplan.apps.runm.objects import create, created
from keyplan.apps.runm.operations import ApiOperations
from keyplan.apps.runm.ordering import options_of
from keyplan.apps.runm.partition_calls import PARTITION_FIELDS, add_partition, find_partitions, require_founder
from keyplan.apps.runm.providers import PROVIDER_FIELDS, Found, found_providers, provider_messages
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import Object, ProviderRecord
from keyplan.apps.runm.refusal import RefusedError, found, invalid, missing, not_found
from keyplan.apps.runm.session import partition_named, required_partition_named
from keyplan.apps.runm.type_calls import provider_type_of, provider_types, required_provider_type
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


@performs(ApiOperations)
def partition_get(call: CheckedCall) -> Any:
    search = call.request.filter.primary_filter.search
    if not search:
        raise missing("a name or UUID to search for is required.")
    return partition_message(found(partition_named(call.state, search)))


@performs(ApiOperations)
def partition_list(call: CheckedCall) -> Iterator[Any]:
    options = options_of(call.request.options, PARTITION_FIELDS, identity="uuid")
    filters = [one for given in call.request.any for one in _partition_filters(given.primary_filter)]
    fitting = find_partitions(call.state, filters, options) if filters or not call.request.any else []
    return map(partition_message, fitting)


@performs(ApiOperations)
def partition_create(call: GivenCall) -> Any:
    require_founder(call)
    given = partition_document(read_document(_payload(call.request)))
    record = add_partition(call, given.name, uuid_or_new(given.uuid))
    return messages.PartitionCreateResponse(partition=partition_message(record))


@performs(ApiOperations)
def provider_type_get(call: CheckedCall) -> Any:
    code = call.request.filter.search
    if not code:
        raise missing("A code to search for is required.")
    return provider_type_message(found(provider_type_of(call.state, code)))


@performs(ApiOperations)
def provider_type_list(call: CheckedCall) -> Iterator[Any]:
    fields = {"code": lambda record: record.code, "description": lambda record: record.description}
    options = options_of(call.request.options, fields, identity="code")
    fitting = [
        record
        for record in provider_types(call.state)
        if not call.request.any
        or any(
            record.code.startswith(one.search) if one.use_prefix else record.code == one.search
            for one in call.request.any
        )
    ]
    return map(provider_type_message, options.arranged(fitting, fields["code"], fields))


# ---- definitions -------------------------------------------------------------------------------------------------------


@performs(ApiOperations)
def provider_definition_get(call: CheckedCall) -> Any:
    return definition_message(found(definition_at(call.state.runm, _scope_of(call.state, call.request))))


@performs(ApiOperations)
def provider_definition_set(call: CheckedCall) -> Callable[[], Any]:
    scope = _scope_of(call.state, call.request)

    def stored() -> Any:
        definition = compiled_definition(read_document(_payload(call.request)), call.caller.project)
        made = set_definition(call.deployment, call.caller, scope, "", definition)
        return messages.ObjectDefinitionSetResponse(object_definition=definition_message(made))

    return stored


# ---- providers ---------------------------------------------------------------------------------------------------------


@performs(ApiOperations)
def provider_get(call: CheckedCall) -> Any:
    if not call.request.filter.primary_filter.search:
        raise missing("a name or UUID to search for is required.")
    fitting = list(found_providers(call.deployment, call.caller, call.state, [call.request.filter]))
    if not fitting:
        raise not_found()
    if len(fitting) > 1:
        raise missing("multiple records found (expected single record match).")
    return provider_messages(call.state, fitting)[0]


@performs(ApiOperations)
def provider_list(call: CheckedCall) -> Iterator[Any]:
    options = options_of(call.request.options, PROVIDER_FIELDS, identity="uuid")
    given = call.deployment, call.caller, call.state, call.request.any
    if options.is_by_identity:
        fitting = list(islice(found_providers(*given, options), options.limit or None))
    else:
        fitting = options.arranged(found_providers(*given), _identity, PROVIDER_FIELDS)
    return iter(provider_messages(call.state, fitting))


@performs(ApiOperations)
def provider_create(call: CheckedCall) -> Callable[[], Any]:
    deployment, state, caller = call.deployment, call.state, call.caller
    given = provider_document(read_document(_payload(call.request)))
    partition = required_partition_named(state, given.partition)
    required_provider_type(state, given.provider_type)
    parent = _parent(call, partition.uuid, given.parent)
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
    beside = ProviderRecord(partition.uuid, given.provider_type, record.uuid, parent)

    def made() -> Any:
        stored = created(deployment, lambda state: create(deployment, state, caller, record, provider=beside))
        with deployment.reading() as state:
            return messages.ProviderCreateResponse(
                provider=provider_messages(state, [Found(object_message(stored), beside)])[0]
            )

    return made


@performs(ApiOperations)
def provider_delete(call: CheckedCall) -> Callable[[], Any]:
    filters = call.request.any
    if not filters or not all(one.ByteSize() and _asks(one) for one in filters):
        raise missing("at least one filter, which names something, is required.")
    every = (one.message for one in found_providers(call.deployment, call.caller, call.state, filters))
    uuids = [UUID(message.uuid) for message in every if message.partition == call.caller.partition.hex]
    if not uuids:
        raise not_found(_NOTHING)
    return lambda: messages.DeleteResponse(num_deleted=delete(call.deployment, call.caller, uuids))


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _payload(request: Any) -> bytes:
    if request.format != _YAML:
        raise RefusedError(GrpcStatus.UNIMPLEMENTED, "a payload is a YAML or JSON document.")
    payload: bytes = request.payload
    return payload


def _scope_of(state: State, request: Any) -> Scope:
    partition = required_partition_named(state, request.partition).uuid if request.partition else None
    if request.provider_type:
        required_provider_type(state, request.provider_type)
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


def _parent(call: CheckedCall, partition: UUID, text: str) -> str:
    """The UUID of the parent provider that a document names, in hex; empty for none."""
    if not text:
        return ""
    filters = [messages.ProviderFilter(primary_filter={"search": text}, partition_filter={"search": partition.hex})]
    fitting = list(found_providers(call.deployment, call.caller, call.state, filters))
    if len(fitting) != 1:
        raise missing(f"Parent provider {text} not found")
    return _identity(fitting[0])


def _validate(schema_text: str, given: ProviderDocument) -> None:
    wrong = violations(checked_schema(schema_text), dict(given.values))
    if wrong:
        lines = "\n".join(f"- {one}" for one in wrong)
        raise invalid(f"the provider does not fit its definition:\n{lines}")


def _asks(given: Any) -> bool:
    """Whether a filter names anything at all."""
    searches = (given.primary_filter, given.partition_filter, given.provider_type_filter)
    return any(one.search for one in searches) or given.property_filter.ByteSize() > 0


def _identity(one: Found) -> str:
    uuid: str = one.message.uuid
    return uuid
