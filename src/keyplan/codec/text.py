"""Names in text keys: plain, where the separator cannot occur, or percent-escaped, where it is spelled around."""

import re
from dataclasses import dataclass, field
from typing import Final

from keyplan.codec.element import Element, FastText, Parameter, register_element
from keyplan.codec.language import Bytes, Choice, Language, Limited, Repeat, Series, byte_class, literal
from keyplan.codec.limited import utf8_bytes, utf8_text, within_limit
from keyplan.codec.parameters import ascii_parameter, flag_parameter, whole_parameter
from keyplan.codec.ranges import one_of
from keyplan.codec.utf8 import MULTIBYTE, PRINTABLE, character
from keyplan.errors import TemplateError
from keyplan.limits import TEXT_ELEMENT_BYTES_MAX

__all__ = ["Percent", "Text"]

_EMPTY: Final[Language] = Series(())
_HYPHEN: Final = ord("-")

RESERVED_NAME_BYTES_MAX: Final = 64
"""Why: the language of all names but these nests as deep as the longest of them, and the pattern compiler recurses."""


@register_element
class Text(Element[str]):
    """A name in UTF-8, without control characters (U+0000..U+001F, U+007F) and without the separator.

    `exclude` lists the ASCII characters that may not occur; `allow`, when given, the only ones that may, with ranges
    ("a-z0-9_."; a hyphen stands first or last), and then no other characters. `bytes_max` bounds the length. With
    `dots=False` the names "." and ".." are refused, and `reserved` lists, separated by spaces, further refused names (ASCII).
    `empty=True` allows the empty name.
    """

    code = "text"

    def __init__(
        self,
        *,
        exclude: str = "/",
        bytes_max: int = TEXT_ELEMENT_BYTES_MAX,
        dots: bool = True,
        reserved: str = "",
        empty: bool = False,
        allow: str = "",
    ) -> None:
        self._exclude = "".join(sorted(set(ascii_parameter(self.code, "exclude", exclude))))
        self._limit = whole_parameter(self.code, "bytes_max", bytes_max, least=1)
        self._has_dots = flag_parameter(self.code, "dots", dots)
        self._reserved = tuple(sorted(set(ascii_parameter(self.code, "reserved", reserved).split())))
        self._is_empty_allowed = flag_parameter(self.code, "empty", empty)
        self._allow = _class_of_ranges(ascii_parameter(self.code, "allow", allow))
        self._ascii = (self._allow or PRINTABLE) & ~byte_class(self._exclude.encode())
        if not self._ascii:
            raise TemplateError(template=self.code, problem="no character is both allowed and not excluded")
        if any(len(word) > RESERVED_NAME_BYTES_MAX for word in self._reserved):
            raise TemplateError(
                template=self.code, problem="a reserved name is too long", bytes_max=RESERVED_NAME_BYTES_MAX
            )
        self._refused = frozenset(self._reserved) | (frozenset() if dots else {".", ".."})
        self.is_ascii_only = bool(self._allow)
        # Why: characters above ASCII stand in the class as they are; only lone surrogates are not UTF-8.
        more = "" if self.is_ascii_only else "\u0080-\ud7ff\ue000-\U0010ffff"
        self.ascii_characters = "".join(chr(byte) for byte in range(0x80) if self._ascii >> byte & 1)
        self._characters = re.compile(f"[{re.escape(self.ascii_characters)}{more}]{'*' if empty else '+'}")

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        unit = Bytes(self._ascii) if self._allow else character(self._ascii)
        least = 0 if self._is_empty_allowed else 1
        words = [word.encode() for word in self._refused if self._fits(word)]
        if not words:
            return Limited(Repeat(unit, least), self._limit)
        return Limited(_all_but(words, self._ascii, unit, is_empty_allowed=self._is_empty_allowed), self._limit)

    def encode(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        self._check(value, raw)
        return raw

    def decode(self, raw: bytes) -> str:
        value = utf8_text(self, raw)
        self._check(value, raw)
        return value

    def encode_start(self, value: str) -> bytes:
        raw = utf8_bytes(self, value)
        if value:
            self._check_characters(value)
        return within_limit(self, value, raw, self._limit)

    def parameters(self) -> dict[str, Parameter]:
        declared: dict[str, Parameter] = {}
        if self._exclude != "/":
            declared["exclude"] = self._exclude
        if self._limit != TEXT_ELEMENT_BYTES_MAX:
            declared["bytes_max"] = self._limit
        if not self._has_dots:
            declared["dots"] = False
        if self._reserved:
            declared["reserved"] = " ".join(self._reserved)
        if self._is_empty_allowed:
            declared["empty"] = True
        if self._allow:
            declared["allow"] = _ranges_of_class(self._allow)
        return declared

    def fast_text(self) -> FastText | None:
        tests = ["{v}.__class__ is str"]
        names: dict[str, object] = {}
        if self._allow or len(self._exclude) > 1:
            # Why: names must be unique to their object, since a key's expressions share one set of globals.
            matches = f"matches_{id(self._characters):x}"
            names[matches] = self._characters.fullmatch
            tests += [f"{matches}({{v}})", "{v}.isascii()"]
        else:
            # Why: methods written in C take two thirds of a pattern's time; ASCII that prints is all but control characters.
            tests += [
                "{v}.isascii()",
                "{v}.isprintable()",
                *(f"{_in_expression(c)} not in {{v}}" for c in self._exclude),
            ]
        tests.append(f"{0 if self._is_empty_allowed else 1} <= len({{v}}) <= {self._limit}")
        if self._refused:
            refused = f"refused_{id(self._refused):x}"
            names[refused] = self._refused
            tests.append(f"{{v}} not in {refused}")
        return FastText(check=" and ".join(tests), format="{v}", parse="{raw}.decode()", names=names)

    def _fits(self, word: str) -> bool:
        return self._characters.fullmatch(word) is not None and len(word) <= self._limit

    def _check(self, value: str, raw: bytes) -> None:
        self._check_characters(value)
        within_limit(self, value, raw, self._limit)
        if value in self._refused:
            self.refuse(value, "a reserved name", reserved=sorted(self._refused))

    def _check_characters(self, value: str) -> None:
        if self._characters.fullmatch(value) is not None:
            return
        if not value:
            self.refuse(value, "empty")
        position = next(i for i, one in enumerate(value) if self._characters.fullmatch(one) is None)
        self.refuse(value, "a character that may not occur", character=value[position], position=position)


_UNESCAPED: Final = PRINTABLE & ~byte_class(b"/%")
_TO_ESCAPE: Final = re.compile(rb"[\x00-\x1f\x7f/%]")
_ESCAPE: Final = re.compile(rb"%(..)", re.DOTALL)


@register_element
class Percent(Element[str]):
    """Any non-empty text in UTF-8, with exactly `/`, `%`, control characters and 7F escaped as % and two upper-case digits.

    Only this one spelling decodes: "%41" for "A", lower-case digits or a bare "%" do not. The encoding of a start is the
    start of the encoding. `bytes_max` bounds the encoded length.
    """

    code = "percent"
    is_ordered = False
    disorder = "the escaped characters (/, %, controls, 7F) sort where % does: 'a/' before 'a('"

    def __init__(self, *, bytes_max: int = TEXT_ELEMENT_BYTES_MAX) -> None:
        self._limit = whole_parameter(self.code, "bytes_max", bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        escape_low = Series((literal(b"%"), Bytes(byte_class(b"01")), Bytes(byte_class(b"0123456789ABCDEF"))))
        escapes = (escape_low, literal(b"%25"), literal(b"%2F"), literal(b"%7F"))
        return Limited(Repeat(Choice((Bytes(_UNESCAPED), MULTIBYTE, *escapes)), 1), self._limit)

    def encode(self, value: str) -> bytes:
        if not value:
            self.refuse(value, "empty")
        return within_limit(self, value, self.encode_start(value), self._limit)

    def decode(self, raw: bytes) -> str:
        # Why looked for first: most texts have nothing to escape, and lists decode many.
        has_escapes = _TO_ESCAPE.search(raw) is not None
        plain = _ESCAPE.sub(_unescape, raw) if has_escapes else raw
        if not plain or (has_escapes and _escaped(plain) != raw):
            self.refuse(raw, "not the one percent-escaped spelling of a text")
        within_limit(self, raw, raw, self._limit)
        return utf8_text(self, plain)

    def encode_start(self, value: str) -> bytes:
        return _escaped(utf8_bytes(self, value))

    def parameters(self) -> dict[str, Parameter]:
        return {} if self._limit == TEXT_ELEMENT_BYTES_MAX else {"bytes_max": self._limit}

    def fast_text(self) -> FastText | None:
        plain = "{v}.isascii() and {v}.isprintable() and '/' not in {v} and '%' not in {v}"
        decode = f"decode_percent_{self._limit}"
        return FastText(
            check=f"{{v}}.__class__ is str and {plain} and 1 <= len({{v}}) <= {self._limit}",
            format="{v}",
            parse=f"{decode}({{raw}})",
            names={decode: self.decode},
        )


def _escaped(plain: bytes) -> bytes:
    return _TO_ESCAPE.sub(lambda match: b"%%%02X" % match[0][0], plain)


def _unescape(match: re.Match[bytes]) -> bytes:
    try:
        return bytes([int(match[1], 16)])
    except ValueError:
        return match[0]


def _all_but(words: list[bytes], ascii_allowed: int, unit: Language, *, is_empty_allowed: bool) -> Language:
    """The sequences of `unit` (characters; ASCII ones are of `ascii_allowed`) that are none of `words`.

    Such a string either leaves the tree of the words somewhere, after which all is allowed, or ends inside it at a place where
    no word ends. Each string has one way of being built, so that readings of a key can be counted.
    """
    root = _WordNode()
    for word in words:
        node = root
        for byte in word:
            node = node.children.setdefault(byte, _WordNode())
        node.is_word = True
    root.is_word = not is_empty_allowed
    leaving = _leaving(root, ascii_allowed)
    if unit != Bytes(ascii_allowed):
        leaving = Choice((leaving, Series((_walked(root), MULTIBYTE))))
    left = Series((leaving, Repeat(unit)))
    ending = _ending(root)
    return left if ending is None else Choice((left, ending))


def _in_expression(one: str) -> str:
    """A character as a string literal, braces doubled, since `{v}` in the expression is a placeholder."""
    return repr(one).replace("{", "{{").replace("}", "}}")


@dataclass(slots=True)
class _WordNode:
    """A place in the tree of refused words; `is_word` when a string may not end here."""

    is_word: bool = False
    children: dict[int, "_WordNode"] = field(default_factory=dict)


def _leaving(node: _WordNode, ascii_allowed: int) -> Language:
    """From `node`, down the tree and then one ASCII character off it."""
    away = ascii_allowed & ~byte_class(bytes(node.children))
    options = [literal(bytes([byte])) + _leaving(child, ascii_allowed) for byte, child in node.children.items()]
    return one_of([Bytes(away), *options] if away else options)


def _walked(node: _WordNode) -> Language:
    """From `node`, any way down the tree, or none."""
    return Choice((_EMPTY, *(literal(bytes([byte])) + _walked(child) for byte, child in node.children.items())))


def _ending(node: _WordNode) -> Language | None:
    """From `node`, down the tree to a place where no word ends; None when there is none."""
    options: list[Language] = [] if node.is_word else [_EMPTY]
    for byte, child in node.children.items():
        ending = _ending(child)
        if ending is not None:
            options.append(literal(bytes([byte])) + ending)
    return one_of(options) if options else None


def _class_of_ranges(text: str) -> int:
    """The byte class that "a-z0-9_" writes; a hyphen that stands first or last is itself."""
    allowed, position = 0, 0
    while position < len(text):
        is_range = text[position + 1 : position + 2] == "-" and position + 2 < len(text)
        last = text[position + 2] if is_range else text[position]
        allowed |= byte_class(range(ord(text[position]), ord(last) + 1))
        position += 3 if is_range else 1
    return allowed


def _ranges_of_class(allowed: int) -> str:
    """The shortest text that `_class_of_ranges` reads as this class, runs first and the hyphen last."""
    listed = "".join(chr(byte) for byte in range(0x80) if allowed >> byte & 1 and byte != _HYPHEN)
    runs: list[str] = []
    for character_allowed in listed:
        if runs and ord(runs[-1][-1]) + 1 == ord(character_allowed):
            runs[-1] += character_allowed
        else:
            runs.append(character_allowed)
    return "".join(run if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs) + (
        "-" if allowed >> _HYPHEN & 1 else ""
    )
