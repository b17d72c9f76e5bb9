"""How full and how even the databases of a store are: keys, and bytes on disk where they are LMDB files."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from keyplan.apps.hepnos.databases import Address
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.shares import keyspace_in
from keyplan.engine import ALL_KEYS, EngineUrl
from keyplan.ring import OWN_RANGE

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.store import DataStore

__all__ = ["Extent", "extents", "unevenness"]


class Extent(NamedTuple):
    """A database: its kind and number, its keys, and its bytes on disk; None where it has no file of its own."""

    kind: str
    database: int
    keys: int
    disk_bytes: int | None


def extents(store: "DataStore") -> list[Extent]:
    """Return the extent of each database. Counting goes through the keys of databases that do not know their number."""
    found: list[Extent] = []
    for kind, database in store.databases:
        with store.databases.snapshot(kind, database) as snapshot:
            keys = snapshot.count(ALL_KEYS) - snapshot.count(OWN_RANGE)
        found.append(Extent(kind.value, database, keys, _disk_bytes(store.address, kind, database)))
    return found


def unevenness(counts: list[int]) -> float:
    """Return how much more the fullest has than the mean: 0.0 for equal numbers, 1.0 for twice the mean."""
    mean = fmean(counts) if counts else 0.0
    return max(counts) / mean - 1.0 if mean else 0.0


def _disk_bytes(address: Address, kind: Kind, database: int) -> int | None:
    url = dict(address.urls)[kind.value][database] if address.urls else address.url
    parsed = EngineUrl.parse(url)
    if parsed.scheme != "lmdb" or keyspace_in(url)[1] is not None:
        return None
    folder = Path(parsed.address) if address.urls else Path(parsed.address) / f"{kind.value}.{database}"
    files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    # Why blocks: an LMDB file is as long as its map may grow, and mostly a hole.
    return sum(each.stat().st_blocks * 512 for each in files if each.is_file())
