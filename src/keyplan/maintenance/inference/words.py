"""What stands at one place of many keys: the words seen there, summed up, and the codec that spells them all."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from keyplan.codec import (
    ANY_BYTE,
    Bytes,
    Choice,
    Decimal,
    Element,
    HexUuid,
    Language,
    Percent,
    Repeat,
    Series,
    Text,
    TextTail,
    TimestampText,
    byte_class,
    literal,
)
from keyplan.limits import TEXT_ELEMENT_BYTES_MAX
from keyplan.maintenance.inference.sample import Sample

__all__ = ["Division", "WordProfile", "is_identifier"]

WORDS_SAMPLED: Final = 64
"""Why: enough to estimate how many different words there are within an eighth, and to look some of them up."""

DIVIDERS: Final = ":|#@=,;+"
"""What may divide a word into fields, the most telling first. Not hyphens and dots: names are full of them."""

_DIVISION_DEPTH_MAX: Final = 2
_DIVIDED_WORDS_MIN: Final = 4
"""Why: a divider in fewer words may be part of a name, unless a number or an identifier stands beside it."""

_HEX: Final = Bytes(byte_class(b"0123456789abcdef"))
_DIGIT: Final = Bytes(byte_class(b"0123456789"))
_LONG_HEX: Final = Repeat(_HEX, 12)
"""Why twelve: no word of a language has so many letters from a to f."""

_HYPHENATED: Final = Series(
    (
        Repeat(_HEX, 8, 8),
        *(part for _ in range(3) for part in (literal(b"-"), Repeat(_HEX, 4, 4))),
        literal(b"-"),
        Repeat(_HEX, 12, 12),
    )
)
_ENDPOINT: Final = Series((Repeat(Bytes(ANY_BYTE), 1), literal(b":"), Repeat(_DIGIT, 1)))
"""Whatever it is before the colon, what is behind it is counted: an address with its port."""

HYPHENATED_BYTES: Final = 36

_Matcher = Callable[[bytes], object]


def _matcher(language: Language) -> _Matcher:
    return re.compile(language.pattern).fullmatch


_is_digits: Final = _matcher(Repeat(_DIGIT, 1))
_is_hex: Final = _matcher(Repeat(_HEX, 1))
_is_decimal: Final = _matcher(Decimal().language)
_is_percent: Final = _matcher(Percent().language)
_is_identifier: Final = _matcher(
    Choice((Repeat(_DIGIT, 1), _LONG_HEX, _HYPHENATED, TimestampText().language, _ENDPOINT))
)

_TESTS: Final[dict[str, _Matcher]] = {
    "hex_uuid": _matcher(HexUuid().language),
    "hyphenated": _matcher(_HYPHENATED),
    "timestamp": _matcher(TimestampText().language),
    "decimal": _is_decimal,
    "digits": _is_digits,
    "hex": _is_hex,
}
"""Languages that a place may keep to, the narrowest first. A place starts with all, and loses those that a word breaks."""


def is_identifier(word: bytes) -> bool:
    """Tell whether a word is of a kind that only programs make up: a number, a UUID, long hexadecimal, an instant."""
    return _is_identifier(word) is not None


@dataclass(slots=True)
class Division:
    """Words that a divider splits: `parts` into the same number of fields each, or `last` at its last place."""

    parts: "list[WordProfile] | None"
    last: "tuple[WordProfile, WordProfile]"


class WordProfile:
    """The words at one place. Memory is bounded: a sample, a set of characters, a few numbers."""

    __slots__ = (
        "_depth",
        "bytes_max",
        "bytes_min",
        "characters",
        "count",
        "divisions",
        "has_bare_percent",
        "has_escapes",
        "has_leading_zero",
        "kinds",
        "sample",
    )

    def __init__(self, depth: int = 0) -> None:
        self.count = 0
        self.sample: Sample[None] = Sample(WORDS_SAMPLED)
        self.characters: set[int] = set()
        self.bytes_min = 0
        self.bytes_max = 0
        self.has_leading_zero = False
        self.has_escapes = False
        self.has_bare_percent = False
        self.divisions: dict[str, Division] | None = None
        self.kinds = list(_TESTS)
        self._depth = depth

    # ---- taking words in -------------------------------------------------------------------------------------------------

    def add(self, word: bytes) -> None:
        """Take in one word."""
        self.bytes_min = len(word) if not self.count else min(self.bytes_min, len(word))
        self.bytes_max = max(self.bytes_max, len(word))
        self._divide(word)
        self.count += 1
        self.sample.add(word, None)
        self.characters.update(word)
        if self.kinds:
            self.kinds = [kind for kind in self.kinds if _TESTS[kind](word)]
        if word.startswith(b"0") and len(word) > 1:
            self.has_leading_zero = True
        if b"%" in word:
            if _is_percent(word) is None:
                self.has_bare_percent = True
            else:
                self.has_escapes = True

    def _divide(self, word: bytes) -> None:
        if self._depth >= _DIVISION_DEPTH_MAX:
            return
        if self.divisions is None:
            self.divisions = {} if self.count else self._first_divisions(word)
        for divider, division in list(self.divisions.items()):
            pieces = word.split(divider.encode())
            if len(pieces) == 1:
                del self.divisions[divider]
                continue
            if division.parts is not None and len(division.parts) == len(pieces):
                for part, piece in zip(division.parts, pieces, strict=True):
                    part.add(piece)
            else:
                division.parts = None
            head, _, tail = word.rpartition(divider.encode())
            division.last[0].add(head)
            division.last[1].add(tail)

    def _first_divisions(self, word: bytes) -> dict[str, Division]:
        found = {}
        for divider in DIVIDERS:
            number = word.count(divider.encode()) + 1
            if number > 1:
                inner = self._depth + 1
                parts = [WordProfile(inner) for _ in range(number)]
                found[divider] = Division(parts, (WordProfile(inner), WordProfile(inner)))
        return found

    def merge(self, other: "WordProfile") -> None:
        """Take in all words of another profile."""
        if not other.count:
            return
        if not self.count:
            self.bytes_min, self.divisions, self.kinds = other.bytes_min, other.divisions, list(other.kinds)
        else:
            self.bytes_min = min(self.bytes_min, other.bytes_min)
            self._merge_divisions(other.divisions or {})
            self.kinds = [kind for kind in self.kinds if kind in other.kinds]
        self.bytes_max = max(self.bytes_max, other.bytes_max)
        self.count += other.count
        self.sample.merge(other.sample)
        self.characters |= other.characters
        self.has_leading_zero |= other.has_leading_zero
        self.has_escapes |= other.has_escapes
        self.has_bare_percent |= other.has_bare_percent

    def _merge_divisions(self, others: dict[str, Division]) -> None:
        for divider, division in list((self.divisions or {}).items()):
            other = others.get(divider)
            if other is None:
                assert self.divisions is not None
                del self.divisions[divider]
                continue
            if division.parts is None or other.parts is None or len(division.parts) != len(other.parts):
                division.parts = None
            else:
                for mine, its in zip(division.parts, other.parts, strict=True):
                    mine.merge(its)
            division.last[0].merge(other.last[0])
            division.last[1].merge(other.last[1])

    # ---- what they are -----------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """The narrowest kind that all words are of; "name" when there is none."""
        for kind in self.kinds:
            if kind == "decimal" and self._is_padded:
                return "digits"
            if kind == "hex" and self.bytes_min < 12:
                continue
            return kind
        return "name"

    @property
    def distinct(self) -> int:
        """How many different words there were, or about."""
        return self.sample.distinct()

    @property
    def _is_padded(self) -> bool:
        return self.has_leading_zero and self.bytes_min == self.bytes_max

    def division(self) -> tuple[str, "list[WordProfile]"] | None:
        """The divider that splits all words into fields, and the fields; None when the words are whole."""
        if self.kind != "name":
            return None
        for divider in DIVIDERS:
            division = (self.divisions or {}).get(divider)
            if division is None:
                continue
            head, tail = division.last
            if division.parts is not None:
                has_identifier = any(part.kind != "name" for part in division.parts)
                if all(part.bytes_min for part in division.parts) and (
                    has_identifier or self.distinct >= _DIVIDED_WORDS_MIN
                ):
                    return divider, division.parts
            elif tail.kind in ("decimal", "hex_uuid") and head.bytes_min:
                return divider, [head, tail]
        return None

    def element(self, *, separators: str, reserved: Iterable[bytes] = ()) -> Element[Any]:
        """Return the narrowest codec that spells every word seen, and no separator.

        `reserved` are words that stand for something else at this place, as literals do.
        """
        match self.kind:
            case "hex_uuid":
                return HexUuid()
            case "timestamp":
                return TimestampText()
            case "decimal":
                return Decimal()
            case "digits" if self._is_padded:
                return Decimal(width=self.bytes_max)
            case "digits":
                return Text(allow="0-9", bytes_max=self._limit())
            case "hyphenated":
                return _without(reserved, allow="0-9a-f-", bytes_max=HYPHENATED_BYTES)
            case "hex":
                is_fixed = self.bytes_min == self.bytes_max
                return _without(reserved, allow="0-9a-f", bytes_max=self.bytes_max if is_fixed else self._limit())
            case _:
                return self._name_element(separators, reserved)

    def _name_element(self, separators: str, reserved: Iterable[bytes]) -> Element[Any]:
        if self.has_escapes and not self.has_bare_percent and not any(reserved) and "/" in separators:
            return Percent(bytes_max=self._limit())
        kept = "".join(one for one in separators if ord(one) not in self.characters)
        if not kept or ("/" in separators and "/" not in kept):
            return TextTail(empty=self.bytes_min == 0)
        return _without(reserved, exclude=kept, bytes_max=self._limit(), empty=self.bytes_min == 0)

    def _limit(self) -> int:
        """The usual bound of names, doubled until the longest word fits."""
        limit = TEXT_ELEMENT_BYTES_MAX
        while limit < self.bytes_max:
            limit = 2 * limit + 1
        return limit


def _without(reserved: Iterable[bytes], **parameters: Any) -> Text:
    """Text with these parameters that spells none of the words; those that it would not spell anyway are left out."""
    text = Text(**parameters)
    words = [word.decode() for word in reserved if word and text.language.accepts(word)]
    return Text(**parameters, reserved=" ".join(sorted(words))) if words else text
