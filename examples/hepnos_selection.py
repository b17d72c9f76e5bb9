"""A job as HEPnOS's users run it: load NanoAOD files, select events in parallel, write what was selected back, plot a spectrum.

    python examples/hepnos_selection.py [--workers 2] [--plot mass.png] [FILE.root ...]

Without files it writes one itself: pairs of muons from Z bosons, among them events without a pair. The selection asks for two
muons of opposite charge; what is stored with each selected event is the mass of the pair.
"""

import argparse
import tempfile
from pathlib import Path

import awkward as ak
import numpy as np
import uproot

from keyplan.apps import hepnos
from keyplan.apps.hepnos.plots import plot_spectrum

MUON_COLUMNS = ("Muon_pt", "Muon_eta", "Muon_phi", "Muon_charge")
SELECTED = "mass"


def pair_mass(event, products):
    """Store the mass of the two hardest muons with the event, when their charges are opposite; return it and who it is of.

    Workers call this, each in its own process, once for every event.
    """
    muons = event.load("Muon", MUON_TYPE, source=products)
    if muons is None or len(muons) < 2:
        return event.numbers, None
    first, second = np.sort(muons, order="pt")[::-1][:2]
    if first["charge"] == second["charge"]:
        return event.numbers, None
    angles = np.cosh(float(first["eta"] - second["eta"])) - np.cos(float(first["phi"] - second["phi"]))
    mass = float(np.sqrt(2.0 * float(first["pt"]) * float(second["pt"]) * angles))
    event.store(SELECTED, mass)
    return event.numbers, mass


# Why in this order: NanoAOD sorts the columns so; the loader keeps a file's order, and the type's name has it.
MUON_TYPE = hepnos.vector([("eta", "f4"), ("phi", "f4"), ("pt", "f4"), ("charge", "i4")])


def write_sample(path, events=2_000):
    """Write a small file in NanoAOD's form: most events have a pair of muons near the Z boson's mass."""
    source = np.random.default_rng(11)
    count = source.choice([0, 1, 2, 3], events, p=[0.1, 0.2, 0.6, 0.1])
    mass = source.normal(91.2, 3.0, events)
    pt, eta, phi, charge = [], [], [], []
    for muons, each in zip(count, mass, strict=True):
        separation, azimuth, gap = source.normal(0.0, 0.7), source.uniform(-np.pi, np.pi), source.uniform(2.4, np.pi)
        hard = each / np.sqrt(2.0 * (np.cosh(separation) - np.cos(gap)))
        pt.append(np.array([hard, hard, 4.0][:muons], "f4"))
        eta.append(np.array([separation / 2, -separation / 2, 1.0][:muons], "f4"))
        phi.append(np.array([azimuth, azimuth - gap, 0.0][:muons], "f4"))
        charge.append(np.array([1, -1, 1][:muons], "i4"))
    members = {"eta": eta, "phi": phi, "pt": pt, "charge": charge}
    muons = ak.zip({name: ak.unflatten(np.concatenate(values), count) for name, values in members.items()})
    number = np.arange(1, events + 1)
    columns = {
        "run": np.full(events, 1, "u4"),
        "luminosityBlock": (1 + number // 100).astype("u4"),
        "event": number.astype("u8"),
        "Muon": muons,
    }
    with uproot.recreate(path) as file:
        tree = file.mktree(
            "Events", {name: each.type if name == "Muon" else each.dtype for name, each in columns.items()}
        )
        tree.extend(columns)


def select(url, files, workers):
    """Load the files, let workers select, and return the masses as the store then has them."""
    with hepnos.open(url, databases={"events": 2, "products": 2}) as store:
        dataset = store.root.ensure("cms/muons")
        for file in files:
            loaded = hepnos.load_root(dataset, file, columns=MUON_COLUMNS)
            print(f"{Path(file).name}: {loaded.events} events, {loaded.created} of them new")

        assert dataset.tables["Muon"].type == MUON_TYPE
        processor = hepnos.ParallelProcessor(store, workers=workers, piece_events=256, preload=[("Muon", MUON_TYPE)])
        seen = [numbers for numbers, _ in processor.map(dataset, pair_mass)]
        assert len(seen) == len(set(seen)) == dataset.events().count(), "an event was seen twice, or not at all"

        masses = [each.load(SELECTED, float) for each in dataset.events()]
        selected = [mass for mass in masses if mass is not None]
        print(f"{len(seen)} events, each seen once by {workers} workers; {len(selected)} selected")
        return selected


def main():
    """Run the job in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path, default=Path("mass.png"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = given.files
        if not files:
            files = [Path(folder) / "sample.root"]
            write_sample(files[0])
        masses = select(f"lmdb:{folder}/store", files, given.workers)
    title = "Pairs of muons of opposite charge"
    plot_spectrum(
        masses, given.plot, title=title, quantity="mass of the pair", unit="GeV", limits=(60.0, 120.0), bins=60
    )
    print(f"{given.plot.name}: the spectrum")


if __name__ == "__main__":  # Why: workers are started anew, and import this file for the function.
    main()
