"""The OpenAPI 3.1 description of a server: what its services say of their routes, merged, and what all of them refer to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from keyplan.errors import InvalidInputError

__all__ = ["FAILURE", "SHARED", "answers", "merged"]

FAILURE: Final = {"$ref": "#/components/responses/Failure"}
"""A response of an operation that can fail: `{"error": {"code", "message", "detail"}}`."""

_FAILURE_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "detail"],
            "additionalProperties": False,
            "properties": {
                "code": {"type": "string", "description": "Stable, for programs."},
                "message": {"type": "string", "description": "For people."},
                "detail": {"type": "object", "description": "The facts of this one case, by name."},
            },
        }
    },
}


def answers(
    description: str, schema: Mapping[str, Any] | None = None, *, content_type: str = "application/json"
) -> Any:
    """Return the response of an operation that succeeds."""
    if schema is None:
        return {"description": description}
    return {"description": description, "content": {content_type: {"schema": dict(schema)}}}


SHARED: Final[dict[str, Any]] = {
    "schemas": {"Failure": _FAILURE_SCHEMA},
    "responses": {"Failure": answers("What went wrong.", {"$ref": "#/components/schemas/Failure"})},
    "securitySchemes": {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of an administrator or a client."},
    },
}
"""The components that the descriptions of all services refer to."""


def merged(parts: Sequence[tuple[str, Mapping[str, Any]]], *, version: str) -> dict[str, Any]:
    """Return one description of all the parts, each with the name of whose it is.

    Raises InvalidInputError when two describe one path and method, or give one component two meanings.
    """
    paths: dict[str, dict[str, Any]] = {}
    components: dict[str, dict[str, Any]] = {}
    for owner, part in parts:
        for path, operations in part.get("paths", {}).items():
            _add(paths.setdefault(path, {}), operations, owner, f"the path {path}")
        for kind, named in part.get("components", {}).items():
            _add(components.setdefault(kind, {}), named, owner, f"the components of kind {kind}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "keyplan", "version": version},
        "security": [{"token": []}, {}],
        "paths": dict(sorted(paths.items())),
        "components": components,
    }


def _add(found: dict[str, Any], named: Mapping[str, Any], owner: str, where: str) -> None:
    for name, meaning in named.items():
        if name in found and found[name] != meaning:
            raise InvalidInputError(source=owner, problem=f"{name} of {where} is described by another service too")
        found[name] = meaning
