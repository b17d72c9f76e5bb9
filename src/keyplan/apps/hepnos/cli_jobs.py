"""The commands that work through a store: a function over all events in parallel, the growth of its databases, the sweep."""

import sys
from contextlib import ExitStack
from importlib import import_module
from typing import Annotated, Any

import msgspec
import typer

from keyplan.apps.hepnos.cli_store import dataset_named, opened
from keyplan.apps.hepnos.databases import Address, database_counts, read_counts
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.parallel import ParallelProcessor
from keyplan.apps.hepnos.sweep import Leftover, leftovers, sweep
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

__all__ = ["print_leftover", "process", "rebalance", "sweep_store"]


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
    url = store_url_of_option(store, config)
    command = (*words_of(context), "--store", absolute_url(url))
    with ExitStack() as stack:
        data = stack.enter_context(opened(store, config))
        if dry_run:
            found, verb = leftovers(data, has_notes=notes), "would be removed"
        else:
            stop = stack.enter_context(stopped_by_signals(lambda: command))
            shown = stack.enter_context(progress_bar("keys"))
            found = sweep(data, has_notes=notes, progress=shown.told, stop=stop, command=command)
            verb = "removed"
        count = 0
        for leftover in found:
            count += 1
            print_leftover(leftover, as_json=as_json, verb=verb)
    if not count and not as_json:
        print_text("Nothing is left over.")


def print_leftover(leftover: Leftover, *, as_json: bool, verb: str) -> None:
    """Print what was removed, or would be."""
    if as_json:
        print_json(leftover._asdict())
    else:
        keys = "1 key" if leftover.keys == 1 else f"{leftover.keys:,} keys"
        print_text(f"{leftover.what}\t{leftover.name}\t{keys} {verb}")
