"""What requests of the service broker API may say: headers, bodies, parameters and ids, read and checked."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct
from starlette.requests import Request

from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.refusals import MAINTENANCE_CONFLICT, RefusedError
from keyplan.server import AnswerError, body_of

__all__ = [
    "BindBody",
    "ProvisionBody",
    "UpdateBody",
    "broker_body",
    "check_maintenance",
    "check_parameters",
    "check_provision_parameters",
    "check_version",
    "id_of",
    "is_asked_to_wait",
    "removal_query",
]

T = TypeVar("T")
Id = Annotated[str, Meta(min_length=1, max_length=255)]

_VERSION: Final = re.compile(r"2\.\d{1,3}")
_ID: Final = re.compile(r"(?!_)[^/\x00-\x1f\x7f]{1,255}")
_PARAMETERS: Final = ("cells", "node-count")
_PARAMETERS_OF_PROVISION: Final = ("cells", "clone-from", "node-count")
_CELLS_MAX: Final = 1000


class ProvisionBody(Struct, kw_only=True, frozen=True):
    """The body of PUT /v2/service_instances/{id}. Fields that it does not know are passed over, as the API wants."""

    service_id: Id
    plan_id: Id
    organization_guid: Id
    space_guid: Id
    context: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    maintenance_info: dict[str, Any] | None = None


class UpdateBody(Struct, kw_only=True, frozen=True):
    """The body of PATCH /v2/service_instances/{id}."""

    service_id: Id
    plan_id: Id | None = None
    context: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    previous_values: dict[str, Any] | None = None
    maintenance_info: dict[str, Any] | None = None


class BindBody(Struct, kw_only=True, frozen=True):
    """The body of PUT .../service_bindings/{id}."""

    service_id: Id
    plan_id: Id
    app_guid: str | None = None
    bind_resource: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None

    def application(self) -> str:
        """The application that the binding is for, by either of its two spellings; empty for none."""
        named = (self.bind_resource or {}).get("app_guid") or self.app_guid or ""
        return named if isinstance(named, str) else ""


async def broker_body(request: Request, kind: type[T]) -> T:
    """Read a request's JSON body. Raises RefusedError: 415 for another content type, 400 for what is not of this kind."""
    try:
        return await body_of(request, kind)
    except AnswerError as error:
        problem = error.detail.get("problem")
        raise RefusedError(error.status, f"{error.message}: {problem}" if problem else error.message) from error


def check_version(headers: Mapping[str, str], *, is_required: bool) -> None:
    """Raise RefusedError: 412 for another major version of the API than 2, 400 where the header lacks and `is_required`."""
    version = headers.get("x-broker-api-version")
    if not version:
        if is_required:
            raise RefusedError(400, "the header X-Broker-API-Version is required")
    elif not _VERSION.fullmatch(version):
        raise RefusedError(412, "this broker speaks version 2 of the service broker API")


def id_of(request: Request, name: str) -> str:
    """Return the id in a path. Raises RefusedError (400) for one that cannot be a part of a key (1.6 (12))."""
    text: str = request.path_params[name]
    if not _ID.fullmatch(text) or len(text.encode("utf-8", "surrogatepass")) > 255 or not text.isprintable():
        raise RefusedError(400, f"the {name} id has 1 to 255 bytes, no control characters, and begins with no _")
    return text


def is_asked_to_wait(request: Request) -> bool:
    """True when the client polls for the end of an operation. Raises RefusedError (400) for other words than true and false."""
    word = request.query_params.get("accepts_incomplete", "false")
    if word not in {"true", "false"}:
        raise RefusedError(400, "accepts_incomplete is true or false")
    return word == "true"


def removal_query(request: Request) -> tuple[str, str]:
    """Return service_id and plan_id of a DELETE. Raises RefusedError (400) when one lacks."""
    service_id, plan_id = request.query_params.get("service_id"), request.query_params.get("plan_id")
    if not service_id or not plan_id:
        raise RefusedError(400, "the query parameters service_id and plan_id are required")
    return service_id, plan_id


def check_provision_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of a new instance. Raises RefusedError (400)."""
    return check_parameters(parameters, _PARAMETERS_OF_PROVISION)


def check_parameters(parameters: Mapping[str, Any] | None, known: tuple[str, ...] = _PARAMETERS) -> dict[str, Any]:
    """Return the parameters of an instance or, with `known` empty, of a binding. Raises RefusedError (400)."""
    given = dict(parameters or {})
    if unknown := sorted(set(given) - set(known)):
        raise RefusedError(
            400, f"unknown parameters: {', '.join(unknown)[:200]}; there are {', '.join(known) or 'none'}"
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


def check_maintenance(given: Mapping[str, Any] | None) -> None:
    """Raise RefusedError (422) for a version of maintenance: no plan has one."""
    if given and given.get("version") is not None:
        raise RefusedError(422, "the plan has no maintenance_info", word=MAINTENANCE_CONFLICT)
