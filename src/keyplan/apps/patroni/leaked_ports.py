"""Public ports that nobody has, and nobody gets: the index holds them for an instance that has another one, or none.

A router of the document's time leaves them so: it deletes allocations, and knows of no index.
"""

from collections.abc import Iterator
from contextlib import suppress

from keyplan.apps.patroni.layout import Broker
from keyplan.engine import Commit, Delete, KeyAbsent, KeyRange, KeyUnchanged
from keyplan.errors import CommitConflictError, CorruptionError
from keyplan.store import Store

__all__ = ["free_leaked_ports", "leaked_ports"]


def leaked_ports(store: Store) -> list[tuple[str, int]]:
    """Return whom the index holds such ports for, and the ports. Raises IndexNotReadyError."""
    return [(instance, port) for instance, port, _ in _leaks(store)]


def free_leaked_ports(store: Store, wanted: int | None = None) -> list[int]:
    """Let such ports be given again, one or all, and return which were. Raises IndexNotReadyError."""
    freed: list[int] = []
    for _, port, commit in [*_leaks(store)]:
        if wanted in {None, port}:
            with suppress(CommitConflictError):  # Why: it was given, or freed, a moment ago.
                store.engine.commit(commit)
                freed.append(port)
    return freed


def _leaks(store: Store) -> Iterator[tuple[str, int, Commit]]:
    """Yield whose entry each is, its port, and the commit that removes it while all is as it was found."""
    bound = Broker.bound()
    index, table = bound.indexes["instance_by_port"], bound.tables["allocations"]
    # Why asked: an index that is being built says nothing yet.
    Broker(store).instance_by_port.key_of(1)
    with store.engine.snapshot() as state:
        entries = list(state.scan(KeyRange(*index.keys.range(()))))
        for entry in entries:
            try:
                port, holder = index.keys.decode(entry.key), index.primary_key(entry.key, entry.value)
                if port is None:
                    continue
                raw_key = table.keys.encode(holder)
                there = state.get(raw_key)
                if there is not None and table.form.decode(there.value) == port:
                    continue
            except CorruptionError:
                continue  # Why: what cannot be read is no evidence.
            as_found = KeyAbsent(raw_key) if there is None else KeyUnchanged(raw_key, there.mod_revision)
            guards = (KeyUnchanged(entry.key, entry.mod_revision), as_found)
            yield str(holder), int(str(port)), Commit(guards, (Delete(entry.key),), state.epoch)
