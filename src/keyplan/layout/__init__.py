"""What keys mean: layouts declared, checked, compiled, linted, described. Pure: no clock, disk, network or thread."""

from typing import TYPE_CHECKING, Final

from keyplan.layout.access import (
    Binding,
    Changes,
    CounterView,
    IndexView,
    TableView,
    UniqueView,
)
from keyplan.layout.async_access import (
    AsyncBinding,
    AsyncChanges,
    AsyncCounterView,
    AsyncIndexView,
    AsyncTableView,
    AsyncUniqueView,
)
from keyplan.layout.bound import BoundCounter, BoundIndex, BoundLayout, BoundTable, IndexEntry, bind_layout
from keyplan.layout.compile import CompiledKeys, compile_keys
from keyplan.layout.components import Unlike
from keyplan.layout.declare import Layout, bound_layout_of, layout_class_of
from keyplan.layout.describe import canonical_description, describe, layout_fingerprint, layout_of_description
from keyplan.layout.embedded_keys import rewrite_embedded_keys
from keyplan.layout.items import Counter, Index, Only, Parameter, Table, Unique
from keyplan.layout.listed import ListedKeys
from keyplan.layout.meaning import Kind, Meaning, raw_key_of, shown_key
from keyplan.layout.modes import Async, Bindable, Mode, Sync
from keyplan.layout.plain import (
    key_of_words,
    kind_in_words,
    line_of_value,
    plain_field,
    plain_key,
    plain_value,
    prefix_of_words,
    scalar_of_text,
    text_of_value,
    value_of_text,
    word_of_value,
)
from keyplan.layout.readings import holds_secrets, readings_of
from keyplan.layout.rows import (
    Change,
    ChangeKind,
    Damaged,
    ExpectedRevision,
    LeaseHandle,
    Page,
    Versioned,
    readable_rows,
)
from keyplan.layout.sealing import TableSeal
from keyplan.layout.spec import (
    Component,
    Condition,
    CounterSpec,
    IndexSpec,
    ItemSpec,
    KeyShape,
    LayoutSpec,
    Origin,
    TableSpec,
    Waiver,
)
from keyplan.layout.template import Field, Literal, Template, read_template, template_of_source
from keyplan.lazy_names import lazy_names

if TYPE_CHECKING:
    from keyplan.layout.difference import (
        CHANGE_CODES,
        Impact,
        KeyRelation,
        LayoutChange,
        LayoutPairs,
        changes_in_markdown,
        compare_keys,
        differences,
        field_labels,
        has_same_entries,
        layout_spec_of,
        pair_items,
        plain_shape,
        program_differences,
        rooted_spec,
        share_items,
    )
    from keyplan.layout.lock import layout_of_bytes, layout_of_file, lock_text
    from keyplan.layout.render import render_docs, render_map
    from keyplan.layout.rules import (
        RULES,
        EngineLimits,
        Finding,
        LintReport,
        Rule,
        Severity,
        collisions_of,
        key_below,
        lint,
        lint_prefix,
    )

__all__ = [
    "CHANGE_CODES",
    "RULES",
    "Async",
    "AsyncBinding",
    "AsyncChanges",
    "AsyncCounterView",
    "AsyncIndexView",
    "AsyncTableView",
    "AsyncUniqueView",
    "Bindable",
    "Binding",
    "BoundCounter",
    "BoundIndex",
    "BoundLayout",
    "BoundTable",
    "Change",
    "ChangeKind",
    "Changes",
    "CompiledKeys",
    "Component",
    "Condition",
    "Counter",
    "CounterSpec",
    "CounterView",
    "Damaged",
    "EngineLimits",
    "ExpectedRevision",
    "Field",
    "Finding",
    "Impact",
    "Index",
    "IndexEntry",
    "IndexSpec",
    "IndexView",
    "ItemSpec",
    "KeyRelation",
    "KeyShape",
    "Kind",
    "Layout",
    "LayoutChange",
    "LayoutPairs",
    "LayoutSpec",
    "LeaseHandle",
    "LintReport",
    "ListedKeys",
    "Literal",
    "Meaning",
    "Mode",
    "Only",
    "Origin",
    "Page",
    "Parameter",
    "Rule",
    "Severity",
    "Sync",
    "Table",
    "TableSeal",
    "TableSpec",
    "TableView",
    "Template",
    "Unique",
    "UniqueView",
    "Unlike",
    "Versioned",
    "Waiver",
    "bind_layout",
    "bound_layout_of",
    "canonical_description",
    "changes_in_markdown",
    "collisions_of",
    "compare_keys",
    "compile_keys",
    "describe",
    "differences",
    "field_labels",
    "has_same_entries",
    "holds_secrets",
    "key_below",
    "key_of_words",
    "kind_in_words",
    "layout_class_of",
    "layout_fingerprint",
    "layout_of_bytes",
    "layout_of_description",
    "layout_of_file",
    "layout_spec_of",
    "line_of_value",
    "lint",
    "lint_prefix",
    "lock_text",
    "pair_items",
    "plain_field",
    "plain_key",
    "plain_shape",
    "plain_value",
    "prefix_of_words",
    "program_differences",
    "raw_key_of",
    "read_template",
    "readable_rows",
    "readings_of",
    "render_docs",
    "render_map",
    "rewrite_embedded_keys",
    "rooted_spec",
    "scalar_of_text",
    "share_items",
    "shown_key",
    "template_of_source",
    "text_of_value",
    "value_of_text",
    "word_of_value",
]

_MODULES: Final = {
    "difference": (
        *("CHANGE_CODES", "Impact", "KeyRelation", "LayoutChange", "LayoutPairs", "compare_keys", "differences"),
        "changes_in_markdown",
        *("field_labels", "has_same_entries", "layout_spec_of", "pair_items", "plain_shape"),
        *("program_differences", "rooted_spec", "share_items"),
    ),
    "lock": ("layout_of_bytes", "layout_of_file", "lock_text"),
    "render": ("render_docs", "render_map"),
    "rules": (
        *("RULES", "EngineLimits", "Finding", "LintReport", "Rule", "Severity"),
        *("collisions_of", "key_below", "lint", "lint_prefix"),
    ),
}
"""Imported when a name is first used. Why: half of this package compares, judges and prints layouts; programs never do."""

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.
    __getattr__ = lazy_names(__name__, _MODULES)
