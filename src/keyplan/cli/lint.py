"""The command `keyplan lint`."""

from typing import Annotated

import typer

from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, layout_of_option
from keyplan.cli.output import print_json, print_text
from keyplan.codec import Text, element_of_spec
from keyplan.engine import default_profile
from keyplan.layout import (
    EngineLimits,
    Field,
    Finding,
    LayoutSpec,
    Literal,
    Template,
    lint,
    lint_prefix,
    read_template,
    shown_key,
)

__all__ = ["run"]


def run(
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
