"""What the values of one table are: nothing, JSON, a number, a UUID, text, or bytes that nobody here can read."""

import re
from collections import Counter
from typing import Final

import msgspec

from keyplan.codec import Decimal, HexUuid
from keyplan.engine import NO_LEASE
from keyplan.maintenance.inference.json_shape import JsonShape
from keyplan.maintenance.inference.sample import Sample

__all__ = ["ValueProfile", "is_raw_uuid"]

VALUES_SAMPLED: Final = 32
"""Why: values that name keys of another table are looked up there; chance does not bring thirty-two there."""

SAMPLED_BYTES_MAX: Final = 512
"""Why: what is longer than LMDB's longest key names no key."""

MOSTLY_OF_MIN: Final = 50
MOSTLY: Final = 0.98
"""Why: one damaged record among fifty must not hide what the others are."""

_is_uuid: Final = re.compile(HexUuid().language.pattern).fullmatch
_is_decimal: Final = re.compile(Decimal().language.pattern).fullmatch
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r")) + b"\x7f"
_SIGNATURE_FIELDS_MIN: Final = 2


class ValueProfile:
    """The values behind keys of one shape, and how many of those hang on a lease. Memory is bounded."""

    __slots__ = ("kinds", "leased", "sample", "shape")

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.leased = 0
        self.shape: JsonShape | None = None
        self.sample: Sample[bytes] = Sample(VALUES_SAMPLED)
        """Keys with their values."""

    def add(self, key: bytes, value: bytes | None, lease: int) -> None:
        """Take in one value; None when it was not read."""
        if value is None:
            self.kinds["bytes"] += 1
            return
        self.kinds[self._kind_of(value)] += 1
        self.leased += lease != NO_LEASE
        if len(value) <= SAMPLED_BYTES_MAX:
            self.sample.add(key, value)

    def merge(self, other: "ValueProfile") -> None:
        """Take in all values of another profile."""
        for kind, number in other.kinds.items():
            self.kinds[kind] += number
        self.leased += other.leased
        if self.shape is None:
            self.shape = other.shape
        elif other.shape is not None:
            self.shape.merge(other.shape)
        self.sample.merge(other.sample)

    def _kind_of(self, value: bytes) -> str:
        if not value:
            return "empty"
        if _is_decimal(value) is not None:
            return "decimal"
        if _is_uuid(value) is not None:
            return "uuid"
        if value[:1] in b'{["':
            try:
                decoded = msgspec.json.decode(value)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass
            else:
                self.shape = self.shape or JsonShape()
                self.shape.add(decoded)
                return "json"
        if len(value.translate(None, _CONTROLS)) != len(value):
            return "raw_uuid" if is_raw_uuid(value) else "bytes"
        try:
            value.decode()
        except UnicodeDecodeError:
            return "raw_uuid" if is_raw_uuid(value) else "bytes"
        return "text"

    @property
    def count(self) -> int:
        return self.kinds.total()

    @property
    def main_kind(self) -> str:
        """What all values are: empty, decimal, uuid, raw_uuid, json (or nearly all), text, or bytes when nothing else."""
        if len(self.kinds) < 2:
            return next(iter(self.kinds), "empty")
        kind, number = self.kinds.most_common(1)[0]
        is_nearly = kind == "json" and self.count >= MOSTLY_OF_MIN and number >= MOSTLY * self.count
        if number == self.count or is_nearly:
            return kind
        return "bytes" if self.kinds["bytes"] or self.kinds["raw_uuid"] else "text"

    @property
    def exceptions(self) -> int:
        """How many values are not of the main kind."""
        kind = self.main_kind
        return 0 if kind in ("text", "bytes") else self.count - self.kinds[kind]

    @property
    def json_kinds(self) -> frozenset[str]:
        """What JSON values are, objects, arrays or texts; empty when they are no JSON."""
        return frozenset() if self.shape is None else frozenset(self.shape.kinds)

    @property
    def signature(self) -> frozenset[str]:
        """The names of a JSON record's fields; empty when there are too few to tell one record from another."""
        if self.shape is None or len(self.shape.fields) < _SIGNATURE_FIELDS_MIN or self.main_kind != "json":
            return frozenset()
        return frozenset(self.shape.fields)


def is_raw_uuid(raw: bytes) -> bool:
    """Tell whether 16 bytes have the version and variant of RFC 9562: one in some forty of other bytes has them by chance."""
    return len(raw) == 16 and 1 <= raw[6] >> 4 <= 8 and raw[8] >> 6 == 0b10
