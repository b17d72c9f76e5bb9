"""The commands that hold a layout against a store's keys: `keyplan infer|audit`."""

import json as json_text
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.failures import FINDINGS, print_hint
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    KeySpaceOption,
    StoreOption,
    layout_of_option,
    named_file,
    raw_key_of_option,
    store_of_option,
)
from keyplan.cli.output import print_grid, print_json, print_text, printable, progress_bar
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.files import write_over
from keyplan.layout import Kind, shown_key
from keyplan.maintenance import AuditReport, Confidence, Departure, Inference, Note, audit, infer

__all__ = ["PrefixOption", "audit_command", "infer_command"]


PrefixOption = Annotated[
    str,
    typer.Option(
        "--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.", show_default=False
    ),
]


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
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the layout.")] = "Inferred",
) -> None:
    """Infer a layout from the keys that a store holds, and print each decision with its evidence.

    Nothing is written but FILE. The layout is a draft: lint it, audit the store with it, give its fields their names.
    Exit code 1 when keys are left out or templates collide.
    """
    if not name.isidentifier():
        raise InvalidInputError(source="--name", problem="the name of a class is letters, digits and underscores")
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
    if found.errors or found.left_out:
        raise typer.Exit(FINDINGS)


def _print_inference(found: Inference) -> None:
    items = found.description["items"]
    print_text(printable(f"{found.keys} keys, {len(items)} tables{_place(found)}"))
    rows = [_table_row(found, item) for item in items]
    print_grid(["TABLE", "KEYS", "TEMPLATE", "VALUE"], rows)
    _print_notes("decided:", [note for note in found.notes if note.confidence is not Confidence.LOW])
    _print_notes("in doubt:", found.doubts)
    if found.suggestions:
        print_text("suggested, not declared:")
    for hint in found.suggestions:
        print_text(printable(f"  {hint.table} {hint}"))


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
        print_text(title)
    for note in notes:
        print_text(printable(f"  {note}"))


def _problems(found: Inference) -> Iterator[str]:
    for error in found.errors:
        yield f"the keys do not show how two kinds of them differ: {error}"
    if found.left_out:
        shown = ", ".join(map(shown_key, found.left_out_keys))
        yield f"{found.left_out} keys are left out: {shown}{', ...' if found.left_out > len(found.left_out_keys) else ''}"


def _inference_document(found: Inference) -> dict[str, Any]:
    return {
        "layout": found.description,
        "keys": found.keys,
        "own": found.own,
        "left_out": found.left_out,
        "left_out_keys": [shown_key(key) for key in found.left_out_keys],
        "table_keys": found.table_keys,
        "notes": [
            {
                "place": note.place,
                "decision": note.decision,
                "reason": note.reason,
                "confidence": note.confidence.value,
            }
            for note in found.notes
        ],
        "suggestions": [
            {"table": hint.table, "kind": hint.kind, "of": hint.of, "evidence": hint.evidence}
            for hint in found.suggestions
        ],
        "errors": [str(error) for error in found.errors],
    }


# ---- audit ---------------------------------------------------------------------------------------------------------------


def audit_command(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    prefix: PrefixOption = "",
    min_explained: Annotated[
        float, typer.Option("--min-explained", metavar="PERCENT", min=0, max=100, help="Exit code 0 from here on.")
    ] = 100.0,
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", metavar="LAYOUT", help="Another layout in the same store; may be repeated."),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", metavar="N", min=0, help="Keys shown of each group.")] = 3,
) -> None:
    """Decode every key of a store, and say what share of them the layout explains; the others in groups.

    Exit code 0 when all keys are explained, or at least --min-explained per cent of them, 1 otherwise.
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
    if report.percent < min_explained:
        raise typer.Exit(FINDINGS)


def _print_audit(report: AuditReport) -> None:
    number = "1 key" if report.keys == 1 else f"{report.keys} keys"
    print_text(f"{_percent(report)} % of {number} explained by {report.layout}")
    rows = [
        [
            tally.item,
            tally.kind,
            str(tally.keys),
            str(tally.key_bytes + tally.value_bytes),
            str(tally.unreadable),
            tally.template,
        ]
        for tally in report.items.values()
    ]
    print_grid(["ITEM", "KIND", "KEYS", "BYTES", "UNREADABLE", "TEMPLATE"], rows)
    for line in _audit_lines(report):
        print_text(printable(line))


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
    """Two digits, rounded down: 100 is said only of all."""
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
        "items": [
            {
                "item": tally.item,
                "kind": tally.kind,
                "template": tally.template,
                "keys": tally.keys,
                "key_bytes": tally.key_bytes,
                "value_bytes": tally.value_bytes,
                "unreadable": tally.unreadable,
                "ambiguous": tally.ambiguous,
                "leased": tally.leased,
                "samples": [shown_key(key) for key in tally.samples],
            }
            for tally in report.items.values()
        ],
        "departures": [
            {
                "kind": departure.kind.value,
                "item": departure.item,
                "template": departure.template,
                "place": departure.place,
                "departs_at_byte": departure.position,
                "keys": departure.keys,
                "key_bytes": departure.key_bytes,
                "value_bytes": departure.value_bytes,
                "samples": [shown_key(key) for key in departure.samples],
            }
            for departure in report.departures
        ],
        "groups_left_out": report.groups_left_out,
    }
