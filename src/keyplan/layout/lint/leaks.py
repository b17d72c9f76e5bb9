"""L4: the prefix that a list reads by also matches keys outside the list.

keyplan's own lists decode every key and stay exact; a raw reader (`etcdctl get --prefix`) gets all of them, and keyplan reads
the others only to drop them.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from keyplan.codec.language import ANY_BYTE, Bytes, Language, Repeat, byte_class
from keyplan.layout.lint.decision import key_below, shortest_key
from keyplan.layout.lint.finding import Finding, Severity
from keyplan.layout.lint.reading import holds, readings, spelled
from keyplan.layout.lint.subject import Subject, ends_in_literal
from keyplan.layout.meaning import shown_key
from keyplan.layout.template import Field, Literal, Template

__all__ = ["ANYTHING", "NOT_BELOW", "WORD_BYTES", "leaks"]

ANYTHING: Final[Language] = Repeat(Bytes(ANY_BYTE))

SEPARATOR: Final = b"/"

NOT_BELOW: Final[Language] = Bytes(ANY_BYTE & ~byte_class(SEPARATOR)) + ANYTHING
"""What follows a prefix in a key that is not below it."""

WORD_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
"""A literal that ends in one of these ends inside a word, so that longer words begin with it."""


def leaks(
    own: Sequence[Subject], foreign: Sequence[Subject], collided: Collection[tuple[str, ...]]
) -> Iterator[Finding]:
    """Findings of L4 about the lists of `own`: with other items, with sibling values, and without the last separator.

    The witness is the shortest key that is returned unwanted, `second` the prefix that returns it. `collided` are the pairs
    of L1: that they share a prefix goes without saying.
    """
    for subject in own:
        for other in (*own, *foreign):
            names = (subject.name, other.name)
            if other is not subject and names not in collided and names[::-1] not in collided:
                severity = Severity.NOTE if other in own else Severity.WARNING
                yield from _leak(subject, other, severity)
        yield from _sibling_leak(subject)


def _leak(subject: Subject, other: Subject, severity: Severity) -> Iterator[Finding]:
    """At most one finding for a pair: of the longest prefix that leaks, else of the longest that does when trimmed."""
    if not subject.prefixes:
        return
    items = (subject.name, other.name)
    # Why: a longer prefix matches fewer keys, so that the shortest one decides quickly that there is no leak at all.
    for bound in reversed(range(len(subject.prefixes))) if _may_leak(subject, other) else ():
        answer = key_below(subject.prefixes[bound], ANYTHING, other.template)
        if answer.key is not None:
            message = (
                f"a raw list of {subject.name} by {_fields(bound)} also returns keys of {other.name}, read and dropped"
            )
            prefix = answer.key[: answer.cut]
            yield Finding("L4", items, message, answer.key, prefix, severity)
            return
        if answer.is_open:
            yield Finding.undecided("L4", *items)
            return
    for prefix_template in reversed(subject.prefixes):
        trimmed = _trimmed(prefix_template)
        if trimmed is None:
            continue
        answer = key_below(trimmed, NOT_BELOW, other.template)
        if answer.key is not None:
            prefix = answer.key[: answer.cut]
            message = f"without its last separator, {shown_key(prefix)}, the prefix also returns keys of {other.name}"
            yield Finding("L4", items, message, answer.key, prefix, Severity.NOTE)
            return


def _may_leak(subject: Subject, other: Subject) -> bool:
    answer = key_below(subject.prefixes[0], ANYTHING, other.template)
    return answer.key is not None or answer.is_open


def _sibling_leak(subject: Subject) -> Iterator[Finding]:
    """The first list of `subject` whose prefix also matches values, or words, that go on where the prefix ends."""
    for prefix in subject.prefixes:
        last = prefix.parts[-1] if prefix.parts else None
        if isinstance(last, Field):
            yield from _longer_value(subject, prefix, last)
        elif prefix.is_text and ends_in_literal(prefix)[-1:] and ends_in_literal(prefix)[-1] in WORD_BYTES:
            known = shortest_key(prefix)
            if known is not None:
                message = "a list's prefix ends inside a word, so that longer words share it"
                yield Finding("L4", (subject.name,), message, known + b"a", known)
        else:
            continue
        return


def _longer_value(subject: Subject, prefix: Template, last: Field) -> Iterator[Finding]:
    value = Template((last,), prefix.is_text)
    answer = key_below(value, Repeat(Bytes(ANY_BYTE), 1), value)
    key = shortest_key(subject.template)
    if answer.key is None or key is None:
        return
    fields = next(readings(subject.template, key))
    listed = spelled(prefix, {**fields, last.name: answer.key[: answer.cut]})
    longer = spelled(subject.template, {**fields, last.name: answer.key})
    if holds(subject.template, longer) and longer.startswith(listed):
        message = (
            f"a list's prefix ends in {last.name} without a separator, so that longer values of {last.name} share it"
        )
        yield Finding("L4", (subject.name,), message, longer, listed)


def _trimmed(prefix: Template) -> Template | None:
    """The prefix without its last separator, as documents often write it."""
    raw = ends_in_literal(prefix)
    if not prefix.is_text or len(raw) < 2 or not raw.endswith(SEPARATOR):
        return None
    return Template((*prefix.parts[:-1], Literal(raw[:-1])), prefix.is_text)


def _fields(bound: int) -> str:
    return "no field" if bound == 0 else "its first field" if bound == 1 else f"its first {bound} fields"
