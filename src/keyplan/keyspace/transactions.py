"""One act on the registry: it reads one state, and all it writes goes out in one commit, with its entry of the audit log.

The entry's number is the registry's turn: it follows that of the last act in the state that was read, and the commit holds only
while nobody has it. So no two acts come from one state, and whatever an act has read of the registry (neighbours of a prefix,
free numbers, marks) is still true when it commits, without a guard for each. A loser has written nothing, and begins again.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
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
from keyplan.errors import CommitConflictError, CorruptionError, InvalidArgumentError
from keyplan.keyspace.audit import FIRST_PREVIOUS, digest_of_entry, digest_of_unread
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.names import time_text
from keyplan.keyspace.prefixes import PREFIX_CODECS, PrefixCodec, prefix_codec
from keyplan.keyspace.records import AuditEntry, AuditHead, Configuration, Fence, Header, KeySpaceRecord
from keyplan.keyspace.rows import rows_of, value_of
from keyplan.layout import Only
from keyplan.operations import Change
from keyplan.store import Backoff, Store, Transaction

__all__ = ["RegistryTransaction", "RegistryTransactions", "codec_of", "configuration_of", "header_of", "registry_in"]

R = TypeVar("R")

ONLY: Final = Only()

_ADVICE: Final = "`keyplan doctor --repair` makes it again from the audit log, where that can be"

_NUMBER_MAX: Final = 1 << 62
"""Why: acts are counted from 1; an entry far beyond is not ours, and must not use the numbers up."""


def header_of(registry: KeySpaceRegistry) -> Header | None:
    """Return the registry's header, None where there is no registry.

    Raises CorruptionError where there is one that has lost its header: a lost one is never taken for none.
    """
    header = registry.header.get(ONLY)
    if header is None and _has_traces(registry):
        raise _lost_header()
    return header


def _lost_header() -> CorruptionError:
    return CorruptionError(problem="the registry of key spaces has lost its header", advice=_ADVICE)


def _has_traces(registry: KeySpaceRegistry) -> bool:
    views = (registry.records, registry.holders, registry.fences, registry.audit)
    return any(True for view in views for _ in view.keys(limit=1))


def codec_of(header: Header | None) -> PrefixCodec:
    """Return how the registry with this header makes prefixes of numbers; None: how one that is made unasked would.

    Raises CorruptionError for a code that there is not.
    """
    if header is None:
        return prefix_codec(PREFIX_CODECS[0])
    try:
        return prefix_codec(header.prefix_codec)
    except InvalidArgumentError as error:
        problem = f"the registry's header names the prefix code {header.prefix_codec!r}"
        raise CorruptionError(problem=problem, advice=_ADVICE) from error


def configuration_of(registry: KeySpaceRegistry) -> Configuration:
    """Return the registry's switches; as they are by default where there is no registry.

    Raises CorruptionError for a registry that has lost them: they are written when it is made.
    """
    configuration = registry.configuration.get(ONLY)
    if configuration is None and header_of(registry) is not None:
        raise CorruptionError(problem="the registry of key spaces has lost its switches", advice=_ADVICE)
    return configuration or Configuration()


def registry_in(engine: Engine, state: Snapshot) -> KeySpaceRegistry:
    """Return the registry as of a state of the engine, for reading. The state stays the caller's to close."""
    return KeySpaceRegistry(Store(_OneState(engine, state)))


@dataclass
class RegistryTransaction:
    """One act on the registry, under way.

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

    def join(self, commit: Commit) -> None:
        """Add a commit to the act's. Raises CommitConflictError when its guards are of an epoch that is over."""
        if commit.epoch and commit.epoch != self.state.epoch:
            raise CommitConflictError(failed=())
        self.guards += commit.guards
        self.mutations += commit.mutations

    def note(self, change: Change, detail: Mapping[str, Any], *, name: str = "") -> None:
        """Write the act's entry of the audit log: once, and only when something is changed."""
        assert not self.noted, "an act has one entry"
        self.noted = True
        entry = AuditEntry(
            at=self.at,
            actor=self.actor,
            act=change.act,
            name=change.subject_of({"name": name}),
            detail=dict(detail),
            previous=self.previous,
        )
        self.registry.audit.insert(self.number, entry)
        # Why not through the view: it would read the head that is there, and a damaged one would stop every act.
        self.write("audit_head", ONLY, AuditHead(number=self.number, digest=digest_of_entry(self.number, entry)))

    def fence_of(self, record: KeySpaceRecord) -> Fence:
        """Return the fence that is due by a record. Raises CorruptionError where neither fence nor header says whose it is."""
        # Why the fence first, and the header for a damaged one: neither keeps anybody from disabling or deleting.
        try:
            known: Fence | Header | None = self.registry.fences.get(record.name)
        except CorruptionError:
            known = None
        known = known or header_of(self.registry)
        if known is None:
            raise _lost_header()
        return Fence(record.generation, record.state, known.cluster)

    def write(self, table: str, key: object, value: object | None) -> None:
        """Put a value at a key of a table of the registry, or remove it (None), whatever is there: readable or not."""
        bound = KeySpaceRegistry.bound().tables[table]
        raw_key = bound.keys.encode(key)
        self.mutations.append(Delete(raw_key) if value is None else Put(raw_key, bound.form.encode(value)))


class RegistryTransactions:
    """Runs transactions on the registry of one store."""

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

    def run(self, work: Callable[[RegistryTransaction], R]) -> R:
        """Call `work`, commit what it wrote, return what it returned; again from the start when another act came first.

        Raises what `work` raises, and then nothing is written; CommitConflictError after too many lost races;
        CommitOutcomeUnknownError, never retried.
        """
        return self._backoff.until_committed(lambda: self._attempt(work))

    def _attempt(self, work: Callable[[RegistryTransaction], R]) -> R:
        engine = self._store.engine
        # Invariant: one state for everything. A decision that mixed two would not be undone by the turn that it loses.
        with engine.snapshot() as state, Transaction(_OneState(engine, state)) as writes:
            seen = registry_in(engine, state)
            number, previous = _turn_of(state)
            transaction = RegistryTransaction(
                seen, KeySpaceRegistry(writes), state, self._clock.wall(), number, previous, self._actor
            )
            answer = work(transaction)
            collected = writes.collected()
            writes.close()
        commit = Commit(
            (*collected.guards, *transaction.guards), (*collected.mutations, *transaction.mutations), state.epoch
        )
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


def _turn_of(state: Snapshot) -> tuple[int, str]:
    """Return the number of the next act, and the digest of the last. A damaged or cut end does not end the log."""
    number, digest = 0, FIRST_PREVIOUS
    for row in rows_of(state, "audit", reverse=True):
        if row.key is None or row.key > _NUMBER_MAX:
            continue  # no entry of ours
        number = row.key
        if row.value is not None:
            digest = digest_of_entry(number, row.value)
        else:
            entry = state.get(row.raw_key)
            digest = digest_of_unread(number, b"" if entry is None else entry.value)
        break
    head = value_of(state, "audit_head", ONLY)
    if head is not None and head.value is not None and number < head.value.number <= _NUMBER_MAX:
        # Why: numbers are places in the list as well, and none is given twice.
        number, digest = head.value.number, head.value.digest
    if head is None or head.value is None:
        # Why: the end of the log may be cut with its head, and a number that has a place in the list is not given again.
        number = max([number, *_last_places(state)])
    return number + 1, digest


def _last_places(state: Snapshot) -> Iterator[int]:
    """Yield the number of the last place in the list, if there is one."""
    for row in rows_of(state, "order", reverse=True):
        if row.key is not None and row.key <= _NUMBER_MAX:
            yield row.key
            return
