"""What a command says of a layout that is not the one that the store notes: `--layout-check`."""

from pathlib import Path
from typing import Annotated

import typer

from keyplan.cli.failures import print_hint
from keyplan.cli.options import read_settings
from keyplan.errors import InvalidInputError, LayoutMismatchError
from keyplan.layout import BoundLayout
from keyplan.store import LayoutCheck, LayoutChecker, Store, checked_reaction

__all__ = ["LayoutCheckOption", "layout_check_of_option", "look_at_layout"]

LayoutCheckOption = Annotated[
    str | None,
    typer.Option(
        "--layout-check",
        envvar="KEYPLAN_LAYOUT_CHECK",
        metavar="WORD",
        help="A layout that is not the store's: warn (as it is), refuse or off.",
        show_default=False,
    ),
]


def layout_check_of_option(given: str | None, config: Path | None = None) -> LayoutCheck:
    """Return the word of `--layout-check`, KEYPLAN_LAYOUT_CHECK or the settings; warn without one. Raises InvalidInputError."""
    word = given or read_settings(config).layout_check or "warn"
    try:
        return checked_reaction(word)
    except InvalidInputError as error:
        raise InvalidInputError(source="--layout-check", problem=str(error.facts["problem"])) from error


def look_at_layout(store: Store, layout: BoundLayout, check: LayoutCheck) -> None:
    """Print that a layout is not the one that the store notes, or raise it as LayoutMismatchError, as `check` says."""
    found = None if check == "off" else LayoutChecker(store.engine, check).mismatch(layout)
    if found is not None and check == "refuse":
        raise found
    if isinstance(found, LayoutMismatchError):
        print_hint(str(found))
