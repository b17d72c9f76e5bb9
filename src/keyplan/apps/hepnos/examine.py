"""What can be wrong in a HEPnOS store: HEPnOS checks nothing between databases, so that things can lie about without a parent.

unreadable      a key or a value that the layout of its databases does not explain
misplaced       a key in another database than the one that it is placed on: no read finds it
no-parent       a data set, subrun or event whose parent does not exist
deleting        a data set whose deletion was interrupted, or goes on now; what it still holds is not looked at
no-dataset      a run, subrun, event or product with the UUID of no data set; sweep.py removes it
no-container    a product of a run, subrun or event that does not exist
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from keyplan.apps.hepnos.dataset_ref import is_deleting, uuid_of
from keyplan.apps.hepnos.errors import DeletedError
from keyplan.apps.hepnos.keys import Kind, dataset_key, number_key, path_of_key, split_product
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.engine import ALL_KEYS, Snapshot
from keyplan.errors import CorruptionError
from keyplan.ring import OWN_PREFIX

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.store import DataStore

__all__ = ["Finding", "examine"]

_KEY_BYTES: Final = {Kind.RUN: 24, Kind.SUBRUN: 32, Kind.EVENT: 40}
_TOLD_EVERY: Final = 65_536


class Finding(NamedTuple):
    """Something wrong: which, in which database, at which raw key, and what that key means."""

    finding: str
    kind: str
    database: int
    raw_key: bytes
    meaning: str


def examine(store: "DataStore", *, progress: Callable[[int], None] | None = None) -> Iterator[Finding]:
    """Yield what is wrong, reading every key once and writing nothing. `progress` is told how many keys were read.

    Each database is read as of one moment; what is written meanwhile may be reported. Memory grows with data sets alone.
    """
    examination = _Examination(store, progress or (lambda _: None))
    yield from examination.datasets()
    for kind in (Kind.RUN, Kind.SUBRUN, Kind.EVENT):
        yield from examination.numbered(kind)
    yield from examination.products()


class _Examination:
    def __init__(self, store: "DataStore", progress: Callable[[int], None]) -> None:
        self._store = store
        self._databases = store.databases
        self._progress = progress
        self._read = 0
        self._paths: dict[bytes, str] = {}
        self._deleting: set[bytes] = set()

    def datasets(self) -> Iterator[Finding]:
        for database, snapshot in self._snapshots(Kind.DATASET):
            for key, value in snapshot.pairs(ALL_KEYS):
                if key.startswith(OWN_PREFIX):
                    continue
                path = path_of_key(key)
                if path is None:
                    yield Finding("unreadable", "datasets", database, key, "no data set's key")
                    continue
                try:
                    uuid = uuid_of(value, path).bytes
                    self._paths[uuid] = path
                    if is_deleting(value):
                        self._deleting.add(uuid)
                        yield Finding("deleting", "datasets", database, key, path)
                except CorruptionError:
                    yield Finding("unreadable", "datasets", database, key, f"{path}: the value is no UUID")
                if self._databases.place(Kind.DATASET, key) != database:
                    yield Finding("misplaced", "datasets", database, key, path)
                parent = path.rpartition("/")[0]
                if parent and self._databases.value(Kind.DATASET, dataset_key(parent)) is None:
                    yield Finding("no-parent", "datasets", database, key, path)

    def numbered(self, kind: Kind) -> Iterator[Finding]:
        size = _KEY_BYTES[kind]
        parents = {Kind.SUBRUN: Kind.RUN, Kind.EVENT: Kind.SUBRUN}.get(kind)
        for database, snapshot in self._snapshots(kind):
            before: bytes | None = None
            wrong: list[str] = []
            for key in self._counted(snapshot):
                if len(key) != size or key.endswith(b"\xff" * 8):
                    yield Finding("unreadable", kind.value, database, key, f"no key of {kind.value}")
                    continue
                # Why by parent: keys of one parent stand together, and share its fate.
                if key[:-8] != before:
                    before = key[:-8]
                    wrong = list(self._wrong_parent(kind, parents, database, key))
                for finding in wrong:
                    yield Finding(finding, kind.value, database, key, self._meaning(key))

    def _wrong_parent(self, kind: Kind, parents: Kind | None, database: int, key: bytes) -> Iterator[str]:
        if self._databases.place(kind, key) != database:
            yield "misplaced"
        if key[:16] not in self._paths:
            yield "no-dataset"
        elif parents is not None and not self._is_there(parents, key[:-8]):
            yield "no-parent"

    def products(self) -> Iterator[Finding]:
        for database, snapshot in self._snapshots(Kind.PRODUCT):
            before: bytes | None = None
            wrong: list[str] = []
            for key in self._counted(snapshot):
                if split_product(key) is None or not _is_item(key[16:40]):
                    yield Finding("unreadable", "products", database, key, "no key of a product")
                    continue
                if key[:40] != before:
                    before = key[:40]
                    wrong = list(self._wrong_container(database, key))
                for finding in wrong:
                    meaning = f"{self._meaning(key[:40])} {key[40:].decode(errors='replace')}"
                    yield Finding(finding, "products", database, key, meaning)

    def _wrong_container(self, database: int, key: bytes) -> Iterator[str]:
        if self._databases.place(Kind.PRODUCT, key) != database:
            yield "misplaced"
        if key[:16] not in self._paths:
            yield "no-dataset"
            return
        numbers = _numbers(key[16:40])
        kind = (None, Kind.RUN, Kind.SUBRUN, Kind.EVENT)[len(numbers)]
        if kind is not None and not self._is_there(kind, number_key(UUID(bytes=key[:16]), numbers)):
            yield "no-container"

    def _is_there(self, kind: Kind, key: bytes) -> bool:
        try:
            return self._databases.value(kind, key) is not None
        except DeletedError:  # Why true: it was there with its data set, which somebody has deleted since.
            return True

    def _snapshots(self, kind: Kind) -> Iterator[tuple[int, Snapshot]]:
        for database in range(len(self._databases.rings[kind].databases)):
            with self._databases.snapshot(kind, database) as snapshot:
                yield database, snapshot

    def _counted(self, snapshot: Snapshot) -> Iterator[bytes]:
        for key in snapshot.keys(ALL_KEYS):
            self._read += 1
            if self._read % _TOLD_EVERY == 0:
                self._progress(self._read)
            if not key.startswith(OWN_PREFIX) and key[:16] not in self._deleting:
                yield key

    def _meaning(self, key: bytes) -> str:
        dataset = self._paths.get(key[:16]) or str(UUID(bytes=key[:16]))
        return " ".join([dataset, *map(str, _numbers(key[16:40]))])


def _is_item(raw: bytes) -> bool:
    """Whether the three numbers are those of a container: behind one that is none there is none."""
    return raw[8 * len(_numbers(raw)) :].count(b"\xff") == len(raw) - 8 * len(_numbers(raw))


def _numbers(raw: bytes) -> tuple[int, ...]:
    """Return the numbers before the first that is none."""
    found: list[int] = []
    for at in range(0, len(raw), 8):
        number = int.from_bytes(raw[at : at + 8], "big")
        if number == INVALID_NUMBER:
            break
        found.append(number)
    return tuple(found)
