"""The state of a run as a digest: two runs in one state have the same future. For searches that may leave states out.

Revisions are named by the call that made them, since two orders of independent commits differ only in numbers. An actor that is
deterministic is at the same place when it was answered the same.
"""

import hashlib
from typing import Final

from keyplan.engine import ALL_KEYS, Entry, FailedGuard, Memory
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.steps import Step

__all__ = ["StateKeys", "VisitedStates"]

_STATES_MAX: Final = 1_000_000
"""Digests of 16 bytes. Why: they take some 150 MB, and an exploration of minutes makes as many."""


class StateKeys:
    """Digests of the states that one recorded run goes through, asked for after each of its steps."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stored: list[bytes] = []
        self._digests: dict[int, bytes] = {}

    def key(self) -> bytes:
        """Return the digest of the state after the latest step."""
        steps = self._run.steps
        stored = self._digest_of_memories()
        while len(self._stored) < len(steps):
            self._stored.append(stored)
        digest = hashlib.blake2b(stored, digest_size=16)
        for player in self._run.players:
            digest.update(b"\x00%d" % player.place)
            for depth, step in enumerate(steps):
                if step.actor == player.place:
                    digest.update(self._digest_of_step(step, depth))
        return digest.digest()

    def _digest_of_step(self, step: Step, depth: int) -> bytes:
        known = self._digests.get(depth)
        if known is not None:
            return known
        is_open = step.open_snapshots > 0
        # Why the whole state for an open snapshot: what will be read from it is not known.
        told = (step.call, step.number, _kind(step.outcome), self._named(step.answers), is_open)
        digest = hashlib.blake2b(repr(told).encode(), digest_size=16)
        if is_open:
            digest.update(self._stored[depth])
        elif depth < len(self._run.steps) - 1:
            self._digests[depth] = digest.digest()
        return digest.digest()

    def _digest_of_memories(self) -> bytes:
        told = [self._told_of(memory) for memory in self._run.memories]
        return hashlib.blake2b(repr((told, self._run.time)).encode(), digest_size=16).digest()

    def _told_of(self, memory: Memory) -> object:
        entries = [self._named(entry) for entry in memory.entries.scan(ALL_KEYS)]
        leases = [(lease, state.deadline, sorted(state.keys)) for lease, state in memory.leases.items()]
        return entries, leases, memory.leases_granted

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
