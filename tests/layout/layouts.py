"""Layouts that several tests of this folder look at; imported by name."""

from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec

from keyplan.codec import U64, Decimal, Text
from keyplan.layout import Counter, Index, Layout, Parameter, Table, Unique, Unlike


class Capacity(msgspec.Struct, frozen=True):
    cores: int
    arch: str


class Label(msgspec.Struct, frozen=True):
    name: str
    text: str


class Blade(msgspec.Struct, frozen=True):
    serial: str
    capacity: Capacity | None = None
    tags: list[str] = []
    labels: list[Label] = []
    notes: dict[str, str] = {}
    project: str | None = None
    state: str = "on"


class BladeKey(NamedTuple):
    rack: Annotated[str, Text(dots=False)]
    blade: Annotated[int, Decimal(most=10_000_000)]


class TagKey(NamedTuple):
    state: str
    tag: str


class NoteKey(NamedTuple):
    name: str
    value: str


class Site(Layout, root="/site/{area}", version=3):
    """A small site.

    With a second paragraph.
    """

    area = Parameter("", Text(empty=True, exclude=""))
    racks = Table("racks/{rack}", key=str, value=dict[str, str])
    blades = Table("rack/{rack}/blades/{blade}", key=BladeKey, value=Blade, lease=True, note="one a slot")
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_arch = Index("by-arch/{arch}/{rack}/{blade}", of=blades, key=str, bind={"arch": "capacity.arch"})
    by_tag = Index(
        "by-tag/{state}/{tag}/{rack}/{blade}", of=blades, key=TagKey, each={"tag": "tags"}, when={"state": "on"}
    )
    by_note = Index("by-note/{name}/{value}/{rack}/{blade}", of=blades, key=NoteKey, each={("name", "value"): "notes"})
    by_label = Index(
        "by-label/{name}/{value}/{rack}/{blade}",
        of=blades,
        key=NoteKey,
        each={"name": "labels[].name", "value": "labels[].text"},
        when={"project": Unlike("secret")},
    )
    port = Counter("next-port", start=33000)


class RunKey(NamedTuple):
    dataset: UUID
    run: Annotated[int, U64()]


class Physics(Layout):
    datasets = Table(b"d{path.level:u8}{path:path}", key=str, value=UUID, place="path.parent")
    runs = Table(b"r{dataset}{run}", key=RunKey, value=None)
