"""Keys in the place of others: L1, L2, L3, L6 and L11.

L1: two templates that can produce one key. L2: a template that reads one key in two ways. L3: a key that holds a value is a
directory of other keys. L6: a root inside another root: who reads, backs up or deletes the outer one takes the inner one with
it. L11: a key in the directory of a leased record outlives it.

In a text layout a directory is a key followed by a slash; in a binary one any strict prefix of a key. There a table's own keys
are not compared with each other: any tail of varying length would be told, and it misleads no list. A list binds fewer fields
than a key has, so that what goes on behind a key is on the key's lists, or has other values: then L4 tells of the prefix.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice, permutations, product
from typing import Final

from keyplan.codec import ANY_BYTE, Bytes, Language, Repeat, literal
from keyplan.layout.meaning import shown_key
from keyplan.layout.rules.decision import Answer, ambiguous_key, key_below, shortest_key
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.reading import readings
from keyplan.layout.rules.subject import Subject, bound_root, subjects_of
from keyplan.layout.spec import CounterSpec, IndexSpec, LayoutSpec, TableSpec
from keyplan.layout.template import Literal, Template

__all__ = ["ambiguities", "collisions", "directories", "lease_mismatches", "nested_roots"]


_ANYTHING: Final[Language] = Repeat(Bytes(ANY_BYTE))
_SOMETHING: Final[Language] = Repeat(Bytes(ANY_BYTE), 1)
_BELOW_TEXT: Final[Language] = literal(b"/") + Repeat(Bytes(ANY_BYTE))
"""What a key in a directory goes on with in a text layout; in a binary one it is something."""


# ---- L1, L2: one key -------------------------------------------------------------------------------------------------


def collisions(own: Sequence[Subject], foreign: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L1, for each pair that has one of this layout's items in it."""
    for first, second in chain(combinations(own, 2), product(own, foreign)):
        answer = key_below(first.template, None, second.template)
        if answer.is_open:
            yield Finding.undecided("L1", first.name, second.name)
        elif answer.key is not None:
            message = f"{first.name} and {second.name} can produce one key"
            yield Finding("L1", (first.name, second.name), message, answer.key, severity=Severity.ERROR)


def ambiguities(own: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L2; the message shows two readings of the witness."""
    for subject in own:
        answer = ambiguous_key(subject.template)
        if answer.is_open:
            yield Finding.undecided("L2", subject.name)
        elif answer.key is not None:
            shown = " or ".join(_shown(reading) for reading in islice(readings(subject.template, answer.key), 2))
            message = f"one key reads as {shown}"
            yield Finding("L2", (subject.name,), message, answer.key, severity=Severity.ERROR)


def _shown(reading: dict[str, bytes]) -> str:
    return " ".join(f"{name}={shown_key(raw) or repr('')}" for name, raw in reading.items())


# ---- L3, L11: directories --------------------------------------------------------------------------------------------


def directories(own: Sequence[Subject], foreign: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L3: the witness is the key that is a directory, the second one a key in it."""
    itself = ((subject, subject) for subject in own if subject.is_list and subject.template.is_text)
    for parent, child in chain(itself, permutations(own, 2), product(own, foreign), product(foreign, own)):
        answer = _key_in(parent, child)
        if answer.is_open:
            yield Finding.undecided("L3", *dict.fromkeys((parent.name, child.name)))
        elif answer.key is not None:
            others = "others" if parent is child else f"keys of {child.name}"
            names = (parent.name,) if parent is child else (parent.name, child.name)
            message = f"a key of {parent.name} is also the directory of {others}"
            yield Finding("L3", names, message, answer.key[: answer.cut], answer.key)


def lease_mismatches(own: Sequence[Subject], leased_tables: frozenset[str]) -> Iterator[Finding]:
    """Findings of L11: entries below a leased record's key that hang on no lease."""
    for parent, child in permutations(own, 2):
        if not parent.is_leased or _hangs_on_lease(child, leased_tables):
            continue
        if not parent.template.is_text and not _extends(parent.template, child.template):
            continue
        answer = _key_in(parent, child)
        if answer.is_open:
            yield Finding.undecided("L11", parent.name, child.name)
        elif answer.key is not None:
            message = f"{child.name} stays when the lease of the {parent.name} record above it ends"
            yield Finding("L11", (parent.name, child.name), message, answer.key[: answer.cut], answer.key)


def _key_in(parent: Subject, child: Subject) -> Answer:
    tail = _BELOW_TEXT if parent.template.is_text else _SOMETHING
    return key_below(parent.template, tail, child.template)


def _hangs_on_lease(subject: Subject, leased_tables: frozenset[str]) -> bool:
    match subject.spec:
        case TableSpec():
            return subject.spec.has_lease
        case IndexSpec():
            return subject.spec.of in leased_tables
        case CounterSpec():
            return False


def _extends(parent: Template, child: Template) -> bool:
    """Whether `child` repeats the parts of `parent` and goes on. Why: in a binary layout other prefixes are accidents."""
    if len(child.parts) < len(parent.parts):
        return False
    for one, other in zip(parent.parts, child.parts, strict=False):
        is_same = one.language == other.language
        if not is_same and not (
            isinstance(one, Literal) and isinstance(other, Literal) and other.raw.startswith(one.raw)
        ):
            return False
    return True


# ---- L6: roots -------------------------------------------------------------------------------------------------------


def nested_roots(spec: LayoutSpec, others: Sequence[LayoutSpec]) -> Iterator[Finding]:
    """Findings of L6: the items are the outer and the inner layout; the witness is a key of the inner one.

    Other layouts are taken with their roots' default parameters; the layout's own root is judged against itself with all.
    """
    for other in others:
        if bound_root(spec) == bound_root(other):
            yield from _nested(spec, other, f"{spec.name} and {other.name} have one root")
        else:
            yield from _nested(spec, other, f"keys of {other.name} lie inside the root of {spec.name}")
            yield from _nested(other, spec, f"keys of {spec.name} lie inside the root of {other.name}")
    if spec.root.fields:
        yield from _nested_in_itself(spec)


def _nested(outer: LayoutSpec, inner: LayoutSpec, message: str) -> Iterator[Finding]:
    root = bound_root(outer)
    answers = [key_below(root, _ANYTHING, subject.template) for subject in subjects_of(inner)[0]]
    inside = [(answer.key, answer.cut) for answer in answers if answer.key is not None]
    if inside:
        key, cut = min(inside, key=lambda found: (len(found[0]), found[0]))
        yield Finding("L6", (outer.name, inner.name), message, key, key[:cut])
    elif any(answer.is_open for answer in answers):
        yield Finding.undecided("L6", outer.name, inner.name)


def _nested_in_itself(spec: LayoutSpec) -> Iterator[Finding]:
    answer = key_below(spec.root, _SOMETHING, spec.root)
    if answer.is_open:
        yield Finding.undecided("L6", spec.name)
    shortest = [shortest_key(item.template) for item in spec.items]
    keys = [found.key for found in shortest if found.key is not None]
    if answer.key is not None and not keys and any(found.is_open for found in shortest):
        yield Finding.undecided("L6", spec.name)
    if answer.key is not None and keys:
        message = "one value of its root's parameters gives a root inside that of another value"
        key = min(keys, key=lambda found: (len(found), found))
        yield Finding("L6", (spec.name,), message, answer.key + key, answer.key[: answer.cut])
