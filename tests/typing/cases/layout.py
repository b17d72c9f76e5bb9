"""What type checkers see of a bound layout: the real types of get, insert, list and look-up, and the mistakes of a user."""

from typing import NamedTuple
from uuid import UUID

import msgspec

from keyplan.layout import Binding, Counter, Damaged, Index, Layout, Table, Unique


class Rack(msgspec.Struct):
    room: str


class Blade(msgspec.Struct):
    cores: int
    serial: str


class BladeKey(NamedTuple):
    rack: str
    blade: int


class Chamber(Layout, root="/chamber/"):
    racks = Table("racks/{rack}", key=str, value=Rack)
    blades = Table("rack/{rack}/blades/{blade}", key=BladeKey, value=Blade)
    marks = Table("marks/{id}", key=UUID, value=None)
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_cores = Index("by-cores/{cores}/{rack}/{blade}", of=blades, key=int)
    port = Counter("port", start=1)


def use(binding: Binding) -> None:
    chamber = Chamber(binding)
    reveal_type(Chamber.racks)  # revealed: Table[str, Rack]
    reveal_type(chamber.racks.get("r1"))  # revealed: Rack | None
    reveal_type(chamber.racks.require("r1"))  # revealed: Rack
    reveal_type(chamber.blades.get(BladeKey("r1", 3)))  # revealed: Blade | None
    reveal_type(chamber.blades.get_many([BladeKey("r1", 3)]))  # revealed: list[Blade | None]
    reveal_type(list(chamber.blades.list("r1")))  # revealed: list[tuple[BladeKey, Blade]]
    reveal_type(chamber.blades.page("r1").records)  # revealed: list[tuple[BladeKey, Blade]]
    reveal_type(chamber.blades.page("r1").damaged)  # revealed: Sequence[Damaged[BladeKey]]
    for row in chamber.blades.rows("r1"):
        if isinstance(row, Damaged):
            reveal_type(row)  # revealed: Damaged[BladeKey]
            reveal_type(row.error)  # revealed: CorruptionError
        else:
            reveal_type(row.key)  # revealed: BladeKey
            reveal_type(row.record)  # revealed: Blade
    for row in chamber.by_serial.rows():
        if not isinstance(row, Damaged):
            reveal_type(row.key)  # revealed: BladeKey
    for row in chamber.by_cores.rows(16):
        if not isinstance(row, Damaged):
            reveal_type(row.record)  # revealed: Blade
    reveal_type(chamber.marks.get(UUID(int=1)))  # revealed: None
    reveal_type(chamber.by_serial.one("s"))  # revealed: Blade | None
    reveal_type(chamber.by_serial.key_of("s"))  # revealed: BladeKey | None
    reveal_type(list(chamber.by_cores.list(16)))  # revealed: list[tuple[BladeKey, Blade]]
    reveal_type(chamber.port.next())  # revealed: int
    with chamber.transaction() as tx:
        reveal_type(tx)  # revealed: Chamber
        reveal_type(tx.racks.insert("r1", Rack("a")))  # revealed: int
    reveal_type(chamber.run(lambda tx: tx.racks.require("r1")))  # revealed: Rack
    for key, blade in chamber.blades.list():
        reveal_type(key.blade)  # revealed: int
        reveal_type(blade.cores)  # revealed: int
    versioned = chamber.racks.versioned("r1")
    if versioned is not None:
        reveal_type(versioned.record)  # revealed: Rack

    reveal_type(chamber.blades.watch("r1", after=7))  # revealed: Changes[BladeKey, Blade]
    reveal_type(chamber.by_serial.watch("s"))  # revealed: Changes[BladeKey, Blade]
    reveal_type(chamber.by_cores.watch(16).poll(1.0)[0].new)  # revealed: Blade | None
    with chamber.racks.follow(keep_records=True) as changes:
        reveal_type(changes)  # revealed: Changes[str, Rack]
        reveal_type(changes.token)  # revealed: str
        for change in changes:
            reveal_type(change.kind)  # revealed: ChangeKind
            reveal_type(change.key)  # revealed: str
            reveal_type(change.old)  # revealed: Rack | None
            reveal_type(change.new)  # revealed: Rack | None

    chamber.blades.get(("r1", 3))  # error
    chamber.blades.get("r1")  # error
    chamber.blades.get(BladeKey("r1", "3"))  # error
    chamber.racks.insert("r1", Blade(1, "s"))  # error
    chamber.racks.put(b"r1", Rack("a"))  # error
    chamber.racks.modify("r1", lambda rack: rack.room)  # error
    chamber.by_serial.one(BladeKey("r1", 3))  # error
    chamber.marks.insert(UUID(int=1), b"x")  # error
    chamber.racks.get("r1").room  # error
    chamber.chassis  # error
    chamber.port.get("x")  # error
    chamber.port.watch()  # error
    chamber.racks.watch(after=b"token")  # error
    for either in chamber.racks.rows():
        if isinstance(either, Damaged):
            either.record  # error
    chamber.racks.insert("r1", Rack("a"), lease="lease")  # error


Unique("by-room/{room}", of=Rack, key=str)  # error
