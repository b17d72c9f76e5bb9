"""A loader of a file that is killed in the middle, and begun again, ends in the rows of the file, once each."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos import loading

LOADER = """
import os, signal, sys
from keyplan.apps import hepnos
from keyplan.apps.hepnos import loading

loading.GROUP_BYTES = 400
url, path, parts = sys.argv[1], sys.argv[2], int(sys.argv[3])
told = []

def die(done, total):
    told.append(done)  # 0 before the first part
    if len(told) == parts:
        os.kill(os.getpid(), signal.SIGKILL)

with hepnos.open(url) as store:
    hepnos.load_hdf5(store.root.ensure("d"), path, progress=die)
"""


@pytest.mark.slow
def test_a_loader_that_is_killed_and_begun_again_ends_in_the_rows_of_the_file(tmp_path: Path) -> None:
    event = np.random.default_rng(5).integers(0, 100, 1_000)
    path, url = tmp_path / "x_r1_s1.h5", f"lmdb:{tmp_path}/store"
    with h5py.File(path, "w") as file:
        file["t/evt"], file["t/n"] = event, np.arange(1_000, dtype="f8")
    codes = [
        subprocess.run([sys.executable, "-c", LOADER, url, str(path), parts], check=False).returncode
        for parts in ("3", "5", "0")
    ]
    assert codes == [-9, -9, 0]
    with hepnos.open(url, create=False) as store:
        dataset = store["d"]
        table = dataset.load_table("t", hepnos.vector([("n", "f8")]))
        assert dataset.events().to_numpy()["event"].tolist() == sorted(set(event.tolist()))
        expected = np.argsort(event, kind="stable").astype("f8")
        assert table.rows["n"].tolist() == expected.tolist()


def test_each_table_of_a_file_tells_when_it_begins_and_how_many_of_its_events_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "GROUP_BYTES", 3 * 8)
    path = tmp_path / "x_r1_s1.h5"
    with h5py.File(path, "w") as file:
        for table, rows in (("a", 7), ("b", 2)):
            file[f"{table}/evt"] = np.arange(rows) // 2
            file[f"{table}/x"] = np.arange(rows, dtype="f8")
    told: list[tuple[int, int]] = []
    with hepnos.open("memory:") as store:
        hepnos.load_hdf5(store.root.ensure("d"), path, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 4), (1, 4), (3, 4), (4, 4), (0, 1), (1, 1)]
