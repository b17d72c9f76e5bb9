"""What a principal is in the words of an application: labels, which say where its grants on operations count.

user:ann                    the name under which it acts; without one, the principal's own
project:shop                a project that it may act in; project:* for all
partition:east1             a partition that it may act in, by name or UUID; partition:* for all
role:admin                  a role that it has

A label grants nothing by itself, and takes nothing away. `keyplan runm serve` reads them.
"""

from typing import Final, NamedTuple

from keyplan.errors import InvalidInputError

__all__ = ["ANY", "LABEL_KINDS", "Label", "label_of"]

ANY: Final = "*"
"""The name of a label for all of its kind."""

LABEL_KINDS: Final = ("user", "project", "partition", "role")

_ANY_KINDS: Final = ("project", "partition")
_NAME_CHARACTERS_MAX: Final = 256


class Label(NamedTuple):
    """One label: its kind, and the name that it gives."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def label_of(words: str, *, source: str) -> Label:
    """Return the label that words are. Raises InvalidInputError, which names `source`, for words of another form."""
    kind, colon, name = words.partition(":")
    is_name = bool(name) and name.isprintable() and len(name) <= _NAME_CHARACTERS_MAX
    if not (colon and kind in LABEL_KINDS and is_name):
        forms = ", ".join(f"{one}:NAME" for one in LABEL_KINDS)
        raise InvalidInputError(source=source, problem=f"{words!r} is no label: write one of {forms}")
    if name == ANY and kind not in _ANY_KINDS:
        raise InvalidInputError(source=source, problem=f"{words!r} would be every {kind}: name those that are meant")
    return Label(kind, name)
