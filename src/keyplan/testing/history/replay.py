"""The log, replayed: what every key held at every revision, and whether a guard held there. Knows nothing of clients.

Guards are judged anew here, and not by keyplan's own code: a checker must not share the mistakes of what it checks.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from keyplan.engine import (
    Delete,
    DeleteRange,
    Entry,
    Event,
    EventKind,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)

__all__ = ["Replay", "Written", "written_of"]

Written = dict[bytes, tuple[bytes, int] | None]
"""What one revision wrote: value and lease of each key, None where it was deleted."""


def written_of(events: Sequence[Event]) -> Written:
    """Return what the events of one revision wrote."""
    return {event.key: None if event.entry is None else (event.entry.value, event.entry.lease) for event in events}


class Replay:
    """The store from a first state on, revision by revision. `problems` says what in the log contradicts itself."""

    def __init__(self, first_revision: int, entries: Sequence[Entry], events: Sequence[Event]) -> None:
        self.first = first_revision
        self.last = first_revision
        self.problems: list[str] = []
        self.by_revision: dict[int, list[Event]] = {}
        self._lives: dict[bytes, tuple[list[int], list[Entry | None]]] = {}
        for entry in entries:
            self._lives[entry.key] = ([first_revision], [entry])
        for event in events:
            self._apply(event)
        self._keys = sorted(self._lives)

    def _apply(self, event: Event) -> None:
        where = f"revision {event.revision}, key {event.key!r}"
        group = self.by_revision.setdefault(event.revision, [])
        if event.revision not in (self.last, self.last + 1) or event.revision <= self.first:
            self.problems.append(f"{where}: the log goes from revision {self.last} to {event.revision}")
        if group and group[-1].key >= event.key:
            self.problems.append(f"{where}: twice or out of order within its revision")
        revisions, states = self._lives.setdefault(event.key, ([], []))
        before = states[-1] if states else None
        if event.previous != before:
            self.problems.append(f"{where}: the log tells of another value before")
        self.problems += [f"{where}: {problem}" for problem in _faults_of(event, before)]
        if not revisions or revisions[-1] < event.revision:
            revisions.append(event.revision)
            states.append(event.entry)
        group.append(event)
        self.last = max(self.last, event.revision)

    def at(self, key: bytes, revision: int) -> Entry | None:
        """Return the entry at `key` as of a revision."""
        life = self._lives.get(key)
        if life is None:
            return None
        place = bisect_right(life[0], revision)
        return life[1][place - 1] if place else None

    def entries(self, key_range: KeyRange, revision: int) -> list[Entry]:
        """Return all entries in the range as of a revision, in key order."""
        start = bisect_left(self._keys, key_range.start)
        end = len(self._keys) if key_range.end is None else bisect_left(self._keys, key_range.end)
        found = (self.at(key, revision) for key in self._keys[start:end])
        return [entry for entry in found if entry is not None]

    def effect(self, mutations: Sequence[Mutation], revision: int) -> Written:
        """Return what the mutations write when they are applied to the state at a revision; empty when they change nothing."""
        written: Written = {}
        for mutation in mutations:
            match mutation:
                case Put():
                    written[mutation.key] = (mutation.value, mutation.lease)
                case Delete():
                    if self.at(mutation.key, revision) is not None:
                        written[mutation.key] = None
                case DeleteRange():
                    written.update({entry.key: None for entry in self.entries(mutation.range, revision)})
        return written

    def holds(self, guard: Guard, revision: int) -> bool:
        """Tell whether the guard was true at a revision."""
        match guard:
            case KeyAbsent():
                return self.at(guard.key, revision) is None
            case KeyUnchanged():
                entry = self.at(guard.key, revision)
                return entry is not None and entry.mod_revision == guard.revision
            case RangeEmpty():
                return not self.entries(guard.range, revision)
            case RangeUnchanged():
                entries = self.entries(guard.range, revision)
                is_old = all(entry.mod_revision <= guard.revision for entry in entries)
                return is_old and tuple(entry.key for entry in entries) == guard.keys


def _faults_of(event: Event, before: Entry | None) -> list[str]:
    after = event.entry
    if after is None:
        is_right = event.kind is EventKind.DELETED and before is not None
        return [] if is_right else ["deleted, and nothing was there"]
    kind = EventKind.CREATED if before is None else EventKind.UPDATED
    history = (event.revision, 1) if before is None else (before.create_revision, before.version + 1)
    if (event.kind, after.key, after.mod_revision) != (kind, event.key, event.revision):
        return ["an event that does not fit its entry"]
    return [] if (after.create_revision, after.version) == history else ["a wrong create revision or version"]
