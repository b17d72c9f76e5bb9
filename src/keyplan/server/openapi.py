"""The OpenAPI 3.1 description of a server: what its services say of their routes, merged, with the shell's own."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from keyplan.errors import InvalidInputError

__all__ = ["FAILURE", "SHELL", "answers", "merged"]

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


def _shell_operation(summary: str, response: Any, *, is_open: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": ["server"],
        "responses": {"200": response, "default": FAILURE},
    }
    if is_open:
        operation["security"] = []
    return {"get": operation}


SHELL: Final[dict[str, Any]] = {
    "paths": {
        "/health": _shell_operation(
            "Tell whether the server can read its store.",
            answers(
                "It can.",
                {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
            ),
            is_open=True,
        ),
        "/version": _shell_operation(
            "Name the program, its version and its services.",
            answers(
                "The version.",
                {
                    "type": "object",
                    "required": ["program", "version", "services"],
                    "properties": {
                        "program": {"const": "keyplan"},
                        "version": {"type": "string"},
                        "services": {"type": "array", "items": {"type": "string"}},
                    },
                },
            ),
            is_open=True,
        ),
        "/metrics": _shell_operation(
            "Give the server's figures in the text form of Prometheus.",
            answers("The figures.", {"type": "string"}, content_type="text/plain"),
            is_open=False,
        ),
        "/openapi.json": _shell_operation("Give this description.", answers("It.", {"type": "object"}), is_open=False),
    },
    "components": {
        "schemas": {"Failure": _FAILURE_SCHEMA},
        "responses": {"Failure": answers("What went wrong.", {"$ref": "#/components/schemas/Failure"})},
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "A token of an administrator or a client."},
        },
    },
}


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
