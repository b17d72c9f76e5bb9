"""What requests may say: bodies and query parameters, read and checked. What the words mean, the registry decides."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request

from keyplan.errors import InvalidArgumentError
from keyplan.keyspace import LIST_LIMIT_MAX, KeySpaceIdentity, State

__all__ = [
    "EXPECTED_PATTERN",
    "Creation",
    "QuotaChange",
    "RegistryFounding",
    "expected_of",
    "is_on",
    "list_filters",
    "query_of",
    "whole_number",
]


class Creation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /keyspaces. Missing names stay None, so that the registry says what is missing."""

    name: str | None = None
    application: str | None = None
    application_name: str | None = None
    description: str = ""
    prefix: str | None = None
    if_not_exists: bool = False
    adopt_existing_data: bool = False
    allow_legacy_prefix: bool = False

    def wanted_name(self) -> str:
        """The name. Raises InvalidArgumentError when it lacks."""
        if self.name is None:
            raise InvalidArgumentError(argument="name", problem="it is required")
        return self.name

    def owner(self) -> str:
        """The application, by either of its two spellings (KS-10). Raises InvalidArgumentError when they differ or lack."""
        given = {name for name in (self.application, self.application_name) if name is not None}
        if len(given) != 1:
            problem = "application and application_name differ" if given else "it is required"
            raise InvalidArgumentError(argument="application", problem=problem)
        return given.pop()


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PUT /keyspaces/{id}/quota; null: no bound."""

    keys: int | float | None
    bytes: int | float | None

    def bounds(self) -> dict[str, int | None]:
        """The arguments of `KeySpaces.set_quota`: whole numbers, for which JSON has several spellings, as in 1e6.

        Raises InvalidArgumentError.
        """
        return {"keys": _whole("keys", self.keys), "bytes": _whole("bytes", self.bytes)}


class RegistryFounding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /registry:init; null, or not given: as the store suggests."""

    prefix_codec: str | None = None
    profile: str | None = None
    skip_printable: bool | None = None


def query_of(request: Request, known: Collection[str]) -> dict[str, str]:
    """Return the query parameters.

    Raises InvalidArgumentError for one that there is not, which may be a misspelt filter, and for one that is given twice.
    """
    parameters: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise InvalidArgumentError(
                argument=name, problem=f"the parameters are {', '.join(sorted(known)) or 'none'}"
            )
        if name in parameters:
            raise InvalidArgumentError(argument=name, problem="it is given twice")
        parameters[name] = value
    return parameters


EXPECTED_PATTERN: Final = r"^[1-9][0-9]{0,17}/[\s\S]{1,128}$"
"""Generation and application in one word. Why one: neither says anything without the other, and a description can say so."""


def expected_of(request: Request) -> KeySpaceIdentity | None:
    """Return which key space of the name a request means, where it says so. Raises InvalidArgumentError."""
    expected = query_of(request, ("expected",)).get("expected")
    if expected is None:
        return None
    if not re.fullmatch(EXPECTED_PATTERN, expected, re.ASCII):
        raise InvalidArgumentError(
            argument="expected", problem="it is GENERATION/APPLICATION, as in 3/orders: see the key space"
        )
    generation, _, application = expected.partition("/")
    return KeySpaceIdentity(int(generation), application)


def list_filters(request: Request) -> dict[str, Any]:
    """Return the arguments of `KeySpaces.list` that a query has (KS-22). Raises InvalidArgumentError."""
    words = query_of(request, ("name", "prefix", "key", "application", "state", "include", "limit", "page_token"))
    filters: dict[str, Any] = {name: words[name] for name in ("name", "prefix", "key", "application") if name in words}
    for name in ("prefix", "key"):
        if not filters.get(name, name):
            raise InvalidArgumentError(argument=name, problem="it is empty; leave it out for all")
    filters["page_token"] = words.get("page_token", "")
    if "state" in words:
        if words["state"] not in set(State):
            raise InvalidArgumentError(argument="state", problem=f"it is one of {', '.join(State)}")
        filters["state"] = State(words["state"])
    if "include" in words:
        if words["include"] != "all":
            raise InvalidArgumentError(argument="include", problem="it is all, or not given")
        filters["include_deleted"] = True
    if "limit" in words:
        filters["limit"] = whole_number("limit", words["limit"], least=1, most=LIST_LIMIT_MAX)
    return filters


def _whole(argument: str, number: float | None) -> int | None:
    # Why the size first: JSON has whole numbers of any length, and a float has not.
    if number is not None and not (abs(number) < 1 << 63 and float(number).is_integer()):
        raise InvalidArgumentError(argument=argument, problem="a whole number below 2^63, or null")
    return None if number is None else int(number)


def whole_number(argument: str, text: str, *, least: int, most: int) -> int:
    """Read a whole number in decimal. Raises InvalidArgumentError."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else -1
    if not least <= number <= most:
        raise InvalidArgumentError(argument=argument, problem=f"a whole number from {least} to {most}")
    return number


def is_on(words: Mapping[str, str], name: str) -> bool:
    """Read a setting that is on or off. Raises InvalidArgumentError."""
    text = words.get(name, "on")
    if text not in {"on", "off"}:
        raise InvalidArgumentError(argument=name, problem="it is on or off")
    return text == "on"
