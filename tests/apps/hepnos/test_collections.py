"""Collections: what belongs together and what refers to what, in files of each known kind; lazily, and of any of the events."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from keyplan.apps import hepnos
from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.podio import collection_id
from keyplan.errors import InvalidInputError


def rntuple(path: Path, name: str = "Events", **columns: Any) -> Path:
    with uproot.recreate(path) as file:
        file[name] = {
            field: each if isinstance(each, np.ndarray) else ak.Array(each) for field, each in columns.items()
        }
    return path


def rows(**columns: list[Any]) -> list[Any]:
    """Return lists of columns, each with a list for each event, as lists of records."""
    whole: list[Any] = ak.zip({name: ak.Array(each) for name, each in columns.items()}, depth_limit=2).to_list()
    return whole


def nano(path: Path) -> Path:
    """Write three events, not in order, in the form of NanoAOD."""
    numbers: dict[str, Any] = {
        "run": np.array([1, 1, 1]),
        "luminosityBlock": np.array([7, 7, 7]),
        "event": np.array([30, 10, 20]),
    }
    return rntuple(
        path,
        **numbers,
        Muon=rows(pt=[[30.0, 31], [], [20.0]], jetIdx=[[1, -1], [], [0]], genPartIdx=[[2, 9], [], [0]]),
        Jet=rows(pt=[[300.0, 301], [100.0], [200.0]], muonIdx1=[[0, -1], [-1], [0]], muonIdx2=[[1, -1], [-1], [-1]]),
        GenPart=rows(pdgId=[[23, 13, -13], [], [22]], genPartIdxMother=[[-1, 0, 0], [], [-1]]),
        MET_pt=np.array([3.5, 1.5, 2.5]),
        MET_phi=np.array([0.3, 0.1, 0.2]),
        genWeight=np.array([-1.0, 1.0, 2.0]),
        LHEPdfWeight=[[3.0], [], [2.0, 2.5]],
    )


@pytest.fixture
def nanoaod(dataset: hepnos.DataSet, tmp_path: Path) -> hepnos.DataSet:
    hepnos.load_root(dataset, nano(tmp_path / "nano.root"))
    return dataset


def test_nanoaod_is_recognised_with_its_collections_and_cross_references(nanoaod: hepnos.DataSet) -> None:
    events = nanoaod.events()
    found = events.collections()
    assert found.schema.name == "NanoAOD"
    assert set(found) == {"Muon", "Jet", "GenPart", "MET", "genWeight", "LHEPdfWeight"}
    muons = events["Muon"]
    assert muons.pt.to_list() == [[], [20.0], [30.0, 31.0]]
    assert str(muons.pt.type) == "3 * var * float64"  # no option, where every event has a product
    assert muons[["pt", "jetIdx"]].to_list()[1:] == [
        [{"pt": 20, "jetIdx": 0}],
        [{"pt": 30, "jetIdx": 1}, {"pt": 31, "jetIdx": -1}],
    ]
    assert muons[["jetIdx", "pt"]].fields == ["jetIdx", "pt"]
    assert muons[["pt", "*Idx", "pt"]].fields == ["pt", "jetIdx", "genPartIdx"]
    assert muons.matched_jet.pt.to_list() == [[], [200.0], [301.0, None]]
    assert muons.matched_gen.pdgId.to_list() == [[], [22], [-13, None]]  # there is no ninth
    assert muons.matched_gen.parent.pdgId.to_list() == [[], [None], [23, None]]
    assert muons.matched_jet.matched_muons.pt.to_list() == [[], [[20.0, None]], [[None, None], None]]
    assert events["Jet"].matched_muons[["pt"]].to_list()[2] == [[{"pt": 30.0}, {"pt": 31.0}], [None, None]]
    assert events["MET"].array().to_list()[0] == {"pt": 1.5, "phi": 0.1}
    assert events["MET"].pt.to_list() == [1.5, 2.5, 3.5]
    assert events["genWeight"].array().to_list() == [1.0, 2.0, -1.0]
    assert events["LHEPdfWeight"].array().to_list() == [[], [2.0, 2.5], [3.0]]
    assert muons.references == ("matched_gen", "matched_jet")
    assert "matched_jet" in dir(muons)
    with pytest.raises(AttributeError, match="no column or reference ptt; it has pt, jetIdx"):
        _ = muons.ptt
    with pytest.raises(InvalidInputError, match="it has no column ptt"):
        muons[["ptt"]]
    with pytest.raises(hepnos.MissingError):
        events["Tau"]
    with pytest.raises(InvalidInputError, match="there is none called nano"):
        len(events.collections("nano"))
    assert set(events.collections("plain")) == {
        "Muon",
        "Jet",
        "GenPart",
        "MET_pt",
        "MET_phi",
        "genWeight",
        "LHEPdfWeight",
    }


def test_some_of_the_events_are_chosen_by_slices_masks_and_positions(nanoaod: hepnos.DataSet) -> None:
    events = nanoaod.events()
    assert len(events) == 3
    assert [event.number for event in events[1:]] == [20, 30]
    assert events[-1] == nanoaod.runs[1].subruns[7].events[30]
    muons = events["Muon"]
    has_any = ak.num(muons.pt) > 0
    assert muons[has_any].matched_jet.pt.to_list() == [[200.0], [301.0, None]]
    assert muons.matched_jet[has_any].pt.to_list() == [[200.0], [301.0, None]]
    assert events[np.array([2, 0])]["Muon"].pt.to_list() == [[30.0, 31.0], []]
    assert muons[1].to_list() == [{"pt": 20.0, "jetIdx": 0, "genPartIdx": 0}]
    assert (len(muons[:2]), len(events[:2]), len(list(muons))) == (2, 2, 3)
    for outside in (3, -4):
        with pytest.raises(IndexError):
            muons[outside]
        with pytest.raises(IndexError):
            events[outside]
    with pytest.raises(InvalidInputError, match="all of its columns are excluded"):
        muons.array(exclude=["*"])
    assert (len(muons[[]]), len(events[[]]), len(events[[True, False, True]])) == (0, 0, 2)
    nanoaod.create_run(2).create_subrun(1).create_event(5)  # which has no product of any table
    latest = nanoaod.events()["Muon"]
    assert latest.pt.to_list() == [[], [20.0], [30.0, 31.0], None]
    assert latest[ak.num(latest.pt) < 2].pt.to_list() == [[], [20.0]]  # what is nothing in a mask chooses none
    assert nanoaod.events()[ak.num(latest.pt) < 2].to_numpy()["event"].tolist() == [10, 20]
    with pytest.raises(InvalidInputError, match="some of the positions are nothing"):
        latest[ak.Array([1, None])]
    assert len(latest[[True, None, False, None]]) == 1
    rows_of_events = (latest.pt > 20, ak.Array([[0], [1]]), (slice(None), 0), [[True], []], np.bool_(1), None, [latest])
    for key in rows_of_events:
        with pytest.raises(InvalidInputError, match="rows are chosen in the array of a column"):
            latest[key]
    for key in (["Muon", 1], np.array([1.0]), ak.Array([{"x": 1}])):
        with pytest.raises(InvalidInputError, match="no positions of events, and no mask"):
            nanoaod.events()[key]
    subrun = nanoaod.runs[1].subruns[7]
    assert (len(subrun.events), len(nanoaod.runs), len(nanoaod.runs[1].subruns)) == (3, 2, 1)
    assert [event.number for event in subrun.events[10:30]] == [10, 20]
    assert [event.number for event in subrun.events[20:]] == [20, 30]
    assert bool(nanoaod.runs[1].subruns.handle(8).events) is True  # a view is one, however many it has
    with pytest.raises(InvalidInputError, match="without a step"):
        subrun.events[::2]


def test_a_label_alone_is_enough_where_it_is_unique(nanoaod: hepnos.DataSet) -> None:
    event = nanoaod.runs[1].subruns[7].events[30]
    assert event.load("Muon")["pt"].tolist() == [30.0, 31.0]
    assert event.load("MET")["pt"] == 3.5  # a collection that is no table
    assert event.load("nothing") is None
    assert event.load("nothing", default=7) == 7
    assert nanoaod.load_table("Muon", columns=["pt"]).rows["pt"].tolist() == [20.0, 30.0, 31.0]
    event.store("Muon", 1.5)
    with pytest.raises(InvalidInputError, match=r"several types with this label: name one of float64, vector<struct"):
        event.load("Muon")
    run = nanoaod.runs[1]
    run.store("cal", {"a": 1})
    assert run.load("cal") == {"a": 1}
    nanoaod.store("note", "text")
    assert nanoaod.load("note") == "text"
    with pytest.raises(hepnos.MissingError):
        run.load("nothing", missing="raise")
    wide = {f"a_long_name_of_a_column_{number}": np.arange(1.0) for number in range(20)}
    nanoaod.store_table("wide", wide, run=[1], subrun=[7], event=[30])
    assert "@" in nanoaod.tables["wide"].type.name
    assert len(event.load("wide").dtype.names) == 20  # whose columns stand in its note alone


class Reads:
    """The keys and the bytes of products that are read."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.bytes = 0

    def add(self, keys: list[bytes], values: list[bytes | None]) -> None:
        self.keys += [key[40:] for key in keys]
        self.bytes += sum(len(value) for value in values if value is not None)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count what is read of the events' products."""
    counted = Reads()
    snapshot_of = Databases.snapshot

    class Counting:
        def __init__(self, snapshot: Any) -> None:
            self.snapshot = snapshot

        def values(self, keys: list[bytes]) -> Any:
            values = list(self.snapshot.values(keys))
            counted.add(keys, values)
            return values

        def __getattr__(self, name: str) -> Any:
            return getattr(self.snapshot, name)

    @contextmanager
    def snapshot(databases: Databases, *given: Any) -> Iterator[Any]:
        with snapshot_of(databases, *given) as found:
            yield Counting(found)

    monkeypatch.setattr(Databases, "snapshot", snapshot)
    return counted


def labels_of(keys: list[bytes]) -> set[bytes]:
    return {key.partition(b"#")[0] for key in keys}


def test_a_column_is_read_when_it_is_asked_for_and_its_table_alone(nanoaod: hepnos.DataSet, reads: Reads) -> None:
    events = nanoaod.events()[:2]
    muons = events["Muon"]
    jets = muons.matched_jet
    repr(muons), muons.fields, muons.schema, jets.fields, muons.references, len(muons)
    assert reads.keys == []
    assert muons.pt.to_list() == [[], [20.0]]
    assert (labels_of(reads.keys), len(reads.keys)) == ({b"Muon"}, 2)
    assert reads.bytes == 8 + 8 + 24  # the counts of two products, and one row of three numbers
    muons.pt  # noqa: B018  # it is kept
    assert len(reads.keys) == 2
    jets.pt  # noqa: B018
    assert labels_of(reads.keys) == {b"Muon", b"Jet"}
    assert len(reads.keys) == 6
    nanoaod.store_table("text", {"name": ["a" * 1000], "n": [1]}, run=[1], subrun=[7], event=[20])
    assert nanoaod.load_table("Jet", columns=["pt"]).rows.dtype.names == ("pt",)


def test_skims_with_a_table_for_each_column_are_collections_all_the_same(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    with uproot.recreate(tmp_path / "skim.root") as file:
        counts = {"nMuon": np.array([2, 0]), "genWeight": np.array([1.0, 2.0])}
        lists = {
            "Muon_pt": ak.Array([[1.5, 2.5], []]),
            "Muon_jetIdx": ak.Array([[0, -1], []]),
            "Jet_pt": ak.Array([[9.0], [8.0]]),
        }
        numbers = {"run": np.ones(2, "u4"), "luminosityBlock": np.ones(2, "u4"), "event": np.arange(2)}
        columns = {**numbers, **lists, **counts}
        # Why so: each list has a counter of its own, as skims by uproot have.
        file.mktree(
            "Events", {name: getattr(each, "dtype", None) or each.type for name, each in columns.items()}
        ).extend(columns)
    hepnos.load_root(dataset, tmp_path / "skim.root")
    assert {"Muon_pt", "Muon_jetIdx", "Jet_pt"} < set(dataset.tables)
    events = dataset.events()
    assert set(events.collections()) == {"Muon", "Jet", "genWeight"}
    assert events["Muon"].array().to_list() == [[{"jetIdx": 0, "pt": 1.5}, {"jetIdx": -1, "pt": 2.5}], []]
    assert events["Muon"].matched_jet.pt.to_list() == [[9.0, None], []]
    found = dataset.load_table("Muon", columns=["pt"])
    assert (found.offsets.tolist(), found.rows.pt.to_list()) == ([0, 2, 2], [1.5, 2.5])
    assert dataset.runs[1].subruns[1].events[0].load("Muon").pt.to_list() == [1.5, 2.5]
    assert dataset.runs[1].subruns[1].events[0].load("Muon", "vector<float32>") is None
    other = {"Muon_eta": np.array([1.0])}
    dataset.store_table("Muon_eta", other["Muon_eta"], run=[1], subrun=[1], event=[0])
    with pytest.raises(
        InvalidInputError, match=r"eta and .* have lists of two lengths in event 1 1 0: take them one by one"
    ):
        dataset.events()["Muon"].array()
    assert dataset.events()["Muon"].eta.to_list() == [[1.0], None]  # an event that has no product of it
    dataset.store_table("Jet_eta", np.array([7.0, 8.0]), run=[1, 1], subrun=[1, 1], event=[1, 1])
    with pytest.raises(InvalidInputError, match="have lists of two lengths"):
        dataset.events()["Muon"].matched_jet.array()


def test_references_are_of_each_rows_event_whatever_form_they_have(dataset: hepnos.DataSet) -> None:
    numbers = {"run": [1, 1], "subrun": [1, 1], "event": [1, 2]}
    dataset.store_table("Jet", {"pt": [1.0, 2.0, 3.0]}, run=[1] * 3, subrun=[1] * 3, event=[1, 1, 2], create=True)
    # As many rows as each has numbers, so that rows and numbers might be taken for one another.
    dataset.store_table("Muon", {"pt": [5.0, 6.0], "jetIdx": np.array([[0, 1], [0, 1]])}, **numbers)
    muons = dataset.events()["Muon"]
    assert muons.matched_jet.pt.to_list() == [[[1.0, 2.0]], [[3.0, None]]]


def test_slices_that_begin_before_their_event_lead_nowhere(dataset: hepnos.DataSet) -> None:
    own = {"run": [1, 1], "subrun": [1, 1], "event": [1, 2]}
    dataset.store_table("Hits", {"index": [0], "collectionID": [1]}, run=[1], subrun=[1], event=[1], create=True)
    dataset.store_table("_Tracks_hits", np.array([5, 6]), **own, create=True)
    begins = ak.Array([{"hits_begin": 0, "hits_end": 1}, {"hits_begin": -1, "hits_end": 1}])
    dataset.store_table("Tracks", begins, **own)
    tracks = dataset.events().collections("edm4hep")["Tracks"]
    with pytest.raises(InvalidInputError, match="hits_begin leads beyond the rows of _Tracks_hits"):
        tracks.hits.array()
    none = ak.Array([{"hits_begin": None, "hits_end": None}])[[0]]
    dataset.store_table("Tracks", none, run=[1], subrun=[1], event=[3], create=True)
    chosen = dataset.events()[[2, 0]].collections("edm4hep")
    assert chosen["Tracks"].hits.array().to_list() == [[[]], [[5]]]


NUMBERS: dict[str, Any] = {"run": "head.run", "subrun": 1, "event": "head.event"}


def heads(*events: int) -> list[dict[str, int]]:
    return [{"run": 1, "event": event} for event in events]


def test_physlite_links_lead_to_the_collections_that_they_name(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = rntuple(
        tmp_path / "physlite.root",
        "CollectionTree",
        head=heads(1, 2),
        **{
            "AnalysisMuonsAuxDyn:pt": [[10.0, 11.0], [20.0]],
            "AnalysisMuonsAuxDyn:inDetTrackParticleLink": rows(m_persKey=[[77, 0], [77]], m_persIndex=[[1, 0], [0]]),
            "AnalysisMuonsAuxDyn:truthParticleLink": rows(
                m_persKey=[[342174277, 614719239], [5]], m_persIndex=[[0, 0], [0]]
            ),
            "InDetTrackParticlesAuxDyn:d0": [[0.1, 0.2], [0.3]],
            "TruthMuonsAuxDyn:pdgId": [[13], []],
            "TruthBosonAuxDyn:pdgId": [[23], [24]],
            "TruthBosonAuxDyn:childLinks": [
                [[{"m_persKey": 342174277, "m_persIndex": 0}]],
                [[{"m_persKey": 342174277, "m_persIndex": 0}, {"m_persKey": 614719239, "m_persIndex": 0}]],
            ],
            "EventInfoAuxDyn:mu": np.array([30.0, 40.0]),
        },
    )
    hepnos.load_root(dataset, path, **NUMBERS)
    events = dataset.events()
    assert events.collections().schema.name == "PHYSLITE"
    assert {"Muons", "InDetTrackParticles", "TruthMuons", "TruthBoson", "EventInfo"} < set(events.collections())
    muons = events["Muons"]
    assert muons.pt.to_list() == [[10, 11], [20]]
    assert muons.inDetTrackParticle.d0.to_list() == [[0.2, None], [0.3]]
    assert muons.truthParticle.targets == ("TruthMuons", "TruthBoson")
    assert muons.truthParticle.pdgId.to_list() == [[13, 23], [None]]
    assert events["TruthBoson"].truth_childs.pdgId.to_list() == [[[13]], [[None, 24]]]
    assert muons.inDetTrackParticleLink.m_persKey.to_list() == [[77, 0], [77]]
    assert events["EventInfo"].mu.to_list() == [30, 40]
    branches, link = hepnos.Branches(events), "AnalysisMuonsAuxDyn:inDetTrackParticleLink"
    assert branches["AnalysisMuonsAuxDyn:pt"].to_list() == [[10, 11], [20]]
    assert branches[f"{link}/{link}.m_persKey"].to_list() == [[77, 0], [77]]
    assert branches[f"{link}/{link}.m_persIndex"].to_list() == [[1, 0], [0]]
    assert muons[["pt"]].to_list()[1] == [{"pt": 20}]
    assert dataset.load_table("Muons", columns=["pt"]).rows.pt.to_list() == [10, 11, 20]


def edm4hep(path: Path, **ids: int) -> Path:
    mc, other = ids.get("mc", collection_id("MCParticles")), ids.get("other", collection_id("Others"))
    return rntuple(
        path,
        "events",
        head=heads(1, 2),
        MCParticles=rows(PDG=[[11, 22], [13]], parents_begin=[[0, 0], [0]], parents_end=[[0, 2], [0]]),
        _MCParticles_parents=rows(index=[[0, 1], []], collectionID=[[mc, other], []]),
        Others=rows(PDG=[[7, 8], []], weight=[[0.5, 0.6], []]),
        Links=rows(weight=[[1.0, 2.0], [3.0]]),
        _Links_from=rows(index=[[1, -1], [0]], collectionID=[[mc, 0], [mc]]),
        Tracks=rows(chi2=[[1.0], []], hits_begin=[[1], []], hits_end=[[3], []]),
        _Tracks_hits=[[5, 6, 7], []],
        Skimmed_objIdx=rows(index=[[1], [0]], collectionID=[[mc], [mc]]),
    )


def test_edm4hep_object_ids_lead_to_collections_by_podios_numbers(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    hepnos.load_root(dataset, edm4hep(tmp_path / "edm.root"), **NUMBERS)
    events = dataset.events()
    assert events.collections().schema.name == "edm4hep"
    particles = events["MCParticles"]
    assert particles.references == ("parents",)
    assert set(particles.parents.targets) == {"MCParticles", "Others"}
    assert particles.parents.PDG.to_list() == [[[], [11, 8]], [[]]]
    assert particles.parents.fields == ("PDG",)  # what all targets have
    assert events["Links"]["from"].PDG.to_list() == [[22, None], [13]]
    assert events["Tracks"].hits.array().to_list() == [[[6, 7]], []]
    assert events["Skimmed_objIdx"].objects.PDG.to_list() == [[22], [13]]
    assert events["Links"][1:]["from"].PDG.to_list() == [[13]]
    # As podio_metadata of edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root has it.
    assert collection_id("BuildUpVertices") == 4244895184


def test_files_before_podio_1_are_told(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    hepnos.load_root(dataset, edm4hep(tmp_path / "old.root", mc=3, other=4), **NUMBERS)
    with pytest.raises(InvalidInputError, match="its collectionID 3 is none of podio 1"):
        _ = dataset.events()["MCParticles"].parents["PDG"]


def test_delphes_has_single_rows_as_values_and_particles_parents(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    path = rntuple(
        tmp_path / "delphes.root",
        "Delphes",
        head=heads(1, 2),
        Particle=rows(
            fUniqueID=[[1, 2, 3], [4]], PID=[[23, 13, -13], [22]], M1=[[-1, 0, 0], [-1]], M2=[[-1, -1, -1], [-1]]
        ),
        MissingET=rows(fUniqueID=[[1], [2]], MET=[[5.5], [6.5]]),
        Jet=rows(fUniqueID=[[], [1]], PT=[[], [40.0]]),
        Jet_size=np.array([0, 1]),
        MissingET_size=np.array([1, 1]),
    )
    hepnos.load_root(dataset, path, **NUMBERS)
    events = dataset.events()
    assert (events.collections().schema.name, set(events.collections())) == (
        "Delphes",
        {"Particle", "MissingET", "Jet", "head"},
    )
    assert events["MissingET"].MET.to_list() == [5.5, 6.5]
    assert events["Particle"].parents.PID.to_list() == [[[None, None], [23, None], [23, None]], [[None, None]]]
    dataset.store_table("MissingET", {"fUniqueID": [1, 2], "MET": [1.0, 2.0]}, run=[1, 1], subrun=[1, 1], event=[2, 2])
    with pytest.raises(
        InvalidInputError, match="event 1 1 2 has several, where each has one: take its table, MissingET"
    ):
        dataset.events()["MissingET"]["MET"]
    with pytest.raises(InvalidInputError, match="event 1 1 2 has several"):
        dataset.events()["MissingET"].filled(["MET"])


def test_treemaker_has_vectors_columns_of_their_own_and_lists_by_counts(
    dataset: hepnos.DataSet, tmp_path: Path
) -> None:
    vectors = {f"fCoordinates.{name}": [[1.0, 2.0], [3.0]] for name in ("fPt", "fEta", "fPhi", "fE")}
    path = rntuple(
        tmp_path / "treemaker.root",
        "PreSelection",
        RunNum=np.array([1, 1]),
        LumiBlockNum=np.array([1, 1]),
        EvtNum=np.array([1, 2]),
        JetsAK8=rows(**vectors),
        JetsAK8_girth=[[0.1, 0.2], [0.3]],
        JetsAK8_subjetsCounts=[[2, 0], [1]],
        JetsAK8_subjets=rows(**{"fCoordinates.fPt": [[7.0, 8.0], [9.0]]}),
        JetsAK8_subjets_ptD=[[0.7, 0.8], [0.9]],
        GenParticles=rows(**{"fCoordinates.fPt": [[4.0, 5.0], []]}),
        GenParticles_ParentIdx=[[-1, 0], []],
        MT=np.array([1.0, 2.0]),
        MT_AK8=np.array([3.0, 4.0]),
    )
    hepnos.load_root(dataset, path)
    events = dataset.events()
    found = events.collections()
    assert found.schema.name == "TreeMaker"
    assert set(found) == {"JetsAK8", "JetsAK8_subjets", "GenParticles", "MT", "MT_AK8"}
    jets = events["JetsAK8"]
    assert set(jets.fields) == {"pt", "eta", "phi", "energy", "girth", "subjetsCounts"}
    assert jets[["pt", "girth"]].to_list() == [
        [{"pt": 1, "girth": 0.1}, {"pt": 2, "girth": 0.2}],
        [{"pt": 3, "girth": 0.3}],
    ]
    assert jets.subjets.ptD.to_list() == [[[0.7, 0.8], []], [[0.9]]]
    assert events["GenParticles"].parent.pt.to_list() == [[None, 4.0], []]
    assert found["MT_AK8"].array().to_list() == [3.0, 4.0]


def test_arrays_come_back_as_they_were_stored(dataset: hepnos.DataSet) -> None:
    own = {"run": [1, 1, 1], "subrun": [1, 1, 1], "event": [1, 1, 2]}
    given = ak.Array(
        [
            {"pt": 1.5, "name": "é", "hits": [1, 2], "best": None, "at": {"x": 1, "y": [True]}},
            {"pt": 2.5, "name": "", "hits": [], "best": 3, "at": {"x": 2, "y": []}},
            {"pt": 3.5, "name": "c", "hits": [3], "best": None, "at": {"x": 3, "y": [False]}},
        ]
    )
    dataset.store_table("Track", given, create=True, **own)
    events = dataset.events()
    assert events.collections().schema.name == "plain"
    back = events["Track"].array()
    assert back.to_list() == [given.to_list()[:2], given.to_list()[2:]]
    assert str(back.type.content.content) == str(given.type.content)
    assert events["Track"].at.x.to_list() == [[1, 2], [3]]
    again = dataset.datastore.root.ensure("again") if isinstance(dataset.datastore, hepnos.DataStore) else dataset
    again.store_table("Track", ak.flatten(back), create=True, **own)
    assert again.events()["Track"].array().to_list() == back.to_list()


def test_collections_of_nothing_have_their_columns(dataset: hepnos.DataSet, tmp_path: Path) -> None:
    assert len(dataset.events().collections()) == 0
    hepnos.load_root(dataset, nano(tmp_path / "nano.root"))
    none = dataset.events()[:0]["Muon"]
    assert str(none.pt.type) == "0 * var * float64"
    assert str(none.matched_jet.pt.type) == "0 * var * ?float64"
    assert none.matched_jet.matched_muons.pt.to_list() == []
