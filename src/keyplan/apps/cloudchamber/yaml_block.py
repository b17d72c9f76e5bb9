"""Reading a mapping of a YAML file by the names and types that its place asks for; every mistake names file, line and place."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NoReturn, TypeVar, cast

from keyplan.apps.cloudchamber.yaml_file import YamlItem, YamlMapping, YamlNode, YamlScalar, YamlSequence
from keyplan.errors import InvalidInputError

__all__ = ["Block", "FileReader"]

E = TypeVar("E", bound=StrEnum)
R = TypeVar("R")

_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DIGITS_MAX: Final = 18
"""Why: every number of 18 digits fits into 64 bits, and no bound of the format is near it."""


class FileReader:
    """One file while it is read: its name for errors, and what was read from shared nodes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.shared: dict[tuple[int, str], object] = {}

    def refuse(self, line: int, place: str, problem: str) -> NoReturn:
        """Raise InvalidInputError."""
        facts = {"place": place} if place else {}
        raise InvalidInputError(source=self.source, line=line, **facts, problem=problem)

    def block(self, node: YamlNode, place: str, what: str) -> "Block":
        """Return the mapping at a node."""
        if not isinstance(node, YamlMapping):
            self.refuse(node.line, place, f"{what} should hold keys and values, not {_kind(node)}")
        return Block(self, node, place)


class Block:
    """One mapping. Keys are named as the format spells them, and found in any case."""

    def __init__(self, file: FileReader, mapping: YamlMapping, place: str) -> None:
        self._file = file
        self._items = mapping.items
        self.line = mapping.line
        self.place = place

    def refuse(self, problem: str) -> NoReturn:
        """Raise InvalidInputError about the block itself."""
        self._file.refuse(self.line, self.place, problem)

    def has(self, name: str) -> bool:
        """Tell whether the key is there."""
        return name.lower() in self._items

    def check_known(self, *known: str) -> None:
        """Refuse any other key."""
        allowed = {name.lower() for name in known}
        for folded, item in self._items.items():
            if folded not in allowed:
                expected = f"; here can be {', '.join(known)}" if known else "; here can be nothing"
                self._file.refuse(item.line, self.place, f"there is no key {item.name!r}{expected}")

    def text(self, name: str) -> str:
        """The text at the key as it is written; empty when there is none."""
        scalar = self._scalar(name, "a text")
        return scalar.text if scalar is not None else ""

    def name(self, name: str) -> str:
        """The text at the key, which must be there."""
        text = self.text(name)
        if not text:
            self.refuse(f"the key {name} is missing or empty")
        return text

    def number(self, name: str) -> int:
        """The whole number at the key; 0 when there is none."""
        scalar = self._scalar(name, "a whole number")
        if scalar is None:
            return 0
        if not _WHOLE.fullmatch(scalar.text):
            self._refuse_scalar(name, scalar, "a whole number is needed")
        if len(scalar.text) > _DIGITS_MAX:
            self._refuse_scalar(name, scalar, f"a whole number of at most {_DIGITS_MAX} digits is needed")
        return int(scalar.text)

    def index(self, name: str) -> int:
        """The whole number at the key, which must be there and not negative."""
        if self._scalar(name, "a whole number") is None:
            self.refuse(f"the key {name} is missing")
        number = self.number(name)
        if number < 0:
            self.refuse(f"{name} is {number}; it must not be negative")
        return number

    def truth(self, name: str) -> bool:
        """The truth value at the key; False when there is none."""
        scalar = self._scalar(name, "true or false")
        if scalar is None:
            return False
        truth = _TRUTHS.get(scalar.text.lower())
        if truth is None:
            self._refuse_scalar(name, scalar, "true or false is needed")
        return truth

    def choice(self, name: str, enumeration: type[E]) -> E:
        """The enumerator at the key, in any case; the first one when there is none."""
        members = list(enumeration)
        scalar = self._scalar(name, "a word")
        if scalar is None:
            return members[0]
        found = next((member for member in members if str(member).lower() == scalar.text.lower()), None)
        if found is None:
            self._refuse_scalar(name, scalar, f"one of {', '.join(members)} is needed")
        return found

    def part(self, name: str, known: tuple[str, ...]) -> "Block | None":
        """The mapping at the key, or None."""
        item = self._item(name)
        if item is None:
            return None
        part = self._file.block(item.node, self._within(name), name)
        part.check_known(*known)
        return part

    def parts(self, name: str, known: tuple[str, ...] | None) -> "list[Block]":
        """The mappings in the list at the key; none when there is no list. `known` None: the caller checks their keys."""
        item = self._item(name)
        if item is None:
            return []
        if not isinstance(item.node, YamlSequence):
            self._file.refuse(item.line, self.place, f"{name} should be a list, not {_kind(item.node)}")
        found: list[Block] = []
        for number, node in enumerate(item.node.items, start=1):
            part = self._file.block(node, f"{self._within(name)}[{number}]", f"each of {name}")
            if known is not None:
                part.check_known(*known)
            found.append(part)
        return found

    def shared(self, name: str, read: Callable[[], R]) -> R:
        """What `read` makes of the node at the key; read once for all places that alias it."""
        item = self._item(name)
        if item is None:
            return read()
        key = (id(item.node), name)
        if key not in self._file.shared:
            self._file.shared[key] = read()
        return cast("R", self._file.shared[key])

    def _item(self, name: str) -> YamlItem | None:
        item = self._items.get(name.lower())
        return None if item is None or _is_nothing(item.node) else item

    def _scalar(self, name: str, what: str) -> YamlScalar | None:
        item = self._item(name)
        if item is None:
            return None
        if not isinstance(item.node, YamlScalar):
            self._file.refuse(item.line, self._within(name), f"{what} is needed, not {_kind(item.node)}")
        return item.node

    def _refuse_scalar(self, name: str, scalar: YamlScalar, problem: str) -> NoReturn:
        shown = scalar.text if len(scalar.text) <= 40 else scalar.text[:40] + "..."
        self._file.refuse(scalar.line, self._within(name), f"{problem}, not {shown!r}")

    def _within(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def _is_nothing(node: YamlNode) -> bool:
    return isinstance(node, YamlScalar) and node.is_plain and node.text in _NOTHING


def _kind(node: YamlNode) -> str:
    return (
        "a single value"
        if isinstance(node, YamlScalar)
        else "a list"
        if isinstance(node, YamlSequence)
        else "a mapping"
    )
