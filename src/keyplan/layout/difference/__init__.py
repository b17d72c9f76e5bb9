"""How a layout differs from its earlier self: what each change does to programs and stored data. Pure, as all of layout."""

from keyplan.layout.difference.change import CHANGE_CODES, Impact, LayoutChange
from keyplan.layout.difference.concerning import program_differences, rooted_spec, share_items
from keyplan.layout.difference.differences import differences, layout_spec_of
from keyplan.layout.difference.indexes import has_same_entries
from keyplan.layout.difference.keys import KeyRelation, compare_keys
from keyplan.layout.difference.markdown import changes_in_markdown
from keyplan.layout.difference.pairing import LayoutPairs, field_labels, pair_items, plain_shape

__all__ = [
    "CHANGE_CODES",
    "Impact",
    "KeyRelation",
    "LayoutChange",
    "LayoutPairs",
    "changes_in_markdown",
    "compare_keys",
    "differences",
    "field_labels",
    "has_same_entries",
    "layout_spec_of",
    "pair_items",
    "plain_shape",
    "program_differences",
    "rooted_spec",
    "share_items",
]
