"""The commands that work through a store: a function over all events in parallel, and the growth of its databases."""

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

__all__ = ["process", "rebalance"]


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
