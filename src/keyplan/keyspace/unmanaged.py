"""Keys that are nobody's: found by hopping from codeword to codeword, at the cost of a read for each that is in use."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from keyplan.engine import ALL_KEYS, Engine, KeyRange, Snapshot
from keyplan.keyspace.acts import codec_of, header_of
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.keyspace.prefixes import PrefixCodec, prefix_range
from keyplan.store import Store

__all__ = ["Unmanaged", "unmanaged"]

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


def unmanaged(engine: Engine) -> Iterator[Unmanaged]:
    """Yield what lies in the store outside every key space and the registry, in key order, as of one state for each find."""
    registry = KeySpaceRegistry(Store(engine))
    codec = codec_of(header_of(registry))
    owned = sorted(registry.holders.keys())
    gaps = _gaps([prefix_range(prefix) for prefix in owned], _FIRST_KEY)
    with engine.snapshot() as snapshot:
        for gap in gaps:
            yield from _in_gap(snapshot, codec, gap)


def _gaps(owned: list[KeyRange], start: bytes) -> Iterator[KeyRange]:
    """The parts of the whole that no range of `owned` covers."""
    for key_range in sorted(owned, key=lambda key_range: key_range.start):
        if start < key_range.start:
            yield KeyRange(start, key_range.start)
        if key_range.end is None:
            return
        start = key_range.end
    yield KeyRange(start, ALL_KEYS.end)


def _in_gap(snapshot: Snapshot, codec: PrefixCodec, gap: KeyRange) -> Iterator[Unmanaged]:
    cursor: bytes | None = gap.start
    while cursor is not None:
        rest = KeyRange(cursor, gap.end)
        entry = next(iter(snapshot.scan(rest, limit=1, keys_only=True)), None)
        if entry is None:
            return
        prefix = codec.codeword_of(entry.key) or entry.key[:1]
        whole = prefix_range(prefix)
        end = whole.end if gap.end is None or (whole.end is not None and whole.end < gap.end) else gap.end
        count = sum(1 for _ in snapshot.scan(KeyRange(entry.key, end), limit=COUNT_MAX + 1, keys_only=True))
        yield Unmanaged(prefix, codec.number_of(prefix), entry.key, min(count, COUNT_MAX), count > COUNT_MAX)
        cursor = end
