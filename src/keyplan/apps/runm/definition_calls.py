"""The calls on object definitions: the original's for providers, and the same for any type as extensions."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from keyplan.apps.runm.answers import definition_message, definition_record
from keyplan.apps.runm.definitions import definition_at, remove, resolved, set_definition
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.layout import ObjectSubType
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import ObjectDefinition
from keyplan.apps.runm.refusal import missing, not_found
from keyplan.apps.runm.session import caller_of
from keyplan.apps.runm.type_calls import provider_type_of
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


def provider_definition_get_global_default(deployment: Deployment, request: Any) -> Any:
    """Return the definition of providers for which there is no more explicit one."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        return _exact(state, Scope(None, PROVIDER))


def provider_definition_get_by_partition(deployment: Deployment, request: Any) -> Any:
    """Return a partition's own definition of providers."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        return _exact(state, Scope(_partition_of(state, request.partition_uuid), PROVIDER))


def provider_definition_get_by_type(deployment: Deployment, request: Any) -> Any:
    """Return the definition of a provider type for all partitions."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        return _exact(state, Scope(None, PROVIDER, _provider_type_of(state, request.provider_type_code)))


def provider_definition_get_by_partition_and_type(deployment: Deployment, request: Any) -> Any:
    """Return a partition's own definition of a provider type."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        partition = _partition_of(state, request.partition_uuid)
        return _exact(state, Scope(partition, PROVIDER, _provider_type_of(state, request.provider_type_code)))


def provider_definition_set(deployment: Deployment, request: Any) -> Any:
    """Set the definition of providers on one of the four levels."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        partition = _partition_of(state, request.partition_uuid) if request.partition_uuid else None
        code = _provider_type_of(state, request.provider_type_code) if request.provider_type_code else ""
    return _set(deployment, Scope(partition, PROVIDER, code), request)


def definition_get(deployment: Deployment, request: Any) -> Any:
    """Return the definition of exactly a scope; with `resolve`, the one that holds for it, and where it was found."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        scope = _scope_of(deployment, state, request.scope)
        if request.resolve:
            where, definition = resolved(state, scope) or (Scope(None, scope.object_type), _ANYTHING)
        else:
            where, definition = scope, _found(state, scope)
    message = definition_message(definition)
    if definition is _ANYTHING:
        message.uuid = ""
    return messages.DefinitionGetResponse(object_definition=message, scope=_scope_message(where))


def definition_set(deployment: Deployment, request: Any) -> Any:
    """Set the definition of a scope of any object type."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        scope = _scope_of(deployment, state, request.scope)
    return _set(deployment, scope, request)


def definition_delete(deployment: Deployment, request: Any) -> Any:
    """Remove the definition of exactly a scope, so that the next less explicit one holds."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        scope = _scope_of(deployment, state, request.scope)
    return messages.DeleteResponse(num_deleted=int(remove(deployment, scope, request.session.user)))


def definition_history(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream what held for exactly a scope before, the latest first."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        found = list(versions_of(state, _scope_of(deployment, state, request.scope)))
    make = messages.DefinitionVersion
    return (
        make(
            number=number,
            object_definition=definition_message(one.definition),
            replaced_at=one.replaced_at,
            user=one.user,
        )
        for number, one in found
    )


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _set(deployment: Deployment, scope: Scope, request: Any) -> Any:
    if not request.HasField("object_definition"):
        raise missing("object definition is required.")
    given = request.object_definition
    stored = set_definition(deployment, scope, given.uuid, definition_record(given), request.session.user)
    return messages.ObjectDefinitionSetResponse(object_definition=definition_message(stored))


def _exact(state: State, scope: Scope) -> Any:
    return definition_message(_found(state, scope))


def _found(state: State, scope: Scope) -> ObjectDefinition:
    definition = definition_at(state.runm, scope)
    if definition is None:
        raise not_found()
    return definition


def _partition_of(state: State, text: str) -> UUID:
    if not text:
        raise missing("partition UUID is required.")
    uuid = parsed_uuid(text)
    if uuid is None or not state.runm.partitions.exists(uuid):
        raise missing(f"Partition {text} not found")
    return uuid


def _provider_type_of(state: State, code: str) -> str:
    if not code:
        raise missing("provider type code is required.")
    if provider_type_of(state, code) is None:
        raise missing(f"Provider type {code} not found")
    return code


def _scope_of(deployment: Deployment, state: State, given: Any) -> Scope:
    code, sub_code = given.object_type_code, given.sub_type_code
    if not code:
        raise missing("object type code is required.")
    if deployment.object_type(code) is None:
        raise missing(f"Object type {code} not found")
    if sub_code and not _has_sub_type(state, code, sub_code):
        raise missing(f"Sub-type {sub_code} not found")
    return Scope(_partition_of(state, given.partition_uuid) if given.partition_uuid else None, code, sub_code)


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
