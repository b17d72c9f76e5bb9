"""What keys mean: layouts declared, checked, compiled, linted, described. Pure: no clock, disk, network or thread."""

from keyplan.layout.access import Binding, CounterView, IndexView, Page, TableView, UniqueView, Versioned
from keyplan.layout.bound import BoundCounter, BoundIndex, BoundLayout, BoundTable, bind_layout
from keyplan.layout.compile import CompiledKeys, compile_keys
from keyplan.layout.components import Unlike
from keyplan.layout.declare import Layout, bound_layout_of, layout_class_of
from keyplan.layout.describe import canonical_description, describe, layout_of_description
from keyplan.layout.items import Counter, Index, Only, Parameter, Table, Unique
from keyplan.layout.lint import RULES, EngineLimits, Finding, LintReport, Rule, Severity, lint, lint_prefix
from keyplan.layout.meaning import Kind, Meaning, raw_key_of, shown_key
from keyplan.layout.render import render_docs, render_map
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

__all__ = [
    "RULES",
    "Binding",
    "BoundCounter",
    "BoundIndex",
    "BoundLayout",
    "BoundTable",
    "CompiledKeys",
    "Component",
    "Condition",
    "Counter",
    "CounterSpec",
    "CounterView",
    "EngineLimits",
    "Field",
    "Finding",
    "Index",
    "IndexSpec",
    "IndexView",
    "ItemSpec",
    "KeyShape",
    "Kind",
    "Layout",
    "LayoutSpec",
    "LintReport",
    "Literal",
    "Meaning",
    "Only",
    "Origin",
    "Page",
    "Parameter",
    "Rule",
    "Severity",
    "Table",
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
    "compile_keys",
    "describe",
    "layout_class_of",
    "layout_of_description",
    "lint",
    "lint_prefix",
    "raw_key_of",
    "read_template",
    "render_docs",
    "render_map",
    "shown_key",
    "template_of_source",
]
