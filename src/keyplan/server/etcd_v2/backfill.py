"""Changes that keyplan, v3 clients and ending leases made: each gets its number in the v2 history, and becomes an event of it.

A commit that writes the State was made by a gateway, which counted its own changes. All other changes of keys that v2 can
see, and ends of directories' leases, wait in the Inbox until the Backfill counts them: a created key is `create`, a
rewritten one `update`, a deleted one `delete`, or `expire` when its lease is over.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from threading import Condition
from typing import Final, NamedTuple

from msgspec import structs

from keyplan.engine import NO_LEASE, SYSTEM_CLOCK, Entry, Event, EventKind, Snapshot, WriteSet
from keyplan.errors import KeyplanError
from keyplan.server.etcd_v2.answers import Code, KeysFailure, Node, text_of
from keyplan.server.etcd_v2.operations import Journal, erase_directory
from keyplan.server.etcd_v2.records import (
    DIRECTORIES,
    EVENTS,
    STATE_KEY,
    Action,
    DirectoryRecord,
    EventRecord,
    FileRecord,
    State,
    directory_in,
    directory_key,
    directory_path,
    event_in,
    file_key,
    index_of_event,
    pack,
    state_in,
)
from keyplan.server.etcd_v2.tree import Tree, ancestors, below, file_node, keys_about, path_of

__all__ = ["KEPT_BYTES_MAX", "Backfill", "Counted", "Inbox", "Uncounted", "kept_events"]


# ---- what waits for a number ------------------------------------------------------------------------------------------

_WAIT_SECONDS_MAX: Final = 5.0
"""Why: etcd answers after 5 to 7 s that it could not find out; clients' own limits are about ten."""


KEPT_BYTES_MAX: Final = 64 << 20
"""How much of the history a gateway keeps in memory. Why: an event holds a value and the one before, and there are 1000. Who
asks for an older one is told that it is cleared, as if the history were shorter."""

_CHANGE_OPERATIONS: Final = 8
"""What one change may add to a commit beside the levels above it."""

_END_OPERATIONS: Final = 4
"""What the end of a directory adds to a commit beside its event: its record, and three ranges."""


class Uncounted(NamedTuple):
    """A change without a number: the one at `position` among those of its revision that v2 can see."""

    revision: int
    position: int
    event: Event

    @property
    def path(self) -> str:
        """What it is of: a file, or a directory that ended."""
        key = self.event.key
        return directory_path(key) if key in DIRECTORIES else key.decode()


@dataclass(frozen=True, slots=True)
class Counted:
    """What one commit of a gateway counted: its events, in order. `index` and `cleared` are as in the State after it."""

    records: Sequence[EventRecord]
    index: int
    cleared: int


class Inbox:
    """What is known of the store's changes up to the revision `reached`. Used by several threads.

    What gateways counted up to the revision `told` is known to those who are told, and not told again. `index` is the highest
    number that was seen to be given.
    """

    def __init__(self, reached: int, *, told: int = 0, index: int = 0) -> None:
        self._condition = Condition()
        self._reached = reached
        self._told = told
        self.index = index
        self._uncounted: list[Uncounted] = []
        self.error: KeyplanError | None = None
        """Why nothing more comes."""

    def add(self, events: Sequence[Event], reached: int) -> tuple[list[Counted], bool]:
        """Take in a batch. Return what was counted in it, by commits, and whether something waits for a number."""
        counted: list[Counted] = []
        with self._condition:
            for revision, group in groupby(events, attrgetter("revision")):
                changes = list(group)
                entry = next((each.entry for each in changes if each.key == STATE_KEY), None)
                if entry is not None:
                    # Why nothing of one that cannot be read: it is no gateway's; the next State tells of the gap.
                    state = state_in(entry)
                    if state is not None:
                        self._drop_counted(state)
                        self.index = max(self.index, state.index)
                    if state is not None and revision > self._told:
                        events_of = (each.entry for each in changes if each.entry and each.key in EVENTS)
                        counted.append(Counted(list(readable_events(events_of, state)), state.index, state.cleared))
                else:
                    visible = [each for each in changes if _is_visible(each)]
                    self._uncounted += [Uncounted(revision, place, each) for place, each in enumerate(visible)]
            self._reached = max(self._reached, reached)
            self._condition.notify_all()
            return counted, bool(self._uncounted)

    def _drop_counted(self, state: State) -> None:
        counted = (state.settled + 1, state.position)
        self._uncounted = [each for each in self._uncounted if (each.revision, each.position) >= counted]

    @property
    def uncounted(self) -> int:
        """How many changes wait for a number."""
        with self._condition:
            return len(self._uncounted)

    def fail(self, error: KeyplanError) -> None:
        """Tell everybody who waits that nothing more comes."""
        with self._condition:
            self.error = error
            self._condition.notify_all()

    def is_settled(self, state: State, revision: int) -> bool:
        """Tell whether every change up to `revision` is known and counted."""
        with self._condition:
            return self._reached >= revision and not self._pending(state, revision)

    def pending(self, state: State, revision: int) -> list[Uncounted]:
        """Return what is not counted up to `revision`, when all of it has come. Raises KeysFailure when it does not come."""
        give_up_at = SYSTEM_CLOCK.monotonic() + _WAIT_SECONDS_MAX
        with self._condition:
            while self._reached < revision:
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                if self.error is not None or remaining <= 0:
                    raise KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request timed out", state.index)
                self._condition.wait(remaining)
            return self._pending(state, revision)

    def _pending(self, state: State, revision: int) -> list[Uncounted]:
        counted = (state.settled + 1, state.position)
        return [
            each for each in self._uncounted if counted <= (each.revision, each.position) and each.revision <= revision
        ]


def readable_events(entries: Iterable[Entry], state: State) -> Iterator[EventRecord]:
    """Yield the events that can be read, each with its revision: one that is damaged is told to nobody, and hides no other.

    One under another's number, or with one that was not given, is damaged too: who is told of it hears of nothing up to there.
    """
    for entry in entries:
        record = event_in(entry)
        if record is not None and record.index == index_of_event(entry.key) <= state.index:
            yield record if record.revision else structs.replace(record, revision=entry.mod_revision)


def kept_events(snapshot: Snapshot, state: State) -> Counted:
    """Return the latest events that the store keeps, as many as one gateway keeps in memory."""
    latest: list[EventRecord] = []
    cleared, size = state.cleared, 0
    for record in readable_events(snapshot.scan(EVENTS, reverse=True), state):
        size += len(record.body)
        if size > KEPT_BYTES_MAX and latest:
            cleared = max(cleared, record.index)
            break
        latest.append(record)
    return Counted(latest[::-1], state.index, cleared)


def _is_visible(event: Event) -> bool:
    if event.key in DIRECTORIES:
        # Why its path, too: the end of a directory that has none would take along what is in none.
        return event.kind is EventKind.DELETED and path_of(event.key[len(DIRECTORIES.start) :]) is not None
    return path_of(event.key) is not None


# ---- counting it ------------------------------------------------------------------------------------------------------


@dataclass
class Backfill:
    """Adds changes to a commit's writes, of which it takes `operations_max`.

    `is_lease_over` tells the end of a lease from a deletion. Of the changes, `changes_max` at most are counted.
    """

    writes: WriteSet
    tree: Tree
    journal: Journal
    state: State
    is_lease_over: Callable[[int], bool]
    operations_max: int
    changes_max: int

    def settle(self, pending: Sequence[Uncounted], *, up_to: int) -> tuple[int, int, bool]:
        """Count changes in order while the commit has room. Return (settled, position), and whether that is all of them.

        After the end of a directory nothing more is added: the commit removes whole ranges then.
        """
        looked_at = pending[: min(self.operations_max, self.changes_max)]
        paths = [each.event.key.decode() for each in looked_at if each.event.key not in DIRECTORIES]
        self.writes.reads.fetch_many(dict.fromkeys(key for path in paths for key in keys_about(path)))
        removed = self._removed_untold(pending)
        for number, each in enumerate(pending, start=1):
            # Why: one change writes its event and record, drops old events, and may make a record for each level above; when
            # it was removed untold, that is an event more.
            if (
                number > self.changes_max
                or self.writes.operations + _CHANGE_OPERATIONS + self._levels(each) > self.operations_max
                or self.writes.has_ranges
            ):
                return each.revision - 1, each.position, False
            self._count(each, pending[number:])
            if each in removed and each.event.entry is not None:
                self._end_file(each.event.key.decode(), each.event.entry, each.revision)
        return up_to, 0, not self.writes.has_ranges

    def _levels(self, uncounted: Uncounted) -> int:
        """Return how many levels above a key get records; none of one that is so deep that they fit no commit.

        Invariant: the first change that waits always fits, or nobody could write any more. Its directories are there all the
        same, as long as keys are below them.
        """
        levels = uncounted.event.key.count(b"/")
        return levels if _CHANGE_OPERATIONS + levels <= self.operations_max else 0

    def _removed_untold(self, pending: Sequence[Uncounted]) -> set[Uncounted]:
        """Return the writes whose keys a gateway removed with their directory, before it knew of them.

        It told the end of the directory alone, and who is told of the write next would believe that the key is there.
        """
        removed: set[Uncounted] = set()
        is_gone: dict[
            bytes, bool
        ] = {}  # by key: whether it is absent before the changes that were looked at, from the last
        for each in reversed(pending):
            event = each.event
            if event.key in DIRECTORIES:
                continue
            if event.entry is not None and is_gone.get(event.key, self.writes.get(event.key) is None):
                removed.add(each)
            is_gone[event.key] = event.entry is not None and event.previous is None
        return removed

    def _count(self, uncounted: Uncounted, later: Sequence[Uncounted]) -> None:
        event = uncounted.event
        if event.key in DIRECTORIES:
            if event.previous is not None:
                self._end_directory(directory_path(event.key), event.previous, uncounted.revision, later)
        elif event.kind is EventKind.DELETED:
            if event.previous is not None:
                self._end_file(event.key.decode(), event.previous, uncounted.revision)
        elif event.entry is not None:
            above = list(ancestors(event.key.decode())) if self._levels(uncounted) else []
            self._write(event.key.decode(), event.entry, event.previous, above)

    def _write(self, path: str, entry: Entry, previous: Entry | None, above: Iterable[str]) -> None:
        before = None if previous is None else self._before(path, previous)
        index = self.journal.next_index
        created = index if before is None else before.created
        node = Node(path, text_of(entry.value), created, index)
        action = Action.CREATE if before is None else Action.UPDATE
        self.journal.record(action, node, before, revision=entry.mod_revision)
        self.writes.put(file_key(path), pack(FileRecord(created, index, entry.mod_revision)))
        for ancestor in above:
            if self.tree.directory_record(ancestor) is None:
                self.writes.put(directory_key(ancestor), pack(DirectoryRecord(index, index, is_kept=False)))

    def _end_file(self, path: str, previous: Entry, revision: int) -> None:
        before = self._before(path, previous)
        is_over = previous.lease != NO_LEASE and self.is_lease_over(previous.lease)
        action = Action.EXPIRE if is_over else Action.DELETE
        self.journal.record(action, before._replace(modified=self.journal.next_index), before, revision=revision)
        self.writes.delete(file_key(path))
        for ancestor in reversed(list(ancestors(path))):
            record = self.tree.directory_record(ancestor)
            if record is None or record.is_kept or self.writes.holds_any(below(ancestor)):
                return
            self.writes.delete(directory_key(ancestor))

    def _end_directory(self, path: str, previous: Entry, revision: int, later: Sequence[Uncounted]) -> None:
        if previous.lease == NO_LEASE:
            # Why kept: no lease ended it. Somebody removed the record, to mend one that was damaged for instance. Why not for
            # what was written since: with a key space go its keys and its records, and the next one is another's.
            inside = self.writes.reads.look_through(below(path), keys_only=True)
            if any(entry.mod_revision <= revision for entry in inside):
                self.writes.put(directory_key(path), pack(DirectoryRecord(self.state.floor, self.state.floor)))
            return
        record = directory_in(previous) or DirectoryRecord(self.state.floor, self.state.floor)
        before = Node(path, None, record.created, record.modified, record.expires_nanoseconds)
        self.journal.record(Action.EXPIRE, before._replace(modified=self.journal.next_index), before, revision=revision)
        kept = self._written_since(path, revision, later)
        # Why nothing is removed where there are too many: each parts the range, and a commit has a bound.
        if not kept or self.writes.operations + _END_OPERATIONS + len(kept) <= self.operations_max:
            erase_directory(self.writes, path, kept=kept)

    def _written_since(self, path: str, revision: int, later: Sequence[Uncounted]) -> list[bytes]:
        """Return the keys below a directory that were written after its end, in order.

        They are no part of what has ended: the key space may be another owner's since.
        """
        inside = below(path)
        written = {
            change.event.key for change in later if change.event.entry is not None and change.event.key in inside
        }
        found = ((key, self.writes.get(key)) for key in sorted(written))
        return [key for key, entry in found if entry is not None and entry.mod_revision > revision]

    def _before(self, path: str, previous: Entry) -> Node:
        return file_node(path, previous, self.writes.get(file_key(path)), self.state)
