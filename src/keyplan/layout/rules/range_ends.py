"""L9: a reader that ends its range at prefix + FF loses the keys that go on with FF. keyplan ends at the prefix's successor."""

from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.codec import ANY_BYTE, Bytes, Language, Repeat, literal
from keyplan.layout.rules.decision import key_below
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.subject import Subject

__all__ = ["lost_range_ends"]

_FF: Final[Language] = literal(b"\xff") + Repeat(Bytes(ANY_BYTE))


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
