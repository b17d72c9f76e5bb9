"""A deleted data set: nothing is made in it any more, what is left of it can be removed, one made again is another."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.examine import examine, remove_orphans
from keyplan.apps.hepnos.keys import Kind, dataset_key, number_key
from keyplan.engine import Commit, Put
from keyplan.errors import InvalidInputError


@pytest.fixture(params=[None, {"events": 3, "datasets": 2}], ids=["one", "ring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hepnos.DataStore]:
    with hepnos.open(f"lmdb:{tmp_path / 'store'}?durability=none", databases=request.param) as opened:
        yield opened


MAKES: dict[str, Callable[[hepnos.DataSet], object]] = {
    "run": lambda dataset: dataset.create_run(1),
    "subrun": lambda dataset: dataset.runs.handle(1).create_subrun(1),
    "event": lambda dataset: dataset.runs.handle(1).subruns.handle(1).create_event(1),
    "items": lambda dataset: dataset.create_items(np.array([1]), np.array([1]), np.array([1])),
    "events": lambda dataset: dataset.runs.handle(1).subruns.handle(1).create_events(np.array([1, 2])),
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("is_own", [True, False], ids=["own handle", "another's"])
def test_nothing_is_made_in_a_data_set_that_was_deleted(store: hepnos.DataStore, make: str, *, is_own: bool) -> None:
    dataset = store.root.create_dataset("z")
    MAKES[make](dataset)
    (dataset if is_own else store["z"]).delete()
    with pytest.raises(MissingError):
        MAKES[make](dataset)
    assert list(examine(store)) == []


def test_a_batch_looks_once_and_notices_its_own_delete(store: hepnos.DataStore) -> None:
    dataset = store.root.create_dataset("z")
    with store.batch() as batch:
        for number in range(3):
            dataset.create_run(number, into=batch)
    dataset.delete()
    with store.batch() as batch, pytest.raises(MissingError):
        dataset.create_run(9, into=batch)
    assert list(examine(store)) == []


def test_a_stale_handle_deletes_nothing_of_a_data_set_that_was_made_again(store: hepnos.DataStore) -> None:
    stale = store.root.create_dataset("z")
    store["z"].delete()
    fresh = store.root.create_dataset("z")
    fresh.create_run(1)
    fresh.create_dataset("below").create_run(2)
    stale.delete()
    assert fresh.exists()
    assert [run.number for run in fresh.runs] == [1]
    assert [run.number for run in store["z/below"].runs] == [2]


def orphan(store: hepnos.DataStore) -> None:
    """What an interrupted removal, or a writer that came between, leaves behind."""
    raw_key = number_key(uuid4(), (1,))
    store.write(Kind.RUN, raw_key, b"", "new")


def test_what_is_left_of_a_deleted_data_set_is_removed(store: hepnos.DataStore) -> None:
    kept = store.root.create_dataset("kept")
    kept.create_run(1)
    orphan(store)
    orphan(store)
    found = list(examine(store))
    assert [finding.finding for finding in found] == ["no-dataset"] * 2
    assert remove_orphans(store, found) == 2
    assert list(examine(store)) == []
    assert [run.number for run in kept.runs] == [1]


def test_nothing_is_removed_while_the_record_of_a_data_set_cannot_be_read(store: hepnos.DataStore) -> None:
    dataset = store.root.create_dataset("z")
    dataset.create_run(1)
    ring = store.databases.rings[Kind.DATASET]
    ring.commit(Commit((), (Put(dataset_key("z"), b"damaged"),)))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        remove_orphans(store, list(examine(store)))
    assert [run.number for run in dataset.runs] == [1]
