"""HEPnOS: ROOT files loaded, in processor time, against uproot that reads the same columns of the same file."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, Final

import awkward as ak
import numpy as np
import uproot

from benchmarks.extent import Extent
from benchmarks.measure import Result, Work, compared
from keyplan.apps import hepnos

__all__ = ["measure"]

_NANOAOD: Final = Path(__file__).parents[3] / "shared" / "data" / "hepnos" / "nano_dy.root"
_TABLES: Final = ("Electron", "Jet", "Muon", "Photon", "Tau")
_COLUMNS: Final = 30
_MEAN: Final = 3
_AIM: Final = 0.5


def measure(extent: Extent) -> Iterator[Result]:
    """Many events of few columns, and, where it is there, a file of CMS with few events and 1,499 columns."""
    folder = Path(extent.stands.folder) / "hepnos-files"
    folder.mkdir()
    try:
        made = folder / "made.root"
        _make(made, extent.operations(10_000))
        for path, name in (
            (made, f"{len(_TABLES)} tables of {_COLUMNS}"),
            (_NANOAOD, "NanoAOD, 1,499 columns"),
        ):
            if not path.exists():
                continue
            with hepnos.open(f"lmdb:{folder}/store-{path.stem}?durability=none") as store:
                yield compared(
                    "hepnos-files",
                    name,
                    against="uproot",
                    subject=_load(store, path),
                    comparator=_read(path),
                    operations=1,
                    rounds=extent.rounds,
                    aim=_AIM,
                    clocks=(process_time, process_time),
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(path: Path, events: int) -> None:
    """Write a file of lists, with the numbers of a generator that begins the same each time."""
    random = np.random.default_rng(5)
    columns: dict[str, Any] = {
        "run": np.full(events, 1, np.uint32),
        "luminosityBlock": np.arange(events, dtype=np.uint32) // 100,
        "event": np.arange(events, dtype=np.uint64),
    }
    for name in _TABLES:
        counts = random.poisson(_MEAN, events)
        flat = {f"c{at}": random.random(counts.sum(), np.float32) for at in range(_COLUMNS)}
        columns[name] = ak.zip({column: ak.unflatten(values, counts) for column, values in flat.items()})
    module: Any = uproot  # Why: its types know no trees in files.
    with module.recreate(path) as file:
        file["Events"] = columns


def _load(store: hepnos.DataStore, path: Path) -> Work:
    numbers = count(1)

    def load(operations: int) -> None:
        for _ in range(operations):
            hepnos.load_root(store.make_dataset(f"d{next(numbers)}"), path)

    return load


def _read(path: Path) -> Work:
    module: Any = uproot

    def read(operations: int) -> None:
        for _ in range(operations):
            with module.open({path: None}) as file:
                file["Events"].arrays(library="ak", how=dict)

    return read
