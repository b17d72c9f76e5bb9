"""Key templates compiled to Python functions: encode, decode and list ranges, made once for each template.

Why generated: an interpreter over field objects encodes 1.3 million 40-byte keys a second, a function written for the template
10 million. Generated code handles the usual values with the codecs' fast hooks; anything else falls back to the codecs one by
one, which encode it or name the mistake.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NoReturn

from keyplan.codec import ANY_BYTE, Bytes, Choice, Element, Language, Limited, Repeat, Series, byte_class
from keyplan.errors import InvalidKeyError
from keyplan.layout.exact import exact_decoder
from keyplan.layout.generated import REFUSALS, generated_function, is_struct, key_expression
from keyplan.layout.listed import LastField, ListedKeys, exact_places, reader_of
from keyplan.layout.prefixes import KeyPrefix, element_named, encoded_field
from keyplan.layout.spec import KeyShape, fields_as_they_are
from keyplan.layout.template import Field, Literal, Template, encoded_part

__all__ = ["CompiledKeys", "compile_keys"]

_ASCII: Final = byte_class(range(128))


@dataclass(frozen=True, eq=False)
class CompiledKeys:
    """The functions of one template. `decode` gives None for bytes that the template cannot produce, and never raises."""

    template: Template
    shape: KeyShape
    encode: Callable[[object], bytes]
    decode: Callable[[bytes], object | None]

    def values(self, raw_key: bytes) -> dict[str, object] | None:
        """The fields by name of a key that `decode` accepts, else None."""
        key = self.decode(raw_key)
        return None if key is None else dict(zip(self.template.field_names, self.shape.split(key), strict=True))

    def prefix(self, values: tuple[object, ...]) -> bytes:
        """The bytes that every key begins with whose first fields have these values, up to the next field.

        With a value for every field this is the whole key. Raises InvalidKeyError.
        """
        known = self._prefixes[len(values)] if len(values) < len(self._prefixes) else self._refuse_more(values)
        return known.encode(values)

    def listed(
        self, prefix: tuple[object, ...], *, starts_with: object = None, at_least: object = None, below: object = None
    ) -> ListedKeys:
        """Return the keys whose first fields equal `prefix`, the next field within the bounds.

        Raises InvalidKeyError, also for a bound on a field whose codec cannot be bounded.
        """
        start, end = self.range(prefix, starts_with=starts_with, at_least=at_least, below=below)
        count = len(prefix)
        # Why one more: what a field starts with is in the range of another value's when that ends before it.
        if self._exact_places[count if starts_with is None else count + 1]:
            last = None
            if self._last is not None and count + 1 == len(self.template.fields) and starts_with is None:
                last = self._last.reader(len(start) - (0 if at_least is None else self._last.width))
            return ListedKeys(start, end, self.decode, is_exact=True, last=last)
        fields = self.template.fields
        started = b"" if starts_with is None else fields[count].element.encode_start(starts_with)
        spelled = tuple(field.element.encode(value) for field, value in zip(fields, prefix, strict=False))
        read = reader_of(self.template, self.shape, self.decode, spelled, started)
        return ListedKeys(start, end, read, is_exact=False, compared=(*spelled, started))

    def range(
        self, prefix: tuple[object, ...], *, starts_with: object = None, at_least: object = None, below: object = None
    ) -> tuple[bytes, bytes | None]:
        """Return start and end of the raw keys whose first fields equal `prefix`, the next field within the bounds.

        The end is exclusive; None: to the end of all keys.

        The range may hold keys of other templates, and keys of this one that only begin alike: who reads it to list keys takes
        `listed`. Raises InvalidKeyError, also for a bound on a field whose codec cannot be bounded.
        """
        known = self._prefixes[len(prefix)] if len(prefix) < len(self._prefixes) else self._refuse_more(prefix)
        start, next_field = known.encode(prefix), known.next_field
        if starts_with is None and at_least is None and below is None:
            return start, start + b"\x00" if known.is_whole else _successor(start)
        if next_field is None:
            problem = "something derived from the next field stands before it, so that no range narrows it"
            is_complete = len(prefix) == len(self.template.fields)
            self._refuse("there is no field after the prefix to narrow" if is_complete else problem)
        if starts_with is not None:
            if not (at_least is None and below is None):
                self._refuse("starts_with does not go with at_least or below")
            start += self._named(next_field, lambda element: element.encode_start(starts_with))
            return start, _successor(start)
        self._require_bounds(next_field)
        end = _successor(start) if below is None else start + self._named(next_field, lambda e: e.encode(below))
        return (start if at_least is None else start + self._named(next_field, lambda e: e.encode(at_least))), end

    @cached_property
    def _exact_places(self) -> tuple[bool, ...]:
        return exact_places(self.template)

    @cached_property
    def _last(self) -> LastField | None:
        return LastField.of(self.template)

    @cached_property
    def _prefixes(self) -> tuple[KeyPrefix, ...]:
        """By the number of fields that are given."""
        return tuple(KeyPrefix(self.template, count) for count in range(len(self.template.fields) + 1))

    def _refuse_more(self, values: tuple[object, ...]) -> NoReturn:
        names = list(self.template.field_names)
        self._refuse(f"the key has {len(names)} fields, not {len(values)}", fields=names)

    def _require_bounds(self, field: Field) -> None:
        # Why: behind a field of varying width comes a literal, and "b" + "/" sorts after "b!" + "/": bounds would lose keys.
        is_last = field is self.template.parts[-1]
        if not field.element.is_ordered or not (is_last or field.element.width is not None):
            self._refuse("the field's codec does not keep order here; only starts_with can narrow it", field=field.name)

    def _named(self, field: Field, encode: Callable[[Element[Any]], bytes]) -> bytes:
        try:
            return encode(field.element)
        except InvalidKeyError as error:
            raise InvalidKeyError(template=self.template.source, field=field.name, **error.facts) from error

    def _refuse(self, problem: str, **facts: object) -> NoReturn:
        raise InvalidKeyError(template=self.template.source, problem=problem, **facts)


def compile_keys(template: Template, shape: KeyShape) -> CompiledKeys:
    """Compile a template whose keys have the given shape."""
    decoder = _struct_decoder if is_struct(template) else _pattern_decoder
    return CompiledKeys(template, shape, _encoder(template, shape), decoder(template, shape))


def _encoder(template: Template, shape: KeyShape) -> Callable[[object], bytes]:
    slow = _slow_encoder(template, shape)
    expression = key_expression(template)
    if expression is None:
        return slow
    source = f"""
def encode(key):
    try:
{_unpacked_key(template, shape)}
        if {expression.check}:
            return {expression.raw}
    except refusals:
        pass
    return slow(key)
"""
    return generated_function("encode", source, {**expression.names, "slow": slow, "refusals": REFUSALS})


# ---- the slow path: any template, and the error that names the mistake ---------------------------------------------------


def _slow_encoder(template: Template, shape: KeyShape) -> Callable[[object], bytes]:
    names = template.field_names

    def encode_slowly(key: object) -> bytes:
        if not shape.is_scalar and not isinstance(key, tuple):
            raise InvalidKeyError(
                template=template.source, problem=f"the key is a {type(key).__name__}, not a {shape.type_name}"
            )
        values = shape.split(key)
        if len(values) != len(names):
            raise InvalidKeyError(
                template=template.source,
                problem=f"the key has {len(values)} fields, not {len(names)}",
                fields=list(names),
            )
        given = dict(zip(names, values, strict=True))
        return b"".join(
            part.raw if isinstance(part, Literal) else encoded_field(template, part, given) for part in template.parts
        )

    return encode_slowly


# ---- fixed-width items: one struct ---------------------------------------------------------------------------------------


def _struct_decoder(template: Template, shape: KeyShape) -> Callable[[bytes], object | None]:
    code, unpacked, checks, parsed = ">", [], [], []
    scope: dict[str, object] = {}
    for number, part in enumerate(template.parts):
        if isinstance(part, Literal):
            code += f"{len(part.raw)}s"
            scope[f"literal{number}"] = part.raw
            unpacked.append(f"l{number}")
            checks.append(f"l{number} != literal{number}")
            continue
        fast = part.element.fast_struct()
        assert fast is not None
        code += fast.code
        scope.update(fast.names)
        unpacked.append(f"r_{part.name}")
        parsed.append(fast.parse.format(raw=f"r_{part.name}"))
        if fast.member:
            checks.append(f"not {fast.member.format(raw=f'r_{part.name}')}")
    packer = struct.Struct(code)
    scope["unpack"] = packer.unpack
    source = f"""
def decode(raw):
    if len(raw) != {packer.size}:
        return None
    {", ".join(unpacked)}, = unpack(raw)
    {f"if {' or '.join(checks)}: return None" if checks else "pass"}
    return {_made_key(shape, parsed, scope)}
"""
    return generated_function("decode", source, scope)


# ---- everything else: a pattern to decode, and text in one piece where that is enough ------------------------------------


def _pattern_decoder(template: Template, shape: KeyShape) -> Callable[[bytes], object | None]:
    fields = [part for part in template.parts if isinstance(part, Field)]
    full = _pattern(template, ascii_only=False)
    scope: dict[str, object] = {
        "full": full,
        "narrow": (_pattern(template, ascii_only=True) if template.is_text else None) or full,
        "refused": InvalidKeyError,
        "exact": exact_decoder(template, shape, _slow_encoder(template, shape)),
    }
    # Why: where a codec has rules beside its pattern, or a field is derived from another one, the pattern may have split a good
    # key in a wrong way.
    otherwise = "return exact(raw)"
    body = ["match = narrow(raw) or full(raw)", "if match is None: return None"]
    if fields:
        body.append("".join(f"g{number}, " for number in range(len(fields))) + "= match.groups()")
    body += [
        f"if len(g{number}) > {part.element.bytes_max}: {otherwise}"
        for number, part in enumerate(fields)
        if part.element.width is None and part.element.bytes_max is not None
    ]
    body += [
        f"f_{part.name} = {_parsed(part, number, template, scope)}"
        for number, part in enumerate(fields)
        if not part.is_derived
    ]
    for number, part in enumerate(fields):
        if part.is_derived:
            scope[f"derived{number}"] = partial(encoded_part, part, element_named(template, part.name))
            body.append(f"if derived{number}(f_{part.name}) != g{number}: {otherwise}")
    made = _made_key(shape, [f"f_{name}" for name in template.field_names], scope)
    lines = "\n        ".join([*body, f"return {made}"])
    longest = template.language.bytes_max
    source = f"""
def decode(raw):
    {"pass" if longest is None else f"if len(raw) > {longest}: return None"}
{_read_in_one_piece(template, made, scope)}
    try:
        {lines}
    except refused:
        {otherwise}
"""
    return generated_function("decode", source, scope)


def _read_in_one_piece(template: Template, made: str, scope: dict[str, object]) -> str:
    """Statements that read the usual text key without a pattern, and leave every other one to what follows.

    A key is split where its literals stand, if they can stand nowhere else in it. A name whose `check` holds is encoded as it
    stands; so the key is the encoding of these names, and there is only one way to split it.
    """
    names, literals = _names_and_literals(template)
    if not names or len(literals) != len(names) + 1:
        return "    pass"
    checks = []
    for field in template.fields:
        fast = field.element.fast_text()
        if fast is None or fast.format != "{v}" or field.element.value_type is not str:
            return "    pass"
        scope.update(fast.names)
        checks.append(fast.check.format(v=f"f_{field.name}"))
    first, *between, last = literals
    scope.update(first=first, last=last)
    lines = ["if not raw.startswith(first): return None"] if first else []
    body = f"raw[{len(first)}:{-len(last) or ''}].decode()"
    ends = [f"raw.endswith(last) and len(raw) >= {len(first) + len(last)}"] if last else []
    indent = ""
    lines.append("try:")
    if ends:
        lines.append(f"    if {ends[0]}:")
        indent = "    "
    if not between:
        lines.append(f"{indent}    {names[0]} = {body}")
    elif len(set(between)) == 1 and len(between[0]) == 1:
        lines.append(f"{indent}    parts = {body}.split({between[0].decode()!r})")
        lines.append(f"{indent}    if len(parts) == {len(names)}:")
        indent += "    "
        lines.append(f"{indent}    {', '.join(names)} = parts")
    else:
        lines.append(f"{indent}    rest = {body}")
        for name, separator in zip(names, between, strict=False):
            shown = separator.decode()
            lines.append(f"{indent}    at = rest.find({shown!r})")
            lines.append(f"{indent}    if at >= 0 and at == rest.rfind({shown!r}):")
            indent += "    "
            lines.append(f"{indent}    {name} = rest[:at]")
            lines.append(f"{indent}    rest = rest[at + {len(shown)}:]")
        lines.append(f"{indent}    {names[-1]} = rest")
    lines += [f"{indent}    if {' and '.join(checks)}:", f"{indent}        return {made}", "except refused_text: pass"]
    scope["refused_text"] = UnicodeDecodeError
    return "\n".join("    " + line for line in lines)


def _names_and_literals(template: Template) -> tuple[list[str], list[bytes]]:
    """The variables of the fields, and the literals before, between and after them; none where fields touch."""
    names, literals = [], [b""]
    was_field = False
    for part in template.parts if template.is_text else ():
        if isinstance(part, Literal):
            literals[-1] = part.raw
        elif was_field or part.is_derived:
            return [], []
        else:
            names.append(f"f_{part.name}")
            literals.append(b"")
        was_field = isinstance(part, Field)
    return names, literals


def _parsed(part: Field, number: int, template: Template, scope: dict[str, object]) -> str:
    """An expression for the value of a field whose bytes are g{number}; it refuses what is no member."""
    language = part.language
    is_plain = language.is_plain or (isinstance(language, Limited) and language.item.is_plain)
    fast = part.element.fast_text() if template.is_text and is_plain else None
    if fast is not None:
        scope.update(fast.names)
        return fast.parse.format(raw=f"g{number}")
    scope[f"decode{number}"] = part.element.decode
    return f"decode{number}(g{number})"


def _pattern(template: Template, *, ascii_only: bool) -> Callable[[bytes], re.Match[bytes] | None] | None:
    """The whole template as a pattern with a group for each field; None when no key is all ASCII."""
    pattern = b""
    for part in template.parts:
        if isinstance(part, Literal):
            pattern += re.escape(part.raw)
            continue
        language = _narrowed(part.language, _ASCII) if ascii_only else part.language
        if language is None:
            return None
        pattern += b"(" + language.pattern + b")"
    return re.compile(pattern).fullmatch


def _narrowed(language: Language, allowed: int) -> Language | None:
    """The members of `language` that use only bytes in `allowed`; None when there are none.

    Why: the pattern of UTF-8 names is several times slower than its ASCII part, and nearly all names are ASCII.
    """
    match language:
        case Bytes(mask):
            return Bytes(mask & allowed) if mask & allowed else None
        case Series(parts):
            narrowed = [_narrowed(part, allowed) for part in parts]
            return None if None in narrowed else Series(tuple(part for part in narrowed if part is not None))
        case Choice(options):
            kept = [option for option in (_narrowed(option, allowed) for option in options) if option is not None]
            return kept[0] if len(kept) == 1 else Choice(tuple(kept)) if kept else None
        case Repeat(item, least, most):
            inner = _narrowed(item, allowed)
            if inner is None:
                return Series(()) if least == 0 else None
            return Repeat(inner, least, most)
        case Limited(item, limit):
            inner = _narrowed(item, allowed)
            return None if inner is None else Limited(inner, limit)
        case _:
            return language if allowed == ANY_BYTE else None


# ---- pieces of source ----------------------------------------------------------------------------------------------------


def _unpacked_key(template: Template, shape: KeyShape) -> str:
    """Statements that bind f_NAME for every field of `key`, or fall through to the slow path."""
    names = [f"f_{name}" for name in template.field_names]
    if shape.is_scalar:
        return f"        {names[0]} = key"
    if not names:
        return "        if key != (): return slow(key)"
    return f"        if not isinstance(key, tuple): return slow(key)\n        {', '.join(names)}, = key"


def _made_key(shape: KeyShape, values: list[str], scope: dict[str, object]) -> str:
    """An expression for the Python key of these field values."""
    if shape.is_scalar:
        return values[0]
    inside = f"({', '.join(values)},)" if values else "()"
    if shape.make is fields_as_they_are:
        return inside
    scope["make"] = shape.make
    if isinstance(shape.make, type) and issubclass(shape.make, tuple):
        scope["new"] = tuple.__new__
        return f"new(make, {inside})"
    return f"make(*{inside})"


def _successor(prefix: bytes) -> bytes | None:
    """The smallest key greater than every key that begins with `prefix`; None when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
