"""Hypothesis strategies for scenarios: it chooses the operations and the set-up, the search the schedule.

@settings(deadline=None)
@given(scenarios(OPERATIONS, setup=two_accounts, layouts=[Bank]))
def test_any_few_operations(scenario):
    check_schedules(scenario, strategy=Preemptions(2), seconds_max=0.1)

Hypothesis shortens the operations. The search is deterministic, so that the example database replays.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from keyplan.store import Store
from keyplan.testing.schedules import Actor, Scenario, actor, schedule_by

__all__ = ["scenarios", "schedules_of"]

Operation = Callable[[Store], object]


def scenarios(
    operations: Mapping[str, Operation],
    *,
    actors: tuple[int, int] = (2, 3),
    operations_each: tuple[int, int] = (1, 3),
    setups: Sequence[Callable[[Store], object]] = (),
    **options: Any,
) -> SearchStrategy[Scenario]:
    """Draw scenarios of these operations: so many actors, each of which does so many of them one after the other.

    `setups` are drawn from; `options` are the scenario's others. An actor is named after what it does.
    """
    drawn_operations = st.lists(
        st.sampled_from(sorted(operations)), min_size=operations_each[0], max_size=operations_each[1]
    )
    drawn_actors = st.lists(
        drawn_operations.map(lambda names: _actor_of(operations, names)), min_size=actors[0], max_size=actors[1]
    )
    if not setups:
        return drawn_actors.map(lambda drawn: Scenario(*drawn, **options))
    drawn_setups = st.sampled_from(list(setups))
    return st.builds(lambda drawn, setup: Scenario(*drawn, setup=setup, **options), drawn_actors, drawn_setups)


def _actor_of(operations: Mapping[str, Operation], names: Sequence[str]) -> Actor:
    def work(store: Store) -> list[object]:
        return [operations[name](store) for name in names]

    return actor(work, ", then ".join(names))


def schedules_of(scenario: Scenario) -> SearchStrategy[str]:
    """Draw strings of schedules of one scenario, for `replay`. It knows nothing of traces: to see how schedules look."""
    choices = st.lists(st.integers(0, len(scenario.actors) - 1), max_size=64)
    return choices.map(lambda drawn: schedule_by(scenario, drawn))
