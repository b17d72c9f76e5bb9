"""The commands of `keyplan cloudchamber`. They read arguments and print; what is done, reconciling.py does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from keyplan.apps.cloudchamber.definition import Definition, read_definition
from keyplan.apps.cloudchamber.import_plan import ImportPlan
from keyplan.apps.cloudchamber.import_report import (
    counted,
    definition_line,
    plan_data,
    plan_lines,
    plan_summary,
)
from keyplan.apps.cloudchamber.imports import wanted_records
from keyplan.apps.cloudchamber.indexed import layout_in_use, store_for_writing
from keyplan.apps.cloudchamber.indexed_cli import index
from keyplan.apps.cloudchamber.inventory import ExtraDevices, RackIds
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.layout_choice import choose_layout
from keyplan.apps.cloudchamber.migrate_cli import check_pairs, export_inventory, migrate_store
from keyplan.apps.cloudchamber.namespaces_cli import (
    NamespaceOption,
    list_tests,
    namespace_of_option,
    purge,
    show_settings,
    watch,
)
from keyplan.apps.cloudchamber.reconciling import ImportOutcome, planned_import, reconcile
from keyplan.apps.cloudchamber.validation import validated
from keyplan.apps.cloudchamber.workloads import find_orphans
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_json, print_text, progress_bar, store_of_option
from keyplan.errors import StoreMissingError
from keyplan.layout import shown_key
from keyplan.store import Store, open_store

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

_COLOURS = {"+": typer.colors.GREEN, "~": typer.colors.YELLOW, "-": typer.colors.RED}


@app.callback()
def _group() -> None:
    """CloudChamber's store, under the keys of its document or its Go program: inventory, test name spaces, settings."""


app.command("export")(export_inventory)
app.command("migrate")(migrate_store)
app.command("pairs")(check_pairs)
app.command("tests")(list_tests)
app.command("watch")(watch)
app.command("purge")(purge)
app.command("settings")(show_settings)
app.command("index")(index)


@app.command("import")
def import_inventory(
    file: Annotated[Path, typer.Argument(help="The inventory definition, a YAML file.", show_default=False)],
    store: StoreOption = None,
    into: Annotated[
        LayoutSide | None,
        typer.Option(
            help="Under whose keys: the document's, or those of the Go program; by default those that the store holds.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")] = False,
    extra_devices: Annotated[
        ExtraDevices,
        typer.Option(help="What becomes of a rack's second PDU or TOR, which the document has no key for."),
    ] = ExtraDevices.REFUSE,
    rack_ids: Annotated[
        RackIds, typer.Option(help="How racks are named in keys; the long form for several regions or zones.")
    ] = RackIds.NAME,
    namespace: NamespaceOption = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Make the inventory in the store what FILE says: create, update and delete racks and their parts.

    What is as it should be is not written, so that a second import of one file changes nothing. Users and workloads are never
    touched.
    """
    definition = validated(read_definition(file))
    own = namespace_of_option(namespace)
    side = _side_of(store, config, own, into)
    wanted = wanted_records(side, definition, extra_devices=extra_devices, rack_ids=rack_ids)
    with _opened(store, config, is_dry_run=dry_run) as opened:
        outcome = _imported(_layout_on(opened, side, own), wanted, is_dry_run=dry_run)
    if as_json:
        _print_json(outcome, is_dry_run=dry_run)
    else:
        _print_text(definition, outcome, is_dry_run=dry_run)


@app.command("orphans")
def list_orphans(
    *,
    store: StoreOption = None,
    source: Annotated[
        LayoutSide | None,
        typer.Option("--from", help="Whose keys; by default those that the store holds.", show_default=False),
    ] = None,
    namespace: NamespaceOption = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the parts of racks and workloads that are not there, and instances with a part of what they have.

    A delete in several commits that was cut off leaves them, as other programs do. Exit code 1 when there are some. `DELETE
    /api/racks/NAME/definition?cascade` and `DELETE /api/workloads/NAME` delete what is left of one.
    """
    own = namespace_of_option(namespace)
    side = _side_of(store, config, own, source, remedy="--from document or --from go")
    with store_of_option(store, config, readonly=True) as opened:
        layout = CloudChamberGo if side is LayoutSide.GO else CloudChamber
        found = find_orphans(layout(opened, namespace=own))
    tables = side.bound(own).tables
    for one in found:
        raw_key = shown_key(tables[one.table].keys.encode(one.key))
        if as_json:
            print_json({"key": raw_key, "table": one.table, "problem": one.problem})
        else:
            print_text(f"{raw_key}: {one.problem}")
    if not as_json:
        print_text("Nothing stands alone." if not found else f"{counted(len(found), 'key')} to look at.")
    if found:
        raise typer.Exit(1)


def _layout_on(store: Store, side: LayoutSide, namespace: str) -> CloudChamber | CloudChamberGo:
    """The layout as writers of the store use it."""
    if side is LayoutSide.GO:
        return CloudChamberGo(store, namespace=namespace)
    layout = layout_in_use(store, namespace)
    return layout(store_for_writing(store, namespace, layout), namespace=namespace)


def _imported(chamber: Any, desired: Mapping[Any, Any], *, is_dry_run: bool) -> ImportOutcome:
    if is_dry_run:
        return ImportOutcome(planned_import(chamber, desired), 0, chamber.revision)
    with progress_bar("import") as report:
        return reconcile(chamber, desired, report=report)


def _side_of(
    url: str | None,
    config: Path | None,
    namespace: str,
    wanted: LayoutSide | None,
    *,
    remedy: str = "--into document or --into go",
) -> LayoutSide:
    """Under whose keys to work. Why a look of its own: a definition that is refused makes no store."""
    if wanted is not None:
        return wanted
    try:
        with store_of_option(url, config, create=False) as opened:
            return choose_layout(opened.engine, namespace, None, remedy=remedy).side
    except StoreMissingError:
        return LayoutSide.DOCUMENT


def _opened(url: str | None, config: Path | None, *, is_dry_run: bool) -> Store:
    """The store to import into. A dry run makes none: where there is none yet, it is compared with an empty one."""
    try:
        return store_of_option(url, config, create=not is_dry_run)
    except StoreMissingError:
        return open_store("memory:")


def _print_json(outcome: ImportOutcome, *, is_dry_run: bool) -> None:
    plan = plan_data(outcome.plan)
    print_json({**plan, "dry_run": is_dry_run, "commits": outcome.commits, "revision": outcome.revision})


def _print_text(definition: Definition, outcome: ImportOutcome, *, is_dry_run: bool) -> None:
    plan = outcome.plan
    typer.secho(definition.name or "Inventory", bold=True)
    typer.echo(f"{definition.source}: {definition_line(definition)}")
    for line in plan_lines(plan):
        typer.secho(f"  {line}", fg=_COLOURS.get(line[0]))
    typer.echo(_result(plan, outcome, is_dry_run=is_dry_run))


def _result(plan: ImportPlan, outcome: ImportOutcome, *, is_dry_run: bool) -> str:
    at = f"revision {outcome.revision:,}" if outcome.revision else "its first state"
    if plan.is_empty:
        return (
            f"Nothing to do: the store has all {counted(plan.unchanged, 'record')} as the file says, and stays at {at}."
        )
    if is_dry_run:
        return f"{plan_summary(plan, is_done=False)}. This was a dry run: nothing was written."
    commits = "in one commit" if outcome.commits == 1 else f"in {counted(outcome.commits, 'commit')}"
    return f"{plan_summary(plan, is_done=True)}, {commits}. The store is at {at}."
