"""Unknown keys in groups, by the place where they depart from the nearest template. Bounded, however many there are."""

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from keyplan.engine import Entry
from keyplan.layout import BoundLayout, Field, Kind, Literal, Meaning, shown_key

__all__ = ["Departure", "Departures"]

_GROUPS_MAX: Final = 256
"""Why: a person reads some twenty; a store that departs in more places needs another layout, not a longer list."""

_DIRECTORIES_MAX: Final = 16
"""Why: a word that differs from key to key is a name, and makes no group."""

_Parts: TypeAlias = tuple[Literal | Field, ...]


@dataclass(slots=True)
class Departure:
    """Unknown keys that depart at one place.

    `item` and `template` are the nearest ones, None when the keys lie outside the layout's root. `place` is what the keys agree
    with: the template up to the part at which they depart, and the directory that they have in its place; outside the root,
    what the keys begin with. `kind` tells unknown keys from namespace keys. `position` is the byte at which the first of them
    departs. `samples` are the first keys.
    """

    kind: Kind
    item: str | None
    template: str | None
    place: str
    position: int
    keys: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    samples: list[bytes] = field(default_factory=list)


class Departures:
    """Collects unknown keys of one layout."""

    def __init__(self, bound: BoundLayout, samples_max: int) -> None:
        self._root = bound.root
        self._samples_max = samples_max
        self._groups: dict[tuple[Kind, str | None, str], Departure] = {}
        self._left_out = 0
        self._parts: dict[str, _Parts] = {
            **{name: table.keys.template.parts for name, table in bound.tables.items()},
            **{name: index.keys.template.parts for name, index in bound.indexes.items()},
        }
        self._directories: dict[str, set[bytes]] = {}
        self._starts: dict[tuple[str, int], re.Pattern[bytes]] = {}

    def add(self, meaning: Meaning, entry: Entry) -> None:
        """Count an unknown key in its group."""
        place = self._place_of(meaning)
        name = (meaning.kind, meaning.item, place)
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= _GROUPS_MAX:
                self._left_out += 1
                return
            group = Departure(meaning.kind, meaning.item, meaning.template, place, meaning.position)
            self._groups[name] = group
        group.keys += 1
        group.key_bytes += len(entry.key)
        group.value_bytes += len(entry.value)
        if len(group.samples) < self._samples_max:
            group.samples.append(entry.key)

    def largest_first(self) -> tuple[tuple[Departure, ...], int]:
        """Return the groups, and the number of keys that are in none because there are too many groups."""
        groups = sorted(self._groups.values(), key=lambda group: (-group.keys, group.item or "", group.place))
        return tuple(groups), self._left_out

    def _place_of(self, meaning: Meaning) -> str:
        raw_key = meaning.raw_key
        parts = self._parts.get(meaning.item or "")
        if parts is None:
            # Outside the root, or nearest to a counter: the directory in which it departs says most.
            end = raw_key.find(b"/", max(meaning.position, 1))
            return shown_key(raw_key[: end + 1 if end >= 0 else meaning.position])
        agreed = raw_key[: meaning.position]
        number, end = len(parts), 0
        while number:
            match = self._start(str(meaning.item), parts, number).match(agreed)
            if match is not None:
                end = match.end()
                break
            number -= 1
        place = "".join(shown_key(part.raw) if isinstance(part, Literal) else part.reference for part in parts[:number])
        if number < len(parts) and isinstance(parts[number], Literal):
            cut = max(end, agreed.rfind(b"/") + 1)
            place += shown_key(raw_key[end:cut])
            place += self._directory(place, raw_key[cut:])
        return place.removeprefix(shown_key(self._root)) if self._root else place

    def _directory(self, place: str, rest: bytes) -> str:
        """The key's own next word where the template has another, when more follows behind it; few of each place."""
        word, slash, _ = rest.partition(b"/")
        if not slash:
            return ""
        known = self._directories.setdefault(place, set())
        if word not in known and len(known) >= _DIRECTORIES_MAX:
            return ""
        known.add(word)
        return shown_key(word + slash)

    def _start(self, item: str, parts: _Parts, number: int) -> re.Pattern[bytes]:
        """The first parts of a template as a pattern. Why not its automaton: a group needs the place, not the proof."""
        pattern = self._starts.get((item, number))
        if pattern is None:
            pattern = re.compile(b"".join(part.language.pattern for part in parts[:number]))
            self._starts[item, number] = pattern
        return pattern
