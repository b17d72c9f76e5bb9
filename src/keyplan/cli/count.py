"""The command `keyplan count`."""

from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions
from keyplan.cli.narrowing import AtLeastOption, BelowOption, StartsWithOption, narrowed
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_text

__all__ = ["run"]


def run(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    starts_with: StartsWithOption = None,
    at_least: AtLeastOption = None,
    below: BelowOption = None,
) -> None:
    """Count the records or index entries whose first key fields have the values given."""
    with at.opened(readonly=True) as open_layout:
        prefix, bounds = narrowed(
            open_layout.listable(item), fields, starts_with=starts_with, at_least=at_least, below=below
        )
        number = open_layout.layout.view(item).count(*prefix, **bounds)
        if json:
            print_json({"item": item, "count": number})
        else:
            print_text(str(number))
        if not number:
            open_layout.hint_when_foreign()
