"""The OpenAPI 3.1 description of the broker's routes."""

from typing import Any, Final

from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.server import FAILURE, answers

__all__ = ["DESCRIPTION"]

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_ANYTHING: Final = {"type": "object"}
_OPTIONAL: Final = {"type": ["object", "null"]}

_PARAMETERS: Final[dict[str, Any]] = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "node-count": {"type": "integer", "minimum": 0, "maximum": NODES_MAX},
        "cells": {"type": "array", "items": {"type": "string"}, "maxItems": 1000},
    },
}
_PARAMETERS_OF_PROVISION: Final[dict[str, Any]] = {
    **_PARAMETERS,
    "properties": {**_PARAMETERS["properties"], "clone-from": {"type": "string", "maxLength": 255}},
}
_NO_PARAMETERS: Final[dict[str, Any]] = {"type": ["object", "null"], "additionalProperties": False}

_SCHEMAS: Final[dict[str, Any]] = {
    "BrokerFailure": {
        "type": "object",
        "required": ["description"],
        "additionalProperties": False,
        "properties": {
            "error": {"enum": ["AsyncRequired", "ConcurrencyError", "MaintenanceInfoConflict"]},
            "description": {"type": "string"},
        },
    },
    "BrokerProvision": {
        "type": "object",
        "required": ["service_id", "plan_id", "organization_guid", "space_guid"],
        "properties": {
            **dict.fromkeys(("service_id", "plan_id", "organization_guid", "space_guid"), _ID),
            "context": _OPTIONAL,
            "parameters": _PARAMETERS_OF_PROVISION,
            "maintenance_info": _OPTIONAL,
        },
    },
    "BrokerUpdate": {
        "type": "object",
        "required": ["service_id"],
        "properties": {
            "service_id": _ID,
            "plan_id": {**_ID, "type": ["string", "null"]},
            "context": _OPTIONAL,
            "parameters": _PARAMETERS,
            "previous_values": _OPTIONAL,
            "maintenance_info": _OPTIONAL,
        },
    },
    "BrokerBind": {
        "type": "object",
        "required": ["service_id", "plan_id"],
        "properties": {
            "service_id": _ID,
            "plan_id": _ID,
            "app_guid": {"type": ["string", "null"]},
            "bind_resource": _OPTIONAL,
            "context": _OPTIONAL,
            "parameters": _NO_PARAMETERS,
        },
    },
    "BrokerOperation": {
        "type": "object",
        "required": ["operation"],
        "additionalProperties": False,
        "properties": {"operation": {"type": "string"}},
    },
    "BrokerLastOperation": {
        "type": "object",
        "required": ["state", "description"],
        "additionalProperties": False,
        "properties": {
            "state": {"enum": ["in progress", "succeeded", "failed"]},
            "description": {"type": "string"},
            "instance_usable": {"type": "boolean"},
            "update_repeatable": {"type": "boolean"},
        },
    },
    "BrokerInstance": {
        "type": "object",
        "required": ["service_id", "plan_id", "parameters"],
        "properties": {"service_id": _ID, "plan_id": _ID, "parameters": _ANYTHING},
    },
    "BrokerBinding": {
        "type": "object",
        "required": ["credentials", "endpoints", "parameters"],
        "properties": {"credentials": _ANYTHING, "endpoints": {"type": "array"}, "parameters": _ANYTHING},
    },
}

_FAILURES: Final = {
    400: "The request is malformed, or asks for what cannot be.",
    401: "The log-in lacks or is wrong.",
    404: "There is no such thing, or not yet.",
    409: "There is one of this id with other attributes.",
    410: "It is gone.",
    412: "The version of the API is not 2.",
    415: "The body is not application/json.",
    422: "It cannot be done now, or not in this way: see `error`.",
    500: "The cluster cannot be reached now.",
}


def _of(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _query(name: str, *, is_required: bool = False, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": is_required, "schema": schema or _ID}


def _path(name: str) -> dict[str, Any]:
    # Why this pattern: a slash or a control character cannot be a part of a key, and a leading _ is hidden in v2's lists.
    schema = {**_ID, "pattern": "^[0-9A-Za-z][0-9A-Za-z._~-]*$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


_WAIT: Final = _query("accepts_incomplete", schema={"enum": ["true", "false"]})
_VERSION: Final = {
    "name": "X-Broker-API-Version",
    "in": "header",
    "required": True,
    "schema": {"type": "string", "pattern": r"^2\.[0-9]{1,3}$"},
}
_REMOVAL: Final = [_query("service_id", is_required=True), _query("plan_id", is_required=True)]


def _operation(
    name: str,
    summary: str,
    successes: dict[str, Any],
    *failures: int,
    body: str | None = None,
    query: tuple[Any, ...] | list[Any] = (),
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": ["patroni-broker"],
        "security": [{"broker": []}],
        "responses": {
            **successes,
            **{str(status): answers(_FAILURES[status], _of("BrokerFailure")) for status in (400, 401, 412, *failures)},
            "default": FAILURE,
        },
    }
    if query:
        operation["parameters"] = list(query)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _of(body)}}}
    return operation


_EMPTY: Final = answers("Nothing is to be done, or it is done.", _ANYTHING)
_ACCEPTED: Final = answers("It was begun: poll its last operation.", _of("BrokerOperation"))
_ONE: Final = "/v2/service_instances/{instance}"
_BOUND: Final = f"{_ONE}/service_bindings/{{binding}}"
_LAST: Final = {"200": answers("How far it is.", _of("BrokerLastOperation"))}

_PATHS: Final[dict[str, Any]] = {
    "/v2/catalog": {
        "parameters": [_VERSION],
        "get": _operation(
            "getCatalog",
            "List services and plans.",
            {"200": answers("The catalog.", _ANYTHING), "304": answers("It is that of If-None-Match.")},
        ),
    },
    _ONE: {
        "parameters": [_path("instance"), _VERSION],
        "put": _operation(
            "provision",
            "Begin to make an instance.",
            {"200": _EMPTY, "202": _ACCEPTED},
            *(409, 415, 422),
            body="BrokerProvision",
            query=[_WAIT],
        ),
        "patch": _operation(
            "updateInstance",
            "Begin to change an instance's plan, number of nodes, or cells.",
            {"200": _EMPTY, "202": _ACCEPTED},
            *(404, 415, 422),
            body="BrokerUpdate",
            query=[_WAIT],
        ),
        "delete": _operation(
            "deprovision",
            "Begin to delete an instance; one that is being made is halted.",
            {"202": _ACCEPTED},
            *(410, 422),
            query=[_WAIT, *_REMOVAL],
        ),
        "get": _operation(
            "getInstance", "Read an instance.", {"200": answers("It.", _of("BrokerInstance"))}, *(404, 422)
        ),
    },
    f"{_ONE}/last_operation": {
        "parameters": [_path("instance"), _VERSION],
        "get": _operation(
            "getLastOperation",
            "Tell how far an operation is.",
            _LAST,
            *(404, 410),
            query=[_query("operation"), _query("service_id"), _query("plan_id")],
        ),
    },
    _BOUND: {
        "parameters": [_path("instance"), _path("binding"), _VERSION],
        "put": _operation(
            "bind",
            "Make a binding: a role of its own.",
            {
                "200": answers("The same binding was there.", _of("BrokerBinding")),
                "201": answers("It was made.", _of("BrokerBinding")),
            },
            *(404, 409, 415, 422, 500),
            body="BrokerBind",
            query=[_WAIT],
        ),
        "delete": _operation(
            "unbind",
            "Drop a binding's role and its sessions.",
            {"200": _EMPTY},
            *(410, 422, 500),
            query=[_WAIT, *_REMOVAL],
        ),
        "get": _operation("getBinding", "Read a binding.", {"200": answers("It.", _of("BrokerBinding"))}, 404),
    },
    f"{_BOUND}/last_operation": {
        "parameters": [_path("instance"), _path("binding"), _VERSION],
        "get": _operation("getLastBindingOperation", "Tell that a binding was made.", _LAST, 404),
    },
    "/admin/cells": {
        "get": _operation("listCells", "List cells and their loads.", {"200": answers("Them.", _ANYTHING)})
    },
    "/admin/cells/{cell}/demote": {
        "parameters": [_path("cell")],
        "post": _operation(
            "demoteCell",
            "Move the lead of every cluster that is led from this cell.",
            {"200": answers("All were asked.", _ANYTHING), "207": answers("Some failed.", _ANYTHING)},
            404,
        ),
    },
    "/admin/service_instances": {
        "get": _operation("listInstances", "List clusters with their nodes.", {"200": answers("Them.", _ANYTHING)})
    },
    "/admin/service_instances/{instance}": {
        "parameters": [_path("instance")],
        "get": _operation("describeInstance", "Read an instance's record.", {"200": answers("It.", _ANYTHING)}, 404),
    },
    "/admin/service_instances/{instance}/recreate": {
        "parameters": [_path("instance")],
        "post": _operation(
            "recreateInstance",
            "Make an instance that was lost again from its backups, with its users and its port.",
            {"202": answers("It has begun.", _ANYTHING)},
            *(404, 409, 422, 500),
        ),
    },
    "/admin/spaces/{space}/clusterdata_backup_by_name/{name}": {
        "parameters": [_path("space"), _path("name")],
        "get": _operation(
            "findKeptInstance", "Read what is kept of an instance.", {"200": answers("It.", _ANYTHING)}, *(404, 500)
        ),
    },
    "/admin/findings": {
        "get": _operation("listFindings", "Examine the store.", {"200": answers("What is wrong.", _ANYTHING)})
    },
}

DESCRIPTION: Final[dict[str, Any]] = {
    "paths": _PATHS,
    "components": {
        "schemas": _SCHEMAS,
        "securitySchemes": {
            "broker": {"type": "http", "scheme": "basic", "description": "The password is an administrator's token."}
        },
    },
}
"""Paths and components, as `Service.openapi` takes them."""
