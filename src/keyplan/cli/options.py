"""The options that commands share: which store, which layout, how to print."""

import json
import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyplan.cli.catalog import LAYOUT_GROUP
from keyplan.cli.plain import value_of_text
from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.layout import Layout, layout_class_of, layout_of_description
from keyplan.store import Store, open_store

__all__ = [
    "ConfigOption",
    "JsonOption",
    "LayoutOption",
    "ParameterOption",
    "StoreOption",
    "layout_of_option",
    "root_parameters",
    "store_of_option",
]

CONFIG_FILE: Final = "keyplan.toml"

StoreOption = Annotated[
    str | None,
    typer.Option("--store", "-s", envvar="KEYPLAN_STORE", metavar="URL", help="The store, as in lmdb:./site.kv."),
]
LayoutOption = Annotated[
    str | None,
    typer.Option(
        "--layout",
        "-l",
        envvar="KEYPLAN_LAYOUT",
        metavar="NAME",
        help="The layout: a shipped name, module:Class, or FILE.json.",
    ),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A parameter of the layout's root; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or a line for each record.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="KEYPLAN_CONFIG", metavar="FILE", help=f"Settings; {CONFIG_FILE} by default."),
]


def store_of_option(url: str | None, config: Path | None = None) -> Store:
    """Open the store of `--store`, KEYPLAN_STORE or the settings. Raises InvalidInputError when none names one."""
    url = url or _setting("store", config)
    if not url:
        raise InvalidInputError(
            source="--store", problem=f"name a store: --store URL, KEYPLAN_STORE, or store in {CONFIG_FILE}"
        )
    return open_store(url)


def layout_of_option(name: str | None, config: Path | None = None) -> type[Layout]:
    """Return the layout of `--layout`, KEYPLAN_LAYOUT or the settings.

    Raises UnknownNameError for a layout that is not there, InvalidInputError when none is named or it cannot be read.
    """
    name = name or _setting("layout", config)
    if not name:
        problem = f"name a layout: --layout NAME, KEYPLAN_LAYOUT, or layout in {CONFIG_FILE}"
        raise InvalidInputError(source="--layout", problem=problem, shipped=sorted(_shipped()))
    if name.endswith(".json"):
        return layout_class_of(layout_of_description(_json_file(Path(name))))
    if ":" in name:
        return _imported(name)
    entry = _shipped().get(name)
    if entry is None:
        raise UnknownNameError(kind="layout", name=name, known=sorted(_shipped()))
    kind: type[Layout] = entry.load()
    return kind


def root_parameters(layout: type[Layout], given: list[str] | None) -> dict[str, object]:
    """Read `--parameter NAME=VALUE` as values of the root's fields. Raises InvalidInputError."""
    elements = {field.name: field.element for field in layout.spec.root.fields}
    values: dict[str, object] = {}
    for assignment in given or []:
        name, equals, text = assignment.partition("=")
        if not equals or name not in elements:
            raise InvalidInputError(
                source="--parameter", problem=f"{assignment!r} is not NAME=VALUE of the root", known=sorted(elements)
            )
        values[name] = value_of_text(elements[name], text)
    return values


def _shipped() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=LAYOUT_GROUP)}


def _imported(name: str) -> type[Layout]:
    module_name, _, attribute = name.partition(":")
    try:
        kind = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(source="--layout", problem=f"cannot import {name}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Layout)):
        raise InvalidInputError(source="--layout", problem=f"{name} is not a Layout class")
    return kind


def _json_file(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be read") from error
    except ValueError as error:
        raise InvalidInputError(source=str(path), problem=f"not JSON: {error}") from error


def _setting(name: str, config: Path | None) -> str | None:
    path = config or Path(CONFIG_FILE)
    if config is None and not path.exists():
        return None
    try:
        settings = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=error.strerror or "cannot be read") from error
    except ValueError as error:
        raise InvalidInputError(source=str(path), problem=f"not TOML: {error}") from error
    value = settings.get(name)
    if not (value is None or isinstance(value, str)):
        raise InvalidInputError(source=str(path), problem=f"{name} is not a text")
    return value
