"""Every schedule with at most so many preemptions, that is, switches away from an actor that could go on.

For scenarios that are too large to exhaust. Sleep sets are not used: with a bound they would leave traces out. A state that was
gone through before is left, instead: two runs in one state have the same future. An actor that is deterministic is at the same
place when its calls returned the same, and it saw the same time and revision where it looked at them. Revisions of entries are
named by the call that made them, since two orders of independent commits differ only in numbers.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from keyplan.engine import ALL_KEYS, Entry, FailedGuard, Memory
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.steps import REVISION_SEEN, Step
from keyplan.testing.schedules.traces import DivergedError, SearchStep, default_choice

__all__ = ["BoundedSearch", "StateKeys", "VisitedStates"]


_STATES_MAX: Final = 1_000_000
"""Digests of 16 bytes. Why: they take some 150 MB, and an exploration of minutes makes as many."""


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

    def choose(self, enabled: Sequence[int], steps: Sequence[SearchStep]) -> int | None:
        """Repeat the stack, then go on by the default choice; None at a state that was gone through."""
        depth = len(steps)
        if self._keys is not None and depth:
            self._keys.pass_state()
        if depth < len(self._stack):
            node = self._stack[depth]
            if node.chosen not in enabled:
                raise DivergedError(depth)
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

    def learn(self, steps: Sequence[SearchStep]) -> bool:
        """Compare the calls that were repeated, and go back to the deepest node with another choice. Raises DivergedError."""
        for depth, (node, step) in enumerate(zip(self._stack, steps, strict=False)):
            if node.call not in {"", step.call}:
                raise DivergedError(depth)
            node.call = step.call
        while self._stack:
            node = self._stack[-1]
            if node.left:
                node.chosen, node.call = node.left.pop(0), ""
                return True
            self._stack.pop()
        return False


class StateKeys:
    """Digests of the states that one recorded run goes through. `pass_state` is called after each of its steps."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._passed: list[list[Any]] = []
        """The entries of each memory after each step. They never change: an edit makes new ones."""
        self._contents: dict[int, bytes] = {}
        self._digests: dict[int, bytes] = {}

    def pass_state(self) -> None:
        """Keep what is stored after the latest step. Why of each: a snapshot of it may be read, or compared with, later."""
        self._passed.append([memory.entries for memory in self._run.memories])

    def key(self) -> bytes:
        """Return the digest of the state after the latest step."""
        digest = hashlib.blake2b(self._digest_of_memories(), digest_size=16)
        for player in self._run.actor_runs:
            digest.update(b"\x00%d" % player.place)
            for depth, step in enumerate(self._run.steps):
                if step.actor == player.place:
                    digest.update(self._digest_of_step(step, depth))
        return digest.digest()

    def _digest_of_step(self, step: Step, depth: int) -> bytes:
        known = self._digests.get(depth)
        if known is not None:
            return known
        is_open = step.open_snapshots > 0
        told = (step.call, step.number, _kind(step.outcome), self._named(_without_revisions(step)), is_open)
        digest = hashlib.blake2b(repr(told).encode(), digest_size=16)
        # Why the whole content: what will be read from an open snapshot is not known, and a guard that names its revision
        # compares with all that was stored then.
        if is_open or _has_seen_revision(step):
            digest.update(self._digest_of_content(depth))
        if not is_open and depth < len(self._run.steps) - 1:
            self._digests[depth] = digest.digest()
        return digest.digest()

    def _digest_of_content(self, depth: int) -> bytes:
        if depth not in self._contents:
            told = [[self._named(entry) for entry in entries.scan(ALL_KEYS)] for entries in self._passed[depth]]
            self._contents[depth] = hashlib.blake2b(repr(told).encode(), digest_size=16).digest()
        return self._contents[depth]

    def _digest_of_memories(self) -> bytes:
        told = [self._told_of(memory) for memory in self._run.memories]
        stored = self._digest_of_content(len(self._passed) - 1)
        return hashlib.blake2b(stored + repr((told, self._run.time)).encode(), digest_size=16).digest()

    def _told_of(self, memory: Memory) -> object:
        leases = [(lease, state.deadline, sorted(state.keys)) for lease, state in memory.leases.items()]
        return leases, memory.leases_granted

    def _named(self, told: object) -> object:
        """What was told, with each revision named by the call that made it."""
        if isinstance(told, Entry):
            names = self._run.revision_names
            created, modified = told.create_revision, told.mod_revision
            return (
                told.key,
                told.value,
                names.get(created, created),
                names.get(modified, modified),
                told.version,
                told.lease,
            )
        if isinstance(told, list | tuple):
            return [self._named(each) for each in told]
        return told


def _kind(outcome: object) -> object:
    """How a call ended. Why not the revision that it was told: it is known from the call that made it."""
    if isinstance(outcome, BaseException):
        failed = getattr(outcome, "facts", {}).get("failed", ())
        return type(outcome).__name__, [each.key for each in failed if isinstance(each, FailedGuard)]
    return outcome is not None


def _has_seen_revision(step: Step) -> bool:
    return any(method == REVISION_SEEN for method, _, _ in step.answers or ())


def _without_revisions(step: Step) -> object:
    """What was read, without numbers of revisions: two orders of independent commits differ in them alone."""
    return [answer for answer in step.answers or () if answer[0] != REVISION_SEEN]


class VisitedStates:
    """The states that were gone through, each with the most that could still be spent there."""

    def __init__(self) -> None:
        self._left: dict[bytes, int] = {}

    def is_covered(self, key: bytes, left: int) -> bool:
        """Whether the state was gone through with as much left; else note it. When the table is full, the older half goes."""
        known = self._left.get(key)
        if known is not None and known >= left:
            return True
        if len(self._left) >= _STATES_MAX:
            for old in list(self._left)[: _STATES_MAX // 2]:
                del self._left[old]
        self._left[key] = left
        return False
