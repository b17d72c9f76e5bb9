"""Regular expressions of definitions: matched by RE2, in time that grows with the text alone, whatever the expression is.

Definitions come from clients; Python's own engine can be kept busy for hours by one line of theirs. What RE2 does not know,
look-around and references back, is refused when the definition is set.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

import re2

__all__ = ["PATTERN_CHARACTERS_MAX", "has_match", "is_pattern", "pattern_of_others"]

PATTERN_CHARACTERS_MAX: Final = 1_000

_MEMORY_BYTES_MAX: Final = 1 << 20
"""Of one compiled expression; also what bounds repetitions within repetitions."""

_CODE_POINT: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})")


_FREE_KEY: Final = re.compile(r"[a-zA-Z0-9]*")
_OTHERS: Final = re.compile(r"\^\(\?!\(\?:([a-zA-Z0-9|]*)\)\$\)\[a-zA-Z0-9\]\*\$")


def pattern_of_others(described: Collection[str]) -> str:
    """Return the expression for keys of letters and digits that are none of those described.

    Why with a look-ahead: JSON Schema has no other word for it, and every validator shall read our schemas. It is the one
    look-ahead that is known here.
    """
    free = sorted(key for key in described if _FREE_KEY.fullmatch(key))
    return f"^(?!(?:{'|'.join(free)})$)[a-zA-Z0-9]*$" if free else "^[a-zA-Z0-9]*$"


def is_pattern(text: str) -> bool:
    """Whether a text is an expression that can be matched in linear time."""
    if _OTHERS.fullmatch(text):
        return True
    try:
        _compiled(text)
    except (re2.error, ValueError):
        return False
    return True


def has_match(pattern: str, text: str) -> bool:
    """Whether an expression matches anywhere in a text, as JSON Schema asks. Raises ValueError for what is no expression."""
    others = _OTHERS.fullmatch(pattern)
    if others:
        return _FREE_KEY.fullmatch(text) is not None and text not in others[1].split("|")
    try:
        return _compiled(pattern).search(text) is not None
    except re2.error as error:
        raise ValueError(pattern) from error


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> Any:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise ValueError(pattern)
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    options.log_errors = False  # Why: the log would be standard error, and hold what a client sent.
    # Why rewritten: JSON Schema's dialect writes a code point as \uXXXX, which RE2 spells otherwise.
    return re2.compile(_CODE_POINT.sub(r"\1\\x{\2}", pattern), options)
