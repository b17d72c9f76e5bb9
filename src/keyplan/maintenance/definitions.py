"""Fingerprints of single items of a layout: what a build or a migration was begun for, whatever else the layout declares."""

import hashlib
import json
from typing import Final
from weakref import WeakKeyDictionary

from keyplan.layout import BoundIndex, BoundLayout, canonical_description

__all__ = ["index_definition", "table_definition"]


def index_definition(index: BoundIndex) -> str:
    """Return twelve hex digits that change when the index's entries could: its own declaration, its table's, or the root."""
    return _definition(index.table.layout, index.name, index.table.name)


def table_definition(layout: BoundLayout, table: str) -> str:
    """Return twelve hex digits that change when the table's keys or values could, wherever the layout's root is."""
    return _definition(layout, table, root=b"")


_known: Final = WeakKeyDictionary[BoundLayout, dict[tuple[object, ...], str]]()
"""Why kept: a migration asks at each of its steps, and to describe a layout takes a millisecond."""


def _definition(layout: BoundLayout, *names: str, root: bytes | None = None) -> str:
    known = _known.setdefault(layout, {})
    if (names, root) not in known:
        known[names, root] = _made(layout, names, root)
    return known[names, root]


def _made(layout: BoundLayout, names: tuple[str, ...], root: bytes | None) -> str:
    described = json.loads(canonical_description(layout.spec))
    items = [item for item in described["items"] if item["name"] in names]
    text = json.dumps([described["keys"], items], sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(text + b"\x00" + (layout.root if root is None else root)).hexdigest()[:12]
