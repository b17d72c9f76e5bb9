"""A sorted map of entries that never changes: an edit makes a new one that shares the blocks it left alone.

That is what makes a snapshot of the memory engine free: it keeps the map it was given.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from keyplan.engine.fences import Fences
from keyplan.engine.interface import Entry, Guard, KeyAbsent, KeyRange, KeyUnchanged

__all__ = ["Draft", "SortedEntries"]

_BLOCK_ENTRIES_MAX: Final = 512
"""Why: an edit copies one block (4 KiB of pointers) and the list of blocks: 2,000 pointers at a million entries."""

_HELD_MAX: Final = 1_000
"""Why: as many handles read one state at once; who makes fences for every read shall not fill the memory."""


class SortedEntries:
    """Entries in key order. Invariant: no block is empty, blocks are in order, `firsts` holds the first key of each."""

    __slots__ = ("blocks", "count", "firsts", "held")

    def __init__(self) -> None:
        self.blocks: list[list[Entry]] = []
        self.firsts: list[bytes] = []
        self.count = 0
        self.held: dict[int, Fences] = {}  # those that were found to hold here, by their identity

    def holds(self, fences: Fences) -> bool:
        """Tell whether each key of `fences` has its value."""
        if self.held.get(id(fences)) is fences:
            return True
        for key, value in fences:
            entry = self.get(key)
            if (None if entry is None else entry.value) != value:
                return False
        if len(self.held) >= _HELD_MAX:
            self.held.clear()
        self.held[id(fences)] = fences
        return True

    def get(self, key: bytes) -> Entry | None:
        """Return the entry at `key`, or None."""
        index = bisect_right(self.firsts, key) - 1
        if index < 0:
            return None
        block = self.blocks[index]
        # Why: a one-part tuple sorts just before every entry with that key, so bisect compares in C.
        position = bisect_left(block, (key,))
        if position == len(block):
            return None
        entry = block[position]
        return entry if entry[0] == key else None  # Why by its place: a field's name is looked up by a call.

    def hold(self, guards: Iterable[Guard]) -> bool:
        """Tell whether the guards hold, all of them on single keys; False when one is on a range, which others look at."""
        get = self.get
        for guard in guards:
            if type(guard) is KeyUnchanged:
                entry = get(guard.key)
                if entry is None or entry[3] != guard.revision:
                    return False
            elif type(guard) is not KeyAbsent or get(guard.key) is not None:
                return False
        return True

    def scan(self, key_range: KeyRange, *, reverse: bool = False) -> Iterator[Entry]:
        """Yield the entries in the range, in order, or last first."""
        return chain.from_iterable(self.pieces(key_range, reverse=reverse))

    def pieces(self, key_range: KeyRange, *, reverse: bool = False) -> Iterator[list[Entry]]:
        """Yield the same in pieces. Why: whoever takes an entry from a list needs no call of ours for it."""
        return self._pieces_reversed(key_range) if reverse else self._pieces(key_range)

    def _pieces(self, key_range: KeyRange) -> Iterator[list[Entry]]:
        start, end = key_range.start, key_range.end
        first = max(bisect_right(self.firsts, start) - 1, 0)
        for index in range(first, len(self.blocks)):
            block = self.blocks[index]
            low = bisect_left(block, (start,)) if index == first else 0
            if end is not None and block[-1].key >= end:
                yield block[low : bisect_left(block, (end,))]
                return
            yield block[low:] if low else block

    def _pieces_reversed(self, key_range: KeyRange) -> Iterator[list[Entry]]:
        start, end = key_range.start, key_range.end
        last = len(self.blocks) if end is None else bisect_left(self.firsts, end)
        for index in range(last - 1, -1, -1):
            block = self.blocks[index]
            high = len(block) if end is None or index < last - 1 else bisect_left(block, (end,))
            low = bisect_left(block, (start,))
            yield block[low:high][::-1]
            if low:
                return

    def count_in(self, key_range: KeyRange) -> int:
        """Return the number of entries in the range, counting whole blocks at once."""
        if key_range.is_empty:
            return 0
        below_end = self.count if key_range.end is None else self._count_below(key_range.end)
        return below_end - self._count_below(key_range.start)

    def _count_below(self, key: bytes) -> int:
        index = bisect_right(self.firsts, key) - 1
        if index < 0:
            return 0
        return sum(map(len, self.blocks[:index])) + bisect_left(self.blocks[index], (key,))


class Draft:
    """One edit of a map: change it, then take `result`. The map it began from stays as it was."""

    def __init__(self, original: SortedEntries) -> None:
        self._blocks = original.blocks.copy()
        self._firsts = original.firsts.copy()
        self._count = original.count
        self._owned: set[int] = set()  # ids of the blocks that this draft made, and may therefore change

    @property
    def result(self) -> SortedEntries:
        """The edited map. The draft must not be used after it was taken."""
        result = SortedEntries()
        result.blocks, result.firsts, result.count = self._blocks, self._firsts, self._count
        return result

    def put(self, entry: Entry) -> None:
        """Add an entry, in the place of the one with its key if there is one."""
        if not self._blocks:
            self._blocks, self._firsts, self._count = [[entry]], [entry.key], 1
            self._owned.add(id(self._blocks[0]))
            return
        index = max(bisect_right(self._firsts, entry.key) - 1, 0)
        block = self._blocks[index]
        if id(block) not in self._owned:
            block = self._owned_block(index)
        position = bisect_left(block, (entry.key,))
        if position < len(block) and block[position].key == entry.key:
            block[position] = entry
            return
        block.insert(position, entry)
        self._firsts[index] = block[0].key
        self._count += 1
        if len(block) > _BLOCK_ENTRIES_MAX:
            self._split(index, at=len(block) // 2 if position < len(block) - 1 else len(block) - 1)

    def remove(self, key: bytes) -> None:
        """Take away the entry at `key`, which must be there."""
        index = bisect_right(self._firsts, key) - 1
        block = self._owned_block(index)
        position = bisect_left(block, (key,))
        assert block[position].key == key
        del block[position]
        self._count -= 1
        if block:
            self._firsts[index] = block[0].key
        else:
            del self._blocks[index], self._firsts[index]

    def _owned_block(self, index: int) -> list[Entry]:
        block = self._blocks[index]
        if id(block) not in self._owned:
            block = self._blocks[index] = block.copy()
            self._owned.add(id(block))
        return block

    def _split(self, index: int, *, at: int) -> None:
        """Cut a block in two. Why `at` the end for an appended entry: keys that arrive in order then fill their blocks."""
        block = self._blocks[index]
        tail = block[at:]
        del block[at:]
        self._blocks.insert(index + 1, tail)
        self._firsts.insert(index + 1, tail[0].key)
        self._owned.add(id(tail))
