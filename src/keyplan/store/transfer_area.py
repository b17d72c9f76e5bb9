"""Where the claims of restores and copies stand: who opens a store asks with one look whether something is brought into it."""

from typing import Final

from keyplan.engine import KeyRange

__all__ = ["TRANSFER_AREA"]

TRANSFER_AREA: Final = KeyRange.of_prefix(b"\x00kt")
"""They are of this store alone, and in no backup and no copy. What they say: keyplan.maintenance.claims."""
