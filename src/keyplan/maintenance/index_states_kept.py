"""States of indexes below a prefix, taken along with it: they stand outside of the prefix, in the system area.

Without its state an index that is not whole would be readable in the target, and answer that there is nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from keyplan.engine import NO_LEASE, Engine, Entry, KeyAbsent, KeyRange, Put, Snapshot
from keyplan.errors import CorruptionError, TargetNotEmptyError
from keyplan.layout import BoundTable
from keyplan.maintenance.transfers import Target
from keyplan.store import IndexState, IndexStateKey, IndexStates, index_state_value

__all__ = ["KeptState", "has_index_states", "index_states_below", "put_index_states"]


class KeptState(NamedTuple):
    """The state of an index: the rest of its root behind the prefix, its name, and the state as it is stored."""

    root: bytes
    name: str
    value: bytes


def _table() -> BoundTable:
    return IndexStates.bound().tables["states"]


def _area() -> KeyRange:
    return KeyRange(*_table().keys.range(()))


def index_states_below(snapshot: Snapshot, prefix: bytes) -> list[KeptState]:
    """Return the states of indexes whose root lies below the prefix; none where they lie below it themselves."""
    area = _area()
    if area.start.startswith(prefix):
        return []
    found = []
    for entry in snapshot.scan(area):
        key = _table().keys.decode(entry.key)
        if isinstance(key, IndexStateKey) and key.root.startswith(prefix):
            found.append(KeptState(key.root[len(prefix) :], key.name, _without_command(entry)))
    return found


def _without_command(entry: Entry) -> bytes:
    """The state as it is taken along: the command that builds the index may name another root there."""
    try:
        state: IndexState = _table().form.decode(entry.value)
    except CorruptionError:
        return entry.value
    return index_state_value(structs.replace(state, command=())) if state.command else entry.value


def has_index_states(engine: Engine, prefix: bytes, states: Iterable[KeptState]) -> bool:
    """Tell whether a state stands for each of these, for roots below the prefix: that no such index is taken for whole."""
    keys = [_table().keys.encode(IndexStateKey(prefix + state.root, state.name)) for state in states]
    with engine.snapshot() as snapshot:
        return None not in snapshot.get_many(keys)


def put_index_states(target: Target, states: Iterable[KeptState]) -> None:
    """Write the states for roots below the target's prefix, each where none stands: an index that is being built goes on.

    Raises as `Target.commit`: what ends the work on the pairs keeps their states from being written, too.
    """
    for state in states:
        raw_key = _table().keys.encode(IndexStateKey(target.prefix + state.root, state.name))
        while target.engine.value(raw_key) is None:
            try:
                target.commit((Put(raw_key, state.value, NO_LEASE),), guards=(KeyAbsent(raw_key),))
            except TargetNotEmptyError:
                continue  # somebody has written the state meanwhile: looked at again
