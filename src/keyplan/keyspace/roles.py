"""Who asks a registry, what they may do, and what opening a key space asks of one, wherever it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum, auto
from typing import Final, NamedTuple, Protocol

from keyplan.errors import ForbiddenError, KeySpaceApiDisabledError
from keyplan.keyspace.answers import Ensured, KeySpace
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.records import Header
from keyplan.keyspace.transactions import RegistryTransactions, configuration_of, header_of

__all__ = ["Permissions", "Registry", "Role"]

_REMEDY: Final = "an administrator opens one by `keyplan keyspace config keyspace-api-enabled=true`"


class Role(StrEnum):
    """Who asks. Clients make, read and describe key spaces, while the registry is open to them; administrators do all."""

    ADMIN = auto()
    CLIENT = auto()


class Registry(Protocol):
    """What opening a key space asks of a registry, in the store or behind HTTP."""

    def header(self) -> Header | None:
        """Return the registry's header, which names its cluster; None where there is no registry."""
        ...

    def get(self, name: str) -> KeySpace:
        """Return the key space. Raises KeySpaceNotFoundError; KeySpaceApiDisabledError where there is no registry."""
        ...

    def ensure(self, name: str, application: str) -> Ensured:
        """Return the key space of that name and application, made when there was none. Raises OwnerConflictError, ..."""
        ...


class Permissions(NamedTuple):
    """What a role may do with a registry. A client meets a registry only while it is open to applications."""

    role: Role
    transactions: RegistryTransactions

    @contextmanager
    def look(self) -> Iterator[KeySpaceRegistry]:
        """Give the registry as of one state, for reading. Raises KeySpaceApiDisabledError."""
        with self.transactions.look() as registry:
            self.check_open(registry)
            yield registry

    def check_open(self, registry: KeySpaceRegistry) -> None:
        """Raise KeySpaceApiDisabledError for a client while there is no registry, or `keyspace-api-enabled` is false."""
        if self.role is Role.ADMIN:
            return
        if header_of(registry) is None:
            raise KeySpaceApiDisabledError(problem=f"there is none in this store: {_REMEDY}")
        if not configuration_of(registry).keyspace_api_enabled:
            raise KeySpaceApiDisabledError(problem=f"keyspace-api-enabled is false: {_REMEDY}")

    def require_admin(self, act: str) -> None:
        """Raise ForbiddenError for a client; KeySpaceApiDisabledError, which it may fall back upon, comes first."""
        if self.role is not Role.ADMIN:
            with self.look():
                raise ForbiddenError(act=act)
