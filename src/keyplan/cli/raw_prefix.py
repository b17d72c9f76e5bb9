"""The option `--prefix` of commands that look at raw keys."""

from typing import Annotated

import typer

from keyplan.errors import InvalidInputError
from keyplan.layout import raw_key_of

__all__ = ["PrefixOption", "raw_prefix"]

PrefixOption = Annotated[
    str,
    typer.Option(
        "--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.", show_default=False
    ),
]


def raw_prefix(text: str) -> bytes:
    """Return the bytes that `--prefix` writes. Raises InvalidInputError."""
    try:
        return raw_key_of(text)
    except ValueError as error:
        raise InvalidInputError(source="--prefix", problem=str(error)) from error
