"""Layouts by the names that people give them: those of installed packages, `module:Class`, what a FILE.json holds."""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.layout import Layout, layout_class_of, layout_of_bytes, value_of_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["LAYOUT_GROUP", "installed_layouts", "layout_named", "root_values"]

LAYOUT_GROUP: Final = "keyplan.layouts"
"""Entry points of layouts: a name and a Layout class."""


def installed_layouts() -> "dict[str, EntryPoint]":
    """Return the layouts of installed packages by name. None is imported."""
    # Why: that module is a tenth of what opening a store imports, and only names of layouts need it.
    entries: Iterable[EntryPoint] = import_module("importlib.metadata").entry_points(group=LAYOUT_GROUP)
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}


def layout_named(name: str, *, source: str) -> type[Layout]:
    """Return the layout of an installed name, of `module:Class`, or the one that FILE.json describes or locks.

    Modules are looked for in the working directory, too. `source` says where the name comes from. Raises UnknownNameError for
    an installed name that there is not, InvalidInputError when a module or a file cannot be read.
    """
    if name.endswith(".json"):
        return _described(Path(name))
    if ":" in name:
        return _imported(name, source)
    entry = installed_layouts().get(name)
    if entry is None:
        raise UnknownNameError(kind="layout", name=name, known=sorted(installed_layouts()))
    kind: type[Layout] = entry.load()
    return kind


def root_values(layout: type[Layout], texts: Iterable[tuple[str, str]], *, source: str) -> dict[str, object]:
    """Read texts as values of the parameters of a layout's root. Raises InvalidInputError for one that it has not."""
    elements = {field.name: field.element for field in layout.spec.root.fields}
    values: dict[str, object] = {}
    for name, text in texts:
        if name not in elements:
            known = ", ".join(sorted(elements)) or "none"
            problem = f"{name!r} is no parameter of {layout.spec.name}'s root; they are: {known}"
            raise InvalidInputError(source=source, problem=problem)
        values[name] = value_of_text(elements[name], text)
    return values


def _described(path: Path) -> type[Layout]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be read") from error
    return layout_class_of(layout_of_bytes(content, source=str(path)))


def _imported(name: str, source: str) -> type[Layout]:
    module_name, _, attribute = name.partition(":")
    # Why: a console script's path holds its own folder; people name modules of the folder that they are in.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        kind: Any = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"cannot import {name}: {error}"
        if module_name in sys.stdlib_module_names:
            problem += f"; Python has a module {module_name} of its own: give the file another name"
        raise InvalidInputError(source=source, problem=problem) from error
    if not (isinstance(kind, type) and issubclass(kind, Layout)):
        raise InvalidInputError(source=source, problem=f"{name} is not a Layout class")
    return kind
