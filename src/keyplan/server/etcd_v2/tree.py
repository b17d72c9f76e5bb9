"""Files and directories as v2 clients see them, read from keys and books; nothing is written here.

A path is the raw key of the same bytes: `/service/f1/leader`. A key that no cleaned path spells (no slash in front, empty
segments, no UTF-8) is not seen. A directory is there when a record says so, or when keys are below it. A file whose path is
also a directory (other writers may do that) is not seen. A record that cannot be read says nothing of a file, and of a
directory that it is kept, so that nothing of it is removed; where there is a file, it says nothing either.
"""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from keyplan.engine import Entry, KeyRange
from keyplan.server.etcd_v2.answers import Code, KeysFailure, Node, text_of
from keyplan.server.etcd_v2.records import (
    FORGOTTEN,
    DirectoryRecord,
    State,
    directories_of,
    directory_in,
    directory_key,
    file_in,
    file_key,
    records_below,
)
from keyplan.server.holding import Excess
from keyplan.server.places import Full
from keyplan.server.reading import ReadAllowance

__all__ = [
    "DEPTH_MAX",
    "ROOT",
    "Tree",
    "ancestors",
    "below",
    "children",
    "clean",
    "file_node",
    "is_hidden_below",
    "is_within",
    "keys_about",
    "path_of",
    "seen_below",
    "subtree",
]


# ---- paths ------------------------------------------------------------------------------------------------------------

ROOT: Final = "/"

DEPTH_MAX: Final = 200
"""Why: a listing is built level by level; no layout comes near it."""

_ODD: Final = frozenset({b"", b".", b".."})


def clean(path: str) -> str:
    """Return the shortest spelling of a path, always with one slash in front."""
    return posixpath.normpath("/" + path.lstrip("/"))


def path_of(key: bytes) -> str | None:
    """Return the path of a raw key, or None when v2 has no path for it."""
    if (
        not key.startswith(b"/")
        or key == b"/"
        or key.count(b"/") > DEPTH_MAX
        or not _ODD.isdisjoint(key.split(b"/")[1:])
    ):
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def parent_of(path: str) -> str:
    """Return the directory that a path is in."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """Return the last segment of a path."""
    return path.rpartition("/")[2]


def ancestors(path: str) -> Iterator[str]:
    """Yield the directories above a path, from the one just below the root down to its parent."""
    end = path.find("/", 1)
    while end > 0:
        yield path[:end]
        end = path.find("/", end + 1)


def below(path: str) -> KeyRange:
    """Return the range of the raw keys below a directory."""
    return KeyRange.of_prefix(_slashed(path).encode())


def is_within(path: str, directory: str) -> bool:
    """Tell whether a path is below a directory, at any depth."""
    return path.startswith(_slashed(directory)) and path != directory


def is_hidden_below(path: str, watched: str) -> bool:
    """Tell whether a segment of `path` after `watched` hides it from who watches there."""
    return len(path) >= len(watched) and "/_" in clean(path[len(watched) :])


def _slashed(path: str) -> str:
    return path if path == ROOT else path + "/"


# ---- nodes ------------------------------------------------------------------------------------------------------------

ROOT_NODE: Final = Node(ROOT, None, 0, 0)

_RUN_KEYS_MAX: Final = 16
"""Why: a seek past a child costs about as much as this many keys read in a row."""


class Reading(Protocol):
    """What a tree needs to read from: a snapshot, or a write set over one."""

    def get(self, key: bytes) -> Entry | None:
        """Return an entry."""
        ...


def keys_about(path: str) -> list[bytes]:
    """Return the raw keys that say what is at a path and above it."""
    keys = [path.encode(), file_key(path), directory_key(path)]
    keys += [directory_key(ancestor) for ancestor in ancestors(path)]
    return keys


def file_node(path: str, entry: Entry, record_entry: Entry | None, state: State) -> Node:
    """Return a file. A record older than its key does not speak of this value: it was changed while nobody counted."""
    record = (None if record_entry is None else file_in(record_entry)) or FORGOTTEN
    value = text_of(entry.value)
    covers = 0 if record is FORGOTTEN or record_entry is None else record.revision or record_entry.mod_revision
    if covers >= entry.mod_revision:
        return Node(path, value, record.created, record.modified, record.expires_nanoseconds)
    created = record.created if record.created and entry.create_revision <= covers else state.floor
    return Node(path, value, created, state.floor)


def _unread(state: State, *, has_file: bool) -> DirectoryRecord:
    """Return what counts in the place of a directory's record that cannot be read."""
    return DirectoryRecord(state.floor, state.floor, is_kept=not has_file)


def seen_below(holds_any: Callable[[KeyRange], bool]) -> Callable[[KeyRange], bool]:
    """Return what tells whether keys are in a range, or directories that are kept without any.

    Where directories have no records for being another's: what is above a directory of the own is one, too.
    """
    return lambda keys: holds_any(keys) or holds_any(directories_of(keys))


class Tree:
    """Nodes by path. `holds_any` tells whether keys are in a range.

    `index` gives the number that failures are told with, where more is counted than `state` knows.
    """

    def __init__(
        self,
        reading: Reading,
        holds_any: Callable[[KeyRange], bool],
        state: State,
        index: Callable[[], int] | None = None,
    ) -> None:
        self._reading = reading
        self._holds_any = holds_any
        self._state = state
        self._index = index or (lambda: state.index)

    def directory(self, path: str) -> Node | None:
        """Return a directory without its children, or None."""
        if path == ROOT:
            return ROOT_NODE
        record = self.directory_record(path)
        if record is not None and record.is_kept:
            return Node(path, None, record.created, record.modified, record.expires_nanoseconds)
        if not self._holds_any(below(path)):
            return None
        if record is None:
            return Node(path, None, self._state.floor, self._state.floor)
        return Node(path, None, record.created, record.modified)

    def directory_record(self, path: str) -> DirectoryRecord | None:
        """Return what is written of a directory; one that is not kept may be gone."""
        entry = self._reading.get(directory_key(path))
        if entry is None:
            return None
        return directory_in(entry) or _unread(self._state, has_file=self._reading.get(path.encode()) is not None)

    def file(self, path: str) -> Node | None:
        """Return a file, or None. Ask for the directory first: it hides a file of its path."""
        entry = self._reading.get(path.encode())
        if entry is None or path == ROOT:
            return None
        return file_node(path, entry, self._reading.get(file_key(path)), self._state)

    def look(self, path: str) -> Node | None:
        """Return what is at a path, or None."""
        return self.directory(path) or self.file(path)

    def find(self, path: str) -> Node:
        """Return what is at a path. Raises KeysFailure: 100 with the first path that is missing, 104 with a file in the way."""
        found = self.look(path)
        if found is not None:
            return found
        for ancestor in ancestors(path):
            node = self.look(ancestor)
            if node is None:
                raise KeysFailure(Code.KEY_NOT_FOUND, ancestor, self._index())
            if not node.is_directory:
                raise KeysFailure(Code.NOT_A_DIRECTORY, ancestor, self._index())
        raise KeysFailure(Code.KEY_NOT_FOUND, path, self._index())

    def is_empty(self, path: str) -> bool:
        """Tell whether nothing is in a directory."""
        return not (self._holds_any(below(path)) or self._holds_any(records_below(path)[1]))


# ---- listings ---------------------------------------------------------------------------------------------------------


class Listing(Protocol):
    """What a listing is read from."""

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Return entries."""
        ...

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        """Yield entries."""
        ...


class _Allowance:
    """How many keys a listing may still read; None: as many as there are."""

    def __init__(self, keys: int | None) -> None:
        self._left = keys

    @property
    def is_over(self) -> bool:
        """True when one more was read than was allowed."""
        return self._left is not None and self._left < 0

    def limit(self) -> int | None:
        """The limit of the next scan: one more, which tells that it was not enough."""
        return None if self._left is None else self._left + 1

    def spend(self) -> None:
        """One key was read."""
        if self._left is not None:
            self._left -= 1


_READ_AT_ONCE: Final = 200
"""Paths of a listing whose values are read with one call. Why not all: they would be in memory before they are counted."""


def _too_much_read(bytes_max: int, excess: Excess | None) -> KeysFailure:
    if excess is not None:
        code = Code.INVALID_FORM if excess.full is Full.OF_ONE else Code.RAFT_INTERNAL
        return KeysFailure(code, f"keyplan: {excess.sentence}", is_refusal=True)
    problem = f"keyplan: the listing reads more than {bytes_max >> 20} MiB: list its directories one by one"
    return KeysFailure(Code.INVALID_FORM, problem)


def children(listing: Listing, directory: Node, state: State, *, entries_max: int | None = None) -> list[Node] | None:
    """Return what is directly in a directory, sorted, without what is hidden.

    None: it takes the reading of more than `entries_max` keys to find out. Raises KeysFailure when too much is read.
    """
    allowance = _Allowance(entries_max)
    prefix = directory.path if directory.path == ROOT else directory.path + "/"
    names = dict[str, bool]()
    for name, is_deep in _names(listing, below(directory.path), prefix.encode(), allowance):
        names[name] = names.get(name, False) or is_deep
    records = records_below(directory.path)[1]
    for name, _ in _names(listing, records, records.start, allowance):
        names.setdefault(name, False)
    if allowance.is_over:
        return None
    paths = [prefix + name for name in sorted(names)]
    allowed = ReadAllowance(_too_much_read)
    nodes: list[Node] = []
    for first in range(0, len(paths), _READ_AT_ONCE):
        part = paths[first : first + _READ_AT_ONCE]
        found = listing.get_many([key for path in part for key in keys_of(path)])
        for position, path in enumerate(part):
            entry, record_entry, directory_entry = found[3 * position : 3 * position + 3]
            node = _child(path, entry, record_entry, directory_entry, state, is_deep=names[name_of(path)])
            if node is not None:
                nodes.append(node)
            if entry is not None:
                allowed.take(entry)
    return nodes


def keys_of(path: str) -> tuple[bytes, bytes, bytes]:
    """Return the raw keys of a path's value, file record and directory record."""
    return path.encode(), file_key(path), directory_key(path)


def _child(
    path: str,
    entry: Entry | None,
    record_entry: Entry | None,
    directory_entry: Entry | None,
    state: State,
    *,
    is_deep: bool,
) -> Node | None:
    record = None
    if directory_entry is not None:
        record = directory_in(directory_entry) or _unread(state, has_file=entry is not None)
    if record is not None and record.is_kept:
        return Node(path, None, record.created, record.modified, record.expires_nanoseconds)
    if is_deep:
        index = (state.floor, state.floor) if record is None else (record.created, record.modified)
        return Node(path, None, *index)
    return None if entry is None else file_node(path, entry, record_entry, state)


def _names(listing: Listing, key_range: KeyRange, prefix: bytes, allowance: _Allowance) -> Iterator[tuple[str, bool]]:
    """Yield the first segments after `prefix`, each with whether it has more behind it; seek past children with many keys."""
    start = key_range.start
    while not allowance.is_over:
        previous, run = b"", 0
        for entry in listing.scan(KeyRange(start, key_range.end), limit=allowance.limit(), keys_only=True):
            allowance.spend()
            segment, slash, _ = entry.key[len(prefix) :].partition(b"/")
            is_seen = bool(previous) and segment == previous
            run = run + 1 if is_seen else 0
            if not is_seen or slash:
                yield from _seen(entry.key, segment, is_deep=bool(slash))
            previous = segment
            if run >= _RUN_KEYS_MAX and slash:
                start = prefix + segment + b"0"  # the byte after "/"
                break
        else:
            return


def _seen(key: bytes, segment: bytes, *, is_deep: bool) -> Iterator[tuple[str, bool]]:
    path = path_of(key[key.find(b"/") :])
    if path is not None and not segment.startswith(b"_"):
        yield segment.decode(), is_deep


def subtree(listing: Listing, directory: Node, state: State, *, entries_max: int | None = None) -> list[Node] | None:
    """Return everything below a directory, nested and sorted at every level, without what is hidden.

    None: there are more than `entries_max` keys, or as many records of them. Raises KeysFailure when too much is read.
    """
    files, directories = records_below(directory.path)
    keys = below(directory.path)
    cut = len(files.start) - len(keys.start)
    limit = None if entries_max is None else entries_max + 1
    allowed = ReadAllowance(_too_much_read)
    found = list(allowed.taken(listing.scan(keys, limit=limit)))
    records = {entry.key[cut:]: entry for entry in allowed.taken(listing.scan(files, limit=limit))}
    kept = allowed.taken(listing.scan(directories, limit=limit))
    noted = [(path_of(entry.key[cut:]), entry) for entry in kept]
    if limit is not None and limit in {len(found), len(records), len(noted)}:
        return None
    at_files = {entry.key for entry in found}
    made = {
        path: directory_in(entry) or _unread(state, has_file=entry.key[cut:] in at_files)
        for path, entry in noted
        if path is not None
    }
    branches: dict[str, dict[str, Node]] = {directory.path: {}}

    def branch(path: str) -> dict[str, Node]:
        found = branches.get(path)
        if found is None:
            record = made.get(path)
            created, modified = (record.created, record.modified) if record else (state.floor, state.floor)
            expires = record.expires_nanoseconds if record and record.is_kept else 0
            branch(parent_of(path))[path] = Node(path, None, created, modified, expires)
            found = branches[path] = {}
        return found

    for path, record in made.items():
        if record.is_kept:
            branch(path)
    for entry in found:
        file_path = path_of(entry.key)
        if file_path is not None:
            node = file_node(file_path, entry, records.get(entry.key), state)
            branch(parent_of(file_path)).setdefault(file_path, node)

    def nested(path: str) -> list[Node]:
        return [
            node._replace(nodes=nested(node.path)) if node.is_directory else node
            for _, node in sorted(branches[path].items())
            if not name_of(node.path).startswith("_")
        ]

    return nested(directory.path)
