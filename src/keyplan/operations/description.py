"""The OpenAPI 3.1 description of operations: paths and the schemas of what they take and give."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Final, NamedTuple

from keyplan.operations.declare import JSON, CallerKind, Operation, Outcome, Parameter, Place
from keyplan.operations.needs import OnKind
from keyplan.operations.schema import Components, parts_of, schema_of
from keyplan.operations.wire import without_notes

__all__ = ["Contract", "Failures", "Refused", "described"]

_TEXT: Final = "text/plain; charset=utf-8"
_FAILURE: Final = {"$ref": "#/components/responses/Failure"}


class Failures(NamedTuple):
    """How failures are described that are not the server's: what each status means, and of which type they are; str: text."""

    meanings: Mapping[int, str]
    type: Any


class Refused(NamedTuple):
    """What is said of operations that not everybody may call: words after the summary, and the status of the others."""

    words: str
    status: int


@dataclass(frozen=True)
class Contract:
    """What the operations of a service have in common.

    `always` are the failures that each of them can have. `callers` has those who alone may call. `headers` are OpenAPI's
    parameters of all operations whose path begins so; `schemes` its security schemes, if they are not the server's.
    `other_failures` is the response of failures that no operation names, None where there are none; `without_token` names the
    operations for which no token is asked; `words` are OpenAPI's parameters of all operations beside their own.
    """

    tag: str
    failures: Failures | None = None
    always: tuple[int, ...] = (401,)
    callers: Mapping[StrEnum, Refused] = field(
        default_factory=lambda: {CallerKind.ADMINISTRATOR: Refused(" For administrators.", 403)}
    )
    headers: Mapping[str, Any] = field(default_factory=dict)
    schemes: Mapping[str, Any] = field(default_factory=dict)
    other_failures: Mapping[str, Any] | None = field(default_factory=lambda: _FAILURE)
    without_token: Collection[str] = ()
    words: Sequence[Mapping[str, Any]] = ()


def described(operations: Iterable[Operation], contract: Contract) -> dict[str, Any]:
    """Return `paths` and `components`, as `Service.openapi` takes them. The response "Failure" is the server's.

    `x-needs` of an operation is what has to be granted for it.
    """
    paths: dict[str, dict[str, Any]] = {}
    components: Components = {}
    for operation in operations:
        of_path = paths.setdefault(operation.path, {})
        of_path[operation.method.lower()] = _operation(operation, contract, components)
        common = [header for path, header in contract.headers.items() if operation.path.startswith(path)]
        in_path = [_parameter(one, components) for one in operation.at(Place.PATH)]
        if in_path or common:
            of_path["parameters"] = [*in_path, *common]
    schemes = {"securitySchemes": dict(contract.schemes)} if contract.schemes else {}
    return {"paths": paths, "components": {"schemas": components, **schemes}}


def _operation(operation: Operation, contract: Contract, components: Components) -> dict[str, Any]:
    refused = contract.callers.get(operation.caller)
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary + (refused.words if refused else ""),
        "tags": [contract.tag],
        "responses": _responses(operation, contract, components),
    }
    found["x-needs"] = _needs(operation)
    if operation.discloses is not None:
        found["x-discloses"] = operation.discloses.act
    if contract.schemes:
        found["security"] = [{scheme: []} for scheme in contract.schemes]
    if operation.name in contract.without_token:
        found["security"] = []
    beside: list[Mapping[str, Any]] = [
        _parameter(one, components) for place in (Place.QUERY, Place.HEADER) for one in operation.at(place)
    ]
    beside += contract.words
    if beside:
        found["parameters"] = beside
    content = _body(operation, components)
    if content:
        found["requestBody"] = {"required": True, "content": content}
    return found


def _needs(operation: Operation) -> dict[str, str]:
    """What a caller has to be granted: the act, on what, and what names that, a word of the request or the operation."""
    act, (kind, parameter) = operation.needs
    words = {one.name: one.word for one in operation.parameters}
    named = operation.name if kind is OnKind.OPERATION else words.get(parameter, "")
    return {"act": str(act), "on": str(kind), **({"named": named} if named else {})}


def _responses(operation: Operation, contract: Contract, components: Components) -> dict[str, Any]:
    kind = operation.returns if operation.answer is None else operation.answer.schema
    apart = {also.type for also in operation.also.values() if isinstance(also, Outcome)}
    usual = [part for part in parts_of(kind) if part not in apart]
    good = {operation.status: Outcome(operation.answers, reduce(or_, usual) if apart else kind)}
    good |= {
        status: also if isinstance(also, Outcome) else Outcome(also, kind) for status, also in operation.also.items()
    }
    bad = {*(error.http_status for error in operation.raises), *operation.failures, *contract.always}
    if operation.caller in contract.callers:
        bad.add(contract.callers[operation.caller].status)
    return {
        **{str(status): _success(operation, outcome, components) for status, outcome in good.items()},
        **{str(status): _failure(contract.failures, status, components) for status in sorted(bad)},
        **({"default": dict(contract.other_failures)} if contract.other_failures is not None else {}),
    }


def _success(operation: Operation, outcome: Outcome, components: Components) -> dict[str, Any]:
    found: dict[str, Any] = {"description": outcome.meaning}
    if outcome.type not in {None, NoneType}:
        content_type = JSON if operation.answer is None else operation.answer.content_type
        media = {} if operation.answer is None else operation.answer.media
        others = {name: {"schema": schema_of(kind, components)} for name, kind in media.items()}
        found["content"] = {**_content(outcome.type, components, content_type), **others}
    if operation.headers:
        named = operation.headers.items()
        found["headers"] = {name: {"description": words, "schema": {"type": "string"}} for name, words in named}
    return found


def _failure(failures: Failures | None, status: int, components: Components) -> dict[str, Any]:
    if failures is None:
        return _FAILURE
    return {"description": failures.meanings[status], "content": _content(failures.type, components)}


def _content(kind: Any, components: Components, content_type: str = JSON) -> dict[str, Any]:
    """The content of an answer: text where it may be a str, and JSON, or its own type, where it may be something else."""
    parts = parts_of(kind)
    if content_type != JSON or not {str, NoneType} & {*parts}:
        return {content_type: {"schema": schema_of(kind, components)}}
    # Why None is passed over: it is the result of an outcome that has no content.
    text = {_TEXT: {"schema": {"type": "string"}}} if str in parts else {}
    others = [part for part in parts if part not in {str, NoneType}]
    return {JSON: {"schema": schema_of(reduce(or_, others), components)}, **text} if others else text


def _parameter(parameter: Parameter, components: Components) -> dict[str, Any]:
    if parameter.form is None:
        schema = schema_of(parameter.type, components)
    else:
        _, keywords = without_notes(parameter.type)
        schema = {"type": "string", **parameter.form.keywords, **keywords}
    if isinstance(schema.get("type"), list):  # Why: a word is never null; what is not given is left out.
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
        schema |= {"enum": [member for member in schema["enum"] if member is not None]} if "enum" in schema else {}
    return {
        "name": parameter.word,
        "in": str(parameter.place),
        "required": parameter.place is Place.PATH or parameter.is_required,
        **({"description": schema.pop("description")} if "description" in schema else {}),
        "schema": schema,
    }


def _body(operation: Operation, components: Components) -> dict[str, Any]:
    """The forms of the body by their content types; none where there is no body."""
    media = operation.body.media if operation.body is not None else {}
    content_type = JSON if operation.body is None else operation.body.content_type
    schema = _body_schema(operation, components)
    others = {name: {"schema": schema_of(kind, components)} for name, kind in media.items()}
    return {**({content_type: {"schema": schema}} if schema is not None else {}), **others}


def _body_schema(operation: Operation, components: Components) -> dict[str, Any] | None:
    if operation.body is not None and operation.body.schema is not None:
        return schema_of(operation.body.schema, components)
    for parameter in operation.at(Place.WHOLE_BODY):
        return schema_of(parameter.type, components)
    fields = list(operation.at(Place.BODY))
    if not fields:
        return None
    properties = {}
    for one in fields:
        properties[one.word] = schema_of(one.type, components)
        if one.default is not None and not one.is_required:
            properties[one.word].setdefault("default", one.default)
    name = operation.body_name or f"{operation.name[0].upper()}{operation.name[1:]}"
    description = operation.body.description if operation.body is not None else ""
    components[name] = {
        **({"description": description} if description else {}),
        "type": "object",
        "required": [one.word for one in fields if one.is_required],
        "properties": properties,
        **({} if operation.takes_unknown_fields else {"additionalProperties": False}),
    }
    return {"$ref": f"#/components/schemas/{name}"}
