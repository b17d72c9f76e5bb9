"""Twenty million events: the lumi sections of CMS's certification file of 2017 as subruns, a hundred events in each.

Several processes load, each is killed and begins again; then the events are gone through, compared with the input, and handed
to workers. scripts/hepnos-scale runs it. Prints what each part took, and the most memory that each process had; `--page` keeps
it as a page with plots.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.scale_page import Loading, write_page
from keyplan.apps import hepnos

__all__ = ["main"]

_DATABASES: Final = {"subruns": 2, "events": 4, "products": 2}
_PART_EVENTS: Final = 250_000
_KILLED_AT: Final = (0.25, 0.75)
"""The shares of its parts after which the first loader is killed, and the last; those between lie between."""
_LOOK_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 0.5


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


class Share(NamedTuple):
    """The parts of one of several loaders: those whose number leaves `which` when it is divided by `loaders`."""

    which: int
    loaders: int


def load(url: str, path: Path, events_each: int, share: Share, done: Any, peak: Any) -> None:
    """Load a share of the parts, with an energy for the first event of each section; what was finished before is passed over.

    `done` and `peak` are told how many parts are done, and the most memory.
    """
    with hepnos.open(url, databases=_DATABASES) as store:
        dataset = store.root.ensure("cms/2017")
        finished = 0
        for number, (run, subrun, event) in enumerate(parts(path, events_each)):
            if number % share.loaders != share.which:
                continue
            # Why a mark on the run: it is durable after what it says, and one look passes over a part.
            mark = dataset.runs.handle(int(run[0]))
            if mark.load(f"loaded/{number}", bool) is None:
                dataset.create_items(run, subrun, event)
                first = slice(None, None, events_each)
                energy = event[first].astype("f4")
                dataset.store_table("energy", energy, run=run[first], subrun=subrun[first], event=event[first])
                mark.store(f"loaded/{number}", value=True)
            finished += 1
            done.value = finished
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
    parser.add_argument("--loaders", type=int, default=2, help="processes that load at once; each is killed once")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the store is made, and removed")
    parser.add_argument("--page", type=Path, help="where the page is written, as HTML")
    given = parser.parse_args()
    folder = Path(mkdtemp(prefix="hepnos-scale-", dir=given.folder))
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        print(line, flush=True)

    try:
        loading = _run(folder, given, tell)
        tell(f"on disk: {_disk_bytes(folder) / 1e9:.2f} GB, {_disk_bytes(folder) / loading.total:.0f} bytes an event")
    finally:
        shutil.rmtree(folder)
    if given.page is not None:
        write_page(given.page, loading, told)


def _disk_bytes(folder: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def _run(folder: Path, given: argparse.Namespace, tell: Callable[[str], None]) -> Loading:
    url, total = f"lmdb:{folder}/store", len(sections(given.certification)) * given.events
    tell(f"input: {total // given.events:,} lumi sections, {total:,} events")
    loading = _load_and_kill(folder, url, given, total, tell)
    with hepnos.open(url, create=False) as store:
        _compare(store["cms/2017"], given.certification, given.events, total, tell)
        _process(store, given.workers, total, tell)
    return loading


class _Loader:
    """A process that loads a share of the parts, and is killed once."""

    def __init__(self, url: str, given: argparse.Namespace, share: Share, parts_of_all: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._context = context
        self._arguments = (url, given.certification, given.events, share)
        self._done, self._peak = context.Value("q", 0), context.Value("q", 0)
        self._parts = len(range(share.which, parts_of_all, share.loaders))
        first, last = _KILLED_AT
        self._killed_at = first + (last - first) * (share.which / max(1, share.loaders - 1))
        self._is_killed = False
        self._finished = 0
        self._start()

    def _start(self) -> None:
        self._done.value = 0
        self._process = self._context.Process(target=load, args=(*self._arguments, self._done, self._peak))
        self._process.start()

    @property
    def parts_done(self) -> int:
        """How many parts are durable; more after a kill only once the loader has passed over those."""
        self._finished = max(self._finished, self._done.value)
        return self._finished

    @property
    def peak_bytes(self) -> int:
        """The most memory of its own that it has had."""
        return int(self._peak.value)

    def looked_after(self) -> tuple[bool, bool]:
        """Kill it when it is time, and start it again; return whether it has ended, and whether it was killed now."""
        if not self._is_killed and self._process.is_alive() and self.parts_done >= self._killed_at * self._parts:
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.join()
            self._is_killed = True
            self._start()
            return False, True
        if self._process.is_alive():
            return False, False
        assert self._process.exitcode == 0, self._process.exitcode
        return True, False


def _load_and_kill(
    folder: Path, url: str, given: argparse.Namespace, total: int, tell: Callable[[str], None]
) -> Loading:
    part_events = max(1, _PART_EVENTS // given.events) * given.events
    count = -(-total // part_events)
    loading = Loading(total, given.loaders, [], [])
    began = time.perf_counter()
    # Why first: the ring of an empty store is written by whoever opens it, once.
    with hepnos.open(url, databases=_DATABASES) as store:
        store.root.ensure("cms/2017")
    loaders = [_Loader(url, given, Share(which, given.loaders), count) for which in range(given.loaders)]
    sampled = -_SAMPLE_SECONDS
    while True:
        states = [loader.looked_after() for loader in loaders]
        seconds = time.perf_counter() - began
        events = min(total, sum(loader.parts_done for loader in loaders) * part_events)
        loading.kills.extend((seconds, events) for _, is_killed in states if is_killed)
        is_over = all(has_ended for has_ended, _ in states)
        if is_over or seconds - sampled >= _SAMPLE_SECONDS:
            sampled = seconds
            loading.samples.append((seconds, events, _disk_bytes(folder)))
        if is_over:
            break
        time.sleep(_LOOK_SECONDS)
    tell(
        f"loaded: {total / seconds / 1e3:,.0f} k events/s by {given.loaders} processes in {seconds:.1f} s, durable, "
        f"{len(loading.kills)} kills, starts and stops included"
    )
    tell(f"memory of a loader: at most {max(loader.peak_bytes for loader in loaders) / 1e6:.0f} MB of its own")
    return loading


def _compare(dataset: hepnos.DataSet, path: Path, events_each: int, total: int, tell: Callable[[str], None]) -> None:
    """Go through all events and compare with the input, run by run: each once, and no other."""
    began = time.perf_counter()
    seen = sum(len(batch) for batch in dataset.events().batches())
    seconds = time.perf_counter() - began
    tell(f"iterate: {seen:,} events to numpy in {seconds:.1f} s, {seen / seconds / 1e6:.1f} M/s")
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
    tell(f"compared: the events of the input, each once, and {len(table.events):,} products")
    tell(f"memory after that: {own_memory() / 1e6:.0f} MB of its own")


def _digest(run: Any, subrun: Any, event: Any) -> npt.NDArray[np.uint64]:
    """Return sums that no other set of as many triples is likely to have."""
    with np.errstate(over="ignore"):
        mixed = (run * np.uint64(0x9E3779B97F4A7C15) ^ subrun) * np.uint64(0xBF58476D1CE4E5B9) ^ event.astype(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return np.array([len(run), mixed.sum(dtype=np.uint64), event.sum(dtype=np.uint64)], np.uint64)


def _process(store: hepnos.DataStore, workers: int, total: int, tell: Callable[[str], None]) -> None:
    dataset = store["cms/2017"]
    began = time.perf_counter()
    processor = hepnos.ParallelProcessor(store, workers=workers, piece_events=65_536, vectorised=True)
    seen = number_sum = memory = 0
    for events, numbers, own in processor.map(dataset, count_events):
        seen, number_sum, memory = seen + events, number_sum + numbers, max(memory, own)
    seconds = time.perf_counter() - began
    assert seen == total, f"workers saw {seen} events"
    tell(f"process: {seen:,} events by {workers} workers in {seconds:.1f} s, {seen / seconds / 1e6:.2f} M/s")
    tell(f"memory of a worker: at most {memory / 1e6:.0f} MB of its own")


if __name__ == "__main__":
    main()
