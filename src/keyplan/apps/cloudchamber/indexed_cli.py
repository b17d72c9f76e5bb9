"""The command about secondary indexes: `keyplan cloudchamber index`. What it does, indexed.py says."""

from functools import partial

import typer

from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed, begin_indexes
from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.layout_choice import held_sides
from keyplan.apps.cloudchamber.namespaces_cli import NamespaceOption, namespace_of_option
from keyplan.cli import (
    ConfigOption,
    JsonOption,
    StoreOption,
    print_grid,
    print_json,
    stopped_by_signals,
    store_of_option,
    words_of,
)
from keyplan.errors import InvalidInputError
from keyplan.maintenance import list_indexes

__all__ = ["index"]


def index(
    context: typer.Context,
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Have the secondary indexes kept from now on, and build them: blades by architecture and condition, and the others.

    Restart the servers that run on this store, so that they keep the indexes too. Exit code 1: an index cannot be read, because
    two users have names that differ in case alone; put them right and say this again.
    """
    own = namespace_of_option(namespace)
    with store_of_option(store, config) as opened:
        if set(held_sides(opened.engine, own)) == {LayoutSide.GO}:
            # Why refused: it would be a store of both layouts then, and no server would begin on it.
            problem = "the indexes stand beside the document's keys, and the store has the Go program's"
            raise InvalidInputError(source="index", problem=problem)
        with stopped_by_signals(partial(words_of, context, with_store=True)) as stop:
            unread = begin_indexes(opened, own, stop=stop, command=words_of(context))
        states = list_indexes(opened, CloudChamberIndexed.bound(namespace=own))
    if as_json:
        for state in states:
            print_json({"index": state.name, "table": state.table, "state": state.stage})
    else:
        print_grid(["index", "of", "state"], ([state.name, state.table, state.stage] for state in states))
    if unread:
        raise typer.Exit(1)
