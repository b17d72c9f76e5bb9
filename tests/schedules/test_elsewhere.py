"""Strings that were found on memory, replayed on LMDB: calls go in the same order, and the same comes of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Clock, Commit, Engine, Put
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.errors import InvalidInputError
from keyplan.store import Store
from keyplan.testing.schedules import (
    ACTOR_ERRORS,
    Outcome,
    Scenario,
    acknowledged,
    actor,
    as_in_some_order,
    compacts,
    explore,
    healthy,
    passes,
    replay,
    schedule_by,
)
from tests.maintenance.layouts import Site
from tests.schedules.scenes import (
    R1,
    build,
    drop,
    guards_left_out,
    of_absent_entry,
    of_drop,
    one_record,
    put_in_transaction,
    unbuilt,
)
from tests.schedules.writers import WRITERS, two_records

Make = Callable[[Clock], Engine]


@pytest.fixture
def on_lmdb(tmp_path: Path) -> Iterator[Make]:
    """Make engines on new LMDB stores, which are closed at the end."""
    made: list[LmdbEngine] = []

    def make(clock: Clock) -> Engine:
        made.append(LmdbEngine(tmp_path / f"store{len(made)}", LmdbOptions(clock=clock)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def test_a_put_beside_a_build_fails_there_as_it_does_on_memory(on_lmdb: Make) -> None:
    scenario = Scenario(put_in_transaction, build, setup=unbuilt, layouts=[Site])
    with guards_left_out(of_absent_entry):
        failure = explore(scenario).failures[0]
        outcome = replay(scenario, failure.text, engine=on_lmdb)
    assert outcome.failure == failure.message
    assert [step.actor for step in outcome.steps] == list(failure.schedule.steps)
    assert replay(scenario, failure.text, engine=on_lmdb).failure == ""


def test_so_does_a_drop_beside_a_build(on_lmdb: Make) -> None:
    scenario = Scenario(drop, build, setup=one_record, layouts=[Site], only_raises=(*ACTOR_ERRORS, InvalidInputError))
    with guards_left_out(of_drop):
        failure = explore(scenario).failures[0]
        outcome = replay(scenario, failure.text, engine=on_lmdb)
    assert outcome.failure == failure.message


@pytest.mark.parametrize("baton", ["greenlets", "threads"])
def test_writers_leave_the_same_there(on_lmdb: Make, baton: str) -> None:
    names = ("modify", "put other", "count")
    scenario = Scenario(
        *[actor(WRITERS[name], name) for name in names],
        setup=two_records,
        layouts=[Site],
        invariants=[healthy(Site), as_in_some_order, acknowledged],
    )
    for choices in ([0, 1, 2, 0, 1], [0, 0, 1, 1], [2, 1, 0], [1, 0, 0, 1]):
        text = schedule_by(scenario, choices)
        there, here = replay(scenario, text, engine=on_lmdb, baton=baton), replay(scenario, text)  # type: ignore[arg-type]
        assert there.failure == here.failure == ""
        assert there.stored() == here.stored()
        assert [step.call for step in there.steps] == [step.call for step in here.steps]


@pytest.mark.parametrize(
    "choices",
    [[0], [0, 0, 1, 1, 0, 1, 2, 0], [1, 1, 0, 0, 1], [0, 0, 2, 0], [1, 2], [1, 1, 3, 1, 0], [1, 0, 0, 3, 1]],
    ids=str,
)
def test_time_watches_and_compaction_go_there_too(on_lmdb: Make, choices: list[int]) -> None:
    def put_on_lease(store: Store) -> None:
        lease = store.engine.lease(5)
        store.engine.commit(Commit((), (Put(b"leased", b"", lease.id),)))
        Site(store).blades.modify(R1, lambda blade: blade)
        lease.revoke()

    def watch(store: Store) -> object:
        with store.engine.snapshot() as snapshot:
            after = snapshot.revision
        watch = store.engine.watch(ALL_KEYS, after=after)
        try:
            return [event.kind for event in watch.poll(1.0)]
        finally:
            watch.close()

    def noted(outcome: Outcome) -> None:
        errors = {name: type(error) for name, error in outcome.errors.items()}
        seen.append((outcome.answers, errors, outcome.stored(), outcome.compacted() > 0))

    seen: list[object] = []
    scenario = Scenario(put_on_lease, watch, passes(10), compacts(), setup=one_record, invariants=[noted])
    assert replay(scenario, schedule_by(scenario, choices), engine=on_lmdb).failure == ""
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
