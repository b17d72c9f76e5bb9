"""Columns of references: they come back as references, whichever way they took, and load what they point at."""

import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from keyplan.apps import hepnos
from keyplan.apps.hepnos.cli import app
from keyplan.apps.hepnos.table_input import rows_of
from keyplan.apps.hepnos.table_values import decoded, encoded
from keyplan.errors import InvalidInputError
from tests.apps.hepnos.served import HepnosServer

REFS = st.builds(hepnos.Ref, st.binary(max_size=3), st.none() | st.integers(0, 2**63 - 1))
COLUMNS = {
    "alone": REFS,
    "optional": st.none() | REFS,
    "lists": st.lists(REFS, max_size=3),
    "of lists": st.lists(st.lists(st.none() | REFS, max_size=2), max_size=2),
    "records": st.fixed_dictionaries({"of": REFS, "n": st.integers(0, 9), "more": st.lists(REFS, max_size=1)}),
    "pairs": st.tuples(REFS, st.none() | REFS),
}
"""Columns of one row each, as programs hand them over."""


def exact(value: Any) -> Any:
    """Return values with each reference as its parts. Why: references of one product are equal, whatever their index."""
    if isinstance(value, hepnos.Ref):
        return ("ref", value.raw, value.index)
    if isinstance(value, dict):
        return {key: exact(each) for key, each in value.items()}
    return type(value)(map(exact, value)) if isinstance(value, list | tuple) else value


@settings(max_examples=10)
@given(st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=4))
def test_rows_of_references_come_back_one_by_one(rows: list[dict[str, Any]]) -> None:
    table, kind = rows_of({name: [row[name] for row in rows] for name in COLUMNS})
    assert str(kind).startswith("struct{alone:ref,optional:")
    counts = np.array([1] * len(rows))
    raws = encoded(table, kind, counts)
    _, found = decoded(kind, raws)
    for row, own, alone in zip(rows, found, raws, strict=True):
        assert exact(own.to_list()) == exact(row)
        assert exact(decoded(kind, [alone])[1].to_list()) == [exact(row)]
    assert exact([own.alone.ref for own in found]) == exact([row["alone"] for row in rows])
    assert exact(list(found.alone)) == exact(found.alone.to_list()) == exact([row["alone"] for row in rows])


@pytest.fixture
def refs(dataset: hepnos.DataSet) -> list[hepnos.Ref]:
    """References to a vector of an event, and to its elements."""
    product = dataset.create_run(1).create_subrun(1).create_event(1).store("v", np.arange(3.0))
    return [hepnos.Ref.to(product), *(hepnos.Ref.to(product, at) for at in range(3))]


def store_refs(dataset: hepnos.DataSet, table: Any, event: int = 1, label: str = "t") -> None:
    size = len(next(iter(table.values()))) if isinstance(table, dict) else len(table)
    dataset.store_table(label, table, run=[1] * size, subrun=[1] * size, event=[event] * size, create=True)


def test_a_reference_of_a_table_loads_however_it_is_reached(dataset: hepnos.DataSet, refs: list[hepnos.Ref]) -> None:
    store, expected = dataset.datastore, [[0.0, 1.0, 2.0], 0.0, 1.0, 2.0]
    store_refs(dataset, {"best": refs, "n": [0, 1, 2, 3]})
    assert dataset.tables["t"].schema == {"best": "ref", "n": "int64"}
    event = dataset.runs[1].subruns[1].events[1]
    ways: list[Any] = [
        dataset.load_table("t").rows,
        dataset.load_table("t", columns=["best"]).rows,
        event.load("t"),
        dataset.tables["t"].of(event),
        ak.Array(dataset.events()["t"][["best", "n"]])[0],
        hepnos.to_awkward(dataset)["t"][0],
    ]
    for rows in ways:
        for got in (
            list(rows.best),
            rows.best.to_list(),
            [rows.best[at] for at in range(4)],
            [row.best for row in rows],
        ):
            assert got == refs
            assert [each.index for each in got] == [None, 0, 1, 2]
            assert [np.asarray(each.load(store)).tolist() for each in got] == expected
            assert [np.asarray(store.resolve(each)).tolist() for each in got] == expected
        assert [row["best"] for row in rows.to_list()] == refs
        assert [type(row["best"]) for row in rows.to_list()] == [hepnos.Ref] * 4
    field = dataset.load_table("t").rows[1].best
    assert (field == refs[1], refs[1] == field, field != refs[1], hash(field)) == (True, True, False, hash(refs[1]))
    assert exact(field.ref) == exact(refs[1])
    assert field.product == refs[1].product
    assert repr(dataset.load_table("t").rows)  # awkward prints its elements


def test_columns_of_references_are_compared_one_by_one_as_their_elements_are(
    dataset: hepnos.DataSet, refs: list[hepnos.Ref]
) -> None:
    other = hepnos.Ref.to(dataset.create_run(1).create_subrun(1).create_event(2).store("w", 1))
    store_refs(dataset, {"best": [*refs, other], "n": range(5)})
    rows = dataset.load_table("t").rows
    are = [True] * 4 + [False]
    first = rows[0].best
    for one in (refs[1], first):
        for found in (rows.best == one, one == rows.best):
            assert found.to_list() == are == [each == one for each in rows.best]
        for found in (rows.best != one, one != rows.best):
            assert found.to_list() == [not each for each in are]
    assert (rows.best == rows.best).to_list() == [True] * 5
    assert (rows.best[::-1] == rows.best).to_list() == [False, True, True, True, False]
    assert (rows.best != rows.best).to_list() == [False] * 5
    assert rows[rows.best == other].n.to_list() == [4]
    assert (ak.unflatten(rows.best, [2, 3]) == other).to_list() == [[False, False], [False, False, True]]
    assert (ak.mask(rows.best, np.array(are)) == rows.best).to_list() == [True, True, True, True, None]
    assert (rows.best[:0] == rows.best[:0]).to_list() == []
    strange = ak.Array([{"raw": 1}] * 5, with_name="Ref")
    for wrong in (strange, 3):
        with pytest.raises(TypeError):
            operator.eq(rows.best, wrong)
    with pytest.raises(TypeError, match="are no references"):
        operator.eq(strange, strange)


@dataclass
class Best:
    """A product of one's own with references."""

    best: hepnos.Ref | None
    others: list[hepnos.Ref]


def test_what_is_no_reference_in_a_class_of_one_s_own_is_named_with_what_to_give(
    dataset: hepnos.DataSet, refs: list[hepnos.Ref]
) -> None:
    hepnos.register_type("test_refs.Best", Best)
    store_refs(dataset, {"best": refs})
    rows = dataset.load_table("t").rows
    event = dataset.runs[1].subruns[1].events[1]
    field: Any = rows[0].best
    for value in (Best(field, []), Best(None, [field])):
        with pytest.raises(hepnos.TypeMismatchError, match=r"it has a RefRecord, .*: give a reference's `ref`"):
            event.store("mine", value)
    column: Any = rows.best
    with pytest.raises(hepnos.TypeMismatchError, match=r"it has a RefArray, .*what `to_list\(\)` returns"):
        event.store("mine", Best(None, column))
    number: Any = np.float32(1.5)
    with pytest.raises(hepnos.TypeMismatchError, match=r"it has a float32, .*give what `tolist\(\)` returns"):
        event.store("mine", Best(None, number))
    thing: Any = object()
    with pytest.raises(hepnos.TypeMismatchError, match="it has a object, which cannot be serialized"):
        event.store("mine", Best(thing, []))
    good = Best(field.ref, column.to_list())
    event.store("mine", good)
    assert event.load("mine", Best) == good


def test_programs_hand_references_over_in_every_form(dataset: hepnos.DataSet, refs: list[hepnos.Ref]) -> None:
    store_refs(dataset, {"best": refs})
    again = dataset.load_table("t").rows
    objects = np.array([(each,) for each in refs], [("best", object)])
    forms: list[Any] = [
        [{"best": each} for each in refs],
        objects,
        {"best": objects["best"]},
        again,
        {"best": again.best},
        again.to_list(),
        [{"best": row.best} for row in again],
        ak.to_arrow_table(again),
        ak.with_field(again, ak.values_astype(again.best, np.int32), "best"),
        again[[0, 1, 2, 3]],
    ]
    for at, table in enumerate(forms):
        store_refs(dataset, table, label=f"t{at}")
        assert dataset.tables[f"t{at}"].schema == {"best": "ref"}, at
        assert exact(dataset.load_table(f"t{at}").rows.best.to_list()) == exact(refs), at
    store_refs(dataset, refs, label="rows")
    assert dataset.tables["rows"].type.name == "table<ref>"
    assert exact(dataset.load_table("rows").rows.to_list()) == exact(refs)
    event = dataset.runs[1].subruns[1].events[1]
    event.store("array", again)
    assert exact(event.load("array", hepnos.type_of_value(again)).to_list()) == exact(again.to_list())
    with pytest.raises(hepnos.TypeMismatchError, match=r"one record of an array is no product.*a reference's `ref`"):
        event.store("one", again[0].best)
    event.store("list", [{"best": each} for each in refs], type="table<struct{best:ref}>")
    assert exact(event.load("list", "table<struct{best:ref}>").best.to_list()) == exact(refs)


def test_a_version_without_the_column_has_nothing_in_it(dataset: hepnos.DataSet, refs: list[hepnos.Ref]) -> None:
    store_refs(dataset, {"best": refs[:2], "n": [1, 2]})
    store_refs(dataset, {"n": [3]}, event=2)
    store_refs(dataset, {"best": [None], "n": [4]}, event=3)
    store_refs(dataset, {"best": [refs[3], None], "n": [5, 6]}, event=4)
    table = dataset.tables["t"]
    assert table.schema == {"best": "option<ref>", "n": "int64"}
    assert exact(table.load().rows.best.to_list()) == exact([*refs[:2], None, None, refs[3], None])
    filled = table.load(["best"], missing={"best": refs[2]}).rows.best
    assert exact(filled.to_list()) == exact([*refs[:2], refs[2], None, refs[3], None])
    assert exact(ak.flatten(dataset.events()["t"].best).to_list()) == exact(table.load().rows.best.to_list())


def test_a_record_of_the_same_columns_is_no_reference(dataset: hepnos.DataSet, refs: list[hepnos.Ref]) -> None:
    record = {"raw": b"a", "index": 1}
    store_refs(dataset, {"best": [record, {"raw": b"", "index": None}]})
    assert dataset.tables["t"].schema == {"best": "struct{raw:bytes,index:option<int64>}"}
    assert dataset.load_table("t").rows.best[0].to_list() == record
    store_refs(dataset, {"best": refs}, event=2)
    with pytest.raises(InvalidInputError, match=r"column best is ref in .* and struct\{raw.*load it by version"):
        dataset.load_table("t")
    (own,) = [each for each in dataset.tables["t"].versions if each.columns == {"best": "ref"}]
    assert exact(dataset.tables["t"].load(version=own).rows.best.to_list()) == exact(refs)
    others = ak.with_name(ak.Array([{"x": 1.5, "of": "a"}]), "Ref")
    store_refs(dataset, others, label="others")
    assert dataset.tables["others"].schema == {"x": "float64", "of": "str"}
    assert others.to_list() == [{"x": 1.5, "of": "a"}]
    for theirs in (others, ak.with_name(ak.Array([{"raw": 1, "index": 2}, {"raw": 3, "index": 4}]), "Ref")):
        assert [each.to_list() for each in theirs] == theirs.to_list() != [refs[0]] * len(theirs)
        for wrong in (lambda each: each == refs[0], hash):  # as of every record of awkward
            with pytest.raises(TypeError):
                wrong(theirs[0])
        with pytest.raises(InvalidInputError, match=r"it is a hepnos\.Ref, not RefRecord"):
            dataset.datastore.resolve(theirs[0])
    for odd in ([refs[0], record], [refs[0], 1], [hepnos.Ref(b"", 2**63)], [hepnos.Ref("a")]):  # type: ignore[arg-type]
        with pytest.raises((InvalidInputError, hepnos.TypeMismatchError)):
            store_refs(dataset, {"best": odd}, label="odd")


def test_parquet_keeps_references_and_is_read_by_anybody(
    store: hepnos.DataStore, dataset: hepnos.DataSet, refs: list[hepnos.Ref], tmp_path: Path
) -> None:
    store_refs(dataset, {"best": refs, "more": [refs, [], refs[:1], []]})
    hepnos.export_parquet(dataset, tmp_path / "t.parquet")
    plain = pq.read_table(tmp_path / "t.parquet").column("t").to_pylist()
    assert plain[0][1]["best"] == {"raw": refs[1].raw, "index": 0}
    again = store.root.ensure("again")
    hepnos.load_parquet(again, tmp_path / "t.parquet")
    assert again.tables["t"].schema == {"best": "ref", "more": "list<ref>"}
    assert exact(again.load_table("t").rows.to_list()) == exact(dataset.load_table("t").rows.to_list())
    ak.to_parquet(again.load_table("t").rows, tmp_path / "theirs.parquet")
    store_refs(dataset, ak.from_parquet(tmp_path / "theirs.parquet"), label="theirs")
    assert exact(dataset.load_table("theirs").rows.to_list()) == exact(dataset.load_table("t").rows.to_list())


@pytest.mark.parametrize("frames", ["true", "false"], ids=["frames", "http"])
def test_references_come_back_and_load_through_a_server(tmp_path: Path, frames: str) -> None:
    settings = {"store": f"lmdb:{tmp_path}/store?durability=none", "frames": frames}
    with HepnosServer(settings) as server, hepnos.open(server.url) as remote:
        dataset = remote.root.ensure("d")
        product = dataset.create_run(1).create_subrun(1).create_event(1).store("v", np.arange(3.0))
        refs = [hepnos.Ref.to(product, at) for at in (2, None, 0)]
        dataset.store_table("t", {"of": refs}, run=[1] * 3, subrun=[1] * 3, event=[1, 2, 3], create=True)
        rows = dataset.load_table("t").rows
        assert exact(rows.of.to_list()) == exact(refs)
        assert (rows.of[0].load(remote), remote.resolve(rows[2].of)) == (2.0, 0.0)


def test_the_command_says_that_a_column_is_of_references(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store?durability=none"
    with hepnos.open(url) as store:
        store_refs(store.root.ensure("d"), {"best": [hepnos.Ref(b"a", 1)]})
    answer = CliRunner().invoke(app, ["tables", "d"], env={"KEYPLAN_STORE": url})
    assert answer.output == "t: 1 version\n  best ref\n"
