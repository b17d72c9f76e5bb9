"""Events in coffea and dask-awkward: what their processors take, read as it is computed with. Neither comes with `dev`."""

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from keyplan.apps import hepnos
from keyplan.apps.hepnos import analysis
from keyplan.apps.hepnos.databases import Address
from keyplan.errors import InvalidInputError
from tests.apps.hepnos.test_collections import Reads, labels_of, nanoaod, reads

__all__ = ["nanoaod", "reads"]  # the fixtures

# Why: coffea warns of each reference of NanoAOD that a file has not, and its packages of one another.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def coffea() -> Any:
    return pytest.importorskip("coffea.nanoevents", reason="coffea is not installed: pip install 'keyplan[analysis]'")


def dask_awkward() -> Any:
    return pytest.importorskip("dask_awkward", reason="dask-awkward is not installed: pip install 'keyplan[analysis]'")


def nano(path: Path) -> Path:
    """Write two events with all that coffea's vectors need."""
    lists = {name: [[1.0, 2.0], []] for name in ("pt", "eta", "phi", "mass")}
    muons = ak.zip(
        {**{name: ak.Array(each) for name, each in lists.items()}, "charge": [[1, -1], []], "jetIdx": [[0, -1], []]}
    )
    numbers = {"run": np.array([1, 1]), "luminosityBlock": np.array([2, 2]), "event": np.array([9, 8])}
    columns: dict[str, Any] = {
        **numbers,
        "Muon": muons,
        "Jet": ak.zip({name: ak.Array([[5.0], [6.0, 7.0]]) for name in lists}),
    }
    columns |= {
        "MET_pt": np.array([0.5, 0.25]),
        "MET_phi": np.array([0.1, 0.2]),
        "LHEPdfWeight": ak.Array([[1.0, 2.0], []]),
    }
    with uproot.recreate(path) as file:
        file.mktree(
            "Events", {name: getattr(each, "dtype", None) or each.type for name, each in columns.items()}
        ).extend(columns)
    return path


def test_branches_are_those_of_the_file_and_read_one_by_one(nanoaod: hepnos.DataSet, reads: Reads) -> None:
    branches = hepnos.Branches(nanoaod.events())
    columns = {"Muon_pt", "Muon_jetIdx", "Muon_genPartIdx", "Jet_pt", "Jet_muonIdx1", "Jet_muonIdx2", "GenPart_pdgId"}
    singles = {"GenPart_genPartIdxMother", "MET_pt", "MET_phi", "genWeight", "LHEPdfWeight"}
    numbers = {"run", "luminosityBlock", "event", "nMuon", "nJet", "nGenPart", "nLHEPdfWeight"}
    assert set(branches) == columns | singles | numbers
    assert len(list(branches)) == len(branches) == len(columns | singles | numbers)
    assert reads.keys == []
    assert branches["event"].to_list() == [10, 20, 30]
    assert branches["Muon_pt"].to_list() == [[], [20.0], [30.0, 31.0]]
    assert branches["nMuon"].to_list() == [0, 1, 2]
    assert labels_of(reads.keys) == {b"Muon"}
    nanoaod.create_run(2).create_subrun(1).create_event(5)
    later = hepnos.Branches(nanoaod.events())
    assert later["Muon_pt"].to_list() == [[], [20.0], [30.0, 31.0], []]
    with pytest.raises(InvalidInputError, match="event 2 1 5 has no pt: choose events that have it, or leave it out"):
        later["MET_pt"]
    with pytest.raises(hepnos.MissingError):
        later["Tau_pt"]


def test_forms_hang_on_types_alone(dataset: hepnos.DataSet) -> None:
    rows = {"pt": [1.5, 2.5], "name": ["a", ""], "hits": [[1], []], "best": [None, 3], "at": [{"x": [1]}, {"x": []}]}
    dataset.store_table("Track", rows, run=[1, 1], subrun=[1, 1], event=[2, 1], create=True)
    events = dataset.events()
    whole, none = hepnos.Branches(events), hepnos.Branches(events[:0])
    assert set(whole) == {"run", "subrun", "event", *(f"Track/Track.{name}" for name in rows)}
    for name, branch in none.items():
        assert branch.layout.form == whole[name].layout.form, name
        assert not any(form in str(branch.layout.form) for form in ("IndexedArray", "ByteMasked"))


def test_a_package_that_is_not_there_is_told(nanoaod: hepnos.DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(analysis, "import_module", lacking)
    for call, package in ((hepnos.to_nano_events, "coffea"), (hepnos.to_dask_awkward, "dask-awkward")):
        with pytest.raises(
            InvalidInputError, match=f"the package '{package}', which is not installed: pip install {package}"
        ):
            call(nanoaod.events())


def test_coffeas_events_read_what_a_processor_computes_with(
    dataset: hepnos.DataSet, tmp_path: Path, reads: Reads
) -> None:
    package = coffea()
    hepnos.load_root(dataset, nano(tmp_path / "nano.root"))
    reads.keys.clear()
    events = hepnos.to_nano_events(dataset.events(), metadata={"dataset": "dimuon"})
    assert reads.keys == []
    assert events.metadata["dataset"] == "dimuon"
    assert events.event.to_list() == [8, 9]
    assert events.Muon.pt.to_list() == [[], [1.0, 2.0]]
    assert labels_of(reads.keys) == {b"Muon"}
    assert events.Muon.matched_jet.pt.to_list() == [[], [5.0, None]]
    hardest = events[1:].Muon[:, 0]
    assert (hardest.charge.to_list(), hardest.energy.to_list()) == ([1], [pytest.approx(np.hypot(np.cosh(1.0), 1.0))])
    assert labels_of(reads.keys) == {b"Muon", b"Jet"}
    whole = package.NanoEventsFactory.from_root({str(tmp_path / "nano.root"): "Events"}, mode="virtual").events()
    assert events.MET.pt.to_list() == whole.MET.pt[::-1].to_list()
    assert events.Muon.energy.to_list() == whole.Muon.energy[::-1].to_list()


class Hardest:
    """A processor as coffea's users write them."""

    def process(self, events: Any) -> dict[str, Any]:
        return {"sum": float(ak.sum(events.Muon.pt)), "events": len(events), "of": events.metadata["dataset"]}


def test_a_processor_goes_over_a_data_set_in_pieces(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    coffea()
    hepnos.load_root(dataset, nano(tmp_path / "nano.root"))
    events = dataset.events()
    pieces = [
        hepnos.to_nano_events(events[begin : begin + 1], metadata={"dataset": "d"}) for begin in range(len(events))
    ]
    assert [Hardest().process(piece) for piece in pieces] == [
        {"sum": 0.0, "events": 1, "of": "d"},
        {"sum": 3.0, "events": 1, "of": "d"},
    ]


def test_dask_awkward_reads_the_columns_that_it_needs(nanoaod: hepnos.DataSet, reads: Reads) -> None:
    package = dask_awkward()
    lazy = hepnos.to_dask_awkward(nanoaod.events(), partition_events=2)
    assert (lazy.npartitions, lazy.divisions, reads.keys) == (2, (0, 2, 3), [])
    assert set(package.necessary_columns(lazy.Muon.pt).popitem()[1]) == {"Muon.pt"}
    assert lazy.Muon.pt.compute(scheduler="synchronous").to_list() == [[], [20.0], [30.0, 31.0]]
    assert labels_of(reads.keys) == {b"Muon"}
    assert len(reads.keys) == 3
    chosen = lazy[package.num(lazy.Muon.pt) > 0]
    assert chosen.MET.pt.compute(scheduler="synchronous").to_list() == [2.5, 3.5]
    assert chosen.event.compute(scheduler="threads").to_list() == [20, 30]
    assert labels_of(reads.keys) == {b"Muon", b"Events"}
    few = hepnos.to_dask_awkward(nanoaod.events()[1:], ["Jet", "genWeight"])
    assert few.fields == ["run", "subrun", "event", "Jet", "genWeight"]
    assert few.compute(scheduler="synchronous").to_list()[1]["Jet"][0]["pt"] == 300.0
    assert few.genWeight.compute(scheduler="synchronous").to_list() == [2.0, -1.0]
    names = {"name": ["a", "b", ""], "hits": [[1], [2, 3], []], "of": [{"x": [1.5]}, {"x": []}, {"x": [2.5]}]}
    nanoaod.store_table("Track", names, run=[1] * 3, subrun=[7] * 3, event=[10, 10, 30])
    tracks = hepnos.to_dask_awkward(nanoaod.events(), ["Track"], partition_events=1).Track
    assert tracks.hits.compute(scheduler="synchronous").to_list() == [[[1], [2, 3]], [], [[]]]
    assert tracks.of.x.compute(scheduler="synchronous").to_list() == [[[1.5], []], [], [[2.5]]]
    with pytest.raises(InvalidInputError, match="a partition has at least one event"):
        hepnos.to_dask_awkward(nanoaod.events(), partition_events=0)


def test_other_processes_open_the_store_by_its_address(tmp_path: Path) -> None:
    dask_awkward()
    with hepnos.open(f"lmdb:{tmp_path}/store") as store:
        dataset = store.root.ensure("d")
        dataset.store_table("Muon", {"pt": [1.5, 2.5]}, run=[1, 1], subrun=[1, 1], event=[1, 2], create=True)
        lazy = hepnos.to_dask_awkward(dataset.events(), partition_events=1)
        assert lazy.Muon.pt.compute(scheduler="processes", num_workers=1).to_list() == [[1.5], [2.5]]


def test_a_worker_opens_a_store_once_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Address] = []

    def open_at(address: Address) -> object:
        opened.append(address)
        return object()

    monkeypatch.setattr(analysis, "_opened", {})
    monkeypatch.setattr(analysis, "open_at", open_at)
    own, other = (Address("http://localhost:1", token=token) for token in "ab")
    assert len({id(analysis._opened_at(each)) for each in (own, other, own)}) == 2
    assert opened == [own, other]
