"""The command `keyplan infer`."""

import json as json_text
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.files import named_file, write_text
from keyplan.cli.options import ConfigOption, JsonOption, KeySpaceOption, StoreOption, store_of_option
from keyplan.cli.output import print_grid, print_json, print_text, printable
from keyplan.cli.raw_prefix import PrefixOption, raw_prefix
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.layout import shown_key
from keyplan.maintenance import Confidence, Inference, Note, infer

__all__ = ["run"]


def run(
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
    raw = raw_prefix(prefix)
    with (
        store_of_option(store, config, readonly=True, keyspace=keyspace) as opened,
        opened.engine.snapshot() as snapshot,
        progress_bar("infer", lambda: 2 * snapshot.count(KeyRange.of_prefix(raw))) as progress,
    ):
        found = infer(snapshot, prefix=raw, name=name, progress=progress)
    layout = found.python if python else json_text.dumps(found.description, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        write_text(out, layout)
    if json:
        print_json(_document(found))
    elif python and out is None:
        print_text(layout)
    else:
        _print_report(found)
    if out is not None and not json:
        print_text(f"wrote {out}")
    for problem in _problems(found):
        print_hint(problem)
    if found.errors or found.left_out:
        raise typer.Exit(FINDINGS)


def _print_report(found: Inference) -> None:
    items = found.description["items"]
    print_text(printable(f"{found.keys} keys, {len(items)} tables below {found.spec.root.plain or 'no root'}"))
    rows = [_row(found, item) for item in items]
    print_grid(["TABLE", "KEYS", "TEMPLATE", "VALUE"], rows)
    _print_notes("decided:", [note for note in found.notes if note.confidence is not Confidence.LOW])
    _print_notes("in doubt:", found.doubts)
    if found.suggestions:
        print_text("suggested, not declared:")
    for hint in found.suggestions:
        print_text(printable(f"  {hint.table} {hint}"))


def _row(found: Inference, item: dict[str, Any]) -> list[str]:
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
        yield f"the evidence does not part two kinds of keys: {error}"
    if found.left_out:
        shown = ", ".join(map(shown_key, found.left_out_keys))
        yield f"{found.left_out} keys are left out: {shown}{', ...' if found.left_out > len(found.left_out_keys) else ''}"


def _document(found: Inference) -> dict[str, Any]:
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
