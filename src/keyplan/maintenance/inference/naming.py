"""Names for what was found: fields after the literal before them, tables after their literals, classes after tables."""

import re
from collections.abc import Iterable, Sequence
from keyword import iskeyword, issoftkeyword
from typing import Final

from keyplan.layout import Literal
from keyplan.maintenance.inference.found import Part

__all__ = ["attribute_name", "class_name", "field_name", "table_name", "unused"]

_SINGULARS_IN_S: Final = frozenset({"address", "bus", "campus", "corpus", "news", "series", "status", "virus"})

_OF_KINDS: Final = {
    "hex_uuid": "uuid",
    "hyphenated": "uuid",
    "timestamp": "time",
    "decimal": "number",
    "digits": "number",
}
_TAKEN: Final = frozenset(
    {
        "bound",
        "count",
        "index",
        "meaning",
        "over",
        "revision",
        "run",
        "snapshot",
        "spec",
        "transaction",
        "view",
        "waivers",
    }
)
"""Attributes that a layout or a tuple has of its own."""

_USED: Final = frozenset(
    {
        *("bool", "bytes", "dict", "float", "int", "list", "str"),
        *("Any", "Layout", "NamedTuple", "Only", "Table", "UUID", "msgspec"),
    }
)
"""Names that the written module uses: a field called `list` would be what `list[str]` means in the lines below it."""


def field_name(before: str, kind: str, taken: Iterable[str]) -> str:
    """Return a name for a field behind the literal `before`: `racks` gives rack, `by-name` gives name."""
    word = _slug(before)
    for preposition in ("by_", "of_", "for_"):
        word = word.removeprefix(preposition)
    return unused(_singular(word) or _OF_KINDS.get(kind, "name"), taken)


def table_name(parts: Sequence[Part], taken: Iterable[str]) -> str:
    """Return a name for a table after the literals of its template below the root."""
    literals = [_slug(part.raw.decode(errors="replace")) for part in parts if isinstance(part, Literal)]
    fields = [part.name for part in parts if not isinstance(part, Literal)]
    # Why object: tables further down may have it as the type of their values.
    return unused("_".join(word for word in literals if word) or "_".join(fields[:1]) + "_keys", {*taken, "object"})


def class_name(table: str, suffix: str) -> str:
    """Return the name of a class: of the table `rack_blades`, with the suffix Key, RackBladesKey."""
    name = "".join(word[:1].upper() + word[1:] for word in table.split("_")) + suffix
    return f"{name}Class" if name in _USED else name


def attribute_name(stored: str, taken: Iterable[str]) -> str:
    """Return a Python name for a JSON field; the stored name itself when it is one."""
    return unused(stored if stored.isidentifier() and stored.isascii() else _slug(stored), taken)


def unused(name: str, taken: Iterable[str]) -> str:
    """Return a name that Python and keyplan allow and nobody has: with a number behind it when need be."""
    name = name.lstrip("_") or "field"
    if name[0].isdigit():
        name = f"n{name}"
    if iskeyword(name) or issoftkeyword(name) or name in _TAKEN or name in _USED:
        name = f"{name}_name" if name != "count" else "count_of"
    known = set(taken)
    number, candidate = 1, name
    while candidate in known:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    is_plural = word.endswith("s") and not word.endswith(("ss", "is")) and len(word) > 2
    return word[:-1] if is_plural and word.rpartition("_")[2] not in _SINGULARS_IN_S else word
