"""The calls on object types and provider types. Nothing here writes: types come from the start, or from the operator."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from keyplan.apps.runm.answers import object_type_message, provider_type_message
from keyplan.apps.runm.calls import CheckedCall, performs
from keyplan.apps.runm.deployment import PROVIDER, State
from keyplan.apps.runm.layout import ObjectSubType
from keyplan.apps.runm.operations import MetadataOperations
from keyplan.apps.runm.ordering import options_of
from keyplan.apps.runm.readable import readable
from keyplan.apps.runm.records import ObjectType, ProviderType
from keyplan.apps.runm.refusal import found, missing
from keyplan.errors import InvalidKeyError

__all__ = [
    "object_type_find",
    "object_type_get_by_code",
    "provider_type_find",
    "provider_type_get_by_code",
    "provider_type_of",
    "provider_types",
    "required_provider_type",
]

T = TypeVar("T", ObjectType, ProviderType)

_FIELDS: Final[Mapping[str, Callable[[Any], str]]] = {
    "code": lambda record: record.code,
    "description": lambda record: record.description,
}


@performs(MetadataOperations)
def object_type_get_by_code(call: CheckedCall) -> Any:
    try:
        record = call.state.runm.object_types.get(_required_code(call.request))
    except InvalidKeyError:
        record = None
    return object_type_message(found(record))


@performs(MetadataOperations)
def object_type_find(call: CheckedCall) -> Iterator[Any]:
    known = [record for _, record in readable(call.state.runm.object_types.rows())]
    return map(object_type_message, _fitting(known, call.request))


@performs(MetadataOperations)
def provider_type_get_by_code(call: CheckedCall) -> Any:
    return provider_type_message(found(provider_type_of(call.state, _required_code(call.request))))


@performs(MetadataOperations)
def provider_type_find(call: CheckedCall) -> Iterator[Any]:
    return map(provider_type_message, _fitting(provider_types(call.state), call.request))


def provider_type_of(state: State, code: str) -> ProviderType | None:
    """Return the provider type of that code; None when there is none, or can be none."""
    try:
        return state.runm.sub_types.get(ObjectSubType(PROVIDER, code))
    except InvalidKeyError:
        return None


def required_provider_type(state: State, code: str) -> ProviderType:
    """Return the provider type of that code. Raises RefusedError, FAILED_PRECONDITION."""
    record = provider_type_of(state, code)
    if record is None:
        raise missing(f"Provider type {code} not found")
    return record


def provider_types(state: State) -> list[ProviderType]:
    """Return every provider type, by code."""
    return [record for _, record in readable(state.runm.sub_types.rows(PROVIDER))]


def _required_code(request: Any) -> str:
    if not request.code:
        raise missing("A code to search for is required.")
    return str(request.code)


def _fitting(known: Iterable[T], request: Any) -> list[T]:
    options = options_of(request.options, _FIELDS, identity="code")
    fitting = [record for record in known if not request.any or any(_fits(record, one) for one in request.any)]
    return options.arranged(fitting, _FIELDS["code"], _FIELDS)


def _fits(record: ObjectType | ProviderType, given: Any) -> bool:
    """A filter without a code filter contributes nothing, as in the original."""
    if not given.HasField("code_filter"):
        return False
    code = given.code_filter.code
    return record.code.startswith(code) if given.code_filter.use_prefix else record.code == code
