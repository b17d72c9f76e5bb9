"""The commands `keyplan index list|prepare|build|drop`."""

from typing import Annotated, Final

import typer

from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.items import LayoutOptions
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_grid, print_json, print_text, printable
from keyplan.cli.spread import spread
from keyplan.engine import KeyRange
from keyplan.maintenance import BuildProgress, build_index, drop_index, list_indexes, prepare_index

__all__ = ["app"]

app: Final = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="See, build and drop indexes of a store in use."
)

IndexArgument = Annotated[str, typer.Argument(metavar="INDEX", help="An index of the layout.", show_default=False)]


@app.command("list")
@spread
def list_command(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
) -> None:
    """Print the indexes, and whether each is readable, write-only, building, verifying or sweeping."""
    with at.opened(readonly=True) as open_layout:
        indexes = list_indexes(open_layout.store, open_layout.bound)
    if json:
        for index in indexes:
            print_json(
                {
                    "index": index.name,
                    "table": index.table,
                    "is_unique": index.is_unique,
                    "state": index.stage,
                    "records": index.records,
                }
            )
        return
    rows = [(index.name, index.table, index.stage, str(index.records) if index.records else "") for index in indexes]
    print_grid(("index", "table", "state", "gone through"), rows)


@app.command("prepare")
@spread
def prepare_command(
    index: IndexArgument,
    *,
    at: LayoutOptions,
) -> None:
    """Make an index write-only: writers keep it, readers are refused until it is built. To be done first of all."""
    with at.opened() as open_layout:
        is_new = prepare_index(open_layout.store, open_layout.bound, index)
    print_text(f"{index} is write-only" if is_new else f"{index} was not readable before: nothing was changed")


@app.command("build")
@spread
def build_command(
    index: IndexArgument,
    *,
    at: LayoutOptions,
    records_per_second: Annotated[
        float | None, typer.Option("--records-per-second", metavar="N", help="Go no faster than this.")
    ] = None,
) -> None:
    """Build an index while the store is in use, verify it, and make it readable. An interrupted build goes on where it was."""
    with at.opened() as open_layout:
        engine = open_layout.store.engine

        def total() -> int:
            table = open_layout.bound.indexes[index].table
            with engine.snapshot() as snapshot:
                return snapshot.count(KeyRange(*table.keys.range(())))

        open_layout.bound.spec.item(index)
        with progress_bar(f"build {index}", total) as told:

            def progress(now: BuildProgress) -> None:
                told(now.records)

            report = build_index(
                open_layout.store,
                open_layout.bound,
                index,
                records_per_second=records_per_second,
                progress=progress,
            )
    for finding in report.contested:
        print_text(printable(str(finding)))
    if report.unfit:
        print_hint(f"{report.unfit} records have no entry, as `keyplan check` says of each")
    if not report.is_readable:
        print_text(f"{index} is not readable: change what two records claim, and build it again")
        raise typer.Exit(FINDINGS)
    print_text(f"{index} is readable: {report.entries_written} entries written")


@app.command("drop")
@spread
def drop_command(
    index: IndexArgument,
    *,
    at: LayoutOptions,
) -> None:
    """Refuse readers, then remove the entries of an index. Records are not touched; `build` makes it again."""
    with at.opened() as open_layout:
        removed = drop_index(open_layout.store, open_layout.bound, index)
    print_text(f"{index} is write-only: {removed} entries removed")
