"""One run: the actors of a scenario on copies of its set-up, let go one step at a time. What came of it is an `Outcome`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from keyplan.engine import ALL_KEYS, Commit, Engine, Event, Memory, MemoryEngine
from keyplan.errors import EngineUnavailableError, InvalidInputError
from keyplan.limits import SCHEDULE_STEPS_MAX
from keyplan.store import Store
from keyplan.testing.schedules.batons import ActorKilledError, Batons
from keyplan.testing.schedules.faults import Fault
from keyplan.testing.schedules.footprint import CLOCK, EMPTINESS, Footprint, crash_key
from keyplan.testing.schedules.keeping import StillKeeper
from keyplan.testing.schedules.parking import ParkingEngine
from keyplan.testing.schedules.scenario import Actor, Scenario, still_store
from keyplan.testing.schedules.seeing import SeenClock
from keyplan.testing.schedules.steps import Step, Wait
from keyplan.testing.schedules.surroundings import Stage, counted_bytes, current_scene, enter, leave, on_stage
from keyplan.testing.schedules.watching import end_of_lease

__all__ = ["Acknowledged", "Outcome", "Player", "Run", "actor_waits", "current_player"]

_EMPTY_POLLS_MAX: Final = 16
"""Polls in a row that return nothing because nobody else can go on. Why: a loop that looks some times may stop then."""

Stored = tuple[tuple[bytes, bytes, int], ...]
"""Key, value and lease of everything that an engine holds."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A commit whose caller was told its revision."""

    actor: str
    engine: int
    revision: int
    commit: Commit


class Player:
    """An actor in one run. Invariant: it is parked at `pending`, or over, whenever another one runs."""

    def __init__(self, run: "Run", place: int, actor: Actor) -> None:
        self.run = run
        self.place = place
        self.actor = actor
        self.calls = 0
        self.pending = ""
        self.is_over = False
        self.is_killed = False
        self.wait: Wait | None = None
        """What it waits for at `pending`."""
        self.may_return_empty = False
        """Whether what it waits for may be given up when nobody else can go on: a poll with a timeout."""
        self.answer: object = None
        self.error: BaseException | None = None
        self.faults: dict[int, str] = {}
        self._drawn = 0
        clock = run.seen_clock
        self.engines = run.parking_engines()
        self.keepers = [StillKeeper(engine, clock) for engine in self.engines]
        self.stores = [
            still_store(engine, clock, keeper) for engine, keeper in zip(self.engines, self.keepers, strict=True)
        ]
        self.baton = run.batons.new(self._body)

    def _body(self) -> None:
        try:
            self.answer = self.actor.function(*self.stores)
        except ActorKilledError:
            pass
        except BaseException as error:  # noqa: BLE001  # Why: whatever it is belongs to the outcome, and is judged.
            self.error = error
        self.is_over = True

    # ---- what its surroundings ask ---------------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether the code that asks runs in this actor."""
        return self.baton.is_here

    @property
    def clock(self) -> SeenClock:
        """The clock of the run, as actors see it."""
        return self.run.seen_clock

    def random_bytes(self, size: int) -> bytes:
        """Return the next of this actor's random bytes, which are the same in each run."""
        self._drawn += 1
        return counted_bytes(self.place, self._drawn, size)

    @property
    def has_crashed(self) -> bool:
        """Whether it stands before a call at which it crashes."""
        return not self.is_over and self.faults.get(self.calls) == "c"


class Run:
    """One execution. `step` lets one of the `enabled` actors go on; `end` kills what is left."""

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
        self.seen_clock = SeenClock(self.clock, lambda: self._looking or self._step)
        self.memories = [memory.copy(self.clock) for memory in template.memories]
        self.revisions_matter = revisions_matter
        self.is_recorded = is_recorded
        self.steps: list[Step] = []
        self.commits: list[Acknowledged] = []
        self.is_cut = False
        self.revision_names: dict[int, tuple[int, int]] = {}
        """Which call made a revision: actor and number. For scenarios with one engine."""
        self._watchers: list[Callable[[], object]] = []
        self.broken: BaseException | None = None
        self.waiting_for_ever: tuple[str, ...] = ()
        self.faults = tuple(faults)
        self._step = Step(0)
        self._looking: Step | None = None
        self._can_wait = False
        self._is_idle = False
        self._empty_polls = 0
        self.players: list[Player] = []

    # ---- what it is on ----------------------------------------------------------------------------------------------------

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

    def watch(self, check: Callable[[Store], object]) -> None:
        """Let `check` be called with the store after every commit; the first AssertionError is kept in `broken`."""
        store = still_store(self.bare_engines()[0], self.clock)
        self._watchers.append(lambda: check(store))

    def begin(self, places: Iterable[int] | None = None) -> None:
        """Let each actor (of the given ones) run until its first call."""
        chosen = range(len(self.scenario.actors)) if places is None else places
        self.players = [Player(self, place, self.scenario.actors[place]) for place in chosen]
        by_place = {player.place: player for player in self.players}
        for actor, call, letter in self.faults:
            if actor in by_place:
                by_place[actor].faults[call] = letter
        for player in self.players:
            if player.actor.after_crash_of:
                self._can_wait = True
                player.wait = self._crash_of(player.actor.after_crash_of)
            self._let_go(player)

    def _crash_of(self, name: str) -> Wait:
        others = [other for other in self.players if other.actor.name == name]
        looked = Footprint()
        looked.keys_read.update(crash_key(other.place) for other in others)
        return Wait(lambda: any(other.has_crashed for other in others), looked)

    def _let_go(self, player: Player) -> None:
        enter(player)
        try:
            player.baton.resume()
        finally:
            leave()

    # ---- the scheduler's side --------------------------------------------------------------------------------------------

    def enabled(self) -> list[int]:
        """Return the places of the actors that can go on, in order; none: the run is over."""
        if not self.faults and not self._can_wait:
            return [player.place for player in self.players if not player.is_over]
        able = [player for player in self.players if not player.is_over and not player.has_crashed]
        free = [player.place for player in able if player.wait is None or player.wait.is_over()]
        if free or not able:
            return free
        # Why: what waits with a timeout is told that nothing came; who asks again and again waits for ever.
        free = [player.place for player in able if player.may_return_empty]
        if free and self._empty_polls < _EMPTY_POLLS_MAX:
            self._is_idle = True
            return free
        self.waiting_for_ever = tuple(player.actor.name for player in able if not player.actor.after_crash_of)
        return []

    def step(self, place: int) -> Step:
        """Let an enabled actor do its call and go on until its next, or its end."""
        player = self.player(place)
        step = Step(place)
        if self.is_recorded:
            step.answers = []
        self._step = step
        self.steps.append(step)
        self._empty_polls = self._empty_polls + 1 if self._is_idle else 0
        if self._is_idle:
            step.keys_written.add(EMPTINESS)
        self._is_idle = False
        changed = self.revisions() if self._watchers else None
        self._let_go(player)
        step.was_left_open = step.open_snapshots > 0
        if self.faults and player.has_crashed:
            step.keys_written.add(crash_key(place))
        if changed is not None and changed != self.revisions():
            self._watched()
        return step

    def player(self, place: int) -> Player:
        """The actor at a place."""
        players = self.players
        if len(players) > place and players[place].place == place:
            return players[place]
        return next(player for player in players if player.place == place)

    def _watched(self) -> None:
        try:
            with on_stage(Stage(self.clock)):
                for watcher in self._watchers:
                    watcher()
        except AssertionError as error:
            self.broken = self.broken or error

    def end(self) -> None:
        """Kill the actors that are not over. Their engines refuse what they still ask."""
        for player in self.players:
            if not player.is_over:
                player.is_killed = True
                enter(player)
                try:
                    player.baton.kill()
                finally:
                    leave()
                player.is_over = True

    # ---- the actors' side -------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """What the run's clock shows."""
        return self.clock.monotonic()

    def waiting(self) -> list[Step]:
        """Return the steps of actors that wait, as if they had been let go: who hindered them raced with them, too."""
        steps: list[Step] = []
        for player in self.players:
            if player.wait is not None and not player.is_over and not player.has_crashed:
                steps.append(Step(player.place))
                steps[-1].call, steps[-1].number = player.pending, player.calls
                steps[-1].has_waited = True
                steps[-1].take_in(player.wait.touched)
        return steps

    def park(self, call: str, subject: object = None, *, wait: Wait | None = None) -> Step:
        """Park the calling actor until the schedule lets it go; see `Parking`."""
        if self._looking is not None:
            return self._looked(call)
        player = current_scene()
        if not isinstance(player, Player) or player.run is not self:
            raise InvalidInputError(
                source="schedule",
                problem="an engine call came from a thread that no actor is; make the thread's body an actor",
            )
        if player.is_killed:
            raise ActorKilledError
        player.calls += 1
        if player.calls > SCHEDULE_STEPS_MAX:
            raise AssertionError(
                f"actor {player.actor.name} has made {SCHEDULE_STEPS_MAX:,} calls; is it waiting for somebody?"
            )
        player.pending = call
        if wait is not None:
            self._can_wait = True
            player.wait = wait
            player.may_return_empty = call == "poll"
            # Why: from when on it waits is told by the clock, and this is where it looks.
            self._step.keys_read.add(CLOCK)
        player.baton.park()
        return self._begun(player, call, subject)

    def _begun(self, player: Player, call: str, subject: object) -> Step:
        step = self._step
        if player.wait is not None:
            step.has_waited = True
            step.take_in(player.wait.touched)
            player.wait = None
        step.call, step.subject, step.number = call, subject, player.calls
        if player.faults:
            step.fault = player.faults.get(player.calls, "")
            if step.fault == "f":
                step.outcome = EngineUnavailableError(engine="memory", problem=f"failed on purpose: {call}")
                raise step.outcome
        return step

    def look(self, condition: Callable[[], bool], step: Step) -> bool:
        """Ask a condition of the latest state: what it reads joins `step`, and none of its calls parks."""
        before, self._looking = self._looking, step
        try:
            return condition()
        finally:
            self._looking = before

    def _looked(self, call: str) -> Step:
        if call not in {"snapshot", "value", "fenced_value"}:
            raise InvalidInputError(source="actor_waits", problem=f"a condition reads; it must not call {call}")
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

    # ---- what came of it --------------------------------------------------------------------------------------------------

    def outcome(self) -> "Outcome":
        """Return what the actors answered and what is stored, to be judged."""
        return Outcome(self)


def current_player() -> Player:
    """Return the actor whose code this is. Raises InvalidInputError outside one."""
    scene = current_scene()
    if not isinstance(scene, Player):
        raise InvalidInputError(
            source="schedule", problem="only an actor of a scenario can call this, in its own thread"
        )
    return scene


def actor_waits(condition: Callable[[], bool]) -> None:
    """Wait, in an actor, until `condition` is true in the latest state. It may read through the actor's stores, no more.

    Raises InvalidInputError outside an actor, or when the condition writes.
    """
    player = current_player()
    run = player.run
    seen = Step(player.place)
    run.park("waits", None, wait=Wait(lambda: run.look(condition, seen), seen))


class Outcome:
    """What came of a run: for invariants, and for whoever replays a schedule.

    `store` (`stores`) reads and writes what the run left, uncontrolled, with the run's clock standing. `answers` and
    `errors` are by the actors' names; one that crashed has neither. `commits` are those that were acknowledged, in order.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.scenario: Final = run.scenario
        self.stores: Final[tuple[Store, ...]] = tuple(still_store(engine, run.clock) for engine in run.bare_engines())
        self.answers: Final[Mapping[str, Any]] = {
            player.actor.name: player.answer for player in run.players if player.is_over and player.error is None
        }
        self.errors: Final[Mapping[str, BaseException]] = {
            player.actor.name: player.error for player in run.players if player.error is not None
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
        return tuple(player.actor.name for player in self._run.players if player.has_crashed)

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
        """Return what comes of running these actors alone, one after the other, from the same set-up."""
        places = {name: place for place, name in enumerate(self.scenario.names)}
        run = Run(self.scenario, self._run.batons)
        run.begin([places[name] for name in names])
        while enabled := run.enabled():
            run.step(next((places[name] for name in names if places[name] in enabled), enabled[0]))
        run.end()
        return run.outcome()


def stored_in(memory: Memory) -> Stored:
    """Return key, value and lease of everything in a memory."""
    return tuple((entry.key, entry.value, entry.lease) for entry in memory.entries.scan(ALL_KEYS))
