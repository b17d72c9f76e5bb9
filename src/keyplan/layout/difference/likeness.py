"""Whether an item that is new may be one that is gone, under another name: asked for, never taken for granted."""

from collections.abc import Mapping
from typing import Any, Final

from keyplan.codec import ValueForm
from keyplan.layout.schema_nodes import SchemaGraph
from keyplan.layout.spec import CounterSpec, ItemSpec, TableSpec

__all__ = ["is_likely_renamed"]

_SHARED_MIN: Final = 0.5
"""The least share of fields that two records have in common. Why a half: a rename goes with changes, and a wrong guess is a
question more."""


def is_likely_renamed(gone: ItemSpec, new: ItemSpec) -> bool:
    """Tell whether two tables hold records of like fields, or like values at like keys; any two counters may be one."""
    if isinstance(gone, CounterSpec) and isinstance(new, CounterSpec):
        return True
    if not (isinstance(gone, TableSpec) and isinstance(new, TableSpec)):
        return False
    ours, theirs = _fields(gone.form), _fields(new.form)
    if ours and theirs:
        return len(ours & theirs) >= _SHARED_MIN * len(ours | theirs)
    is_like_value = gone.form.describe() == new.form.describe()
    return is_like_value and _key_elements(gone) == _key_elements(new)


def _fields(form: ValueForm[Any]) -> frozenset[str]:
    """The fields of records, of all alternatives; empty for other values."""
    schema = form.describe().get("schema")
    if not isinstance(schema, Mapping):
        return frozenset()
    return frozenset(name for option in SchemaGraph(schema).root.options for name in option.fields or ())


def _key_elements(table: TableSpec) -> list[str]:
    return [field.element.spec for field in table.template.fields]
