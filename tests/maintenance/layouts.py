"""What these tests declare, and a look behind the layout's back."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from keyplan.codec import Enclosed
from keyplan.engine import ALL_KEYS, Commit, Delete, Mutation, Put
from keyplan.layout import Counter, Index, Layout, Parameter, Table, Unique
from keyplan.store import Store

__all__ = ["Blade", "BladeKey", "Colliding", "Nested", "Raw", "Site", "dump", "write"]


class Blade(msgspec.Struct, frozen=True):
    serial: str | None = None
    tags: list[str] = []


class BladeKey(NamedTuple):
    rack: str
    slot: str


class Site(Layout, root="/site/"):
    """A unique index, a fan-out index, a leased table with an index, a counter."""

    blades = Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)
    by_serial = Unique("by-serial/{serial}", of=blades, key=str)
    by_tag = Index("by-tag/{tag}/{rack}/{slot}", of=blades, key=str, each={"tag": "tags"})
    members = Table("members/{member}", key=str, value=Blade, lease=True)
    member_serial = Unique("member-serial/{serial}", of=members, key=str)
    ports = Counter("next-port", start=33000)


class Nested(Layout, root="/cc/{space}"):
    """A root that lies within itself when it has a parameter."""

    space = Parameter("", Enclosed(before="Test/", after="/", empty=True))
    users = Table("users/{user}", key=str, value=Blade)
    by_serial = Unique("by-serial/{serial}", of=users, key=str)


class Colliding(Layout, root="/c/"):
    """Two templates that spell one key."""

    first = Table("a/{x}", key=str, value=str)
    second = Table("{y}/b", key=str, value=str)


class Raw(Layout, root=b""):
    """Binary keys without a root: the system area lies among them."""

    numbers = Table(b"N{number:u32}", key=int, value=bytes)


def write(store: Store, *mutations: Mutation | bytes, puts: Mapping[bytes, bytes] | None = None) -> int:
    """Write raw keys behind the layout's back; bytes alone are a key to delete."""
    given = [Delete(mutation) if isinstance(mutation, bytes) else mutation for mutation in mutations]
    return store.engine.commit(Commit((), (*given, *(Put(key, value) for key, value in (puts or {}).items()))))


def dump(store: Store) -> dict[bytes, tuple[bytes, int]]:
    """Everything that is stored: value and lease by raw key."""
    with store.engine.snapshot() as snapshot:
        return {entry.key: (entry.value, entry.lease) for entry in snapshot.scan(ALL_KEYS)}
