"""A server's databases as one caller may see them, where an access file says who that is.

    hepnos/products/<raw key>       how a grant spells a key of the databases of products, as in prefix:hepnos/products/

The databases are no part of the server's store, and what a grant gives there by its first bytes, it gives here below `hepnos/`.
Why without the number of the database: where a key is placed changes when a ring grows, and who may see it does not.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.keys import Kind
from keyplan.engine import Area, ConfinedEngine, KeyRange, Outside, Reach
from keyplan.ring import OWN_PREFIX, OWN_RANGE, RING_KEY

__all__ = ["CallersDatabases", "reach_in"]

_RING: Final = Area(KeyRange.of_key(RING_KEY))


def reach_in(kind: Kind, granted: Reach) -> Reach:
    """Return what of a kind's databases somebody may see who was granted a reach; at least the ring's description, to read.

    What hangs on a fence gives nothing: it is the share of a key space, and those lie in the server's store.
    """
    place = kind.granted_below
    within = KeyRange.of_prefix(place)

    def areas() -> Iterator[Area]:
        yield _RING
        for stretch in granted.within(within):
            if not stretch.read:
                end = None if stretch.range.end == within.end else (stretch.range.end or b"")[len(place) :]
                key_range = KeyRange(stretch.range.start[len(place) :], end)
                yield Area(key_range)
                if stretch.write == ():
                    # Why around the ring's own: they are no records, and nobody who asks a server writes them.
                    yield Area(KeyRange(key_range.start, _before(OWN_PREFIX, key_range)), can_write=True)
                    yield Area(KeyRange(max(key_range.start, OWN_RANGE.end or b""), end), can_write=True)

    return Reach(areas())


def _before(key: bytes, key_range: KeyRange) -> bytes:
    return key if key_range.end is None else min(key, key_range.end)


class _KindReach:
    """The reach in one kind's databases, made again when what was granted has changed."""

    def __init__(self, kind: Kind, granted: Callable[[], Reach]) -> None:
        self._kind = kind
        self._granted = granted
        self._known: tuple[Reach | None, Reach] = (None, Reach())

    def __call__(self) -> Reach:
        granted = self._granted()
        known, reach = self._known
        if known is not granted:
            reach = reach_in(self._kind, granted)
            self._known = (granted, reach)
        return reach


class CallersDatabases(Databases):
    """Those keys of open databases that one caller was granted. All others are not there, and cannot be written.

    `granted` returns the caller's reach in the server's store, the same object until it changes. Closing these closes nothing.
    """

    def __init__(self, databases: Databases, granted: Callable[[], Reach], who: str) -> None:
        self._reaches = {kind: _KindReach(kind, granted) for kind in databases.rings}
        confined = {
            kind: partial(ConfinedEngine, reach=reach, outside=Outside.ABSENT, who=who, closes_inner=False)
            for kind, reach in self._reaches.items()
        }
        rings = {kind: ring.seen_through(confined[kind]) for kind, ring in databases.rings.items()}
        super().__init__(rings, databases.address)

    def may_change(
        self, kind: Kind, *, read: Iterable[bytes], written: Iterable[bytes], removed: Iterable[KeyRange]
    ) -> bool:
        if not self.is_writable:
            return False  # Why also for a commit that only compares: it is a change, which stands in the audit log.
        reach = self._reaches[kind]()
        stretches = [reach.at(key) for key in written]
        for key_range in removed:
            covering = reach.covering(key_range)
            stretches += [None] if covering is None else covering
        are_written = all(stretch is not None and stretch.write is not None for stretch in stretches)
        return are_written and all(reach.at(key) is not None for key in read)

    @property
    def is_writable(self) -> bool:
        return any(reach().can_write for reach in self._reaches.values())

    def has(self, kind: Kind) -> bool:
        """Tell whether the caller may see anything of a kind."""
        return any(stretch.range != _RING.range for stretch in self._reaches[kind]().stretches)
