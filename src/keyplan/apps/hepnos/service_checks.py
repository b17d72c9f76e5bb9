"""What a HEPnOS server looks at before it writes: that keys are of the database's kind and placed on it, values of the kind."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.dataset_ref import is_deleting
from keyplan.apps.hepnos.errors import InvalidNumberError
from keyplan.apps.hepnos.keys import ITEM_BYTES, Kind, dataset_key, split_product
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.packed import FINGERPRINT_BYTES
from keyplan.engine import FailedGuard, KeyRange, KeyUnchanged, Snapshot, fingerprint
from keyplan.errors import CommitConflictError, InvalidInputError, InvalidKeyError
from keyplan.ring import OWN_PREFIX, OWN_RANGE
from keyplan.server import AnswerError

__all__ = ["check_pairs", "check_ranges", "check_removed", "check_ring", "unchanged_guards"]

_KEY_BYTES: Final = {Kind.RUN: 24, Kind.SUBRUN: 32, Kind.EVENT: 40}
_UUID_BYTES: Final = 16


def check_ring(named: str | None, own: str) -> None:
    """Refuse a request of somebody who knows another ring: he would place keys where nobody finds them."""
    if named != own:
        message = "the databases are another ring than the one named: ask for /hepnos/databases again"
        raise AnswerError(409, "ring_mismatch", message, {"problem": message})


def check_pairs(databases: Databases, kind: Kind, number: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Raise InvalidInputError, InvalidNumberError for keys or values that the database cannot have; nothing is written."""
    if values and len(values) != len(keys):
        raise InvalidInputError(source="body", problem=f"{len(keys)} keys and {len(values)} values")
    if not keys:
        return
    if kind in _KEY_BYTES:
        _check_numbered(kind, keys, values)
    elif kind is Kind.DATASET:
        _check_datasets(keys, values)
    elif not all(map(_is_suffix, {key[ITEM_BYTES:] for key in keys})) or min(map(len, keys)) <= ITEM_BYTES:
        raise InvalidInputError(source="body", problem="a key is none of a product")
    if set(databases.shares(kind, keys)) != {number}:
        raise InvalidInputError(source="body", problem="a key is placed on another database")


def _check_numbered(kind: Kind, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    width = _KEY_BYTES[kind]
    if set(map(len, keys)) != {width}:
        raise InvalidInputError(source="body", problem=f"keys of {kind.value} have {width} bytes")
    numbers = np.frombuffer(b"".join(keys), ">u8").reshape(len(keys), -1)[:, 2:]
    if np.any(numbers == np.uint64(INVALID_NUMBER)):
        raise InvalidNumberError(field=kind.value, problem="2**64 - 1 is the number of nothing")
    if any(values):
        raise InvalidInputError(source="body", problem=f"{kind.value} have no values")


def _check_datasets(keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    if len(values) != len(keys) or not all(map(_is_uuid, values)):
        raise InvalidInputError(source="body", problem=f"a data set's value is its UUID, of {_UUID_BYTES} bytes")
    for key in keys:
        try:
            is_one = dataset_key(key[1:].decode()) == key
        except (InvalidKeyError, UnicodeDecodeError):
            is_one = False
        if not is_one:
            raise InvalidInputError(source="body", problem="a key is none of a data set")


def _is_uuid(value: bytes) -> bool:
    """Tell whether it is the value of a data set, or of one that is deleted."""
    return len(value) == _UUID_BYTES or is_deleting(value)


def _is_suffix(suffix: bytes) -> bool:
    return split_product(bytes(ITEM_BYTES) + suffix) is not None


def unchanged_guards(snapshot: Snapshot, keys: Sequence[bytes], fingerprints: Sequence[bytes]) -> list[KeyUnchanged]:
    """Return guards for keys that have the values that a client has read. Raises CommitConflictError, InvalidInputError."""
    if len(keys) != len(fingerprints) or any(len(each) != FINGERPRINT_BYTES for each in fingerprints):
        raise InvalidInputError(source="body", problem=f"each key has a fingerprint of {FINGERPRINT_BYTES} bytes")
    guards: list[KeyUnchanged] = []
    failed: list[FailedGuard] = []
    for key, raw, entry in zip(keys, fingerprints, snapshot.get_many(keys), strict=True):
        expected = KeyUnchanged(key, int.from_bytes(raw))
        actual = 0 if entry is None else fingerprint(entry.value)
        if entry is None or actual != expected.revision:
            failed.append(FailedGuard(expected, key, actual))
        else:
            guards.append(KeyUnchanged(key, entry.mod_revision))
    if failed:
        raise CommitConflictError(failed=tuple(failed))
    return guards


def check_removed(keys: Sequence[bytes]) -> None:
    """Refuse to touch what the ring keeps for itself, which is no record."""
    if any(key.startswith(OWN_PREFIX) for key in keys):
        raise InvalidInputError(source="body", problem="what the ring keeps for itself is no record")


def check_ranges(starts: Sequence[bytes | None], ends: Sequence[bytes | None]) -> list[KeyRange]:
    """Return the ranges that are to be removed. Raises InvalidInputError when one has something of the ring's own in it."""
    if len(starts) != len(ends) or None in starts:
        raise InvalidInputError(source="body", problem="each range has a start")
    ranges = [KeyRange(start, end) for start, end in zip(starts, ends, strict=True) if start is not None]
    end = OWN_RANGE.end
    if any(each.start < (end or b"") and (each.end is None or each.end > OWN_PREFIX) for each in ranges):
        raise InvalidInputError(source="body", problem="what the ring keeps for itself is no record")
    return ranges
