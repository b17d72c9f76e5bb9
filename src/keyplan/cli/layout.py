"""The commands about a layout alone, without a store: `keyplan lint|diff|map|docs`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.failures import FINDINGS
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    OutputOption,
    file_or_output,
    layout_of_option,
    read_text,
)
from keyplan.cli.output import print_json, print_text, printable
from keyplan.codec import Text, element_of_spec
from keyplan.engine import default_profile
from keyplan.errors import InvalidInputError
from keyplan.files import write_over
from keyplan.layout import (
    EngineLimits,
    Field,
    Finding,
    Impact,
    LayoutChange,
    LayoutSpec,
    Literal,
    Template,
    describe,
    differences,
    lint,
    lint_prefix,
    read_template,
    render_docs,
    render_map,
    shown_key,
)

__all__ = [
    "DropOption",
    "RenameOption",
    "diff_command",
    "docs_command",
    "lint_command",
    "map_command",
    "plain_change",
    "renames_of_option",
]

# ---- lint ----------------------------------------------------------------------------------------------------------------


def lint_command(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", metavar="LAYOUT", help="Another layout in the same store; may be repeated."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="The engine whose limits count for L10; none for no limits.")
    ] = "lmdb",
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="TEMPLATE",
            help="Judge a raw read of this prefix instead, root included: '/site/rack/{rack}'.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Notes without a waiver fail too.")] = False,
    waived: Annotated[bool, typer.Option("--waived/--no-waived", help="Show waived findings.")] = True,
) -> None:
    """Judge a layout by the rules L1 to L13. Exit code 1 when something is neither fixed nor waived."""
    spec = layout_of_option(layout, config).spec
    if prefix is not None:
        findings = lint_prefix(spec, _prefix_template(spec, prefix))
        failures = findings
    else:
        report = lint(spec, others=[layout_of_option(name).spec for name in beside or []], limits=_limits(engine))
        findings = tuple(finding for finding in report.findings if waived or not finding.is_waived)
        failures = report.failures(strict=strict)
    if json:
        print_json(
            {"layout": spec.name, "findings": [_plain(finding) for finding in findings], "failures": len(failures)}
        )
    else:
        for finding in findings:
            print_text(str(finding))
        number = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        print_text(f"{spec.name}: {number}, {len(failures)} to fix or waive")
    if failures:
        raise typer.Exit(FINDINGS)


def _prefix_template(spec: LayoutSpec, source: str) -> Template:
    """Read a prefix as a person writes it; a field without a codec has that of the layout's first field of its name."""
    known = {field.name: field.element for item in reversed(spec.items) for field in item.template.fields}
    parts = [
        part
        if isinstance(part, Literal)
        else Field(part.name, None, element_of_spec(part.spec) if part.spec else known.get(part.name, Text()))
        for part in read_template(source)
    ]
    return Template(tuple(parts), spec.is_text)


def _limits(engine: str) -> EngineLimits | None:
    if engine == "none":
        return None
    profile = default_profile(engine)
    return EngineLimits(
        profile.key_bytes_max, profile.value_bytes_max, profile.commit_operations_max, profile.commit_bytes_max
    )


def _plain(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "items": list(finding.items),
        "message": finding.message,
        "witness": None if finding.witness is None else shown_key(finding.witness),
        "second": None if finding.second is None else shown_key(finding.second),
        "waived": finding.reason or None,
    }


# ---- diff ----------------------------------------------------------------------------------------------------------------


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


def diff_command(
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
    """Compare two layouts: each change, its effect on programs and stored data, and the remedy.

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


# ---- map -----------------------------------------------------------------------------------------------------------------


def map_command(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Compare with a stored map; exit code 1 when it is stale."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the map to a file.", callback=file_or_output)
    ] = None,
) -> None:
    """Print a layout's map: every template in key order, with what its keys hold.

    Kept in the repository and checked by the tests (--check), it shows every change of the layout as a changed line. With
    --json, the layout's description, which --layout FILE.json reads.
    """
    spec = layout_of_option(layout, config).spec
    text = render_map(spec)
    if check is not None:
        _check(check, text)
    elif write is not None:
        write_over(write, text)
        print_text(f"wrote {write}")
    elif json:
        print_json(describe(spec))
    else:
        print_text(text)


def _check(path: Path, current: str) -> None:
    if read_text(path) != current:
        print_text(f"{path} is stale: write it anew with `keyplan map --write {path}`, and read the difference")
        raise typer.Exit(FINDINGS)
    print_text(f"{path} is current")


# ---- docs ----------------------------------------------------------------------------------------------------------------


def docs_command(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    output: OutputOption = None,
) -> None:
    """Print a layout's documentation as Markdown: keys, fields, indexes, lists, findings."""
    spec = layout_of_option(layout, config).spec
    text = render_docs(spec)
    if output is None:
        print_text(text)
    else:
        write_over(output, text)
        print_text(f"wrote {output}")
