"""L6: a root inside another root: who reads, backs up or deletes the outer one takes the inner one with it."""

from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.codec import ANY_BYTE, Bytes, Language, Repeat
from keyplan.layout.rules.decision import key_below, shortest_key
from keyplan.layout.rules.finding import Finding
from keyplan.layout.rules.subject import bound_root, subjects_of
from keyplan.layout.spec import LayoutSpec

__all__ = ["nested_roots"]

_ANYTHING: Final[Language] = Repeat(Bytes(ANY_BYTE))
_SOMETHING: Final[Language] = Repeat(Bytes(ANY_BYTE), 1)


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
