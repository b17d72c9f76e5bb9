"""The command `keyplan diff`."""

from typing import Annotated, Any

import typer

from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.options import JsonOption, layout_of_option
from keyplan.cli.output import print_json, print_text, printable
from keyplan.errors import InvalidInputError
from keyplan.layout import Impact, LayoutChange, differences, shown_key

__all__ = ["DropOption", "RenameOption", "plain_change", "renames_of_option", "run"]

RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="OLD=NEW", help="An item's old name with its new one; may be repeated."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="A table whose records shall be removed, or TABLE.FIELD whose values shall be; may be repeated.",
    ),
]


def run(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The layout as it was: a name, module:Class, or FILE.json.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The layout as it shall be.")],
    *,
    rename: RenameOption = None,
    drop: DropOption = None,
    allow: Annotated[
        Impact, typer.Option("--allow", help="Exit code 1 only for changes beyond this class.")
    ] = Impact.COMPATIBLE,
    json: JsonOption = False,
) -> None:
    """Say what changed between two layouts, what each change does to programs and stored data, and what to do.

    Exit code 0 when all changes are compatible, or within --allow; 1 when one is beyond.
    """
    before, after = layout_of_option(old).spec, layout_of_option(new).spec
    changes = differences(before, after, renames=renames_of_option(rename), drops=drop or ())
    beyond = [change for change in changes if change.impact.rank > allow.rank]
    if json:
        worst = max((change.impact for change in changes), key=lambda impact: impact.rank, default=Impact.COMPATIBLE)
        print_json(
            {
                "old": before.name,
                "new": after.name,
                "impact": worst.value,
                "beyond": len(beyond),
                "changes": [plain_change(change) for change in changes],
            }
        )
    else:
        for change in changes:
            print_text(printable(str(change)))
        number = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
        print_text(f"{before.name} to {after.name}: {number}, {len(beyond)} beyond {allow.value}")
    if beyond:
        raise typer.Exit(FINDINGS)


def renames_of_option(given: list[str] | None) -> dict[str, str]:
    """Read `--rename OLD=NEW`. Raises InvalidInputError."""
    renames: dict[str, str] = {}
    for text in given or []:
        old, equals, new = text.partition("=")
        if not (old and equals and new) or old in renames:
            raise InvalidInputError(source="--rename", problem=f"{text!r} is not OLD=NEW, each old name once")
        renames[old] = new
    return renames


def plain_change(change: LayoutChange) -> dict[str, Any]:
    """A change as JSON."""
    return {
        "code": change.code,
        "item": change.item or None,
        "field": change.field or None,
        "impact": change.impact.value,
        "message": change.message,
        "advice": change.advice,
        "witness": None if change.witness is None else shown_key(change.witness),
        "second": None if change.second is None else shown_key(change.second),
        "loses_values": change.loses_values,
        "renamed_to": list(change.renamed_to),
    }
