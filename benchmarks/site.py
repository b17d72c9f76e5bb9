"""What is migrated: a table with a unique and a plain index, and what three changes make of it."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from keyplan.engine import ALL_KEYS, MemoryEngine
from keyplan.layout import Index, Layout, Mode, Table, Unique
from keyplan.maintenance import Keyed, Transform
from keyplan.store import Store

__all__ = ["PREFIX", "Moved", "Rewritten", "Site", "Split", "machine", "pairs", "slot", "split"]

PREFIX = b"/site/"
_SLOTS_A_RACK = 40
_OWNERS = 50


class Slot(NamedTuple):
    """A rack, whose name begins with its hall, and a place in it."""

    rack: str
    slot: int


class Place(NamedTuple):
    """The same with the hall as a field of its own."""

    hall: str
    rack: str
    slot: int


class Machine(msgspec.Struct, frozen=True):
    """Six fields, some 150 bytes of JSON."""

    serial: str
    owner: str
    state: str
    size: int
    note: str | None
    digest: str


class Site(Layout[Mode], root=PREFIX.decode()):
    """The old layout."""

    machines = Table("machines/{rack}/{slot}", key=Slot, value=Machine)
    by_serial = Unique("serials/{serial}", of=machines, key=str)
    by_owner = Index("owners/{owner}/{rack}/{slot}", of=machines, key=str)
    notes = Table("notes/{note}", key=str, value=str)


class Moved(Layout, root=PREFIX.decode()):
    """The machines and their index entries stand elsewhere."""

    machines = Table("racks/{rack}/machines/{slot}", key=Slot, value=Machine)
    by_serial = Unique("machine-serials/{serial}", of=machines, key=str)
    by_owner = Index("machine-owners/{owner}/{rack}/{slot}", of=machines, key=str)
    notes = Table("notes/{note}", key=str, value=str)


class Rewritten(Layout, root=PREFIX.decode()):
    """The machines' values have another form, at the same keys."""

    machines = Table("machines/{rack}/{slot}", key=Slot, value=Machine, form="msgpack")
    by_serial = Unique("serials/{serial}", of=machines, key=str)
    by_owner = Index("owners/{owner}/{rack}/{slot}", of=machines, key=str)
    notes = Table("notes/{note}", key=str, value=str)


class Split(Layout, root=PREFIX.decode()):
    """The machines have a field more in their keys."""

    machines = Table("halls/{hall}/{rack}/{slot}", key=Place, value=Machine)
    by_serial = Unique("hall-serials/{serial}", of=machines, key=str)
    by_owner = Index("hall-owners/{owner}/{hall}/{rack}/{slot}", of=machines, key=str)
    notes = Table("notes/{note}", key=str, value=str)


def _split(key: Slot, record: Machine) -> Keyed:
    hall, _, rack = key.rack.partition("-")
    return Keyed(Place(hall, rack, key.slot), record)


split = Transform(_split, "benchmarks.site:split", of=("machines",), into=("machines",))


def slot(number: int) -> Slot:
    """The key of the machine of a number."""
    rack = number // _SLOTS_A_RACK
    return Slot(f"{'abcdefgh'[rack % 8]}-{rack:05d}", number % _SLOTS_A_RACK)


def machine(number: int, *, state: str = "running") -> Machine:
    """The machine of a number."""
    digest = "3b5d5c3712955042212316173ccf37be800cdc2a"
    return Machine(f"serial-{number:09d}", f"owner-{number % _OWNERS:02d}", state, number, None, digest)


@cache
def pairs(records: int) -> tuple[tuple[bytes, bytes], ...]:
    """All that so many machines are in a store of the old layout, in order of keys: three entries each."""

    def stored() -> Iterator[tuple[bytes, bytes]]:
        with MemoryEngine() as engine:
            site = Site(Store(engine))
            for number in range(records):
                site.machines.insert(slot(number), machine(number))
            with engine.snapshot() as snapshot:
                yield from ((entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS))

    return tuple(stored())
