"""An item of a layout as the rules see it: its whole template, its lists' prefixes, and keys to show things with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from keyplan.codec import AutomatonTooLargeError, Element, Language
from keyplan.errors import InvalidKeyError
from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.reading import holds, readings, spelled
from keyplan.layout.rules.search import OwnWords, SearchTooLargeError, words
from keyplan.layout.spec import CounterSpec, ItemSpec, LayoutSpec, TableSpec
from keyplan.layout.template import Field, Literal, Part, Template

__all__ = [
    "Subject",
    "bound_root",
    "ends_in_literal",
    "key_with",
    "member_of_length",
    "members",
    "numbers",
    "prefix_of",
    "subjects_of",
]


@dataclass(frozen=True)
class Subject:
    """One table, index or counter; `name` says its layout as well when that is not the one under judgement."""

    name: str
    spec: ItemSpec
    template: Template

    @property
    def is_list(self) -> bool:
        """Whether there are lists of it: a counter is one key, and so is a template without fields."""
        return not isinstance(self.spec, CounterSpec) and bool(self.template.fields)

    @property
    def is_leased(self) -> bool:
        return isinstance(self.spec, TableSpec) and self.spec.has_lease

    @cached_property
    def prefixes(self) -> tuple[Template, ...]:
        """The prefix of the list that binds no field, one field, ... all but the last; empty when there are no lists."""
        return (
            tuple(prefix_of(self.template, bound) for bound in range(len(self.template.fields))) if self.is_list else ()
        )


def subjects_of(spec: LayoutSpec, others: Sequence[LayoutSpec] = ()) -> tuple[list[Subject], list[Subject]]:
    """The subjects of `spec` and those of the other layouts, each under the root with its default parameters."""
    own = [Subject(item.name, item, item.template.prefixed(bound_root(spec))) for item in spec.items]
    foreign = [
        Subject(f"{other.name}.{item.name}", item, item.template.prefixed(bound_root(other)))
        for other in others
        for item in other.items
    ]
    return own, foreign


def bound_root(spec: LayoutSpec) -> Template:
    """The root with its parameters' defaults; a parameter without one has its shortest value."""
    missing = [name for name in spec.root.field_names if spec.parameters.get(name) is None]
    values = dict(spec.parameters)
    if missing:
        raw_fields = _shortest_fields(spec.root)
        elements = {field.name: field.element for field in spec.root.fields}
        values.update({name: elements[name].decode(raw_fields[name]) for name in missing})
    return spec.root.bound({name: values[name] for name in spec.root.field_names})


def prefix_of(template: Template, bound_fields: int) -> Template:
    """The part of every key that is known when the first `bound_fields` fields are: what an exact list reads by."""
    bound = set(template.field_names[:bound_fields])
    parts: list[Part] = []
    for part in template.parts:
        if isinstance(part, Field) and part.name not in bound:
            break
        parts.append(part)
    return Template(tuple(parts), template.is_text)


def _shortest_fields(root: Template) -> dict[str, bytes]:
    """The fields of the shortest root; where none was found, each field's own shortest encoding."""
    key = shortest_key(root).key
    if key is not None:
        return next(readings(root, key))
    return {field.name: next(raw for _, raw in members(field.element)) for field in root.fields}


def ends_in_literal(template: Template) -> bytes:
    """The bytes of the literal that the template ends in; none when it ends in a field."""
    last = template.parts[-1] if template.parts else None
    return last.raw if isinstance(last, Literal) else b""


# ---- values of one element, and keys that carry them -----------------------------------------------------------------


MEMBERS_MAX: Final = 64
"""Why: two different values are wanted; a codec of which the first 64 members are all alike is not worth more."""

MEMBER_BYTES_SPAN: Final = 16
"""Why: how much longer than the shortest member a sample may be; values of fixed width need none of it."""

SLICES_MAX: Final = 3
"""Why: what slices differ in shows between the first two; a third is for good measure."""

_NUMBERS: Final = (*range(-20, 301), 999, 1000, 65535, 65536)


def numbers(element: Element[object]) -> Iterator[tuple[int, bytes]]:
    """Yield small numbers in their order with their bytes, those that the element takes."""
    for number in _NUMBERS:
        try:
            yield number, element.encode(number)
        except InvalidKeyError:
            continue


def members(element: Element[object]) -> Iterator[tuple[object, bytes]]:
    """Yield values and their bytes: the shortest members, one printable character each, and last bytes changed."""
    spellings = list(islice(_spellings(element), MEMBERS_MAX))
    changed = [spellings[0][:-1] + bytes((byte,)) for byte in range(256)] if spellings and spellings[0] else []
    for raw in dict.fromkeys([*spellings, *changed]):
        try:
            value = element.decode(raw)
        except InvalidKeyError:
            continue
        yield value, raw
    if element.value_type is str:
        for code in range(ord(" "), ord("~") + 1):
            try:
                yield chr(code), element.encode(chr(code))
            except InvalidKeyError:
                continue


def _spellings(element: Element[object]) -> Iterator[bytes]:
    """Short words of the language, or a few of each of its first slices when it has such."""
    bytes_max = element.bytes_min + MEMBER_BYTES_SPAN
    for _, language in element.slices()[:SLICES_MAX]:
        yield from islice(_words(language, element.bytes_min, bytes_max), SLICES_MAX)
    yield from _words(element.language, element.bytes_min, bytes_max)


def _words(language: Language, bytes_min: int, bytes_max: int) -> Iterator[bytes]:
    """Words of a language, bounds on length aside; none where its automaton is too large to be searched."""
    try:
        automaton = language.automaton(relaxed=True)
        yield from words(OwnWords(automaton), bytes_min=bytes_min, bytes_max=bytes_max)
    except (AutomatonTooLargeError, SearchTooLargeError):
        return


def member_of_length(element: Element[object], length: int) -> bytes | None:
    """Return a member of at least `length` bytes and hardly more; None when there is none."""
    longest = (
        length + MEMBER_BYTES_SPAN if element.bytes_max is None else min(element.bytes_max, length + MEMBER_BYTES_SPAN)
    )
    # Why slices first: of a level and its path the first words of the language as a whole have levels that are wrong.
    for language in (*(exact for _, exact in element.slices()[:SLICES_MAX]), element.language):
        for raw in islice(_words(language, length, longest), MEMBERS_MAX):
            try:
                element.decode(raw)
            except InvalidKeyError:
                continue
            return raw
    return None


def key_with(template: Template, fields: Mapping[str, bytes]) -> bytes | None:
    """Return the key of `template` that has these fields and the shortest others; None when they do not fit together."""
    shortest = shortest_key(template).key
    if shortest is None:
        return None
    try:
        key = spelled(template, {**next(readings(template, shortest)), **fields})
    except InvalidKeyError:
        return None
    return key if holds(template, key) else None
