"""One act on the registry: it reads one state, and all it writes goes out in one commit, with its entry of the audit log.

The entry's number is the registry's turn: it follows that of the last act in the state that was read, and the commit holds only
while nobody has it. So no two acts come from one state, and whatever an act has read of the registry (neighbours of a prefix,
free numbers, marks) is still true when it commits, without a guard for each. A loser has written nothing, and begins again.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from keyplan.engine import (
    Clock,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Guard,
    Put,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.keyspace.audit import FIRST_PREVIOUS, digest_of_entry
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.names import time_text
from keyplan.keyspace.prefixes import PREFIX_CODECS, PrefixCodec, prefix_codec
from keyplan.keyspace.records import AuditEntry, Configuration, Header
from keyplan.layout import Only
from keyplan.store import Backoff, Store, Transaction

__all__ = ["Act", "ActRunner", "codec_of", "configuration_of", "header_of"]

R = TypeVar("R")

ONLY: Final = Only()


def header_of(registry: KeySpaceRegistry) -> Header | None:
    """Return the registry's header, None where there is no registry."""
    return registry.header.get(ONLY)


def codec_of(header: Header | None) -> PrefixCodec:
    """Return how the registry with this header makes prefixes of numbers; None: how one that is made unasked would."""
    return prefix_codec(PREFIX_CODECS[0] if header is None else header.prefix_codec)


def configuration_of(registry: KeySpaceRegistry) -> Configuration:
    """Return the registry's switches."""
    return registry.configuration.get(ONLY) or Configuration()


@dataclass
class Act:
    """An act under way.

    All reads are of one state: `seen` makes nothing a premise, `registry` makes what it reads a premise and writes, `state` is
    for raw keys of data. `guards` and `mutations` join the commit.
    """

    seen: KeySpaceRegistry
    registry: KeySpaceRegistry
    state: Snapshot
    now: float
    number: int
    previous: str
    actor: str
    guards: list[Guard] = field(default_factory=list)
    mutations: list[Put | Delete | DeleteRange] = field(default_factory=list)
    noted: bool = False

    @property
    def at(self) -> str:
        """The time of the act, as the registry writes it."""
        return time_text(self.now)

    def note(self, act: str, name: str, detail: Mapping[str, Any] | None = None) -> None:
        """Write the act's entry of the audit log: once, and only when something is changed."""
        assert not self.noted, "an act has one entry"
        self.noted = True
        entry = AuditEntry(
            at=self.at, actor=self.actor, act=act, name=name, detail=dict(detail or {}), previous=self.previous
        )
        self.registry.audit.insert(self.number, entry)


class ActRunner:
    """Carries out acts on one store."""

    def __init__(self, store: Store, *, clock: Clock, actor: str, backoff: Backoff) -> None:
        self._store = store
        self._clock = clock
        self._actor = actor
        self._backoff = backoff

    @contextmanager
    def look(self) -> Generator[KeySpaceRegistry, None, None]:
        """Give the registry as of one state, for reading."""
        with self._store.snapshot() as pinned:
            yield KeySpaceRegistry(pinned)

    def run(self, work: Callable[[Act], R]) -> R:
        """Call `work`, commit what it wrote, return what it returned; again from the start when another act came first.

        Raises what `work` raises, and then nothing is written; CommitConflictError after too many lost races;
        CommitOutcomeUnknownError, never retried.
        """
        return self._backoff.until_committed(lambda: self._attempt(work))

    def _attempt(self, work: Callable[[Act], R]) -> R:
        engine = self._store.engine
        # Invariant: one state for everything. A decision that mixed two would not be undone by the turn that it loses.
        with engine.snapshot() as state, Transaction(_OneState(engine, state)) as transaction:
            seen = KeySpaceRegistry(Store(_OneState(engine, state)))
            number, previous = _turn_of(seen)
            act = Act(seen, KeySpaceRegistry(transaction), state, self._clock.wall(), number, previous, self._actor)
            answer = work(act)
            collected = transaction.collected()
            transaction.close()
        commit = Commit((*collected.guards, *act.guards), (*collected.mutations, *act.mutations))
        if commit.mutations:
            engine.commit(commit)
        return answer


class _OneState(WrappedEngine):
    """An engine that stands still: its latest state is the one given."""

    def __init__(self, inner: Engine, state: Snapshot) -> None:
        super().__init__(inner, closes_inner=False)
        self._state = state

    def snapshot(self) -> Snapshot:
        return _Kept(self._state)


class _Kept(WrappedSnapshot):
    """A snapshot that somebody else closes."""

    def close(self) -> None:
        pass


def _turn_of(seen: KeySpaceRegistry) -> tuple[int, str]:
    """Return the number of the next act, and the digest of the last."""
    for number, entry in seen.audit.list(limit=1, reverse=True):
        return number + 1, digest_of_entry(number, entry)
    return 1, FIRST_PREVIOUS
