"""Files that are damaged, empty or in odd forms: each is loaded, or refused with its name; no number is bent to fit."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
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
from keyplan.errors import InvalidInputError

EVENTS: dict[str, Any] = {"run": np.array([1, 1]), "subrun": np.array([1, 1]), "event": np.array([1, 2])}


def h5_file(path: Path, **columns: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[f"t/{name}"] = values
    return path


def runs(dataset: hepnos.DataSet) -> list[int]:
    return [run.number for run in dataset.runs]


@pytest.mark.parametrize(
    ("run", "offset", "expected"),
    [
        (None, -5, 7),
        (np.array([100], "i1"), 1_000, 1_100),
        (np.array([2**32 - 1], "u4"), 1, 2**32),
        (np.array([2**63 + 7], "u8"), -8, 2**63 - 1),
        (np.array([-3], "i8"), 5, 2),
    ],
    ids=["below-0", "over-a-byte", "over-32-bits", "over-63-bits", "from-below-0"],
)
def test_an_offset_of_runs_is_added_whatever_width_the_column_has(
    dataset: hepnos.DataSet, tmp_path: Path, run: Any, offset: int, expected: int
) -> None:
    columns = {"evt": [1], "x": [1.0]} if run is None else {"evt": [1], "x": [1.0], "run": run}
    hepnos.load_hdf5(dataset, h5_file(tmp_path / "nd_r12_s3.h5", **columns), run_offset=offset)
    assert runs(dataset) == [expected]


@pytest.mark.parametrize(("run", "offset"), [(2**64 - 2, 1), (2**64 - 2, 3), (5, -6)])
def test_an_offset_that_leads_out_of_range_is_refused(
    dataset: hepnos.DataSet, tmp_path: Path, run: int, offset: int
) -> None:
    path = h5_file(tmp_path / "nd_s3.h5", evt=[1], x=[1.0], run=np.array([run], "u8"))
    with pytest.raises(hepnos.InvalidNumberError, match="the offset") as refused:
        hepnos.load_hdf5(dataset, path, run_offset=offset)
    assert refused.value.facts["source"] == f"{path}:t"
    assert runs(dataset) == []


def test_a_file_whose_name_says_a_number_out_of_range_is_refused(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = h5_file(tmp_path / f"nd_r{2**64}_s1.h5", evt=[1], x=[1.0])
    with pytest.raises(hepnos.InvalidNumberError, match="which the file's name says, is out of range") as refused:
        hepnos.load_hdf5(dataset, path)
    assert refused.value.facts["source"] == f"{path}:t"
    assert runs(dataset) == []


def test_what_is_no_column_beside_columns_is_left_out(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    columns = {"evt": [1], "x": [1.0], "version": 3, "nothing": h5py.Empty("f8"), "link": h5py.SoftLink("/nowhere")}
    (loaded,) = hepnos.load_hdf5(dataset, h5_file(tmp_path / "nd_r1_s1.h5", **columns))
    assert (loaded.products, loaded.skipped) == (1, ("nothing", "version"))


@pytest.mark.parametrize("evt", [5, h5py.Empty("i8")], ids=["one-value", "nothing"])
def test_event_numbers_that_are_no_column_are_refused(dataset: hepnos.DataSet, tmp_path: Path, evt: Any) -> None:
    with pytest.raises(InvalidInputError, match="no column"):
        hepnos.load_hdf5(dataset, h5_file(tmp_path / "nd_r1_s1.h5", evt=evt, x=[1.0]))


def test_a_table_without_other_columns_says_which_events_there_are(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    (loaded,) = hepnos.load_hdf5(dataset, h5_file(tmp_path / "nd_r1_s1.h5", evt=[7, 9, 7]))
    assert (loaded.created, loaded.products, loaded.labels) == (2, 0, ())
    assert [event.number for event in dataset.runs[1].subruns[1]] == [7, 9]


def test_tables_without_rows_are_loaded_as_nothing(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    none = np.array([], "i8")
    (of_h5,) = hepnos.load_hdf5(dataset, h5_file(tmp_path / "nd_r1_s1.h5", evt=none, x=none))
    with uproot.recreate(tmp_path / "none.root") as file:
        file["Events"] = {**dict.fromkeys(EVENTS, none), "x": none}
    of_root = hepnos.load_root(dataset, tmp_path / "none.root")
    pq.write_table(pa.table({**dict.fromkeys(EVENTS, none), "x": none}), tmp_path / "none.parquet")
    of_parquet = hepnos.load_parquet(dataset, tmp_path / "none.parquet")
    assert [(each.entries, each.created) for each in (of_h5, of_root, of_parquet)] == [(0, 0)] * 3
    assert runs(dataset) == []


# ---- damage ------------------------------------------------------------------------------------------------------------


def damaged_h5(folder: Path) -> Path:
    path = folder / "nd_r1_s1.h5"
    with h5py.File(path, "w") as file:
        for name in ("evt", "x"):
            file.create_dataset(f"t/{name}", data=np.arange(1_000), chunks=(100,), compression="gzip", fletcher32=True)
        at = file["t/x"].id.get_chunk_info(2).byte_offset
    return flipped(path, at + 10)


def damaged_root(folder: Path) -> Path:
    path = folder / "events.root"
    with uproot.recreate(path, compression=uproot.ZLIB(9)) as file:
        names = (*EVENTS, "x")
        file.mktree("Events", dict.fromkeys(names, np.int64)).extend({name: np.arange(5_000) for name in names})
    with uproot.open(path) as file:
        at = int(file["Events"]["x"].member("fBasketSeek")[0])
    return flipped(path, at + 200)


def damaged_root_text(folder: Path) -> Path:
    """Of a branch of objects uproot knows the type from its bytes alone."""
    path = folder / "text.root"
    with uproot.recreate(path, compression=uproot.ZLIB(9)) as file:
        tree = file.mktree("Events", {**dict.fromkeys(EVENTS, np.int64), "text": "string"})
        numbers = dict.fromkeys(EVENTS, np.arange(500))
        tree.extend({**numbers, "text": ak.Array([sha256(b"%d" % number).hexdigest() for number in range(500)])})
    with uproot.open(path) as file:
        at = int(file["Events"]["text"].member("fBasketSeek")[0])
    return flipped(path, at + 2_000)


def damaged_parquet(folder: Path) -> Path:
    path = folder / "events.parquet"
    pq.write_table(pa.table({**EVENTS, "x": [1.0, 2.0]}), path)
    return flipped(path, 10)


def flipped(path: Path, at: int) -> Path:
    raw = bytearray(path.read_bytes())
    raw[at : at + 40] = bytes(byte ^ 0xFF for byte in raw[at : at + 40])
    path.write_bytes(raw)
    return path


Load = Callable[[hepnos.DataSet, Path], object]
LOADERS: list[tuple[Load, Callable[[Path], Path]]] = [
    (hepnos.load_hdf5, damaged_h5),
    (hepnos.load_root, damaged_root),
    (hepnos.load_root, damaged_root_text),
    (hepnos.load_parquet, damaged_parquet),
]


@pytest.mark.parametrize(("load", "make"), LOADERS, ids=["hdf5", "root", "text", "parquet"])
def test_a_damaged_file_is_refused_by_name(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    with pytest.raises(InvalidInputError) as refused:
        load(dataset, path)
    assert str(path) in str(refused.value.facts["source"])


@pytest.mark.parametrize(("load", "make"), LOADERS, ids=["hdf5", "root", "text", "parquet"])
def test_half_a_file_a_folder_and_text_are_refused(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)
    raw = path.read_bytes()
    for content in (b"", b"text", raw[: len(raw) // 2]):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError):
            load(dataset, path)
    for nothing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidInputError):
            load(dataset, nothing)


# ---- ROOT and Parquet ----------------------------------------------------------------------------------------------------


def test_a_path_with_a_colon_is_a_path(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = tmp_path / "nd.root:Events"
    with uproot.recreate(tmp_path / "nd.root") as file:
        file["Events"] = EVENTS
    (tmp_path / "nd.root").rename(path)
    assert hepnos.load_root(dataset, path).events == 2


@pytest.mark.parametrize("subrun", [-1, 2**64 - 1, 2**64, True])
def test_a_number_of_a_subrun_for_all_rows_must_be_one(dataset: hepnos.DataSet, tmp_path: Path, subrun: int) -> None:
    pq.write_table(pa.table({"run": [1], "event": [1], "x": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(hepnos.InvalidNumberError):
        hepnos.load_parquet(dataset, tmp_path / "a.parquet", subrun=subrun)
    assert runs(dataset) == []


def test_parquet_columns_of_odd_types_come_back_and_what_no_column_holds_is_left_out(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    odd = {
        "decimal": pa.array([Decimal("1.5"), Decimal("2.5")]),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
        "time": pa.array([noon, noon]),
        "dictionary": pa.array(["a", "b"]).dictionary_encode(),
        "lists": pa.array([[[1]], []]),
        "struct": pa.array([{"x": 1, "y": "a"}, {"x": 2, "y": None}]),
        "null": pa.nulls(2),
        "": [1, 2],
    }
    pq.write_table(pa.table({**EVENTS, **odd, "x": [1.0, 2.0]}), tmp_path / "odd.parquet")
    loaded = hepnos.load_parquet(dataset, tmp_path / "odd.parquet")
    assert loaded.skipped == ("decimal", "map", "")
    found = hepnos.to_awkward(dataset)
    assert found["lists"].to_list() == [[[1]], []]
    singles = found["odd"][:, 0]
    assert singles.dictionary.to_list() == ["a", "b"]
    assert singles.struct.to_list() == [{"x": 1, "y": "a"}, {"x": 2, "y": None}]
    assert singles.time.to_numpy().astype("M8[s]").tolist() == [noon.replace(tzinfo=None)] * 2


@pytest.mark.parametrize("twice", ["x", "run"])
def test_a_column_that_stands_twice_is_refused(dataset: hepnos.DataSet, tmp_path: Path, twice: str) -> None:
    names = ["run", "subrun", "event", "x", twice]
    table = pa.Table.from_arrays([pa.array([number]) for number in range(5)], names=names)
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(InvalidInputError, match=f"several columns are called {twice}"):
        hepnos.load_parquet(dataset, tmp_path / "twice.parquet")
    assert runs(dataset) == []


def test_lists_whose_table_could_have_no_label_are_left_out_and_the_rest_is_loaded(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    columns = {**EVENTS, "Muon#0": [[1], []], "one#": [5, 6], "Muon": [[1.5], [2.5, 3.5]]}
    pq.write_table(pa.table(columns), tmp_path / "podio.parquet")
    loaded = hepnos.load_parquet(dataset, tmp_path / "podio.parquet")
    assert loaded.skipped == ("Muon#0",)
    found = hepnos.to_awkward(dataset)
    assert found["Muon"].to_list() == [[1.5], [2.5, 3.5]]
    assert found["podio"]["one#"].to_list() == [[5], [6]]


# ---- memory ------------------------------------------------------------------------------------------------------------


def long_lists_of_hdf5(folder: Path) -> Path:
    path = folder / "nd_r1_s1.h5"
    with h5py.File(path, "w") as file:
        file["t/evt"] = np.arange(100)
        lists = file.create_dataset("t/x", (100,), dtype=h5py.vlen_dtype("f8"))
        for number in range(100):
            lists[number] = np.zeros(1_000)
    return path


def long_lists_of_an_rntuple(folder: Path) -> Path:
    path = folder / "events.root"
    with uproot.recreate(path) as file:
        lists = ak.from_regular(np.zeros((100, 1_000)))
        file.mkrntuple("Events", {**dict.fromkeys(EVENTS, np.arange(100)), "x": lists})
    return path


def repeated_lists_of_parquet(folder: Path) -> Path:
    return repeated_of_parquet(folder, [np.zeros(1_000)] * 100)


def repeated_texts_of_parquet(folder: Path) -> Path:
    return repeated_of_parquet(folder, ["short"] * 50 + ["t" * 8_000] * 50)


def repeated_categories_of_parquet(folder: Path) -> Path:
    return repeated_of_parquet(folder, pa.array(["t" * 8_000] * 100).dictionary_encode())


def repeated_of_parquet(folder: Path, values: Any) -> Path:
    """Values that repeat take next to nothing in the file."""
    path = folder / "events.parquet"
    pq.write_table(pa.table({**dict.fromkeys(EVENTS, np.arange(100)), "x": values}), path, row_group_size=50)
    assert path.stat().st_size < 30_000
    return path


@pytest.mark.parametrize(
    ("load", "make"),
    [
        (hepnos.load_hdf5, long_lists_of_hdf5),
        (hepnos.load_root, long_lists_of_an_rntuple),
        (hepnos.load_parquet, repeated_lists_of_parquet),
        (hepnos.load_parquet, repeated_texts_of_parquet),
        (hepnos.load_parquet, repeated_categories_of_parquet),
    ],
    ids=["hdf5", "rntuple", "parquet", "texts", "categories"],
)
def test_lists_of_any_length_are_loaded_in_parts(
    dataset: hepnos.DataSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[..., object],
    make: Callable[[Path], Path],
) -> None:
    """A hundred lists of 8,000 bytes, ten of them at a time: memory does not grow with how long they are."""
    monkeypatch.setattr("keyplan.apps.hepnos.loading.GROUP_BYTES", 80_000)
    told: list[int] = []
    load(dataset, make(tmp_path), progress=lambda done, _whole: told.append(done))
    assert len(told) > 10
    assert told[-1] == 100
    assert max(np.diff(told)) <= 10


def test_a_column_of_hdf5_whose_type_numpy_does_not_know_is_left_out(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = tmp_path / "nd_r1_s1.h5"
    with h5py.File(path, "w") as file:
        file["t/evt"], file["t/x"] = np.arange(3), np.arange(3.0)
        h5py.h5d.create(file["t"].id, b"when", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((3,)))
        file["t/nowhere"] = h5py.SoftLink("/nowhere")
    (loaded,) = hepnos.load_hdf5(dataset, path)
    assert (loaded.products, loaded.skipped) == (3, ("when",))


@pytest.mark.parametrize("column", ["evt", "run"])
def test_numbers_of_hdf5_whose_type_numpy_does_not_know_are_refused_by_name(
    dataset: hepnos.DataSet, tmp_path: Path, column: str
) -> None:
    path = tmp_path / "nd_r1_s1.h5"
    with h5py.File(path, "w") as file:
        file["t/x"] = np.arange(3.0)
        for other in {"evt", "run"} - {column}:
            file[f"t/{other}"] = np.arange(3)
        h5py.h5d.create(file["t"].id, column.encode(), h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((3,)))
    with pytest.raises(InvalidInputError, match="cannot be read") as refused:
        hepnos.load_hdf5(dataset, path)
    assert str(path) in str(refused.value.facts["source"])
    assert dataset.events().count() == 0


def test_a_field_of_parquet_is_what_its_place_says_where_names_hold_points(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    """`a.b` is a field of its own, and the path of what stands in `a`; values may be missing in one of them."""
    path = tmp_path / "t.parquet"
    inner = pa.array([{"b": 1.0, "c": [{"d": 1}]}, {"b": None, "c": []}])
    pq.write_table(pa.table({**EVENTS, "a": inner, "a.b": [1.0, 2.0], "last": [None, 5]}), path)
    hepnos.load_parquet(dataset, path)
    found = hepnos.to_awkward(dataset)["t"].to_list()
    assert [rows[0]["a"]["b"] for rows in found] == [1.0, None]
    assert [rows[0]["a.b"] for rows in found] == [1.0, 2.0]
    assert [rows[0]["last"] for rows in found] == [None, 5]


class Point(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """A type of an application's own, stored as two columns."""

    def __init__(self) -> None:
        super().__init__(pa.struct([("x", pa.float64()), ("y", pa.float64())]), "tests.point")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: Any, _serialized: bytes) -> "Point":
        return cls()


def test_what_stands_behind_a_type_of_an_application_is_its_own(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    points = pa.ExtensionArray.from_storage(Point(), pa.array([{"x": 1.0, "y": 2.0}] * 2, Point().storage_type))
    pa.register_extension_type(Point())
    try:
        pq.write_table(pa.table({**EVENTS, "at": points, "last": [None, 5]}), path)
        hepnos.load_parquet(dataset, path, exclude=["at"])
    finally:
        pa.unregister_extension_type("tests.point")
    assert [rows[0]["last"] for rows in hepnos.to_awkward(dataset)["t"].to_list()] == [None, 5]


@pytest.mark.parametrize("form", ["texts", "lists", "records"])
def test_categories_of_several_row_groups_are_loaded_as_their_values(
    dataset: hepnos.DataSet, tmp_path: Path, form: str
) -> None:
    categories: Any = pa.array(["a", "b", None, "c"]).dictionary_encode()
    if form != "texts":
        categories = pa.ListArray.from_arrays(pa.array([0, 1, 1, 2, 4]), categories)
    if form == "records":
        categories = pa.StructArray.from_arrays([categories, pa.array([1, 2, 3, 4])], ["names", "n"])
    path = tmp_path / "t.parquet"
    run = pa.array([7, 7, 7, 8]).dictionary_encode()
    table = pa.table({"run": run, "subrun": [1] * 4, "event": [1, 2, 3, 4], "x": categories})
    pq.write_table(table, path, row_group_size=2)
    hepnos.load_parquet(dataset, path)
    found = hepnos.to_awkward(dataset)
    assert found["run"].to_list() == [7, 7, 7, 8]
    name = "t" if form != "lists" else "x"
    assert found[name].to_list() == expected_categories(form)


def expected_categories(form: str) -> list[Any]:
    lists = [["a"], [], ["b"], [None, "c"]]
    if form == "texts":
        return [[{"x": text}] for text in ("a", "b", None, "c")]
    return lists if form == "lists" else [[{"x": {"names": names, "n": n}}] for n, names in enumerate(lists, 1)]
