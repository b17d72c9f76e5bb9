"""Instants in keys: readable, or as a count of nanoseconds. Both sort by time.

The value is an int, nanoseconds since 1970-01-01T00:00:00Z. Why not datetime: it holds microseconds, so that a foreign key
with nanoseconds would not survive being read and written; and two clocks' instants within one microsecond would be one key.
"""

import re
from datetime import date
from typing import Final

from keyplan.codec.element import Element, FastStruct, Parameter, register_element
from keyplan.codec.language import ANY_BYTE, Bytes, Choice, Language, Repeat, Series, byte_class, literal
from keyplan.codec.numbers import checked_integer
from keyplan.codec.parameters import flag_parameter
from keyplan.codec.ranges import strings_between

__all__ = ["TimestampNanos", "TimestampText"]

_SECOND: Final = 10**9
_DAY_SECONDS: Final = 86_400
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LEAST: Final = (date.min.toordinal() - _EPOCH_DAY) * _DAY_SECONDS * _SECOND
_MOST: Final = (date.max.toordinal() + 1 - _EPOCH_DAY) * _DAY_SECONDS * _SECOND - 1

_FORM: Final = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])\.([0-9]{9})Z"
)


@register_element
class TimestampText(Element[int]):
    """An instant as 30 characters of RFC 3339 in UTC, `2026-11-21T09:41:08.000000000Z`, from year 1 to year 9999.

    Leap seconds (":60") are refused, as POSIX time has none.
    """

    code = "timestamp"
    least: Final = _LEAST
    most: Final = _MOST

    @property
    def value_type(self) -> type:
        return int

    @property
    def language(self) -> Language:
        return Series((_days(), literal(b"T"), _clock(), literal(b"."), _digits(9), literal(b"Z")))

    def encode(self, value: int) -> bytes:
        seconds, nanos = divmod(checked_integer(self, value, least=self.least, most=self.most), _SECOND)
        days, second = divmod(seconds, _DAY_SECONDS)
        day = date.fromordinal(_EPOCH_DAY + days).isoformat()
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        return f"{day}T{clock}.{nanos:09d}Z".encode()

    def decode(self, raw: bytes) -> int:
        match = _FORM.fullmatch(raw)
        if match is None:
            self.refuse(raw, "not YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ")
        year, month, day, hour, minute, second, nanos = map(int, match.groups())
        try:
            days = date(year, month, day).toordinal() - _EPOCH_DAY
        except ValueError:
            self.refuse(raw, "no such day in the calendar")
        return ((days * 24 + hour) * 60 + minute) * 60 * _SECOND + second * _SECOND + nanos


@register_element
class TimestampNanos(Element[int]):
    """An instant as nanoseconds since 1970 in eight big-endian bytes: plain, up to the year 2554.

    With `signed=True` it is offset by 2^63 as `i64` is, from the year 1677 to 2262.
    """

    code = "timestamp_ns"

    def __init__(self, *, signed: bool = False) -> None:
        self._is_signed = flag_parameter(self.code, "signed", signed)
        self.least = -(2**63) if signed else 0
        self.most = self.least + 2**64 - 1

    @property
    def value_type(self) -> type:
        return int

    @property
    def language(self) -> Language:
        return Repeat(Bytes(ANY_BYTE), 8, 8)

    def encode(self, value: int) -> bytes:
        number = checked_integer(self, value, least=self.least, most=self.most)
        return (number - self.least).to_bytes(8, "big")

    def decode(self, raw: bytes) -> int:
        if len(raw) != 8:
            self.refuse(raw, "wrong number of bytes", bytes_expected=8, bytes_found=len(raw))
        return int.from_bytes(raw, "big") + self.least

    def parameters(self) -> dict[str, Parameter]:
        return {"signed": True} if self._is_signed else {}

    def fast_struct(self) -> FastStruct | None:
        plus, minus = (f" + {2**63}", f" - {2**63}") if self._is_signed else ("", "")
        return FastStruct(code="Q", check="{v}.__class__ is int", pack="{v}" + plus, parse="{raw}" + minus, names={})


def _digits(count: int) -> Language:
    return Repeat(Bytes(byte_class(b"0123456789")), count, count)


def _between(low: str, high: str) -> Language:
    return strings_between(low.encode(), high.encode(), first=0x30, last=0x39)


def _one_of_words(*words: str) -> Language:
    return Choice(tuple(literal(word.encode()) for word in words))


def _clock() -> Language:
    return Series((_between("00", "23"), literal(b":"), _between("00", "59"), literal(b":"), _between("00", "59")))


def _days() -> Language:
    """Every day from 0001-01-01 to 9999-12-31, leap days in leap years only."""
    ordinary = Choice(
        (
            Series((_one_of_words("01", "03", "05", "07", "08", "10", "12"), literal(b"-"), _between("01", "31"))),
            Series((_one_of_words("04", "06", "09", "11"), literal(b"-"), _between("01", "30"))),
            Series((literal(b"02-"), _between("01", "28"))),
        )
    )
    fours = [f"{number:02d}" for number in range(4, 100, 4)]
    leap_years = Choice((Series((_digits(2), _one_of_words(*fours))), Series((_one_of_words(*fours), literal(b"00")))))
    any_year = _between("0001", "9999")
    return Choice((Series((any_year, literal(b"-"), ordinary)), Series((leap_years, literal(b"-02-29")))))
