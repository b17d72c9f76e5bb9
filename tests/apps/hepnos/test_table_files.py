"""Nested columns come back as they were; files of several versions are one table; what loaders do that meet at an event."""

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

from keyplan.apps import hepnos
from keyplan.apps.hepnos import bulk, loading, table_versions
from keyplan.engine import Delete
from keyplan.errors import InvalidInputError
from keyplan.ring.engine import RingEngine
from tests.apps.hepnos.stored_columns import stored_columns


def rntuple(path: Path) -> dict[str, Any]:
    """Write what NanoAOD has not: text, lists of lists, records, records in lists; and events that are out of order."""
    columns: dict[str, Any] = {
        "head": ak.Array([{"run": 1, "event": number} for number in (4, 2, 3)]),
        "text": ak.Array(["é", "", "abc"]),
        "nested": ak.Array([[[1, 2], []], [], [[3]]]),
        "Muon": ak.Array(
            [
                [{"pt": 1.5, "hits": [1, 2], "name": "a"}, {"pt": 2.5, "hits": [], "name": ""}],
                [],
                [{"pt": 3.5, "hits": [3], "name": "ü"}],
            ]
        ),
        "vertex": ak.Array([{"x": 1.0, "n": 1}, {"x": 2.0, "n": 2}, {"x": 3.0, "n": 3}]),
        "flag": np.array([True, False, True]),
    }
    with uproot.recreate(path) as file:
        file["Events"] = columns
    return columns


def test_an_rntuple_of_nested_columns_comes_back_with_numbers_from_its_depth(
    store: hepnos.DataStore, dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    columns = rntuple(tmp_path / "nested.root")
    numbers: dict[str, Any] = {"run": "head.run", "subrun": 7, "event": "head.event"}
    with pytest.raises(InvalidInputError, match=r"name those it has, as .*head\.run"):
        hepnos.load_root(dataset, tmp_path / "nested.root")
    loaded = hepnos.load_root(dataset, tmp_path / "nested.root", exclude=["fl*"], **numbers)
    assert loaded.skipped == ()
    assert dataset.events().to_numpy().tolist() == [(1, 7, 2), (1, 7, 3), (1, 7, 4)]
    stored = stored_columns(dataset, "Events")
    assert set(dataset.tables) == {"Events", "Muon", "nested"}
    assert set(dataset.tables["Events"].schema) == {"head", "text", "vertex"}
    for name in ("text", "nested", "Muon", "vertex", "head"):
        assert ak.to_list(stored[name]) == ak.to_list(columns[name][[1, 2, 0]]), name
    hepnos.export_parquet(dataset, tmp_path / "out.parquet")
    again = store.root.ensure("again")
    hepnos.load_parquet(again, tmp_path / "out.parquet")
    assert ak.to_list(hepnos.to_awkward(again)) == ak.to_list(hepnos.to_awkward(dataset))


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_number_columns_of_parquet_lie_at_any_depth(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    head = [[{"run": 3, "event": 9}], [{"run": 3, "event": 8}]]
    path = parquet(tmp_path / "deep.parquet", head=head, x=[1.0, 2.0])
    hepnos.load_parquet(dataset, path, run="head.run", subrun=1, event="head.event", columns=["x"])
    assert dataset.events().to_numpy().tolist() == [(3, 1, 8), (3, 1, 9)]
    assert dataset.load_table("deep").rows["x"].tolist() == [2.0, 1.0]
    two = parquet(tmp_path / "two.parquet", head=[*head, [*head[0], *head[1]]], x=[1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match=r"head\.run has not one number in entry 2, but 2"):
        hepnos.load_parquet(dataset, two, run="head.run", subrun=1, event="head.event")


def year(path: Path, events: list[int], **columns: Any) -> Path:
    """Write events of a year's version: a list of muons each, as long as its number."""
    counts = {event: event % 3 for event in events}
    lists = {
        f"Muon_{name}": [[make(event, at) for at in range(counts[event])] for event in events]
        for name, make in columns.items()
    }
    numbers = {"run": [1] * len(events), "luminosityBlock": [1] * len(events), "event": events}
    return parquet(path, **numbers, nMuon=list(counts.values()), **lists)


def test_files_of_several_versions_are_one_table(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    old = year(tmp_path / "2016.parquet", [5, 1, 4], pt=lambda event, at: event + at / 2)
    new = year(
        tmp_path / "2018.parquet", [2, 8], pt=lambda event, at: float(event + at), tag=lambda event, at: f"{event}{at}"
    )
    for path in (old, new, old):
        hepnos.load_parquet(dataset, path)
    found = hepnos.to_awkward(dataset)
    assert found.event.to_list() == [1, 2, 4, 5, 8]
    assert found.Muon.pt.to_list() == [[1.0], [2, 3], [4.0], [5.0, 5.5], [8, 9]]
    assert found.Muon.tag.to_list() == [[None], ["20", "21"], [None], [None, None], ["80", "81"]]
    hepnos.export_parquet(dataset, tmp_path / "all.parquet", ["Muon"], batch_events=2)
    assert ak.from_parquet(tmp_path / "all.parquet").Muon.tag.to_list() == found.Muon.tag.to_list()
    table = dataset.tables["Muon"]
    with dataset.datastore.prefetch(products=[(table.label, kind) for kind in table.types]) as prefetch:
        rows = [table.of(event, source=prefetch).pt.to_list() for event in prefetch(dataset.events())]
        assert rows == found.Muon.pt.to_list()
        assert prefetch.statistics.misses == 0
    clash = year(tmp_path / "clash.parquet", [3, 8], pt=lambda event, at: float(event + at))
    before = [product.raw for product in dataset.runs[1].subruns[1].events[8].products()]
    with pytest.raises(InvalidInputError, match="event 1 1 8 has other rows of Muon already, in the version table<"):
        hepnos.load_parquet(dataset, clash)
    assert [product.raw for product in dataset.runs[1].subruns[1].events[8].products()] == before
    other = year(tmp_path / "other.parquet", [8], pt=lambda event, at: event + at)
    schema = dict(dataset.tables["Muon"].schema)
    with pytest.raises(InvalidInputError, match="event 1 1 8 has other rows of Muon already"):
        hepnos.load_parquet(dataset, other)
    assert dataset.tables["Muon"].schema == schema  # which int64 beside float64 would spoil
    hepnos.load_parquet(dataset, clash, replace=True)
    assert hepnos.to_awkward(dataset).Muon.tag.to_list()[-1] == [None, None]
    assert len(list(dataset.runs[1].subruns[1].events[8].products("Muon"))) == 1


def test_what_is_replaced_goes_in_one_commit_of_each_database(
    dataset: hepnos.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(range(2, 200, 3))
    old = year(tmp_path / "old.parquet", events, pt=lambda event, at: event + at)
    new = year(tmp_path / "new.parquet", events, pt=lambda event, at: event + at, tag=lambda event, at: str(at))
    hepnos.load_parquet(dataset, old)
    commits: list[int] = []
    commit_in = RingEngine.commit_in

    def counted(ring: RingEngine, database: int, commit: Any) -> None:
        if any(isinstance(each, Delete) for each in commit.mutations):
            commits.append(len(commit.mutations))
        commit_in(ring, database, commit)

    monkeypatch.setattr(RingEngine, "commit_in", counted)
    hepnos.load_parquet(dataset, new, replace=True)
    assert sum(commits) == len(events)
    assert len(commits) <= dataset.datastore.counts()["products"]
    assert dataset.load_table("Muon").rows.tag.to_list() == ["0", "1"] * len(events)


def test_of_two_loaders_that_meet_at_an_event_one_sees_the_other(
    dataset: hepnos.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = year(tmp_path / "ours.parquet", [2], pt=lambda event, at: float(event + at))
    theirs = year(tmp_path / "theirs.parquet", [2], pt=lambda event, at: float(at), tag=lambda event, at: str(event))
    store = bulk.store_event_products

    def beside_another(*arguments: Any, **options: Any) -> int:
        monkeypatch.setattr(loading, "store_event_products", store)
        hepnos.load_parquet(dataset, theirs)  # after our look at the event, and before our write
        return store(*arguments, **options)

    monkeypatch.setattr(loading, "store_event_products", beside_another)
    with pytest.raises(InvalidInputError, match="event 1 1 2 has other rows of Muon already"):
        hepnos.load_parquet(dataset, ours)
    with pytest.raises(InvalidInputError, match=r"event nova/2019 1 1 2 has rows in .* load its file again to replace"):
        dataset.load_table("Muon")
    hepnos.load_parquet(dataset, ours, replace=True)
    assert dataset.load_table("Muon", columns=["pt"]).rows["pt"].tolist() == [2.0, 3.0]


@pytest.mark.parametrize("is_file", [True, False])
def test_of_two_that_replace_an_event_in_two_versions_the_rows_of_one_stay(
    dataset: hepnos.DataSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_file: bool,  # noqa: FBT001
) -> None:
    ours = year(tmp_path / "ours.parquet", [2], pt=lambda event, at: float(event + at))
    theirs = year(tmp_path / "theirs.parquet", [2], pt=lambda event, at: float(at), tag=lambda event, at: str(event))
    store = bulk.store_event_products

    def before_another(*arguments: Any, **options: Any) -> int:
        monkeypatch.setattr(table_versions, "store_event_products", store)
        made = store(*arguments, **options)
        hepnos.load_parquet(dataset, theirs, replace=True)  # it removes what was written, and is removed in turn
        return made

    monkeypatch.setattr(table_versions, "store_event_products", before_another)
    if is_file:
        hepnos.load_parquet(dataset, ours, replace=True)
    else:
        dataset.store_table("Muon", {"pt": np.array([2.0, 3.0])}, run=[1, 1], subrun=[1, 1], event=[2, 2])
    assert dataset.load_table("Muon", columns=["pt"]).rows["pt"].tolist() == [2.0, 3.0]


def test_lists_of_other_lengths_are_a_table_of_their_own(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    numbers = {"run": [1, 1], "luminosityBlock": [1, 1], "event": [1, 2], "nMuon": [1, 2]}
    path = parquet(tmp_path / "o.parquet", **numbers, Muon_pt=[[1.0], [2.0, 3.0]], Muon_other=[[1.0, 2.0], [3.0, 4.0]])
    hepnos.load_parquet(dataset, path)
    found = hepnos.to_awkward(dataset)
    assert (found.Muon.pt.to_list(), found["Muon_other"].to_list()) == ([[1.0], [2.0, 3.0]], [[1.0, 2.0], [3.0, 4.0]])


def test_times_that_are_none_are_null_in_parquet_and_nothing_ends_the_process(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    own = {"run": [1, 1], "subrun": [1, 1], "event": [1, 2], "create": True}
    times = {
        f"{kind}_{unit}": np.array(["NaT", 5000], f"{kind}8[{unit}]") for kind in "Mm" for unit in ("ns", "D", "s")
    }
    dataset.store_table("t", {**times, "none": np.zeros((2, 0)), "x": np.arange(2)}, **own)
    hepnos.export_parquet(dataset, tmp_path / "t.parquet")
    first, second = (rows.as_py()[0] for rows in pq.read_table(tmp_path / "t.parquet").column("t"))
    assert {name for name, value in first.items() if value is None} == {*times} - {"m_D"}
    assert (second["M_D"].isoformat(), second["none"]) == ("1983-09-10", [])
    for label, column, problem in (
        ("far", np.array([2**40, 5], "M8[D]"), r"2\*\*31 days from 1970; exclude its column.*far"),
        ("bare", ak.Array([{}, {}]), "exclude the column"),
    ):
        dataset.store_table(label, {"x": column}, **own)
        with pytest.raises((InvalidInputError, hepnos.TypeMismatchError), match=problem):
            hepnos.export_parquet(dataset, tmp_path / "no.parquet", [label])
    assert not (tmp_path / "no.parquet").exists()


@pytest.mark.parametrize("databases", [2, 3, 4])
def test_what_a_ring_exports_is_aligned_with_its_file(tmp_path: Path, databases: int) -> None:
    source = np.random.default_rng(databases)
    size = 60
    event = source.permutation(size)
    columns = {"run": event // 20, "luminosityBlock": event // 4, "event": event, "x": event * 0.5}
    lists = {"hits": [list(range(number % 4)) for number in event.tolist()]}
    pq.write_table(pa.table({**columns, **lists}), tmp_path / "file.parquet")
    order = np.argsort(event)
    with hepnos.open("memory:", databases=dict.fromkeys(("subruns", "events", "products"), databases)) as store:
        dataset = store.root.ensure("d")
        hepnos.load_parquet(dataset, tmp_path / "file.parquet")
        hepnos.export_parquet(dataset, tmp_path / "out.parquet", batch_events=7)
        out, arrays = ak.from_parquet(tmp_path / "out.parquet"), hepnos.to_awkward(dataset)
        table = dataset.load_table("file")
        raw = list(hepnos.load_products(dataset, "file", dataset.tables["file"].type))
        by_event = dataset.load_table("file", events=table.events[::-1])
        batches = [each["event"].tolist() for each in dataset.events().batches(8)]
        assert [number for each in batches for number in each] == event[order].tolist()
        assert [len(each) for each in batches] == [8] * 7 + [4]
        assert [each.number for each in dataset.events()] == event[order].tolist()
        for found in (out.event.to_list(), arrays.event.to_list(), table.events["event"].tolist()):
            assert found == event[order].tolist()
        assert [int.from_bytes(item[-8:], "big") for item, _ in raw] == event[order].tolist()
        assert by_event.rows.tolist() == table.rows.tolist()
        for found in (out.file.x[:, 0].to_list(), arrays.file.x[:, 0].to_list(), table.rows["x"].tolist()):
            assert found == columns["x"][order].tolist()
        assert out.hits.to_list() == arrays.hits.to_list() == [lists["hits"][at] for at in order]
