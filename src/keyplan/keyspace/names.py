"""What the registry accepts as words: names of key spaces, of applications, descriptions; and times as it writes them."""

import re
from datetime import UTC, datetime
from typing import Final

from keyplan.errors import InvalidArgumentError, InvalidNameError
from keyplan.keyspace.layout import NAME_BYTES_MAX

__all__ = [
    "APPLICATION_CHARACTERS_MAX",
    "DESCRIPTION_CHARACTERS_MAX",
    "checked_application",
    "checked_description",
    "checked_name",
    "is_name",
    "seconds_of",
    "time_text",
]

APPLICATION_CHARACTERS_MAX: Final = 128
"""KS-14."""

DESCRIPTION_CHARACTERS_MAX: Final = 4096
"""Why: it stands in every answer that has the key space, and a list has up to a thousand of them."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{NAME_BYTES_MAX - 1}}}")


def checked_name(name: object) -> str:
    """Return a name that a key space can have (KS-13). Raises InvalidArgumentError without one, InvalidNameError."""
    if name is None:
        raise InvalidArgumentError(argument="name", problem="it is required")
    if not isinstance(name, str):
        raise InvalidArgumentError(argument="name", problem="it is a text")
    if _NAME.fullmatch(name) is None:
        problem = f"1 to {NAME_BYTES_MAX} letters, digits, '_', '.' and '-', not beginning with '.' or '-'"
        raise InvalidNameError(name=name, problem=problem)
    return name


def is_name(name: str) -> bool:
    """Tell whether a key space can have the name."""
    return _NAME.fullmatch(name) is not None


def checked_application(application: object) -> str:
    """Return an application's name (KS-14). Raises InvalidArgumentError."""
    if not application or not isinstance(application, str):
        raise InvalidArgumentError(argument="application", problem="it is required, and is a text")
    if len(application) > APPLICATION_CHARACTERS_MAX:
        raise InvalidArgumentError(argument="application", problem=f"at most {APPLICATION_CHARACTERS_MAX} characters")
    if not is_application(application):
        problem = (
            f"{application!r} has a blank, a star or what does not print: leave it out; access files could not name it"
        )
        raise InvalidArgumentError(argument="application", problem=problem)
    return _spellable("application", application)


def is_application(application: str) -> bool:
    """Tell whether a grant can name the application: no blank, no star, nothing that does not print."""
    return application.isprintable() and " " not in application and "*" not in application


def checked_description(description: object) -> str:
    """Return a description, which may be empty. Raises InvalidArgumentError."""
    if not isinstance(description, str):
        raise InvalidArgumentError(argument="description", problem="it is required, and is a text")
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        raise InvalidArgumentError(argument="description", problem=f"at most {DESCRIPTION_CHARACTERS_MAX} characters")
    return _spellable("description", description)


def _spellable(argument: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(argument=argument, problem="it holds half a character") from None
    return text


def time_text(seconds: float) -> str:
    """Return a time since 1970 as the registry writes it: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Return the time since 1970 that `time_text` has written."""
    return datetime.fromisoformat(text).timestamp()
