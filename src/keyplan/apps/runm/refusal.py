"""Answers that are no success: the one exception that carries a status of gRPC and a text."""

from typing import Final, TypeVar

from keyplan.grpc_status import GrpcStatus

__all__ = [
    "RefusedError",
    "already_exists",
    "denied",
    "found",
    "guessed_too_often",
    "invalid",
    "missing",
    "not_found",
    "property_named",
    "unauthenticated",
]

T = TypeVar("T")

_NAME_MAX: Final = 80
"""Characters of a name in a text. Why: it travels in a header, and nobody reads more."""


class RefusedError(Exception):
    """A call that is answered with a status and a text, both of which the contract names; `who` asked, where it is known."""

    def __init__(self, status: GrpcStatus, text: str, *, who: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.who = who


def missing(text: str) -> RefusedError:
    """Something that a call needs was not given, or does not exist: FAILED_PRECONDITION, as in the original."""
    return RefusedError(GrpcStatus.FAILED_PRECONDITION, text)


def invalid(text: str) -> RefusedError:
    """Something was given that cannot be: INVALID_ARGUMENT. The text quotes no values."""
    return RefusedError(GrpcStatus.INVALID_ARGUMENT, text)


def property_named(key: str) -> str:
    """Return the words for a property in a refusal: its key, which is a name and no value, cut where it is long."""
    return f"property {key}" if len(key) <= _NAME_MAX else f"property {key[:_NAME_MAX]}..."


def denied(text: str, *, who: str = "") -> RefusedError:
    """The caller may not do that: PERMISSION_DENIED. The text never tells whether something is there."""
    return RefusedError(GrpcStatus.PERMISSION_DENIED, text, who=who)


def guessed_too_often() -> RefusedError:
    """Nobody looks at this token: RESOURCE_EXHAUSTED."""
    return RefusedError(GrpcStatus.RESOURCE_EXHAUSTED, "too many tokens from there were wrong: wait.")


def unauthenticated() -> RefusedError:
    """Nobody knows who asks: UNAUTHENTICATED."""
    return RefusedError(GrpcStatus.UNAUTHENTICATED, "a token is needed, or the one given is not known.")


def not_found(text: str = "object could not be found.") -> RefusedError:
    """What is not there, and what the caller may not see: one answer for both, so that nothing is given away."""
    return RefusedError(GrpcStatus.NOT_FOUND, text)


def found(record: T | None) -> T:
    """Return a record that is there. Raises RefusedError, NOT_FOUND, for None."""
    if record is None:
        raise not_found()
    return record


def already_exists(text: str = "duplicate record.") -> RefusedError:
    """A name or a UUID is taken."""
    return RefusedError(GrpcStatus.ALREADY_EXISTS, text)
