"""`keyplan hepnos grants`: what a line of an access file says for one data set behind a server."""

from typing import Annotated

import typer

from keyplan.access import OnPrefix
from keyplan.apps.hepnos.cli_store import dataset_named, opened
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.keys import Kind, dataset_key
from keyplan.apps.hepnos.store import DataStore
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_hint, print_json, print_text
from keyplan.errors import InvalidInputError

__all__ = ["show_grants"]


def show_grants(
    path: Annotated[str, typer.Argument(help="A data set's full name.", show_default=False)],
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Print what to grant for a data set with its runs, events and products: a line for each kind, as access files spell it.

    What is granted by its entry is granted for every data set beside it whose name begins so; those that are there are told.
    """
    if not path.strip("/"):
        raise InvalidInputError(source="PATH", problem="name a data set: `prefix:hepnos/` is all of them")
    with opened(store, config) as data:
        dataset = dataset_named(data, path)
        beside = [each.path for each in _beginning_as(data, dataset)]
        targets = [str(_target(dataset, kind)) for kind in Kind]
    if as_json:
        print_json({"dataset": dataset.path, "grants": targets, "beside": beside})
        return
    for target in targets:
        print_text(target)
    for other in beside:
        print_hint(f"{other} begins as {dataset.path} does: its entry is granted, too, though nothing that is in it")


def _target(dataset: DataSet, kind: Kind) -> OnPrefix:
    key = dataset_key(dataset.path) if kind is Kind.DATASET else dataset.uuid.bytes
    return OnPrefix(kind.granted_below + key)


def _beginning_as(data: DataStore, dataset: DataSet) -> list[DataSet]:
    parent, _, name = dataset.path.rpartition("/")
    inside = dataset_named(data, parent)
    return [each for each in inside.datasets.range(starts_with=name) if each.path != dataset.path]
