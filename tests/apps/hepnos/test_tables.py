"""Tables of several versions are read as their union, each is noted, and what numpy and awkward have comes back equal."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.product_types import VectorType
from keyplan.errors import CorruptionError, EngineLimitError, InvalidInputError

CHAINS: list[list[tuple[str, Callable[[Random], Any]]]] = [
    [(name, lambda source: source.randrange(100)) for name in ("u1", "i2", "i4", "f8")],
    [(name, lambda source: source.randrange(100) / 4) for name in ("f4", "f8", "c16")],
    [("?", lambda source: bool(source.randrange(2))), ("u1", lambda source: source.randrange(200))],
    [("text", lambda source: source.choice(["", "é", "muon"]))],
    [("list", lambda source: [source.randrange(9) for _ in range(source.randrange(3))])],
]
"""For a column, types of which each holds the values of those before it, or that are one; and their values."""


def column_of(kind: str, values: list[Any]) -> Any:
    if kind in {"text", "list"}:
        empty = [""] if kind == "text" else [[0]]
        return ak.from_iter([*values, *empty])[: len(values)]
    return np.array(values, kind)


def store_version(dataset: hepnos.DataSet, columns: dict[str, str], events: dict[int, list[dict[str, Any]]]) -> None:
    rows = [(event, row) for event, own in events.items() for row in own]
    table = {name: column_of(kind, [row[name] for _, row in rows]) for name, kind in columns.items()}
    number = np.array([event for event, _ in rows], np.uint64)
    dataset.store_table("t", table, run=number // 10, subrun=number % 3, event=number, create=True)


@pytest.mark.parametrize("seed", range(8))
def test_versions_are_read_as_their_union(dataset: hepnos.DataSet, seed: int) -> None:
    source = Random(seed)
    chains = {name: source.choice(CHAINS) for name in "abcd"}
    model: dict[int, tuple[set[str], list[dict[str, Any]]]] = {}
    numbers = source.sample(range(60), 30)
    for begin in range(0, 30, 10):
        chosen = source.sample(sorted(chains), source.randrange(1, 5))
        columns = {name: source.choice(chains[name])[0] for name in chosen}
        made = {name: dict(chains[name])[kind] for name, kind in columns.items()}
        events = {
            event: [{name: make(source) for name, make in made.items()} for _ in range(source.randrange(1, 4))]
            for event in numbers[begin : begin + 10]
        }
        store_version(dataset, columns, events)
        model |= {event: (set(chosen), rows) for event, rows in events.items()}
    table = dataset.tables["t"]
    order = sorted(model, key=lambda event: (event // 10, event % 3, event))
    found = table.load()
    assert found.events["event"].tolist() == order
    assert np.diff(found.offsets).tolist() == [len(model[event][1]) for event in order]
    expected = [{name: row.get(name) for name in table.schema} for event in order for row in model[event][1]]
    listed = (
        found.rows.tolist()
        if isinstance(found.rows, ak.Array)
        else [dict(zip(found.rows.dtype.names, row, strict=True)) for row in found.rows.tolist()]
    )
    assert listed == expected
    one = source.choice(sorted(table.schema))
    only = table.load([one], events=found.events[::2])
    few: Any = ak.Array(only.rows)[one] if isinstance(only.rows, ak.Array) else only.rows[one]
    assert few.tolist() == [row.get(one) for event in order[::2] for row in model[event][1]]
    assert only.events.tolist() == found.events[::2].tolist()
    assert ak.flatten(hepnos.to_awkward(dataset)["t"], axis=1).to_list() == expected
    number = order[3]
    event = dataset.runs[number // 10].subruns[number % 3].events[number]
    own = table.of(event)
    listed_own = (
        own.tolist()
        if isinstance(own, ak.Array)
        else [dict(zip(own.dtype.names, row, strict=True)) for row in own.tolist()]
    )
    assert listed_own == [{name: row.get(name) for name in table.schema} for row in model[number][1]]


@pytest.fixture
def two(dataset: hepnos.DataSet) -> hepnos.Table:
    """A table in two versions: pt and charge of event 2; pt, wider, and mass of event 1."""
    store_version(dataset, {"pt": "f4", "charge": "i1"}, {2: [{"pt": 1.5, "charge": -1}]})
    store_version(dataset, {"pt": "f8", "mass": "f4"}, {1: [{"pt": 0.25, "mass": 2.0}]})
    return dataset.tables["t"]


def test_what_a_version_lacks_is_nothing_or_a_choice(two: hepnos.Table) -> None:
    assert two.schema == {"pt": "float64", "charge": "option<int8>", "mass": "option<float32>"}
    assert two.load().rows.to_list() == [
        {"pt": 0.25, "charge": None, "mass": 2.0},
        {"pt": 1.5, "charge": -1, "mass": None},
    ]
    filled = two.load(missing={"charge": 9, "mass": np.nan}).rows
    assert filled.dtype == np.dtype([("pt", "f8"), ("charge", "i1"), ("mass", "f4")])
    assert filled["charge"].tolist() == [9, -1]
    assert np.isnan(filled["mass"]).tolist() == [False, True]
    assert two.load(["p*"], missing="refuse").rows["pt"].tolist() == [0.25, 1.5]
    assert two.load(exclude=["mass"], missing=-7).rows["charge"].tolist() == [-7, -1]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"missing": "refuse"}, "charge is missing in"),
        ({"missing": 300}, "300 is no value of column charge"),
        ({"missing": {"charge": 1}}, "None is no value of column mass"),
        ({"columns": ["eta"]}, "no column eta"),
        ({"exclude": ["eta"]}, "no column eta"),
    ]
    for options, problem in wrong:
        with pytest.raises(InvalidInputError, match=problem):
            two.load(**options)
    (wide,) = [each for each in two.versions if "mass" in each.columns]
    assert two.load(version=wide).rows.tolist() == [(0.25, 2.0)]


def store_one(dataset: hepnos.DataSet, event: int, table: Any, **options: Any) -> None:
    """Store a row of an event of run 1 and subrun 1."""
    dataset.store_table("t", table, run=[1], subrun=[1], event=[event], create=True, **options)


def test_any_column_that_a_version_lacks_is_nothing_or_a_value(store: hepnos.DataStore, tmp_path: Any) -> None:
    at = np.array([(b"a", 1)], [("of", "S1"), ("n", "i8")])
    values: dict[str, tuple[Any, Any, Any, Any]] = {
        "raw": (np.array([b"ab"]), b"", b"", 1),
        "text": (np.array(["ab"]), "x", "x", b""),
        "word": (["ab"], "", "", 1.0),
        "when": (np.array([5], "m8[s]"), np.timedelta64("NaT"), None, 0),
        "wave": (np.array([1j]), 2, 2 + 0j, "a"),
        "cov": (np.ones((1, 3), "f4"), -1, [-1.0, -1.0, -1.0], [1, 2]),
        "hits": ([[1.5]], [], [], ["a"]),
        "at": (at, {"of": b"", "n": 2}, (b"", 2), {"of": b""}),
    }
    for name, (column, value, listed, wrong) in values.items():
        dataset = store.root.ensure(name)
        store_one(dataset, 1, {name: column, "n": np.array([1])})
        store_one(dataset, 2, {"n": np.array([2])})
        table = dataset.tables["t"]
        assert table.load([name]).rows[name].to_list()[1] is None
        assert str(table.row_type()) == f"struct{{{','.join(f'{key}:{kind}' for key, kind in table.schema.items())}}}"
        hepnos.export_parquet(dataset, tmp_path / "out.parquet")
        assert pq.read_table(tmp_path / "out.parquet").column("t")[1].as_py() == [{name: None, "n": 2}]
        rows = table.load(missing={name: value}).rows[name]
        assert str((rows if isinstance(rows, ak.Array) else ak.Array(rows.tolist())).to_list()[1]) == str(listed)
        with pytest.raises(InvalidInputError, match=f"is no value of column {name}"):
            table.load(missing={name: wrong})


def test_records_within_columns_go_by_the_names_of_their_fields(dataset: hepnos.DataSet) -> None:
    store_one(dataset, 1, {"p": np.array([(1, 2)], [("x", "f4"), ("y", "f4")])})
    store_one(dataset, 2, {"p": np.array([(20, 10)], [("y", "f4"), ("x", "f4")])})
    assert dataset.load_table("t").rows["p"].tolist() == [(1, 2), (10, 20)]
    kind = hepnos.type_named("vector<struct{p:struct{x:float32,n:int8,t:datetime64[s]}}>")
    fields = [("t", "M8[ms]"), ("n", "i8"), ("x", "f8")]
    store_one(dataset, 3, {"p": np.array([("NaT", 3, 0.1)], fields)}, type=kind)
    (row,) = dataset.load_table("t", kind).rows["p"].tolist()
    assert row == (pytest.approx(0.1), 3, None)
    for wrong in (("2026-01-01T00:00:00.5", 3, 1.0), ("NaT", 300, 1.0), ("NaT", 3, 1e300)):
        with pytest.raises(hepnos.TypeMismatchError, match="out of range"):
            store_one(dataset, 3, {"p": np.array([wrong], fields)}, type=kind)


def test_what_is_nested_too_deep_to_be_read_is_not_stored(dataset: hepnos.DataSet) -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="nested too deep"):
        store_one(dataset, 1, {"x": [deep]})
    assert list(dataset.tables) == []


def test_arrays_of_events_may_have_one_several_times(dataset: hepnos.DataSet) -> None:
    dataset.store_table("t", {"x": [1.0, 2.0]}, run=[1, 1], subrun=[1, 1], event=[1, 3], create=True)
    dataset.runs[1].subruns[1].create_event(2)
    events = dataset.events().to_numpy()[[2, 0, 2, 1, 1]]
    assert hepnos.to_awkward(dataset, events=events).t.x.to_list() == [[2.0], [1.0], [2.0], None, None]


def test_columns_that_no_type_holds_are_told_and_loaded_by_version(dataset: hepnos.DataSet) -> None:
    store_version(dataset, {"n": "i8", "x": "f4"}, {1: [{"n": 2**62 + 1, "x": 1.0}]})
    store_version(dataset, {"n": "f8", "x": "f4"}, {2: [{"n": 0.5, "x": 2.0}]})
    table = dataset.tables["t"]
    assert set(table.schema["n"].split(" | ")) == {"int64", "float64"}
    with pytest.raises(InvalidInputError, match="load it by version, or exclude it") as told:
        table.load()
    assert all(kind.name in str(told.value) for kind in table.types)
    assert table.load(exclude=["n"]).rows["x"].tolist() == [1.0, 2.0]
    assert sorted(table.load(version=kind).rows["n"].tolist()[0] for kind in table.types) == [0.5, 2**62 + 1]


def test_an_event_has_its_rows_in_one_version(dataset: hepnos.DataSet, two: hepnos.Table) -> None:
    event = dataset.runs[0].subruns[2].events[2]
    store_version(dataset, {"pt": "f8", "mass": "f4"}, {2: [{"pt": 7.0, "mass": 3.0}]})
    assert [product.type for product in event.products("t")] == ["vector<struct{pt:float64,mass:float32}>"]
    (narrow,) = [kind for kind in two.types if "charge" in kind.columns]
    event.store("t", np.array([(1.5, 1)], [("pt", "f4"), ("charge", "i1")]), type=narrow)
    for load in (two.load, lambda: two.of(event), lambda: hepnos.to_awkward(dataset)):
        with pytest.raises(InvalidInputError, match="event nova/2019 0 2 2 has rows in") as told:
            load()
        assert all(kind.name in str(told.value) for kind in two.types)


def test_tables_are_noted_wherever_they_come_from_and_exported(dataset: hepnos.DataSet, tmp_path: Any) -> None:
    dataset.store_table("own", {"x": [1.5, 2.5], "s": ["a", "é"]}, run=[1, 1], subrun=[1, 1], event=[2, 1], create=True)
    dataset.store_table("plain", np.arange(2.0), run=[1, 1], subrun=[1, 1], event=[1, 2])
    assert list(dataset.tables) == ["own", "plain"]
    assert len(dataset.tables) == 2
    assert "own" in dataset.tables
    assert "none" not in dataset.tables
    with pytest.raises(KeyError):
        dataset.table("none")
    dataset.runs[1].subruns[1].store("plain", np.arange(3.0))  # which is of no event, and no part of the table
    assert dataset.load_table("plain").rows.tolist() == [0.0, 1.0]
    found = hepnos.to_awkward(dataset)
    assert found.own.to_list() == [[{"x": 2.5, "s": "é"}], [{"x": 1.5, "s": "a"}]]
    assert found.plain.to_list() == [[0.0], [1.0]]
    hepnos.export_parquet(dataset, tmp_path / "own.parquet", exclude={"own": ["x"]})
    assert pq.read_table(tmp_path / "own.parquet").column("own").to_pylist() == [[{"s": "é"}], [{"s": "a"}]]
    with pytest.raises(InvalidInputError, match="there is no table mine"):
        hepnos.to_awkward(dataset, columns={"mine": ["x"]})


def test_wide_tables_have_a_type_of_a_digest_and_no_product_is_without_a_note(dataset: hepnos.DataSet) -> None:
    columns = {f"a column, with a long name: {number}": np.array([number, -number]) for number in range(300)}
    dataset.store_table("wide", columns, run=[1, 1], subrun=[1, 1], event=[1, 2], create=True)
    kind = dataset.tables["wide"].type
    assert kind.name.startswith("vector<wide@")
    (product,) = dataset.runs[1].subruns[1].events[2].products()
    assert len(product.raw) < 100
    assert dataset.load_table("wide", columns=["*: 7"]).rows.tolist() == [(7,), (-7,)]
    label = "x" * 470
    with pytest.raises(EngineLimitError):
        dataset_of_lmdb_limits(dataset, label)
    assert [each.label for each in dataset.runs[1].subruns[1].events[1].products()] == ["wide"]


def dataset_of_lmdb_limits(dataset: hepnos.DataSet, label: str) -> None:
    """Store a table as if the engine had LMDB's limit."""
    store = dataset.datastore
    store.key_bytes_max = dict.fromkeys(store.key_bytes_max, 511)
    dataset.store_table(label, {"x": [1.0]}, run=[1], subrun=[1], event=[1])


def test_the_note_stands_before_any_product(dataset: hepnos.DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    databases = dataset.datastore.databases
    writes: list[bool] = []
    put = databases.put

    def watched(kind: Any, number: int, keys: Any, values: Any, **options: Any) -> int:
        if kind is hepnos.Kind.PRODUCT:
            writes.append("t" in dataset.tables)
        return put(kind, number, keys, values, **options)

    monkeypatch.setattr(databases, "put", watched)
    dataset.store_table("t", {"x": [1.0]}, run=[1], subrun=[1], event=[1], create=True)
    assert writes[-1] is True


VALUES: list[Any] = [
    np.array([1 + 2j, 3, np.nan], "c8"),
    np.array(["2026-01-01", "NaT", "1677-09-22"], "M8[ns]"),
    np.array([1, -2, 3], "m8[s]"),
    np.array(["ab", "é", ""]),
    np.array([b"ab", b"", b"c"]),
    np.array([True, False, True]),
    np.zeros(3, [("t", "M8[us]"), ("c", "c16"), ("m", "f4", (2, 2))]),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: values.dtype.name[:20])
def test_arrays_of_numpy_come_back_equal(dataset: hepnos.DataSet, values: Any) -> None:
    dataset.store_table("t", values, run=[1] * 3, subrun=[1] * 3, event=[3, 3, 4], create=True)
    found = dataset.load_table("t")
    assert found.rows.dtype == values.dtype
    assert found.rows.tobytes() == values.tobytes()
    event = dataset.runs[1].subruns[1].events[3]
    event.store("alone", values)
    assert event.load("alone", hepnos.type_of_value(values)).tobytes() == values.tobytes()


def test_arrays_of_awkward_come_back_equal(dataset: hepnos.DataSet) -> None:
    event = dataset.create_run(1).create_subrun(1).create_event(1)
    muons = ak.Array(
        [
            {"pt": 1.5, "hits": [[1, 2], []], "name": "a", "raw": b"\x00", "tight": True, "mother": None},
            {"pt": 2.5, "hits": [], "name": "é", "raw": b"", "tight": None, "mother": {"index": 1, "weight": 0.5}},
        ]
    )
    for rows in (muons, muons[::-1], muons[:0], muons.pt, muons.hits, ak.to_packed(muons[[1]])):
        event.store("muons", rows)
        kind = hepnos.type_of_value(rows)
        assert ak.to_list(event.load("muons", kind)) == ak.to_list(rows)
        assert hepnos.type_named(kind.name) == kind
    for odd in (ak.Array([1, "a"]), ak.Array([{"x": 1}])[0]):
        with pytest.raises((hepnos.TypeMismatchError, InvalidInputError)):
            dataset.store_table("odd", odd, run=[1] * 2, subrun=[1] * 2, event=[1] * 2)
    with pytest.raises(InvalidInputError, match="has no name"):
        dataset.store_table("odd", ak.Array([{"": [1]}]), run=[1], subrun=[1], event=[1])
    with pytest.raises(hepnos.TypeMismatchError, match="differ in length"):
        event.store("odd", [[1.0], []], type=hepnos.vector("f8"))
    with pytest.raises(hepnos.TypeMismatchError):
        event.store("odd", muons.hits, type=hepnos.vector("f8"))


def test_damage_is_told_with_the_product(dataset: hepnos.DataSet) -> None:
    for label, table in (("text", {"s": ["a", "b"]}), ("numbers", {"x": [1.0, 2.0]})):
        dataset.store_table(label, table, run=[1, 1], subrun=[1, 1], event=[1, 2], create=True)
        kind = dataset.tables[label].type
        event = dataset.runs[1].subruns[1].events[2]
        raw = dataset.datastore.raw_product(event.product_id(label, kind).raw)
        assert raw is not None
        hepnos.store_products(dataset, label, kind, ([1], [1], [2]), [raw[:-1]])
        for load in (partial(dataset.load_table, label), partial(event.load, label, kind)):
            with pytest.raises(CorruptionError) as told:
                load()
            assert told.value.facts["product"] == f"nova/2019 1 1 2 {label}#{kind.name}"


def test_a_note_that_is_damaged_or_of_other_columns_is_told(dataset: hepnos.DataSet) -> None:
    dataset.store_table("t", {"x": [1.0]}, run=[1], subrun=[1], event=[1], create=True)
    (note,) = dataset.products("table/", is_prefix=True)
    raw = dataset.datastore.raw_product(note.raw)
    assert raw is not None
    # Why every byte: a flip in a name gives a note of another table, or of other products, and rows would be missing.
    flipped = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]
    for damaged in (
        *flipped,
        raw[:-1],
        b'{"label": "t"}',
        b'{"label":"t","table":"t","type":"t","row":"int8","padded":[[]]}',
    ):
        dataset.datastore.write(hepnos.Kind.PRODUCT, note.raw, damaged, "overwrite")
        for use in (lambda: list(dataset.tables.values()), partial(dataset.load_table, "t")):
            with pytest.raises(CorruptionError) as told:
                use()
            assert str(told.value.facts["product"]).startswith(f"nova/2019 {note.label}")
    dataset.datastore.write(hepnos.Kind.PRODUCT, note.raw, raw, "overwrite")
    dataset.store("table/cuts", {"pt": 5})  # which are products of the user's own
    dataset.store("table/t/0123456789abcdef", 5.0)
    assert list(dataset.tables) == ["t"]
    one, other = (VectorType("vector<Hit>", np.dtype([(name, "f8")])) for name in "xy")
    dataset.store_table("hits", {"x": [1.0]}, run=[1], subrun=[1], event=[1], type=one)
    with pytest.raises(InvalidInputError, match="other columns"):
        dataset.store_table("hits", {"y": [1.0]}, run=[1], subrun=[1], event=[1], type=other)


def test_a_struct_of_c_plus_plus_with_padding_is_a_table_as_well(dataset: hepnos.DataSet) -> None:
    padded = np.dtype([("a", "u1"), ("b", "f8"), ("c", "u2", (3,))], align=True)
    rows = np.zeros(2, padded)
    rows["b"] = [1.5, 2.5]
    kind = hepnos.cxx_type("std::vector<P, std::allocator<P> >", padded)
    dataset.store_table("p", rows, run=[1, 1], subrun=[1, 1], event=[1, 1], type=kind, create=True)
    assert dataset.tables["p"].schema == {"a": "uint8", "b": "float64", "c": "uint16[3]"}
    assert dataset.load_table("p").rows["b"].tolist() == [1.5, 2.5]
    assert dataset.load_table("p", columns=["a", "b"]).rows.dtype == np.dtype([("a", "u1"), ("b", "f8")])
