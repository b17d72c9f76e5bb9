"""Who may perform an operation: what has to be granted, and on what. It is part of the operation's declaration.

    needs=Need(Act.ADMINISTER, key_space("name"))

says that a caller needs the grant to administer the key space that the argument `name` names.
"""

from enum import StrEnum, auto
from typing import Final, NamedTuple

__all__ = ["ITSELF", "NOTHING", "Act", "Need", "On", "OnKind", "application", "key_space", "prefix"]


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
