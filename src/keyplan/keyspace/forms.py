"""How requests and answers of the registry's contract stand in JSON, where that is not simply the class that Python has."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from keyplan.errors import InvalidArgumentError, KeySpaceNotFoundError
from keyplan.keyspace.answers import IDENTITY_PATTERN, AuditItem, KeySpace, KeySpaceIdentity, KeySpacePage
from keyplan.keyspace.doctor import Diagnosis
from keyplan.keyspace.records import COUNT, HEX, HEX_GIVEN_PATTERN, TIME, Configuration, Header, Quota
from keyplan.keyspace.soundness import Fault
from keyplan.operations import AnswerForm, BodyForm, In, Place, Schema, Some, WordForm

__all__ = [
    "CREATION",
    "DIAGNOSIS",
    "ENTRIES",
    "HEADER",
    "HISTORY",
    "PAGE",
    "QUOTA",
    "REPAIRED",
    "SWITCHES",
    "UPDATE",
    "ExpectedIdentity",
    "NamedKeySpace",
    "PrefixFilter",
]

# ---- words of a path and a query -------------------------------------------------------------------------------------


def _read_expected(argument: str, text: str) -> KeySpaceIdentity:
    identity = KeySpaceIdentity.parsed(text)
    if identity is None:
        raise InvalidArgumentError(
            argument=argument, problem="it is GENERATION/APPLICATION, as in 3/orders: see the key space"
        )
    return identity


_EXPECTED: Final = WordForm(
    _read_expected,
    lambda expected: f"{expected.generation}/{expected.application}",
    {"pattern": IDENTITY_PATTERN},
)

NamedKeySpace = Annotated[str, In("id"), Schema("The key space's name.", pattern="^[^/]+$")]

ExpectedIdentity = Annotated[
    KeySpaceIdentity | None,
    In("expected", _EXPECTED, Place.QUERY),
    Schema("Only while the name has this generation and application: GENERATION/APPLICATION, as in 3/orders."),
]
"""The key space of a name that is meant."""


def _read_given(argument: str, text: str) -> str:
    if not text:
        raise InvalidArgumentError(argument=argument, problem="it is empty; leave it out for all")
    return text


PrefixFilter = Annotated[str | None, In(form=WordForm(_read_given, str, {"pattern": HEX_GIVEN_PATTERN}))]
"""Bytes in hex, at least one."""


# ---- bodies ----------------------------------------------------------------------------------------------------------


class _Creation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Missing names stay None, so that the registry says what is missing."""

    name: str | None = None
    application: str | None = None
    application_name: str | None = None
    description: str = ""
    prefix: str | None = None
    if_not_exists: bool = False
    adopt_existing_data: bool = False
    allow_legacy_prefix: bool = False

    def arguments(self) -> dict[str, Any]:
        """The arguments of `create`; the application by either of its two spellings (KS-10). Raises InvalidArgumentError."""
        if self.name is None:
            raise InvalidArgumentError(argument="name", problem="it is required")
        given = {name for name in (self.application, self.application_name) if name is not None}
        if len(given) != 1:
            problem = "application and application_name differ" if given else "it is required"
            raise InvalidArgumentError(argument="application", problem=problem)
        asked = msgspec.structs.asdict(self)
        del asked["application_name"]
        return {**asked, "application": given.pop()}


CREATION: Final = BodyForm(
    _Creation, _Creation.arguments, dict, description="`application_name` is taken for `application` too."
)


class _KeySpaceUpdate(msgspec.Struct):
    """What may be changed, beside fields as they are stored."""

    schema_name: ClassVar[str] = "KeySpaceUpdate"
    schema_keywords: ClassVar[Mapping[str, Any]] = {
        "additionalProperties": True,
        "description": "Other fields may be sent as they are stored, so that an object that was read can be sent back.",
    }
    description: Annotated[str, Schema(maxLength=4096)]


def _read_update(body: dict[str, Any]) -> dict[str, Any]:
    if "description" not in body:
        raise InvalidArgumentError(argument="description", problem="it is required")
    return {"description": body["description"], "sent": body}


UPDATE: Final = BodyForm(
    dict[str, Any],
    _read_update,
    lambda fields: {**(fields.get("sent") or {}), "description": fields.get("description")},
    _KeySpaceUpdate,
)


class _Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Null: no bound. Whole numbers, for which JSON has several spellings, as in 1e6."""

    keys: int | float | None
    bytes: int | float | None

    def arguments(self) -> dict[str, Any]:
        return {"keys": _whole("keys", self.keys), "bytes": _whole("bytes", self.bytes)}


def _whole(argument: str, number: float | None) -> int | None:
    # Why the size first: JSON has whole numbers of any length, and a float has not.
    if number is not None and not (abs(number) < 1 << 63 and float(number).is_integer()):
        raise InvalidArgumentError(argument=argument, problem="a whole number below 2^63, or null")
    return None if number is None else int(number)


QUOTA: Final = BodyForm(
    _Quota, _Quota.arguments, lambda fields: {"keys": fields.get("keys"), "bytes": fields.get("bytes")}, Quota
)

SWITCHES: Final = BodyForm(
    dict[str, Any], lambda body: {"changes": body}, lambda fields: dict(fields["changes"]), Some(Configuration)
)


# ---- answers ---------------------------------------------------------------------------------------------------------


class _KeySpaceListShown(msgspec.Struct):
    """A page of key spaces."""

    schema_name: ClassVar[str] = "KeySpaceList"
    keyspaces: list[KeySpace]
    next_page_token: Annotated[str, Schema("Empty on the last page.")]
    damaged: Annotated[
        list[str] | msgspec.UnsetType, Schema("Key spaces whose records cannot be read; left out where there are none.")
    ] = msgspec.UNSET


class _AuditEntryShown(msgspec.Struct):
    schema_name: ClassVar[str] = "AuditEntry"
    number: Annotated[int, Schema(minimum=1)]
    at: TIME
    actor: str
    act: str
    name: str
    detail: dict[str, Any]
    previous: HEX
    digest: HEX
    revision: Annotated[int, Schema("The store's, after the commit that wrote the entry.", minimum=0)]


class _AuditEntriesShown(msgspec.Struct):
    """A part of the audit log."""

    schema_name: ClassVar[str] = "AuditEntries"
    entries: list[_AuditEntryShown]


class _RepairedShown(msgspec.Struct):
    """What was put right."""

    schema_name: ClassVar[str] = "Repaired"
    repaired: list[Fault]


class _UnmanagedShown(msgspec.Struct):
    schema_name: ClassVar[str] = "Unmanaged"
    prefix: HEX
    prefix_number: Annotated[int | None, Schema(minimum=0)]
    first_key: HEX
    keys: Annotated[COUNT, Schema(maximum=1000)]
    is_more: bool


class _DiagnosisShown(msgspec.Struct):
    """What the doctor found."""

    schema_name: ClassVar[str] = "Diagnosis"
    is_sound: bool
    keyspaces: COUNT
    audit_entries: COUNT
    faults: list[Fault]
    unmanaged: Annotated[list[_UnmanagedShown], Schema("Keys that are nobody's.")]


def _header(header: Header | None) -> Header:
    if header is None:
        raise KeySpaceNotFoundError(problem="there is no registry in this store")
    return header


PAGE: Final = AnswerForm(KeySpacePage.to_json, KeySpacePage.from_json, _KeySpaceListShown)

HISTORY: Final = AnswerForm(
    lambda found: KeySpacePage(found, "").to_json(),
    lambda found: KeySpacePage.from_json(found).keyspaces,
    _KeySpaceListShown,
)

HEADER: Final = AnswerForm(_header, lambda found: msgspec.convert(found, Header), Header)

DIAGNOSIS: Final = AnswerForm(Diagnosis.to_json, Diagnosis.from_json, _DiagnosisShown)

REPAIRED: Final = AnswerForm(
    lambda faults: {"repaired": [fault.to_json() for fault in faults]},
    lambda found: [Fault.from_json(fault) for fault in found["repaired"]],
    _RepairedShown,
)

ENTRIES: Final = AnswerForm(
    lambda items: {"entries": [item.to_json() for item in items]},
    lambda found: [AuditItem.from_json(entry) for entry in found["entries"]],
    _AuditEntriesShown,
)
