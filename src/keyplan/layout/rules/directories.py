"""L3: a key that holds a value is a directory of other keys. L11: one of those outlives the leased record that it belongs to.

In a text layout a directory is a key followed by a slash; in a binary one any strict prefix of a key. There a table's own keys
are not compared with each other: any tail of varying length would be told, and it misleads no list. A list binds fewer fields
than a key has, so that what goes on behind a key is on the key's lists, or has other values: then L4 tells of the prefix.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, permutations, product
from typing import Final

from keyplan.codec import ANY_BYTE, Bytes, Language, Repeat, literal
from keyplan.layout.rules.decision import Answer, key_below
from keyplan.layout.rules.finding import Finding
from keyplan.layout.rules.subject import Subject
from keyplan.layout.spec import CounterSpec, IndexSpec, TableSpec
from keyplan.layout.template import Literal, Template

__all__ = ["directories", "lease_mismatches"]

_BELOW_TEXT: Final[Language] = literal(b"/") + Repeat(Bytes(ANY_BYTE))
_BELOW_BINARY: Final[Language] = Repeat(Bytes(ANY_BYTE), 1)


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
    tail = _BELOW_TEXT if parent.template.is_text else _BELOW_BINARY
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
