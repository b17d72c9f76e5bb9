"""The writes of the v2 keys API: each checks what it must, and adds its writes and its event to the commit's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from keyplan.engine import NO_LEASE, KeyRange, WriteSet
from keyplan.server.etcd_v2.answers import Code, KeysFailure, Node, bytes_of, event_body
from keyplan.server.etcd_v2.records import (
    Action,
    DirectoryRecord,
    EventRecord,
    FileRecord,
    State,
    directory_key,
    event_key,
    file_key,
    pack,
    records_below,
)
from keyplan.server.etcd_v2.tree import ROOT, Tree, ancestors, below

__all__ = ["HISTORY_EVENTS_DEFAULT", "Done", "Journal", "Operation", "Work", "erase_directory"]


# ---- the counter and the history --------------------------------------------------------------------------------------

HISTORY_EVENTS_DEFAULT = 1_000
"""etcd's own length; refreshes take places in it too."""


_DROPPED_MAX: Final = 2
"""How many old events one event drops. Why more than one: the history may have been longer under a former setting, and a commit
has a bound, so that what is too much goes little by little."""


class Journal:
    """Numbers events and adds them to a commit's writes; the oldest make room.

    Invariant: no commit drops an event of its own, so that who follows the store is told of each.
    """

    def __init__(self, writes: WriteSet, state: State, *, now_nanoseconds: int, history_events: int) -> None:
        self._writes = writes
        self._state = state
        self.index = state.index
        self.now_nanoseconds = now_nanoseconds
        self._history_events = history_events
        self._cleared = state.cleared

    @property
    def next_index(self) -> int:
        """The number of the next event."""
        return self.index + 1

    def record(self, action: Action, node: Node, previous: Node | None, *, revision: int = 0) -> str:
        """Write an event for everybody who waits, of a change that was made in a revision (0: is made now). Return its JSON."""
        is_end = action in {Action.DELETE, Action.EXPIRE} and node.is_directory
        is_of_directory = node.is_directory and (previous is None or previous.is_directory)
        body = self.count(action, node, previous)
        record = EventRecord(self.index, node.path, is_end, body, is_of_directory, revision)
        self._writes.put(event_key(self.index), pack(record))
        return body

    def count(self, action: Action, node: Node, previous: Node | None) -> str:
        """Number an event that nobody is told of. Return its JSON."""
        self.index += 1
        excess = min(self.index - self._history_events, self._state.index) - self._cleared
        for _ in range(min(excess, _DROPPED_MAX)):
            self._cleared += 1
            self._writes.delete_unread(event_key(self._cleared))
        return event_body(action, node, previous, self.now_nanoseconds)

    def state(self, *, settled: int, position: int) -> State:
        """Return where the counting stands after the writes."""
        return State(self.index, settled, position, self._state.floor, self._cleared)


# ---- operations -------------------------------------------------------------------------------------------------------

_NANOSECONDS: Final = 1_000_000_000
_TTL_SECONDS_MAX: Final = 7_000_000_000
"""Why: etcd counts times in 64 signed bits of nanoseconds; what overflows them is permanent there, and here."""


class Operation(NamedTuple):
    """One write as it was asked for. `action` SET, CREATE, UPDATE, COMPARE_AND_SWAP, DELETE or COMPARE_AND_DELETE.

    `is_unique`: a name made of the event's index is created below `path`. `previous_value` "" and `previous_index` 0 are not
    compared.
    """

    action: Action
    path: str
    value: str = ""
    is_directory: bool = False
    is_recursive: bool = False
    is_unique: bool = False
    is_refresh: bool = False
    ttl_seconds: int | None = None
    previous_value: str = ""
    previous_index: int = 0

    @property
    def is_deletion(self) -> bool:
        """True when it removes what is at the path."""
        return self.action in {Action.DELETE, Action.COMPARE_AND_DELETE}


@dataclass(frozen=True, slots=True)
class Done:
    """An operation that was carried out: its event's index and JSON; `is_created`: nothing was there before.

    `revision` is the store's after the commit with it; 0 before there is one.
    """

    action: Action
    index: int
    body: str
    is_created: bool
    revision: int = 0


class _Expiry(NamedTuple):
    """When a node ends: at once, at a time, or (0, NO_LEASE) never."""

    nanoseconds: int
    lease: int
    is_now: bool


_NEVER: Final = _Expiry(0, NO_LEASE, is_now=False)


@dataclass
class Work:
    """Carries out operations, one after the other, by adding to a commit's writes.

    `lease_for` gives the lease of a TTL. `may_make` tells which directories are made above what is written; a directory that is
    not is there for as long as something is below it.
    """

    writes: WriteSet
    tree: Tree
    journal: Journal
    lease_for: Callable[[int], int]
    may_make: Callable[[str], bool]

    def carry_out(self, operation: Operation) -> Done:
        """Do one operation. Raises KeysFailure; the writes are as before then."""
        if operation.path == ROOT and not operation.is_unique:
            raise self._failure(Code.ROOT_READ_ONLY, ROOT)
        match operation.action:
            case Action.SET:
                return self._set(operation)
            case Action.CREATE:
                return self._create(operation)
            case Action.UPDATE:
                return self._update(operation)
            case Action.COMPARE_AND_SWAP:
                return self._compare_and_swap(operation)
            case Action.DELETE:
                return self._delete(operation)
            case _:
                return self._compare_and_delete(operation)

    # ---- set and create -------------------------------------------------------------------------------------------------

    def _set(self, operation: Operation) -> Done:
        path = operation.path
        previous = self._found_or_none(path)
        value = operation.value
        if operation.is_refresh:
            if previous is None:
                previous = self.tree.find(path)  # raises what is missing
            value = previous.value or ""
        if previous is not None and previous.is_directory:
            raise self._failure(Code.NOT_A_FILE, path)
        return self._place(operation, path, value, previous)

    def _create(self, operation: Operation) -> Done:
        path = operation.path
        if operation.is_unique:
            path = f"{'' if path == ROOT else path}/{self.journal.next_index:020d}"
        if self._found_or_none(path) is not None:
            raise self._failure(Code.KEY_EXISTS, path)
        return self._place(operation, path, operation.value, None)

    def _found_or_none(self, path: str) -> Node | None:
        """Return what is at the path. Raises KeysFailure (104) when a file is in the way to it."""
        found = self.tree.look(path)
        if found is None:
            for ancestor in ancestors(path):
                node = self.tree.look(ancestor)
                if node is None:
                    return None
                if not node.is_directory:
                    raise self._failure(Code.NOT_A_DIRECTORY, ancestor)
        return found

    def _place(self, operation: Operation, path: str, value: str, previous: Node | None) -> Done:
        """Write a new node, in place of a file or of nothing."""
        expiry = self._expiry(operation)
        index = self.journal.next_index
        self._make_ancestors(path, index)
        if operation.is_directory:
            if previous is not None:
                self._erase_file(path)
            self._write_directory(path, DirectoryRecord(index, index, expires_nanoseconds=expiry.nanoseconds), expiry)
            node = Node(path, None, index, index, expiry.nanoseconds)
        else:
            if self.tree.directory_record(path) is not None:
                self.writes.delete(directory_key(path))  # of a directory that went with its last key
            node = Node(path, value, index, index, expiry.nanoseconds)
            self._write_file(node, expiry)
        return self._record(operation, node, previous, expiry)

    def _make_ancestors(self, path: str, index: int) -> None:
        for ancestor in filter(self.may_make, ancestors(path)):
            record = self.tree.directory_record(ancestor)
            if record is not None and record.is_kept:
                continue
            found = self.tree.directory(ancestor)
            created, modified = (index, index) if found is None else (found.created, found.modified)
            self.writes.put(directory_key(ancestor), pack(DirectoryRecord(created, modified)))

    # ---- update and compare ---------------------------------------------------------------------------------------------

    def _update(self, operation: Operation) -> Done:
        previous = self.tree.find(operation.path)
        if previous.is_directory:
            if operation.value:
                raise self._failure(Code.NOT_A_FILE, operation.path)
            return self._renew_directory(operation, previous)
        return self._rewrite(operation, previous)

    def _compare_and_swap(self, operation: Operation) -> Done:
        previous = self._compared(operation)
        return self._rewrite(operation, previous)

    def _compared(self, operation: Operation) -> Node:
        node = self.tree.find(operation.path)
        if node.is_directory:
            raise self._failure(Code.NOT_A_FILE, operation.path)
        causes: list[str] = []
        if operation.previous_value and operation.previous_value != node.value:
            causes.append(f"[{operation.previous_value} != {node.value}]")
        if operation.previous_index and operation.previous_index != node.modified:
            causes.append(f"[{operation.previous_index} != {node.modified}]")
        if causes:
            raise self._failure(Code.COMPARE_FAILED, " ".join(causes))
        return node

    def _rewrite(self, operation: Operation, previous: Node) -> Done:
        """Give a file a new value and TTL; it stays the file that was created."""
        expiry = self._expiry(operation)
        value = previous.value if operation.is_refresh else operation.value
        node = Node(operation.path, value, previous.created, self.journal.next_index, expiry.nanoseconds)
        self._write_file(node, expiry)
        return self._record(operation, node, previous, expiry)

    def _renew_directory(self, operation: Operation, previous: Node) -> Done:
        """Give a directory a new TTL. Its listed index stays as it was: only the event has a new one."""
        expiry = self._expiry(operation)
        record = DirectoryRecord(previous.created, previous.modified, expires_nanoseconds=expiry.nanoseconds)
        self._write_directory(operation.path, record, expiry)
        node = Node(operation.path, None, previous.created, self.journal.next_index, expiry.nanoseconds)
        return self._record(operation, node, previous, expiry)

    # ---- delete ---------------------------------------------------------------------------------------------------------

    def _delete(self, operation: Operation) -> Done:
        path = operation.path
        previous = self.tree.find(path)
        if previous.is_directory:
            if not (operation.is_directory or operation.is_recursive):
                raise self._failure(Code.NOT_A_FILE, path)
            if not operation.is_recursive:
                if not self.tree.is_empty(path):
                    raise self._failure(Code.DIRECTORY_NOT_EMPTY, path)
                self.writes.reads.guard_empty(below(path))
        return self._end(operation.action, previous)

    def _compare_and_delete(self, operation: Operation) -> Done:
        return self._end(operation.action, self._compared(operation))

    def _end(self, action: Action, previous: Node) -> Done:
        """Remove a node with everything below it; one event for all."""
        index = self.journal.next_index
        if previous.is_directory:
            erase_directory(self.writes, previous.path)
        else:
            self._erase_file(previous.path)
        node = previous._replace(modified=index)
        body = self.journal.record(action, node, previous)
        return Done(action, index, body, is_created=False)

    # ---- writing --------------------------------------------------------------------------------------------------------

    def _expiry(self, operation: Operation) -> _Expiry:
        ttl_seconds = operation.ttl_seconds
        if ttl_seconds is None or ttl_seconds > _TTL_SECONDS_MAX:
            return _NEVER
        nanoseconds = self.journal.now_nanoseconds + ttl_seconds * _NANOSECONDS
        if ttl_seconds == 0:
            return _Expiry(nanoseconds, NO_LEASE, is_now=True)
        return _Expiry(nanoseconds, self.lease_for(ttl_seconds), is_now=False)

    def _write_file(self, node: Node, expiry: _Expiry) -> None:
        raw_key = node.path.encode()
        self.writes.reads.read_set.add(raw_key)
        self.writes.put(raw_key, bytes_of(node.value or ""), expiry.lease)
        record = FileRecord(node.created, node.modified, 0, expiry.nanoseconds)
        self.writes.put(file_key(node.path), pack(record))

    def _write_directory(self, path: str, record: DirectoryRecord, expiry: _Expiry) -> None:
        # Why guarded: its lease may end between the look and the commit, and whoever comes next would erase what is renewed.
        self.writes.reads.read_set.add(directory_key(path))
        self.writes.put(directory_key(path), pack(record), expiry.lease)

    def _erase_file(self, path: str) -> None:
        self.writes.reads.read_set.add(path.encode())
        self.writes.delete(path.encode())
        self.writes.delete(file_key(path))

    def _record(self, operation: Operation, node: Node, previous: Node | None, expiry: _Expiry) -> Done:
        """Write the event; and where the TTL was 0, the end that follows it at once."""
        index = self.journal.next_index
        # Why not of what is created: etcd tells watchers of it whatever it was asked for with.
        if operation.is_refresh and operation.action is not Action.CREATE:
            body = self.journal.count(operation.action, node, previous)
        else:
            body = self.journal.record(operation.action, node, previous)
        is_created = operation.action is Action.CREATE or (operation.action is Action.SET and previous is None)
        if expiry.is_now:
            self._end(Action.EXPIRE, node)
        return Done(operation.action, index, body, is_created)

    def _failure(self, code: Code, cause: str) -> KeysFailure:
        return KeysFailure(code, cause, self.journal.index)


def erase_directory(writes: WriteSet, path: str, *, kept: Sequence[bytes] = ()) -> None:
    """Remove a directory, everything below it but for the `kept` keys, in order, and what is written of it all."""
    writes.delete(directory_key(path))
    inside = below(path)
    starts = [inside.start, *(key + b"\x00" for key in kept)]
    for start, end in zip(starts, [*kept, inside.end], strict=True):
        writes.delete_range(KeyRange(start, end))
    for records in records_below(path):
        writes.delete_range(records)
