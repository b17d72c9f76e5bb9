"""The calls on object types and provider types. Nothing here writes: types come from the start, or from the operator."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from keyplan.apps.runm.answers import object_type_message, provider_type_message
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State
from keyplan.apps.runm.layout import ObjectSubType
from keyplan.apps.runm.ordering import options_of
from keyplan.apps.runm.records import ObjectType, ProviderType
from keyplan.apps.runm.refusal import missing, not_found
from keyplan.apps.runm.session import caller_of
from keyplan.errors import InvalidKeyError

__all__ = [
    "object_type_find",
    "object_type_get_by_code",
    "provider_type_find",
    "provider_type_get_by_code",
    "provider_type_of",
    "provider_types",
]

T = TypeVar("T", ObjectType, ProviderType)

_FIELDS: Final[Mapping[str, Callable[[Any], str]]] = {
    "code": lambda record: record.code,
    "description": lambda record: record.description,
}


def object_type_get_by_code(deployment: Deployment, request: Any) -> Any:
    """Return the object type of a code."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        code = _required_code(request)
        try:
            record = state.runm.object_types.get(code)
        except InvalidKeyError:
            record = None
    if record is None:
        raise not_found()
    return object_type_message(record)


def object_type_find(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream the object types that fit any of the filters, all without filters, by code unless told otherwise."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        known = [record for _, record in state.runm.object_types.list()]
    return map(object_type_message, _found(known, request))


def provider_type_get_by_code(deployment: Deployment, request: Any) -> Any:
    """Return the provider type of a code."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        record = provider_type_of(state, _required_code(request))
    if record is None:
        raise not_found()
    return provider_type_message(record)


def provider_type_find(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream the provider types, as `object_type_find` does object types."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        known = provider_types(state)
    return map(provider_type_message, _found(known, request))


def provider_type_of(state: State, code: str) -> ProviderType | None:
    """Return the provider type of that code; None when there is none, or can be none."""
    try:
        return state.runm.sub_types.get(ObjectSubType(PROVIDER, code))
    except InvalidKeyError:
        return None


def provider_types(state: State) -> list[ProviderType]:
    """Return every provider type, by code."""
    return [record for _, record in state.runm.sub_types.list(PROVIDER)]


def _required_code(request: Any) -> str:
    if not request.code:
        raise missing("A code to search for is required.")
    return str(request.code)


def _found(known: Iterable[T], request: Any) -> list[T]:
    options = options_of(request.options, _FIELDS, identity="code")
    fitting = [record for record in known if not request.any or any(_fits(record, one) for one in request.any)]
    return options.arranged(fitting, _FIELDS["code"], _FIELDS)


def _fits(record: ObjectType | ProviderType, given: Any) -> bool:
    """A filter without a code filter contributes nothing, as in the original."""
    if not given.HasField("code_filter"):
        return False
    code = given.code_filter.code
    return record.code.startswith(code) if given.code_filter.use_prefix else record.code == code
