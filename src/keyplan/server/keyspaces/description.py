"""The key space registry's part of the OpenAPI description. Tests run what it says against a served registry."""

from typing import Any, Final

from keyplan.keyspace import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, State
from keyplan.server.openapi import FAILURE, answers

__all__ = ["DESCRIPTION"]

_NAME: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
_TIME: Final = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC, whole seconds."}
_HEX: Final = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
_HEX_OF_EITHER_CASE: Final = {"type": "string", "pattern": "^([0-9A-Fa-f]{2})+$"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_BOUND: Final = {"type": ["integer", "null"], "minimum": 0, "maximum": (1 << 63) - 1}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = (), is_closed: bool = True) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": not is_closed}


def _of(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_SCHEMAS: Final[dict[str, Any]] = {
    "KeySpace": _object(
        {
            "id": {"type": "string", "pattern": _NAME, "description": "The name."},
            "name": {"type": "string", "pattern": _NAME},
            "application": {"type": "string", "minLength": 1, "maxLength": 128, "description": "Who owns it."},
            "description": {"type": "string", "maxLength": 4096},
            "prefix": {**_HEX, "minLength": 2, "description": "What its keys begin with, in hex."},
            "prefix_number": {"type": ["integer", "null"], "minimum": 1, "description": "null: a legacy prefix."},
            "range": _object({"start": _HEX, "end": _HEX}),
            "state": {"type": "string", "enum": [*State]},
            "generation": {"type": "integer", "minimum": 1, "description": "Counts those that have had the name."},
            "created_at": _TIME,
            "deleted_at": _or_null(_TIME),
            "delete_completed_at": _or_null(_TIME),
            "delete_progress": _object({"deleted_keys": _COUNT, "cursor": _HEX}),
        },
        optional=("delete_progress",),
    ),
    "KeySpaceList": _object(
        {
            "keyspaces": {"type": "array", "items": _of("KeySpace")},
            "next_page_token": {"type": "string", "description": "Empty on the last page."},
        }
    ),
    "KeySpaceCreation": {
        **_object(
            {
                "name": {"type": "string", "pattern": _NAME},
                "application": {"type": "string", "minLength": 1, "maxLength": 128},
                "description": {"type": "string", "maxLength": 4096, "default": ""},
                "prefix": {
                    **_or_null(_HEX_OF_EITHER_CASE),
                    "description": "Only for a prefix that is in use or wanted; chosen otherwise.",
                },
                "if_not_exists": {
                    "type": "boolean",
                    "default": False,
                    "description": "Answer 200 with the one of this name and application that there is.",
                },
                "adopt_existing_data": {
                    "type": "boolean",
                    "default": False,
                    "description": "For administrators: the prefix may have keys already.",
                },
                "allow_legacy_prefix": {
                    "type": "boolean",
                    "default": False,
                    "description": "For administrators: the prefix may be any bytes.",
                },
            },
            optional=("description", "prefix", "if_not_exists", "adopt_existing_data", "allow_legacy_prefix"),
        ),
        "description": "`application_name` is taken for `application` too.",
    },
    "KeySpaceUpdate": {
        **_object({"description": {"type": "string", "maxLength": 4096}}, is_closed=False),
        "description": "Other fields may be sent as they are stored, so that an object that was read can be sent back.",
    },
    "Quota": _object({"keys": _BOUND, "bytes": _BOUND}),
    "KeySpaceUsage": _object({"keys": _COUNT, "bytes": _COUNT, "quota": _of("Quota"), "counted_at": _TIME}),
    "RegistryConfiguration": _object(
        {
            "keyspace-api-enabled": {"type": "boolean", "description": "Whether clients are answered at all."},
            "self-registration-enabled": {"type": "boolean", "description": "Whether clients may create."},
            "reservations": {
                "type": "array",
                "items": _HEX_OF_EITHER_CASE,
                "description": "Prefixes that are not given out unasked.",
            },
        },
        is_closed=False,
    ),
    "AuditEntries": _object(
        {
            "entries": {
                "type": "array",
                "items": _object(
                    {
                        "number": {"type": "integer", "minimum": 1},
                        "at": _TIME,
                        "actor": {"type": "string"},
                        "act": {"type": "string"},
                        "name": {"type": "string"},
                        "detail": {"type": "object"},
                        "previous": _HEX,
                        "digest": _HEX,
                    }
                ),
            }
        }
    ),
    "AuditVerdict": _object(
        {
            "is_whole": {"type": "boolean"},
            "entries": _COUNT,
            "broken_at": {"type": ["integer", "null"]},
            "problem": {"type": "string"},
            "head": _HEX,
        }
    ),
}

_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The key space's name.",
    "schema": {"type": "string", "pattern": "^[^/]+$"},
}


def _failures(*statuses: int) -> dict[str, Any]:
    return {str(status): FAILURE for status in (*statuses, 401)}


def _operation(
    summary: str,
    success: dict[str, Any],
    *failures: int,
    body: str = "",
    query: tuple[dict[str, Any], ...] = (),
    name: str,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": ["keyspaces"],
        "responses": {**success, **_failures(*failures), "default": FAILURE},
    }
    if query:
        operation["parameters"] = list(query)
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _of(body)}}}
    return operation


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _move(verb: str, summary: str) -> dict[str, Any]:
    found = {"200": answers("The key space.", _of("KeySpace"))}
    return {"parameters": [_ID], "post": _operation(summary, found, 403, 404, 409, 501, name=f"{verb}KeySpace")}


_ONE: Final = {"200": answers("The key space.", _of("KeySpace"))}
_LOCATION: Final = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}

_PATHS: Final[dict[str, Any]] = {
    "/keyspaces": {
        "get": _operation(
            "List key spaces, in the order in which they were made.",
            {"200": answers("A page of them.", _of("KeySpaceList"))},
            400,
            501,
            name="listKeySpaces",
            query=(
                _query("name", {"type": "string"}, "Of this name: one or none."),
                _query("prefix", _HEX_OF_EITHER_CASE, "With this prefix."),
                _query("key", _HEX_OF_EITHER_CASE, "Whose this raw key is."),
                _query("application", {"type": "string"}, "Of this application."),
                _query("state", {"type": "string", "enum": [*State]}, "In this state."),
                _query("include", {"type": "string", "enum": ["all"]}, "Deleted ones, too."),
                _query(
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX, "default": LIST_LIMIT_DEFAULT},
                    "At most so many.",
                ),
                _query("page_token", {"type": "string", "pattern": "^[0-9]{0,19}$"}, "Where the last page ended."),
            ),
        ),
        "post": _operation(
            "Make a key space.",
            {
                "201": {**answers("It was made.", _of("KeySpace")), "headers": _LOCATION},
                "200": {**answers("`if_not_exists`: it was there.", _of("KeySpace")), "headers": _LOCATION},
            },
            400,
            403,
            409,
            422,
            501,
            507,
            name="createKeySpace",
            body="KeySpaceCreation",
        ),
    },
    "/keyspaces/{id}": {
        "parameters": [_ID],
        "get": _operation("Read a key space, or its last tombstone.", _ONE, 404, 501, name="getKeySpace"),
        "put": _operation(
            "Change the description.", _ONE, 400, 404, 409, 422, 501, name="updateKeySpace", body="KeySpaceUpdate"
        ),
        "delete": _operation(
            "Begin to delete a key space; what it holds is removed in the background.",
            {"202": answers("The deletion has begun.", _of("KeySpace"))},
            403,
            404,
            409,
            501,
            name="deleteKeySpace",
        ),
    },
    "/keyspaces/{id}:disable": _move("disable", "Refuse opens and writes."),
    "/keyspaces/{id}:enable": _move("enable", "Allow opens and writes again."),
    "/keyspaces/{id}:undelete": _move("undelete", "Take a deletion back, until the first key was removed."),
    "/keyspaces/{id}/history": {
        "parameters": [_ID],
        "get": _operation(
            "List those that have had the name, the oldest first.",
            {"200": answers("They, on one page.", _of("KeySpaceList"))},
            404,
            501,
            name="getKeySpaceHistory",
        ),
    },
    "/keyspaces/{id}/usage": {
        "parameters": [_ID],
        "get": _operation(
            "Count what a key space holds, now.",
            {"200": answers("The figures.", _of("KeySpaceUsage"))},
            404,
            501,
            name="getKeySpaceUsage",
        ),
    },
    "/keyspaces/{id}/quota": {
        "parameters": [_ID],
        "get": _operation(
            "Read what a key space may hold.",
            {"200": answers("The quota; null: no bound.", _of("Quota"))},
            404,
            501,
            name="getKeySpaceQuota",
        ),
        "put": _operation(
            "Bound what a key space may hold; for administrators.",
            {"200": answers("The quota.", _of("Quota"))},
            400,
            403,
            404,
            501,
            name="setKeySpaceQuota",
            body="Quota",
        ),
    },
    "/config": {
        "get": _operation(
            "Read the registry's switches; for administrators.",
            {"200": answers("The switches.", _of("RegistryConfiguration"))},
            403,
            name="getRegistryConfiguration",
        ),
        "patch": {
            **_operation(
                "Change some of the switches; for administrators.",
                {"200": answers("All switches.", _of("RegistryConfiguration"))},
                400,
                403,
                name="changeRegistryConfiguration",
            ),
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": _SCHEMAS["RegistryConfiguration"]["properties"],
                        }
                    }
                },
            },
        },
    },
    "/audit": {
        "get": _operation(
            "Read the log of acts on the registry; for administrators.",
            {"200": answers("Entries, by number.", _of("AuditEntries"))},
            400,
            403,
            name="getAudit",
            query=(
                _query("after", {**_COUNT, "maximum": (1 << 63) - 1, "default": 0}, "Behind the entry of this number."),
                _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "At most so many."),
            ),
        )
    },
    "/audit:verify": {
        "post": _operation(
            "Go through the whole log and tell whether it is whole; for administrators.",
            {"200": answers("The verdict.", _of("AuditVerdict"))},
            403,
            name="verifyAudit",
        )
    },
}

DESCRIPTION: Final[dict[str, Any]] = {"paths": _PATHS, "components": {"schemas": _SCHEMAS}}
"""Paths and components, as `Service.openapi` takes them."""
