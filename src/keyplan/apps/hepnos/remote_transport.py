"""What a HEPnOS server is asked by, whatever it is spoken in: the interface, and the errors that an answer says."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from keyplan import errors
from keyplan.apps.hepnos.errors import DeletedError, MissingError
from keyplan.apps.hepnos.keys import Kind
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineUnavailableError,
    ForbiddenError,
    InvalidInputError,
    KeyplanError,
    UnauthorizedError,
)
from keyplan.operations import Operation

__all__ = ["ENGINE_NAME", "Answer", "Reader", "Transport", "failure_of"]

ENGINE_NAME: Final = "hepnos-server"

_KINDS: Final[dict[str, type[KeyplanError]]] = {
    kind.code.replace("-", "_"): kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, KeyplanError)
}
_KINDS[DeletedError.code.replace("-", "_")] = DeletedError
_KINDS.pop("not_found")  # Why: the server's word for a route that it does not have.


class Answer(NamedTuple):
    """A success: its body, and whether the range of a page goes on behind it."""

    body: bytes
    has_more: bool = False


Reader: TypeAlias = Callable[[bytes], bytes | None]
"""Returns the value at a key, or None. Raises as asking a `Transport` does."""


class Transport(Protocol):
    """A server that is asked. Safe for use by several threads.

    `arguments` are those of the operation, with `kind` and `number` of a database; `ring` is the digest of its description.
    Raises the error that the server answered with; UnauthorizedError; EngineUnavailableError; CommitOutcomeUnknownError when a
    write may have been done. A request that reads is sent again, once, when its connection was at an end; one that writes only
    where the server is known not to have begun it.
    """

    url: str

    def ask(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Answer:
        """Send a request, and return its success."""
        ...

    def ask_in_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Iterator[Answer] | None:
        """Send a request, and yield its success in parts, each as of one state; None where the server answers whole alone.

        What is read meanwhile is read once: a connection that ends within ends it.
        """
        ...

    def reader(self, kind: Kind, number: int, ring: str) -> Reader:
        """Return what reads one value of a database. Why apart: it is most of what is asked, one by one."""
        ...

    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""
        ...


def failure_of(url: str, status: int, body: bytes, *, had_token: bool, is_write: bool) -> KeyplanError:
    """Return the error that an answer says, which is no success."""
    code, message, detail = _error_in(body)
    if status == 401:
        return UnauthorizedError.of_client(url, had_token=had_token)
    kind = _KINDS.get(code)
    if code == "not_found" and "table" in detail:
        kind = MissingError  # Why by that: a route that the server does not have is of no table.
    if kind is not None:
        return kind(**{name: fact for name, fact in detail.items() if name != "self"})
    if status == 403:
        return ForbiddenError(act="anything", problem=f"{url}: {message or 'it was refused'}")
    if status < 500:
        problem = f"{message or 'it is no HEPnOS server'} ({code or status})"
        return InvalidInputError(source=url, problem=problem)
    if is_write and status in {500, 502, 504}:
        return CommitOutcomeUnknownError(engine=ENGINE_NAME, mutations=1)
    return EngineUnavailableError(engine=ENGINE_NAME, problem=f"{url} answered {status}")


def _error_in(raw: bytes) -> tuple[str, str, dict[str, Any]]:
    """The code, message and detail of an answer in keyplan's form; empty for any other."""
    try:
        error = json.loads(raw)["error"]
        code, message, detail = error["code"], error["message"], error["detail"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", "", {}
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(detail, dict)):
        return "", "", {}
    return code, message, detail
