"""Columns of every type come back equal, whichever way they took: a table of a program, Parquet, HDF5."""

from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keyplan.apps import hepnos
from keyplan.errors import InvalidInputError

OWN = {"run": [1, 1, 1], "subrun": [1, 1, 1], "event": [1, 2, 3], "create": True}
COLUMNS: dict[str, Any] = {
    "complex": np.array([1 + 2j, 3 - 4j, complex("nan")]),
    "complex64": np.array([1 + 2j, 3 - 4j, 0], "c8"),
    "time": np.array(["2020-01-01T00:00:00.000000001", "NaT", "1969-01-01"], "M8[ns]"),
    "day": np.array(["2020", "NaT", "1969"], "M8[D]"),
    "year": np.array(["2020", "NaT", "1969"], "M8[Y]"),
    "minutes": np.array([1, "NaT", -3], "m8[m]"),
    "half": np.array([1.5, np.inf, -0.0], "f2"),
    "text": ["ab", "", "äöz"],
    "lists": [[[1], []], [], [[2, 3]]],
    "option": [1, None, 3],
    "tuple": [(1, "a"), (2, "b"), (3, "c")],
    "record": [{"a": 1, "b": [{"c": 1j}]}, {"a": 2, "b": []}, {"a": 3, "b": [{"c": 2j}, {"c": 0j}]}],
    "pairs": ak.to_regular(ak.Array([[1j, 2j], [3j, 4j], [5j, 6j]])),
    "times": [[np.datetime64("2020", "us"), np.datetime64("NaT", "us")], [], [np.datetime64("1969", "us")]],
    "maybe": ak.Array([{"t": np.datetime64("2020", "h"), "z": 1j}, None, {"t": np.datetime64("NaT", "h"), "z": 2j}]),
    "empty": np.zeros((3, 0)),
    "reference": [hepnos.Ref(b"\x00a"), hepnos.Ref(b"", 0), hepnos.Ref(b"\x00a", 2**40)],
    "whole": [hepnos.Ref(b"a"), hepnos.Ref(b"b"), hepnos.Ref(b"")],
    "elements": [hepnos.Ref(b"a", 1), hepnos.Ref(b"a", 2), hepnos.Ref(b"", 3)],
    "references": [[hepnos.Ref(b"a"), None], [], [hepnos.Ref(b"", 7)]],
    "referring": [{"of": hepnos.Ref(b"a"), "to": (1, [hepnos.Ref(b"b", 1)])}, None, {"of": None, "to": None}],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_from_parquet_with_its_type(
    store: hepnos.DataStore, dataset: hepnos.DataSet, tmp_path: Path, name: str
) -> None:
    dataset.store_table("t", {"x": COLUMNS[name], "n": np.arange(3)}, **OWN)
    hepnos.export_parquet(dataset, tmp_path / "t.parquet")
    again = store.root.ensure("again")
    hepnos.load_parquet(again, tmp_path / "t.parquet")
    assert again.tables["t"].schema == dataset.tables["t"].schema
    one, other = dataset.load_table("t"), again.load_table("t")
    assert type(one.rows) is type(other.rows)
    assert repr(one.rows.tolist()) == repr(other.rows.tolist())
    assert one.offsets.tolist() == other.offsets.tolist()


def test_single_values_stay_single_and_other_programs_columns_are_what_they_are(
    store: hepnos.DataStore, dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    own = {"run": [1, 1], "luminosityBlock": [1, 1], "event": [1, 2]}
    columns = pa.table({**own, "nMuon": [1, 0], "Muon_pt": [[1.5], []], "MET_pt": [3.0, 4.0]})
    pq.write_table(columns, tmp_path / "nano.parquet")
    hepnos.load_parquet(dataset, tmp_path / "nano.parquet", label="Events")
    assert dataset.events()["MET"].pt.to_list() == [3.0, 4.0]
    hepnos.export_parquet(dataset, tmp_path / "out.parquet")
    again = store.root.ensure("again")
    hepnos.load_parquet(again, tmp_path / "out.parquet")
    assert again.events()["MET"].pt.to_list() == [3.0, 4.0]
    written = pq.read_table(tmp_path / "out.parquet")
    at = written.schema.get_field_index("Events")
    other = pa.array([[{"MET_pt": "far"}], None], pa.list_(pa.struct([("MET_pt", pa.string())])))
    own_field = written.schema.field(at).with_type(other.type)
    pq.write_table(written.set_column(at, own_field, other), tmp_path / "own.parquet")
    changed = store.root.ensure("changed")
    hepnos.load_parquet(changed, tmp_path / "own.parquet")
    assert changed.load_table("Events").rows.MET_pt.to_list() == ["far"]


def test_what_no_column_holds_is_told_by_its_name(dataset: hepnos.DataSet) -> None:
    long = np.arange(3, dtype="g")
    if long.dtype.itemsize > 8:
        with pytest.raises(hepnos.TypeMismatchError, match=r"convert it to float64, column='r\.x'"):
            dataset.store_table("t", {"r": np.array([(1,), (2,), (3,)], [("x", "g")])}, **OWN)
    pairs = pa.array([[("a", 1)], [], [("b", 2)]], pa.map_(pa.string(), pa.int32()))
    with pytest.raises(InvalidInputError, match="column 'm' is of what no column holds"):
        dataset.store_table("t", {"m": pairs}, **OWN)
    assert list(dataset.tables) == []


def test_hdf5s_records_times_and_foreign_bytes_are_columns(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    point = np.dtype({"names": ["a", "b"], "formats": [">i4", "f8"], "offsets": [0, 8], "itemsize": 16})
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        for path, has_text in (("packed", False), ("texts", True)):
            group = file.create_group(path)
            for name, values in {"run": [1, 1, 1], "subrun": [1, 1, 1], "evt": [2, 1, 1]}.items():
                group[name] = values
            group["point"] = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], point)
            group["named"] = np.array([(b"x", 1), (b"yz", 2), (b"", 3)], [("s", "S2"), ("n", "u1")])
            group["big"] = np.array([1, 2, 3], ">i2")
            group["when"] = np.array(["2020", "2021", "NaT"], "M8[ns]").astype(h5py.opaque_dtype("M8[ns]"))
            if has_text:
                group.create_dataset("text", data=["x", "yé", ""], dtype=h5py.string_dtype())
                lists = group.create_dataset("points", (3,), dtype=h5py.vlen_dtype(point))
                lists[1] = np.array([(7, 8.0)], point)
            group.create_dataset("ref", (3,), dtype=h5py.ref_dtype)
    for loaded in hepnos.load_hdf5(dataset, tmp_path / "odd.h5"):
        assert loaded.skipped == ("ref",)
    for label in ("packed", "texts"):
        rows = dataset.load_table(label).rows
        assert rows["point"].tolist() in ([(3, 4.0), (5, 6.0), (1, 2.0)], [{"a": a, "b": a + 1.0} for a in (3, 5, 1)])
        assert [each["s"] for each in rows["named"].tolist()] == [b"yz", b"", b"x"] if label == "texts" else True
        assert rows["big"].tolist() == [2, 3, 1]
        assert np.isnat(np.asarray(rows["when"])).tolist() == [False, True, False]
    assert dataset.tables["packed"].type.name.startswith("vector<struct{point:struct{a:int32,b:float64}")
    assert dataset.load_table("texts").rows["points"].to_list() == [[{"a": 7, "b": 8.0}], [], []]
