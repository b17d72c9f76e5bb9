"""States of indexes below a prefix, taken along with it: they stand outside of the prefix, in the system area.

Without its state an index that is not whole would be readable in the target, and answer that there is nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

from keyplan.engine import NO_LEASE, Commit, Engine, KeyAbsent, KeyRange, Put, Snapshot
from keyplan.layout import BoundTable
from keyplan.store import Backoff, IndexStateKey, IndexStates

__all__ = ["KeptState", "index_states_below", "put_index_states"]


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
            found.append(KeptState(key.root[len(prefix) :], key.name, entry.value))
    return found


def put_index_states(
    engine: Engine, prefix: bytes, states: Iterable[KeptState], backoff: Backoff | None = None
) -> None:
    """Write the states for roots below another prefix, each where none stands: an index that is being built goes on."""
    waits = backoff or Backoff()
    for state in states:
        raw_key = _table().keys.encode(IndexStateKey(prefix + state.root, state.name))
        put = Put(raw_key, state.value, NO_LEASE)

        def attempt(raw_key: bytes = raw_key, put: Put = put) -> None:
            if engine.value(raw_key) is None:
                engine.commit(Commit((KeyAbsent(raw_key),), (put,)))

        waits.until_committed(attempt)
