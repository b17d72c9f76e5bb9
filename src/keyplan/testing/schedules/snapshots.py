"""Snapshots that leave a footprint: what is read joins the step that took the snapshot, whenever it is read."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from keyplan.engine import Entry, Fences, KeyRange, Snapshot
from keyplan.testing.contract import controls
from keyplan.testing.schedules.footprint import placed_range, revision_key
from keyplan.testing.schedules.steps import REVISION_SEEN, Parking, Step, note

__all__ = ["ParkingSnapshot", "RecordedSnapshot"]

T = TypeVar("T")


@controls(Snapshot)
class ParkingSnapshot(Snapshot):
    """A snapshot whose reads join the footprint of the step that took it, whenever they are made.

    They need no parking: what is read does not change, so that a read commutes with everything.
    """

    def __init__(self, inner: Snapshot, step: Step, run: Parking, number: int) -> None:
        self.inner = inner
        self.step = step
        self._run = run
        self._number = number
        self._prefix = b"%c" % number
        self._is_open = True
        step.open_snapshots += 1

    @property
    def revision(self) -> int:
        if self._run.revisions_matter:
            self.step.keys_read.add(revision_key(self._number))
        return self.inner.revision

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    def read_along(self, keys: Sequence[bytes]) -> None:
        self.inner.read_along(keys)

    def holds(self, fences: Fences) -> bool:
        return Snapshot.holds(self, fences)  # Why: what it reads leaves the footprint of any read.

    def get(self, key: bytes) -> Entry | None:
        self.step.keys_read.add(self._prefix + key)
        return self.inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self.step.keys_read.update([self._prefix + key for key in keys])
        return self.inner.get_many(keys)

    def value(self, key: bytes) -> bytes | None:
        self.step.keys_read.add(self._prefix + key)
        return self.inner.value(key)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.step.keys_read.update([self._prefix + key for key in keys])
        return self.inner.values(keys)

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        found = self.inner.values_within(keys, bytes_max)
        self.step.keys_read.update([self._prefix + key for key in keys[: len(found)]])
        return found

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        found = self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)
        return self.consumed(found, _entry_key, key_range, limit, reverse=reverse)

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        found = self.inner.keys(key_range, limit=limit, reverse=reverse)
        return self.consumed(found, _itself, key_range, limit, reverse=reverse)

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        found = self.inner.pairs(key_range, limit=limit, reverse=reverse)
        return self.consumed(found, _pair_key, key_range, limit, reverse=reverse)

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return super().columns(
            key_range, limit=limit, reverse=reverse
        )  # Why: it is made of `pairs`, which is consumed.

    def consumed(
        self, found: Iterator[T], key_of: Callable[[T], bytes], key_range: KeyRange, limit: int | None, *, reverse: bool
    ) -> Iterator[T]:
        """Yield what is found; the range is read as far as it was consumed, and whole once it is exhausted."""
        ranges = self.step.ranges_read
        place = len(ranges)
        start, end = placed_range(self._number, key_range)
        ranges.append((start, start))
        count = 0
        for item in found:
            key = self._prefix + key_of(item)
            ranges[place] = (key, end) if reverse else (start, key + b"\x00")
            count += 1
            yield item
        if limit is None or count < limit:
            ranges[place] = (start, end)

    def count(self, key_range: KeyRange) -> int:
        self.step.ranges_read.append(placed_range(self._number, key_range))
        return self.inner.count(key_range)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.step.open_snapshots -= 1
        self.inner.close()


class RecordedSnapshot(ParkingSnapshot):
    """A snapshot that writes down what was read, too: for runs that are compared or shown."""

    @property
    def revision(self) -> int:
        revision = super().revision
        note(self.step, REVISION_SEEN, None, revision)
        return revision

    def get(self, key: bytes) -> Entry | None:
        entry = super().get(key)
        note(self.step, "get", key, entry)
        return entry

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        entries = super().get_many(keys)
        for key, entry in zip(keys, entries, strict=True):
            note(self.step, "get", key, entry)
        return entries

    def value(self, key: bytes) -> bytes | None:
        value = super().value(key)
        note(self.step, "value", key, value)
        return value

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = super().values(keys)
        for key, value in zip(keys, values, strict=True):
            note(self.step, "value", key, value)
        return values

    def consumed(
        self, found: Iterator[T], key_of: Callable[[T], bytes], key_range: KeyRange, limit: int | None, *, reverse: bool
    ) -> Iterator[T]:
        taken: list[T] = []
        note(self.step, "scan", key_range, taken)
        for item in super().consumed(found, key_of, key_range, limit, reverse=reverse):
            taken.append(item)
            yield item

    def count(self, key_range: KeyRange) -> int:
        count = super().count(key_range)
        note(self.step, "count", key_range, count)
        return count


def _entry_key(entry: Entry) -> bytes:
    return entry.key


def _itself(key: bytes) -> bytes:
    return key


def _pair_key(pair: tuple[bytes, bytes]) -> bytes:
    return pair[0]
