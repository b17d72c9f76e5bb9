"""All events of a data set, over all event databases or one of them, or some: handles one by one, columns, collections."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.collection import Collections
from keyplan.apps.hepnos.columns import EVENT_COLUMNS, key_numbers
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.event_selection import EventSelection
from keyplan.apps.hepnos.keys import Kind, event_numbers
from keyplan.apps.hepnos.numbered import Event
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError

__all__ = ["EventSet"]

_BATCH_EVENTS: Final = 65_536
_PIECE_EVENTS: Final = 4_096


class EventSet:
    """The events of a data set, sorted by run, subrun and event, whatever database each is in.

    `events["Muon"]` is a collection of them, and `events[:1000]`, `events[mask]` are some of them, chosen from those that
    there are now. All else sees the latest state.
    """

    __slots__ = ("dataset", "target")

    def __init__(self, dataset: DataSetRef, target: int | None = None) -> None:
        dataset.datastore.databases.targets(Kind.EVENT, target)
        self.dataset = dataset
        self.target = None if target == -1 else target

    def __iter__(self) -> Iterator[Event]:
        dataset = self.dataset
        for keys in self._pieces(_PIECE_EVENTS):
            yield from map(Event, repeat(dataset), event_numbers(keys), keys)

    def targets(self) -> "list[EventSet]":
        """Return the same events by database: disjoint sets that together are this one."""
        return [EventSet(self.dataset, target) for target in self._targets]

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        # Why: a view is one, however many events it has; and to count them takes a read of all.
        return True

    def __getitem__(self, key: Any) -> Any:
        return self.selection()[key]

    def selection(self) -> EventSelection:
        """Return the events that there are now."""
        return EventSelection(self.dataset, self.to_numpy())

    def collections(self, schema: str | None = None) -> Collections:
        """Return what the events that there are now have, by name; see `EventSelection.collections`."""
        return self.selection().collections(schema)

    def count(self) -> int:
        """Return how many events there are."""
        databases = self.dataset.datastore.databases
        total = 0
        for target in self._targets:
            with databases.snapshot(Kind.EVENT, target) as snapshot:
                total += snapshot.count(self.key_range)
        return total

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return all events as one array of EVENT_COLUMNS, in the order of iteration."""
        # Why small pieces: their keys are still in the processor's cache when they are joined.
        parts = list(self.batches(_PIECE_EVENTS))
        return np.concatenate(parts) if parts else np.empty(0, EVENT_COLUMNS)

    def batches(self, size: int = _BATCH_EVENTS) -> Iterator[npt.NDArray[Any]]:
        """Yield the events as arrays of `size` rows, the last of what is left; memory does not grow with the data set."""
        if size < 1:
            raise InvalidInputError(source="size", problem=f"a batch has at least one event, not {size}")
        for keys in self._pieces(size):
            yield key_numbers(b"".join(keys), EVENT_COLUMNS)

    @property
    def key_range(self) -> KeyRange:
        """The raw keys of the events, in each database."""
        return KeyRange.of_prefix(self.dataset.uuid.bytes)

    @property
    def _targets(self) -> range:
        return self.dataset.datastore.databases.targets(Kind.EVENT, self.target)

    def _pieces(self, size: int) -> Iterator[list[bytes]]:
        """Yield the raw keys in lists of so many, the last of what is left."""
        snapshot_of = self.dataset.datastore.databases.snapshot
        with ExitStack() as stack:
            snapshots = [stack.enter_context(snapshot_of(Kind.EVENT, target)) for target in self._targets]
            lists = [_in_lists(snapshot.keys(self.key_range), size) for snapshot in snapshots]
            if len(lists) == 1:
                yield from lists[0]
                return
            waiting: list[bytes] = []
            for keys in _merged(lists):
                waiting += keys
                while len(waiting) >= size:
                    yield waiting[:size]
                    del waiting[:size]
            if waiting:
                yield waiting


def _in_lists(keys: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while found := list(islice(keys, size)):
        yield found


def _merged(sources: Sequence[Iterator[list[bytes]]]) -> Iterator[list[bytes]]:
    """Yield the keys of sorted lists in order, as many at a time as come from one source.

    Why not key by key: the events of a subrun are in one database, so that whole subruns are taken at once.
    """
    heads = [(keys, 0, source) for source in sources if (keys := next(source, None))]
    while heads:
        least = min(range(len(heads)), key=lambda at: heads[at][0][heads[at][1]])
        keys, begin, source = heads.pop(least)
        bound = min((other[start] for other, start, _ in heads), default=None)
        end = len(keys) if bound is None else bisect_left(keys, bound, begin)
        yield keys[begin:end]
        if end < len(keys):
            heads.append((keys, end, source))
        elif more := next(source, None):
            heads.append((more, 0, source))
