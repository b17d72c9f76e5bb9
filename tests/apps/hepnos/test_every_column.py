"""Every column of every file comes back as uproot reads it, or is left out by name for a reason that stands here."""

import os
from pathlib import Path
from typing import Any

import awkward as ak
import pytest
import uproot
from uproot.deserialization import DeserializationError
from uproot.interpretation.identify import UnknownInterpretation

from keyplan.apps import hepnos
from keyplan.apps.hepnos import root_files
from keyplan.apps.hepnos.columns import EVENT_COLUMNS
from keyplan.apps.hepnos.entries import ENTRY, number_columns
from keyplan.apps.hepnos.table_notes import chosen_columns
from keyplan.errors import InvalidInputError
from tests.apps.hepnos.stored_columns import stored_columns

SAMPLES = os.environ.get("KEYPLAN_COFFEA_SAMPLES", "")
"""The folder tests/samples of coffea's sources, which have more files than are kept here."""

SHARED = ("nano_dy.root", "pduneana.root")
"""Files that are kept here."""

OPTIONS: dict[str, dict[str, Any]] = {
    "PHYSLITE_": {
        "tree": "CollectionTree",
        "run": "EventInfoAuxDyn.runNumber",
        "subrun": "EventInfoAuxDyn.lumiBlock",
        "event": "EventInfoAuxDyn.eventNumber",
    },
    "edm4hep": {"tree": "events", "run": "EventHeader/EventHeader.runNumber", "subrun": 0, "event": ENTRY},
    "edm4hep_ILD_": {
        "tree": "events",
        "run": "EventHeader/EventHeader.runNumber",
        "subrun": 0,
        "event": "EventHeader/EventHeader.eventNumber",
    },
    "p8_ee_": {"tree": "events", "run": "EventHeader/EventHeader.runNumber", "subrun": 0, "event": ENTRY},
    "test_FCC_": {"tree": "events", "run": 1, "subrun": 0, "event": ENTRY},
    "nano_dy_SpecialTree_rntuple": {"tree": "NotEvents"},
    "delphes": {"tree": "Delphes", "run": "Event/Event.ProcessID", "subrun": 0, "event": "Event/Event.Number"},
    "treemaker": {"tree": "PreSelection"},
    "pduneana": {"tree": "pduneana/beamana"},
    "missing_luminosityBlock": {"subrun": 0},
}
"""What is said of files whose names begin so, the longest beginning first: of others their tree Events is loaded."""

WITHOUT_EVENTS = {
    "SFttbar_2016_ele_pt.root": "histograms",
    "testSF2d.histo.root": "histograms",
    "bad_delphes.root": "cut off behind its head",
    "PR554_SkipReadOnlyDirectory.root": "folders",
}
"""Files that are no files of events, and why."""

REASONS = {
    "unknown": "uproot has no interpretation of its bytes",
    "unreadable": "uproot cannot read its entries, as of objects that are written member by member",
    "union": "its entries are of several types",
    "label": "its entries are lists, a table of their own, and no label holds its #",
}
"""The kinds of columns that a load may leave out."""


def reason_of(column: str, branch: Any) -> str | None:
    """Return which of REASONS a column is left out for; None for one that is to be loaded."""
    if isinstance(getattr(branch, "interpretation", None), UnknownInterpretation):
        return "unknown"
    try:
        entries = branch.array(library="ak")
    except (NotImplementedError, ValueError, TypeError, DeserializationError):
        return "unreadable"
    if "union[" in str(entries.type):
        return "union"
    return "label" if "#" in column and entries.ndim > 1 else None


def file_columns(tree: Any) -> list[str]:
    if not hasattr(tree, "branches"):
        return list(tree.keys(recursive=False))
    return [path for path in dict.fromkeys(tree.keys(full_paths=True)) if not tree[path].branches]


def same(one: Any, other: Any) -> bool:
    is_equal = ak.array_equal(one, other, equal_nan=True, check_parameters=False, dtype_exact=True)
    # Why listed: of lists without elements awkward compares types that uproot makes up.
    return bool(is_equal) or repr(ak.to_list(one)) == repr(ak.to_list(other))


def numbers_in(tree: Any, name: str | int) -> list[int]:
    if isinstance(name, int):
        return [name] * int(tree.num_entries)
    if name == ENTRY:
        return list(range(tree.num_entries))
    found: list[int] = ak.ravel(tree[name].array()).to_list()
    return found


def compare(dataset: hepnos.DataSet, path: Path) -> int:
    """Load a file and compare it, column by column; return how many columns were compared."""
    begin = max((each for each in OPTIONS if path.name.startswith(each)), key=len, default="")
    options = dict(OPTIONS.get(begin, {}))
    tree = options.pop("tree", "Events")
    loaded = hepnos.load_root(dataset, path, tree=tree, **options)
    stored = stored_columns(dataset, tree.rpartition("/")[2])
    whole: Any = {str(path): None}
    opened: Any = uproot.open(whole)
    with opened as file:
        of_file: Any = file[tree]
        columns = file_columns(of_file)
        given = {name: options.get(name) for name in EVENT_COLUMNS.names or ()}
        names = number_columns(path.name, [*columns, *of_file.keys()], given["run"], given["subrun"], given["event"])
        in_file = list(zip(*(numbers_in(of_file, name) for name in names), strict=True))
        position = {key: at for at, key in enumerate(in_file)}
        events = dataset.events().to_numpy().tolist()
        assert events == sorted(in_file)
        order = [position[event] for event in events]
        assert set(loaded.skipped) <= set(columns)
        for column in loaded.skipped:
            assert reason_of(column, of_file[column]) in REASONS, f"{column} is left out, and uproot reads it"
        columns = [column for column in columns if column not in {*loaded.skipped, *names}]
        read = of_file.arrays(columns, library="ak", how=dict if hasattr(of_file, "branches") else None)
        counters = {f"n{label}": label for label in loaded.labels}
        for column in columns:
            values = read[column][order]
            if column in counters and column not in stored:
                assert ak.num(stored[counters[column]], axis=1).to_list() == values.to_list(), column
                continue
            assert column in stored, f"{column} is neither stored nor named as left out"
            assert same(stored[column], values), f"{column} has other values"
    return len(columns)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_every_column_of_a_file_is_what_uproot_reads(shared: Path, dataset: hepnos.DataSet, name: str) -> None:
    assert compare(dataset, shared / "data" / "hepnos" / name) > 200


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in Path(SAMPLES).glob("*.root")) if SAMPLES else [""])
def test_every_column_of_coffeas_samples_is_what_uproot_reads(dataset: hepnos.DataSet, name: str) -> None:
    if not SAMPLES:
        pytest.skip("they are in coffea's sources: KEYPLAN_COFFEA_SAMPLES names their folder tests/samples")
    if name in WITHOUT_EVENTS:
        with pytest.raises(InvalidInputError):
            hepnos.load_root(dataset, Path(SAMPLES) / name)
        return
    assert compare(dataset, Path(SAMPLES) / name) > 0


@pytest.mark.slow
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "unnamed"])
def test_a_column_that_is_left_out_without_a_reason_is_noticed(
    shared: Path,
    dataset: hepnos.DataSet,
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,  # noqa: FBT001
) -> None:
    type_of, chosen = root_files._type_of, chosen_columns

    def without_type(branch: Any, known: Any) -> Any:
        return None if branch.name == "Muon_pt" else type_of(branch, known)

    def not_chosen(*arguments: Any, **options: Any) -> list[str]:
        return [name for name in chosen(*arguments, **options) if name != "Muon_pt"]

    if is_named:
        monkeypatch.setattr(root_files, "_type_of", without_type)
    else:
        monkeypatch.setattr("keyplan.apps.hepnos.root_files.chosen_columns", not_chosen)
    with pytest.raises(AssertionError, match="^Muon_pt is left out, and uproot" if is_named else "^Muon_pt is neither"):
        compare(dataset, shared / "data" / "hepnos" / "nano_dy.root")
