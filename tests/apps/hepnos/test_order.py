"""Exports of a store with several databases come in the order of the numbers, whatever the placement."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.export import export_parquet, to_awkward

RUNS, SUBRUNS, EVENTS = 3, 5, 4
TABLE = [("t", hepnos.vector("f4"))]


@pytest.fixture
def dataset(tmp_path: Path) -> hepnos.DataSet:
    store = hepnos.open(
        f"lmdb:{tmp_path / 'store'}?durability=none", databases={"events": 4, "products": 3, "subruns": 2}
    )
    dataset = store.root.ensure("d")
    numbers = [(run, subrun, event) for run in range(RUNS) for subrun in range(SUBRUNS) for event in range(EVENTS)]
    order = np.random.default_rng(7).permutation(len(numbers))
    run, subrun, event = (np.array([numbers[at][field] for at in order]) for field in range(3))
    dataset.create_items(run, subrun, event)
    values = run * 100 + subrun * 10 + event
    dataset.store_table("t", values.astype("f4"), run=run, subrun=subrun, event=event)
    return dataset


def test_awkward_arrays_and_parquet_files_are_sorted(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    array = to_awkward(dataset, TABLE)
    found = list(zip(array.run.tolist(), array.subrun.tolist(), array.event.tolist(), strict=True))
    assert found == sorted(found)
    assert len(found) == RUNS * SUBRUNS * EVENTS
    assert [rows[0] for rows in array.t.tolist()] == [run * 100 + subrun * 10 + event for run, subrun, event in found]
    path = tmp_path / "d.parquet"
    assert export_parquet(dataset, path, TABLE, batch_events=7) == len(found)
    rows = pq.read_table(path).to_pylist()
    assert [(row["run"], row["subrun"], row["event"]) for row in rows] == found
    assert [row["t"][0] for row in rows] == [run * 100 + subrun * 10 + event for run, subrun, event in found]
    dataset.datastore.close()
