"""The differences between two layouts that concern one program: it has the one, and what is stored is in the other."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from keyplan.layout.bound import BoundLayout
from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.differences import differences
from keyplan.layout.difference.pairing import LayoutPairs, pair_items
from keyplan.layout.spec import LayoutSpec
from keyplan.layout.template import Literal, Template

__all__ = ["program_differences", "rooted_spec", "share_items"]

_GONE: Final = frozenset({"E5", "E13", "E16"})
_NEW: Final = frozenset({"E4", "E16"})


def rooted_spec(spec: LayoutSpec, root: bytes) -> LayoutSpec:
    """Return a layout as it is under a root whose bytes are known."""
    return replace(spec, root=Template((Literal(root),) if root else (), spec.is_text), parameters={})


def share_items(one: LayoutSpec, other: LayoutSpec) -> bool:
    """Whether two layouts have something in common. Those of two applications below one root have nothing."""
    return bool(pair_items(one, other).names)


def program_differences(stored: LayoutSpec, program: BoundLayout) -> tuple[LayoutChange, ...]:
    """Return why a program that binds a layout is not to use a store in another one, from that to the program's. Empty: it may.

    Of a table or a counter that it does not know the program touches nothing; one that the store's layout does not know is read
    and written by nobody else. Two layouts that have nothing in common share a root. The root is the program's: what was
    restored below another prefix is the same layout.
    """
    before, after = (rooted_spec(spec, program.root) for spec in (stored, program.spec))
    pairs = pair_items(before, after)
    return tuple(_concerning(pairs, differences(before, after))) if pairs.names else ()


def _concerning(pairs: LayoutPairs, changes: Sequence[LayoutChange]) -> Iterator[LayoutChange]:
    gone, added = {item.name for item in pairs.gone}, {item.name for item in pairs.added}
    tables_gone = gone & pairs.old.tables.keys()
    for change in changes:
        is_gone = change.code in _GONE and change.item in gone
        if is_gone and change.item in pairs.old.indexes:
            # Why: who writes records without keeping an index leaves it damaged, unless the records are none of its own.
            is_gone = pairs.old.indexes[change.item].of in tables_gone
        is_new = change.code in _NEW and change.item in added
        if not is_gone and (is_new or change.impact is not Impact.COMPATIBLE):
            yield change
