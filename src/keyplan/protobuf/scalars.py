"""The single values of messages: the scalar types, and how each is written and read as proto3 JSON.

Go writes 64-bit numbers quoted, bytes in base64 and enumerators by name. Reading takes numbers or quoted numbers, either
alphabet of base64, and enumerators by name or number.
"""

import base64
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "JSON_SCALARS",
    "SCALARS",
    "JsonKind",
    "MisfitError",
    "enumeration_kind",
    "escape",
    "quoted",
    "require_type",
]

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

SCALARS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "bool": bool,
        "bytes": bytes,
        "double": float,
        "int32": int,
        "int64": int,
        "string": str,
        "uint32": int,
        "uint64": int,
    }
)
"""The types of single values that messages have, and the Python types of records' fields."""


class MisfitError(Exception):
    """A value that its field cannot take. `place` is the path of fields to it; content is never quoted."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = place

    def within(self, name: str) -> "MisfitError":
        """The same, seen from one level further out."""
        return MisfitError(self.problem, f"{name}.{self.place}" if self.place else name)


class JsonKind(NamedTuple):
    """How the values of one type are written and read as JSON. `is_zero` tells which a message leaves out."""

    write: Callable[[Any], str]
    read: Callable[[Any], Any]
    is_zero: Callable[[Any], bool]


# ---- scalars -------------------------------------------------------------------------------------------------------------

# Why: Go writes these characters of a text as \u and four digits, the first five of _SHORT excepted.
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,19})")


def quoted(text: str) -> str:
    """Return a text as Go writes it."""
    return f'"{_ESCAPED.sub(escape, text)}"'


def escape(found: re.Match[str]) -> str:
    """Return one character that Go does not write as it is."""
    character = found[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def require_type(kind: type, value: object) -> None:
    """Raise MisfitError for a value of another class, a subclass too."""
    if type(value) is not kind:
        raise MisfitError(f"a {kind.__name__} is needed, not a {type(value).__name__}")


def _write_truth(value: object) -> str:
    require_type(bool, value)
    return "true" if value else "false"


def _read_truth(value: object) -> bool:
    require_type(bool, value)
    return value is True


def _number_kind(bits: int, *, is_signed: bool) -> JsonKind:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    # Why: in JSON, numbers of 64 bits are quoted, because JavaScript's have 53.
    quote = '"' if bits == 64 else ""

    def check(value: Any) -> None:
        require_type(int, value)
        if not least <= value <= most:
            raise MisfitError(f"the number does not fit into {bits} bits")

    def write(value: Any) -> str:
        # Why looked at here, too: a small answer is mostly numbers that fit, and for these a call is most of the work.
        if type(value) is not int or not least <= value <= most:
            check(value)
        return f"{quote}{value}{quote}"

    def read(value: Any) -> int:
        number: Any = int(value) if type(value) is str and _WHOLE.fullmatch(value) else value
        check(number)
        return cast("int", number)

    return JsonKind(write, read, lambda value: type(value) is int and value == 0)


def _write_float(value: Any) -> str:
    if type(value) is not int:
        require_type(float, value)
    value = float(value)
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        return repr(value).replace("e-0", "e-")
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def _read_float(value: Any) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError) as error:
        raise MisfitError("a number is needed") from error
    raise MisfitError(f"a number is needed, not a {type(value).__name__}")


def _write_text(value: Any) -> str:
    require_type(str, value)
    return quoted(value)


def _read_text(value: Any) -> str:
    require_type(str, value)
    return cast("str", value)


def _write_bytes(value: Any) -> str:
    require_type(bytes, value)
    return f'"{base64.b64encode(value).decode()}"'


def _read_bytes(value: Any) -> bytes:
    require_type(str, value)
    # Why: the specification lets readers take the URL alphabet and missing padding as well.
    text = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise MisfitError("base64 is needed") from error


JSON_SCALARS: Final[Mapping[str, JsonKind]] = MappingProxyType(
    {
        "bool": JsonKind(_write_truth, _read_truth, lambda value: value is False),
        "bytes": JsonKind(_write_bytes, _read_bytes, lambda value: type(value) is bytes and not value),
        "double": JsonKind(_write_float, _read_float, lambda value: type(value) in {int, float} and value == 0),
        "int32": _number_kind(32, is_signed=True),
        "int64": _number_kind(64, is_signed=True),
        "string": JsonKind(_write_text, _read_text, lambda value: type(value) is str and not value),
        "uint32": _number_kind(32, is_signed=False),
        "uint64": _number_kind(64, is_signed=False),
    }
)


@cache
def enumeration_kind(enumeration: type[Enum]) -> JsonKind:
    """An enumeration's names: an IntEnum's members by their own numbers, a StrEnum's values numbered from 0 in order."""
    is_numbered = issubclass(enumeration, IntEnum)
    names = {member: member.name if is_numbered else str(member) for member in enumeration}
    by_name = {name: member for member, name in names.items()}
    by_number = {member.value if is_numbered else place: member for place, member in enumerate(enumeration)}

    def write(value: Any) -> str:
        require_type(enumeration, value)
        return f'"{names[value]}"'

    def read(value: Any) -> Enum:
        found = by_name.get(value) if isinstance(value, str) else by_number.get(value) if type(value) is int else None
        if found is None:
            raise MisfitError(f"a name or number of {enumeration.__name__} is needed")
        return found

    zero = by_number[0]
    return JsonKind(write, read, lambda value: value is zero)
