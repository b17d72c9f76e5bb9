"""The registry's operations over HTTP, with the signatures and errors of `keyplan.keyspace.KeySpaces`."""

from collections.abc import Mapping
from typing import Any, Final

from keyplan.client.conversation import HttpClient
from keyplan.client.remote import Remote, read_done
from keyplan.errors import KeySpaceNotFoundError
from keyplan.keyspace import Ensured, Header, KeySpace, RegistryOperations
from keyplan.operations import Operation, Place, operations_of

__all__ = ["HttpKeySpaces"]

_NAME_CHARACTERS_MAX: Final = 1_000
"""Why: longer ones are no key space's, and a URL has an end."""

_OPERATIONS: Final = operations_of(RegistryOperations)


class HttpKeySpaces(HttpClient, Remote, RegistryOperations):
    """The registry of a keyplan server. Close it, or use it in a `with` block. Safe for use by several threads.

    `url` is http://HOST:PORT, https://HOST or unix:PATH. `verify` is an ssl.SSLContext for a private authority. Every method
    raises what the same method of `KeySpaces` raises, and EngineUnavailableError, CommitOutcomeUnknownError or
    UnauthorizedError for what can go wrong on the way. Nothing is sent twice.
    """

    engine_name = "registry over http"

    def create(
        self,
        name: str,
        application: str,
        *,
        description: str = "",
        prefix: str | None = None,
        if_not_exists: bool = False,
        adopt_existing_data: bool = False,
        allow_legacy_prefix: bool = False,
    ) -> KeySpace:
        asked = {"name": name, "application": application, "description": description, "prefix": prefix}
        flags = {
            "if_not_exists": if_not_exists,
            "adopt_existing_data": adopt_existing_data,
            "allow_legacy_prefix": allow_legacy_prefix,
        }
        return self._created({**asked, **flags}).keyspace

    def ensure(self, name: str, application: str, *, description: str = "", prefix: str | None = None) -> Ensured:
        asked = {"name": name, "application": application, "description": description, "prefix": prefix}
        return self._created({**asked, "if_not_exists": True})

    def _created(self, asked: Mapping[str, object]) -> Ensured:
        # Why not as the others: only the status tells whether it is new.
        operation = _OPERATIONS["create"]
        status, found = self.send(operation, asked)
        made = read_done(operation, lambda: KeySpace.from_json(found), engine=self.engine_name)
        return Ensured(made, status == 201)

    def header(self) -> Header | None:
        try:
            found: Header = self.perform(_OPERATIONS["header"], {})
        except KeySpaceNotFoundError:
            return None
        return found

    def send(self, operation: Operation, arguments: Mapping[str, Any]) -> tuple[int, Any]:
        """Send a request. Raises KeySpaceNotFoundError for a name that a path cannot have, or that would mean another path."""
        for parameter in operation.at(Place.PATH):
            name = arguments[parameter.name]
            is_path = name in {"", ".", ".."} or "/" in name
            if is_path or len(name) > _NAME_CHARACTERS_MAX or not name.isprintable():
                raise KeySpaceNotFoundError(name=name)
        return super().send(operation, arguments)
