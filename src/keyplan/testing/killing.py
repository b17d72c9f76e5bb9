"""Jobs that are killed at each of their engine calls and given again: nothing is lost, nothing is left open.

    check_kills(KillScenario(build_tags, setup=two_records, beside=insert_a_record, holds=is_whole))

A job is a function of the scenario's stores that takes many commits. It is ended at each call in each way (`Ending`), and given
again by another process: new stores over the same engines. The end has to be what a run leaves that nobody ended, before or
after what an application wrote meanwhile. The engines are memories; clock, pauses and random bytes are controlled, so that each
run is the same each time.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from keyplan.engine import (
    ALL_KEYS,
    MEMORY_PROFILE,
    NO_LEASE,
    Engine,
    Event,
    KeyRange,
    Memory,
    MemoryEngine,
    Profile,
    Watch,
)
from keyplan.errors import CommitOutcomeUnknownError, ConflictError
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine, FakeClock
from keyplan.testing.schedules.surroundings import (
    SEED_OF_JUDGES,
    ExplorerContext,
    controlled_surroundings,
    in_context,
    threadless_store,
)

__all__ = [
    "Ending",
    "KillFailure",
    "KillReport",
    "KillScenario",
    "ProcessEndedError",
    "check_kills",
    "everything_stored",
]


class ProcessEndedError(BaseException):
    """The process is over. No Exception: nothing that handles errors may go on."""


class Ending(Enum):
    """What happens to a job at one of its steps. Steps: see `FailingEngine`; those after a write lose its answer."""

    KILLED = "killed"
    """Its process is over: whatever it does afterwards, in `finally`, reaches no engine any more."""
    INTERRUPTED = "interrupted"
    """An exception passes through it, as by Ctrl-C: what it does in `finally` is carried out."""
    UNKNOWN = "the outcome unknown"
    """A commit raises CommitOutcomeUnknownError: before it, nothing was carried out; after it, everything."""
    MET = "met by the application"
    """Nobody ends it, and the application writes there."""

    def fits(self, step: str) -> bool:
        """Return whether it can happen at a step of that name."""
        return self is not Ending.UNKNOWN or step.endswith(("commit", "before put_sorted", "after put_sorted"))


def everything_stored(*stores: Store) -> object:
    """Return each engine's keys with their values, and whether they hang on a lease."""
    return [{entry.key: (entry.value, entry.lease != NO_LEASE) for entry in _entries(store.engine)} for store in stores]


def _entries(engine: Engine) -> list[Any]:
    with engine.snapshot() as snapshot:
        return list(snapshot.scan(ALL_KEYS))


def _nothing_more(*_stores: Store) -> None:
    """Hold always."""


@dataclass(frozen=True, kw_only=True)
class KillScenario:
    """A job, what is stored before, and what must hold when it has come to its end. Each function is given all stores.

    `beside` is what an application writes when the job is ended; what it was told of must be there at the end. `holds` raises
    AssertionError. `compared` returns what must be equal to an undisturbed run: leave out what is random, and nothing else.
    `told` are errors with which the job, given again, may say that it was carried out already; `only_raises` those with which
    it may end when it meets another writer, or when an outcome is unknown. `passes_seconds`: how much time passes before it is
    given again, for what hangs on a dead process's lease. `is_refused`: the application may be refused while the job goes on;
    then the end is that of a run without it, and `holds` says what it was told. `step_seconds`: how long each engine call
    takes, for jobs that write from time to time how far they are.
    """

    job: Callable[..., object]
    setup: Callable[..., object]
    beside: Callable[..., object] | None = None
    holds: Callable[..., object] = _nothing_more
    compared: Callable[..., object] = everything_stored
    told: tuple[type[BaseException], ...] = ()
    only_raises: tuple[type[BaseException], ...] = (ConflictError,)
    passes_seconds: float = 0.0
    is_refused: bool = False
    step_seconds: float = 0.0
    engines: int = 1
    profile: Profile = MEMORY_PROFILE


class KillReport(NamedTuple):
    """What `check_kills` did: the steps of the job, the variants that were run, the different states that ends left."""

    steps: tuple[str, ...]
    variants: int
    states: int


class KillFailure(AssertionError):  # noqa: N818  # Why: it is a test that failed, and is called so.
    """A job that was ended somewhere did not come to the end of an undisturbed run. Its text names the step."""


def check_kills(scenario: KillScenario, *, seconds_each: int | None = 1) -> KillReport:
    """End the job at each of its steps in each way, and demand that it comes to its end when it is given again.

    `seconds_each`: at how many steps the job given again is killed, too, for each state that a first end left; None: at all.
    Raises KillFailure with the first variant that does not hold.
    """
    with controlled_surroundings():
        return _Kills(scenario, seconds_each).run()


# ---- processes -------------------------------------------------------------------------------------------------------


class _Process:
    """One process that the job is given by: its stores, and the step at which something happens to it."""

    def __init__(
        self,
        world: "_World",
        number: int,
        *,
        at_step: int = 0,
        ending: Ending = Ending.KILLED,
        before: "dict[int, _World] | None" = None,
    ) -> None:
        self._world = world
        self._before = before
        self._number = number
        self._at_step = at_step
        self._ending = ending
        self._is_over = False
        self.steps: list[str] = []

    def is_failing(self, step: str) -> bool:
        if self._is_over:
            return True
        self.steps.append(step)
        self._world.pass_a_step()
        # Why not within a write: what half of it leaves comes of carrying it out.
        if self._before is not None and not step.startswith("within"):
            self._before[len(self.steps)] = self._world.copied()
        if len(self.steps) != self._at_step:
            return False
        if self._ending is Ending.MET:
            self._world.write_beside()
            return False
        self._is_over = self._ending is Ending.KILLED
        return True

    def failure(self, mutations: int) -> BaseException:
        if self._ending is Ending.UNKNOWN and not self._is_over:
            return CommitOutcomeUnknownError(engine="memory", mutations=mutations)
        return ProcessEndedError()

    def give(self, job: Callable[..., object]) -> BaseException | None:
        """Give the job; return what it raised."""
        engines = [_EndingEngine(engine, self) for engine in self._world.engines()]
        stores = [threadless_store(engine, self._world.clock) for engine in engines]
        with in_context(ExplorerContext(self._world.clock, self._number)):
            try:
                job(*stores)
            except (Exception, ProcessEndedError) as error:  # noqa: BLE001  # Why: whatever it is, it is judged.
                return error
        return None


class _EndingEngine(FailingEngine):
    """An engine of a process that may be over."""

    def __init__(self, inner: Engine, process: _Process) -> None:
        super().__init__(inner)
        self._process = process

    def is_failing(self, name: str) -> bool:
        return self._process.is_failing(name)

    def failure(self, name: str) -> BaseException:
        return self._process.failure(0)

    def lost_answer(self, mutations: int) -> BaseException:
        return self._process.failure(mutations)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return _ImpatientWatch(super().watch(key_range, after=after))

    def close(self) -> None:
        # Why not the engine inside: the memory is everybody's, and other processes have engines of their own.
        """Leave the memory to the others."""


class _ImpatientWatch:
    """A watch that waits for nothing. Why: nobody else runs while a process does."""

    def __init__(self, inner: Watch) -> None:
        self._inner = inner

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        return self._inner.poll(0.0)

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()


class _World:
    """The memories of one run, and the application beside the job."""

    def __init__(self, scenario: KillScenario, memories: Sequence[Memory], clock: FakeClock) -> None:
        self._scenario = scenario
        self.clock = copy(clock)
        self.memories = [memory.copy(self.clock) for memory in memories]
        self.is_written_beside = False

    def engines(self) -> list[Engine]:
        return [MemoryEngine(shared=memory, profile=self._scenario.profile) for memory in self.memories]

    def stores(self) -> list[Store]:
        return [threadless_store(engine, self.clock) for engine in self.engines()]

    def copied(self) -> "_World":
        twin = _World(self._scenario, self.memories, self.clock)
        twin.is_written_beside = self.is_written_beside
        return twin

    def pass_a_step(self) -> None:
        self.clock.advance(self._scenario.step_seconds)

    def write_beside(self) -> None:
        if self._scenario.beside is not None and not self.is_written_beside:
            self.is_written_beside = True
            with in_context(ExplorerContext(self.clock, _APPLICATION)):
                self._scenario.beside(*self.stores())

    @property
    def state(self) -> object:
        """What a process that begins now could see."""
        stores = tuple(
            (memory.revision, tuple(_entries(engine)), tuple(sorted(memory.leases)))
            for memory, engine in zip(self.memories, self.engines(), strict=True)
        )
        return stores, self.clock.wall(), self.is_written_beside


_APPLICATION: Final = 254
_LAST: Final = 100
"""The seeds of what is no process that is ended."""


# ---- the variants ----------------------------------------------------------------------------------------------------


class _Variant(NamedTuple):
    """What happens to a process at one of its steps."""

    step: int
    name: str
    ending: Ending

    def __str__(self) -> str:
        return f"{self.ending.value} at step {self.step}, {self.name}"


class _Beside(Enum):
    """When the application writes, where nobody ends the job."""

    BEFORE = "before"
    AFTER = "after"


class _Kills:
    def __init__(self, scenario: KillScenario, seconds_each: int | None) -> None:
        self._scenario = scenario
        self._seconds_each = seconds_each
        self._clock = FakeClock()
        with in_context(ExplorerContext(self._clock)):
            engines = [MemoryEngine(clock=self._clock, profile=scenario.profile) for _ in range(scenario.engines)]
            scenario.setup(*[threadless_store(engine, self._clock) for engine in engines])
        self._memories = [engine.memory for engine in engines]
        self._variants = 0
        self._judged: dict[object, tuple[str, ...]] = {}
        """The steps of the job given again, by the state that it found."""
        self._killed_again: set[object] = set()
        self._before: dict[int, _World] = {}
        """What is stored before each step: all that a process leaves that is killed there."""

    def run(self) -> KillReport:
        steps, found = self._undisturbed()
        beside = [] if self._scenario.beside is None else [self._undisturbed(when)[1] for when in _Beside]
        if self._scenario.is_refused:
            beside.append(found)
        for ending in Ending:
            for variant in _variants(steps, ending):
                if ending is not Ending.MET:
                    ended = self._ended(variant)
                    self._judge(variant, ended, str(variant), [found])
                    if beside:
                        ended.write_beside()
                        self._judge(variant, ended, f"{variant}, then the application writes", beside)
                elif beside:
                    self._judge(variant, self._ended(variant), str(variant), beside)
        return KillReport(tuple(steps), self._variants, len(self._judged))

    def _world(self) -> _World:
        return _World(self._scenario, self._memories, self._clock)

    def _undisturbed(self, beside: "_Beside | None" = None) -> tuple[list[str], object]:
        """Run the job alone, or before or after the application; return its steps, and what is stored then."""
        world = self._world()
        if beside is _Beside.BEFORE:
            world.write_beside()
        process = _Process(world, 1, before=self._before if beside is None else None)
        error = process.give(self._scenario.job)
        if beside is _Beside.AFTER:
            world.write_beside()
        if error is not None:
            raise KillFailure("the job does not come to its end though nobody ends it") from error
        return process.steps, self._found(world, "undisturbed")

    def _ended(self, variant: _Variant) -> _World:
        """Return what is left when the variant happens to the first process."""
        if variant.ending is Ending.KILLED and variant.step in self._before:
            self._variants += 1
            return self._before[variant.step].copied()
        world = self._world()
        self._end(world, variant, number=1, told=str(variant))
        return world

    def _judge(self, variant: _Variant, world: _World, told: str, wanted: list[object]) -> None:
        """Give the job again, and again after that one is killed, too."""
        late = world.copied()
        late.clock.advance(self._scenario.passes_seconds)
        steps = self._given_again(late, told, wanted)
        if late.state in self._killed_again:
            return
        self._killed_again.add(late.state)
        for second in self._seconds(steps, variant.step):
            again = late.copied()
            told_twice = f"{told}; then {second}"
            self._end(again, second, number=2, told=told_twice)
            again.clock.advance(self._scenario.passes_seconds)
            self._given_again(again, told_twice, wanted)

    def _seconds(self, steps: Sequence[str], first: int) -> list[_Variant]:
        """Return at which steps of the second process it is killed."""
        every = list(_variants(steps, Ending.KILLED))
        if self._seconds_each is None or len(every) <= self._seconds_each:
            return every
        # Why so: the steps are spread, and the same each time.
        return [every[(first * 7 + number * 11) % len(every)] for number in range(self._seconds_each)]

    def _end(self, world: _World, variant: _Variant, *, number: int, told: str) -> None:
        """Give the job, and let it end as the variant says."""
        self._variants += 1
        process = _Process(world, number, at_step=variant.step, ending=variant.ending)
        error = process.give(self._scenario.job)
        allowed: tuple[type[BaseException], ...] = (ProcessEndedError,)
        if variant.ending in {Ending.UNKNOWN, Ending.MET}:
            allowed = (CommitOutcomeUnknownError, *self._scenario.only_raises)
        if error is not None and not isinstance(error, allowed):
            raise KillFailure(f"{told}: it ended otherwise, with {type(error).__name__}: {error}") from error

    def _given_again(self, world: _World, told: str, wanted: list[object]) -> tuple[str, ...]:
        """Give the job to its end in a copy of the world, once for each state; return its steps."""
        state = world.state
        if state in self._judged:
            return self._judged[state]
        ended = world.copied()
        process = _Process(ended, _LAST)
        error = process.give(self._scenario.job)
        if error is not None and not isinstance(error, self._scenario.told):
            raise KillFailure(f"{told}: given again it does not end: {type(error).__name__}: {error}") from error
        found = self._found(ended, told)
        if found not in wanted:
            raise KillFailure(f"{told}: given again it leaves something else:\n{_difference(found, wanted)}")
        self._judged[state] = tuple(process.steps)
        return self._judged[state]

    def _found(self, world: _World, told: str) -> object:
        with in_context(ExplorerContext(world.clock, SEED_OF_JUDGES)):
            stores = world.stores()
            try:
                self._scenario.holds(*stores)
            except AssertionError as error:
                raise KillFailure(f"{told}: {error}") from error
            return self._scenario.compared(*stores)


def _variants(steps: Sequence[str], ending: Ending) -> Iterator[_Variant]:
    yield from (_Variant(place, name, ending) for place, name in enumerate(steps, start=1) if ending.fits(name))


def _difference(found: object, wanted: list[object]) -> str:
    """Return what is there and should not be, and the other way round, against each end that is wanted."""
    lines = []
    for one in wanted:
        have, want = _flat(found), _flat(one)
        lines += [f"  there: {line}" for line in have if line not in want]
        lines += [f"  wanted: {line}" for line in want if line not in have]
        lines.append("")
    return "\n".join(lines)


def _flat(found: object) -> list[str]:
    if isinstance(found, dict):
        return [f"{key!r}: {value!r}" for key, value in found.items()]
    if isinstance(found, list | tuple):
        return [line for part in found for line in _flat(part)]
    return [repr(found)]
