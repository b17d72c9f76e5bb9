"""A transaction's uncommitted writes, laid over what is stored: by raw key, merged into scans in key order."""

from collections.abc import Iterable, Iterator, Mapping

from keyplan.engine import NO_LEASE, Entry, KeyRange
from keyplan.store.plan import Write, given_up

__all__ = ["Overlay"]


class Overlay:
    """Entries that the transaction will have written, and keys that it will have removed.

    A written entry has revisions and version 0: they are not known before the commit.
    """

    def __init__(self, written: Iterable[tuple[bytes, Entry]] = (), removed: Iterable[bytes] = ()) -> None:
        self._written = dict(written)
        self._removed = set(removed)

    def copy(self) -> "Overlay":
        """Return an overlay that later writes to this one leave as it is."""
        return Overlay(self._written.items(), self._removed)

    def __contains__(self, raw_key: bytes) -> bool:
        return raw_key in self._written or raw_key in self._removed

    def get(self, raw_key: bytes) -> Entry | None:
        """Return the entry written at a key that is in the overlay; None when it was removed."""
        return self._written.get(raw_key)

    def put(self, raw_key: bytes, raw_value: bytes, lease: int = NO_LEASE) -> None:
        """Lay an entry over the key."""
        # Why: made without NamedTuple's own Python frame, because a record of four entries lays down five.
        self._written[raw_key] = tuple.__new__(Entry, (raw_key, raw_value, 0, 0, 0, lease))

    def replace(self, earlier: Write | None, write: Write, observed: Mapping[bytes, Entry | None]) -> None:
        """Take back what the transaction's `earlier` write of the same record laid down, and lay down that of `write`."""
        if earlier is not None and earlier.new is not None:
            # Invariant: while a record's write stands, no other record of the transaction has an entry of it.
            for raw_key in earlier.new.pointers:
                self._written.pop(raw_key, None)
        new = write.new
        if write.old is not None:
            self._removed.update(given_up(write, observed))
        if new is None:
            self._written.pop(write.raw_key, None)
            self._removed.add(write.raw_key)
            return
        self.put(write.raw_key, new.raw_value, new.lease)
        written, lease, make = self._written, new.lease, tuple.__new__
        for raw_key, pointer in new.pointers.items():
            written[raw_key] = make(Entry, (raw_key, pointer.raw_value, 0, 0, 0, lease))  # as in `put`

    def merged(self, stored: Iterable[Entry], key_range: KeyRange, *, reverse: bool) -> Iterator[Entry]:
        """Yield `stored` with the writes of this moment in their places. Later writes are not seen by it."""
        own = sorted((key for key in self._written.keys() | self._removed if key in key_range), reverse=not reverse)
        if not own:
            return iter(stored)
        return _merge(iter(stored), [(key, self._written.get(key)) for key in own], reverse=reverse)


def _merge(stored: Iterator[Entry], own: list[tuple[bytes, Entry | None]], *, reverse: bool) -> Iterator[Entry]:
    """Merge two sorted sequences; `own` is in the opposite order, so that its next item is its last."""
    for entry in stored:
        while own and (own[-1][0] > entry.key if reverse else own[-1][0] < entry.key):
            written = own.pop()[1]
            if written is not None:
                yield written
        if own and own[-1][0] == entry.key:
            written = own.pop()[1]
            if written is not None:
                yield written
        else:
            yield entry
    for _, written in reversed(own):
        if written is not None:
            yield written
