"""What the ranks of an MPI job run: `python -m tests.apps.hepnos.mpi_job URL FOLDER`; each writes what it saw to a file.

`map`, `process`, `reduce`; `differ`: the last rank asks for another data set; `fail`: the function fails for an event;
`pool`: mpi4py's executor, where the ranks behind the first are its workers.
"""

import json
import sys
from operator import add
from pathlib import Path
from typing import Any

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

from keyplan.apps import hepnos
from keyplan.errors import KeyplanError
from tests.apps.hepnos import work


def main() -> None:
    """Run one rank."""
    url, folder = sys.argv[1:]
    with hepnos.open(url, create=False) as store:
        seen = {what: seen_by(store, what) for what in ("map", "process", "reduce", "differ", "fail", "pool")}
    (Path(folder) / f"rank.{MPI.COMM_WORLD.Get_rank()}").write_text(json.dumps(seen))


def seen_by(store: hepnos.DataStore, what: str) -> Any:
    """Return what this rank is given, or the error that it is told."""
    try:
        return by_pool(store) if what == "pool" else by_ranks(store, what)
    except KeyplanError as error:
        return {"raised": type(error).__name__, **{name: str(fact) for name, fact in error.facts.items()}}


def by_ranks(store: hepnos.DataStore, what: str) -> Any:
    """Process the data set with all ranks together."""
    comm = MPI.COMM_WORLD
    is_last = comm.Get_rank() == comm.Get_size() - 1
    dataset = store["other" if what == "differ" and is_last else "d"]
    processor = hepnos.ParallelProcessor(store, comm=comm, piece_events=20)
    if what == "map":
        return list(processor.map(dataset, work.numbers_of))
    if what == "reduce":
        return processor.reduce(dataset, work.number_of, add, 1_000_000)
    return processor.process(dataset, work.fail_at_seven if what == "fail" else work.number_of)._asdict()


def by_pool(store: hepnos.DataStore) -> Any:
    """Process it with mpi4py's executor, which the first rank has."""
    executor: Any  # Why: its types say that entering gives this class, and not the executor that it is for
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        if executor is None:
            return None
        processor = hepnos.ParallelProcessor(store, executor=executor, piece_events=100)
        return list(processor.map(store["d"], work.numbers_of))


if __name__ == "__main__":
    main()
