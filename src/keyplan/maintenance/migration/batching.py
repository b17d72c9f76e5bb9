"""Decisions about many records: read from one snapshot, carried out in as few commits as the engine takes."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from keyplan.engine import (
    Commit,
    Delete,
    Engine,
    Guard,
    KeyAbsent,
    KeyUnchanged,
    Mutation,
    Put,
    ended_lease_is_conflict,
)
from keyplan.errors import CommitConflictError
from keyplan.maintenance.batches import Lookup, operations_max
from keyplan.maintenance.migration.merge import Contest, Decision, Outcome
from keyplan.maintenance.migration.run_state import RunState
from keyplan.store import Backoff

__all__ = ["Batches", "Decider"]

_BYTES_MAX: Final = 1 << 20
"""Why: below what every engine with a bound takes, etcd's 1.5 MiB being the least."""


class Decider(Protocol):
    """Says what to do about one record."""

    def keys_of(self, old_key: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        ...

    def decide(self, old_key: bytes, read: Lookup) -> Decision:
        """Say what to do about the record at an old raw key, from one snapshot."""
        ...


class Batches:
    """Decides about records, many in one snapshot, and commits what follows, many in one commit, for one run."""

    def __init__(self, engine: Engine, run: RunState, backoff: Backoff) -> None:
        self._engine = engine
        self._run = run
        self._backoff = backoff

    def decide(self, decider: Decider, old_keys: Sequence[bytes]) -> list[Decision]:
        """Decide about each record and carry it out; one by one where a writer came between."""
        with self._engine.snapshot() as snapshot:
            read = Lookup(snapshot)
            read.fetch(raw_key for old_key in old_keys for raw_key in decider.keys_of(old_key))
            decisions = [decider.decide(old_key, read) for old_key in old_keys]
        due = [(place, decision.commit) for place, decision in enumerate(decisions) if decision.commit is not None]
        for places, commit in _together(due, self._engine, read.epoch):
            try:
                self._commit(commit)
            except CommitConflictError:
                for place in places:
                    decisions[place] = self._one(decider, old_keys[place])
        return decisions

    def _one(self, decider: Decider, old_key: bytes) -> Decision:
        def attempt() -> Decision:
            with self._engine.snapshot() as snapshot:
                decision = decider.decide(old_key, Lookup(snapshot))
            if decision.commit is not None:
                self._commit(decision.commit)
            return decision

        try:
            return self._backoff.until_committed(attempt)
        except CommitConflictError:
            reason = "other writers came between again and again"
            return Decision(Outcome.CONTESTED, None, Contest(old_key, None, reason))

    def _commit(self, commit: Commit) -> None:
        with ended_lease_is_conflict():
            self._run.commit(commit)


def _together(due: Sequence[tuple[int, Commit]], engine: Engine, epoch: str) -> Iterator[tuple[list[int], Commit]]:
    """Join commits of one snapshot in order, as many as the engine takes at once; never two that write one key."""
    most = operations_max(engine.profile) - 1  # Why: the run's state is guarded as well.
    bytes_max = min(engine.profile.commit_bytes_max or _BYTES_MAX, _BYTES_MAX)
    places: list[int] = []
    guards: dict[Guard, None] = {}
    mutations: dict[bytes, Mutation] = {}
    size = 0

    def joined() -> tuple[list[int], Commit]:
        return places, Commit(tuple(guards), tuple(mutations.values()), epoch)

    for place, commit in due:
        own = {mutation.key: mutation for mutation in commit.mutations if isinstance(mutation, Put | Delete)}
        new_guards = [guard for guard in commit.guards if guard not in guards]
        own_size = sum(len(key) + len(getattr(mutation, "value", b"")) for key, mutation in own.items())
        own_size += sum(len(_key(guard)) for guard in new_guards)
        operations = len(guards) + len(mutations) + len(new_guards) + len(own)
        if places and (operations > most or size + own_size > bytes_max or own.keys() & mutations.keys()):
            yield joined()
            places, guards, mutations, size = [], {}, {}, 0
        places.append(place)
        guards.update(dict.fromkeys(commit.guards))
        mutations.update(own)
        size += own_size
    if places:
        yield joined()


def _key(guard: Guard) -> bytes:
    return guard.key if isinstance(guard, KeyAbsent | KeyUnchanged) else b""
