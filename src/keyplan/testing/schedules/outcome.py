"""The outcome of a run: what its actors returned and raised, and what is stored, for invariants and for whoever replays."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from keyplan.engine import Engine, Event
from keyplan.store import Store
from keyplan.testing.schedules.running import Acknowledged, Run, Stored
from keyplan.testing.schedules.steps import Step
from keyplan.testing.schedules.surroundings import threadless_store

__all__ = ["Outcome"]


class Outcome:
    """What came of a run.

    `store` (`stores`) reads and writes what the run left, uncontrolled, with the run's clock standing. `answers` and
    `errors` are by the actors' names; one that crashed has neither. `commits` are those that were acknowledged, in order.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.scenario: Final = run.scenario
        self.stores: Final[tuple[Store, ...]] = tuple(
            threadless_store(engine, run.clock) for engine in run.bare_engines()
        )
        self.answers: Final[Mapping[str, Any]] = {
            actor_run.actor.name: actor_run.answer
            for actor_run in run.actor_runs
            if actor_run.is_over and actor_run.error is None
        }
        self.errors: Final[Mapping[str, BaseException]] = {
            actor_run.actor.name: actor_run.error for actor_run in run.actor_runs if actor_run.error is not None
        }
        self.commits: Final[Sequence[Acknowledged]] = tuple(run.commits)
        self.faults: Final = run.faults
        self.clock: Final = run.clock
        self.script = ""
        """What happened, of a schedule that was replayed."""
        self.failure = ""
        """What is wrong, of a schedule that was replayed; empty when nothing is."""

    @property
    def store(self) -> Store:
        """The store, of a scenario with one engine."""
        return self.stores[0]

    @property
    def engine(self) -> Engine:
        """The engine of `store`."""
        return self.stores[0].engine

    @property
    def steps(self) -> Sequence[Step]:
        """What the actors did, in order."""
        return self._run.steps

    @property
    def crashed(self) -> tuple[str, ...]:
        """The actors that crashed."""
        return tuple(actor_run.actor.name for actor_run in self._run.actor_runs if actor_run.has_crashed)

    def history(self, engine: int = 0) -> tuple[Event, ...]:
        """Return every change since the store was empty, as far as it was not compacted."""
        return self._run.history(engine)

    def compacted(self, engine: int = 0) -> int:
        """Return the revision up to which history was forgotten."""
        return self._run.compacted(engine)

    def stored(self) -> tuple[Stored, ...]:
        """Return key, value and lease of everything that is stored, for each engine."""
        return self._run.stored()

    def in_order(self, names: Sequence[str]) -> "Outcome":
        """Return what comes of running these actors alone, one after the other, from the same set-up.

        One that starts again after a crash runs in its place, whoever crashed.
        """
        places = {name: place for place, name in enumerate(self.scenario.names)}
        run = Run(self.scenario, self._run.batons)
        try:
            run.begin([places[name] for name in names])
            while enabled := run.enabled():
                run.step(next((places[name] for name in names if places[name] in enabled), enabled[0]))
        finally:
            run.end()
        return Outcome(run)
