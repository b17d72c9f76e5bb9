"""A layout's items as commands name them: a table, an index or a counter, opened on a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.options import layout_of_option, root_parameters, store_of_option
from keyplan.errors import InvalidInputError
from keyplan.layout import BoundIndex, BoundLayout, BoundTable, Layout
from keyplan.store import Store

__all__ = ["FieldsArgument", "ItemArgument", "OpenLayout", "opened"]

ItemArgument = Annotated[
    str, typer.Argument(metavar="ITEM", help="A table or index of the layout; `keyplan ls` lists them.")
]
FieldsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[FIELD]...", help="Values of the key's fields, in key order.")
]


@dataclass(frozen=True)
class OpenLayout:
    """A layout on a store."""

    store: Store
    layout: Layout
    bound: BoundLayout

    def listable(self, name: str) -> BoundTable | BoundIndex:
        """Return the table or index of that name. Raises UnknownNameError, InvalidInputError for a counter."""
        self.bound.spec.item(name)
        item = self.bound.tables.get(name) or self.bound.indexes.get(name)
        if item is None:
            raise InvalidInputError(source="ITEM", problem=f"{name} is a counter; use `keyplan get {name}`")
        return item

    def table(self, name: str) -> tuple[BoundTable, Any]:
        """Return a table and its operations. Raises UnknownNameError, InvalidInputError for anything else."""
        self.bound.spec.item(name)
        if name not in self.bound.tables:
            raise InvalidInputError(source="ITEM", problem=f"{name} is not a table", tables=list(self.bound.tables))
        return self.bound.tables[name], self.layout.view(name)


@contextmanager
def opened(
    store: str | None, layout: str | None, parameters: list[str] | None, config: Path | None = None
) -> Iterator[OpenLayout]:
    """Open the layout of the options on the store of the options; close it at the end."""
    kind = layout_of_option(layout, config)
    values = root_parameters(kind, parameters)
    with store_of_option(store, config) as opened_store:
        yield OpenLayout(opened_store, kind(opened_store, **values), kind.bound(**values))
