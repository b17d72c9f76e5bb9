"""Atomic batches beside other writers: their modes and guards. What they leave when they are killed: test_bulk.py."""

from collections.abc import Callable

import pytest

from keyplan.apps import hepnos
from keyplan.engine import Commit, Engine, WrappedEngine
from keyplan.errors import EngineUnavailableError, InvalidInputError


@pytest.mark.leaves("no-container")
def test_the_modes_of_an_atomic_batch_are_those_of_single_writes(dataset: hepnos.DataSet) -> None:
    store, run = dataset.datastore, dataset.runs.handle(1)
    run.store("old", b"old", type=bytes)
    with store.batch(atomic=True) as batch:
        for label in ("old", "none"):
            run.store(label, b"by exist", type=bytes, mode="exist", into=batch)
    assert (run.load("old", bytes), run.load("none", bytes)) == (b"by exist", None)
    with store.batch(atomic=True) as batch:
        for label in ("old", "none"):
            run.store(label, b"by new", type=bytes, mode="new", into=batch)
    assert (run.load("old", bytes), run.load("none", bytes)) == (b"by exist", b"by new")


class OvertakenEngine(WrappedEngine):
    """Before its first commit somebody else writes."""

    def __init__(self, inner: Engine, write: Callable[[], object]) -> None:
        super().__init__(inner)
        self.write = [write]

    def commit(self, commit: Commit) -> int:
        while self.write:
            self.write.pop()()
        return self.inner.commit(commit)


@pytest.mark.leaves("no-container")
def test_an_atomic_batch_that_is_overtaken_looks_again(dataset: hepnos.DataSet) -> None:
    store, run = dataset.datastore, dataset.runs.handle(1)
    ring = store.databases.rings[hepnos.Kind.PRODUCT]
    whole = ring.databases
    ring.databases = tuple(OvertakenEngine(each, lambda: run.store("a", b"theirs", type=bytes)) for each in whole)
    with store.batch(atomic=True) as batch:
        run.store("a", b"mine", type=bytes, mode="new", into=batch)
    ring.databases = whole
    assert run.load("a", bytes) == b"theirs"


def test_what_was_not_written_waits_still_and_is_written_by_the_next_flush(store: hepnos.DataStore) -> None:
    event = store.root.ensure("kept").create_run(1).create_subrun(1).create_event(1)
    batch = store.batch(atomic=True)
    event.store("a", b"new", type=bytes, mode="new", into=batch)
    event.store("a", b"over", type=bytes, into=batch)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="two modes"):
            batch.flush()
    batch.discard()
    event.store("a", b"later", type=bytes, into=batch)
    ring = store.databases.rings[hepnos.Kind.PRODUCT]
    commit_in = ring.commit_in

    def fail(*_arguments: object) -> None:
        raise EngineUnavailableError(engine="test", problem="it is away")

    ring.commit_in = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(EngineUnavailableError):
        batch.flush()
    assert batch.pending == 1
    ring.commit_in = commit_in  # type: ignore[method-assign]
    batch.flush()
    assert (batch.pending, event.load("a", bytes), batch.statistics.keys) == (0, b"later", 1)
