"""A transaction's uncommitted writes, laid over what is stored: by raw key, merged into scans in key order."""

from collections.abc import Iterable, Iterator, Mapping

from keyplan.engine import NO_LEASE, Entry, KeyRange, merged
from keyplan.layout import IndexEntry
from keyplan.store.plan import RecordState, Write, given_up

__all__ = ["Overlay"]


class Overlay:
    """Entries that the transaction will have written, and keys that it will have removed.

    A written entry has revisions and version 0: they are not known before the commit. Why writes are laid down, and entries
    made, when something is read: most of what a transaction writes it never looks at.
    """

    def __init__(self) -> None:
        self._written: dict[bytes, RecordState | IndexEntry] = {}
        self._leases: dict[bytes, int] = {}
        """Of written keys that hang on a lease; others may be there with NO_LEASE."""
        self._removed: set[bytes] = set()
        self._unread: list[tuple[Write | None, Write, Mapping[bytes, Entry | None]]] = []

    def copy(self) -> "Overlay":
        """Return an overlay that later writes to this one leave as it is."""
        self._lay_down()
        copied = Overlay()
        copied._written, copied._leases, copied._removed = dict(self._written), dict(self._leases), set(self._removed)
        return copied

    def __contains__(self, raw_key: bytes) -> bool:
        if self._unread:
            self._lay_down()
        return raw_key in self._written or raw_key in self._removed

    def get(self, raw_key: bytes) -> Entry | None:
        """Return the entry written at a key that is in the overlay; None when it was removed."""
        if self._unread:
            self._lay_down()
        written = self._written.get(raw_key)
        if written is None:
            return None
        return Entry(raw_key, written.raw_value, 0, 0, 0, self._leases.get(raw_key, NO_LEASE))

    def put(self, raw_key: bytes, raw_value: bytes) -> None:
        """Lay an entry without a lease over the key."""
        self._lay_down()
        self._written[raw_key] = RecordState(raw_value, NO_LEASE, {}, 0, {})

    def replace(self, earlier: Write | None, write: Write, observed: Mapping[bytes, Entry | None]) -> None:
        """Take back what the transaction's `earlier` write of the same record laid down, and lay down that of `write`."""
        self._unread.append((earlier, write, observed))

    def merged(self, stored: Iterable[Entry], key_range: KeyRange, *, reverse: bool) -> Iterator[Entry]:
        """Yield `stored` with the writes of this moment in their places. Later writes are not seen by it."""
        self._lay_down()
        own = sorted((key for key in self._written.keys() | self._removed if key in key_range), reverse=not reverse)
        if not own:
            return iter(stored)
        return merged(iter(stored), [(key, self.get(key)) for key in own], reverse=reverse)

    def _lay_down(self) -> None:
        unread, self._unread = self._unread, []
        for earlier, write, observed in unread:
            self._replace(earlier, write, observed)

    def _replace(self, earlier: Write | None, write: Write, observed: Mapping[bytes, Entry | None]) -> None:
        if earlier is not None and earlier.new is not None:
            # Invariant: while a record's write stands, no other record of the transaction has an entry of it.
            for raw_key in earlier.new.index_entries:
                self._written.pop(raw_key, None)
        new = write.new
        if write.old is not None:
            self._removed.update(given_up(write, observed.get))
        if new is None:
            self._written.pop(write.raw_key, None)
            self._removed.add(write.raw_key)
            return
        self._written[write.raw_key] = new
        self._written.update(new.index_entries)
        if new.lease != NO_LEASE or self._leases:
            self._leases.update(dict.fromkeys((write.raw_key, *new.index_entries), new.lease))
