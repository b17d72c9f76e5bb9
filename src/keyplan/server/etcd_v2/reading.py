"""Reads of the v2 keys API: what is at a path, as of one moment, with the counter that belongs to it."""

from dataclasses import dataclass
from typing import NamedTuple

from keyplan.engine import Clock, Engine, Snapshot
from keyplan.server.etcd_v2.draft import Draft
from keyplan.server.etcd_v2.failures import Code, KeysFailure
from keyplan.server.etcd_v2.ledger import Ledger, state_in
from keyplan.server.etcd_v2.records import State
from keyplan.server.etcd_v2.rendering import get_body
from keyplan.server.etcd_v2.tree import Tree, children, keys_about, subtree

__all__ = ["Found", "Position", "position", "read"]


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a read, and where the store stood."""

    body: str
    index: int
    revision: int


class Position(NamedTuple):
    """Where the counting and the store stand. `is_settled`: every change up to there has its number."""

    state: State
    revision: int
    is_settled: bool


def position(ledger: Ledger, snapshot: Snapshot) -> Position:
    """Return where a snapshot stands."""
    found = state_in(snapshot)
    if found is None:
        raise KeysFailure(Code.RAFT_INTERNAL, "etcdserver: the event counter is gone")
    state, is_quiet = found
    return Position(state, snapshot.revision, is_quiet or ledger.inbox.is_settled(state, snapshot.revision))


def read(
    ledger: Ledger,
    engine: Engine,
    clock: Clock,
    path: str,
    *,
    is_recursive: bool,
    must_settle: bool,
    entries_max: int | None = None,
) -> Found | Position | None:
    """Return what is at a path; or the position, when changes without a number must be counted first.

    None: a recursive listing has more than `entries_max` entries. Raises KeysFailure. With `must_settle` false such changes
    show the number of the counter as it is.
    """
    with engine.snapshot() as snapshot:
        place = position(ledger, snapshot)
        if must_settle and not place.is_settled:
            return place
        # Why the counter for what is not counted: a client that waits from X-Etcd-Index + 1 gets that change as an event.
        state = place.state if place.is_settled else _with_floor(place.state)
        draft = Draft(snapshot)
        draft.prefetch(keys_about(path))
        node = Tree(draft, draft.holds_any, state).find(path)
        if node.is_directory:
            if is_recursive:
                listed = subtree(snapshot, node, state, entries_max=entries_max)
            else:
                listed = children(snapshot, node, state)
            if listed is None:
                return None
            node = node._replace(nodes=listed)
        return Found(get_body(node, int(clock.wall() * 1e9)), state.index, place.revision)


def _with_floor(state: State) -> State:
    return State(state.index, state.settled, state.position, state.index, state.cleared)
