"""Answers that are no success: a status and the words that CloudChamber's users know (Appendix C), and which error means which.

A record's value never stands in them.
"""

import json
from typing import Final

from keyplan.errors import CorruptionError, KeyplanError, RecordError
from keyplan.layout import shown_key
from keyplan.server import AnswerError, answer_error_of

__all__ = [
    "PERMISSION_DENIED",
    "RefusedError",
    "already_exists",
    "invalid",
    "newer_version",
    "no_indexes",
    "no_session",
    "no_such_page",
    "not_a_number",
    "not_found",
    "permission_denied",
    "quoted",
    "refusal_of",
]

PERMISSION_DENIED: Final = "permission denied"


class RefusedError(Exception):
    """A request is answered with this status, and this text after "CloudChamber: "."""

    def __init__(self, status: int, text: str, *, is_bare: bool = False, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.text = text if is_bare else f"CloudChamber: {text}"
        self.headers = headers or {}
        super().__init__(self.text)


def quoted(text: str) -> str:
    """Return a text in quotation marks, as the original prints names: with escapes for what is not printable."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def permission_denied() -> RefusedError:
    """The caller may not do this, or is nobody."""
    return RefusedError(403, PERMISSION_DENIED)


def no_session() -> RefusedError:
    """Nobody is logged in."""
    return RefusedError(403, "no session active")


def no_indexes() -> RefusedError:
    """What was asked takes an index, and the store keeps none."""
    return RefusedError(409, "the store keeps no indexes; 'keyplan cloudchamber index' has them kept")


def invalid(text: str) -> RefusedError:
    """What was sent cannot be taken."""
    return RefusedError(400, text)


def not_a_number(field: str, given: str, *, is_positive: bool) -> RefusedError:
    """A word of a query is no number, or is negative where it must not be."""
    kind = "positive decimal number" if is_positive else "decimal number"
    return invalid(f"the {quoted(field)} field's value {quoted(given)} could not be parsed as a {kind}")


def not_found(kind: str, name: str) -> RefusedError:
    """There is nothing of that name: `user "bob" not found`."""
    return RefusedError(404, f"{kind} {quoted(name)} not found")


def already_exists(kind: str, name: str) -> RefusedError:
    """The name is taken; 400, as the original answers."""
    return RefusedError(400, f"{kind} {quoted(name)} already exists")


def newer_version(kind: str, name: str) -> RefusedError:
    """Somebody else has written it since it was read."""
    return RefusedError(409, f"{kind} {quoted(name)} has a newer version than expected")


def no_such_page() -> RefusedError:
    """The path leads nowhere; the words are those of the original's file server."""
    return RefusedError(404, "404 page not found", is_bare=True)


def refusal_of(error: KeyplanError | AnswerError) -> RefusedError:
    """Return the refusal that an error of keyplan, or of its server, is answered with."""
    if isinstance(error, AnswerError):
        return RefusedError(error.status, error.message, headers=error.headers)
    answer = answer_error_of(error)
    problem = error.facts.get("problem") if isinstance(error, RecordError) else None
    if isinstance(error, CorruptionError) and "raw_key" in error.facts:
        # Why named: who asked may read the record, or delete it, and `keyplan check` names it likewise.
        problem = shown_key(bytes.fromhex(str(error.facts["raw_key"])))
    text = answer.message if problem is None else f"{answer.message}: {problem}"
    return RefusedError(answer.status, text, headers=answer.headers)
