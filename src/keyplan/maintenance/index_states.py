"""The states of indexes, seen and changed: listed, prepared for a build, dropped. Building is in index_build.py.

A state is stored while an index is not readable; see keyplan.store's index_state for the bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from keyplan.engine import NO_LEASE, Commit, Delete, Engine, Entry, KeyRange, Mutation, Put
from keyplan.errors import CommitConflictError, UnknownNameError
from keyplan.jobs import Held, Stop, StopCheck, as_read, batches_of, kept_command, operations_max
from keyplan.layout import BoundIndex, BoundLayout, Layout, bound_layout_of
from keyplan.maintenance.definitions import index_definition
from keyplan.store import (
    IndexStage,
    IndexState,
    Store,
    index_state_key,
    index_state_of,
    index_state_value,
)

__all__ = [
    "IndexStateRead",
    "IndexStatus",
    "claim_index",
    "drop_index",
    "index_named",
    "list_indexes",
    "prepare_index",
    "read_index_state",
    "replace_index_state",
]


class IndexStateRead(NamedTuple):
    """The state of an index as it was read: the entry that it stands in, and the epoch; without an entry it is readable."""

    entry: Entry | None
    state: IndexState | None
    epoch: str


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index and how far it is. `records` counts those that a build has gone through."""

    name: str
    table: str
    is_unique: bool
    state: IndexState | None

    @property
    def is_readable(self) -> bool:
        """Whether readers are given answers."""
        return self.state is None

    @property
    def stage(self) -> str:
        """readable, write-only, building or verifying."""
        return "readable" if self.state is None else self.state.stage.value

    @property
    def records(self) -> int:
        """How many records the stage has gone through."""
        return 0 if self.state is None else self.state.records


def list_indexes(store: Store, layout: Layout | BoundLayout) -> list[IndexStatus]:
    """Return the indexes of a layout in the order declared, each with its state."""
    indexes = list(bound_layout_of(layout).indexes.values())
    with store.engine.snapshot() as snapshot:
        entries = snapshot.get_many([index_state_key(index) for index in indexes])
    return [
        IndexStatus(index.name, index.table.name, index.spec.is_unique, index_state_of(entry))
        for index, entry in zip(indexes, entries, strict=True)
    ]


def prepare_index(store: Store, layout: Layout | BoundLayout, name: str, *, command: Sequence[str] = ()) -> bool:
    """Make an index write-only: writers keep it, readers are refused until it is built. Return False when it was so already.

    `command` are the words behind `keyplan` that build it, for who looks at the store's jobs.

    To be done before any program reads or writes by a layout that has the index new. A program that has read the index before
    goes on reading it. Raises UnknownNameError, CommitConflictError when another maintainer came between.
    """
    bound = bound_layout_of(layout)
    index = index_named(bound, name)
    seen = read_index_state(store.engine, index)
    if seen.state is not None:
        return False
    state = IndexState(IndexStage.WRITE_ONLY, index_definition(index), command=kept_command(command))
    replace_index_state(store.engine, index, seen, state)
    return True


def drop_index(
    store: Store,
    layout: Layout | BoundLayout,
    name: str,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    command_afterwards: Sequence[str] = (),
) -> int:
    """Make an index write-only, then remove its entries, batch by batch; return how many were removed.

    Readers are refused from the beginning, and the index stays write-only: building it again makes it readable. Entries that
    writers make meanwhile may stay. Records are not touched. Raises UnknownNameError; CommitConflictError when another
    maintainer wrote the index's state since, as a build does: nothing is removed from an index that somebody builds. When
    `stop` is set it ends between two batches, with StoppedError. `command` are the words behind `keyplan` that go on with it
    then, `command_afterwards` those that build the index when it is dropped, for who looks at the store's jobs.
    """
    bound = bound_layout_of(layout)
    index = index_named(bound, name)
    stops = StopCheck(stop, f"the removal of {name}")
    stops.check()
    held = claim_index(store.engine, index, read_index_state(store.engine, index), command)
    removed = 0
    # Why one less: the guard is an operation as well.
    keys_max = operations_max(store.engine.profile) - 1
    for found in stops.each(batches_of(store.engine, KeyRange(*index.keys.range(())), keys_max)):
        own = [entry.key for entry in found if index.keys.decode(entry.key) is not None]
        if own:
            store.engine.commit(Commit((held.guard,), tuple(Delete(raw_key) for raw_key in own), held.epoch))
        removed += len(own)
    if command or command_afterwards:
        kept = kept_command(command_afterwards)
        state = IndexState(IndexStage.WRITE_ONLY, index_definition(index), run=uuid4().hex, command=kept)
        dropped = Put(index_state_key(index), index_state_value(state), NO_LEASE)
        store.engine.commit(Commit((held.guard,), (dropped,), held.epoch))
    return removed


def claim_index(engine: Engine, index: BoundIndex, seen: IndexStateRead, command: Sequence[str] = ()) -> Held:
    """Make an index write-only and return the guard that nobody wrote its state since.

    Invariant: the guard holds for this one write of the state and for no other, whoever writes; what is removed under it is
    never removed from an index that a build has made readable meanwhile. Raises CommitConflictError when the state is not as
    it was seen any more.
    """
    state = IndexState(IndexStage.WRITE_ONLY, index_definition(index), run=uuid4().hex, command=kept_command(command))
    replace_index_state(engine, index, seen, state)
    raw_key = index_state_key(index)
    with engine.snapshot() as snapshot:
        written = snapshot.get(raw_key)
        epoch = snapshot.epoch
    if written is None or written.value != index_state_value(state):
        raise CommitConflictError(failed=())
    return Held(as_read(raw_key, written), epoch)


def index_named(bound: BoundLayout, name: str) -> BoundIndex:
    """Return the index of that name. Raises UnknownNameError."""
    index = bound.indexes.get(name)
    if index is None:
        raise UnknownNameError(kind="index", name=name, known=list(bound.indexes), layout=bound.name)
    return index


def read_index_state(engine: Engine, index: BoundIndex) -> IndexStateRead:
    """Return the state of an index, as it is now."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(index_state_key(index))
        return IndexStateRead(entry, index_state_of(entry), snapshot.epoch)


def replace_index_state(
    engine: Engine,
    index: BoundIndex,
    seen: IndexStateRead,
    state: IndexState | None,
    *,
    along: Sequence[Mutation] = (),
) -> None:
    """Write a state over the one that was seen, and `along` in the same commit; None: readable.

    Raises CommitConflictError when it was replaced.
    """
    raw_key = index_state_key(index)
    mutation = Delete(raw_key) if state is None else Put(raw_key, index_state_value(state), NO_LEASE)
    engine.commit(Commit((as_read(raw_key, seen.entry),), (mutation, *along), seen.epoch))
