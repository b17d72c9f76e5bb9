"""L1: two templates that can produce one key. L2: a template that reads one key in two ways."""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice, product

from keyplan.layout.meaning import shown_key
from keyplan.layout.rules.decision import ambiguous_key, key_below
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.reading import readings
from keyplan.layout.rules.subject import Subject

__all__ = ["ambiguities", "collisions"]


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
