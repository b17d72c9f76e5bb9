"""Loaders of ROOT, HDF5 and Parquet: every row of the input once, with its event, whatever order the rows are in."""

from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from keyplan.apps import hepnos
from keyplan.apps.hepnos import loading
from keyplan.errors import InvalidInputError


def nano_file(path: Path, *, is_tree: bool = True) -> Path:
    """Write four events in NanoAOD's form: a tree, or an RNTuple, which has lists of records."""
    muons = ak.Array([[{"pt": 30.5, "charge": 1}, {"pt": 20.25, "charge": -1}], [], [{"pt": 5.0, "charge": 1}], []])
    columns: dict[str, Any] = {
        "run": np.array([1, 1, 1, 2], "u4"),
        "luminosityBlock": np.array([7, 7, 8, 7], "u4"),
        "event": np.array([104, 103, 101, 102], "u8"),
        "Muon": muons,
        "MET_pt": np.array([1.5, 2.5, 3.5, 4.5], "f4"),
    }
    with uproot.recreate(path) as file:
        if is_tree:
            types = {name: each.type if name == "Muon" else each.dtype for name, each in columns.items()}
            file.mktree("Events", types).extend(columns)
        else:
            file["Events"] = columns
    return path


def h5_file(path: Path, *, tables: dict[str, dict[str, Any]]) -> Path:
    with h5py.File(path, "w") as file:
        for table, columns in tables.items():
            for column, values in columns.items():
                file[f"{table}/{column}"] = np.asarray(values)
    return path


SLICES = {
    "run": [12, 12, 12, 12, 12],
    "subrun": [3, 3, 4, 3, 3],
    "evt": [9, 5, 5, 9, 9],
    "calE": np.array([1.0, 2.0, 3.0, 4.0, 5.0], "f4"),
    "nhit": np.array([10, 20, 30, 40, 50], "u2"),
    "vtx.x": np.array([0.1, 0.2, 0.3, 0.4, 0.5], "f8"),
}


def numbers(dataset: hepnos.DataSet) -> list[tuple[int, ...]]:
    return sorted(event.numbers for event in dataset.events())


@pytest.mark.parametrize("is_tree", [True, False], ids=["TTree", "RNTuple"])
def test_a_nanoaod_file_becomes_events_collections_and_a_table_of_single_numbers(
    dataset: hepnos.DataSet, tmp_path: Path, *, is_tree: bool
) -> None:
    loaded = hepnos.load_root(dataset, nano_file(tmp_path / "nano.root", is_tree=is_tree))
    assert (loaded.entries, loaded.events, loaded.created) == (4, 4, 4)
    assert numbers(dataset) == [(1, 7, 103), (1, 7, 104), (1, 8, 101), (2, 7, 102)]
    muon = dataset.tables["Muon"]
    assert muon.type.name == "vector<struct{pt:float64,charge:int64}>"
    event = dataset.runs[1].subruns[7].events[104]
    assert event.load("Muon", muon.type)["pt"].tolist() == [30.5, 20.25]
    assert len(dataset.runs[1].subruns[7].events[103].load("Muon", muon.type)) == 0
    assert event.load("Events", hepnos.vector([("MET_pt", "f4")])).tolist() == [(1.5,)]


def test_loading_twice_changes_nothing(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = nano_file(tmp_path / "nano.root")
    hepnos.load_root(dataset, path)
    before = ak.to_list(hepnos.to_awkward(dataset))
    again = hepnos.load_root(dataset, path)
    assert (again.created, again.products) == (0, 8)
    assert ak.to_list(hepnos.to_awkward(dataset)) == before
    assert len(before) == 4


def test_a_tree_without_a_column_of_numbers_is_refused_by_name(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = tmp_path / "lacks.root"
    with uproot.recreate(path) as file:
        file["Events"] = {"run": np.array([1], "u4"), "event": np.array([1], "u8"), "x": np.array([1.0])}
    with pytest.raises(InvalidInputError) as refused:
        hepnos.load_root(dataset, path)
    assert "luminosityBlock" in str(refused.value.facts["problem"])
    assert hepnos.load_root(dataset, path, subrun=0).created == 1
    assert numbers(dataset) == [(1, 0, 1)]


def test_rows_of_one_event_are_grouped_wherever_they_stand(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = h5_file(tmp_path / "slices.h5", tables={"rec.slc": SLICES})
    (loaded,) = hepnos.load_hdf5(dataset, path)
    assert (loaded.entries, loaded.events, loaded.products, loaded.labels) == (5, 3, 3, ("rec_slc",))
    kind = hepnos.vector([("vtx_x", "f8"), ("calE", "f4"), ("nhit", "u2")])
    assert dataset.tables["rec_slc"].type == kind
    event = dataset.runs[12].subruns[3].events[9]
    assert event.load("rec_slc", kind)["nhit"].tolist() == [10, 40, 50]
    assert dataset.runs[12].subruns[4].events[5].load("rec_slc", kind)["calE"].tolist() == [3.0]


@pytest.mark.parametrize("group_bytes", [1, 60, 300, 1 << 20])
def test_scattered_rows_are_the_same_in_parts_of_any_size(
    dataset: hepnos.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr(loading, "GROUP_BYTES", group_bytes)
    source = np.random.default_rng(3)
    event = source.integers(0, 20, 200)
    columns = {"evt": event, "n": np.arange(200, dtype="f4")}
    hepnos.load_hdf5(dataset, h5_file(tmp_path / "x_r00000042_s07.h5", tables={"t": columns}))
    table = dataset.load_table("t", hepnos.vector([("n", "f4")]))
    found = {
        int(each["event"]): table.rows["n"][table.offsets[at] : table.offsets[at + 1]].tolist()
        for at, each in enumerate(table.events)
    }
    expected: dict[int, list[float]] = {}
    for row, number in enumerate(event.tolist()):
        expected.setdefault(number, []).append(float(row))
    assert found == expected
    assert {(int(each["run"]), int(each["subrun"])) for each in table.events} == {(42, 7)}


def test_other_rows_of_an_event_are_refused_and_replaced_when_asked(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    first = h5_file(tmp_path / "a.h5", tables={"t": {**SLICES, "nhit": np.array([1, 2, 3, 4, 5], "u2")}})
    second = h5_file(tmp_path / "b.h5", tables={"t": SLICES})
    hepnos.load_hdf5(dataset, first)
    with pytest.raises(InvalidInputError) as refused:
        hepnos.load_hdf5(dataset, second)
    assert "has other rows of t already" in str(refused.value.facts["problem"])
    kind = dataset.tables["t"].type
    event = dataset.runs[12].subruns[3].events[9]
    assert event.load("t", kind)["nhit"].tolist() == [1, 4, 5]
    hepnos.load_hdf5(dataset, second, replace=True)
    assert event.load("t", kind)["nhit"].tolist() == [10, 40, 50]


def test_numbers_that_are_none_are_refused_before_anything_is_written(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    for name, wrong in (("negative", [-1, 1]), ("float", [1.0, 2.0]), ("invalid", np.array([1, 2**64 - 1], "u8"))):
        path = h5_file(
            tmp_path / f"{name}.h5", tables={"t": {"run": [1, 1], "subrun": [1, 1], "evt": wrong, "x": [1.0, 2.0]}}
        )
        with pytest.raises(hepnos.InvalidNumberError):
            hepnos.load_hdf5(dataset, path)
    assert numbers(dataset) == []


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"evt": [1, 2], "x": [1.0]}, "has 1 rows"),
        ({"evt": [1, 2], "x": [1.0, 2.0]}, "no column run"),
        ({"evt": [1], "a.b": [1.0], "a b": [1.0], "run": [1], "subrun": [1]}, "would have one name"),
    ],
    ids=["lengths", "no-run", "clash"],
)
def test_tables_that_cannot_be_loaded_are_refused(
    dataset: hepnos.DataSet, tmp_path: Path, columns: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        hepnos.load_hdf5(dataset, h5_file(tmp_path / "wrong.h5", tables={"t": columns}))
    assert problem in str(refused.value.facts["problem"])


def test_text_lists_and_odd_names_of_hdf5_come_back_and_what_no_column_holds_is_named(
    store: hepnos.DataStore, dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        for name, values in {"evt": [2, 1], "run": [1, 1], "subrun": [1, 1], "a:b": [1.5, 2.5]}.items():
            file[f"t/{name}"] = values
        file["t/fixed"] = np.array([b"abc", b"d"])
        file["t/matrix"] = np.arange(6, dtype="u2").reshape(2, 3)
        file["t/z"] = np.array([1 + 2j, 3], "c8")
        file["plain/evt"] = file["t/evt"][:]
        file["plain/run"] = file["plain/subrun"] = [1, 1]
        file["plain/fixed"] = np.array([b"abc", b"d"])
        file.create_dataset("t/text", data=["é", ""], dtype=h5py.string_dtype())
        lists = file.create_dataset("t/lists", (2,), dtype=h5py.vlen_dtype("i2"))
        lists[0], lists[1] = [1, 2], []
        file.create_dataset("t/link", (2,), dtype=h5py.ref_dtype)
        file["t/struct"] = np.zeros(2, [("x", "f4")])
    plain, loaded = hepnos.load_hdf5(dataset, path)
    assert (plain.skipped, loaded.skipped) == ((), ("link",))
    rows = dataset.load_table("t").rows.to_list()
    numbers = {"z": 1 + 2j, "a:b": 1.5, "lists": [1, 2], "matrix": [0, 1, 2], "struct": {"x": 0.0}}
    assert rows[1] == {**numbers, "fixed": b"abc", "text": "é"}
    assert [row["text"] for row in rows] == ["", "é"]
    assert dataset.load_table("plain").rows.dtype == np.dtype([("fixed", "S3")])
    other = store.root.ensure("chosen")
    hepnos.load_hdf5(other, path, tables=["t"], exclude=["t*", "matrix", "lin*", "struct"], columns=["[mtz]*", "a:b"])
    assert other.tables["t"].schema == {"z": "complex64", "a:b": "float64"}
    with pytest.raises(InvalidInputError, match="no column none"):
        hepnos.load_hdf5(other, path, exclude=["none"])


def test_tables_of_one_label_have_types_of_their_own(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    tables = {"rec.slc": SLICES, "rec.trk": {**SLICES, "len": [1.0] * 5}}
    hepnos.load_hdf5(dataset, h5_file(tmp_path / "two.h5", tables=tables), label="nova")
    found = [(table.label, table.type.name.partition("@")[0]) for table in dataset.tables.values()]
    assert sorted(found) == [("nova", "vector<rec_slc"), ("nova", "vector<rec_trk")]


def test_what_is_exported_to_parquet_comes_back_as_it_was(
    store: hepnos.DataStore, dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    hepnos.load_root(dataset, nano_file(tmp_path / "nano.root"))
    path = h5_file(tmp_path / "few.h5", tables={"few": {"evt": [104], "run": [1], "subrun": [7], "x": [0.5]}})
    hepnos.load_hdf5(dataset, path)
    assert hepnos.export_parquet(dataset, tmp_path / "out.parquet", batch_events=3) == 4
    again = store.root.ensure("again")
    assert hepnos.load_parquet(again, tmp_path / "out.parquet").events == 4
    found, given = (ak.to_list(hepnos.to_awkward(each)) for each in (again, dataset))
    assert found == given
    assert again.runs[1].subruns[7].events[103].load("few", hepnos.vector([("x", "f8")])) is None
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_flat_parquet_file_over_several_row_groups_is_grouped(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    event = np.array([3, 1, 3, 2, 1, 3], "i8")
    table = pa.table({"run": np.ones(6, "i4"), "subrun": np.ones(6, "i4"), "event": event, "x": np.arange(6.0)})
    pq.write_table(table, tmp_path / "flat.parquet", row_group_size=2)
    loaded = hepnos.load_parquet(dataset, tmp_path / "flat.parquet")
    assert (loaded.events, loaded.labels) == (3, ("flat",))
    kind = hepnos.vector([("x", "f8")])
    events = dataset.runs[1].subruns[1].events
    assert [events[number].load("flat", kind)["x"].tolist() for number in (1, 2, 3)] == [
        [1.0, 4.0],
        [3.0],
        [0.0, 2.0, 5.0],
    ]


def test_a_missing_number_in_parquet_is_nothing_and_others_are_numbers(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    columns = {"run": [1, 1], "subrun": [1, 1], "event": [2, 1], "x": [None, 1.5], "n": [1, 2], "l": [[], [1, None]]}
    pq.write_table(pa.table(columns), tmp_path / "null.parquet", row_group_size=1)
    hepnos.load_parquet(dataset, tmp_path / "null.parquet")
    assert dataset.tables["null"].schema == {"x": "option<float64>", "n": "int64"}
    assert dataset.load_table("null").rows.to_list() == [{"x": 1.5, "n": 2}, {"x": None, "n": 1}]
    assert hepnos.to_awkward(dataset).l.to_list() == [[1, None], []]
    wrong = pa.table({"run": [1], "subrun": [1], "event": pa.array([None], pa.int64()), "x": [1.0]})
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    with pytest.raises(InvalidInputError, match="event lacks a number"):
        hepnos.load_parquet(dataset, tmp_path / "wrong.parquet")


@pytest.mark.parametrize("load", [hepnos.load_root, hepnos.load_hdf5, hepnos.load_parquet])
def test_a_file_of_another_form_is_refused(dataset: hepnos.DataSet, tmp_path: Path, load: Any) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"neither ROOT nor HDF5 nor Parquet" * 30)
    with pytest.raises(InvalidInputError):
        load(dataset, path)
    with pytest.raises(InvalidInputError):
        load(dataset, tmp_path / "missing")
