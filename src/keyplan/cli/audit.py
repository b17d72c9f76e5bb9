"""The command `keyplan audit`."""

import math
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import JsonOption, layout_of_option
from keyplan.cli.output import print_grid, print_json, print_text, printable
from keyplan.cli.raw_prefix import PrefixOption, raw_prefix
from keyplan.engine import KeyRange
from keyplan.layout import Kind, shown_key
from keyplan.maintenance import AuditReport, Departure, audit

__all__ = ["run"]


def run(
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
    raw = raw_prefix(prefix)
    others = [layout_of_option(name).bound() for name in beside or []]
    with (
        at.opened(readonly=True) as open_layout,
        open_layout.store.engine.snapshot() as snapshot,
        progress_bar("audit", lambda: snapshot.count(KeyRange.of_prefix(raw))) as progress,
    ):
        report = audit(snapshot, open_layout.bound, prefix=raw, beside=others, samples=samples, progress=progress)
    if json:
        print_json(_document(report))
    else:
        _print_report(report)
    if report.percent < min_explained:
        raise typer.Exit(FINDINGS)


def _print_report(report: AuditReport) -> None:
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
    for line in _lines(report):
        print_text(printable(line))


def _lines(report: AuditReport) -> Iterator[str]:
    for tally in report.items.values():
        if tally.unreadable:
            yield f"{tally.unreadable} unreadable in {tally.item}{_shown(tally.samples, tally.unreadable)}"
        if tally.ambiguous:
            yield f"{tally.ambiguous} of {tally.item} can be read as another item too (lint rule L1)"
    for departure in report.departures:
        yield _line(departure)
    if report.groups_left_out:
        yield f"{report.groups_left_out} unknown in more groups than are kept apart"
    for name, keys in report.elsewhere.items():
        yield f"{keys} left to {name}"
    if report.own:
        yield f"{report.own} are keyplan's own"


def _line(departure: Departure) -> str:
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


def _document(report: AuditReport) -> dict[str, Any]:
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
