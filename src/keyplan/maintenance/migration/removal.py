"""What is to be done about an old record in the clean-up: removed beside its copy, or left because it was written since."""

from collections.abc import Iterator

from keyplan.engine import Commit, Delete, Entry, Mutation
from keyplan.errors import InvalidKeyError
from keyplan.jobs import Lookup, as_read
from keyplan.maintenance.migration.marks import Mark, decoded, digest_of, mark_key
from keyplan.maintenance.migration.merge import Contest, Decision, Outcome, keys_read
from keyplan.maintenance.migration.transform import Converter

__all__ = ["Remover"]


class Remover:
    """Decides about the old records of one moved table, each from one snapshot.

    `takes_vanished`: an old record whose copy is not there any more goes as well.
    """

    def __init__(self, migration: bytes, converter: Converter, *, takes_vanished: bool) -> None:
        self._migration = migration
        self._takes_vanished = takes_vanished
        self._converter = converter

    def keys_of(self, old_key: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        return keys_read(self._migration, self._converter, old_key)

    def decide(self, old_key: bytes, read: Lookup) -> Decision:
        """Say what to do about the record at an old raw key: it goes when it is what its mark says that was carried over."""
        try:
            new_key = self._converter.new_key(old_key)[1]
        except InvalidKeyError:
            return Decision(Outcome.CONTESTED, None, Contest(old_key, None, "the record has no key in the new layout"))
        place = mark_key(self._migration, old_key)
        old, new, entry = read.get(old_key), read.get(new_key), read.get(place)
        if old is None or new_key == old_key:
            return Decision(Outcome.UNCHANGED)
        mark: Mark | None = None if entry is None else decoded(entry)
        if mark is None or mark.old != digest_of(old):
            reason = "it was written while it was about to be removed"
            return Decision(Outcome.CONTESTED, None, Contest(old_key, new_key, reason))
        if new is None and not self._takes_vanished:
            return Decision(Outcome.CONTESTED, None, Contest(old_key, new_key, "its copy is not there any more"))
        entries = list(self._entries(old, new, read))
        guards = [as_read(raw_key, read.get(raw_key)) for raw_key in (old_key, new_key, place, *entries)]
        # Invariant: a mark without its old record says that somebody removed it, and takes the copy along.
        mutations: list[Mutation] = [Delete(raw_key) for raw_key in (old_key, place, *entries)]
        return Decision(Outcome.REMOVED, Commit(tuple(guards), tuple(mutations), read.epoch))

    def _entries(self, old: Entry, new: Entry | None, read: Lookup) -> Iterator[bytes]:
        """The entries of the old record, but for those that the new record has as well."""
        kept = {} if new is None else self._converter.stored_entries(new)
        index_entries = self._converter.old_entries(old)
        read.fetch(index_entries)
        for raw_key, index_entry in index_entries.items():
            entry = read.get(raw_key)
            if raw_key not in kept and entry is not None and entry.value == index_entry.raw_value:
                yield raw_key
