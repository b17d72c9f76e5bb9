"""Which records of a table or index a list or count is about: the first key fields, and bounds on the next one."""

from typing import Annotated, Any

import typer

from keyplan.cli.plain import prefix_of_words, value_of_text
from keyplan.errors import InvalidInputError
from keyplan.layout import BoundIndex, BoundTable

__all__ = ["AtLeastOption", "BelowOption", "StartsWithOption", "narrowed"]

StartsWithOption = Annotated[
    str | None,
    typer.Option("--starts-with", metavar="TEXT", help="Only where the next key field begins with TEXT."),
]
AtLeastOption = Annotated[
    str | None,
    typer.Option("--at-least", metavar="VALUE", help="Only where the next key field is VALUE or more; of tables."),
]
BelowOption = Annotated[
    str | None,
    typer.Option("--below", metavar="VALUE", help="Only where the next key field is less than VALUE; of tables."),
]


def narrowed(
    item: BoundTable | BoundIndex,
    words: list[str] | None,
    *,
    starts_with: str | None,
    at_least: str | None,
    below: str | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the prefix and the keywords that an item's `list` and `count` take. Raises InvalidKeyError, InvalidInputError."""
    prefix = prefix_of_words(item.keys, words or [])
    given = {"starts_with": starts_with, "at_least": at_least, "below": below}
    bounds = {name: text for name, text in given.items() if text is not None}
    fields = item.keys.template.fields
    if bounds and len(prefix) == len(fields):
        raise InvalidInputError(source="FIELD", problem="the key is given whole: there is no next field to narrow")
    for name in ("at_least", "below"):
        if name in bounds and isinstance(item, BoundIndex):
            option = "--" + name.replace("_", "-")
            raise InvalidInputError(source=option, problem=f"{item.name} is an index; only a table's list has bounds")
    return prefix, {name: value_of_text(fields[len(prefix)].element, text) for name, text in bounds.items()}
