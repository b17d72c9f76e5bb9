"""Key ranges as etcd writes them: a first key, and an end that is one zero byte when there is none."""

from typing import Final

from keyplan.engine.interface import KeyRange

__all__ = ["NO_END", "etcd_range"]

NO_END: Final = b"\x00"
"""What etcd takes for the end of a range that has none."""
_FIRST_KEY: Final = b"\x00"


def etcd_range(key_range: KeyRange) -> tuple[bytes, bytes] | None:
    """Return `key` and `range_end` for etcd, None when no key can be in the range.

    Trap: etcd takes an empty end for "this key alone" and a zero byte for "no end"; an end that is not above the start must
    therefore never be sent.
    """
    start = key_range.start or _FIRST_KEY
    if key_range.end is None:
        return start, NO_END
    return (start, key_range.end) if start < key_range.end else None
