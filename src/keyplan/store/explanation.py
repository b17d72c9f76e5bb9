"""A commit for people: each guard and mutation in a line, with what its key means. Records are shown only when asked."""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.errors import CorruptionError
from keyplan.layout import BoundLayout, Kind, Meaning, shown_key

__all__ = ["Explanation"]


class _Line(NamedTuple):
    verb: str
    place: str
    content: str
    meaning: str


@dataclass(frozen=True)
class Explanation:
    """A commit and the layouts that its keys belong to. `str` of it gives the lines."""

    commit: Commit
    layouts: tuple[BoundLayout, ...]

    def lines(self, *, show_values: bool = False) -> list[str]:
        """Return a line for each guard and mutation: what, the raw key, what is there, what the key means.

        Guards come first, mutations after them, each in key order. A record is shown as its length unless `show_values`, since
        it may be secret; what index entries point at, and the numbers of counters, are always shown.
        """
        guards = sorted((self._guard_line(guard) for guard in self.commit.guards), key=lambda line: line.place)
        mutations = sorted(
            (self._mutation_line(mutation, show_values=show_values) for mutation in self.commit.mutations),
            key=lambda line: line.place,
        )
        lines = [*guards, *mutations]
        widths = [max((len(line[column]) for line in lines), default=0) for column in range(3)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(line, (*widths, 0), strict=True)).rstrip()
            for line in lines
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "nothing to write"

    def _guard_line(self, guard: Guard) -> _Line:
        match guard:
            case KeyAbsent(key):
                return _Line("guard", shown_key(key), "absent", self._meant(key))
            case KeyUnchanged(key, revision):
                return _Line("guard", shown_key(key), f"unchanged since {revision}", self._meant(key))
            case RangeEmpty(key_range):
                return _Line("guard", _shown_range(key_range), "empty", "")
            case RangeUnchanged(key_range, revision, keys):
                return _Line("guard", _shown_range(key_range), f"{len(keys)} keys unchanged since {revision}", "")

    def _mutation_line(self, mutation: Mutation, *, show_values: bool) -> _Line:
        match mutation:
            case Put(key, value, lease):
                content = self._content(key, value, show_values=show_values)
                if lease != NO_LEASE:
                    content = f"{content} on lease {lease}".strip()
                return _Line("put", shown_key(key), content, self._meant(key))
            case Delete(key):
                return _Line("delete", shown_key(key), "", self._meant(key))
            case DeleteRange(key_range):
                return _Line("delete", _shown_range(key_range), "all of it", "")

    def _meaning(self, raw_key: bytes) -> tuple[BoundLayout, Meaning] | None:
        for layout in self.layouts:
            meaning = layout.meaning(raw_key)
            if meaning.kind in {Kind.RECORD, Kind.INDEX_ENTRY, Kind.COUNTER}:
                return layout, meaning
        return None

    def _meant(self, raw_key: bytes) -> str:
        found = self._meaning(raw_key)
        if found is None:
            return ""
        meaning = found[1]
        fields = ", ".join(f"{name}={value}" for name, value in meaning.fields.items())
        return f"{meaning.kind.value} of {meaning.item}" + (f" ({fields})" if fields else "")

    def _content(self, raw_key: bytes, raw_value: bytes, *, show_values: bool) -> str:
        found = self._meaning(raw_key)
        kind = None if found is None else found[1].kind
        if found is not None and kind is Kind.INDEX_ENTRY and raw_value:
            index = found[0].indexes[str(found[1].item)]
            with suppress(CorruptionError):  # Why: a repair by hand may write any bytes, and is shown first.
                key = index.primary_key(raw_key, raw_value)
                return "-> " + ", ".join(str(value) for value in index.table.keys.shape.split(key))
            return f"{len(raw_value)} bytes that name no record"
        if found is not None and kind is Kind.COUNTER:
            with suppress(CorruptionError):  # Why: a table whose keys collide with the counter's may write there.
                return str(found[0].counters[str(found[1].item)].decode(raw_value))
        if kind is Kind.INDEX_ENTRY:
            return ""
        return shown_key(raw_value) if show_values else f"{len(raw_value)} bytes"


def _shown_range(key_range: KeyRange) -> str:
    end = "the end" if key_range.end is None else shown_key(key_range.end)
    return f"{shown_key(key_range.start)} .. {end}"
