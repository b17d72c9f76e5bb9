"""A state that notes what is read of it: what was made from those reads may be kept while the store still says the same.

And what is asked of a pinned state by those who work on stored bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from keyplan.codec import SecretCipher
from keyplan.engine import NO_LEASE, Engine, Entry, Fences, KeyRange, Snapshot
from keyplan.layout import BoundTable
from keyplan.store.access import EntryReads, Reader, SnapshotReader
from keyplan.store.transaction import PinnedState

__all__ = ["NotedState", "entries_in", "holds_in"]


def entries_in(state: PinnedState, table: BoundTable, keys: Iterable[object]) -> list[Entry | None]:
    """Return each record of a table as a state has it stored, None where there is none. Raises InvalidKeyError."""
    return state.reader.get_many(list(map(table.keys.encode, keys)))


def holds_in(state: PinnedState, fences: Fences) -> bool:
    """Return whether each key of `fences` has its value in a state."""
    return state.reader.values([key for key, _ in fences]) == [value for _, value in fences]


class NotedState(PinnedState):
    """A pinned state that notes each key that views read, with its value. Who opened what it reads closes that.

    Records have no history here: their revisions and versions are 0, and they hang on no lease. So what is made of this state
    alone follows from the noted values alone. What is only read ahead is not noted.
    """

    def __init__(self, reader: Reader, engine: Engine, *, secrets: SecretCipher | None = None) -> None:
        self._noting = _NotingReader(reader)
        super().__init__(self._noting, engine, secrets=secrets)

    @classmethod
    def over(cls, snapshot: Snapshot, engine: Engine, *, secrets: SecretCipher | None = None) -> Self:
        """Return a state over an engine's snapshot."""
        return cls(SnapshotReader(snapshot), engine, secrets=secrets)

    @classmethod
    def of(cls, state: PinnedState) -> Self:
        """Return the same state, which is what was read ahead there as well, without notes as yet."""
        return cls(state.reader, state.engine, secrets=state.secrets)

    def fences(self) -> Fences | None:
        """Return what was read so far; None when that was more than values by their keys: a range, or a revision."""
        return tuple(self._noting.noted.items()) if self._noting.is_whole else None

    def entry(self, raw_key: bytes) -> Entry | None:
        """Return the entry at a key, with its history, or None. It is not noted."""
        return self._noting.inner.get(raw_key)


class _NotingReader:
    """Invariant: whatever a view is answered is either in `noted`, or has made `is_whole` False."""

    def __init__(self, inner: Reader) -> None:
        self.inner = inner
        self.noted: dict[bytes, bytes | None] = {}
        self.is_whole = True

    @property
    def revision(self) -> int:
        self.is_whole = False
        return self.inner.revision

    @property
    def epoch(self) -> str:
        self.is_whole = False
        return self.inner.epoch

    def get(self, raw_key: bytes, /) -> Entry | None:
        return self.get_many((raw_key,))[0]

    def value(self, raw_key: bytes, /) -> bytes | None:
        return self.values((raw_key,))[0]

    def get_many(self, raw_keys: Sequence[bytes], /) -> list[Entry | None]:
        values = self.values(raw_keys)
        return [
            None if value is None else Entry(raw_key, value, 0, 0, 0, NO_LEASE)
            for raw_key, value in zip(raw_keys, values, strict=True)
        ]

    def values(self, raw_keys: Sequence[bytes], /) -> list[bytes | None]:
        found = self.inner.values(raw_keys)
        self.noted.update(zip(raw_keys, found, strict=True))
        return found

    def get_with_epoch(self, raw_key: bytes, /) -> tuple[Entry | None, str]:
        return self.get(raw_key), self.epoch

    def read_ahead(self, raw_keys: Sequence[bytes], /) -> None:
        self.inner.read_ahead(raw_keys)

    def scan(self, key_range: KeyRange, *, reverse: bool, keys_only: bool) -> Iterator[Entry]:
        self.is_whole = False
        with self.inner.pinned() as reads:
            yield from reads.scan(key_range, reverse=reverse, keys_only=keys_only)

    def pairs(self, key_range: KeyRange, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        self.is_whole = False
        with self.inner.pinned() as reads:
            yield from reads.pairs(key_range, reverse=reverse)

    def pinned(self) -> AbstractContextManager[EntryReads]:
        return nullcontext(self)
