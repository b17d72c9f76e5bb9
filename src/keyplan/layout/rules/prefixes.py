"""L4 and L5 for a prefix that somebody else reads by: a document, a script, an access rule."""

from collections.abc import Iterator, Sequence

from keyplan.codec import ANY_BYTE, Bytes, Language, Repeat, Series, literal
from keyplan.errors import UnknownNameError
from keyplan.layout.rules.decision import key_below, shortest_key
from keyplan.layout.rules.finding import Finding
from keyplan.layout.rules.leaks import ANYTHING, NOT_BELOW, WORD_BYTES
from keyplan.layout.rules.subject import Subject, ends_in_literal, subjects_of
from keyplan.layout.spec import LayoutSpec
from keyplan.layout.template import Field, Template

__all__ = ["lint_prefix"]

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
