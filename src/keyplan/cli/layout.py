"""The commands about one layout: `keyplan lint|map|docs`, and against a store's keys `keyplan infer|audit`."""

import json as json_text
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.failures import FINDINGS, end_with_findings, print_hint
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import (
    BesideOption,
    ConfigOption,
    JsonOption,
    KeySpaceOption,
    LayoutOption,
    OutputOption,
    PrefixOption,
    StoreOption,
    file_or_output,
    layout_of_option,
    named_file,
    raw_key_of_option,
    read_text,
    store_of_option,
)
from keyplan.cli.output import document_of, print_answer, print_grid, print_json, print_lines, print_text, progress_bar
from keyplan.codec import Text, element_of_spec
from keyplan.engine import KeyRange, default_profile
from keyplan.errors import InvalidInputError
from keyplan.files import write_over
from keyplan.layout import (
    EngineLimits,
    Field,
    Finding,
    Kind,
    LayoutSpec,
    Literal,
    Template,
    describe,
    lint,
    lint_prefix,
    read_template,
    render_docs,
    render_map,
    shown_key,
)
from keyplan.maintenance import AuditReport, Confidence, Departure, Inference, Note, audit, infer

__all__ = ["audit_command", "docs_command", "infer_command", "lint_command", "map_command"]

# ---- lint ----------------------------------------------------------------------------------------------------------------


def lint_command(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    beside: BesideOption = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="The engine whose limits count for L10; none for no limits.")
    ] = "lmdb",
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="TEMPLATE",
            help="Judge a raw read of this prefix instead, with the root: '/site/rack/{rack}'.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail also for notes without a waiver.")] = False,
    waived: Annotated[bool, typer.Option("--waived/--no-waived", help="Show waived findings.")] = True,
) -> None:
    """Judge a layout by the rules L1 to L13. Exit code 1 when findings are not waived."""
    spec = layout_of_option(layout, config).spec
    if prefix is not None:
        findings = lint_prefix(spec, _prefix_template(spec, prefix))
        failures = findings
    else:
        report = lint(spec, others=[layout_of_option(name).spec for name in beside or []], limits=_limits(engine))
        findings = tuple(finding for finding in report.findings if waived or not finding.is_waived)
        failures = report.failures(strict=strict)
    number = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    print_answer(
        {"layout": spec.name, "findings": [_plain(finding) for finding in findings], "failures": len(failures)},
        *map(str, findings),
        f"{spec.name}: {number}, {len(failures)} to fix or waive",
        json=json,
    )
    end_with_findings(failures)


def _prefix_template(spec: LayoutSpec, source: str) -> Template:
    """Read a prefix as people write it; a field without a codec has that of the layout's first field of its name."""
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
    """Print a layout's map: every template in key order, with the records behind it.

    Keep it in the repository and check it in the tests (--check): each change of the layout changes a line. --json prints the
    layout's description, which --layout FILE.json reads.
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
        print_text(f"{path} is stale: `keyplan map --write {path}` writes it anew")
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


# ---- infer ---------------------------------------------------------------------------------------------------------------


def infer_command(
    *,
    store: StoreOption = None,
    keyspace: KeySpaceOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    prefix: PrefixOption = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the layout to a file: FILE.json, or Python.",
            callback=named_file,
        ),
    ] = None,
    python: Annotated[
        bool, typer.Option("--python", help="The layout as a Python module instead of a description.")
    ] = False,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The layout's name.")] = "Inferred",
) -> None:
    """Infer a layout from the keys of a store, and print each decision with its evidence.

    Only FILE is written. The layout is a draft: lint it, audit the store with it, name its fields. Exit code 1 when keys are
    left out or templates collide.
    """
    if not name.isidentifier():
        raise InvalidInputError(source="--name", problem="it must be a Python identifier: letters, digits, underscores")
    raw = raw_key_of_option(prefix, source="--prefix")
    with (
        store_of_option(store, config, readonly=True, keyspace=keyspace) as opened,
        opened.engine.snapshot() as snapshot,
        progress_bar("infer", lambda: 2 * snapshot.count(KeyRange.of_prefix(raw))) as progress,
    ):
        found = infer(snapshot, prefix=raw, name=name, progress=progress)
    layout = found.python if python else json_text.dumps(found.description, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        write_over(out, layout)
    if json:
        print_json(_inference_document(found))
    elif python and out is None:
        print_text(layout)
    else:
        _print_inference(found)
    if out is not None and not json:
        print_text(f"wrote {out}")
    for problem in _problems(found):
        print_hint(problem)
    end_with_findings(found.errors or found.left_out)


def _print_inference(found: Inference) -> None:
    items = found.description["items"]
    print_lines(f"{found.keys} keys, {len(items)} tables{_place(found)}")
    rows = [_table_row(found, item) for item in items]
    print_grid(["TABLE", "KEYS", "TEMPLATE", "VALUE"], rows)
    _print_notes("decided:", [note for note in found.notes if note.confidence is not Confidence.LOW])
    _print_notes("in doubt:", found.doubts)
    if found.suggestions:
        print_lines("suggested, not declared:", *(f"  {hint.table} {hint}" for hint in found.suggestions))


def _place(found: Inference) -> str:
    root = found.spec.root.plain
    return f" below {root}" if root else ", no common prefix"


def _table_row(found: Inference, item: dict[str, Any]) -> list[str]:
    form = item["value"]
    value = form.get("type") or form.get("element") or form["form"]
    lease = ", leased" if item["lease"] else ""
    return [item["name"], str(found.table_keys[item["name"]]), item["template"], value + lease]


def _print_notes(title: str, notes: "list[Note] | tuple[Note, ...]") -> None:
    if notes:
        print_lines(title, *(f"  {note}" for note in notes))


def _problems(found: Inference) -> Iterator[str]:
    for error in found.errors:
        yield f"two kinds of keys do not differ: {error}"
    if found.left_out:
        shown = ", ".join(map(shown_key, found.left_out_keys))
        yield f"{found.left_out} keys are left out: {shown}{', ...' if found.left_out > len(found.left_out_keys) else ''}"


def _inference_document(found: Inference) -> dict[str, Any]:
    return {
        "layout": found.description,
        "keys": found.keys,
        "own": found.own,
        "left_out": found.left_out,
        "left_out_keys": document_of(found.left_out_keys),
        "table_keys": found.table_keys,
        "notes": document_of(found.notes),
        "suggestions": document_of(found.suggestions),
        "errors": [str(error) for error in found.errors],
    }


# ---- audit ---------------------------------------------------------------------------------------------------------------


def audit_command(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    prefix: PrefixOption = "",
    min_explained: Annotated[
        float,
        typer.Option("--min-explained", metavar="PERCENT", min=0, max=100, help="Exit code 0 from this share on."),
    ] = 100.0,
    beside: BesideOption = None,
    samples: Annotated[int, typer.Option("--samples", metavar="N", min=0, help="Sample keys of each group.")] = 3,
) -> None:
    """Decode every key of a store; print the share that the layout explains, and the others in groups.

    Exit code 1 when the layout explains fewer than --min-explained per cent of the keys.
    """
    raw = raw_key_of_option(prefix, source="--prefix")
    others = [layout_of_option(name).bound() for name in beside or []]
    with (
        at.opened(readonly=True) as open_layout,
        open_layout.store.engine.snapshot() as snapshot,
        progress_bar("audit", lambda: snapshot.count(KeyRange.of_prefix(raw))) as progress,
    ):
        report = audit(snapshot, open_layout.bound, prefix=raw, beside=others, samples=samples, progress=progress)
    if json:
        print_json(_audit_document(report))
    else:
        _print_audit(report)
    end_with_findings(report.percent < min_explained)


def _print_audit(report: AuditReport) -> None:
    number = "1 key" if report.keys == 1 else f"{report.keys} keys"
    print_text(f"{_percent(report)} % of {number} explained by {report.layout}")
    rows = (
        (
            tally.item,
            tally.kind,
            str(tally.keys),
            str(tally.key_bytes + tally.value_bytes),
            str(tally.unreadable),
            tally.template,
        )
        for tally in report.items.values()
    )
    print_grid(["ITEM", "KIND", "KEYS", "BYTES", "UNREADABLE", "TEMPLATE"], rows)
    print_lines(*_audit_lines(report))


def _audit_lines(report: AuditReport) -> Iterator[str]:
    for tally in report.items.values():
        if tally.unreadable:
            yield f"{tally.unreadable} unreadable in {tally.item}{_shown(tally.samples, tally.unreadable)}"
        if tally.ambiguous:
            yield f"{tally.ambiguous} of {tally.item} can be read as another item too (lint rule L1)"
    for departure in report.departures:
        yield _departure_line(departure)
    if report.groups_left_out:
        yield f"{report.groups_left_out} unknown in more groups than are kept apart"
    for name, keys in report.elsewhere.items():
        yield f"{keys} left to {name}"
    if report.own:
        yield f"{report.own} are keyplan's own"


def _departure_line(departure: Departure) -> str:
    what = "namespace keys" if departure.kind is Kind.NAMESPACE else "unknown"
    if departure.item is None:
        where = f"outside the root, {'below ' + departure.place if departure.place else 'from the first byte on'}"
    else:
        where = f"behind {departure.place or 'the root'}, nearest is {departure.item}"
    return f"{departure.keys} {what} {where}{_shown(departure.samples, departure.keys)}"


def _shown(samples: list[bytes], number: int) -> str:
    if not samples:
        return ""
    return ": " + ", ".join(map(shown_key, samples)) + (", ..." if number > len(samples) else "")


def _percent(report: AuditReport) -> str:
    """Return two digits, rounded down: only all keys are 100."""
    return "100" if report.is_explained else f"{math.floor(100 * report.percent) / 100:.2f}"


def _audit_document(report: AuditReport) -> dict[str, Any]:
    return {
        "layout": report.layout,
        "prefix": shown_key(report.prefix),
        "percent": report.percent,
        "keys": report.keys,
        "explained": report.explained,
        "unreadable": report.unreadable,
        "unknown": report.unknown,
        "namespace_keys": report.namespace_keys,
        "own": report.own,
        "elsewhere": report.elsewhere,
        "key_bytes": report.key_bytes,
        "value_bytes": report.value_bytes,
        "items": [document_of(tally) for tally in report.items.values()],
        "departures": [_departure_document(departure) for departure in report.departures],
        "groups_left_out": report.groups_left_out,
    }


def _departure_document(departure: Departure) -> dict[str, Any]:
    fields = document_of(departure)
    return {"departs_at_byte" if name == "position" else name: value for name, value in fields.items()}
