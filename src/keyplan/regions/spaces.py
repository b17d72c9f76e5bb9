"""Key spaces as a planner sees them: a name, and the ranges of encoded keys that are to be regions of their own.

Two kinds: those of keyplan's registry have a prefix (TiKV's API V1), those of PD have a number (API V2).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.keyspace import State
from keyplan.regions.memcomparable import memcomparable

__all__ = [
    "NUMBER_MAX",
    "NumberedSpace",
    "OwnedRange",
    "RegisteredSpace",
    "Space",
    "StoreMode",
    "boundaries_of",
    "checked_ranges",
    "owned_ranges",
]

NUMBER_MAX: Final = 0xFFFFFF
"""Key space numbers of API V2 have three bytes."""


class StoreMode(StrEnum):
    """How a TiKV cluster is used; it decides how the boundaries of regions are spelled."""

    TRANSACTIONAL = "txn"  # PD's word for it
    RAW = "raw"


_MODE_BYTES: Final = {StoreMode.RAW: 0x72, StoreMode.TRANSACTIONAL: 0x78}


@dataclass(frozen=True, slots=True)
class RegisteredSpace:
    """A key space of keyplan's registry: its prefix as the registry has it. `is_empty`: that it holds no key is known."""

    name: str
    prefix: bytes
    state: State = State.ENABLED
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class NumberedSpace:
    """A key space of PD: its number. `modes` are those that it is used in; empty: those that the cluster is used in."""

    name: str
    number: int
    state: State = State.ENABLED
    is_empty: bool = False
    modes: tuple[StoreMode, ...] = ()


Space = RegisteredSpace | NumberedSpace


class OwnedRange(NamedTuple):
    """A range of keys as regions spell them, and the key space that they belong to."""

    name: str
    range: KeyRange


def owned_ranges(
    spaces: Iterable[Space], modes: Sequence[StoreMode] = (StoreMode.TRANSACTIONAL,), *, has_empty: bool = True
) -> list[OwnedRange]:
    """Return the ranges to be kept apart, in key order: of every key space but the deleted ones.

    has_empty: False leaves out those that are known to be empty, so that their regions may be merged with others.

    Raises InvalidInputError for a prefix or a number that no key space has, for two modes of prefixes, and when two ranges
    overlap.
    """
    ranges = [
        OwnedRange(space.name, key_range)
        for space in spaces
        if space.state is not State.DELETED and (has_empty or not space.is_empty)
        for key_range in _ranges(space, modes)
    ]
    return checked_ranges(ranges)


def checked_ranges(ranges: Iterable[OwnedRange]) -> list[OwnedRange]:
    """Return the ranges in key order. Raises InvalidInputError when one is empty or two overlap."""
    ordered = sorted(ranges, key=lambda owned: owned.range.start)
    for owned in ordered:
        if owned.range.is_empty:
            raise InvalidInputError(source="key spaces", problem=f"the range of {owned.name} has no key")
    for one, other in pairwise(ordered):
        if one.range.end is None or other.range.start < one.range.end:
            problem = f"the ranges of {one.name} and {other.name} overlap"
            raise InvalidInputError(source="key spaces", problem=problem)
    return ordered


def boundaries_of(ranges: Iterable[OwnedRange]) -> list[bytes]:
    """Return the keys at which a region must begin or end, in order, each once."""
    bounds = {bound for owned in ranges for bound in (owned.range.start, owned.range.end) if bound}
    return sorted(bounds)


def _ranges(space: Space, modes: Sequence[StoreMode]) -> list[KeyRange]:
    if isinstance(space, NumberedSpace):
        return [_numbered_range(space, mode) for mode in dict.fromkeys(space.modes or modes)]
    if not space.prefix:
        raise InvalidInputError(source="key spaces", problem=f"the prefix of {space.name} is empty")
    if len(modes) != 1:
        # Why: without API V2 nothing in a key tells raw from transactional data, and one cluster can hold one kind only.
        raise InvalidInputError(source="mode", problem="a cluster with prefixes is used in one mode")
    logical = KeyRange.of_prefix(space.prefix)
    if modes[0] is StoreMode.RAW:
        return [logical]
    return [KeyRange(memcomparable(logical.start), None if logical.end is None else memcomparable(logical.end))]


def _numbered_range(space: NumberedSpace, mode: StoreMode) -> KeyRange:
    if not 0 <= space.number <= NUMBER_MAX:
        problem = f"the number of {space.name} is {space.number}, which is not between 0 and {NUMBER_MAX}"
        raise InvalidInputError(source="key spaces", problem=problem)
    first = (_MODE_BYTES[mode] << 24) + space.number
    # Trap: the end has the width of the start, with a carry into the mode byte. The successor of a prefix drops trailing
    # ff bytes instead, and its encoding is another key than the boundary that PD splits at.
    return KeyRange(memcomparable(first.to_bytes(4, "big")), memcomparable((first + 1).to_bytes(4, "big")))
