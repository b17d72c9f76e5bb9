"""What a list reads: a range of raw keys together with the function that reads them, so that neither is used alone."""

from collections.abc import Callable

import msgspec

from keyplan.engine import KeyRange
from keyplan.layout import BoundIndex, BoundTable
from keyplan.store.sealing import digest_of

__all__ = ["Listing", "listing"]


class Listing(msgspec.Struct, frozen=True, eq=False):
    """The keys of an item that a list asks for.

    They stand in `range`. `read` gives the key for the bytes of one, and None for everything else that stands there: keys of
    other items, and of this one with other values. `is_exact`: there are none of the latter. `compared` tells lists apart that
    have one range.
    """

    range: KeyRange
    read: Callable[[bytes], object | None]
    is_exact: bool
    compared: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        """What stands for the list's arguments in a token: the same for lists of the same keys."""
        return digest_of(self.range, self.compared)


def listing(
    item: BoundTable | BoundIndex,
    prefix: tuple[object, ...] = (),
    *,
    starts_with: object = None,
    at_least: object = None,
    below: object = None,
) -> Listing:
    """Return what a list with these arguments reads. Raises InvalidKeyError."""
    listed = item.keys.listed(prefix, starts_with=starts_with, at_least=at_least, below=below)
    return Listing(KeyRange(listed.start, listed.end), listed.read, listed.is_exact, listed.compared)
