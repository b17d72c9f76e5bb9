"""Keys that are nobody's: found by hopping from codeword to codeword, at the cost of a read for each that is in use."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, Self

from keyplan.engine import ALL_KEYS, Engine, KeyRange, Snapshot
from keyplan.errors import CorruptionError
from keyplan.keyspace.prefixes import PrefixCodec, prefix_range
from keyplan.keyspace.rows import prefixes_held, value_of
from keyplan.keyspace.transactions import ONLY, codec_of

__all__ = ["Unmanaged", "gaps", "unmanaged", "unmanaged_in"]

COUNT_MAX: Final = 1_000
"""Why: a count tells whether it is an odd key or an application; it must not read a million keys for that."""

_FIRST_KEY: Final = b"\x01"
"""R1: whatever begins with 00 is the system's."""


class Unmanaged(NamedTuple):
    """Keys of nobody that begin with one codeword, or with the bytes of `prefix` where there is no codeword.

    `keys` is how many there are, up to 1,000; `is_more` when there are more.
    """

    prefix: bytes
    number: int | None
    first_key: bytes
    keys: int
    is_more: bool

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return what a JSON object describes. Raises KeyError, ValueError."""
        prefix, first_key = bytes.fromhex(value["prefix"]), bytes.fromhex(value["first_key"])
        return cls(prefix, value["prefix_number"], first_key, int(value["keys"]), bool(value["is_more"]))

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; bytes in hex."""
        return {
            "prefix": self.prefix.hex(),
            "prefix_number": self.number,
            "first_key": self.first_key.hex(),
            "keys": self.keys,
            "is_more": self.is_more,
        }


def unmanaged(engine: Engine, *, shown: Engine | None = None) -> Iterator[Unmanaged]:
    """Yield what lies in the store outside every key space and the registry, in key order, as of one state for all.

    Of that, what `shown` has, which is part of the store, as of a state of its own; by default everything. Raises
    CorruptionError when the registry's header is lost.
    """
    with engine.snapshot() as snapshot, nullcontext(snapshot) if shown is None else shown.snapshot() as seen:
        header = value_of(snapshot, "header", ONLY)
        if header is not None and header.value is None:
            raise CorruptionError(problem=f"the registry's header cannot be read: {header.problem}")
        yield from unmanaged_in(snapshot, codec_of(None if header is None else header.value), seen=seen)


def unmanaged_in(snapshot: Snapshot, codec: PrefixCodec | None, *, seen: Snapshot | None = None) -> Iterator[Unmanaged]:
    """As `unmanaged`, as of a state whose prefix code is known, or not (None): then keys are told apart by their first byte.

    Of the keys, those that `seen` has.
    """
    owned = [prefix_range(prefix) for prefix in prefixes_held(snapshot)]
    for gap in gaps(owned, KeyRange(_FIRST_KEY, ALL_KEYS.end)):
        yield from _in_gap(snapshot if seen is None else seen, codec, gap)


def gaps(owned: Iterable[KeyRange], whole: KeyRange) -> Iterator[KeyRange]:
    """Yield the parts of the whole that no range of `owned` covers."""
    start = whole.start
    for key_range in sorted(owned, key=lambda key_range: key_range.start):
        if whole.end is not None and key_range.start >= whole.end:
            break
        if start < key_range.start:
            yield KeyRange(start, key_range.start)
        if key_range.end is None:
            return
        start = max(start, key_range.end)
    if whole.end is None or start < whole.end:
        yield KeyRange(start, whole.end)


def _in_gap(snapshot: Snapshot, codec: PrefixCodec | None, gap: KeyRange) -> Iterator[Unmanaged]:
    cursor: bytes | None = gap.start
    while cursor is not None:
        rest = KeyRange(cursor, gap.end)
        entry = next(iter(snapshot.scan(rest, limit=1, keys_only=True)), None)
        if entry is None:
            return
        prefix = (None if codec is None else codec.codeword_of(entry.key)) or entry.key[:1]
        whole = prefix_range(prefix)
        end = whole.end if gap.end is None or (whole.end is not None and whole.end < gap.end) else gap.end
        count = sum(1 for _ in snapshot.scan(KeyRange(entry.key, end), limit=COUNT_MAX + 1, keys_only=True))
        number = None if codec is None else codec.number_of(prefix)
        yield Unmanaged(prefix, number, entry.key, min(count, COUNT_MAX), count > COUNT_MAX)
        cursor = end
