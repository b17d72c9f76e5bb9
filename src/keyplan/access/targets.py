"""What a grant may be on, and the words for it: one spelling in access files, on the command line and in messages.

everything                  all that is stored, and every operation
keyspace:orders             a key space
application:shop            the key spaces of an application, also those that it will have
prefix:/service/batman/     the keys that begin so; prefix:0x2f73 for bytes that are no text
operation:getAudit          an operation by its name, for what concerns no key space alone
operation:runm.*            all operations whose names begin with runm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keyplan.errors import InvalidInputError

__all__ = ["EVERYTHING", "Everything", "OnApplication", "OnKeySpace", "OnOperation", "OnPrefix", "Target", "target_of"]

_NAME_CHARACTERS_MAX: Final = 256
"""Why: no name in keyplan is longer; a message shows it whole."""


@dataclass(frozen=True, slots=True)
class Everything:
    """All that is stored, and every operation."""

    def covers(self, asked: "Target") -> bool:
        """True: nothing is outside."""
        return True

    def __str__(self) -> str:
        return "everything"


@dataclass(frozen=True, slots=True)
class OnKeySpace:
    """A key space by its name. Who asks may know its application, whose grants then cover it; a grant never names one."""

    name: str
    application: str | None = None

    def covers(self, asked: "Target") -> bool:
        """Tell whether a grant on this is one on what is asked."""
        return isinstance(asked, OnKeySpace) and asked.name == self.name

    def __str__(self) -> str:
        return f"keyspace:{self.name}"


@dataclass(frozen=True, slots=True)
class OnApplication:
    """The key spaces of an application, also those that it will have. Which they are, the registry says."""

    name: str

    def covers(self, asked: "Target") -> bool:
        """Tell whether a grant on this is one on what is asked."""
        if isinstance(asked, OnKeySpace):
            return asked.application == self.name
        return asked == self

    def __str__(self) -> str:
        return f"application:{self.name}"


@dataclass(frozen=True, slots=True)
class OnPrefix:
    """The raw keys that begin with some bytes, of which there is one at least: no prefix is everything."""

    prefix: bytes

    def covers(self, asked: "Target") -> bool:
        """Tell whether a grant on this is one on what is asked."""
        return isinstance(asked, OnPrefix) and asked.prefix.startswith(self.prefix)

    def __str__(self) -> str:
        try:
            text = self.prefix.decode()
        except UnicodeDecodeError:
            text = ""
        is_shown = text.isprintable() and not text.startswith("0x")
        return f"prefix:{text}" if is_shown and text else f"prefix:0x{self.prefix.hex()}"


@dataclass(frozen=True, slots=True)
class OnOperation:
    """An operation by its declared name; with `.*` at the end, all whose names begin with what stands before the star."""

    name: str

    def covers(self, asked: "Target") -> bool:
        """Tell whether a grant on this is one on what is asked."""
        is_family = self.name.endswith(".*") and isinstance(asked, OnOperation)
        return asked == self or (is_family and str(asked).startswith(str(self)[:-1]))

    def __str__(self) -> str:
        return f"operation:{self.name}"


Target = Everything | OnKeySpace | OnApplication | OnPrefix | OnOperation

EVERYTHING: Final = Everything()
"""The only one of its class."""

_NAMED: Final[dict[str, Callable[[str], Target]]] = {
    "keyspace": OnKeySpace,
    "application": OnApplication,
    "operation": OnOperation,
}


def target_of(words: str, *, source: str) -> Target:
    """Return the target that words name. Raises InvalidInputError, which names `source`, for words of another form."""
    if words == str(EVERYTHING):
        return EVERYTHING
    kind, colon, name = words.partition(":")
    if kind == "prefix" and name:
        return OnPrefix(_bytes_of(name, source))
    is_name = bool(name) and name.isprintable() and " " not in name and len(name) <= _NAME_CHARACTERS_MAX
    if colon and kind in _NAMED and is_name:
        return _NAMED[kind](name)
    problem = (
        f"{words!r} is nothing that a grant can be on: write everything, keyspace:NAME, application:NAME, prefix:KEY or"
        " operation:NAME"
    )
    raise InvalidInputError(source=source, problem=problem)


def _bytes_of(text: str, source: str) -> bytes:
    if not text.startswith("0x"):
        # Why: what a command line has that is no text are bytes all the same.
        return text.encode("utf-8", "surrogateescape")
    try:
        found = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        found = b""
    if not found:
        problem = f"prefix:{text} has no bytes: behind 0x stand two hexadecimal digits for each"
        raise InvalidInputError(source=source, problem=problem)
    return found
