"""A selection of slices as NOvA's: HDF5 tables loaded, events in parallel, against plain Python on the file: case 51."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from keyplan.apps import hepnos

Slice = tuple[int, int, int, int]
Rows = dict[str, dict[str, Any]]

_LABELS = ("rec_slc", "rec_sel_remid", "rec_vtx")
_ENERGY_MAX, _HITS_MIN, _PID_MIN = 4.0, 20, 0.75


@pytest.fixture
def tables() -> Rows:
    """Rows of 400 events with one to five slices each, rows of an event apart; the vertex table lacks those of some events."""
    random = np.random.default_rng(2018)
    slices = random.integers(1, 6, 400)
    event = np.repeat(np.arange(400), slices)
    shuffled = random.permutation(len(event))
    # Why a stable order within an event: the number of a row among its event's is the number of the slice.
    event = event[shuffled]
    numbers = {"run": 11_000 + event // 100, "subrun": event // 10 % 10, "evt": event}
    count = len(event)
    has_vertex = event % 7 != 3
    return {
        "rec_slc": {
            **numbers,
            "calE": random.exponential(2.5, count).astype("f4"),
            "nhit": random.integers(0, 90, count).astype("u4"),
        },
        "rec_sel_remid": {**numbers, "pid": random.random(count).astype("f4")},
        "rec_vtx": {
            **{name: column[has_vertex] for name, column in numbers.items()},
            "vtx.z": random.normal(0, 600, int(has_vertex.sum())).astype("f4"),
        },
    }


def write(path: Path, tables: Rows) -> Path:
    with h5py.File(path, "w") as file:
        for table, columns in tables.items():
            for column, values in columns.items():
                file[f"{table}/{column}"] = values
    return path


def selected_by_hand(tables: Rows) -> list[Slice]:
    """Group the file's rows by event, in their order, and cut."""
    grouped: dict[str, dict[tuple[int, int, int], list[int]]] = {}
    for table, columns in tables.items():
        of_event = grouped.setdefault(table, {})
        for row, key in enumerate(zip(columns["run"], columns["subrun"], columns["evt"], strict=True)):
            of_event.setdefault((int(key[0]), int(key[1]), int(key[2])), []).append(row)
    slc, remid, vtx = (tables[label] for label in _LABELS)
    found: list[Slice] = []
    for key, rows in grouped["rec_slc"].items():
        vertices = grouped["rec_vtx"].get(key)
        if vertices is None:
            continue
        others = grouped["rec_sel_remid"][key]
        for number, (row, other, vertex) in enumerate(zip(rows, others, vertices, strict=True)):
            if (
                slc["calE"][row] < _ENERGY_MAX
                and slc["nhit"][row] >= _HITS_MIN
                and remid["pid"][other] > _PID_MIN
                and abs(vtx["vtx.z"][vertex]) < 1_000
            ):
                found.append((*key, number))
    return sorted(found)


def is_selected(slc: Any, remid: Any, vtx: Any) -> Any:
    cuts = (slc["calE"] < _ENERGY_MAX) & (slc["nhit"] >= _HITS_MIN)
    return cuts & (remid["pid"] > _PID_MIN) & (abs(vtx["vtx_z"]) < 1_000)


@pytest.mark.parametrize("vectorised", [False, True], ids=["event by event", "batches"])
def test_a_selection_gives_the_slices_that_plain_python_finds_in_the_file(
    dataset: hepnos.DataSet, tmp_path: Path, tables: Rows, *, vectorised: bool
) -> None:
    loaded = hepnos.load_hdf5(dataset, write(tmp_path / "nd_r00011000_s00.h5", tables))
    assert sum(each.created for each in loaded) == 400
    types = {label: dataset.tables[label].type for label in _LABELS}

    def each(event: hepnos.Event, products: hepnos.PreloadedProducts) -> list[Slice]:
        return of_event(event.numbers, [event.load(label, types[label], source=products) for label in _LABELS])

    def batch(events: hepnos.EventBatch) -> list[Slice]:
        columns = zip(*(events.product(label, types[label]) for label in _LABELS), strict=True)
        rows = zip(events.events.tolist(), columns, strict=True)
        return [found for numbers, products in rows for found in of_event(numbers, products)]

    def of_event(numbers: tuple[int, ...], products: Any) -> list[Slice]:
        if products[2] is None:
            return []
        run, subrun, event = numbers
        return [(run, subrun, event, int(number)) for number in np.flatnonzero(is_selected(*products))]

    with ThreadPoolExecutor(2) as executor:
        processor = hepnos.ParallelProcessor(
            dataset.datastore, executor=executor, piece_events=37, preload=list(types.items()), vectorised=vectorised
        )
        found = [
            each_slice for several in processor.map(dataset, batch if vectorised else each) for each_slice in several
        ]
    by_hand = selected_by_hand(tables)
    assert sorted(found) == by_hand
    assert 50 < len(by_hand) < 500, "the cuts should keep some slices and drop some"
