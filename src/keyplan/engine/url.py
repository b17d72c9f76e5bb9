"""Engine URLs: `scheme:address?option=value&...`, taken apart and checked. Opening them is the registry's work."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from keyplan.errors import EngineOpenError

__all__ = ["EngineUrl"]

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_SECRET_OPTION = re.compile(r"([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_DIGITS_MAX = 18
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """A parsed URL. `address` is everything between the scheme and the options, percent-decoded; `text` hides secrets."""

    text: str
    scheme: str
    address: str = field(repr=False)
    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "EngineUrl":
        """Take a URL apart. Raises EngineOpenError without a scheme, for an option that is given twice, and for a zero byte."""
        shown = _without_secrets(text)
        match = _SCHEME.match(text)
        if match is None:
            problem = "a store's URL begins with a scheme, as in memory: or lmdb:PATH"
            raise EngineOpenError(url=shown, problem=problem)
        address, _, query = text[match.end() :].partition("?")
        options: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in options:
                raise EngineOpenError(url=shown, problem=f"the option {name} is given twice")
            options[name] = value
        # Why so: a file's name may be of any bytes, and percent-encoded it is text.
        address = unquote(address, errors="surrogateescape")
        if "\x00" in unquote(text):
            # Why here: drivers cut a text off there, and reach another host than the one that was named.
            problem = "it holds a zero byte: a character that no file name can have, and no host, user or password"
            raise EngineOpenError(url=shown, problem=problem)
        return cls(shown, match.group(1).lower(), address, options)

    def refuse(self, problem: str) -> EngineOpenError:
        """Return the error that says why this URL cannot be opened."""
        return EngineOpenError(url=self.text, problem=problem)

    def check_options(self, known: Collection[str]) -> None:
        """Raise EngineOpenError when an option is given that is not in `known`."""
        for name in self.options:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise self.refuse(f"there is no option {name!r}; the options of {self.scheme}: are {listed}")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a yes-or-no option."""
        given = self.options.get(name)
        if given is None:
            return default
        if given.lower() in _TRUE:
            return True
        if given.lower() in _FALSE:
            return False
        raise self.refuse(f"the option {name} takes true or false, not {given!r}")

    def choice(self, name: str, choices: Collection[str], *, default: str) -> str:
        """Return an option that takes one of a few words."""
        given = self.options.get(name, default)
        if given not in choices:
            raise self.refuse(f"the option {name} takes one of {', '.join(choices)}, not {given!r}")
        return given

    def number(self, name: str, *, default: int, minimum: int) -> int:
        """Return an option that takes a whole number."""
        given = self.options.get(name)
        if given is None:
            return default
        is_number = given.isascii() and given.isdigit() and len(given) <= _DIGITS_MAX
        if not is_number or int(given) < minimum:
            raise self.refuse(f"the option {name} takes a whole number of at least {minimum}, not {given!r}")
        return int(given)


def _without_secrets(text: str) -> str:
    """Blank a password in `//user:password@host`, and options whose name speaks of one."""
    # Why up to the last @ before the options: a password may hold any of / : @ itself.
    if "@" in text:
        text = re.sub(r"//([^/?@:]*):[^?]*@", r"//\1:***@", text)
    return _SECRET_OPTION.sub(r"\1***", text)
