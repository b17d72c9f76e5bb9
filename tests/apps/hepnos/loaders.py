"""Loaders that are killed and restarted at random, until all have ended: the short form is a test, the long one a script.

Each loads its share of the input as a file-at-a-time program would, from the start again after it was killed.
"""

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from keyplan.apps import hepnos

__all__ = ["compare", "load_share", "run_loaders"]

_KILL_SECONDS: Final = (0.1, 0.6)
"""Why: about as long as a loader takes to start, and to load a part of its share on a machine that does nothing else."""


def input_of(share: int, events: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Return run, subrun and event of a loader's input; shares overlap, events repeat, and nothing is in order."""
    source = np.random.default_rng(share)
    numbers = source.permutation(np.arange(share * events // 2, share * events // 2 + events))
    numbers = np.concatenate([numbers, numbers[: events // 20]])
    return numbers // 5_000, numbers // 500 % 10, numbers


def load_share(url: str, share: int, events: int) -> None:
    """Load a share: events with their parents, and a product of each event, in parts."""
    with hepnos.open(url) as store:
        dataset = store.root.ensure("loaded")
        for part in np.array_split(np.arange(len(input_of(share, events)[0])), 20):
            run, subrun, event = (column[part] for column in input_of(share, events))
            dataset.create_items(run, subrun, event, operation_keys=500)
            dataset.store_table("number", event.astype("f8"), run=run, subrun=subrun, event=event, operation_keys=500)


def run_loaders(url: str, *, loaders: int, events: int, kills: int, seed: int) -> int:
    """Run the loaders until all have ended, killing one of them at random now and then. Return how many were killed."""
    chance = random.Random(seed)
    running = {share: _start(url, share, events) for share in range(loaders)}
    killed = 0
    while running:
        share = chance.choice(sorted(running))
        process = running[share]
        try:
            code = process.wait(chance.uniform(*_KILL_SECONDS))
        except subprocess.TimeoutExpired:
            if killed < kills:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
                running[share] = _start(url, share, events)
            continue
        if code != 0:
            raise AssertionError(f"loader {share} ended with {code}")
        del running[share]
    return killed


def _start(url: str, share: int, events: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.apps.hepnos.loaders", url, str(share), str(events)]
    return subprocess.Popen(command, cwd=Path(__file__).resolve().parents[3])


def compare(url: str, *, loaders: int, events: int) -> int:
    """Assert that the store has exactly the events of the input, once each, with their products; return how many."""
    expected = np.unique(np.concatenate([input_of(share, events)[2] for share in range(loaders)]))
    with hepnos.open(url, create=False) as store:
        dataset = store["loaded"]
        found = dataset.events().to_numpy()
        assert np.array_equal(np.sort(found["event"]), expected), "other events, or some of them twice"
        assert np.array_equal(found["run"], found["event"] // 5_000)
        assert np.array_equal(found["subrun"], found["event"] // 500 % 10)
        table = dataset.load_table("number", hepnos.vector("f8"))
        assert np.array_equal(np.sort(table.events["event"]), expected), "products of other events"
        assert np.array_equal(table.rows[table.offsets[:-1]], table.events["event"].astype("f8"))
        assert [run.number for run in dataset.runs] == np.unique(expected // 5_000).tolist()
    return len(expected)


def main(arguments: Sequence[str]) -> None:
    """Be one loader."""
    url, share, events = arguments
    load_share(url, int(share), int(events))


if __name__ == "__main__":
    main(sys.argv[1:])
