"""From any byte string to its meaning in a layout. Never fails: what no template spells is unknown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from keyplan.layout.compile import CompiledKeys
from keyplan.layout.spec import CounterSpec, IndexSpec, ItemSpec
from keyplan.layout.template import Template

__all__ = ["Kind", "Meaning", "MeaningFinder", "raw_key_of", "shown_key"]


class Kind(Enum):
    """What a raw key is in a layout."""

    RECORD = "record"
    INDEX_ENTRY = "index entry"
    COUNTER = "counter"
    NAMESPACE = "namespace"
    """A text key that ends in "/" and has templates below it, but is none: some programs write such keys as directories."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a raw key is.

    `item` names the table, index or counter, `template` its template below the root, `fields` the key's fields by name, `key`
    the Python key. For an unknown key `item` and `template` are the nearest ones and `position` is the number of bytes that
    agree with it; they are None, and `position` counts the bytes that agree with the root, when the key is not below the root.
    """

    kind: Kind
    raw_key: bytes
    layout: str
    item: str | None = None
    template: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    key: object | None = None
    position: int = 0

    @property
    def is_known(self) -> bool:
        return self.kind is not Kind.UNKNOWN

    def __str__(self) -> str:
        shown = shown_key(self.raw_key)
        if self.is_known and self.kind is not Kind.NAMESPACE:
            fields = ", ".join(f"{name}={value}" for name, value in self.fields.items())
            return f"{shown}: {self.kind.value} of {self.item}" + (f" ({fields})" if fields else "")
        if self.kind is Kind.NAMESPACE:
            return f"{shown}: a namespace key, not a record"
        if self.item is None:
            return f"{shown}: not below the root of {self.layout}; departs at byte {self.position}"
        return f"{shown}: unknown; nearest is {self.item}, {self.template}; departs at byte {self.position}"


class _Counter(Protocol):
    @property
    def spec(self) -> CounterSpec: ...

    @property
    def raw_key(self) -> bytes: ...


class MeaningFinder:
    """Finds the meaning of raw keys in one bound layout."""

    def __init__(
        self,
        layout: str,
        root: bytes,
        items: Mapping[str, ItemSpec],
        compiled: Mapping[str, CompiledKeys],
        counters: Mapping[str, _Counter],
    ) -> None:
        self._layout = layout
        self._root = root
        self._items = items
        self._compiled = [(name, keys, keys.prefix(())) for name, keys in compiled.items()]
        self._counters = {counter.raw_key: counter.spec for counter in counters.values()}

    def find(self, raw_key: bytes) -> Meaning:
        """Return the meaning of `raw_key`; the first template declared when two can spell it (lint rule L1)."""
        for meaning in self.all_meanings(raw_key):
            return meaning
        return self._unknown(raw_key)

    def all_meanings(self, raw_key: bytes) -> Iterator[Meaning]:
        """Yield every record, index entry or counter that the key can be read as."""
        counter = self._counters.get(raw_key)
        if counter is not None:
            yield Meaning(
                Kind.COUNTER, raw_key, self._layout, counter.name, counter.template.source, {}, (), len(raw_key)
            )
        for name, keys, prefix in self._compiled:
            if not raw_key.startswith(prefix):
                continue
            key = keys.decode(raw_key)
            if key is None:
                continue
            spec = self._items[name]
            kind = Kind.INDEX_ENTRY if isinstance(spec, IndexSpec) else Kind.RECORD
            fields = dict(zip(keys.template.field_names, keys.shape.split(key), strict=True))
            yield Meaning(kind, raw_key, self._layout, name, spec.template.source, fields, key, len(raw_key))

    def _unknown(self, raw_key: bytes) -> Meaning:
        if not raw_key.startswith(self._root):
            return Meaning(Kind.UNKNOWN, raw_key, self._layout, position=_agreement(raw_key, self._root))
        best, nearest = -1, None
        for name, keys, prefix in self._compiled:
            is_below = raw_key.startswith(prefix)
            position = _departure(keys.template, raw_key) if is_below else _agreement(raw_key, prefix)
            if position > best:
                best, nearest = position, name
        for raw_counter, counter in self._counters.items():
            position = _agreement(raw_key, raw_counter)
            if position > best:
                best, nearest = position, counter.name
        if nearest is None:
            return Meaning(Kind.UNKNOWN, raw_key, self._layout, position=len(self._root))
        source = self._items[nearest].template
        is_directory = source.is_text and raw_key.endswith(b"/") and best == len(raw_key)
        kind = Kind.NAMESPACE if is_directory else Kind.UNKNOWN
        return Meaning(kind, raw_key, self._layout, nearest, source.source, position=best)


def shown_key(raw_key: bytes) -> str:
    r"""A raw key for people: as text when all of it prints, else with \\xNN escapes; a backslash is doubled."""
    try:
        text = raw_key.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and "\\" not in text and text:
        return text
    return "".join(
        chr(b) if 0x20 <= b <= 0x7E and b != 0x5C else "\\\\" if b == 0x5C else f"\\x{b:02x}" for b in raw_key
    )


def raw_key_of(shown: str) -> bytes:
    r"""The raw key that `shown_key` shows. Raises ValueError for an escape that is neither \\\\ nor \\xNN."""
    raw, position = bytearray(), 0
    while position < len(shown):
        if shown[position] != "\\":
            raw += shown[position].encode()
            position += 1
        elif shown[position + 1 : position + 2] == "\\":
            raw += b"\\"
            position += 2
        elif shown[position + 1 : position + 2] == "x" and len(shown) >= position + 4:
            raw.append(int(shown[position + 2 : position + 4], 16))
            position += 4
        else:
            raise ValueError(f"position {position}: a backslash is written \\\\ and other bytes \\xNN")
    return bytes(raw)


def _departure(template: Template, raw_key: bytes) -> int:
    """How many bytes of `raw_key` some key of a template begins with."""
    automaton = template.automaton
    states: frozenset[int] = frozenset({0})
    for position, byte in enumerate(raw_key):
        states = automaton.step(states, byte)
        if not states:
            return position
    return len(raw_key)


def _agreement(left: bytes, right: bytes) -> int:
    """The length of the common prefix."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return min(len(left), len(right))
