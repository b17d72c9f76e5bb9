"""The commands that work through a store: a function over all events in parallel, the growth of its databases, check, sweep."""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from importlib import import_module
from typing import Annotated, Any, Final

import msgspec
import typer

from keyplan.apps.hepnos.cli_store import dataset_named, opened
from keyplan.apps.hepnos.databases import Address, database_counts, read_counts
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.examine import Finding, examine
from keyplan.apps.hepnos.extent import extents
from keyplan.apps.hepnos.parallel import ParallelProcessor
from keyplan.apps.hepnos.store import DataStore
from keyplan.apps.hepnos.sweep import Leftover, is_under_way, leftovers, sweep
from keyplan.cli import (
    ConfigOption,
    JsonOption,
    StoreOption,
    absolute_url,
    print_json,
    print_text,
    progress_bar,
    stopped_by_signals,
    store_url_of_option,
    words_of,
)
from keyplan.errors import InvalidInputError
from keyplan.ring import rebalance as grow

__all__ = ["check", "checked", "process", "rebalance", "sweep_store", "swept"]

_FINDINGS_EXIT: Final = 1
_SWEPT: Final = frozenset({"deleting", "no-dataset"})


def process(
    path: Annotated[str, typer.Argument(help="The data set.")],
    function: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="Called for each event.")],
    store: StoreOption = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes.")] = 2,
    preload: Annotated[
        list[str] | None,
        typer.Option(
            "--preload", metavar="LABEL[=TYPE]", help="A product to read ahead; a loaded table needs no type."
        ),
    ] = None,
    vectorised: Annotated[bool, typer.Option("--vectorised", help="Call it with many events at once.")] = False,
    piece_events: Annotated[int, typer.Option("--piece-events", min=1, help="Events that a worker is handed.")] = 1_024,
    results: Annotated[bool, typer.Option("--results", help="Print what it returns, as JSON: a line each.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Call a function for every event of a data set, each once, in several processes.

    FUNCTION is given an event, and with --preload the products as its second argument; with --vectorised an EventBatch.
    """
    called = _imported(function)
    with opened(store, config) as data:
        dataset = dataset_named(data, path)
        processor = ParallelProcessor(
            data,
            workers=workers,
            piece_events=piece_events,
            preload=[product for each in preload or () for product in _preloaded(dataset, each)],
            vectorised=vectorised,
        )
        if results:
            for result in processor.map(dataset, called):
                if result is not None:
                    print_json(msgspec.to_builtins(result, enc_hook=_plain))
            return
        done = processor.process(dataset, called)
    if as_json:
        print_json({"events": done.events, "pieces": done.pieces, "workers": sorted(done.by_worker.values())})
    else:
        print_text(f"{done.events:,} events in {done.pieces:,} pieces, by {len(done.by_worker)} workers")


def _preloaded(dataset: DataSet, text: str) -> list[tuple[str, Any]]:
    """Return the products that are meant: of a table, one for each version."""
    label, equals, kind = text.partition("=")
    if equals:
        return [(label, kind)]
    table = dataset.tables[label]
    return [(table.label, each) for each in table.types]


def _plain(value: Any) -> Any:
    """Return a numpy value as Python's own, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    # Why this one: msgspec asks for it, and tells of the value's type.
    raise NotImplementedError


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    # Why: people name modules of the folder that they are in; a console script's path holds its own.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(source="function", problem=f"cannot import {name}: {error}") from error
    if not callable(found):
        raise InvalidInputError(source="function", problem=f"{name} is no function")
    return found


def rebalance(
    context: typer.Context,
    databases: Annotated[list[str], typer.Argument(metavar="KIND=NUMBER...", help="As in events=8 products=8.")],
    recount: Annotated[
        bool, typer.Option("--recount", help="Take the entries there are for right, whatever was counted at the begin.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Grow the databases of a kind to a number, and move what belongs on the new ones, and only that.

    Nobody can write to the store meanwhile. One that was interrupted goes on where it ended, when it is asked for again.
    """
    url = store_url_of_option(store, config)
    address = Address(url)
    command = (*words_of(context), "--store", absolute_url(url))
    for kind, number in database_counts(read_counts(databases)).items():
        with ExitStack() as stack:
            stop = stack.enter_context(stopped_by_signals(lambda: command))
            engines = [
                # Why only others are created: the first says whether there is a store at all.
                stack.enter_context(address.engine(kind, index, create=index > 0))
                for index in range(number)
            ]
            with progress_bar(kind.value) as shown:
                done = grow(engines, progress=shown.told, recount=recount, stop=stop, command=command)
        if as_json:
            print_json({"kind": kind.value, "databases": done.databases, "moved": done.moved, "keys": done.entries})
        else:
            print_text(f"{kind.value}: {done.databases} databases, {done.moved:,} of {done.entries:,} keys moved")


def check(
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Sweep, too, when something is left over. Nothing brings it back.")
    ] = False,
) -> None:
    """Read every key and tell what is wrong: without parent, data set or container, misplaced, unreadable.

    Writes nothing without --repair, which then does what `sweep` does: it removes what belongs to no data set, and goes on
    with a sweep that was interrupted. What has no parent or no container, and what is unreadable, stays: somebody may make or
    mend that yet. Exit code 1 when something is wrong that was not removed.
    """
    with opened(store, config) as data:
        found, left = checked(data, is_repaired=repair, as_json=as_json)
    if left:
        hint = "" if repair else "; --repair removes what belongs to no data set"
        typer.echo(f"{left:,} {'thing is' if left == 1 else 'things are'} wrong{hint}.", err=True)
        raise typer.Exit(_FINDINGS_EXIT)
    if not as_json:
        print_text("Nothing is wrong." if not found else "Nothing is wrong any more.")


def checked(data: DataStore, *, is_repaired: bool, as_json: bool) -> tuple[int, int]:
    """Print what is wrong, and what was removed of it; return how many things were wrong, and how many still are."""
    found = removed = 0
    with progress_bar("keys", total=lambda: sum(extent.keys for extent in extents(data))) as report:
        for finding in examine(data, progress=report):
            found += 1
            removed += finding.finding in _SWEPT
            _print_finding(finding, as_json=as_json)
    # Why also then: what a sweep has removed that was interrupted is found by nobody, and its job stands open.
    if not is_repaired or not (removed or is_under_way(data)):
        return found, found
    swept(data, ("hepnos", "sweep"), as_json=as_json)
    return found, found - removed


def _print_finding(finding: Finding, *, as_json: bool) -> None:
    values: dict[str, Any] = {**finding._asdict(), "raw_key": finding.raw_key.hex()}
    if as_json:
        print_json(values)
    else:
        print_text(f"{finding.finding}\t{finding.kind}.{finding.database}\t{finding.meaning}\t{values['raw_key']}")


def sweep_store(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print what would be removed, and remove nothing.")
    ] = False,
    notes: Annotated[
        bool,
        typer.Option("--notes", help="Notes of tables without products, too. A table without rows is one of these."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Remove what belongs to nothing: what deletions have left that were interrupted, and what has the UUID of no data set.

    In batches, while others load and read. One that was interrupted goes on when it is asked for again.
    """
    with opened(store, config) as data:
        if dry_run:
            count = _printed(leftovers(data, has_notes=notes), as_json=as_json, verb="would be removed")
        else:
            count = swept(data, words_of(context), has_notes=notes, as_json=as_json)
    if not count and not as_json:
        print_text("Nothing is left over.")


def swept(data: DataStore, words: tuple[str, ...], *, as_json: bool, has_notes: bool = False) -> int:
    """Sweep a store, and print and count what is removed. `words` are the command that goes on with it, without the store."""
    command = (*words, "--store", absolute_url(data.address.url))
    with stopped_by_signals(lambda: command) as stop, progress_bar("keys") as shown:
        found = sweep(data, has_notes=has_notes, progress=shown.told, stop=stop, command=command)
        return _printed(found, as_json=as_json, verb="removed")


def _printed(found: Iterable[Leftover], *, as_json: bool, verb: str) -> int:
    """Print what was removed, or would be; return how many things it is."""
    count = 0
    for count, leftover in enumerate(found, start=1):  # noqa: B007  # Why: how many there were is returned.
        if as_json:
            print_json(leftover._asdict())
        else:
            keys = "1 key" if leftover.keys == 1 else f"{leftover.keys:,} keys"
            print_text(f"{leftover.what}\t{leftover.name}\t{keys} {verb}")
    return count
