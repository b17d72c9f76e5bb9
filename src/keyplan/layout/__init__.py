"""What keys mean: layouts declared, checked, compiled, linted, described. Pure: no clock, disk, network or thread."""

from keyplan.layout.access import Binding, CounterView, IndexView, Page, TableView, UniqueView, Versioned
from keyplan.layout.bound import BoundCounter, BoundIndex, BoundLayout, BoundTable, bind_layout
from keyplan.layout.compile import CompiledKeys, compile_keys
from keyplan.layout.components import Unlike
from keyplan.layout.declare import Layout
from keyplan.layout.describe import canonical_description, describe, layout_of_description
from keyplan.layout.items import Counter, Index, Only, Parameter, Table, Unique
from keyplan.layout.meaning import Kind, Meaning, raw_key_of, shown_key
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
    "Field",
    "Index",
    "IndexSpec",
    "IndexView",
    "ItemSpec",
    "KeyShape",
    "Kind",
    "Layout",
    "LayoutSpec",
    "Literal",
    "Meaning",
    "Only",
    "Origin",
    "Page",
    "Parameter",
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
    "canonical_description",
    "compile_keys",
    "describe",
    "layout_of_description",
    "raw_key_of",
    "read_template",
    "shown_key",
    "template_of_source",
]
