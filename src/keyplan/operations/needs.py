"""Who may perform an operation, and what it changes: parts of its declaration.

    needs=Need(Act.ADMINISTER, key_space("name")), change=Change("disable", "{name}")

says that a caller needs the grant to administer the key space that the argument `name` names, and that an audit log notes the
act `disable` on that name. What only reads, and shows what is kept from others, says so instead:

    needs=Need(Act.AUDIT, ITSELF), discloses=Disclosure("reveal", "{area} {raw_key}")

An audit log notes each such act, and each that was refused.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

__all__ = [
    "ITSELF",
    "NOTHING",
    "Act",
    "Change",
    "Disclosure",
    "Need",
    "On",
    "OnKind",
    "application",
    "key_space",
    "prefix",
]


class Act(StrEnum):
    """What may be granted.

    READ and WRITE are for what is stored. ADMINISTER is for what decides about it: key spaces and their bounds, accounts,
    definitions, switches. AUDIT is for what tells of others' acts, and for examining everything.
    """

    READ = auto()
    WRITE = auto()
    ADMINISTER = auto()
    AUDIT = auto()


class OnKind(StrEnum):
    """What a grant may be on.

    NOTHING: no grant is needed; who asks is answered with what they may see. OPERATION: the operation itself, by its name.
    """

    NOTHING = auto()
    KEY_SPACE = "key space"
    APPLICATION = auto()
    PREFIX = auto()
    OPERATION = auto()


class On(NamedTuple):
    """What an operation acts on; `parameter` is the parameter of the method that names the key space, application or prefix."""

    kind: OnKind
    parameter: str = ""


class Need(NamedTuple):
    """What a caller of an operation has to be granted, and on what."""

    act: Act
    on: On


NOTHING: Final = On(OnKind.NOTHING)
"""What needs no grant: everybody may call it."""

ITSELF: Final = On(OnKind.OPERATION)
"""The operation itself: for what concerns no key space alone."""


def key_space(parameter: str) -> On:
    """Return the key space that a parameter names."""
    return On(OnKind.KEY_SPACE, parameter)


def application(parameter: str) -> On:
    """Return the application that a parameter names: all its key spaces, and those that it will have."""
    return On(OnKind.APPLICATION, parameter)


def prefix(parameter: str) -> On:
    """Return the keys that begin with what a parameter gives."""
    return On(OnKind.PREFIX, parameter)


_FIELD: Final = re.compile(r"\{([^}]*)\}")


class Change(NamedTuple):
    """What an operation changes, as an audit log has it: the act, and its subject, in which parameters stand in braces.

    `{answer}` is what was returned. A dot leads to a field: `{answer.object.uuid}`. Without a subject it is all that there is.
    """

    act: str
    subject: str = ""

    @property
    def named(self) -> frozenset[str]:
        """The parameters that the subject names, `answer` among them where it does."""
        return frozenset(path.partition(".")[0] for path in _FIELD.findall(self.subject))

    def subject_of(self, arguments: Mapping[str, Any]) -> str:
        """Return the subject of an act with these arguments, and with what was returned as `answer`.

        Lists have commas; those within an item are escaped, so that no list looks like another.
        """

        def found(match: re.Match[str]) -> str:
            name, *fields = match[1].split(".")
            value = arguments[name]
            for field in fields:
                value = getattr(value, field)
            is_many = isinstance(value, Iterable) and not isinstance(value, str | bytes)
            return ",".join(map(_item_of, value)) if is_many else _text_of(value)

        return _FIELD.sub(found, self.subject)


class Disclosure(Change):
    """What an operation shows that is kept from whoever may only read: noted as a change is, also where it is refused."""


def _item_of(value: object) -> str:
    # Why bytes before they are text: the backslash of a byte that is none stays as it is.
    if isinstance(value, bytes):
        return _text_of(value.replace(b"\\", b"\\\\").replace(b",", b"\\,"))
    return _text_of(value).replace("\\", "\\\\").replace(",", "\\,")


def _text_of(value: object) -> str:
    """A value as people write it: a word of a few by the word, bytes as the text that they are."""
    if isinstance(value, Enum):
        return str(value.value)
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
