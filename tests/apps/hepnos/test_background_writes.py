"""Writes in the background whose executor ends: who is told, and what waits still. The rest of `AsyncEngine`: test_bulk.py."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.keys import number_key


def test_a_write_that_is_cancelled_with_its_executor_is_told() -> None:
    dataset = hepnos.open("memory:").root.ensure("d")
    may_end = Event()
    executor = ThreadPoolExecutor(1)
    executor.submit(may_end.wait, 30)
    engine = dataset.datastore.async_engine(executor=executor)
    run = dataset.create_run(1, into=engine)
    executor.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    with pytest.raises(hepnos.BatchError) as told:
        engine.__exit__(None, None, None)
    assert told.value.facts["failed"] == [number_key(dataset.uuid, (run.number,)).hex()]


def test_what_an_executor_that_has_ended_does_not_take_waits_still() -> None:
    dataset = hepnos.open("memory:").root.ensure("d")
    executor = ThreadPoolExecutor(1)
    engine = dataset.datastore.async_engine(executor=executor)
    batch = dataset.datastore.batch(engine=engine)
    run = dataset.create_run(1, into=batch)
    run.create_subrun(2, into=batch)
    executor.shutdown()
    with pytest.raises(RuntimeError):
        batch.flush()
    assert (batch.pending, batch.statistics.keys, engine.errors) == (2, 0, [])
