"""Deleted data sets: each database of runs, subruns, events and products remembers the UUIDs of those that it had.

    00 00 keyplan.all/hepnos.deleted/ UUID    empty; below what a ring keeps in each database alike

Whoever removes all that has a UUID leaves this entry in the same commit. Every write of a key that begins with the UUID is
guarded by its absence, and every read that finds nothing looks for it. So a handle of a deleted data set writes nothing and is
told, whatever process has it: a UUID is made once, and a data set that is made again under the name has another. The entries
stay, 46 bytes each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Final, TypeVar
from uuid import UUID

from keyplan.apps.hepnos.errors import DeletedError
from keyplan.engine import (
    Commit,
    DeleteRange,
    Engine,
    Entry,
    Fences,
    Guard,
    KeyAbsent,
    KeyRange,
    Profile,
    Put,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
    check_sorted,
    failures_of,
    load_by_commits,
)
from keyplan.errors import CommitConflictError
from keyplan.ring import OWN_PREFIX, SHARED_PREFIX

__all__ = ["FencedDatabase", "deleted_key"]

_UUID_BYTES: Final = 16
_DELETED: Final = SHARED_PREFIX + b"hepnos.deleted/"
_ENTRY_BYTES: Final = 2 * (len(_DELETED) + _UUID_BYTES)
"""Of a commit: an entry that is guarded, and one that is written."""

T = TypeVar("T")


def deleted_key(uuid: bytes) -> bytes:
    """Return the raw key of the entry that a data set was deleted."""
    return _DELETED + uuid


def _whole_uuid(key_range: KeyRange) -> bytes | None:
    """Return the UUID that a range has all keys of, or None."""
    start = key_range.start
    return start if len(start) == _UUID_BYTES and key_range == KeyRange.of_prefix(start) else None


class FencedDatabase(WrappedEngine):
    """A database of runs, subruns, events or products in which nothing is written for data sets that were deleted.

    Raises DeletedError for a commit that would, and for a read that finds nothing of such a data set.
    """

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._profile = _within(inner.profile)

    @property
    def profile(self) -> Profile:
        return self._profile

    # ---- writing -------------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> int:
        mutations = list(commit.mutations)
        written: set[bytes] = set()
        for mutation in commit.mutations:
            if isinstance(mutation, Put) and not mutation.key.startswith(OWN_PREFIX):
                written.add(mutation.key[:_UUID_BYTES])
            elif isinstance(mutation, DeleteRange) and (uuid := _whole_uuid(mutation.range)) is not None:
                mutations.append(Put(deleted_key(uuid), b""))
        fences = tuple(map(_absent, sorted(written)))
        whole = Commit((*commit.guards, *fences), tuple(mutations), commit.epoch)
        try:
            return self.inner.commit(whole)
        except CommitConflictError as error:
            _tell(error, fences)
            raise

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        if not keys or keys[0][:_UUID_BYTES] == keys[-1][:_UUID_BYTES]:
            return self._put_sorted(keys, values, guards, overwrite=overwrite)
        given = check_sorted(keys, values, self._profile)
        new = 0
        # Why by data set: each is fenced by itself, and a commit of an engine takes few guards.
        for _, pairs in groupby(zip(keys, given, strict=True), lambda pair: pair[0][:_UUID_BYTES]):
            own_keys, own_values = zip(*pairs, strict=True)
            new += self._put_sorted(own_keys, None if values is None else own_values, guards, overwrite=overwrite)
        return new

    def _put_sorted(
        self, keys: Sequence[bytes], values: Sequence[bytes] | None, guards: Sequence[Guard], *, overwrite: bool
    ) -> int:
        fences = tuple(_absent(key[:_UUID_BYTES]) for key in keys[:1])
        try:
            return self.inner.put_sorted(keys, values, guards=(*guards, *fences), overwrite=overwrite)
        except CommitConflictError as error:
            _tell(error, fences)
            raise

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        return load_by_commits(self, entries)  # Why by commits: they are fenced.

    def removing(self, uuid: bytes, keys_max: int, commit: Callable[[Commit], None]) -> Iterator[int]:
        """Remove what has a UUID, so many keys in a commit; yield how many they were. Nobody writes any from the beginning on.

        `commit` is that of the ring, which guards each by its description.
        """
        commit(Commit((), (Put(deleted_key(uuid), b""),), ""))
        rest = KeyRange.of_prefix(uuid)
        while True:
            with self.inner.snapshot() as snapshot:
                keys = list(snapshot.keys(rest, limit=keys_max))
            if not keys:
                return
            part = KeyRange(keys[0], keys[-1] + b"\x00")
            commit(Commit((), (DeleteRange(part),), ""))
            rest = KeyRange(keys[-1] + b"\x00", rest.end)
            yield len(keys)

    # ---- reading -------------------------------------------------------------------------------------------------------

    def value(self, key: bytes) -> bytes | None:
        value = self.inner.value(key)
        if value is None:
            self._check(key)
        return value

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        found = self.inner.fenced_value(key, fences)
        if found[1] is None and found[0]:
            self._check(key)
        return found

    def _check(self, key: bytes) -> None:
        # Why after the read: what is there is of no deleted data set, and is read by millions.
        uuid = key[:_UUID_BYTES]
        if not key.startswith(OWN_PREFIX) and self.inner.value(deleted_key(uuid)) is not None:
            raise _deleted(uuid)

    def snapshot(self) -> Snapshot:
        return _FencedSnapshot(self.inner.snapshot())


class _FencedSnapshot(WrappedSnapshot):
    """A snapshot that says so where it finds nothing of a data set that was deleted before it was taken."""

    def get(self, key: bytes) -> Entry | None:
        found = self.inner.get(key)
        if found is None:
            self._check([key])
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return self._checked(keys, self.inner.get_many(keys))

    def value(self, key: bytes) -> bytes | None:
        found = self.inner.value(key)
        if found is None:
            self._check([key])
        return found

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._checked(keys, self.inner.values(keys))

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        found = self.inner.values_within(keys, bytes_max)
        return self._checked(keys[: len(found)], found)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        return self._begun(key_range, self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only))

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        return self._begun(key_range, self.inner.keys(key_range, limit=limit, reverse=reverse))

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._begun(key_range, self.inner.pairs(key_range, limit=limit, reverse=reverse))

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return self._begun(key_range, self.inner.columns(key_range, limit=limit, reverse=reverse))

    def count(self, key_range: KeyRange) -> int:
        found = self.inner.count(key_range)
        if not found:
            self._check_range(key_range)
        return found

    def _begun(self, key_range: KeyRange, found: Iterator[T]) -> Iterator[T]:
        """Return what was found, whose first was looked at. Why so: all others pass nothing of ours."""
        for first in found:
            return chain((first,), found)
        self._check_range(key_range)
        return iter(())

    def _checked(self, keys: Sequence[bytes], found: list[T | None]) -> list[T | None]:
        if None in found:
            self._check([key for key, each in zip(keys, found, strict=True) if each is None])
        return found

    def _check_range(self, key_range: KeyRange) -> None:
        """Look for the data set that a range is in."""
        uuid = key_range.start[:_UUID_BYTES]
        whole = KeyRange.of_prefix(uuid)
        is_within = whole.end is None or (key_range.end is not None and key_range.end <= whole.end)
        if len(uuid) == _UUID_BYTES and is_within:
            self._check([uuid])

    def _check(self, keys: Iterable[bytes]) -> None:
        uuids = sorted({key[:_UUID_BYTES] for key in keys if not key.startswith(OWN_PREFIX)})
        for uuid, deleted in zip(uuids, self.inner.values([*map(deleted_key, uuids)]) if uuids else (), strict=True):
            if deleted is not None:
                raise _deleted(uuid)


def _absent(uuid: bytes) -> KeyAbsent:
    return KeyAbsent(deleted_key(uuid))


def _tell(error: CommitConflictError, fences: Sequence[KeyAbsent]) -> None:
    """Raise DeletedError when one of the fences has failed."""
    for failure in failures_of(error):
        if isinstance(failure.guard, KeyAbsent) and failure.guard in fences:
            raise _deleted(failure.guard.key[len(_DELETED) :]) from error


def _deleted(uuid: bytes) -> DeletedError:
    return DeletedError(table="datasets", key=str(UUID(bytes=uuid)) if len(uuid) == _UUID_BYTES else uuid.hex())


def _within(profile: Profile) -> Profile:
    """Return the limits that are left beside a fence and an entry."""
    operations, size = profile.commit_operations_max, profile.commit_bytes_max
    return replace(
        profile,
        commit_operations_max=None if operations is None else operations - 1,
        commit_bytes_max=None if size is None else size - _ENTRY_BYTES,
    )
