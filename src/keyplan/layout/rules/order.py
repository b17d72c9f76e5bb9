"""L7: an element whose bytes do not sort as its values do, so that a list or a range comes out of order.

Judged element by element; whether a variable-length element sorts in front of a separator as it does alone is not.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from keyplan.codec import Element
from keyplan.layout.rules.finding import Finding
from keyplan.layout.rules.samples import key_with, members, numbers
from keyplan.layout.rules.search import reading_rank
from keyplan.layout.rules.subject import Subject
from keyplan.layout.spec import IndexSpec, Origin

__all__ = ["disorders"]

Inversion = tuple[tuple[object, bytes], tuple[object, bytes]]


def disorders(own: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L7: the witness sorts before `second`, their values the other way."""
    for subject in own:
        for field in subject.template.fields:
            if not field.element.is_ordered and not _is_copied(subject, field.name):
                yield _finding(subject, field.name, field.element)


def _is_copied(subject: Subject, name: str) -> bool:
    """Whether the field repeats one of the primary key, about which the table has a finding of its own."""
    if not isinstance(subject.spec, IndexSpec):
        return False
    sources = dict(zip(subject.spec.template.field_names, subject.spec.components, strict=False))
    return name in sources and sources[name].origin is Origin.KEY


def _finding(subject: Subject, name: str, element: Element[object]) -> Finding:
    items = (f"{subject.name}.{name}",)
    inversion = _inverted_numbers(element) if element.value_type is int else _inverted_members(element)
    if inversion is None:
        return Finding("L7", items, element.disorder or "keys do not sort as the values do")
    (greater, first), (smaller, second) = inversion
    message = f"{greater!r} sorts before {smaller!r}: {element.disorder}"
    return Finding(
        "L7", items, message, key_with(subject.template, {name: first}), key_with(subject.template, {name: second})
    )


def _inverted_numbers(element: Element[object]) -> Inversion | None:
    """The first number that sorts before a smaller one, with the smallest such one."""
    smaller: list[tuple[int, bytes]] = []
    for number, raw in numbers(element):
        for other, other_raw in smaller:
            if raw < other_raw:
                return (number, raw), (other, other_raw)
        smaller.append((number, raw))
    return None


def _inverted_members(element: Element[object]) -> Inversion | None:
    """The most readable pair of short values that sort the wrong way; None when values have no order of their own."""
    listed = sorted(dict(members(element)).items(), key=lambda found: found[1])
    try:
        inverted = [pair for pair in combinations(listed, 2) if pair[1][0] < pair[0][0]]  # type: ignore[operator]  # Why: caught.
    except TypeError:
        return None
    return min(inverted, key=_effort, default=None)


def _effort(pair: Inversion) -> tuple[bool, int, list[tuple[int, int]]]:
    raw = pair[0][1] + pair[1][1]
    return not all(str(value).isprintable() for value, _ in pair), len(raw), [reading_rank(byte) for byte in raw]
