"""Who asks a registry, and what opening a key space asks of one, wherever it is."""

from enum import StrEnum, auto
from typing import Protocol

from keyplan.keyspace.answers import Ensured, KeySpace

__all__ = ["Registry", "Role"]


class Role(StrEnum):
    """Who asks. Clients make, read and describe key spaces, while the registry is open to them; administrators do all."""

    ADMIN = auto()
    CLIENT = auto()


class Registry(Protocol):
    """What opening a key space asks of a registry, in the store or behind HTTP."""

    def get(self, name: str) -> KeySpace:
        """Return the key space. Raises KeySpaceNotFoundError; KeySpaceApiDisabledError where there is no registry."""
        ...

    def ensure(self, name: str, application: str) -> Ensured:
        """Return the key space of that name and application, made when there was none. Raises OwnerConflictError, ..."""
        ...
