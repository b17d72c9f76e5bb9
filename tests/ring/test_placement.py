"""The database that a range is asked of has all its keys: those that templates spell, and those that none does."""

import random
from typing import Annotated, NamedTuple
from uuid import UUID

import pytest

from keyplan.codec import U8
from keyplan.engine import ALL_KEYS, Commit, KeyRange, Put
from keyplan.layout import Layout, Table
from keyplan.ring import placement_of, ring_of
from keyplan.store import Store
from tests.ring.sites import Blade, BladeKey, Numbers, Site, memories


class FileKey(NamedTuple):
    """A version of a file, which a path names."""

    path: str
    version: str


class Files(Layout, root="/f/"):
    """Placed by a path, whose end no prefix shows: what follows it may go on with it."""

    versions = Table("{path:path}/x/{version}", key=FileKey, value=str, place="path")


class PairKey(NamedTuple):
    """Two names."""

    first: str
    second: str


class Both(Layout, root="/b/"):
    """Two tables below one prefix, placed by different fields."""

    firsts = Table("p/{first}/{second}", key=PairKey, value=str, place="first")
    seconds = Table("p/{first}/at/{second}", key=PairKey, value=str, place="second")


class PartKey(NamedTuple):
    """Part of a thing with a number of one byte."""

    thing: UUID
    number: Annotated[int, U8()]


class NamedKey(NamedTuple):
    """The same, the other way round."""

    number: Annotated[int, U8()]
    thing: UUID


class Parts(Layout):
    """Binary keys: some placed by their first bytes, others by what stands behind a word."""

    parts = Table(b"{thing}{number}", key=PartKey, value=bytes, place="thing")
    named = Table(b"name/{number}{thing}", key=NamedKey, value=bytes, place="number")


PIECES = (
    b"/site/",
    b"rack/",
    b"r1/",
    b"r2/",
    b"blades/",
    b"b1",
    b"tags/",
    b"amd/",
    b"/f/",
    b"a/",
    b"x/",
    b"b/",
    b"/b/p/",
    b"at/",
)


def some_keys(seed: int) -> list[bytes]:
    """Keys of no template and of some, with much in common, and arbitrary bytes."""
    chance = random.Random(seed)
    keys = [b"".join(chance.choices(PIECES, k=chance.randrange(1, 7))) for _ in range(600)]
    keys += (
        [b"/site/" + key for key in keys[:200]]
        + [b"/f/" + key for key in keys[:200]]
        + [b"/b/p/" + key for key in keys[:200]]
    )
    keys += [chance.choice((b"", b"name/", bytes(16))) + chance.randbytes(chance.randrange(40)) for _ in range(150)]
    return sorted(set(keys) - {b""})


@pytest.mark.parametrize("layout", [Site, Files, Both, Parts, Numbers])
@pytest.mark.parametrize("seed", range(2))
def test_one_database_has_all_keys_of_a_range(layout: type[Layout], seed: int) -> None:
    placement = placement_of(layout.bound(), 5)
    homes: dict[bytes, set[int]] = {}
    for key in some_keys(seed):
        for size in range(1, len(key) + 1):
            homes.setdefault(key[:size], set()).add(placement.of_key(key))
    asked = 0
    for prefix, found in homes.items():
        home = placement.of_range(KeyRange.of_prefix(prefix))
        if home is not None:
            asked += 1
            assert found == {home}, prefix
    assert asked or layout is Files, "nothing was judged"


def test_a_scan_of_a_placed_prefix_finds_keys_that_no_template_spells() -> None:
    ring = ring_of(memories(4), Site)
    store = Store(ring)
    racks = [f"r{number}" for number in range(12)]
    for rack in racks:
        Site(store).blades.insert(BladeKey(rack, "b1"), Blade("s"))
        ring.commit(Commit((), (Put(f"/site/rack/{rack}/other".encode(), b""),)))
    with ring.snapshot() as snapshot:
        for rack in racks:
            prefix = f"/site/rack/{rack}/".encode()
            assert list(snapshot.keys(KeyRange.of_prefix(prefix))) == [
                prefix + b"blades/b1",
                prefix + b"other",
                prefix + b"serials/s",
            ]
        assert len(list(snapshot.keys(ALL_KEYS))) == 3 * len(racks)
    assert sorted(key.blade for key in Site(store).blades.keys("r7")) == ["b1"]


def test_a_list_asks_one_database_although_a_bound_of_a_field_is_not_in_its_pattern() -> None:
    placement = placement_of(Parts.bound(), 5)
    thing = UUID(int=7)
    key = Parts.bound().tables["parts"].keys.encode(PartKey(thing, 1))
    assert placement.of_range(KeyRange.of_prefix(thing.bytes)) == placement.of_key(key)
