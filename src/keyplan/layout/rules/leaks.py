"""L4: the prefix that a list reads by also matches keys outside the list.

keyplan's own lists decode every key and stay exact; a raw reader (`etcdctl get --prefix`) gets all of them, and keyplan reads
the others only to drop them.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from keyplan.codec import ANY_BYTE, Bytes, Language, Repeat, byte_class
from keyplan.layout.rules.decision import ambiguous_key, key_below, key_listed_astray, shortest_key
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.subject import Subject, ends_in_literal
from keyplan.layout.template import Field, Literal, Template

__all__ = ["ANYTHING", "NOT_BELOW", "WORD_BYTES", "leaks"]

ANYTHING: Final[Language] = Repeat(Bytes(ANY_BYTE))

SEPARATOR: Final = b"/"

NOT_BELOW: Final[Language] = Bytes(ANY_BYTE & ~byte_class(SEPARATOR)) + ANYTHING
"""What follows a prefix in a key that is not below it."""

WORD_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
"""A literal that ends in one of these ends inside a word, so that longer words begin with it."""


@dataclass(frozen=True, slots=True)
class _Leak:
    """A key of `other` that the list of `listed` by `prefix` also returns; trimmed: without the prefix's last separator."""

    listed: Subject
    other: Subject
    prefix: Template
    is_trimmed: bool
    key: bytes
    cut: int


LISTED_MAX: Final = 3
"""Why: the finding's items name them all; its sentence is read on one line."""


def leaks(
    own: Sequence[Subject], foreign: Sequence[Subject], collided: Collection[tuple[str, ...]]
) -> Iterator[Finding]:
    """Findings of L4 about the lists of `own`: with other items, with sibling values, and without the last separator.

    One finding for each prefix that leaks: its items are those that are listed by it and then those that come with them; one
    for each pair when the other item is of another layout. The witness is the shortest key that is returned unwanted, `second`
    the prefix that returns it. `collided` are the pairs of L1: that they share a prefix goes without saying.
    """
    grouped: dict[tuple[str, bool, str], list[_Leak]] = {}
    for listed, other in product(own, (*own, *foreign)):
        names = (listed.name, other.name)
        if listed is other or not listed.prefixes or names in collided or names[::-1] in collided:
            continue
        leak = _leak(listed, other)
        if isinstance(leak, Finding):
            yield leak
        elif leak is not None:
            stranger = "" if other in own else f"{listed.name}, {other.name}"
            grouped.setdefault((leak.prefix.source, leak.is_trimmed, stranger), []).append(leak)
    for (_, _, stranger), group in grouped.items():
        yield _finding(group, is_own=not stranger)
    for subject in own:
        # Why: that a key reads in two ways, and so stands in two lists, goes without saying.
        if ambiguous_key(subject.template).key is None:
            yield from _sibling_leak(subject)


def _leak(listed: Subject, other: Subject) -> _Leak | Finding | None:
    """The leak of the longest prefix that leaks, else of the longest that does when trimmed; or that it is undecided."""
    # Why: a longer prefix matches fewer keys, so that the shortest one decides quickly that there is no leak at all.
    shortest = key_below(listed.prefixes[0], ANYTHING, other.template)
    for prefix in reversed(listed.prefixes) if shortest.key is not None or shortest.is_open else ():
        answer = key_below(prefix, ANYTHING, other.template)
        if answer.key is not None:
            return _Leak(listed, other, prefix, False, answer.key, answer.cut)  # noqa: FBT003  # Why: a record's field.
        if answer.is_open:
            return Finding.undecided("L4", listed.name, other.name)
    for prefix in reversed(listed.prefixes):
        trimmed = _trimmed(prefix)
        if trimmed is None:
            continue
        answer = key_below(trimmed, NOT_BELOW, other.template)
        if answer.key is not None:
            return _Leak(listed, other, trimmed, True, answer.key, answer.cut)  # noqa: FBT003  # Why: as above.
        if answer.is_open:
            return Finding.undecided("L4", listed.name, other.name)
    return None


def _finding(group: Sequence[_Leak], *, is_own: bool) -> Finding:
    listed = dict.fromkeys(leak.listed.name for leak in group)
    names = tuple(dict.fromkeys([*listed, *(leak.other.name for leak in group)]))
    first = min(group, key=lambda leak: len(leak.key))
    lists = ", ".join(list(listed)[:LISTED_MAX]) + (" and more" if len(listed) > LISTED_MAX else "")
    if first.is_trimmed:
        message = f"without its last separator, the prefix that lists {lists} returns all of these"
    else:
        message = f"a raw read of the prefix that lists {lists} returns all of these; keyplan drops those not asked for"
    severity = Severity.NOTE if is_own or first.is_trimmed else Severity.WARNING
    return Finding("L4", names, message, first.key, first.key[: first.cut], severity)


def _sibling_leak(subject: Subject) -> Iterator[Finding]:
    """The first list of `subject` whose prefix also matches keys with other values, or words that go on where it ends."""
    for prefix in subject.prefixes:
        found = _of_other_values(subject, prefix) or _inside_a_word(subject, prefix)
        if found is not None:
            yield found
            return


def _of_other_values(subject: Subject, prefix: Template) -> Finding | None:
    answer = key_listed_astray(prefix, subject.template)
    if answer.is_open:
        return Finding.undecided("L4", subject.name)
    if answer.key is None:
        return None
    last = prefix.parts[-1]
    message = "a list's prefix does not show where its fields end, so that keys with other values share it"
    if isinstance(last, Field):
        message = (
            f"a list's prefix ends in {last.name} without a separator, so that other values of {last.name} share it"
        )
    return Finding("L4", (subject.name,), message, answer.key, answer.key[: answer.cut])


def _inside_a_word(subject: Subject, prefix: Template) -> Finding | None:
    end = ends_in_literal(prefix)[-1:] if prefix.is_text else b""
    if not end or end[0] not in WORD_BYTES:
        return None
    answer = shortest_key(prefix)
    if answer.is_open:
        return Finding.undecided("L4", subject.name)
    known = answer.key
    if known is None:
        return None
    message = "a list's prefix ends inside a word, so that longer words share it"
    return Finding("L4", (subject.name,), message, known + b"a", known)


def _trimmed(prefix: Template) -> Template | None:
    """The prefix without its last separator, as documents often write it."""
    raw = ends_in_literal(prefix)
    if not prefix.is_text or len(raw) < 2 or not raw.endswith(SEPARATOR):
        return None
    return Template((*prefix.parts[:-1], Literal(raw[:-1])), prefix.is_text)
