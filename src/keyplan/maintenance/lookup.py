"""Entries of one snapshot by raw key, fetched many at once and kept for as long as a batch is looked at."""

from collections.abc import Iterable

from keyplan.engine import Entry, Snapshot

__all__ = ["Lookup"]


class Lookup:
    """Reads of one snapshot. Memory grows with the keys asked for: make one for each batch."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[bytes, Entry | None] = {}

    @property
    def epoch(self) -> str:
        """What a commit must carry whose guards come from here."""
        return self._snapshot.epoch

    def fetch(self, raw_keys: Iterable[bytes]) -> None:
        """Read these keys at once. Why: over a network each read is a round trip."""
        missing = [raw_key for raw_key in dict.fromkeys(raw_keys) if raw_key not in self._known]
        if missing:
            self._known.update(zip(missing, self._snapshot.get_many(missing), strict=True))

    def add(self, entries: Iterable[Entry]) -> None:
        """Take in entries that were read from the same snapshot."""
        self._known.update((entry.key, entry) for entry in entries)

    def get(self, raw_key: bytes) -> Entry | None:
        """Return the entry at the key, or None."""
        if raw_key not in self._known:
            self._known[raw_key] = self._snapshot.get(raw_key)
        return self._known[raw_key]
