"""What a store has been through since it was last looked at: its log is replayed and must give what it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from keyplan.engine import ALL_KEYS, Engine, Entry, Event, EventKind

__all__ = ["State", "look"]


@dataclass
class State:
    """A store's entries at a revision, and the keys written by each revision since the look before."""

    revision: int = 0
    entries: Mapping[bytes, Entry] = field(default_factory=dict)
    written: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)


def look(engine: Engine, earlier: State) -> State:
    """Return what the store holds, after proving it from `earlier` and the log.

    Every revision after the earlier one is in the log, once and in order; each event tells truly what was there before it; and
    all of them together lead from the earlier entries to those that are stored now, revisions and versions included.
    """
    with engine.snapshot() as snapshot:
        revision = snapshot.revision
        stored = {entry.key: entry for entry in snapshot.scan(ALL_KEYS)}
    assert revision >= earlier.revision, "the revision went backwards"
    replayed = dict(earlier.entries)
    written: dict[int, tuple[bytes, ...]] = {}
    latest = earlier.revision
    for event in _events(engine, earlier.revision, revision):
        assert event.previous == replayed.get(event.key), "the log tells of another value before"
        assert event.revision >= latest, "the log is out of order"
        latest = event.revision
        written[event.revision] = (*written.get(event.revision, ()), event.key)
        _apply(event, replayed)
    assert list(written) == list(range(earlier.revision + 1, revision + 1)), "a revision is missing in the log"
    assert replayed == stored, "the log does not lead to what is stored"
    return State(revision, stored, written)


def _events(engine: Engine, after: int, until: int) -> list[Event]:
    events: list[Event] = []
    watch = engine.watch(ALL_KEYS, after=after)
    while watch.revision < until:
        news = watch.poll(10)
        assert news, "the watch does not deliver what the store has"
        events += news
    watch.close()
    return events


def _apply(event: Event, entries: dict[bytes, Entry]) -> None:
    if event.entry is None:
        assert event.kind is EventKind.DELETED
        del entries[event.key]
        return
    before = event.previous
    assert event.entry.mod_revision == event.revision
    assert event.entry.create_revision == (event.revision if before is None else before.create_revision)
    assert event.entry.version == (1 if before is None else before.version + 1)
    entries[event.key] = event.entry
