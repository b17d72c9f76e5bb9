"""What is explored: actors, what they begin with, and what must hold."""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from keyplan.engine import ALL_KEYS, MEMORY_PROFILE, Memory, MemoryEngine, Profile, Snapshot
from keyplan.errors import (
    AlreadyExistsError,
    ConflictError,
    IndexNotReadyError,
    InvalidInputError,
    LeaseNotFoundError,
    NotFoundError,
    UniqueViolationError,
)
from keyplan.layout import BoundLayout, Layout
from keyplan.limits import SCHEDULE_ACTORS_MAX
from keyplan.testing.faults import FakeClock
from keyplan.testing.schedules.faults import FAULT_LETTERS
from keyplan.testing.schedules.surroundings import (
    ExplorerContext,
    controlled_surroundings,
    in_context,
    threadless_store,
)

__all__ = ["ACTOR_ERRORS", "Actor", "Invariant", "Scenario", "Template", "actor", "bound_of"]

Invariant: TypeAlias = Callable[[Any], object]
"""A function of an Outcome that raises AssertionError."""

ACTOR_ERRORS: Final[tuple[type[BaseException], ...]] = (
    ConflictError,
    NotFoundError,
    AlreadyExistsError,
    UniqueViolationError,
    LeaseNotFoundError,
    IndexNotReadyError,
)
"""What an actor may raise as a rule; CommitOutcomeUnknownError, too, where such a fault is planned."""

_FAULTS_MAX: Final = 2
"""Why: more faults at once are more variants than can be explored."""


@dataclass(frozen=True)
class Actor:
    """A function of the scenario's stores, with a name. Make it with `actor`."""

    function: Callable[..., object]
    name: str
    answers: bool = False
    """Whether its answer is compared by `as_in_some_order`."""
    after_crash_of: str = ""
    """The name of the actor that must have crashed before this one begins; it is left out when that one ends."""
    renews: str = ""
    """The name of the actor whose leases it renews: what either of them does, the other may see."""
    passes_time: bool = False
    """Whether it lets time pass: then it matters to the others when they look at the clock for the first time."""


def actor(function: Callable[..., object], name: str | None = None, *, answers: bool = False) -> Actor:
    """Name a function of a store (of several stores, where the scenario has several engines) that is run beside others.

    It is called once in each run, with a store of its own, and binds layouts as the application does. `answers`: what it
    returns is compared, too. Raises InvalidInputError for an asynchronous function and for a name that is no name.
    """
    if inspect.iscoroutinefunction(function):
        raise InvalidInputError(
            source="actor", problem="asynchronous functions are not run; explore the same code on a synchronous store"
        )
    made = name or getattr(function, "__name__", "") or "actor"
    if not made.isprintable() or not made.strip():
        raise InvalidInputError(source="actor", problem=f"{made!r} is no name: use one line of printable characters")
    return Actor(function, "actor" if made == "<lambda>" else made, answers)


@dataclass(frozen=True, eq=False)
class Template:
    """The state that each run begins with. Runs copy it; nothing changes it."""

    memories: tuple[Memory, ...]
    clock: FakeClock
    profile: Profile


class Scenario:
    """Actors beside one another on one store, what is stored before, and what must hold after each run.

    `setup` is a function of the store (of the stores). `layouts` are for the default invariant `healthy` and for the names in
    reports; `invariants` None: `healthy` of the layouts. `only_raises` are the errors that an actor may end with. `faults`
    names actors and the letters of their faults, `{"build": "cu"}`, or gives letters for all; at most `faults_max` in a
    run. `revisions_matter`: an actor returns or stores numbers of revisions, so that the order of any two commits can be
    seen; a scenario that watches or compacts is taken so by itself. `may_wait_forever`: an actor may wait for what nobody
    does. The memory engine refuses what `profile` does not allow.

    Actors of one name are numbered, `#1`, `#2`. Raises InvalidInputError without an actor, with more than 8, where two are
    called alike even so, for an actor that belongs to one that is not there, an unknown fault, and a number out of bounds.
    """

    def __init__(
        self,
        *actors: Actor | Callable[..., object],
        setup: Callable[..., object] | None = None,
        layouts: Sequence[type[Layout] | BoundLayout] = (),
        invariants: Sequence[Invariant] | None = None,
        only_raises: tuple[type[BaseException], ...] = ACTOR_ERRORS,
        faults: Mapping[str, str] | str = "",
        faults_max: int = 1,
        engines: int = 1,
        revisions_matter: bool = False,
        may_wait_forever: bool = False,
        profile: Profile = MEMORY_PROFILE,
    ) -> None:
        if not 1 <= len(actors) <= SCHEDULE_ACTORS_MAX:
            raise InvalidInputError(
                source="scenario", problem=f"it has {len(actors)} actors; give it 1 to {SCHEDULE_ACTORS_MAX}"
            )
        if not 1 <= engines <= SCHEDULE_ACTORS_MAX:
            raise InvalidInputError(
                source="scenario", problem=f"it has {engines} engines; give it 1 to {SCHEDULE_ACTORS_MAX}"
            )
        if not 1 <= faults_max <= _FAULTS_MAX:
            raise InvalidInputError(
                source="scenario", problem=f"faults_max is {faults_max}; give it 1 to {_FAULTS_MAX} faults in a run"
            )
        self.actors = _numbered([each if isinstance(each, Actor) else actor(each) for each in actors])
        self.setup = setup
        self.layouts = tuple(bound_of(layout) for layout in layouts)
        self.invariants = invariants
        self.only_raises = only_raises
        self.faults = self._letters(faults)
        self.faults_max = faults_max
        self.engines = engines
        self.revisions_matter = revisions_matter
        self.may_wait_forever = may_wait_forever
        self.profile = profile

    def _letters(self, faults: Mapping[str, str] | str) -> dict[int, str]:
        given = {one.name: faults for one in self.actors} if isinstance(faults, str) else dict(faults)
        places = {one.name: place for place, one in enumerate(self.actors)}
        for name, letters in given.items():
            if name not in places:
                raise InvalidInputError(
                    source="faults", problem=f"no actor is called {name!r}: use {', '.join(places)}"
                )
            if strange := set(letters) - set(FAULT_LETTERS):
                raise InvalidInputError(
                    source="faults", problem=f"{min(strange)!r} is no fault: use letters of {FAULT_LETTERS}"
                )
        return {places[name]: letters for name, letters in given.items() if letters}

    @property
    def names(self) -> tuple[str, ...]:
        """The actors' names, in order."""
        return tuple(one.name for one in self.actors)

    @cached_property
    def template(self) -> Template:
        """What the set-up leaves. Raises what the set-up raises."""
        clock = FakeClock()
        # Why the stores are made there, too: the name that each gets is to be the same in every process.
        with controlled_surroundings(), in_context(ExplorerContext(clock)):
            engines = [MemoryEngine(clock=clock, profile=self.profile) for _ in range(self.engines)]
            if self.setup is not None:
                self.setup(*[threadless_store(engine, clock) for engine in engines])
        memories = tuple(engine.memory for engine in engines)
        return Template(memories, copy(clock), self.profile)

    @cached_property
    def digest(self) -> str:
        """Eight hex digits of the actors' names and the set-up: what a schedule's string belongs to."""
        lines = ["kps1", *self.names, str(self.engines)]
        for memory in self.template.memories:
            with MemoryEngine(shared=memory).snapshot() as snapshot:
                lines.append(_digest_of(snapshot))
        return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()[:8]


def bound_of(layout: "type[Layout] | BoundLayout") -> BoundLayout:
    """Return the layout under its root: that of its parameters' defaults, for a class."""
    return layout.bound() if isinstance(layout, type) else layout


def _digest_of(snapshot: Snapshot) -> str:
    digest = hashlib.sha256()
    for entry in snapshot.scan(ALL_KEYS):
        for part in (entry.key, entry.value):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update(entry.lease.to_bytes(8, "big"))
    return digest.hexdigest()


def _numbered(actors: list[Actor]) -> tuple[Actor, ...]:
    """Tell apart actors of one name by #1, #2, ..."""
    names = [each.name for each in actors]
    counts: dict[str, int] = {}
    numbered = []
    for each in actors:
        counts[each.name] = counts.get(each.name, 0) + 1
        name = f"{each.name}#{counts[each.name]}" if names.count(each.name) > 1 else each.name
        numbered.append(replace(each, name=name))
    for name in (made := [each.name for each in numbered]):
        if made.count(name) > 1:
            raise InvalidInputError(source="scenario", problem=f"two actors are called {name!r}: give them other names")
    for each in numbered:
        for other in filter(None, (each.after_crash_of, each.renews)):
            if other not in made:
                problem = f"{each.name!r} belongs to {other!r}, and no actor is called that: use {', '.join(made)}"
                raise InvalidInputError(source="scenario", problem=problem)
    return tuple(numbered)
