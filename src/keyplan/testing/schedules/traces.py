"""The exhaustive search: one schedule at least of each trace, that is, of those that differ by the order of independent steps.

Source sets say what is to be tried, sleep sets what need not be. Pure: it works on any steps with an actor, a name and a
footprint. It is stateless: each run is repeated from the beginning along the choices of the stack, and goes on by the default
choice, which is the actor of the step before as long as it can go on. So the first schedule is serial, and few switches come
first. docs/design/schedules.md says why no trace is left out.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from keyplan.testing.schedules.footprint import Footprint, HasFootprint, are_dependent, is_dependent_asleep

__all__ = ["DivergedError", "Race", "Search", "SearchStep", "TraceSearch", "default_choice", "races"]


class SearchStep(HasFootprint, Protocol):
    """A step as the search sees it: a footprint with an actor and the name of its call."""

    actor: int
    call: str
    has_waited: bool


class Search(Protocol):
    """Chooses who steps, run after run, until there is nothing left to try."""

    def choose(self, enabled: Sequence[int], steps: Sequence[SearchStep]) -> int | None:
        """Return which of the enabled actors steps after these steps; None cuts the run, which would show nothing new."""
        ...

    def learn(self, steps: Sequence[SearchStep]) -> bool:
        """Take in a run that was cut or has ended; return whether there is another to make. Raises DivergedError.

        After the steps that were made come those of actors that wait, which were not.
        """
        ...


class DivergedError(Exception):
    """A repeated run did not make the same calls. `depth` is the first step that differs."""

    def __init__(self, depth: int) -> None:
        super().__init__(depth)
        self.depth = depth


class _Node:
    """A state on the way of the current run: what can be done there, what is to be tried, what was."""

    __slots__ = ("backtrack", "calls", "chosen", "done", "enabled", "sleep")

    def __init__(self, enabled: Sequence[int], sleep: dict[int, HasFootprint], chosen: int) -> None:
        self.enabled = enabled
        self.sleep = sleep
        self.chosen = chosen
        self.backtrack = {chosen}
        self.done: dict[int, HasFootprint] = {}
        self.calls: dict[int, str] = {}

    def note(self, step: SearchStep, depth: int) -> None:
        """Keep the step that was chosen here, with what it read in all the runs so far."""
        known = self.done.get(step.actor)
        if known is None:
            self.calls[step.actor] = step.call
        elif self.calls[step.actor] != step.call:
            raise DivergedError(depth)
        elif step.was_left_open:
            # Why: what is read later from its snapshot may differ from run to run; whoever sleeps must know all of it.
            both = Footprint()
            both.take_in(known)
            both.take_in(step)
            self.done[step.actor] = both
            return
        self.done[step.actor] = step


def default_choice(enabled: Sequence[int], steps: Sequence[SearchStep]) -> int:
    """The actor of the step before while it can go on, else the first."""
    if steps and steps[-1].actor in enabled:
        return steps[-1].actor
    return enabled[0]


class TraceSearch:
    """Runs every trace at least once, as far as actors are deterministic and footprints complete."""

    def __init__(self) -> None:
        self._stack: list[_Node] = []
        self._depth = 0
        self.met: set[tuple[tuple[int, int], tuple[int, int]]] = set()
        """Pairs of dependent calls, each an actor and the name of its call's place, in the orders in which they were seen."""

    def choose(self, enabled: Sequence[int], steps: Sequence[SearchStep]) -> int | None:
        depth = len(steps)
        if depth < len(self._stack):
            chosen = self._stack[depth].chosen
            if chosen not in enabled:
                raise DivergedError(depth)
            return chosen
        sleep = self._sleep_below(steps[-1], depth - 1) if depth else {}
        awake = [actor for actor in enabled if actor not in sleep]
        if not awake:
            return None
        chosen = default_choice(awake, steps)
        self._stack.append(_Node(enabled, sleep, chosen))
        return chosen

    def _sleep_below(self, step: SearchStep, depth: int) -> dict[int, HasFootprint]:
        node = self._stack[depth]
        asleep = {**node.sleep, **{actor: done for actor, done in node.done.items() if actor != step.actor}}
        return {actor: done for actor, done in asleep.items() if not is_dependent_asleep(done, step)}

    def learn(self, steps: Sequence[SearchStep]) -> bool:
        for depth, (node, step) in enumerate(zip(self._stack, steps, strict=False)):
            node.note(step, depth)
        for race in races(steps):
            self._reverse(race, steps)
        while self._stack:
            node = self._stack[-1]
            left = [actor for actor in node.backtrack if actor not in node.done and actor not in node.sleep]
            if left:
                node.chosen = min(left)
                return True
            self._stack.pop()
        return False

    def _reverse(self, race: "Race", steps: Sequence[SearchStep]) -> None:
        """See to it that some schedule does the later step of a race, or what leads to it, first."""
        first, second = steps[race.first], steps[race.second]
        self.met.add(((first.actor, race.first_number), (second.actor, race.second_number)))
        node = self._stack[race.first]
        able = race.initials & set(node.enabled)
        if not able:
            node.backtrack.update(node.enabled)
        elif not able & node.backtrack:
            node.backtrack.add(second.actor if second.actor in able else min(able))


class Race:
    """Two dependent steps of different actors with nothing in between that orders them, by their places in the run.

    `initials` are the actors who could begin what leads to the second one without the first.
    """

    __slots__ = ("first", "first_number", "initials", "second", "second_number")

    def __init__(self, first: int, second: int, initials: set[int], numbers: tuple[int, int]) -> None:
        self.first = first
        self.second = second
        self.initials = initials
        self.first_number, self.second_number = numbers


def races(steps: Sequence[SearchStep]) -> Iterator[Race]:
    """Yield the races of a run."""
    count = len(steps)
    before: list[int] = []  # for each step the set of those that happen before it, as bits
    before_own: list[int] = []  # the same for the step of the same actor before it
    dependent: list[int] = []  # of those, the ones of other actors that it depends on itself
    numbers: list[int] = []
    seen: dict[int, int] = {}
    for later in range(count):
        step = steps[later]
        actor = step.actor
        numbers.append(seen.get(actor, 0) + 1)
        seen[actor] = numbers[-1]
        happened = own = at_own = 0
        for earlier in range(later - 1, -1, -1):
            other = steps[earlier]
            if other.actor == actor:
                happened |= before[earlier] | 1 << earlier
                at_own |= before[earlier] | 1 << earlier
            elif are_dependent(other, step):
                own |= 1 << earlier
                happened |= before[earlier] | 1 << earlier
        before.append(happened)
        before_own.append(at_own)
        dependent.append(own)
    for later in range(count):
        for earlier in _bits(dependent[later]):
            if steps[later].has_waited:
                # Why also those with something in between: that may be what let it go, and it could go before.
                if not before_own[later] >> earlier & 1:
                    yield Race(earlier, later, {steps[later].actor}, (numbers[earlier], numbers[later]))
                continue
            between = before[later] >> (earlier + 1)
            if not any(before[earlier + 1 + place] >> earlier & 1 for place in _bits(between)):
                initials = _initials(steps, before, earlier, later)
                yield Race(earlier, later, initials, (numbers[earlier], numbers[later]))


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _initials(steps: Sequence[SearchStep], before: Sequence[int], first: int, second: int) -> set[int]:
    way = [place for place in range(first + 1, second) if not before[place] >> first & 1] + [second]
    passed = 0
    actors: set[int] = set()
    initials: set[int] = set()
    for place in way:
        actor = steps[place].actor
        if actor not in actors:
            actors.add(actor)
            if not before[place] & passed:
                initials.add(actor)
        passed |= 1 << place
    return initials
