"""The key space registry's part of the OpenAPI description. Tests run what it says against a served registry."""

from typing import Any, Final

from keyplan.keyspace import AUDIT_LIMIT_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, State
from keyplan.server.keyspaces.bodies import EXPECTED_PATTERN
from keyplan.server.keyspaces.schemas import BYTES_IN_HEX, COUNT, SCHEMAS, reference
from keyplan.server.openapi import FAILURE, answers

__all__ = ["DESCRIPTION"]

_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The key space's name.",
    "schema": {"type": "string", "pattern": "^[^/]+$"},
}
_LOCATION: Final = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
_ONE: Final = ("The key space.", "KeySpace")


def _operation(
    name: str,
    summary: str,
    found: tuple[str, str],
    failures: tuple[int, ...],
    *,
    body: str = "",
    query: tuple[dict[str, Any], ...] = (),
    status: int = 200,
) -> dict[str, Any]:
    """One operation. `found`: what success is called, and the name of its schema; `body` names the schema of the request's."""
    described, schema = found
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": ["keyspaces"],
        "responses": {
            str(status): answers(described, reference(schema)),
            **{str(failure): FAILURE for failure in (*failures, 401)},
            "default": FAILURE,
        },
    }
    if query:
        operation["parameters"] = list(query)
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference(body)}}}
    return operation


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _of_one(**operations: dict[str, Any]) -> dict[str, Any]:
    """Operations on the key space that the path names."""
    return {"parameters": [_ID], **operations}


_EXPECTED_QUERY: Final = (
    _query(
        "expected",
        {"type": "string", "pattern": EXPECTED_PATTERN},
        "Only while the name has this generation and application: GENERATION/APPLICATION, as in 3/orders.",
    ),
)


def _move(verb: str, summary: str) -> dict[str, Any]:
    return _of_one(post=_operation(f"{verb}KeySpace", summary, _ONE, (400, 403, 404, 409, 501), query=_EXPECTED_QUERY))


def _creation() -> dict[str, Any]:
    made = _operation(
        "createKeySpace",
        "Make a key space.",
        ("It was made.", "KeySpace"),
        (400, 403, 409, 422, 501, 507),
        body="KeySpaceCreation",
        status=201,
    )
    responses = made["responses"]
    responses["200"] = answers("`if_not_exists`: it was there.", reference("KeySpace"))
    for status in ("200", "201"):
        responses[status]["headers"] = _LOCATION
    return made


def _partly(operation: dict[str, Any], schema: str) -> dict[str, Any]:
    """The operation with a body that has some of a schema's fields."""
    some = {"type": "object", "properties": SCHEMAS[schema]["properties"]}
    return {**operation, "requestBody": {"required": True, "content": {"application/json": {"schema": some}}}}


_LIST_QUERY: Final = (
    _query("name", {"type": "string"}, "Of this name: one or none."),
    _query("prefix", BYTES_IN_HEX, "With this prefix."),
    _query("key", BYTES_IN_HEX, "Whose this raw key is."),
    _query("application", {"type": "string"}, "Of this application."),
    _query("state", {"type": "string", "enum": [*State]}, "In this state."),
    _query("include", {"type": "string", "enum": ["all"]}, "Deleted ones, too."),
    _query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX, "default": LIST_LIMIT_DEFAULT},
        "At most so many.",
    ),
    _query("page_token", {"type": "string", "pattern": "^[0-9]{0,19}$"}, "Where the last page ended."),
)
_AUDIT_QUERY: Final = (
    _query("after", {**COUNT, "maximum": (1 << 63) - 1, "default": 0}, "Behind the entry of this number."),
    _query("limit", {"type": "integer", "minimum": 1, "maximum": AUDIT_LIMIT_MAX, "default": 100}, "At most so many."),
)
_DIAGNOSIS_QUERY: Final = (
    _query("unmanaged", {"type": "string", "enum": ["on", "off"], "default": "on"}, "Look for keys of nobody, too."),
)

_PATHS: Final[dict[str, Any]] = {
    "/keyspaces": {
        "get": _operation(
            "listKeySpaces",
            "List key spaces, in the order in which they were made.",
            ("A page of them.", "KeySpaceList"),
            (400, 501),
            query=_LIST_QUERY,
        ),
        "post": _creation(),
    },
    "/keyspaces/{id}": _of_one(
        get=_operation("getKeySpace", "Read a key space, or its last tombstone.", _ONE, (404, 501)),
        put=_operation(
            "updateKeySpace",
            "Change the description.",
            _ONE,
            (400, 404, 409, 422, 501),
            body="KeySpaceUpdate",
            query=_EXPECTED_QUERY,
        ),
        delete=_operation(
            "deleteKeySpace",
            "Begin to delete a key space; what it holds is removed in the background.",
            ("The deletion has begun.", "KeySpace"),
            (400, 403, 404, 409, 501),
            status=202,
            query=_EXPECTED_QUERY,
        ),
    ),
    "/keyspaces/{id}:disable": _move("disable", "Refuse opens and writes."),
    "/keyspaces/{id}:enable": _move("enable", "Allow opens and writes again."),
    "/keyspaces/{id}:undelete": _move("undelete", "Take a deletion back, until the first key was removed."),
    "/keyspaces/{id}:sweep": _of_one(
        post=_operation(
            "sweepKeySpace",
            "Remove what a deleted key space holds for two seconds at the most; for administrators. Ask again while the stage"
            " is `sweeping`.",
            ("How far it is.", "SweepProgress"),
            (403, 404),
        )
    ),
    "/keyspaces/{id}/history": _of_one(
        get=_operation(
            "getKeySpaceHistory",
            "List those that have had the name, the oldest first.",
            ("They, on one page.", "KeySpaceList"),
            (404, 501),
        )
    ),
    "/keyspaces/{id}/usage": _of_one(
        get=_operation(
            "getKeySpaceUsage", "Count what a key space holds, now.", ("The figures.", "KeySpaceUsage"), (404, 501)
        )
    ),
    "/keyspaces/{id}/quota": _of_one(
        get=_operation(
            "getKeySpaceQuota",
            "Read what a key space may hold.",
            ("The quota; null: no bound.", "Quota"),
            (404, 501),
        ),
        put=_operation(
            "setKeySpaceQuota",
            "Bound what a key space may hold; for administrators.",
            ("The quota.", "Quota"),
            (400, 403, 404, 409, 501),
            body="Quota",
            query=_EXPECTED_QUERY,
        ),
    ),
    "/registry": {
        "get": _operation(
            "getRegistry",
            "Read what was decided when the registry was made; for administrators.",
            ("The header.", "RegistryHeader"),
            (403, 404),
        )
    },
    "/registry:init": {
        "post": _operation(
            "initRegistry",
            "Make the registry where there is none; for administrators. Making a key space does it too.",
            ("The header, also of one that was there.", "RegistryHeader"),
            (400, 403),
            body="RegistryFounding",
        )
    },
    "/registry:repair": {
        "post": _operation(
            "repairRegistry",
            "Put right what the records of the key spaces decide; for administrators.",
            ("What was wrong and is right now.", "Repaired"),
            (403,),
        )
    },
    "/registry/diagnosis": {
        "get": _operation(
            "diagnoseRegistry",
            "Examine the registry and its audit log, and whose the keys of the store are; for administrators.",
            ("What was found.", "Diagnosis"),
            (400, 403),
            query=_DIAGNOSIS_QUERY,
        )
    },
    "/config": {
        "get": _operation(
            "getRegistryConfiguration",
            "Read the registry's switches; for administrators.",
            ("The switches.", "RegistryConfiguration"),
            (403,),
        ),
        "patch": _partly(
            _operation(
                "changeRegistryConfiguration",
                "Change some of the switches; for administrators.",
                ("All switches.", "RegistryConfiguration"),
                (400, 403),
            ),
            "RegistryConfiguration",
        ),
    },
    "/audit": {
        "get": _operation(
            "getAudit",
            "Read the log of acts on the registry; for administrators.",
            ("Entries, by number.", "AuditEntries"),
            (400, 403),
            query=_AUDIT_QUERY,
        )
    },
    "/audit:verify": {
        "post": _operation(
            "verifyAudit",
            "Go through the whole log and tell whether it is whole; for administrators.",
            ("The verdict.", "AuditVerdict"),
            (403,),
        )
    },
}

DESCRIPTION: Final[dict[str, Any]] = {"paths": _PATHS, "components": {"schemas": SCHEMAS}}
"""Paths and components, as `Service.openapi` takes them."""
