"""Files that lack numbers of runs, subruns or events, or have one for all: what is said, and what helps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from typer.testing import CliRunner

from keyplan.apps import hepnos
from keyplan.apps.hepnos.cli import app
from keyplan.errors import InvalidInputError

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


def test_the_command_numbers_events_by_entry(tmp_path: Path) -> None:
    path, url = root(tmp_path / "same.root", event=[42] * 3), f"lmdb:{tmp_path}/store?durability=none"
    words = ["load-root", str(path), "--into", "d", "--run", "5", "--subrun", "0"]
    refused = CliRunner().invoke(app, words, env={"KEYPLAN_STORE": url})
    assert (refused.exit_code, "--event 'Entry$'" in refused.stderr) == (5, True)
    answer = CliRunner().invoke(app, [*words, "--event", "Entry$"], env={"KEYPLAN_STORE": url})
    assert (answer.exit_code, answer.output) == (0, f"{path}:Events: 3 rows, 3 events, 3 of them new; hits, Events\n")
    with hepnos.open(url) as store:
        assert store["d"].events().to_numpy().tolist() == [(5, 0, 0), (5, 0, 1), (5, 0, 2)]
