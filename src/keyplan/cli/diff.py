"""The commands about a layout and its earlier self: `keyplan diff|lock`."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.failures import FINDINGS, end_with_findings
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, file_or_output, layout_of_option, read_bytes
from keyplan.cli.output import print_answer, print_text
from keyplan.errors import InvalidInputError
from keyplan.files import write_over
from keyplan.layout import Impact, LayoutChange, changes_in_markdown, differences, layout_of_bytes, lock_text, shown_key

__all__ = ["DropOption", "FailOn", "RenameOption", "diff_command", "lock_command", "plain_change", "renames_of_option"]

# ---- diff ----------------------------------------------------------------------------------------------------------------


class FailOn(Enum):
    """The least class of changes that fails: those of `Impact`, or none."""

    COMPATIBLE = "compatible"
    READERS_FIRST = "readers-first"
    WRITERS_FIRST = "writers-first"
    BUILD = "build"
    REWRITE = "rewrite"
    BREAKING = "breaking"
    NEVER = "never"

    def is_reached(self, impact: Impact) -> bool:
        """Tell whether a change of this class fails."""
        return self is not FailOn.NEVER and impact.rank >= Impact(self.value).rank


class Format(Enum):
    """How changes are printed."""

    TEXT = "text"
    GITHUB = "github"


RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="OLD=NEW", help="An item's old name with its new one; may be repeated."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="A table whose records are to be removed, or TABLE.FIELD for values; may be repeated.",
    ),
]


def diff_command(
    *,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="LAYOUT",
            help="The earlier layout: a lock file, a name, module:Class.",
            show_default=False,
        ),
    ],
    layout: LayoutOption = None,
    config: ConfigOption = None,
    rename: RenameOption = None,
    drop: DropOption = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit code 1 for changes of this class, and of those beyond it.")
    ] = FailOn.READERS_FIRST,
    form: Annotated[
        Format, typer.Option("--format", help="text, or github: a summary in Markdown, for a review.")
    ] = Format.TEXT,
    json: JsonOption = False,
) -> None:
    """Compare a layout with an earlier one: each change, its effect on programs and stored data, and the remedy.

    Exit code 1 when a change is of the class of --fail-on, or beyond it.
    """
    if json and form is not Format.TEXT:
        raise InvalidInputError(source="--format", problem="--json prints JSON: pass one of them")
    before, after = layout_of_option(against).spec, layout_of_option(layout, config).spec
    changes = differences(before, after, renames=renames_of_option(rename), drops=drop or ())
    failures = [change for change in changes if fail_on.is_reached(change.impact)]
    worst = max((change.impact for change in changes), key=lambda impact: impact.rank, default=Impact.COMPATIBLE)
    title = f"{before.name} to {after.name}"
    number = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    end = number if fail_on is FailOn.NEVER else f"{number}, {len(failures)} at {fail_on.value} or beyond"
    document = {
        "old": before.name,
        "new": after.name,
        "impact": worst.value,
        "fail_on": fail_on.value,
        "failures": len(failures),
        "changes": [plain_change(change) for change in changes],
    }
    if form is Format.GITHUB:
        print_text(changes_in_markdown(title, changes, failures, end))
    else:
        print_answer(document, *map(str, changes), f"{title}: {end}", json=json)
    end_with_findings(failures)


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
    """Return a change as JSON values."""
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


# ---- lock ----------------------------------------------------------------------------------------------------------------


def lock_command(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Compare with a lock file; exit code 1 when it is stale."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", help="Write the lock to a file.", callback=file_or_output),
    ] = None,
) -> None:
    """Print a layout's lock: its description, which later layouts are compared with (`keyplan diff --against FILE`).

    Keep it in the repository as what is in production, and write it anew with each release.
    """
    if check is not None and write is not None:
        raise InvalidInputError(source="--write", problem="--check writes nothing: pass one of them")
    text = lock_text(layout_of_option(layout, config).spec)
    if check is not None:
        _check(check, text)
    elif write is not None:
        write_over(write, text)
        print_text(f"wrote {write}")
    else:
        print_text(text.rstrip("\n"))


def _check(path: Path, current: str) -> None:
    content = read_bytes(path)
    # Why not by bytes: git writes files with other line ends on Windows. Why the file is judged first: what is no lock, as with
    # the marks of a merge conflict, is not to be written anew, or a change is lost that nobody has compared.
    kept = layout_of_bytes(content, source=str(path))
    if b'"digest"' not in content or lock_text(kept) != current:
        print_text(
            f"{path} is stale: `keyplan diff --against {path}` says how, `keyplan lock --write {path}` writes it anew"
        )
        raise typer.Exit(FINDINGS)
    print_text(f"{path} is current")
