"""Layouts that the tests share, and two opinions on whether every index says what its records say."""

from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec

from keyplan.codec import U64
from keyplan.engine import ALL_KEYS
from keyplan.layout import BoundLayout, Counter, Index, Kind, Layout, Table, Unique
from keyplan.maintenance import check
from keyplan.store import Store


class Rack(msgspec.Struct, frozen=True):
    room: str
    height: int = 42


class Blade(msgspec.Struct, frozen=True):
    serial: str | None = None
    tags: list[str] = []
    watts: int = 0


class BladeKey(NamedTuple):
    rack: str
    slot: str


class Site(Layout, root="/site/"):
    """Racks without indexes, blades with a unique and a fan-out index, and what else a table can be."""

    racks = Table("racks/{rack}", key=str, value=Rack)
    blades = Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_tag = Index("by-tag/{tag}/{rack}/{slot}", of=blades, key=str, each={"tag": "tags"})
    members = Table("members/{member}", key=str, value=Blade, lease=True)
    member_by_serial = Unique("member-by-serial/{serial}", of=members, key=str)
    member_by_tag = Index("member-by-tag/{tag}/{member}", of=members, key=str, each={"tag": "tags"})
    flags = Table("flags/{flag}", key=str, value=None)
    ports = Counter("next-port", start=33000)


class LeasedSite(Site):
    """The same keys as another program declares them: here blades live on leases."""

    blades = Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade, lease=True)
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_tag = Index("by-tag/{tag}/{rack}/{slot}", of=blades, key=str, each={"tag": "tags"})


def leased(site: Site) -> LeasedSite:
    """Return the leased layout on what `site` is bound to."""
    return LeasedSite(site._binding)  # Why: a layout does not tell its binding; tests mix two on one.


class EventKey(NamedTuple):
    dataset: UUID
    number: Annotated[int, U64()]


class Events(Layout, root=b"E"):
    """Binary keys: fixed widths, raw UUIDs, numbers in order."""

    events = Table(b"{dataset}{number}", key=EventKey, value=bytes)
    serial = Counter(b"!serial", start=7)


def index_faults(store: Store, layout: BoundLayout) -> list[str]:
    """What is wrong with the indexes: entries that are missing, wrong or too many, judged from the records alone.

    Keyplan's check must be of the same opinion, as far as that there is a fault or none.
    """
    expected: dict[bytes, tuple[bytes, int]] = {}
    found: dict[bytes, tuple[bytes, int]] = {}
    with store.engine.snapshot() as snapshot:
        for entry in snapshot.scan(ALL_KEYS):
            meaning = layout.meaning(entry.key)
            if meaning.kind is Kind.INDEX_ENTRY:
                found[entry.key] = (entry.value, entry.lease)
            elif meaning.kind is Kind.RECORD:
                table = layout.table(str(meaning.item))
                for index in table.indexes:
                    record = table.form.decode(entry.value)
                    for raw_key, raw_value in index.entries(meaning.key, record):
                        expected[raw_key] = (raw_value, entry.lease)
    faults = [
        f"{raw_key!r}: {found.get(raw_key)} instead of {expected.get(raw_key)}"
        for raw_key in sorted(found.keys() | expected.keys())
        if found.get(raw_key) != expected.get(raw_key)
    ]
    findings = [str(finding) for finding in check(store, layout) if not finding.kind.is_note]
    assert bool(findings) == bool(faults), f"check finds {findings}, the records say {faults}"
    return faults
