"""What requests of the service broker API say and what answers have: ids, words, fields of bodies, read and checked."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from keyplan.apps.patroni.catalog import NODES_MAX, PARAMETERS, PARAMETERS_OF_CREATION
from keyplan.apps.patroni.refusals import ASYNC_REQUIRED, CONCURRENCY, MAINTENANCE_CONFLICT, RefusedError
from keyplan.operations import In, Schema, WordForm

__all__ = [
    "TRUTH",
    "BindingParameters",
    "BindingShown",
    "BrokerFailure",
    "Id",
    "InstanceParameters",
    "InstanceShown",
    "LastOperation",
    "Maintenance",
    "MayWait",
    "NewInstanceParameters",
    "Object",
    "OperationBegun",
    "OwnerId",
    "PassedOver",
    "PathId",
    "PlanId",
    "RemovedId",
    "ServiceId",
    "UnreadObject",
    "check_maintenance",
    "check_parameters",
]

_ID: Final = re.compile(r"(?!_)[^/\x00-\x1f\x7f]{1,255}")
_CELLS_MAX: Final = 1000


# ---- ids and words ---------------------------------------------------------------------------------------------------


def _path_id(name: str, text: str) -> str:
    """Read an id in a path. Raises RefusedError (400) for one that cannot be a part of a key (1.6 (12))."""
    if not _ID.fullmatch(text) or len(text.encode("utf-8", "surrogatepass")) > 255 or not text.isprintable():
        raise RefusedError(400, f"the {name} id has 1 to 255 bytes, no control characters, and begins with no _")
    if "\ufffd" in text:
        # Why: the server puts this one character in place of all bytes that are no text, and many ids would be one.
        raise RefusedError(400, f"the {name} id is not text in UTF-8")
    return text


def _truth(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise RefusedError(400, f"{name} is true or false")
    return text == "true"


def _removed_id(_name: str, text: str) -> str:
    if not text:
        raise RefusedError(400, "the query parameters service_id and plan_id are required")
    return text


_LENGTHS: Final[dict[str, Any]] = {"minLength": 1, "maxLength": 255}

PathId = Annotated[
    str,
    In(form=WordForm(_path_id, str)),
    # Why this pattern: a slash or a control character cannot be a part of a key, and a leading _ is hidden in v2's lists.
    Schema(**_LENGTHS, pattern="^[0-9A-Za-z][0-9A-Za-z._~-]*$"),
]
"""An id in a path."""

TRUTH: Final = WordForm(_truth, lambda value: "true" if value else "false", {"enum": ["true", "false"]})
"""A yes or no in a query."""

MayWait = Annotated[
    bool,
    In("accepts_incomplete", TRUTH),
    Schema("Whether the client polls for the end; without it what takes a while is refused."),
]
"""Whether the client polls for the end of an operation."""

RemovedId = Annotated[str, In(form=WordForm(_removed_id, str)), Schema("As it was made with.", **_LENGTHS)]
"""The service_id or plan_id of a DELETE."""


# ---- fields of bodies ------------------------------------------------------------------------------------------------


Id = Annotated[str, Meta(min_length=1, max_length=255)]
ServiceId = Annotated[Id, Schema("A service of the catalog.")]
PlanId = Annotated[Id, Schema("A plan of the service.")]
OwnerId = Annotated[Id, Schema("Whose the instance is.")]
PassedOver = Annotated[Id | None, Schema("Passed over.")]
Object = dict[str, Any] | None
UnreadObject = Annotated[Object, Schema("Passed over.")]
Maintenance = Annotated[Object, Schema("No plan has one: a `version` is refused.")]


def _parameters(known: Mapping[str, Any]) -> Schema:
    bounded = {**known, "cells": {**known["cells"], "maxItems": _CELLS_MAX}}
    names = ", ".join(f"`{name}`" for name in sorted(known))
    return Schema(f"An object of {names}.", additionalProperties=False, properties=bounded)


InstanceParameters = Annotated[Object, _parameters(PARAMETERS)]
NewInstanceParameters = Annotated[Object, _parameters(PARAMETERS_OF_CREATION)]
BindingParameters = Annotated[Object, Schema("There are none.", additionalProperties=False)]


def check_parameters(parameters: Object, known: Mapping[str, Any] = PARAMETERS) -> dict[str, Any]:
    """Return the parameters of an instance or, with `known` empty, of a binding. Raises RefusedError (400)."""
    given = dict(parameters or {})
    if unknown := sorted(set(given) - set(known)):
        raise RefusedError(
            400, f"unknown parameters: {', '.join(unknown)[:200]}; there are {', '.join(sorted(known)) or 'none'}"
        )
    count = given.get("node-count", 0)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= NODES_MAX:
        raise RefusedError(400, f"node-count is a whole number from 0 to {NODES_MAX}")
    cells = given.get("cells", [])
    if not isinstance(cells, list) or len(cells) > _CELLS_MAX or not all(isinstance(cell, str) for cell in cells):
        raise RefusedError(400, "cells is a list of names")
    clone_from = given.get("clone-from", "")
    if not isinstance(clone_from, str) or len(clone_from) > 255:
        raise RefusedError(400, "clone-from is the name of an instance in the same space")
    return given


def check_maintenance(given: Object) -> None:
    """Raise RefusedError (422) for a version of maintenance: no plan has one."""
    if given and given.get("version") is not None:
        raise RefusedError(422, "the plan has no maintenance_info", word=MAINTENANCE_CONFLICT)


# ---- answers ---------------------------------------------------------------------------------------------------------


class BrokerFailure(Struct, kw_only=True):
    """Why a request is refused: `error` is the API's word for programs."""

    error: Annotated[str, Schema(enum=[ASYNC_REQUIRED, CONCURRENCY, MAINTENANCE_CONFLICT])] | UnsetType = UNSET
    description: str


class OperationBegun(Struct):
    """The operation to ask for."""

    schema_name: ClassVar[str] = "BrokerOperation"
    operation: str


class LastOperation(Struct):
    """How far an operation is."""

    schema_name: ClassVar[str] = "BrokerLastOperation"
    state: Annotated[str, Schema(enum=["in progress", "succeeded", "failed"])]
    description: str
    instance_usable: bool | UnsetType = UNSET
    update_repeatable: bool | UnsetType = UNSET


class InstanceShown(Struct):
    """An instance as the API shows it."""

    schema_name: ClassVar[str] = "BrokerInstance"
    service_id: str
    plan_id: str
    parameters: dict[str, Any]


class BindingShown(Struct):
    """A binding as the API shows it."""

    schema_name: ClassVar[str] = "BrokerBinding"
    credentials: dict[str, Any]
    endpoints: list[dict[str, Any]]
    parameters: dict[str, Any]
