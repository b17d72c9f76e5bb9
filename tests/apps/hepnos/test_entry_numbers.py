"""Files that lack numbers of runs, subruns or events, or have one for all: what is said, and what helps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from typer.testing import CliRunner

from keyplan.apps import hepnos
from keyplan.apps.hepnos import entry_files, loading
from keyplan.apps.hepnos.bulk import create_items
from keyplan.apps.hepnos.cli import app
from keyplan.errors import CorruptionError, InvalidInputError

HITS = [[1.5, 2.5], [], [3.5]]

Load = Callable[..., hepnos.Loaded]


def root(path: Path, **numbers: list[int]) -> Path:
    columns: dict[str, Any] = {name: np.array(each) for name, each in numbers.items()}
    with uproot.recreate(path) as file:
        file.mktree("Events", {**dict.fromkeys(columns, np.int64), "hits": "var * float64"}).extend(
            {**columns, "hits": ak.Array(HITS)}
        )
    return path


def parquet(path: Path, **numbers: list[int]) -> Path:
    pq.write_table(pa.table({**numbers, "hits": HITS}), path)
    return path


FORMATS = pytest.mark.parametrize(
    ("load", "write"), [(hepnos.load_root, root), (hepnos.load_parquet, parquet)], ids=["root", "parquet"]
)


@FORMATS
def test_files_that_begin_and_end_alike_are_told_apart(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, write: Callable[..., Path]
) -> None:
    """As large, with columns that are constant at both ends, and no statistics: what Parquet has of a file is the same."""
    size = 100_000
    for name, middle in (("a", 1), ("b", 2)):
        column = np.concatenate([np.zeros(size, "i8"), np.full(size, middle), np.zeros(size, "i8")])
        if write is root:
            with uproot.recreate(tmp_path / name, compression=None) as file:
                file["Events"] = {"x": column}
        else:
            plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
            pq.write_table(pa.table({"x": column}), tmp_path / name, **plain)
    assert (tmp_path / "a").stat().st_size == (tmp_path / "b").stat().st_size
    numbers: dict[str, Any] = {"run": 1, "subrun": 0, "event": "Entry$"}
    assert load(dataset, tmp_path / "a", **numbers).created == 3 * size
    with pytest.raises(InvalidInputError, match=r"the events of subrun 1 0 are the entries of .*a"):
        load(dataset, tmp_path / "b", **numbers)


@FORMATS
def test_entries_that_all_say_one_event_are_numbered_by_entry(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, write: Callable[..., Path]
) -> None:
    path = write(tmp_path / "same", run=[7] * 3, subrun=[1] * 3, event=[42] * 3)
    with pytest.raises(
        InvalidInputError, match=r"stands in several entries.*number events by entry, --event 'Entry\$'"
    ):
        load(dataset, path)
    assert not len(dataset.events())
    created = [load(dataset, path, label="own", event="Entry$").created for _ in range(2)]
    assert created == [3, 0]
    assert dataset.events().to_numpy().tolist() == [(7, 1, 0), (7, 1, 1), (7, 1, 2)]
    found = hepnos.to_awkward(dataset)
    assert found.hits.to_list() == HITS
    assert found.own.event.to_list() == [[42]] * 3  # a column as any other, then


@FORMATS
def test_one_number_stands_for_the_runs_and_subruns_that_a_file_has_not(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, write: Callable[..., Path]
) -> None:
    path = write(tmp_path / "bare")
    for_all, by_entry = (
        "or one number for all entries, as --run 0 --subrun 0",
        "or number events by entry, --event 'Entry$'",
    )
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, f"it has no column run, luminosityBlock, event; name those it has, {for_all}, {by_entry}"),
        ({"event": "Entry$"}, f"it has no column run, luminosityBlock; name those it has, {for_all}"),
        ({"run": 3, "subrun": 0}, f"it has no column event; name those it has, {by_entry}"),
    ]
    for given, told in cases:
        with pytest.raises(InvalidInputError) as refused:
            load(dataset, path, **given)
        assert refused.value.facts["problem"] == told
    load(dataset, path, run=3, subrun=0, event="Entry$")
    assert dataset.events().to_numpy().tolist() == [(3, 0, 0), (3, 0, 1), (3, 0, 2)]
    with pytest.raises(hepnos.InvalidNumberError, match="-1 is no number of a run"):
        load(dataset, path, run=-1, subrun=0, event="Entry$")


@FORMATS
def test_the_one_column_that_is_missing_is_told_with_what_helps(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, write: Callable[..., Path]
) -> None:
    path = write(tmp_path / "nano", run=[1] * 3, event=[3, 1, 2])
    with pytest.raises(
        InvalidInputError, match=r"no column luminosityBlock; name those it has, or one .* as --subrun 0"
    ):
        load(dataset, path)
    treemaker = write(tmp_path / "tree", RunNum=[1] * 3, EvtNum=[3, 1, 2])
    with pytest.raises(InvalidInputError, match="no column LumiBlockNum; name"):
        load(dataset, treemaker)
    assert load(dataset, path, subrun=0).created == 3


@FORMATS
def test_entries_of_another_file_join_no_events_unless_it_is_said(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, write: Callable[..., Path]
) -> None:
    by_entry: dict[str, Any] = {"run": 1, "subrun": 0, "event": "Entry$"}
    first, second = write(tmp_path / "a", x=[1, 2, 3]), write(tmp_path / "b", y=[1, 2, 4])
    load(dataset, first, **by_entry, label="a", columns=["x", "hits"])
    before = [each.label for each in dataset.runs[1].subruns[0].events[0].products()]
    told = "the events of subrun 1 0 are the entries of .*; give this file another subrun, --subrun, or say .*--same-events"
    for options in ({"label": "b"}, {"label": "b", "replace": True}, {"columns": ["y"]}):
        with pytest.raises(InvalidInputError, match=told):
            load(dataset, second, **by_entry, **options)
    own = write(tmp_path / "own", run=[1] * 3, subrun=[0] * 3, event=[0, 1, 7])
    with pytest.raises(
        InvalidInputError, match=r"the events of subrun 1 0 are .*; load it into another data set, or say"
    ):
        load(dataset, own, label="own")
    with h5py.File(tmp_path / "x_r1_s0.h5", "w") as file:
        file["t/evt"], file["t/z"] = [0], [1.5]
    with pytest.raises(InvalidInputError, match="load it into another data set, or say"):
        hepnos.load_hdf5(dataset, tmp_path / "x_r1_s0.h5")
    assert [each.label for each in dataset.runs[1].subruns[0].events[0].products()] == before
    assert dataset.events().count() == 3
    moved = first.rename(tmp_path / "moved")  # which is the same file, wherever it lies
    assert load(dataset, moved, **by_entry, label="more", columns=["x"]).created == 0
    assert load(dataset, second, **by_entry | {"subrun": 1}, label="b").created == 3
    assert load(dataset, second, **by_entry, label="b", columns=["y"], same_events=True).created == 0
    assert hepnos.to_awkward(dataset).b.y.to_list()[:3] == [[1], [2], [4]]


@FORMATS
def test_entries_join_no_events_that_have_numbers_of_their_own(
    dataset: hepnos.DataSet, tmp_path: Path, load: Load, write: Callable[..., Path]
) -> None:
    own, other = (
        write(tmp_path / "own", run=[1] * 3, subrun=[0] * 3, event=[0, 1, 7]),
        write(tmp_path / "b", y=[1, 2, 3]),
    )
    load(dataset, own, label="own")
    by_entry: dict[str, Any] = {"run": 1, "event": "Entry$", "label": "b", "columns": ["y"]}
    with pytest.raises(InvalidInputError, match="subrun 1 0 has events that are not numbered by entry; give this file"):
        load(dataset, other, subrun=0, **by_entry)
    assert "b" not in dataset.tables
    assert load(dataset, other, subrun=0, same_events=True, **by_entry).created == 1
    assert load(dataset, own, label="own").created == 0
    dataset.runs[1].subruns[0].delete()
    assert load(dataset, other, subrun=0, **by_entry).created == 3
    note = dataset.runs[1].subruns[0].product_id("numbered-by-entry", dict)
    dataset.datastore.write(hepnos.Kind.PRODUCT, note.raw, b"[]", "overwrite")
    with pytest.raises(CorruptionError, match="1 0 numbered-by-entry"):
        load(dataset, other, subrun=0, **by_entry)


def test_many_subruns_are_looked_at_together(tmp_path: Path) -> None:
    own = parquet(tmp_path / "own", run=[1] * 3, subrun=[2, 4, 6], event=[0, 1, 7])
    among = parquet(tmp_path / "among", subrun=[1, 3, 5])
    meets = parquet(tmp_path / "meets", subrun=[0, 4, 7])
    by_entry: dict[str, Any] = {"run": 1, "subrun": "subrun", "event": "Entry$"}
    with hepnos.open("memory:", databases={"events": 3, "products": 2}) as store:
        dataset = store.root.ensure("d")
        hepnos.load_parquet(dataset, own)
        assert hepnos.load_parquet(dataset, among, **by_entry).created == 3
        with pytest.raises(InvalidInputError, match="subrun 1 4 has events that are not numbered by entry"):
            hepnos.load_parquet(dataset, meets, **by_entry)
        assert dataset.events().count() == 6
        assert hepnos.load_parquet(dataset, meets, **by_entry, same_events=True, label="m").created == 2
        labels = [{p.label for p in dataset.runs[1].subruns[at].products()} for at in (0, 1, 4)]
        assert labels == [{"numbered-by-entry"}, {"numbered-by-entry"}, set()]
        note = dataset.runs[1].subruns[1].load("numbered-by-entry")
        assert note == {"name": str(among), "digest": note["digest"]}


def test_of_two_files_that_are_loaded_at_once_one_is_refused(
    dataset: hepnos.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_entry: dict[str, Any] = {"run": 1, "subrun": 0, "event": "Entry$"}
    first, second = parquet(tmp_path / "a", x=[1, 2, 3]), parquet(tmp_path / "b", y=[1, 2, 3])

    def behind_the_other(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(f"{entry_files.__name__}.create_items", create_items)
        hepnos.load_parquet(dataset, second, label="b", **by_entry)
        return create_items(*given, **options)

    monkeypatch.setattr(f"{entry_files.__name__}.create_items", behind_the_other)
    with pytest.raises(InvalidInputError, match=r"are the entries of .*/b;"):
        hepnos.load_parquet(dataset, first, label="a", **by_entry)
    assert [*dataset.tables] == ["b", "hits"]
    own = parquet(tmp_path / "own", run=[1] * 3, subrun=[5] * 3, event=[0, 1, 7], x=[1, 2, 3])

    def beside_the_other(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(f"{loading.__name__}.create_items", create_items)
        hepnos.load_parquet(dataset, second, label="b", run=1, subrun=5, event="Entry$")
        return create_items(*given, **options)

    monkeypatch.setattr(f"{loading.__name__}.create_items", beside_the_other)
    with pytest.raises(InvalidInputError, match="the events of subrun 1 5 are the entries of"):
        hepnos.load_parquet(dataset, own, label="own", columns=["x"])


def test_the_command_numbers_events_by_entry(tmp_path: Path) -> None:
    path, url = root(tmp_path / "same.root", event=[42] * 3), f"lmdb:{tmp_path}/store?durability=none"
    words = ["load-root", str(path), "--into", "d", "--run", "5", "--subrun", "0"]
    refused = CliRunner().invoke(app, words, env={"KEYPLAN_STORE": url})
    assert (refused.exit_code, "--event 'Entry$'" in refused.stderr) == (5, True)
    answer = CliRunner().invoke(app, [*words, "--event", "Entry$"], env={"KEYPLAN_STORE": url})
    assert (answer.exit_code, answer.output) == (0, f"{path}:Events: 3 rows, 3 events, 3 of them new; hits, Events\n")
    with hepnos.open(url) as store:
        assert store["d"].events().to_numpy().tolist() == [(5, 0, 0), (5, 0, 1), (5, 0, 2)]
    other = root(tmp_path / "other.root", event=[42] * 3)
    told = CliRunner().invoke(
        app, [*words[:1], str(other), *words[2:], "--event", "Entry$"], env={"KEYPLAN_STORE": url}
    )
    assert (told.exit_code, "--same-events" in told.stderr) == (5, True)
    again = [
        *words[:1],
        str(other),
        *words[2:],
        "--event",
        "Entry$",
        "--same-events",
        "--label",
        "other",
        "-c",
        "event",
    ]
    assert CliRunner().invoke(app, again, env={"KEYPLAN_STORE": url}).exit_code == 0
