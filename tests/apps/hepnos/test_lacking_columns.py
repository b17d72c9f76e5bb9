"""`--columns` over several files: one without such columns is loaded without them; a pattern of no file is refused."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from typer.testing import CliRunner

from keyplan.apps import hepnos
from keyplan.apps.hepnos.cli import app


def parquet(path: Path, event: int, columns: dict[str, float]) -> None:
    pq.write_table(
        pa.table({"run": [1], "subrun": [1], "event": [event], **{name: [each] for name, each in columns.items()}}),
        path,
    )


def root(path: Path, event: int, columns: dict[str, float]) -> None:
    numbers = {name: np.array([number]) for name, number in (("run", 1), ("subrun", 1), ("event", event))}
    with uproot.recreate(path) as file:
        file["t"] = {**numbers, **{name: np.array([each]) for name, each in columns.items()}}


def h5(path: Path, event: int, columns: dict[str, float]) -> None:
    with h5py.File(path, "w") as file:
        for name, each in {"run": 1, "subrun": 1, "evt": event, **columns}.items():
            file[f"t/{name}"] = [each]


WRITERS: dict[str, Any] = {"load-root": root, "load-h5": h5, "load-parquet": parquet}


@pytest.mark.parametrize("command", WRITERS)
def test_a_file_without_the_columns_that_others_have_is_loaded_and_told(tmp_path: Path, command: str) -> None:
    url, names = f"lmdb:{tmp_path}/store?durability=none", ["none", "met", "jet"]
    paths = [tmp_path / f"{name}_r1_s1" for name in names]
    given = [{"other": 1.0}, {"MET_pt": 2.0, "other": 1.0, "HLT_x": 1.0}, {"Jet_pt": 3.0}]
    for event, (path, columns) in enumerate(zip(paths, given, strict=True), start=1):
        WRITERS[command](path, event, columns)
    words = [command, *map(str, paths), "--into", "d", "-c", "MET_*", "-c", "Jet_*", "-c", "HLT_*", "-x", "HLT_x"]
    label = ["--label", "t"]
    mistaken = CliRunner().invoke(app, [*words, *label, "-c", "Muon_*"], env={"KEYPLAN_STORE": url})
    assert mistaken.exit_code == 5
    assert mistaken.stderr.count("it has no column ") == 3
    assert mistaken.stderr.count("Muon_*") >= 3
    with hepnos.open(url) as store:
        assert not len(store["d"].events())
    answer = CliRunner().invoke(app, [*words, *label, "--json"], env={"KEYPLAN_STORE": url})
    assert answer.exit_code == 0, answer.output
    found = {
        json.loads(line)["source"].rpartition("/")[2][:4].strip("_"): json.loads(line)
        for line in answer.stdout.splitlines()
    }
    assert {name: each["lacking"] for name, each in found.items()} == {
        "none": ["MET_*", "Jet_*", "HLT_*", "HLT_x"],
        "met": ["Jet_*"],
        "jet": ["MET_*", "HLT_*", "HLT_x"],
    }
    assert [found[name]["events"] for name in names] == [1, 1, 1]
    again = CliRunner().invoke(app, [*words, *label], env={"KEYPLAN_STORE": url})
    assert "it has no column MET_*, HLT_*, HLT_x, as others of the files have" in again.stdout
    with hepnos.open(url) as store:
        dataset = store["d"]
        assert dataset.events().to_numpy()["event"].tolist() == [1, 2, 3]
        (table,) = dataset.tables.values()
        assert set(table.schema) == {"MET_pt", "Jet_pt"}
        rows = table.load(missing=-1.0)
        assert rows.events["event"].tolist() == [2, 3]
        assert (rows.rows["MET_pt"].tolist(), rows.rows["Jet_pt"].tolist()) == ([2.0, -1.0], [-1.0, 3.0])
    alone = CliRunner().invoke(app, [command, str(paths[0]), "--into", "d", "-c", "MET_*"], env={"KEYPLAN_STORE": url})
    assert (alone.exit_code, "it has no column MET_*" in alone.stderr) == (5, True)
