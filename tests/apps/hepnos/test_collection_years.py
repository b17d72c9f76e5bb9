"""Collections of files of several years and forms: a column is nothing in the rows of events whose file has it not."""

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot

from keyplan.apps import hepnos
from keyplan.errors import InvalidInputError


def skim(path: Path, event: int, **columns: Any) -> Path:
    """Write one event in which each list is a table of its own, as skims by uproot have them."""
    numbers = {
        name: np.array([number], "u4") for name, number in (("run", 1), ("luminosityBlock", 7), ("event", event))
    }
    given: dict[str, Any] = {
        **numbers,
        **{name: ak.unflatten(np.asarray(each), [len(each)]) for name, each in columns.items()},
    }
    with uproot.recreate(path) as file:
        types = {name: getattr(each, "dtype", None) or each.type.content for name, each in given.items()}
        file.mktree("Events", types).extend(given)
    return path


def rows(**columns: list[Any]) -> list[Any]:
    """Return lists of columns, each with a list for each event, as lists of records."""
    whole: list[Any] = ak.zip({name: ak.Array(each) for name, each in columns.items()}, depth_limit=2).to_list()
    return whole


def test_files_of_several_years_with_a_table_for_each_column_are_read_as_their_union(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    years = {
        1: {"Muon_pt": [1.5, 2.5], "Muon_jetIdx": [0, 1], "Jet_pt": [9.0], "Jet_area": [0.5]},
        2: {"Muon_pt": [3.5], "Muon_jetIdx": [0], "Muon_tag": [7], "Jet_pt": [8.0]},
        3: {"Muon_pt": np.zeros(0), "Muon_jetIdx": np.zeros(0, int), "Jet_pt": [4.0], "Jet_area": [1.5]},
    }
    for event, columns in years.items():
        hepnos.load_root(dataset, skim(tmp_path / f"{event}.root", event, **columns))
    events = dataset.events()
    muons = events["Muon"]
    both = rows(tag=[[None, None], [7], []], pt=[[1.5, 2.5], [3.5], []])
    assert muons[["tag", "pt"]].to_list() == both
    assert "?" not in str(muons[["pt", "jetIdx"]].type)
    assert dataset.runs[1].subruns[7].events[1].load("Muon").tag.to_list() == [None, None]
    assert dataset.load_table("Muon").rows.tag.to_list() == [None, None, 7]
    assert dataset.load_table("Muon", columns=["pt", "tag"], missing=-1).rows.tag.to_list() == [-1, -1, 7]
    assert dataset.load_table("Muon", columns=["tag", "pt"], missing={"tag": 5}).rows.tag.to_list() == [5, 5, 7]
    with pytest.raises(InvalidInputError, match="event 1 7 1 has pt and no tag: choose events that have it"):
        dataset.load_table("Muon", columns=["pt", "tag"], missing="refuse")
    # Why these: the rows of the jets are counted in a column that an event has, and in one that it lacks.
    assert muons.matched_jet.pt.to_list() == [[9.0, None], [8.0], []]
    assert muons.matched_jet[["area", "pt"]].to_list() == [
        [{"area": 0.5, "pt": 9.0}, None],
        [{"area": None, "pt": 8.0}],
        [],
    ]
    assert events[:1]["Muon"].array(exclude=["tag"]).to_list() == rows(jetIdx=[[0, 1]], pt=[[1.5, 2.5]])


def test_rows_that_a_reference_goes_on_from_are_counted_in_the_column_that_says_where(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    both = {"GenPart_genPartIdxMother": [-1, 0], "GenPart_pdgId": [23, 13], "Muon_genPartIdx": [1], "Muon_pt": [1.0]}
    hepnos.load_root(dataset, skim(tmp_path / "1.root", 1, **both))
    hepnos.load_root(dataset, skim(tmp_path / "2.root", 2, **both, GenPart_eta=[0.5, 1.5]))
    muons = dataset.events()["Muon"]
    assert muons.matched_gen.parent.pdgId.to_list() == [[23], [23]]
    assert muons.matched_gen.parent.eta.to_list() == [[None], [0.5]]


def test_a_table_with_columns_and_tables_of_columns_are_one_collection(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    numbers = {"run": np.ones(2, int), "luminosityBlock": np.full(2, 7), "event": np.array([30, 10])}
    with uproot.recreate(tmp_path / "nano.root") as file:
        muon, jet = rows(pt=[[30.0, 31], []], jetIdx=[[1, -1], []]), rows(pt=[[300.0, 301], [100.0]])
        file["Events"] = {**numbers, "Muon": ak.Array(muon), "Jet": ak.Array(jet)}
    hepnos.load_root(dataset, tmp_path / "nano.root")
    hepnos.load_root(dataset, skim(tmp_path / "s.root", 15, Muon_pt=[5.5, 6.5], Muon_tag=[1, 2], Jet_pt=[7.5]))
    events = dataset.events()
    muons = events["Muon"]
    assert muons.pt.to_list() == [[], [5.5, 6.5], [30.0, 31]]
    assert muons[["pt", "tag"]].to_list() == rows(pt=[[], [5.5, 6.5], [30.0, 31]], tag=[[], [1, 2], [None, None]])
    assert muons.matched_jet.pt.to_list()[2] == [301.0, None]
    assert events["Jet"].pt.to_list() == [[100.0], [7.5], [300.0, 301]]
    dataset.store_table("Muon_pt", np.array([1.0]), run=[1], subrun=[7], event=[30])
    with pytest.raises(InvalidInputError, match="event 1 7 30 has it in Muon and Muon_pt: take one of the tables"):
        _ = dataset.events()["Muon"].pt
    dataset.store_table("Muon_tag", np.array([0.5]), run=[1], subrun=[7], event=[10])
    with pytest.raises(InvalidInputError, match=r"the value of its rows is float64 in .* and int64 in"):
        _ = dataset.events()["Muon"].tag


def test_a_collection_is_exported_as_the_tables_that_it_is_made_of(
    store: hepnos.DataStore, dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    columns = {"Muon_pt": [1.5, 2.5], "Muon_eta": [0.5, 1.0], "Muon_jetIdx": [0, 1], "Jet_pt": [9.0, 8.0]}
    hepnos.load_root(dataset, skim(tmp_path / "1.root", 1, **columns, MET_pt=[3.0], MET_phi=[0.5]))
    single = {"MET_pt": np.array([4.0]), "MET_phi": np.array([1.5]), "rho": np.array([7.0])}
    hepnos.load_root(dataset, single_values(tmp_path / "2.root", 2, **single))
    path = tmp_path / "muons.parquet"
    hepnos.export_parquet(dataset, path, ["Muon"])
    assert pq.read_schema(path).names[3:] == ["Muon_eta", "Muon_jetIdx", "Muon_pt"]
    again = store.root.ensure("again")
    hepnos.load_parquet(again, path)
    events = dataset.events()[:1]
    assert again.events()[:1]["Muon"].array().to_list() == events["Muon"].array().to_list() != []
    chosen = {"columns": {"Muon": ["pt", "j*"]}, "exclude": {"Muon": ["pt"]}}
    assert ak.fields(hepnos.to_awkward(dataset, ["Muon", "Jet_pt"], **chosen))[3:] == ["Jet_pt", "Muon_jetIdx"]
    assert ak.fields(hepnos.to_awkward(dataset, ["Muon", "Muon_pt"]))[3:] == ["Muon_pt", "Muon_eta", "Muon_jetIdx"]
    both = hepnos.to_awkward(dataset, ["MET"])
    assert set(ak.fields(both)[3:]) == {"MET_phi", "MET_pt", "Events"}
    assert both.MET_pt.to_list() == [[3.0], None]
    assert both.Events.to_list() == [[{"MET_pt": None, "MET_phi": None}], [{"MET_pt": 4.0, "MET_phi": 1.5}]]
    with pytest.raises(hepnos.MissingError, match=r"no table and no Collection of this name.*keyplan hepnos tables"):
        hepnos.export_parquet(dataset, tmp_path / "no.parquet", ["Muonn"])
    with pytest.raises(InvalidInputError, match="it has no column mass"):
        hepnos.export_parquet(dataset, tmp_path / "no.parquet", ["Muon"], columns={"Muon": ["mass"]})
    assert not (tmp_path / "no.parquet").exists()


def single_values(path: Path, event: int, **columns: Any) -> Path:
    with uproot.recreate(path) as file:
        numbers = (("run", 1), ("luminosityBlock", 7), ("event", event))
        lists = {"Muon_eta": ak.Array([[0.25]])}
        given: dict[str, Any] = {**{name: np.array([number]) for name, number in numbers}, **columns, **lists}
        types = {name: getattr(each, "dtype", None) or each.type.content for name, each in given.items()}
        file.mktree("Events", types).extend(given)
    return path
