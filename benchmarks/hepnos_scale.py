"""Twenty million events: the lumi sections of CMS's certification file of 2017 as subruns, a hundred events in each.

One process loads, is killed in the middle, and begins again; then the events are gone through, compared with the input, and
handed to workers. scripts/hepnos-scale runs it. Prints what each part took, and the most memory that each process had.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from keyplan.apps import hepnos

__all__ = ["main"]

_DATABASES: Final = {"subruns": 2, "events": 4, "products": 2}
_PART_EVENTS: Final = 1_000_000
_KILLED_AT: Final = 0.45
"""The share of the input after which the loader is killed."""


def sections(path: Path) -> npt.NDArray[Any]:
    """Return run and lumi section of every certified section, in order."""
    certified = json.loads(path.read_text())
    rows = [
        (int(run), section)
        for run, ranges in certified.items()
        for first, last in ranges
        for section in range(first, last + 1)
    ]
    return np.unique(np.array(rows, np.uint64), axis=0)


def parts(path: Path, events_each: int) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Yield run, subrun and event of parts of the input. Event numbers go on within a run, as an experiment's do."""
    found = sections(path)
    number_in_run = np.arange(len(found)) - np.searchsorted(found[:, 0], found[:, 0])
    at_once = max(1, _PART_EVENTS // events_each)
    for begin in range(0, len(found), at_once):
        own = slice(begin, begin + at_once)
        first = np.repeat(number_in_run[own] * events_each + 1, events_each)
        event = first + np.tile(np.arange(events_each), len(found[own]))
        yield np.repeat(found[own, 0], events_each), np.repeat(found[own, 1], events_each), event


def load(url: str, path: Path, events_each: int, done: Any, peak: Any) -> None:
    """Load the parts, with an energy for the first event of each section; a part that was finished before is passed over."""
    with hepnos.open(url, databases=_DATABASES) as store:
        dataset = store.root.ensure("cms/2017")
        for number, (run, subrun, event) in enumerate(parts(path, events_each)):
            # Why a mark on the run: it is durable after what it says, and one look passes over a part.
            mark = dataset.runs.handle(int(run[0]))
            if mark.load(f"loaded/{number}", bool) is None:
                dataset.create_items(run, subrun, event)
                first = slice(None, None, events_each)
                energy = event[first].astype("f4")
                dataset.store_table("energy", energy, run=run[first], subrun=subrun[first], event=event[first])
                mark.store(f"loaded/{number}", value=True)
            done.value = number + 1
            peak.value = max(peak.value, own_memory())


def own_memory() -> int:
    """Return the bytes of memory that this process has for itself now; pages of the databases' files are the system's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def count_events(batch: hepnos.EventBatch) -> tuple[int, int, int]:
    """Return what a worker saw: how many events, the sum of their numbers, its memory."""
    return len(batch), int(batch.events["event"].sum()), own_memory()


def main() -> None:
    """Run it, and print a line for each part."""
    parser = argparse.ArgumentParser(prog="scripts/hepnos-scale", description=__doc__)
    parser.add_argument("certification", type=Path, help="the certification file, JSON")
    parser.add_argument("--events", type=int, default=100, help="in each lumi section")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the store is made, and removed")
    given = parser.parse_args()
    folder = mkdtemp(prefix="hepnos-scale-", dir=given.folder)
    try:
        _run(f"lmdb:{folder}/store", given.certification, given.events, given.workers)
        size = sum(each.stat().st_blocks * 512 for each in Path(folder).rglob("*") if each.is_file())
        print(f"on disk: {size / 1e9:.2f} GB")
    finally:
        shutil.rmtree(folder)


def _run(url: str, path: Path, events_each: int, workers: int) -> None:
    total = len(sections(path)) * events_each
    print(f"input: {total // events_each:,} lumi sections, {total:,} events")
    _load_and_kill(url, path, events_each, total)
    with hepnos.open(url, create=False) as store:
        _compare(store["cms/2017"], path, events_each, total)
        _process(store, workers, total)


def _load_and_kill(url: str, path: Path, events_each: int, total: int) -> None:
    context = multiprocessing.get_context("spawn")
    done, peak = context.Value("q", 0), context.Value("q", 0)
    count = -(-total // (max(1, _PART_EVENTS // events_each) * events_each))
    spent = 0.0
    for attempt in ("killed", "resumed"):
        began = time.perf_counter()
        loader = context.Process(target=load, args=(url, path, events_each, done, peak))
        loader.start()
        while loader.is_alive():
            loader.join(0.05)
            if attempt == "killed" and done.value >= count * _KILLED_AT:
                assert loader.pid is not None
                os.kill(loader.pid, signal.SIGKILL)
                loader.join()
        seconds = time.perf_counter() - began
        spent += seconds
        state = f"{done.value} of {count} parts done"
        assert loader.exitcode == (-signal.SIGKILL if attempt == "killed" else 0), loader.exitcode
        print(f"load, {attempt}: {state}, {seconds:.1f} s, memory of its own at most {peak.value / 1e6:.0f} MB")
    print(f"loaded: {total / spent / 1e3:,.0f} k events/s, durable, start and stop included")


def _compare(dataset: hepnos.DataSet, path: Path, events_each: int, total: int) -> None:
    """Go through all events and compare with the input, run by run: each once, and no other."""
    began = time.perf_counter()
    seen = sum(len(batch) for batch in dataset.events().batches())
    seconds = time.perf_counter() - began
    print(f"iterate: {seen:,} events to numpy in {seconds:.1f} s, {seen / seconds / 1e6:.1f} M/s")
    assert seen == total, f"{seen} events, and {total} in the input"
    expected = np.zeros(3, np.uint64)
    found = np.zeros(3, np.uint64)
    for run, subrun, event in parts(path, events_each):
        expected += _digest(run, subrun, event)
    ordered = True
    for target in dataset.events().targets():
        last: tuple[int, ...] = (0, 0, 0)
        for batch in target.batches():
            first = tuple(int(batch[name][0]) for name in ("run", "subrun", "event"))
            ordered = ordered and first > last
            ordered = ordered and bool((np.diff(batch["event"].astype(np.int64)) != 0).all())
            last = tuple(int(batch[name][-1]) for name in ("run", "subrun", "event"))
            found += _digest(batch["run"], batch["subrun"], batch["event"])
    assert ordered, "an event stands twice"
    assert (found == expected).all(), "other events than the input's"
    table = dataset.load_table("energy", hepnos.vector("f4"))
    assert len(table.events) == total // events_each
    assert (table.rows == table.events["event"].astype("f4")).all()
    print(f"compared: the events of the input, each once, and {len(table.events):,} products")
    print(f"memory of its own after that: {own_memory() / 1e6:.0f} MB")


def _digest(run: Any, subrun: Any, event: Any) -> npt.NDArray[np.uint64]:
    """Return sums that no other set of as many triples is likely to have."""
    with np.errstate(over="ignore"):
        mixed = (run * np.uint64(0x9E3779B97F4A7C15) ^ subrun) * np.uint64(0xBF58476D1CE4E5B9) ^ event.astype(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return np.array([len(run), mixed.sum(dtype=np.uint64), event.sum(dtype=np.uint64)], np.uint64)


def _process(store: hepnos.DataStore, workers: int, total: int) -> None:
    dataset = store["cms/2017"]
    began = time.perf_counter()
    processor = hepnos.ParallelProcessor(store, workers=workers, piece_events=65_536, vectorised=True)
    seen = number_sum = memory = 0
    for events, numbers, own in processor.map(dataset, count_events):
        seen, number_sum, memory = seen + events, number_sum + numbers, max(memory, own)
    seconds = time.perf_counter() - began
    assert seen == total, f"workers saw {seen} events"
    print(f"process: {seen:,} events by {workers} workers in {seconds:.1f} s, {seen / seconds / 1e6:.2f} M/s")
    print(f"memory of a worker's own at most {memory / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
