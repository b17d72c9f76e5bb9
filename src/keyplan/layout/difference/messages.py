"""Two protobuf messages compared, by field numbers and by what the bytes of one field are in another: protobuf's own rules.

What a type makes of another one's bytes is computed at the edges of its values, not listed. A field whose bytes are of another
wire type is passed over, as one of an unknown number is.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from keyplan.layout.difference.schemas import FieldChange, TypeRelation

__all__ = ["compare_messages"]

_USES_MAX: Final = 64
"""Why: as of types in general; see schemas.py."""

_BITS: Final = 64
_VARINTS: Final = {
    "bool": (0, 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "enum": (-(2**31), 2**31 - 1),
}
"""Types that are stored as the 64 bits of a number, of which a narrower one takes the low ones."""
_ZIGZAGS: Final = {"sint32": 32, "sint64": 64}
_FIXED: Final = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}
_DELIMITED: Final = {
    ("string", "bytes"): (True, True),
    ("bytes", "string"): (False, True),
    ("message", "bytes"): (True, False),
    ("bytes", "message"): (False, True),
    ("message", "string"): (False, True),
    ("string", "message"): (False, True),
}
"""Of types that are stored as bytes with a length, in pairs: whether the second reads the first, and as the same value."""

_Field = Mapping[str, Any]
_Enums = Mapping[str, Any]


def compare_messages(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Yield what differs between two forms' messages, outer fields first. It always ends."""
    uses: Counter[tuple[str, str]] = Counter()
    pending = deque([("", str(old["type"]), str(new["type"]), frozenset[tuple[str, str]]())])
    while pending:
        path, before, after, above = pending.popleft()
        uses[before, after] += 1
        if (before, after) in above or uses[before, after] > _USES_MAX:
            continue
        pair = _Pair(path, old, new, before, after)
        yield from pair.changes()
        pending += [(place, own, other, above | {(before, after)}) for place, own, other in pair.inner()]


class _Pair:
    """Two messages at one path."""

    def __init__(self, path: str, old: Mapping[str, Any], new: Mapping[str, Any], before: str, after: str) -> None:
        self._path = path
        self._old: Mapping[str, _Field] = old["messages"].get(before, {})
        self._new: Mapping[str, _Field] = new["messages"].get(after, {})
        self._enums: tuple[_Enums, _Enums] = (old["enums"], new["enums"])

    def changes(self) -> Iterator[FieldChange]:
        for number, field in self._new.items():
            if number in self._old:
                yield from self._changed(number)
            else:
                yield FieldChange(self._at(field), None, _name(field), is_required=bool(field.get("required")))
        for number, field in self._old.items():
            if number not in self._new:
                required = bool(field.get("required"))
                yield FieldChange(self._at(field), _name(field), None, is_required=required, loses_values=True)

    def inner(self) -> Iterator[tuple[str, str, str]]:
        """The messages that both have at one number."""
        for number, field in self._new.items():
            before = self._old.get(number, {})
            if before.get("type") == field["type"] == "message":
                yield self._at(field), before["of"], field["of"]

    def _at(self, field: _Field) -> str:
        return f"{self._path}.{field['name']}".strip(".")

    def _changed(self, number: str) -> Iterator[FieldChange]:
        before, after = self._old[number], self._new[number]
        path = self._at(after)
        if before["name"] != after["name"]:
            yield FieldChange(path, f"called {before['name']}", f"called {after['name']}")
        was, is_now = bool(before.get("required")), bool(after.get("required"))
        if was != is_now:
            words = ("optional", "required")
            yield FieldChange(path, words[was], words[is_now], TypeRelation(reads_old=not is_now, reads_new=is_now))
        if before.get("default") != after.get("default"):
            defaults = [str(one.get("default", "nothing")) for one in (before, after)]
            yield FieldChange(
                path, defaults[0], defaults[1], TypeRelation(reads_old=False, reads_new=False), is_default=True
            )
        reads_old, keeps_old = self._taken(before, after, self._enums)
        reads_new, keeps_new = self._taken(after, before, (self._enums[1], self._enums[0]))
        relation = TypeRelation(reads_old, reads_new and keeps_new)
        if _name(before) != _name(after) or not (reads_old and keeps_old and relation.reads_new):
            yield FieldChange(path, _name(before), _name(after), relation, loses_values=not keeps_old)
        yield from self._grouped(number, path)

    def _taken(self, narrow: _Field, wide: _Field, enums: tuple[_Enums, _Enums]) -> tuple[bool, bool]:
        """Whether one field's bytes are read as another field, and as the same value."""
        own, other = narrow["type"], wide["type"]
        is_one = not narrow.get("repeated") or bool(wide.get("repeated"))
        if (own, other) in _DELIMITED:
            reads, keeps = _DELIMITED[own, other]
            return reads, keeps and is_one
        is_kept = own == other or all(_read(other, *_written(own, value)) == value for value in _edges(own))
        if other == "enum" and enums[1][wide["of"]]["closed"]:
            # Why: a closed enumeration passes over numbers that it does not have.
            is_kept &= (
                own == "enum" and enums[0][narrow["of"]]["values"].keys() <= enums[1][wide["of"]]["values"].keys()
            )
        return True, is_kept and is_one

    def _grouped(self, number: str, path: str) -> Iterator[FieldChange]:
        """A field that stands in a oneof with others than before: of two that were set, one is kept."""
        before, after = (self._beside(side, number) for side in (self._old, self._new))
        both = self._old.keys() & self._new.keys()
        is_joined, is_parted = bool((after - before) & both), bool((before - after) & both)
        if is_joined or is_parted:
            words = [
                f"with {', '.join(sorted(self._names(group))) or 'nothing'} in a oneof" for group in (before, after)
            ]
            yield FieldChange(path, words[0], words[1], TypeRelation(reads_new=not is_parted), loses_values=is_joined)

    def _beside(self, side: Mapping[str, _Field], number: str) -> set[str]:
        group = side[number].get("oneof")
        return {other for other, field in side.items() if other != number and group and field.get("oneof") == group}

    def _names(self, numbers: set[str]) -> list[str]:
        return [str((self._new.get(number) or self._old[number])["name"]) for number in numbers]


def _name(field: _Field) -> str:
    kind = field["of"] if field["type"] == "enum" else field["type"]
    return f"repeated {kind}" if field.get("repeated") else str(kind)


def _edges(kind: str) -> list[Any]:
    if kind in _VARINTS:
        least, most = _VARINTS[kind]
        return [value for value in (least, -1, 0, 1, 2, 2**31, most) if least <= value <= most]
    if kind in _ZIGZAGS:
        size = _ZIGZAGS[kind]
        return [-(2 ** (size - 1)), -1, 0, 1, 2 ** (size - 1) - 1]
    return [(kind, "any")]


def _written(kind: str, value: Any) -> tuple[str, Any]:
    """The wire type, and what stands there."""
    if kind in _VARINTS:
        return "varint", value % 2**_BITS
    if kind in _ZIGZAGS:
        return "varint", (value << 1) ^ (value >> (_BITS - 1))
    return str(_FIXED.get(kind, "delimited")), value


def _read(kind: str, wire: str, raw: Any) -> Any:
    """The value; None where it is of another wire type, or no number that is compared."""
    if wire != "varint" or (kind not in _VARINTS and kind not in _ZIGZAGS):
        return None
    if kind in _ZIGZAGS:
        low = raw % 2 ** _ZIGZAGS[kind]
        return (low >> 1) ^ -(low & 1)
    if kind == "bool":
        return int(raw != 0)
    size = 32 if _VARINTS[kind][1] < 2**32 else 64
    low = raw % 2**size
    return low - 2**size if _VARINTS[kind][0] < 0 and low >= 2 ** (size - 1) else low
