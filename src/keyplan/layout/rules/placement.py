"""L8: a list that binds fewer fields than placement needs asks every database of a ring."""

from collections.abc import Callable, Iterator, Sequence

from keyplan.codec import Element
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.samples import key_with, members
from keyplan.layout.rules.subject import Subject
from keyplan.layout.spec import TableSpec

__all__ = ["fan_outs"]


def fan_outs(own: Sequence[Subject]) -> Iterator[Finding]:
    """Findings of L8, one for each placed table: two keys of the longest list that fans out, placed by different values."""
    for subject in own:
        if isinstance(subject.spec, TableSpec) and subject.spec.place and subject.is_list:
            yield _finding(subject, subject.spec.place)


def _finding(subject: Subject, place: tuple[str, ...]) -> Finding:
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
