"""Every schedule with at most so many preemptions, that is, switches away from an actor that could go on.

For what is too large to exhaust. Sleep sets are not used: with a bound they would leave traces out.
"""

from collections.abc import Sequence

from keyplan.testing.schedules.hashing import StateKeys, VisitedStates
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.traces import DepartedError, Seen, default_choice

__all__ = ["BoundedSearch"]


class _Node:
    __slots__ = ("call", "chosen", "left", "previous", "spent")

    def __init__(self, chosen: int, left: list[int], spent: int, previous: int | None) -> None:
        self.chosen = chosen
        self.call = ""
        """What `chosen` called here, once it was run."""
        self.left = left
        self.spent = spent
        """Preemptions before this node."""
        self.previous = previous
        """The actor of the step before, if it could go on: any other choice is a preemption."""

    @property
    def spent_by_choice(self) -> int:
        """Preemptions before this node, and at it."""
        return self.spent + (self.previous is not None and self.chosen != self.previous)


class BoundedSearch:
    """A depth-first search that spends at most `preemptions`. With `is_hashed` it leaves states that it knows."""

    def __init__(self, preemptions: int, *, is_hashed: bool = True) -> None:
        self._preemptions = preemptions
        self._stack: list[_Node] = []
        self._visited = VisitedStates() if is_hashed else None
        self._keys: StateKeys | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether runs must be recorded for it."""
        return self._visited is not None

    def attend(self, run: Run) -> None:
        """Take note of the run that begins."""
        # Why not with watches: their history is a part of the state that no digest holds.
        self._keys = StateKeys(run) if self._visited is not None and not run.revisions_matter else None

    def choose(self, enabled: Sequence[int], steps: Sequence[Seen]) -> int | None:
        """Repeat the stack, then go on by the default choice; None at a state that was gone through."""
        depth = len(steps)
        if depth < len(self._stack):
            node = self._stack[depth]
            if node.chosen not in enabled:
                raise DepartedError(depth)
            return node.chosen
        spent = self._stack[-1].spent_by_choice if self._stack else 0
        if self._visited is not None and self._keys is not None and depth:
            key = self._keys.key() + b"%d" % steps[-1].actor
            if self._visited.is_covered(key, self._preemptions - spent):
                return None
        chosen = default_choice(enabled, steps)
        previous = chosen if steps and steps[-1].actor == chosen else None
        others = [each for each in enabled if each != chosen]
        self._stack.append(
            _Node(chosen, others if previous is None or spent < self._preemptions else [], spent, previous)
        )
        return chosen

    def learn(self, steps: Sequence[Seen]) -> bool:
        """Compare the calls that were repeated, and go back to the deepest node with another choice. Raises DepartedError."""
        for depth, (node, step) in enumerate(zip(self._stack, steps, strict=False)):
            if node.call not in {"", step.call}:
                raise DepartedError(depth)
            node.call = step.call
        while self._stack:
            node = self._stack[-1]
            if node.left:
                node.chosen, node.call = node.left.pop(0), ""
                return True
            self._stack.pop()
        return False
