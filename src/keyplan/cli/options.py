"""The options that commands share: which store, which layout, how to print; and what they name, opened or imported."""

from pathlib import Path
from typing import Annotated, Final

import typer

from keyplan.cli.settings import SETTINGS_FILE, read_settings
from keyplan.cli.unfinished import Unfinished, look_for_unfinished
from keyplan.engine import open_engine
from keyplan.errors import InvalidInputError
from keyplan.layout import Layout
from keyplan.store import Store, installed_layouts, layout_named, root_values

__all__ = [
    "STORE_VARIABLE",
    "ConfigOption",
    "JsonOption",
    "KeySpaceOption",
    "LayoutOption",
    "ParameterOption",
    "StoreOption",
    "installed_layouts",
    "is_layout_named",
    "is_store_named",
    "layout_of_option",
    "root_parameters",
    "store_of_option",
    "store_url_of_option",
]


STORE_VARIABLE: Final = "KEYPLAN_STORE"


def _layout_names(incomplete: str) -> list[str]:
    return sorted(name for name in installed_layouts() if name.startswith(incomplete))


StoreOption = Annotated[
    str | None,
    typer.Option("--store", "-s", envvar=STORE_VARIABLE, metavar="URL", help="The store, as in lmdb:./site.kv."),
]
LayoutOption = Annotated[
    str | None,
    typer.Option(
        "--layout",
        "-l",
        envvar="KEYPLAN_LAYOUT",
        metavar="NAME",
        help="The layout: an installed name, module:Class, or FILE.json.",
        autocompletion=_layout_names,
    ),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A parameter of the layout's root; may be repeated."),
]
KeySpaceOption = Annotated[
    str | None,
    typer.Option("--keyspace", "-k", metavar="NAME", help="Within this key space of the store.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or a line for each record.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="KEYPLAN_CONFIG", metavar="FILE", help=f"Settings; {SETTINGS_FILE} by default."),
]


# ---- the store -------------------------------------------------------------------------------------------------------


def is_store_named(url: str | None, config: Path | None) -> bool:
    """Tell whether the option or the settings name a store."""
    return bool(url or read_settings(config).store)


def store_of_option(
    url: str | None,
    config: Path | None = None,
    *,
    create: bool = False,
    readonly: bool = False,
    keyspace: str | None = None,
    root: bytes = b"",
    unfinished: Unfinished = Unfinished.TOLD,
) -> Store:
    """Open the store of `--store`, KEYPLAN_STORE or the settings; close it, or use it in a `with` block.

    Where the engine can be told so, a store that is not there is made only with `create`, and nothing is written with
    `readonly`. With `keyspace`, that key space of it. `unfinished` is what is done about a restore or a copy that has not
    ended, and concerns keys below `root` of the store. Raises InvalidInputError when no store is named, EngineOpenError,
    SourceUnfinishedError, and what opening a key space raises.
    """
    engine = open_engine(store_url_of_option(url, config), create=create and keyspace is None, readonly=readonly)
    try:
        if keyspace is None:
            look_for_unfinished(engine, root, unfinished)
            return Store(engine)
        # Why: most commands are about no key space, and start without what those need.
        from keyplan.keyspace import KeySpaceRegistry, open_for_care  # noqa: PLC0415

        # Why its root: no restore and no copy into a prefix touches a key space, but for one of the whole store.
        look_for_unfinished(engine, KeySpaceRegistry.bound().root, unfinished)
        return open_for_care(engine, keyspace, is_reading=readonly)
    except BaseException:
        engine.close()
        raise


def store_url_of_option(url: str | None, config: Path | None = None) -> str:
    """Return the URL of `--store`, KEYPLAN_STORE or the settings. Raises InvalidInputError when no store is named."""
    url = url or read_settings(config).store
    if not url:
        problem = f"name a store: --store URL, KEYPLAN_STORE, or store in {SETTINGS_FILE}"
        raise InvalidInputError(source="--store", problem=problem)
    return url


# ---- the layout ------------------------------------------------------------------------------------------------------


def is_layout_named(name: str | None, config: Path | None) -> bool:
    """Tell whether the option or the settings name a layout."""
    return bool(name or read_settings(config).layout)


def layout_of_option(name: str | None, config: Path | None = None) -> type[Layout]:
    """Return the layout of `--layout`, KEYPLAN_LAYOUT or the settings.

    Raises UnknownNameError for a layout that is not there, InvalidInputError when none is named or it cannot be read.
    """
    name = name or read_settings(config).layout
    if not name:
        problem = f"name a layout: --layout NAME, KEYPLAN_LAYOUT, or layout in {SETTINGS_FILE}"
        raise InvalidInputError(source="--layout", problem=problem, installed=sorted(installed_layouts()))
    return layout_named(name, source="--layout")


def root_parameters(layout: type[Layout], given: list[str] | None, config: Path | None = None) -> dict[str, object]:
    """Read `--parameter NAME=VALUE`, and the settings' parameters, as values of the root's fields.

    The command line comes before the settings, whose parameters may be meant for other layouts. Raises InvalidInputError,
    InvalidKeyError.
    """
    elements = layout.spec.root.field_names
    texts = {name: text for name, text in read_settings(config).parameters.items() if name in elements}
    for assignment in given or []:
        name, equals, text = assignment.partition("=")
        if not equals or name not in elements:
            known = ", ".join(sorted(elements)) or "none"
            problem = f"{assignment!r} is not NAME=VALUE with a parameter of {layout.spec.name}'s root: {known}"
            raise InvalidInputError(source="--parameter", problem=problem)
        texts[name] = text
    return root_values(layout, texts.items(), source="--parameter")
