"""The messages that requests and answers carry beyond the stored records, and their JSON Schema for OpenAPI."""

import re
from enum import StrEnum
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keyplan.apps.cloudchamber.records import (
    Blade,
    Capacity,
    Instance,
    InstanceActual,
    InstanceTarget,
    Pdu,
    RackDetails,
    Rights,
    Tor,
)
from keyplan.apps.cloudchamber.refusals import invalid, quoted
from keyplan.errors import CorruptionError
from keyplan.protobuf import INT64_MAX, INT64_MIN, Message, ProtoJson

__all__ = [
    "BladeEntry",
    "BladeList",
    "Difference",
    "DifferenceList",
    "DifferingField",
    "Empty",
    "InstanceCreation",
    "InstanceList",
    "NamedEntry",
    "PlacedInstance",
    "PlacedInstanceList",
    "RackEntry",
    "RackView",
    "SessionEntry",
    "SessionList",
    "SessionStatus",
    "SimulationStatus",
    "UserDefinition",
    "UserEntry",
    "UserList",
    "UserPassword",
    "UserPublic",
    "UserUpdate",
    "WorkloadList",
    "ZoneSummary",
    "etag",
    "message_answer",
    "message_of",
    "revision_expected",
    "schemas_of",
    "text_answer",
]

M = TypeVar("M", bound=Message)

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")


class Empty(Message, frozen=True):
    """A message without fields."""


class UserEntry(Message, frozen=True):
    """A user in a list. Of one whose record is `damaged` nothing is known but its key."""

    name: str = ""
    uri: str = ""
    protected: bool = False
    damaged: bool = False


class UserList(Message, frozen=True):
    """All users, by name."""

    users: list[UserEntry] = msgspec.field(default_factory=list)


class UserPublic(Message, frozen=True):
    """What is shown of a user."""

    enabled: bool = False
    rights: Rights | None = None
    never_delete: bool = False


class UserDefinition(Message, frozen=True):
    """A user to be created."""

    password: str = ""
    enabled: bool = False
    rights: Rights | None = None


class UserUpdate(Message, frozen=True):
    """What is to become of a user; what is left out is false."""

    enabled: bool = False
    rights: Rights | None = None


class UserPassword(Message, frozen=True):
    """A change of password; with `force` the old one is not looked at."""

    old_password: str = ""
    new_password: str = ""
    force: bool = False


class NamedEntry(Message, frozen=True):
    """Something in a list, and where it is."""

    name: str = ""
    uri: str = ""


class WorkloadList(Message, frozen=True):
    """All workloads, by name."""

    workloads: list[NamedEntry] = msgspec.field(default_factory=list)


class InstanceList(Message, frozen=True):
    """The instances of a workload, by name."""

    instances: list[NamedEntry] = msgspec.field(default_factory=list)


class BladeEntry(Message, frozen=True):
    """A blade in a list, and where it is."""

    rack: str = ""
    blade: int = 0
    uri: str = ""


class BladeList(Message, frozen=True):
    """Blades by rack and number."""

    blades: list[BladeEntry] = msgspec.field(default_factory=list)


class PlacedInstance(Message, frozen=True):
    """An instance in a list of several workloads, and where it is."""

    workload: str = ""
    name: str = ""
    uri: str = ""


class PlacedInstanceList(Message, frozen=True):
    """Instances by workload and name."""

    instances: list[PlacedInstance] = msgspec.field(default_factory=list)


class RackEntry(Message, frozen=True):
    """Where a rack is. One is `damaged` when its record, or that of a part, cannot be read."""

    uri: str = ""
    damaged: bool = False


class ZoneSummary(Message, frozen=True):
    """All racks, and the largest of everything that one has. The document's layout keeps no details of a zone."""

    racks: dict[str, RackEntry] = msgspec.field(default_factory=dict)
    max_blade_count: int = 0
    max_capacity: Capacity | None = None
    name: str = ""
    max_tor_count: int = 0
    max_pdu_count: int = 0
    max_connectors: int = 0


class DamagedRecord(Message, frozen=True):
    """The key of a record that cannot be read, below the name space."""

    key: str = ""


class RackView(Message, frozen=True):
    """A rack with its parts; `damaged` are those that cannot be read.

    `pdu` and `tor` are empty, for old clients; nobody observes here, so nothing is `observed`.
    """

    details: RackDetails | None = None
    pdu: Empty | None = None
    tor: Empty | None = None
    blades: dict[int, Capacity] = msgspec.field(default_factory=dict)
    pdus: dict[int, Pdu] = msgspec.field(default_factory=dict)
    tors: dict[int, Tor] = msgspec.field(default_factory=dict)
    full_blades: dict[int, Blade] = msgspec.field(default_factory=dict)
    damaged: list[DamagedRecord] = msgspec.field(default_factory=list)


class InstanceCreation(Message, frozen=True):
    """An instance to be created: its three records. A target is always made, if need be an empty one."""

    description: Instance | None = None
    target: InstanceTarget | None = None
    actual: InstanceActual | None = None


class DifferingField(Message, frozen=True):
    """A field of a target, what it is to be and what it is."""

    name: str = ""
    wanted: str = ""
    found: str = ""


class Difference(Message, frozen=True):
    """An instance whose actual state is not its target, and where they differ; or a state of which is `damaged`."""

    instance: str = ""
    damaged: bool = False
    fields: list[DifferingField] = msgspec.field(default_factory=list)


class DifferenceList(Message, frozen=True):
    """The instances of a workload that are not as wanted."""

    differences: list[Difference] = msgspec.field(default_factory=list)


class SessionEntry(Message, frozen=True):
    """A session in a list."""

    id: int = 0
    uri: str = ""


class SessionList(Message, frozen=True):
    """The sessions of this server."""

    sessions: list[SessionEntry] = msgspec.field(default_factory=list)


class SessionStatus(Message, frozen=True):
    """A session: whose, and when it ends if nothing happens."""

    user_name: str = ""
    timeout: str = ""


class SimulationStatus(Message, frozen=True):
    """Since when this server runs, and after how long without a request a session ends."""

    front_end_started_at: str = ""
    inactivity_timeout: str = ""


# ---- bodies and headers ----------------------------------------------------------------------------------------------


async def message_of(request: Request, kind: type[M], *, is_strict: bool = True) -> M:
    """Read a request's body as a message. Raises RefusedError (400): no JSON, another message, with `is_strict` more fields."""
    try:
        return ProtoJson(kind, is_strict=is_strict).decode(await request.body())
    except CorruptionError as error:
        raise invalid(f"the body cannot be read: {error.facts.get('problem', '')}") from error


def message_answer(message: Message, *, revision: int | None = None) -> Response:
    """Return a message as JSON, with the revision as its ETag."""
    headers = {} if revision is None else etag(revision)
    content = ProtoJson(type(message)).encode(message)
    return Response(content, media_type="application/json", headers=headers)


def text_answer(text: str, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return plain text."""
    return Response(text, status, media_type="text/plain", headers=headers)


def etag(revision: int) -> dict[str, str]:
    """The header that names a revision."""
    return {"ETag": f'"{revision}"'}


def revision_expected(request: Request) -> int:
    """Return the revision in If-Match: digits, in quotation marks or not. Raises RefusedError (400), also where it lacks."""
    given = request.headers.get("if-match", "")
    digits = given.strip('"')
    revision = int(digits) if _WHOLE.fullmatch(digits) else None
    if revision is None or not INT64_MIN <= revision <= INT64_MAX:
        raise invalid(f"match value {quoted(given)} is not recognized as a valid integer")
    return revision


# ---- schemas ---------------------------------------------------------------------------------------------------------


def schemas_of(*messages: type[Message]) -> dict[str, Any]:
    """Return the JSON Schemas of messages and of all that they hold, by name: as they are written and may be sent."""
    found: dict[str, Any] = {}
    for message in messages:
        _add_schema(message, found)
    return found


def _add_schema(message: type[Message], found: dict[str, Any]) -> dict[str, Any]:
    name = message.__name__
    if name not in found:
        properties: dict[str, Any] = {}
        description = (message.__doc__ or "").strip()
        # Why no additional ones, although stored records keep them: what is described is what is understood.
        found[name] = {"type": "object", "description": description, "properties": properties}
        found[name]["additionalProperties"] = False
        for info in msgspec.structs.fields(message):
            if info.name != "unknown_fields":
                properties[info.encode_name] = _schema(info.type, found)
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _schema(arguments[0], found)
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], found)}
    if origin is dict:
        names = {"pattern": "^(0|[1-9][0-9]{0,17})$"} if arguments[0] is int else {"type": "string"}
        return {"type": "object", "propertyNames": names, "additionalProperties": _schema(arguments[1], found)}
    if issubclass(kind, Message):
        return _add_schema(kind, found)
    if issubclass(kind, StrEnum):
        return {"type": "string", "enum": [str(member) for member in kind]}
    if kind is int:
        return {"type": "string", "pattern": "^(0|-?[1-9][0-9]{0,17})$", "description": "a whole number of 64 bits"}
    words = {bool: "boolean", str: "string", float: "number", bytes: "string"}
    return {"type": words[kind]}
