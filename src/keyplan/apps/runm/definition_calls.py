"""The calls on object definitions: the original's for providers, and the same for any type as extensions."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from keyplan.apps.runm.answers import definition_message, definition_record
from keyplan.apps.runm.calls import CheckedCall, performs
from keyplan.apps.runm.definitions import definition_at, remove, resolved, set_definition
from keyplan.apps.runm.deployment import PROVIDER, State
from keyplan.apps.runm.layout import ObjectSubType
from keyplan.apps.runm.operations import MetadataOperations
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import ObjectDefinition
from keyplan.apps.runm.refusal import found, missing
from keyplan.apps.runm.type_calls import required_provider_type
from keyplan.apps.runm.versions import versions_of
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import InvalidKeyError

__all__ = [
    "definition_delete",
    "definition_get",
    "definition_history",
    "definition_set",
    "provider_definition_get_by_partition",
    "provider_definition_get_by_partition_and_type",
    "provider_definition_get_by_type",
    "provider_definition_get_global_default",
    "provider_definition_set",
]

_ANYTHING: Final = ObjectDefinition(UUID(int=0), '{"type": "object"}')
"""What holds for a type without definitions: ruling S4's implicit default. It has no UUID, and is not stored."""


@performs(MetadataOperations)
def provider_definition_get_global_default(call: CheckedCall) -> Any:
    return _exact(call.state, Scope(None, PROVIDER))


@performs(MetadataOperations)
def provider_definition_get_by_partition(call: CheckedCall) -> Any:
    return _exact(call.state, Scope(_partition_of(call.state, call.request.partition_uuid), PROVIDER))


@performs(MetadataOperations)
def provider_definition_get_by_type(call: CheckedCall) -> Any:
    return _exact(call.state, Scope(None, PROVIDER, _provider_type_of(call.state, call.request.provider_type_code)))


@performs(MetadataOperations)
def provider_definition_get_by_partition_and_type(call: CheckedCall) -> Any:
    partition = _partition_of(call.state, call.request.partition_uuid)
    return _exact(
        call.state, Scope(partition, PROVIDER, _provider_type_of(call.state, call.request.provider_type_code))
    )


@performs(MetadataOperations)
def provider_definition_set(call: CheckedCall) -> Callable[[], Any]:
    given = call.request
    partition = _partition_of(call.state, given.partition_uuid) if given.partition_uuid else None
    code = _provider_type_of(call.state, given.provider_type_code) if given.provider_type_code else ""
    return partial(_set, call, Scope(partition, PROVIDER, code))


@performs(MetadataOperations)
def definition_get(call: CheckedCall) -> Any:
    scope = _scope_of(call)
    if call.request.resolve:
        where, definition = resolved(call.state, scope) or (Scope(None, scope.object_type), _ANYTHING)
    else:
        where, definition = scope, found(definition_at(call.state.runm, scope))
    message = definition_message(definition)
    if definition is _ANYTHING:
        message.uuid = ""
    return messages.DefinitionGetResponse(object_definition=message, scope=_scope_message(where))


@performs(MetadataOperations)
def definition_set(call: CheckedCall) -> Callable[[], Any]:
    return partial(_set, call, _scope_of(call))


@performs(MetadataOperations)
def definition_delete(call: CheckedCall) -> Callable[[], Any]:
    scope = _scope_of(call)
    return lambda: messages.DeleteResponse(num_deleted=int(remove(call.deployment, call.caller, scope)))


@performs(MetadataOperations)
def definition_history(call: CheckedCall) -> Iterator[Any]:
    make = messages.DefinitionVersion
    return (
        make(
            number=number,
            object_definition=definition_message(one.definition),
            replaced_at=one.replaced_at,
            user=one.user,
        )
        for number, one in list(versions_of(call.state, _scope_of(call)))
    )


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _set(call: CheckedCall, scope: Scope) -> Any:
    if not call.request.HasField("object_definition"):
        raise missing("object definition is required.")
    given = call.request.object_definition
    stored = set_definition(call.deployment, call.caller, scope, given.uuid, definition_record(given))
    return messages.ObjectDefinitionSetResponse(object_definition=definition_message(stored))


def _exact(state: State, scope: Scope) -> Any:
    return definition_message(found(definition_at(state.runm, scope)))


def _partition_of(state: State, text: str) -> UUID:
    if not text:
        raise missing("partition UUID is required.")
    return state.required_partition(text)


def _provider_type_of(state: State, code: str) -> str:
    if not code:
        raise missing("provider type code is required.")
    required_provider_type(state, code)
    return code


def _scope_of(call: CheckedCall) -> Scope:
    given, state = call.request.scope, call.state
    code, sub_code = given.object_type_code, given.sub_type_code
    if not code:
        raise missing("object type code is required.")
    call.deployment.required_type(code)
    if sub_code and not _has_sub_type(state, code, sub_code):
        raise missing(f"Sub-type {sub_code} not found")
    return Scope(state.required_partition(given.partition_uuid) if given.partition_uuid else None, code, sub_code)


def _has_sub_type(state: State, code: str, sub_code: str) -> bool:
    try:
        return state.runm.sub_types.exists(ObjectSubType(code, sub_code))
    except InvalidKeyError:
        return False


def _scope_message(scope: Scope) -> Any:
    partition = "" if scope.partition is None else scope.partition.hex
    return messages.DefinitionScope(
        partition_uuid=partition, object_type_code=scope.object_type, sub_type_code=scope.sub_type
    )
