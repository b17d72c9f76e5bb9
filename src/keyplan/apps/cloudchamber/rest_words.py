"""How values are words of paths, queries and headers, and texts of answers, as the original spells and refuses them.

Its failures name the field and quote what was given; of a part of a path they are the words of Go's own parser.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, not_a_number, quoted
from keyplan.operations import In, Place, Schema, WordForm
from keyplan.protobuf import INT64_MAX, INT64_MIN

__all__ = [
    "NUMBER",
    "POSITIVE_NUMBER",
    "IfMatch",
    "IfMatchOrNone",
    "IfMatchWord",
    "Name",
    "number_of_path",
    "one_of",
    "revision_of",
    "spelled_duration",
    "spelled_time",
    "whole_number_of",
]

_NANOSECONDS: Final = 1_000_000_000
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX: Final = 40
"""Why: Python reads no number of thousands of digits; 64 bits have 19."""

Name = Annotated[str, Schema(pattern="^[A-Za-z0-9]+$")]
"""A part of a path, as it was written."""


# ---- numbers ---------------------------------------------------------------------------------------------------------


def whole_number_of(given: str) -> int | None:
    """Return a whole number of 64 bits; None for anything else."""
    found = int(given) if _WHOLE.fullmatch(given) and len(given) <= _DIGITS_MAX else None
    return found if found is not None and INT64_MIN <= found <= INT64_MAX else None


def number_of_path(given: str) -> int:
    """Return the number that a part of a path is. Raises RefusedError (400)."""
    found = whole_number_of(given)
    if found is None:
        problem = "value out of range" if _WHOLE.fullmatch(given) else "invalid syntax"
        raise RefusedError(400, f"strconv.ParseInt: parsing {quoted(given)}: {problem}", is_bare=True)
    return found


def _read_number(field: str, given: str) -> int:
    found = whole_number_of(given)
    if found is None:
        raise not_a_number(field, given, is_positive=False)
    return found


def _read_positive_number(field: str, given: str) -> int:
    found = whole_number_of(given)
    if found is None or found < 0:
        raise not_a_number(field, given, is_positive=True)
    return found


NUMBER: Final = WordForm(_read_number, str)
"""A whole number of 64 bits. Reading raises RefusedError (400)."""

POSITIVE_NUMBER: Final = WordForm(_read_positive_number, str)
"""One that is not negative: the original calls 0 positive, too. Reading raises RefusedError (400)."""


def revision_of(_argument: str, given: str) -> int:
    """Read an If-Match: digits, in quotation marks or not. Raises RefusedError (400), also where it lacks."""
    revision = whole_number_of(given.strip('"'))
    if revision is None:
        raise invalid(f"match value {quoted(given)} is not recognized as a valid integer")
    return revision


_MATCH: Final = Schema("an ETag as it was given", pattern='^"[0-9]{1,18}"$')

IfMatch = Annotated[int, In("If-Match", WordForm(revision_of, str), Place.HEADER), _MATCH]
"""The revision at which something is changed."""

IfMatchOrNone = Annotated[int | None, In("If-Match", WordForm(revision_of, str), Place.HEADER), _MATCH]
"""The same, where it may be left out."""

IfMatchWord = Annotated[str, In("If-Match", place=Place.HEADER), _MATCH]
"""The same, not read yet: for operations that need it in one of several cases alone."""


def one_of(kind: str, values: Mapping[str, str]) -> WordForm:
    """Return the form of a few values, each with its word. Reading raises RefusedError (400)."""

    def read(_argument: str, given: str) -> str:
        if given not in values:
            raise invalid(f"there is no {kind} {quoted(given)}")
        return values[given]

    return WordForm(read, {value: word for word, value in values.items()}.get, {"enum": [*values]})


# ---- time ------------------------------------------------------------------------------------------------------------


def spelled_duration(nanoseconds: int) -> str:
    """Return a duration as proto3 JSON has it: "5s", "0.100s", "0.333333333s"."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{seconds}{_fraction(rest)}s"


def spelled_time(moment: float) -> str:
    """Return a moment as proto3 JSON has it: RFC 3339 in UTC, with no, three or six digits of a second."""
    microseconds = round(moment * 1_000_000)
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{_fraction(rest * 1_000)}Z"


def _fraction(nanoseconds: int) -> str:
    """Return the digits behind a second, in threes, and none where there are none but zeros."""
    digits = f"{nanoseconds:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}" if digits else ""
