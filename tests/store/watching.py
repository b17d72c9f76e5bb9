"""What the tests of watches share: keys, changes without their tokens, three records at once, a damaged record."""

from keyplan.engine import Commit, Put
from keyplan.layout import Change, ChangeKind, Changes
from keyplan.store import Store
from tests.store.layouts import Blade, BladeKey, Site

__all__ = [
    "CHANGED",
    "INSERTED",
    "ONE",
    "OTHER",
    "RAW_ONE",
    "REMOVED",
    "TWO",
    "damaged",
    "polled",
    "three_in_one_revision",
    "told",
]

INSERTED, CHANGED, REMOVED = ChangeKind.INSERTED, ChangeKind.CHANGED, ChangeKind.REMOVED
ONE, TWO, OTHER = BladeKey("r1", "1"), BladeKey("r1", "2"), BladeKey("r10", "1")
RAW_ONE = b"/site/rack/r1/blades/1"

Told = tuple[ChangeKind, BladeKey, Blade | None, Blade | None, int]


def told(changes: list[Change[BladeKey, Blade]]) -> list[Told]:
    """Everything but the tokens."""
    return [tuple(change[:5]) for change in changes]  # type: ignore[misc]  # Why: a slice of a NamedTuple has no length.


def polled(changes: Changes[BladeKey, Blade], count: int) -> list[Told]:
    """So many changes, which are there already."""
    found: list[Change[BladeKey, Blade]] = []
    while len(found) < count and (more := changes.poll(10)):
        found += more
    return told(found)


def three_in_one_revision(site: Site) -> None:
    with site.transaction() as tx:
        for slot in ("1", "2", "3"):
            tx.blades.insert(BladeKey("r1", slot), Blade(None, ["a"]))


def damaged(store: Store, key: bytes = RAW_ONE) -> int:
    return store.engine.commit(Commit((), (Put(key, b"{"),)))
