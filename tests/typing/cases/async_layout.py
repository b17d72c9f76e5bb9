"""What type checkers see of a layout that is declared for both uses: awaited operations, and what is mixed up."""

from typing import NamedTuple

import msgspec

from keyplan.layout import Async, AsyncBinding, Binding, Counter, Damaged, Index, Layout, Mode, Sync, Table, Unique


class Rack(msgspec.Struct):
    room: str


class Blade(msgspec.Struct):
    cores: int
    serial: str


class BladeKey(NamedTuple):
    rack: str
    blade: int


class Hall(Layout[Mode], root="/hall/"):
    racks = Table("racks/{rack}", key=str, value=Rack)
    blades = Table("rack/{rack}/blades/{blade}", key=BladeKey, value=Blade)
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_cores = Index("by-cores/{cores}/{rack}/{blade}", of=blades, key=int)
    port = Counter("port", start=1)


class Annex(Layout, root="/annex/"):
    racks = Table("racks/{rack}", key=str, value=Rack)


def fill(hall: Hall) -> None:
    reveal_type(hall)  # revealed: Hall[Sync]


async def first_room(tx: Hall[Async]) -> str:
    return (await tx.racks.require("r1")).room


def use(binding: Binding) -> None:
    hall = Hall(binding)
    reveal_type(hall)  # revealed: Hall[Sync]
    reveal_type(Hall.racks)  # revealed: Table[str, Rack]
    reveal_type(hall.racks.get("r1"))  # revealed: Rack | None
    reveal_type(hall.revision)  # revealed: int
    with hall.transaction() as tx:
        reveal_type(tx)  # revealed: Hall[Sync]
    fill(hall)
    fill(Hall[Sync](binding))


async def use_async(binding: AsyncBinding) -> None:
    hall = Hall(binding)
    reveal_type(hall)  # revealed: Hall[Async]
    reveal_type(await hall.racks.get("r1"))  # revealed: Rack | None
    reveal_type(await hall.racks.require("r1"))  # revealed: Rack
    reveal_type(await hall.racks.insert("r1", Rack("a")))  # revealed: int
    reveal_type(await hall.blades.get_many([BladeKey("r1", 3)]))  # revealed: list[Blade | None]
    reveal_type((await hall.blades.page("r1")).records)  # revealed: list[tuple[BladeKey, Blade]]
    reveal_type(await hall.by_serial.one("s"))  # revealed: Blade | None
    reveal_type(await hall.by_serial.key_of("s"))  # revealed: BladeKey | None
    reveal_type(await hall.port.next())  # revealed: int
    reveal_type(await hall.revision)  # revealed: int
    reveal_type([key async for key in hall.blades.keys("r1")])  # revealed: list[BladeKey]
    async for key, blade in hall.by_cores.list(16):
        reveal_type(key.blade)  # revealed: int
        reveal_type(blade.cores)  # revealed: int
    async for row in hall.racks.rows():
        if isinstance(row, Damaged):
            reveal_type(row)  # revealed: Damaged[str]
        else:
            reveal_type(row.record)  # revealed: Rack
    async with hall.transaction() as tx:
        reveal_type(tx)  # revealed: Hall[Async]
        reveal_type(await tx.racks.modify("r1", lambda rack: Rack(rack.room)))  # revealed: int
    async with hall.snapshot() as pinned:
        reveal_type(await pinned.racks.get("r1"))  # revealed: Rack | None
    reveal_type(await hall.run(first_room))  # revealed: str

    reveal_type(hall.blades.watch("r1", after=7))  # revealed: AsyncChanges[BladeKey, Blade]
    async for change in hall.racks.follow(keep_records=True):
        reveal_type(change.key)  # revealed: str
        reveal_type(change.new)  # revealed: Rack | None
    async with hall.by_cores.watch(16) as changes:
        reveal_type(changes)  # revealed: AsyncChanges[BladeKey, Blade]
        reveal_type((await changes.poll(1.0))[0].new)  # revealed: Blade | None

    hall.racks.get("r1").room  # error
    rack: Rack | None = hall.racks.get("r1")  # error
    await hall.blades.get("r1")  # error
    await hall.racks.insert("r1", Blade(1, "s"))  # error
    for _pair in hall.racks.list():  # error
        break
    with hall.transaction():  # error
        pass
    await hall.run(lambda inner: inner.revision + 1)  # error
    fill(hall)  # error
    Annex(binding)  # error
