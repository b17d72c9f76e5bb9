"""The commands that lead from one layout to the other, and to files: `keyplan cloudchamber export|migrate|pairs`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.apps.cloudchamber.export import exported, write_export
from keyplan.apps.cloudchamber.go_inventory import GO_VIEW, GO_VIEWS, unsound_pairs
from keyplan.apps.cloudchamber.import_report import counted
from keyplan.apps.cloudchamber.inventory import ExtraDevices, RackIds
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.migrating import MigrationOutcome, migrate, plan_of_migration
from keyplan.apps.cloudchamber.migration import Leftover, Migration, MigrationOptions
from keyplan.apps.cloudchamber.namespaces_cli import NamespaceOption, namespace_of_option
from keyplan.apps.cloudchamber.sidecar import read_sidecar
from keyplan.cli import (
    ConfigOption,
    JsonOption,
    StoreOption,
    Unfinished,
    brought_into,
    print_json,
    print_text,
    progress_bar,
    store_of_option,
)
from keyplan.errors import InvalidInputError
from keyplan.store import Store

__all__ = ["check_pairs", "export_inventory", "migrate_store"]

_KEYS_SHOWN_MAX = 4
"""Why: a line for a reason; `--json` has them all."""

_RackIds = Annotated[RackIds, typer.Option(help="How racks are named in the document's keys.")]


def export_inventory(
    file: Annotated[Path, typer.Argument(help="The definition file to write.", show_default=False)],
    *,
    store: StoreOption = None,
    source: Annotated[
        LayoutSide,
        typer.Option("--from", help="Under whose keys the inventory is: the document's, or the Go program's."),
    ] = LayoutSide.DOCUMENT,
    rack_ids: _RackIds = RackIds.NAME,
    namespace: NamespaceOption = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace FILE if it is there.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Write the inventory of a store as a definition file, which changes nothing when it is imported again.

    What such a file cannot say is an error that names it. The document's keys know no regions and zones: all racks are in
    region and zone `standard`, or where their ids say.
    """
    with store_of_option(store, config, readonly=True) as opened:
        layout = CloudChamber if source is LayoutSide.DOCUMENT else CloudChamberGo
        found = exported(layout(opened, namespace=namespace_of_option(namespace)), rack_ids=rack_ids)
    write_export(file, found.text, is_replacing=replace)
    if as_json:
        print_json({"file": str(file), "records": found.records, "bytes": len(found.text)})
    else:
        print_text(f"{file}: {counted(found.records, 'record')}, {counted(len(found.text), 'byte')}.")


def migrate_store(
    *,
    store: StoreOption = None,
    source: Annotated[LayoutSide, typer.Option("--from", help="The layout to leave.", show_default=False)],
    target: Annotated[LayoutSide, typer.Option("--to", help="The layout to go to.", show_default=False)],
    to_store: Annotated[
        str | None, typer.Option("--to-store", metavar="URL", help="Another store to write to.", show_default=False)
    ] = None,
    sidecar: Annotated[
        Path | None,
        typer.Option(
            "--aside", metavar="FILE", help="Where to write what the target cannot represent.", show_default=False
        ),
    ] = None,
    from_aside: Annotated[
        Path | None,
        typer.Option("--from-aside", metavar="FILE", help="What the way there had carried aside.", show_default=False),
    ] = None,
    leave_behind: Annotated[
        bool, typer.Option("--leave-behind", help="Go on without what the target cannot represent.")
    ] = False,
    view: Annotated[str, typer.Option(help="The view of the Go program's inventory.")] = GO_VIEW,
    rack_ids: _RackIds = RackIds.NAME,
    extra_devices: Annotated[
        ExtraDevices, typer.Option(help="What becomes of second PDUs and TORs, which the document has no key for.")
    ] = ExtraDevices.REFUSE,
    namespace: NamespaceOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and write nothing.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Copy a store from one layout to the other, value by value and byte for byte, and read it back.

    The source is never changed, and nothing in the target is. What the target cannot represent is refused, unless --aside
    says where to keep it for the way back, or --leave-behind that it may go. When it is cut off, run it again.
    """
    if source is target:
        raise InvalidInputError(source="migrate", problem="--from and --to are the same")
    if view not in GO_VIEWS:
        raise InvalidInputError(source="--view", problem=f"{view!r} is none of {', '.join(GO_VIEWS)}")
    options = MigrationOptions(view, rack_ids, extra_devices, namespace_of_option(namespace))
    back = None if from_aside is None else read_sidecar(from_aside)
    with store_of_option(store, config, readonly=dry_run or to_store is not None) as opened:
        if dry_run:
            _print_plan(plan_of_migration(opened, source, options, back), is_json=as_json)
            return
        with progress_bar("migrate") as report:

            def bring(target_store: Store) -> MigrationOutcome:
                return migrate(
                    opened,
                    target_store,
                    source,
                    options,
                    back=back,
                    sidecar=sidecar,
                    leave_behind=leave_behind,
                    report=report,
                )

            if to_store is None:
                outcome = bring(opened)
            else:
                outcome = brought_into(
                    to_store,
                    config,
                    lambda engine: bring(Store(engine, secrets=opened.secrets)),
                    unfinished=Unfinished.TOLD,
                )
    _print_outcome(outcome, sidecar, is_json=as_json)


def check_pairs(
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Check that records and list keys of the Go program agree: each has the other, and lists the name in its key.

    Exit code 1 when some do not. An import into the Go program's keys mends the definition's.
    """
    with store_of_option(store, config, readonly=True) as opened:
        found = list(unsound_pairs(CloudChamberGo(opened, namespace=namespace_of_option(namespace))))
    for pair in found:
        if as_json:
            print_json({"key": pair.raw_key, "table": pair.place.table, "problem": pair.problem})
        else:
            print_text(f"{pair.raw_key}: {pair.problem}")
    if not as_json:
        print_text("All records and list keys agree." if not found else f"{counted(len(found), 'key')} to look at.")
    if found:
        raise typer.Exit(1)


def _print_plan(plan: Migration, *, is_json: bool) -> None:
    if is_json:
        print_json({**_plan_data(plan), "dry_run": True})
        return
    _print_notes(plan)
    print_text(f"{counted(len(plan.desired), 'key')} to write. This was a dry run: nothing was written.")


def _print_outcome(outcome: MigrationOutcome, sidecar: Path | None, *, is_json: bool) -> None:
    plan = outcome.plan
    if is_json:
        tally = {"keys": outcome.tally.count, "bytes": outcome.tally.bytes, "sha256": outcome.tally.sha256}
        done = {"written": outcome.written, "others": outcome.others, "commits": outcome.commits}
        print_json({**_plan_data(plan), **done, "revision": outcome.revision, "read_back": tally, "dry_run": False})
        return
    _print_notes(plan)
    if plan.leftovers:
        kept = f"are in {sidecar}" if sidecar is not None else "were left behind"
        print_text(f"{counted(len(plan.leftovers), 'thing')} that the target has no place for {kept}.")
    there = len(plan.desired) - outcome.written
    was_there = f", {there:,} were there" if there else ""
    others = f" It has {counted(outcome.others, 'key')} besides, which stayed." if outcome.others else ""
    print_text(
        f"{counted(outcome.written, 'key')} written in {counted(outcome.commits, 'commit')}{was_there}; all"
        f" {len(plan.desired):,} read back, sha256 {outcome.tally.sha256}.{others}"
    )


def _print_notes(plan: Migration) -> None:
    for sign, notes in (("!", plan.leftovers), ("?", plan.unused)):
        for why in dict.fromkeys(note.why for note in notes):
            print_text(f"  {sign} {why}: {_listed([note.key for note in notes if note.why == why])}")
    if plan.made:
        print_text(f"  + without details: {_listed(list(plan.made))}")


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _KEYS_SHOWN_MAX:,} more" if len(keys) > _KEYS_SHOWN_MAX else ""
    return ", ".join(keys[:_KEYS_SHOWN_MAX]) + more


def _plan_data(plan: Migration) -> dict[str, Any]:
    def told(notes: tuple[Leftover, ...]) -> list[dict[str, str]]:
        return [{"key": note.key, "why": note.why} for note in notes]

    return {
        "from": plan.sidecar.source.value,
        "to": plan.sidecar.source.other.value,
        "keys": len(plan.desired),
        "left_over": told(plan.leftovers),
        "unused": told(plan.unused),
        "made": list(plan.made),
    }
