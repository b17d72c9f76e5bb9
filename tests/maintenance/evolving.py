"""A layout and what it becomes: a table that moves, indexes that come and go, values that are written anew; and the runs."""

from typing import Any, NamedTuple

import msgspec

from keyplan.layout import Counter, Index, Layout, Table, Unique
from keyplan.maintenance import Conversion, MigrationPlan, MigrationReport, clean_up_migration, migrate, plan_migration
from keyplan.store import Backoff, Store
from tests.maintenance.layouts import dump

__all__ = [
    "ENLARGED",
    "NO_WAIT",
    "Box",
    "Crate",
    "Moved",
    "Old",
    "Reindexed",
    "Shelf",
    "Stated",
    "cleaned",
    "fill",
    "own",
    "plan",
    "switched",
]


class Shelf(NamedTuple):
    room: str
    number: int


class Box(msgspec.Struct, frozen=True):
    name: str
    tags: list[str] = []


class Crate(msgspec.Struct, frozen=True):
    name: str
    size: int
    tags: list[str] = []


class Old(Layout, root="/s/"):
    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    by_name = Unique("by-name/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)


class Moved(Layout, root="/s/"):
    """The boxes stand elsewhere, and with them their unique names; the tags' entries are the same as before."""

    boxes = Table("crates/{room}/{number}", key=Shelf, value=Box)
    by_name = Unique("names/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)


class Stated(Layout, root="/s/"):
    """The boxes stay, with a field more that has no default."""

    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Crate)
    by_name = Unique("by-name/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)


class Reindexed(Layout, root="/s/"):
    """One index less, another one more, a counter."""

    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    named = Index("named/{name}/{room}/{number}", of=boxes, key=str)
    notes = Table("notes/{note}", key=str, value=str)
    tickets = Counter("tickets", start=7)


NO_WAIT = Backoff(sleep=lambda _: None)
ENLARGED = Conversion(lambda box: Crate(box.name, len(box.name), [*box.tags, "counted"]), "tests:enlarged")


def plan(store: Store, old: type[Layout], new: type[Layout], **options: Any) -> MigrationPlan:
    return plan_migration(store.engine, old.bound(), new.bound(), **options)


def switched(store: Store, old: type[Layout], new: type[Layout], **options: Any) -> MigrationReport:
    return migrate(store, plan(store, old, new, **options), is_switched=True, backoff=NO_WAIT)


def cleaned(store: Store, old: type[Layout], new: type[Layout], **options: Any) -> None:
    report = clean_up_migration(store, plan(store, old, new, **options), backoff=NO_WAIT)
    assert report.is_cleaned, report


def fill(store: Store, count: int = 5) -> Old:
    old = Old(store)
    old.notes.insert("n", "note")
    for start in range(0, count, 20):
        with old.transaction() as transaction:
            for number in range(start, min(start + 20, count)):
                transaction.boxes.insert(Shelf("a", number), Box(f"box{number}", ["red"]))
    return old


def own(store: Store) -> dict[bytes, bytes]:
    """What is stored, but for what keyplan keeps for itself."""
    return {key: value for key, (value, _) in dump(store).items() if not key.startswith(b"\x00k")}
