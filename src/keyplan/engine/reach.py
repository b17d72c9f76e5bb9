"""What one caller may see of a store: areas of keys, and their union as a reach.

Pure: nothing here reads a store. `keyplan.engine.confined` is the engine that holds a reach and nothing else.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, Self

import msgspec

from keyplan.engine.interface import ALL_KEYS, KeyRange

__all__ = ["Area", "AreaFence", "Reach", "Stretch", "Terms"]

AreaFence = tuple[bytes, bytes]
"""A raw key and a value: what hangs on it counts only in a state of the store in which that key has that value."""

Terms = tuple[AreaFence, ...]
"""When something may be done: in a state in which one of these fences holds; always, when there are none."""


class Area(msgspec.Struct, frozen=True, gc=False):
    """What one grant gives: all keys of `range` may be read, and written with `can_write`.

    With a `fence` it counts only in a state in which the fence's key has the fence's value.
    """

    range: KeyRange
    can_write: bool = False
    fence: AreaFence | None = None


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring keys that may be read under the same terms, and written under the same. `write` None: never."""

    range: KeyRange
    read: Terms
    write: Terms | None


class Reach:
    """What one caller may see: stretches that share no key, in the order of keys. Never changed; the empty one is nothing.

    A key may be read in a state in which any of the areas that hold it does; written, in one in which any of those with
    `can_write` does.
    """

    __slots__ = ("_starts", "areas", "at", "can_write", "fences", "is_everything", "stretches")

    def __init__(self, areas: Iterable[Area] = ()) -> None:
        self.areas: Final = tuple(areas)
        """What it is the union of, as it was given."""
        self.stretches: Final = tuple(_joined(_pieces(self.areas)))
        """The union of the areas: no two touch that are under the same terms."""
        self.fences: Final = frozenset(fence for stretch in self.stretches for fence in stretch.read)
        """All fences that anything depends on. Those of writing are among those of reading."""
        self.is_everything: Final = self.stretches == (Stretch(ALL_KEYS, (), ()),)
        """True when every key may be read and written, always."""
        self.can_write: Final = any(stretch.write is not None for stretch in self.stretches)
        """True when some key may be written in some state."""
        self._starts = [stretch.range.start for stretch in self.stretches]
        self.at: Final = _finder(self.stretches, self._starts)
        """Returns the stretch that holds a key, or None."""

    @classmethod
    def everything(cls) -> Self:
        """Return the reach of someone who may do all there is."""
        return cls([Area(ALL_KEYS, can_write=True)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reach) and self.stretches == other.stretches

    def __hash__(self) -> int:
        return hash(self.stretches)

    def __repr__(self) -> str:
        return f"Reach({list(self.stretches)!r})"

    def holding(self, keys: Sequence[bytes]) -> Stretch | None:
        """Return the stretch that holds all of the keys; None where there is none, and for no keys."""
        stretch = self.at(keys[0]) if keys else None
        if stretch is None or len(keys) == 1:
            return stretch
        start, end = stretch.range.start, stretch.range.end
        return stretch if start <= min(keys) and (end is None or max(keys) < end) else None

    def within(self, key_range: KeyRange) -> Iterator[Stretch]:
        """Yield what the reach has of `key_range`, in order: stretches that are cut to it."""
        if key_range.is_empty:
            return
        for stretch in self.stretches[max(bisect_right(self._starts, key_range.start) - 1, 0) :]:
            if key_range.end is not None and stretch.range.start >= key_range.end:
                return
            cut = _cut(stretch.range, key_range)
            if not cut.is_empty:
                yield Stretch(cut, stretch.read, stretch.write)

    def covering(self, key_range: KeyRange) -> list[Stretch] | None:
        """Return what `within` yields when it is all of `key_range`; None when a part of that is in no stretch."""
        found = list(self.within(key_range))
        start: bytes | None = key_range.start
        for stretch in found:
            if stretch.range.start != start:
                return None
            start = stretch.range.end
        return found if key_range.is_empty or start == key_range.end else None


def _finder(stretches: Sequence[Stretch], starts: Sequence[bytes]) -> Callable[[bytes], Stretch | None]:
    """Return `Reach.at`. Why no method: every single get passes here, and names that a function closes over are quicker."""
    if len(stretches) == 1:
        only, start, end = stretches[0], starts[0], stretches[0].range.end

        def at(key: bytes) -> Stretch | None:
            return only if start <= key and (end is None or key < end) else None

        return at
    ends = [stretch.range.end for stretch in stretches]

    def at_any(key: bytes) -> Stretch | None:
        at = bisect_right(starts, key) - 1
        if at < 0:
            return None
        end = ends[at]
        return stretches[at] if end is None or key < end else None

    return at_any


def _cut(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return the keys that are in both."""
    ends = [key_range.end for key_range in (one, other) if key_range.end is not None]
    return KeyRange(max(one.start, other.start), min(ends, default=None))


def _pieces(areas: Iterable[Area]) -> Iterator[Stretch]:
    """Yield the pieces between all beginnings and ends of areas that an area holds, each with the terms of all that hold it."""
    entering: defaultdict[bytes, list[Area]] = defaultdict(list)
    leaving: defaultdict[bytes, list[Area]] = defaultdict(list)
    for area in areas:
        if not area.range.is_empty:
            entering[area.range.start].append(area)
            if area.range.end is not None:
                leaving[area.range.end].append(area)
    borders = sorted(entering.keys() | leaving.keys())
    held: Counter[tuple[bool, AreaFence | None]] = Counter()
    for start, end in zip_longest(borders, borders[1:]):
        held.update((area.can_write, area.fence) for area in entering.get(start, ()))
        held.subtract((area.can_write, area.fence) for area in leaving.get(start, ()))
        held = +held
        if held:
            writers = {fence for can_write, fence in held if can_write}
            yield Stretch(
                KeyRange(start, end), _any_of(fence for _, fence in held), _any_of(writers) if writers else None
            )


def _any_of(fences: Iterable[AreaFence | None]) -> Terms:
    alternatives = set(fences)
    return () if None in alternatives else tuple(sorted(fence for fence in alternatives if fence is not None))


def _joined(pieces: Iterable[Stretch]) -> Iterator[Stretch]:
    """Yield the pieces, neighbours under the same terms as one."""
    before: Stretch | None = None
    for piece in pieces:
        if before is not None and (before.range.end, before.read, before.write) == (
            piece.range.start,
            piece.read,
            piece.write,
        ):
            before = Stretch(KeyRange(before.range.start, piece.range.end), piece.read, piece.write)
            continue
        if before is not None:
            yield before
        before = piece
    if before is not None:
        yield before
