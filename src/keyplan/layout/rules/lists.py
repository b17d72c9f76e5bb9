"""What a list, or a raw read of a prefix, returns: L4, L5, L7, L8 and L9.

L4: the prefix that a list reads by also matches keys outside the list. keyplan's own lists decode every key and stay exact; a
raw reader (`etcdctl get --prefix`) gets all of them, and keyplan reads the others only to drop them. With L5, the same is asked
of a prefix that somebody else reads by: a document, a script, an access rule.

L7: an element whose bytes do not sort as its values do, so that a list or a range comes out of order. Judged element by
element; whether a variable-length element sorts in front of a separator as it does alone is not. L8: a list that binds fewer
fields than placement needs asks every database of a ring. L9: a reader that ends its range at prefix + FF loses the keys that
go on with FF; keyplan ends at the prefix's successor.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from keyplan.codec import ANY_BYTE, Bytes, Element, Language, Repeat, Series, byte_class, literal
from keyplan.errors import UnknownNameError
from keyplan.layout.rules.decision import ambiguous_key, key_below, key_listed_astray, shortest_key
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.search import reading_rank
from keyplan.layout.rules.subject import Subject, ends_in_literal, key_with, members, numbers, subjects_of
from keyplan.layout.spec import IndexSpec, LayoutSpec, Origin, TableSpec
from keyplan.layout.template import Field, Literal, Template

__all__ = ["disorders", "fan_outs", "leaks", "lint_prefix", "lost_range_ends"]


# ---- L4: keys outside a list -----------------------------------------------------------------------------------------


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
        yield _leak_finding(group, is_own=not stranger)
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


def _leak_finding(group: Sequence[_Leak], *, is_own: bool) -> Finding:
    listed = dict.fromkeys(leak.listed.name for leak in group)
    names = tuple(dict.fromkeys([*listed, *(leak.other.name for leak in group)]))
    first = min(group, key=lambda leak: len(leak.key))
    prefix = f"the prefix that lists {_some(list(listed))}" + (
        " without its last separator" if first.is_trimmed else ""
    )
    strangers = [name for name in names if name not in listed]
    returned = f"also returns {_some(strangers)}" if strangers else "returns all of them"
    message = f"a raw scan of {prefix} {returned}; keyplan's lists return their own alone"
    severity = Severity.NOTE if is_own or first.is_trimmed else Severity.WARNING
    return Finding("L4", names, message, first.key, first.key[: first.cut], severity)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED_MAX]) + (" and more" if len(names) > LISTED_MAX else "")


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


# ---- L4, L5: somebody else's prefix ----------------------------------------------------------------------------------


_AT_OR_BELOW: Language = Series(()) | (literal(b"/") + ANYTHING)


def lint_prefix(
    spec: LayoutSpec, prefix: Template, *, returns: Sequence[str] = (), others: Sequence[LayoutSpec] = ()
) -> tuple[Finding, ...]:
    """Return what a prefix gives its reader that he does not want (L4), and whether it can give him anything (L5).

    The prefix is absolute, root included, as its reader writes it; fields stand for any value. `returns` names the items
    that the reader wants; when it is empty, those whose keys are at or below the prefix: go on with a slash where it ends, or
    end there. A witness is the shortest key that is returned unwanted, `second` the prefix as spelled in it. Raises
    UnknownNameError for a name that is not in the layout.
    """
    own, foreign = subjects_of(spec, others)
    subjects = [*own, *foreign]
    unknown = [name for name in returns if name not in {subject.name for subject in subjects}]
    if unknown:
        raise UnknownNameError(
            kind="item", name=unknown[0], known=[subject.name for subject in subjects], layout=spec.name
        )
    is_whole = _ends_whole(prefix)
    findings = [finding for subject in subjects for finding in _unwanted(prefix, subject, returns, is_whole=is_whole)]
    findings += _nothing(prefix, subjects, returns, is_whole=is_whole)
    if not is_whole and not any(finding.rule == "L4" for finding in findings):
        findings += _open_world(prefix)
    return tuple(findings)


def _unwanted(prefix: Template, subject: Subject, returns: Sequence[str], *, is_whole: bool) -> Iterator[Finding]:
    if returns and subject.name not in returns:
        tail, why = ANYTHING, "the prefix also returns keys of {}"
    elif not is_whole and not _begins_with(subject.template, prefix):
        tail, why = (
            NOT_BELOW,
            "the prefix does not end at a separator, so it also returns keys of {} that only begin alike",
        )
    else:
        return
    answer = key_below(prefix, tail, subject.template)
    items = (prefix.source, subject.name)
    if answer.key is not None:
        yield Finding("L4", items, why.format(subject.name), answer.key, answer.key[: answer.cut])
    elif answer.is_open:
        yield Finding.undecided("L4", *items)


def _nothing(
    prefix: Template, subjects: Sequence[Subject], returns: Sequence[str], *, is_whole: bool
) -> Iterator[Finding]:
    tail = ANYTHING if is_whole else _AT_OR_BELOW
    found = [
        subject.name
        for subject in subjects
        for answer in (key_below(prefix, tail, subject.template),)
        if answer.key is not None or answer.is_open or (not is_whole and _begins_with(subject.template, prefix))
    ]
    spelled_prefix = shortest_key(prefix).key
    for name in returns:
        if name not in found:
            yield Finding("L5", (prefix.source, name), f"no key of {name} can exist below the prefix", spelled_prefix)
    if not returns and not found:
        yield Finding("L5", (prefix.source,), "no key of the layout can exist below the prefix", spelled_prefix)


def _open_world(prefix: Template) -> Iterator[Finding]:
    answer = shortest_key(prefix)
    if answer.is_open:
        yield Finding.undecided("L4", prefix.source)
    if answer.key is not None:
        known = answer.key
        message = "the prefix does not end at a separator, so that keys of others that begin alike are returned"
        yield Finding("L4", (prefix.source,), message, known + b"a", known)


def _ends_whole(prefix: Template) -> bool:
    """Whether nothing but what the prefix names begins with it: it ends in a separator or in a self-delimiting value."""
    last = prefix.parts[-1] if prefix.parts else None
    if isinstance(last, Field):
        value = Template((last,), prefix.is_text)
        answer = key_below(value, Repeat(Bytes(ANY_BYTE), 1), value)
        return answer.key is None and answer.is_proven
    return last is None or ends_in_literal(prefix)[-1] not in WORD_BYTES


def _begins_with(template: Template, prefix: Template) -> bool:
    """Whether the prefix is made of whole parts of the template, so that where it ends an element begins."""
    parts = template.parts[: len(prefix.parts)]
    return len(parts) == len(prefix.parts) and all(
        one.language == other.language for one, other in zip(parts, prefix.parts, strict=True)
    )


# ---- L7: order -------------------------------------------------------------------------------------------------------


Inversion = tuple[tuple[object, bytes], tuple[object, bytes]]


def disorders(own: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L7: the witness sorts before `second`, their values the other way."""
    for subject in own:
        for field in subject.template.fields:
            if not field.element.is_ordered and not _is_copied(subject, field.name):
                yield _disorder(subject, field.name, field.element)


def _is_copied(subject: Subject, name: str) -> bool:
    """Whether the field repeats one of the primary key, about which the table has a finding of its own."""
    if not isinstance(subject.spec, IndexSpec):
        return False
    sources = dict(zip(subject.spec.template.field_names, subject.spec.components, strict=False))
    return name in sources and sources[name].origin is Origin.KEY


def _disorder(subject: Subject, name: str, element: Element[object]) -> Finding:
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


# ---- L8: every database ----------------------------------------------------------------------------------------------


def fan_outs(own: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L8, one for each placed table: two keys of the longest list that fans out, placed by different values."""
    for subject in own:
        if isinstance(subject.spec, TableSpec) and subject.spec.place and subject.is_list:
            yield _fan_out(subject, subject.spec.place)


def _fan_out(subject: Subject, place: tuple[str, ...]) -> Finding:
    names = subject.template.field_names
    places = {name.partition(".")[0]: name.partition(".")[2] for name in place}
    needed = max(names.index(name) for name in places) + 1
    field = subject.template.fields[needed - 1]
    lists = "the list of all" if needed == 1 else f"lists by fewer than {needed} fields"
    message = f"placed by {', '.join(place)}: {lists} must ask every database"
    first, second = _placed_apart(field.element, places[field.name])
    keys = [key_with(subject.template, {field.name: raw}) if raw is not None else None for raw in (first, second)]
    return Finding("L8", (subject.name,), message, keys[0], keys[1], Severity.NOTE)


def _placed_apart(element: Element[object], attribute: str) -> tuple[bytes | None, bytes | None]:
    """The bytes of two values that placement tells apart."""
    of_value: Callable[[object], object] = element.attributes[attribute] if attribute else lambda value: value
    found = members(element)
    value, first = next(found, (None, None))
    return first, next((raw for other, raw in found if of_value(other) != of_value(value)), None)


# ---- L9: the end of a range ------------------------------------------------------------------------------------------


_FF: Final[Language] = literal(b"\xff") + ANYTHING


def lost_range_ends(own: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L9, one for each item: the witness is a key that such a reader loses, `second` the prefix."""
    for subject in own:
        answers = [(bound, key_below(prefix, _FF, subject.template)) for bound, prefix in enumerate(subject.prefixes)]
        losing = [(bound, answer) for bound, answer in answers if answer.key is not None]
        if losing:
            _, answer = losing[0]
            key = answer.key or b""
            lists = ", ".join(str(bound) for bound, _ in losing)
            message = f"a range that ends at prefix + FF loses keys, in lists by {lists} bound fields"
            yield Finding("L9", (subject.name,), message, key, key[: answer.cut], Severity.NOTE)
        elif any(answer.is_open for _, answer in answers):
            yield Finding.undecided("L9", subject.name)
