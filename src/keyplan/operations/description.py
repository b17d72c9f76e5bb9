"""The OpenAPI 3.1 description of operations: paths and the schemas of what they take and give."""

from collections.abc import Iterable
from typing import Any, Final

from keyplan.operations.declare import CallerKind, Operation, Parameter, Place
from keyplan.operations.schema import Components, schema_of
from keyplan.operations.wire import without_notes

__all__ = ["described"]

_FAILURE: Final = {"$ref": "#/components/responses/Failure"}
_UNKNOWN_CALLER: Final = 401


def described(operations: Iterable[Operation], *, tag: str) -> dict[str, Any]:
    """Return `paths` and `components`, as `Service.openapi` takes them. The response "Failure" is the server's."""
    paths: dict[str, dict[str, Any]] = {}
    components: Components = {}
    for operation in operations:
        of_path = paths.setdefault(operation.path, {})
        of_path[operation.method.lower()] = _operation(operation, tag, components)
        in_path = [_parameter(one, components) for one in operation.at(Place.PATH)]
        if in_path:
            of_path["parameters"] = in_path
    return {"paths": paths, "components": {"schemas": components}}


def _operation(operation: Operation, tag: str, components: Components) -> dict[str, Any]:
    administrators = " For administrators." if operation.caller is CallerKind.ADMINISTRATOR else ""
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary + administrators,
        "tags": [tag],
        "responses": _responses(operation, components),
    }
    query = [_parameter(one, components) for one in operation.at(Place.QUERY)]
    if query:
        found["parameters"] = query
    body = _body(operation, components)
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found


def _responses(operation: Operation, components: Components) -> dict[str, Any]:
    kind = operation.returns if operation.answer is None else operation.answer.schema
    schema = schema_of(kind, components)
    good = {operation.status: operation.answers, **operation.also}
    bad = {error.http_status for error in operation.raises} | {_UNKNOWN_CALLER}
    if operation.caller is CallerKind.ADMINISTRATOR:
        bad.add(403)
    success: dict[str, Any] = {"content": {"application/json": {"schema": schema}}}
    if operation.headers:
        named = operation.headers.items()
        success["headers"] = {name: {"description": words, "schema": {"type": "string"}} for name, words in named}
    return {
        **{str(status): {"description": words, **success} for status, words in good.items()},
        **{str(status): _FAILURE for status in sorted(bad)},
        "default": _FAILURE,
    }


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
        "description": schema.pop("description", ""),
        "schema": schema,
    }


def _body(operation: Operation, components: Components) -> dict[str, Any] | None:
    if operation.body is not None and operation.body.schema is not None:
        return schema_of(operation.body.schema, components)
    fields = list(operation.at(Place.BODY))
    if not fields:
        return None
    properties = {}
    for field in fields:
        properties[field.word] = schema_of(field.type, components)
        if field.default is not None and not field.is_required:
            properties[field.word].setdefault("default", field.default)
    name = operation.body_name or f"{operation.name[0].upper()}{operation.name[1:]}"
    described = operation.body.description if operation.body is not None else ""
    components[name] = {
        **({"description": described} if described else {}),
        "type": "object",
        "required": [field.word for field in fields if field.is_required],
        "properties": properties,
        "additionalProperties": False,
    }
    return {"$ref": f"#/components/schemas/{name}"}
