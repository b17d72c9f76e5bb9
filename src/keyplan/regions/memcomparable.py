"""The memcomparable encoding of TiKV: bytes of any length in groups of eight, so that the encodings sort as the bytes do.

    01 02 03                      01 02 03 00 00 00 00 00 fa
    01 02 03 04 05 06 07 08       01 02 03 04 05 06 07 08 ff  00 00 00 00 00 00 00 00 f7

After each group one marker: ff less the number of padding bytes. Boundaries of regions are spelled so. Not every boundary is:
raw keys and mixed-up stores have others, so that planning compares boundaries as they are and decodes none.
"""

from typing import Final

from keyplan.errors import InvalidKeyError

__all__ = ["memcomparable", "of_memcomparable"]

_GROUP: Final = 8
_MARKER_FULL: Final = 0xFF


def memcomparable(raw: bytes) -> bytes:
    """Return the encoding of `raw`: 9 bytes for each 8 begun, and 9 more when the length is a multiple of 8."""
    encoded = bytearray()
    for start in range(0, len(raw) + 1, _GROUP):
        group = raw[start : start + _GROUP]
        encoded += group.ljust(_GROUP, b"\x00")
        encoded.append(_MARKER_FULL - (_GROUP - len(group)))
    return bytes(encoded)


def of_memcomparable(encoded: bytes) -> bytes:
    """Return what `encoded` stands for. Raises InvalidKeyError for bytes that no encoding is."""
    if not encoded or len(encoded) % (_GROUP + 1):
        raise InvalidKeyError(problem="not memcomparable: the length is no multiple of 9", value=encoded.hex())
    raw = bytearray()
    for start in range(0, len(encoded), _GROUP + 1):
        is_last = start + _GROUP + 1 == len(encoded)
        padding = _MARKER_FULL - encoded[start + _GROUP]
        # Invariant: every group but the last is full, the last is not; so that each value has one spelling.
        if padding > _GROUP or is_last is not (padding > 0):
            raise InvalidKeyError(problem="not memcomparable: invalid marker byte", value=encoded.hex())
        end = start + _GROUP - padding
        if any(encoded[end : start + _GROUP]):
            raise InvalidKeyError(problem="not memcomparable: padding that is not zero", value=encoded.hex())
        raw += encoded[start:end]
    return bytes(raw)
