"""Key templates: `rack/{rack}/blades/{blade}` read into literals and fields.

A str template describes text keys, a bytes template binary ones. In braces stands a field's name, perhaps an attribute that
is derived from it, perhaps its codec: `{rack}`, `{path.level:u8}`, `{blade:decimal(width=4)}`. Doubled braces are literal.
Which codec a field without one gets is decided in `fields.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NoReturn

from keyplan.codec import Automaton, Element, Language, Series, element_of_spec, literal
from keyplan.errors import TemplateError

__all__ = ["Field", "Literal", "Part", "Placeholder", "Template", "encoded_part", "read_template", "template_of_source"]

_PLACEHOLDER: Final = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\.(?P<attribute>[a-z_]+))?(?::(?P<spec>.+))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that every key of the template has at this place."""

    raw: bytes

    @property
    def language(self) -> Language:
        return literal(self.raw)


@dataclass(frozen=True, slots=True)
class Field:
    """One element of a key: the value of key field `name`, or of an attribute derived from it."""

    name: str
    attribute: str | None
    element: Element[Any]

    @property
    def is_derived(self) -> bool:
        """A derived field adds no information to the key: it is computed on encoding and checked on decoding."""
        return self.attribute is not None

    @property
    def language(self) -> Language:
        return self.element.language

    @property
    def source(self) -> str:
        """The field as a template writes it, codec included."""
        return f"{self.reference[:-1]}:{self.element.spec}}}"

    @property
    def reference(self) -> str:
        """The field as a template writes it, without its codec."""
        return f"{{{self.name}.{self.attribute}}}" if self.attribute else f"{{{self.name}}}"


Part = Literal | Field


@dataclass(frozen=True)
class Template:
    """A key template with a codec for every field. Two templates are equal when their parts are."""

    parts: tuple[Part, ...]
    is_text: bool

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields that carry information, in key order; derived ones are left out."""
        return tuple(part for part in self.parts if isinstance(part, Field) and not part.is_derived)

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def width_of_fields(self) -> tuple[int | None, ...]:
        """The width of each field, None where it varies."""
        return tuple(field.element.width for field in self.fields)

    @property
    def literal_bytes(self) -> bytes:
        """The literals, one after the other: the whole key of a template without fields."""
        return b"".join(part.raw for part in self.parts if isinstance(part, Literal))

    @cached_property
    def source(self) -> str:
        r"""The template as text, codecs written out; `template_of_source` reads it back.

        In a binary template a backslash is doubled and bytes that do not print are `\xNN`.
        """
        return self._spelled(lambda field: field.source)

    @property
    def plain(self) -> str:
        """The template as text for people: fields with their names alone."""
        return self._spelled(lambda field: field.reference)

    @cached_property
    def language(self) -> Language:
        """Every key that the template can produce. A derived field counts with all its codec's values."""
        return Series(tuple(part.language for part in self.parts))

    @cached_property
    def automaton(self) -> Automaton:
        """The automaton of the keys, made once: that of long names takes longer than a page of keys to read.

        It drops long bounds on lengths; `language` is exact.
        """
        return Automaton.of([part.language for part in self.parts])

    def _spelled(self, spell: Callable[[Field], str]) -> str:
        encoding = "utf-8" if self.is_text else "latin-1"
        source = "".join(
            part.raw.decode(encoding).replace("{", "{{").replace("}", "}}")
            if isinstance(part, Literal)
            else spell(part)
            for part in self.parts
        )
        return source if self.is_text else _escaped(source)

    def prefixed(self, prefix: "Template") -> "Template":
        """The template with `prefix` (a layout's root) before it; neighbouring literals are joined."""
        return Template(_joined((*prefix.parts, *self.parts)), self.is_text)

    def bound(self, values: Mapping[str, object]) -> "Template":
        """The template with the named fields replaced by the literal bytes of their values (a root's parameters).

        Raises InvalidKeyError when a value does not fit its codec.
        """
        elements = {field.name: field.element for field in self.fields}
        parts = tuple(
            Literal(encoded_part(part, elements[part.name], values[part.name]))
            if isinstance(part, Field) and part.name in values
            else part
            for part in self.parts
        )
        return Template(_joined(parts), self.is_text)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A field as it stands in a template that was not given its codecs yet. `spec` is empty when none was written."""

    name: str
    attribute: str | None
    spec: str
    position: int


def read_template(source: str | bytes) -> list[Literal | Placeholder]:
    """Split a template into literals and placeholders.

    Raises TemplateError with the position of a brace that does not match, an empty or odd field name, or two fields of one
    name. A `bytes` source is read as Latin-1, so that its literals are the bytes they were.
    """
    is_text = isinstance(source, str)
    text = source if isinstance(source, str) else source.decode("latin-1")
    if not text.isascii():
        _refuse_unspellable(source, text, "utf-8")
    parts: list[Literal | Placeholder] = []
    plain = ""
    position = 0
    while position < len(text):
        character = text[position]
        if text[position : position + 2] in ("{{", "}}"):
            plain, position = plain + character, position + 2
        elif character == "{":
            end = _closing_brace(source, text, position)
            if plain:
                parts.append(Literal(plain.encode("utf-8" if is_text else "latin-1")))
            parts.append(_placeholder(source, text[position + 1 : end], position))
            plain, position = "", end + 1
        elif character == "}":
            _refuse(source, position, "a closing brace without an opening one; a literal brace is doubled")
        else:
            plain, position = plain + character, position + 1
    if plain:
        parts.append(Literal(plain.encode("utf-8" if is_text else "latin-1")))
    _refuse_repeated_names(source, parts)
    return parts


def template_of_source(source: str, *, is_text: bool) -> Template:
    """Read back what `Template.source` wrote: every field has its codec. Raises TemplateError or UnknownNameError."""
    parts: list[Part] = []
    if not is_text:
        _refuse_unspellable(source, source, "latin-1")
    for part in read_template(source if is_text else _unescaped(source).encode("latin-1")):
        if isinstance(part, Literal):
            parts.append(part)
        elif not part.spec:
            _refuse(source, part.position, f"field {part.name!r} has no codec")
        else:
            parts.append(Field(part.name, part.attribute, element_of_spec(part.spec)))
    return Template(_joined(parts), is_text)


def encoded_part(field: Field, element: Element[Any], value: object) -> bytes:
    """The bytes of `field` in the key of a record whose key field of that name, of codec `element`, holds `value`."""
    if field.attribute is None:
        return field.element.encode(value)
    return field.element.encode(element.attributes[field.attribute](value))


def _refuse_unspellable(source: str | bytes, text: str, encoding: str) -> None:
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        _refuse(source, error.start, f"{text[error.start]!a} is no character of such a template")


def _closing_brace(source: str | bytes, text: str, opening: int) -> int:
    # Why: a codec's text parameter may hold braces: '{' inside quotes does not count.
    position, is_quoted = opening + 1, False
    while position < len(text):
        if text[position] == "\\" and is_quoted:
            position += 1
        elif text[position] == "'":
            is_quoted = not is_quoted
        elif text[position] == "}" and not is_quoted:
            return position
        position += 1
    return _refuse(source, opening, "an opening brace without a closing one; a literal brace is doubled")


def _placeholder(source: str | bytes, inside: str, position: int) -> Placeholder:
    match = _PLACEHOLDER.fullmatch(inside)
    if match is None:
        _refuse(source, position, f"{{{inside}}} is not {{name}}, {{name.attribute}} or {{name:codec}}")
    return Placeholder(match["name"], match["attribute"], match["spec"] or "", position)


def _refuse_repeated_names(source: str | bytes, parts: Sequence[Literal | Placeholder]) -> None:
    seen: set[str] = set()
    for part in parts:
        if isinstance(part, Placeholder) and part.attribute is None:
            if part.name in seen:
                _refuse(source, part.position, f"field {part.name!r} stands twice")
            seen.add(part.name)


def _refuse(source: str | bytes, position: int, problem: str) -> NoReturn:
    raise TemplateError(template=source, position=position, problem=problem)


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Literal) and isinstance(last, Literal):
            joined[-1] = Literal(last.raw + part.raw)
        elif not (isinstance(part, Literal) and not part.raw):
            joined.append(part)
    return tuple(joined)


def _escaped(source: str) -> str:
    return "".join(c if " " <= c <= "~" and c != "\\" else "\\\\" if c == "\\" else f"\\x{ord(c):02x}" for c in source)


def _unescaped(source: str) -> str:
    return re.sub(
        r"\\(x[0-9a-f]{2}|\\)", lambda match: "\\" if match[1] == "\\" else chr(int(match[1][1:], 16)), source
    )
