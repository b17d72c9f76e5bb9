"""One run: the actors of a scenario on copies of its set-up, let go one step at a time."""

import inspect
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Final

from keyplan.engine import ALL_KEYS, Commit, Engine, Event, Memory, MemoryEngine
from keyplan.errors import EngineUnavailableError, InvalidInputError
from keyplan.limits import SCHEDULE_STEPS_MAX
from keyplan.testing.schedules.batons import ActorKilledError, Batons
from keyplan.testing.schedules.faults import Fault, fits
from keyplan.testing.schedules.footprint import CLOCK, EMPTINESS, Footprint, crash_key, held_key
from keyplan.testing.schedules.parking import ParkingEngine
from keyplan.testing.schedules.scenario import Actor, Scenario
from keyplan.testing.schedules.steps import Step, Wait
from keyplan.testing.schedules.surroundings import (
    SEED_OF_JUDGES,
    ExplorerContext,
    ObservedClock,
    ThreadlessKeeper,
    counted_bytes,
    current_context,
    enter,
    in_context,
    leave,
    threadless_store,
)
from keyplan.testing.schedules.watching import end_of_lease

__all__ = ["Acknowledged", "ActorRun", "Run", "Stored", "current_actor", "raised_by", "stored_in"]

_EMPTY_POLLS_MAX: Final = 16
"""Polls in a row that return nothing because nobody else can go on. Why: a loop that looks some times may stop then."""

Stored = tuple[tuple[bytes, bytes, int], ...]
"""Key, value and lease of everything that an engine holds."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A commit whose revision was returned to its caller."""

    actor: str
    engine: int
    revision: int
    commit: Commit


class ActorRun:
    """An actor in one run. Invariant: it is parked at `pending`, or over, whenever another one runs."""

    def __init__(self, run: "Run", place: int, actor: Actor) -> None:
        self.run = run
        self.place = place
        self.actor = actor
        self.calls = 0
        self.pending = ""
        self.is_over = False
        """Whether its function has ended by itself."""
        self.is_killed = False
        self.wait: Wait | None = None
        """What it waits for at `pending`."""
        self.may_return_empty = False
        """Whether what it waits for may be given up when nobody else can go on: a poll with a timeout."""
        self.answer: object = None
        self.error: BaseException | None = None
        self.faults: dict[int, str] = {}
        self._drawn = 0
        clock = run.observed_clock
        self.engines = run.parking_engines()
        self.keepers = [ThreadlessKeeper(engine, clock) for engine in self.engines]
        self.stores = [
            threadless_store(engine, clock, keeper) for engine, keeper in zip(self.engines, self.keepers, strict=True)
        ]
        self.baton = run.batons.new(self._body)

    def _body(self) -> None:
        answer: object = None
        error: BaseException | None = None
        try:
            answer = self.actor.function(*self.stores)
            if inspect.isgenerator(answer) or inspect.iscoroutine(answer) or inspect.isasyncgen(answer):
                error = _not_run(self.actor.name, answer)
        except KeyboardInterrupt as interruption:
            # Why: the exploration is to end by it, and not to take it for what the actor does.
            self.run.interruption = interruption
        except BaseException as raised:  # noqa: BLE001  # Why: whatever it is belongs to the outcome, and is judged.
            error = raised
        if self.is_killed:  # what it did as it ended is no part of the outcome
            return
        self.answer = answer
        if self.error is None:
            self.error = error
        self.is_over = True

    # ---- as a context ----------------------------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether the calling code runs in this actor."""
        return self.baton.is_here

    @property
    def clock(self) -> ObservedClock:
        """The clock of the run, as actors see it."""
        return self.run.observed_clock

    def random_bytes(self, size: int) -> bytes:
        """Return the next of this actor's random bytes, which are the same in each run."""
        self._drawn += 1
        return counted_bytes(self.place, self._drawn, size)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Park, called in the actor, until a condition is true; see `actor_waits`."""
        seen = Step(self.place)
        raised: list[Exception] = []

        def is_over() -> bool:
            raised.clear()
            try:
                return self.run.look(condition, seen)
            except Exception as error:  # noqa: BLE001  # Why: it is asked by the scheduler, and is the actor's all the same.
                raised.append(error)
                return True

        step = self.run.park("waits", wait=Wait(is_over, seen))
        if raised:
            step.outcome = raised[0]
            raise raised[0]

    @property
    def has_crashed(self) -> bool:
        """Whether it stands before a call at which it crashes."""
        return not self.is_over and self.faults.get(self.calls) == "c"


class Run:
    """One execution. `begin` starts the actors, `step` lets one of the `enabled` ones go on, `end` kills the others."""

    def __init__(
        self,
        scenario: Scenario,
        batons: Batons,
        *,
        faults: Iterable[Fault] = (),
        is_recorded: bool = False,
        revisions_matter: bool = False,
    ) -> None:
        template = scenario.template
        self.scenario = scenario
        self.batons = batons
        self.clock = copy(template.clock)
        self.observed_clock = ObservedClock(self.clock, self._who_looks)
        self._passes_time = any(one.passes_time for one in scenario.actors)
        self._held_keys: dict[int, set[bytes]] = {}
        """Of actors that hold leases, and of those that renew them."""
        self.memories = [memory.copy(self.clock) for memory in template.memories]
        self.revisions_matter = revisions_matter
        self.is_recorded = is_recorded
        self.steps: list[Step] = []
        self.commits: list[Acknowledged] = []
        self.is_cut = False
        self.revision_names: dict[int, tuple[int, int]] = {}
        """Which call made a revision: actor and number. For scenarios with one engine."""
        self._watchers: list[Callable[[], object]] = []
        self.broken: Exception | None = None
        self.interruption: KeyboardInterrupt | None = None
        self.waiting_for_ever: tuple[str, ...] = ()
        self.faults = tuple(faults)
        self._step = Step(0)
        self._looking: Step | None = None
        self._can_wait = False
        self._is_idle = False
        self._is_in_order = False
        """Whether chosen actors run one after the other, so that one that starts again does so whoever crashed."""
        self._empty_polls = 0
        self.actor_runs: list[ActorRun] = []

    # ---- its stores -------------------------------------------------------------------------------------------------------

    def parking_engines(self) -> list[ParkingEngine]:
        """Return an actor's engines: one for each store of the scenario."""
        return [
            ParkingEngine(engine, memory, self, number)
            for number, (engine, memory) in enumerate(zip(self.bare_engines(), self.memories, strict=True))
        ]

    def bare_engines(self) -> list[Engine]:
        """Return new engines on the stores of the run that nothing controls."""
        return [MemoryEngine(shared=memory, profile=self.scenario.profile) for memory in self.memories]

    def revisions(self) -> list[int]:
        """Return the latest revision of each store."""
        return [memory.revision for memory in self.memories]

    def history(self, engine: int) -> tuple[Event, ...]:
        """Return every change of a store, as far as it was not compacted."""
        memory = self.memories[engine]
        return tuple(event for revision in sorted(memory.history) for event in memory.history[revision])

    def compacted(self, engine: int) -> int:
        """Return the revision up to which a store's history was forgotten."""
        return self.memories[engine].compacted

    def stored(self) -> tuple[Stored, ...]:
        """Return key, value and lease of everything that is stored, for each store."""
        return tuple(stored_in(memory) for memory in self.memories)

    # ---- its beginning ----------------------------------------------------------------------------------------------------

    def watch(self, check: Callable[..., object]) -> None:
        """Let `check` be called with the stores after every commit; what it raises first is kept in `broken`."""
        stores = [threadless_store(engine, self.clock) for engine in self.bare_engines()]
        self._watchers.append(lambda: check(*stores))

    def begin(self, places: Iterable[int] | None = None) -> None:
        """Let each actor run until its first call; of the given ones alone also those that wait for another's crash."""
        self._is_in_order = places is not None
        chosen = range(len(self.scenario.actors)) if places is None else places
        self.actor_runs = [ActorRun(self, place, self.scenario.actors[place]) for place in chosen]
        by_place = {actor_run.place: actor_run for actor_run in self.actor_runs}
        for actor, call, letter in self.faults:
            if actor in by_place:
                by_place[actor].faults[call] = letter
        for holder in self.actor_runs:
            renewing = [one.place for one in self.actor_runs if one.actor.renews == holder.actor.name]
            for place in (holder.place, *renewing) if renewing else ():
                self._held_keys.setdefault(place, set()).add(held_key(holder.place))
        for actor_run in self.actor_runs:
            self._let_go(actor_run)

    def crash_of(self, name: str) -> Wait:
        """What waits for the crash of an actor."""
        others = [other for other in self.actor_runs if other.actor.name == name]
        looked = Footprint()
        looked.keys_read.update(crash_key(other.place) for other in others)
        return Wait(lambda: self._is_in_order or any(other.has_crashed for other in others), looked)

    def _let_go(self, actor_run: ActorRun) -> None:
        _switch(actor_run, actor_run.baton.resume)
        if self.interruption is not None:
            raise self.interruption
        if self.batons.refused is not None:
            raise self.batons.refused

    # ---- the scheduler's side --------------------------------------------------------------------------------------------

    def enabled(self) -> list[int]:
        """Return the places of the actors that can go on, in order; none: the run is over."""
        if not self.faults and not self._can_wait:
            return [actor_run.place for actor_run in self.actor_runs if not actor_run.is_over]
        able = [actor_run for actor_run in self.actor_runs if not actor_run.is_over and not actor_run.has_crashed]
        free = [actor_run.place for actor_run in able if actor_run.wait is None or actor_run.wait.is_over()]
        if free or not able:
            return free
        # Why: what waits with a timeout is told that nothing came; who asks again and again waits for ever.
        free = [actor_run.place for actor_run in able if actor_run.may_return_empty]
        if free and self._empty_polls < _EMPTY_POLLS_MAX:
            self._is_idle = True
            return free
        self.waiting_for_ever = tuple(actor_run.actor.name for actor_run in able if actor_run.pending != "restarts")
        return []

    def step(self, place: int) -> Step:
        """Let an enabled actor do its call and go on until its next, or its end."""
        actor_run = self.actor_run(place)
        step = Step(place)
        if self.is_recorded:
            step.answers = []
        self._step = step
        self.steps.append(step)
        self._empty_polls = self._empty_polls + 1 if self._is_idle else 0
        if self._is_idle:
            step.keys_written.add(EMPTINESS)
        if self._held_keys:
            step.keys_written |= self._held_keys.get(place, set())
        self._is_idle = False
        changed = self.revisions() if self._watchers else None
        self._let_go(actor_run)
        step.was_left_open = step.open_snapshots > 0
        if self.faults and actor_run.has_crashed:
            step.keys_written.add(crash_key(place))
        if changed is not None and changed != self.revisions():
            self._watched()
        return step

    def actor_run(self, place: int) -> ActorRun:
        """The actor at a place."""
        actor_runs = self.actor_runs
        if len(actor_runs) > place and actor_runs[place].place == place:
            return actor_runs[place]
        return next(actor_run for actor_run in actor_runs if actor_run.place == place)

    def _watched(self) -> None:
        with in_context(ExplorerContext(self.clock, SEED_OF_JUDGES)):
            for watcher in self._watchers:
                self.broken = self.broken or raised_by(watcher)

    def end(self) -> None:
        """Kill the actors that are not over. Their engines carry out none of the calls that they make as they end."""
        for actor_run in self.actor_runs:
            if not actor_run.is_over and not actor_run.is_killed:
                actor_run.is_killed = True
                _switch(actor_run, actor_run.baton.kill)

    # ---- the actors' side -------------------------------------------------------------------------------------------------

    def _who_looks(self) -> Step:
        """Return what a look at the clock joins: the step that is under way."""
        if self._looking is not None:
            return self._looking
        if self._passes_time and isinstance(actor_run := current_context(), ActorRun) and not actor_run.calls:
            # Why a step of its own: who has made no call yet may begin after time has passed, too.
            return self.park("clock")
        return self._step

    @property
    def time(self) -> float:
        """The run's time, without a look of an actor's."""
        return self.clock.monotonic()

    def waiting(self) -> list[Step]:
        """Return the steps of actors that wait, as if they had been let go: who hindered them raced with them, too."""
        steps: list[Step] = []
        for actor_run in self.actor_runs:
            if actor_run.wait is not None and not actor_run.is_over and not actor_run.has_crashed:
                steps.append(Step(actor_run.place))
                steps[-1].call, steps[-1].number = actor_run.pending, actor_run.calls
                steps[-1].has_waited = True
                steps[-1].take_in(actor_run.wait.touched)
        return steps

    def park(self, call: str, subject: object = None, *, wait: Wait | None = None) -> Step:
        """Park the calling actor until the schedule lets it go; see `Parking`."""
        if self._looking is not None:
            return self._looked(call)
        actor_run = current_context()
        if not isinstance(actor_run, ActorRun) or actor_run.run is not self:
            self.batons.refused = InvalidInputError(
                source="schedule",
                problem="an engine call came from a thread that no actor is; make the thread's body an actor",
            )
            raise self.batons.refused
        if actor_run.is_killed or actor_run.error is not None:
            raise ActorKilledError
        actor_run.calls += 1
        if actor_run.calls > SCHEDULE_STEPS_MAX:
            actor_run.error = AssertionError(
                f"actor {actor_run.actor.name} has made {SCHEDULE_STEPS_MAX:,} calls; is it waiting for somebody? "
                "Let it say so with actor_waits"
            )
            # Why not the error itself: an actor that tries again after any error would never come to its end.
            raise ActorKilledError
        actor_run.pending = call
        if wait is not None:
            self._can_wait = True
            actor_run.wait = wait
            actor_run.may_return_empty = call == "poll"
            # Why: from when on it waits is told by the clock, and this is where it looks.
            self._step.keys_read.add(CLOCK)
        actor_run.baton.park()
        return self._begun(actor_run, call, subject)

    def _begun(self, actor_run: ActorRun, call: str, subject: object) -> Step:
        step = self._step
        if actor_run.wait is not None:
            step.has_waited = True
            step.take_in(actor_run.wait.touched)
            actor_run.wait = None
        step.call, step.subject, step.number = call, subject, actor_run.calls
        letter = actor_run.faults.get(actor_run.calls, "") if actor_run.faults else ""
        if letter and fits(letter, call):
            step.fault = letter
            if step.fault == "f":
                step.outcome = EngineUnavailableError(engine="memory", problem=f"failed on purpose: {call}")
                raise step.outcome
        return step

    def look(self, condition: Callable[[], bool], step: Step) -> bool:
        """Ask a condition of the latest state: what it reads joins `step`, and none of its calls parks."""
        before, self._looking = self._looking, step
        try:
            with in_context(ExplorerContext(self.observed_clock, SEED_OF_JUDGES)):
                return condition()
        finally:
            self._looking = before

    def _looked(self, call: str) -> Step:
        if call not in {"snapshot", "value", "fenced_value"}:
            problem = f"a condition reads; it must not call {call}: do that before, or afterwards"
            raise InvalidInputError(source="actor_waits", problem=problem)
        assert self._looking is not None
        return self._looking

    def acknowledge(self, step: Step, engine: int, revision: int, commit: Commit) -> None:
        """Keep a commit whose caller gets its revision; see `Parking`."""
        self.commits.append(Acknowledged(self.scenario.names[step.actor], engine, revision, commit))

    def pass_time(self, seconds: float) -> None:
        """Advance the clock in one step of the calling actor; leases that are over by then end with it."""
        step = self.park("passes", seconds)
        step.keys_written.add(CLOCK)
        self.clock.advance(seconds)
        for number, memory in enumerate(self.memories):
            for lease, state in memory.leases.items():
                if state.deadline <= self.time:
                    end_of_lease(step, memory, lease, (number, self.revisions_matter))
            with memory.condition:
                memory.expire_leases()


def _not_run(name: str, answer: object) -> InvalidInputError:
    """The error of an actor that returned what had to be run: nothing was done, and nothing would be seen to fail."""
    if inspect.iscoroutine(answer):
        answer.close()  # or Python warns of it
    kind = type(answer).__name__
    problem = (
        f"{name} returned a {kind} that nobody runs, so that what it should do was not done: go through it in the actor"
    )
    return InvalidInputError(source="actor", problem=problem)


def _switch(actor_run: ActorRun, switch: Callable[[], None]) -> None:
    """Let an actor run until it parks or ends."""
    enter(actor_run)
    try:
        switch()
    finally:
        leave(actor_run)


def raised_by(judge: Callable[..., object], *judged: object) -> Exception | None:
    """Return what somebody who judges raises: whatever it is, it is told with the schedule that leads to it."""
    try:
        judge(*judged)
    except Exception as error:  # noqa: BLE001  # Why: as above
        return error
    return None


def current_actor() -> ActorRun:
    """Return the actor whose code this is. Raises InvalidInputError outside one."""
    context = current_context()
    if not isinstance(context, ActorRun):
        raise InvalidInputError(
            source="schedule", problem="only an actor of a scenario can call this, in its own thread"
        )
    return context


def stored_in(memory: Memory) -> Stored:
    """Return key, value and lease of everything in a memory."""
    return tuple((entry.key, entry.value, entry.lease) for entry in memory.entries.scan(ALL_KEYS))
