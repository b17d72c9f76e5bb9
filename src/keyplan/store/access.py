"""Where views read and write. Reads: the latest state of a store, one snapshot, or a transaction. Raw keys and entries alone.

What a piece of work is known to read is read ahead, at once: over a network, one round trip in place of many. Writes: a store
(each write one commit), a transaction (collected), or a snapshot (refused).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import filterfalse
from typing import NoReturn, Protocol, TypeAlias

from keyplan.engine import Engine, Entry, KeyRange, Snapshot
from keyplan.errors import UnsupportedByEngineError
from keyplan.layout import BoundCounter, BoundIndex, BoundTable, ExpectedRevision
from keyplan.store.index_state import index_state_key

__all__ = [
    "EntryReads",
    "KeyRef",
    "LatestReader",
    "NoWriter",
    "Reader",
    "SingleReads",
    "SnapshotReader",
    "Writer",
    "raw_keys_of",
]

# ---- reading --------------------------------------------------------------------------------------------------------------


class SingleReads(Protocol):
    """Reads of entries by raw key. Each call sees one state."""

    @property
    def revision(self) -> int:
        """The revision that is read."""
        ...

    @property
    def epoch(self) -> str:
        """What the revisions of the entries count in, as `Snapshot.epoch` says."""
        ...

    def get(self, raw_key: bytes, /) -> Entry | None:
        """Return the entry at the key, or None."""
        ...

    def value(self, raw_key: bytes, /) -> bytes | None:
        """Return the value at the key, or None: the shortest way, for the reads that ask for nothing else."""
        ...

    def get_many(self, raw_keys: Sequence[bytes], /) -> list[Entry | None]:
        """Return the entry or None for each key, in the order asked."""
        ...

    def values(self, raw_keys: Sequence[bytes], /) -> list[bytes | None]:
        """Return the value or None for each key, in the order asked."""
        ...


class EntryReads(SingleReads, Protocol):
    """Reads of one state, by ranges too. An engine's snapshot has them.

    What a range yields is read from the first `next` on, until the iterator is exhausted or closed.
    """

    def scan(self, key_range: KeyRange, *, reverse: bool, keys_only: bool) -> Iterator[Entry]:
        """Yield the entries in the range."""
        ...

    def pairs(self, key_range: KeyRange, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values in the range: for the reads that ask for no histories."""
        ...


class Reader(SingleReads, Protocol):
    """Where views read: the same calls, and three more."""

    def get_with_epoch(self, raw_key: bytes, /) -> tuple[Entry | None, str]:
        """Return the entry at the key, or None, and the epoch of the state that it was read in."""
        ...

    def read_ahead(self, raw_keys: Sequence[bytes], /) -> None:
        """Read the entries at the keys together, for the single reads to come. In a transaction that makes none a premise."""
        ...

    def pinned(self) -> AbstractContextManager[EntryReads]:
        """Return reads all of which see one and the same state, for the length of a block."""
        ...


class SnapshotReader:
    """Reads one snapshot, which the caller closes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ahead: dict[bytes, Entry | None] = {}
        self.get: Callable[[bytes], Entry | None] = snapshot.get
        self.value: Callable[[bytes], bytes | None] = snapshot.value
        self.get_many: Callable[[Sequence[bytes]], list[Entry | None]] = snapshot.get_many
        self.values: Callable[[Sequence[bytes]], list[bytes | None]] = snapshot.values

    @property
    def revision(self) -> int:
        return self._snapshot.revision

    @property
    def epoch(self) -> str:
        return self._snapshot.epoch

    def read_ahead(self, raw_keys: Sequence[bytes], /) -> None:
        # Why replaced here: who never reads ahead pays nothing, and a snapshot's entries cannot change.
        ahead = self._ahead
        missing = list(filterfalse(ahead.__contains__, dict.fromkeys(raw_keys)))
        if missing:
            ahead.update(zip(missing, self._snapshot.get_many(missing), strict=True))
        self.get = self._get
        self.value = self._value
        self.get_many = self._get_many
        self.values = self._values

    def get_with_epoch(self, raw_key: bytes, /) -> tuple[Entry | None, str]:
        return self.get(raw_key), self._snapshot.epoch

    def _get(self, raw_key: bytes, /) -> Entry | None:
        return self._ahead[raw_key] if raw_key in self._ahead else self._snapshot.get(raw_key)

    def _value(self, raw_key: bytes, /) -> bytes | None:
        if raw_key not in self._ahead:
            return self._snapshot.value(raw_key)
        entry = self._ahead[raw_key]
        return None if entry is None else entry.value

    def _get_many(self, raw_keys: Sequence[bytes], /) -> list[Entry | None]:
        missing = [raw_key for raw_key in raw_keys if raw_key not in self._ahead]
        read = dict(zip(missing, self._snapshot.get_many(missing), strict=True)) if missing else {}
        return [read[raw_key] if raw_key in read else self._ahead[raw_key] for raw_key in raw_keys]

    def _values(self, raw_keys: Sequence[bytes], /) -> list[bytes | None]:
        return [None if entry is None else entry.value for entry in self._get_many(raw_keys)]

    def scan(self, key_range: KeyRange, *, reverse: bool, keys_only: bool) -> Iterator[Entry]:
        return self._snapshot.scan(key_range, reverse=reverse, keys_only=keys_only)

    def pairs(self, key_range: KeyRange, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._snapshot.pairs(key_range, reverse=reverse)

    def pinned(self) -> AbstractContextManager[EntryReads]:
        return nullcontext(self)


class LatestReader:
    """Reads the latest committed state, anew in each call."""

    def __init__(self, engine: Engine) -> None:
        self._open = engine.snapshot
        # Why: not even methods of our own; they are the path of every single read, and of every list
        self.value = engine.value
        self.pinned: Callable[[], AbstractContextManager[EntryReads]] = engine.snapshot

    @property
    def revision(self) -> int:
        with self._open() as snapshot:
            return snapshot.revision

    @property
    def epoch(self) -> str:
        with self._open() as snapshot:
            return snapshot.epoch

    def get(self, raw_key: bytes) -> Entry | None:
        # Why: try and finally cost less than a with block, and this is the path of every single read.
        snapshot = self._open()
        try:
            return snapshot.get(raw_key)
        finally:
            snapshot.close()

    def get_with_epoch(self, raw_key: bytes) -> tuple[Entry | None, str]:
        snapshot = self._open()
        try:
            return snapshot.get(raw_key), snapshot.epoch
        finally:
            snapshot.close()

    def get_many(self, raw_keys: Sequence[bytes]) -> list[Entry | None]:
        with self._open() as snapshot:
            return snapshot.get_many(raw_keys)

    def values(self, raw_keys: Sequence[bytes]) -> list[bytes | None]:
        with self._open() as snapshot:
            return snapshot.values(raw_keys)

    def read_ahead(self, raw_keys: Sequence[bytes]) -> None:
        """Do nothing: each read is of the state that is the latest then."""


# ---- what is read ahead -----------------------------------------------------------------------------------------------

KeyRef: TypeAlias = tuple[BoundTable, object] | tuple[BoundIndex, object]
"""One record of a table, or one entry of a unique index; of any index, with None as its key, whether it may be read."""


def raw_keys_of(refs: Iterable[KeyRef]) -> list[bytes]:
    """Return the raw keys that a look at these keys reads, each once. Raises InvalidKeyError."""
    raw_keys: dict[bytes, None] = {}
    for source, key in refs:
        if isinstance(source, BoundIndex):
            raw_keys[index_state_key(source)] = None
        if key is not None:
            raw_keys[source.keys.encode(key)] = None
    return list(raw_keys)


# ---- writing --------------------------------------------------------------------------------------------------------------


class Writer(Protocol):
    """The writes of `TableView` and `CounterView`, with the table or counter named; see there for what each promises."""

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int: ...

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool,
    ) -> int: ...

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool,
    ) -> int: ...

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int: ...

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool,
    ) -> int: ...

    def rename(self, table: BoundTable, key: object, new_key: object) -> int: ...

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        """Let `choose(next number)` be the counter's next number; return the number before and after."""
        ...


class NoWriter:
    """Refuses every write: a snapshot is one state of the store, and stays it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def refuse(self) -> NoReturn:
        """Raise UnsupportedByEngineError."""
        raise UnsupportedByEngineError(engine=self._engine.profile.name, capability="writing to a snapshot")

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int:
        self.refuse()

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool,
    ) -> int:
        self.refuse()

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool,
    ) -> int:
        self.refuse()

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int:
        self.refuse()

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool,
    ) -> int:
        self.refuse()

    def rename(self, table: BoundTable, key: object, new_key: object) -> int:
        self.refuse()

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        self.refuse()
