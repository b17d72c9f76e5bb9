"""Layouts over several databases: where records are, lists in order, what one transaction may concern, what does not open."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

import keyplan
from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, KeyRange, MemoryEngine, Put, open_engine
from keyplan.errors import (
    AlreadyExistsError,
    CorruptionError,
    EngineOpenError,
    LayoutError,
    RingMismatchError,
    SplitCommitError,
    UniqueViolationError,
    UnsupportedByEngineError,
)
from keyplan.layout import Layout, Table, Unique
from keyplan.maintenance import check
from keyplan.ring import RING_KEY, RingEngine, join_ring, open_ring, placement_of, ring_of
from keyplan.store import Store
from tests.ring.sites import Blade, BladeKey, NumberKey, Numbers, SerialKey, Site, memories

# Racks r0 to r5 of a ring of four databases, found once by hand with the C library's algorithm (test_rendezvous.py).
RACKS = [f"r{number}" for number in range(40)]


def raw_keys(engine: Engine) -> list[bytes]:
    with engine.snapshot() as snapshot:
        return [key for key in snapshot.keys(ALL_KEYS) if key != RING_KEY]


def site_of(count: int) -> tuple[Store, RingEngine, Site]:
    ring = ring_of(memories(count), Site)
    store = Store(ring)
    return store, ring, Site(store)


def filled(count: int) -> tuple[Store, RingEngine, Site]:
    store, ring, site = site_of(count)
    for rack in RACKS:
        for blade in ("b1", "b2"):
            site.blades.insert(BladeKey(rack, blade), Blade(f"serial-{blade}", ("amd", blade)))
    return store, ring, site


def test_a_record_and_its_index_entries_are_in_one_database_and_in_no_other() -> None:
    _, ring, _ = filled(4)
    homes: dict[bytes, set[int]] = {}
    for number, database in enumerate(ring.databases):
        for key in raw_keys(database):
            homes.setdefault(key.split(b"/")[4 if b"/tags/" in key else 3], set()).add(number)
    assert len(homes) == len(RACKS)
    assert all(len(numbers) == 1 for numbers in homes.values())
    assert {number for numbers in homes.values() for number in numbers} == {0, 1, 2, 3}


def test_lists_over_all_databases_are_in_key_order_both_ways() -> None:
    _, _, site = filled(4)
    expected = sorted(BladeKey(rack, blade) for rack in RACKS for blade in ("b1", "b2"))
    assert [key for key, _ in site.blades.list()] == expected
    assert list(site.blades.keys(reverse=True)) == expected[::-1]
    assert list(site.blades.keys(limit=3)) == expected[:3]
    assert site.blades.count() == 80
    page = site.blades.page(limit=50)
    assert [key for key, _ in page.records] + [
        key for key, _ in site.blades.page(token=page.next_token).records
    ] == expected


def test_a_list_by_the_placed_field_asks_one_database() -> None:
    placement = placement_of(Site.bound(), 4)
    keys = Site.bound().tables["blades"].keys
    for rack in RACKS:
        home = placement.of_key(keys.encode(BladeKey(rack, "b1")))
        assert placement.of_range(KeyRange(*keys.range((rack,)))) == home
        assert placement.of_range(KeyRange(*keys.range((rack,), starts_with="b"))) == home
    assert placement.of_range(KeyRange(*keys.range((), starts_with="r"))) is None
    assert placement.of_range(ALL_KEYS) is None


def test_indexes_read_what_tables_hold() -> None:
    _, _, site = filled(4)
    assert site.by_serial.key_of(SerialKey("r7", "serial-b2")) == BladeKey("r7", "b2")
    assert [key for key, _ in site.by_tag.list("amd")] == sorted(site.blades.keys())
    with pytest.raises(UniqueViolationError):
        site.blades.insert(BladeKey("r7", "b3"), Blade("serial-b1"))
    with pytest.raises(AlreadyExistsError):
        site.blades.insert(BladeKey("r7", "b1"), Blade("other"))


def test_what_is_not_placed_is_in_the_first_database() -> None:
    _, ring, site = site_of(3)
    site.notes.insert("n1", "text")
    assert site.numbers.next() == 1
    assert raw_keys(ring.databases[0]) == [b"/site/notes/n1", b"/site/numbers"]
    assert [raw_keys(database) for database in ring.databases[1:]] == [[], []]


def test_a_transaction_within_one_database_commits() -> None:
    _, _, site = filled(4)
    with site.transaction() as tx:
        tx.blades.delete(BladeKey("r1", "b1"))
        tx.blades.insert(BladeKey("r1", "b9"), Blade("serial-b1"))
    assert [key.blade for key in site.blades.keys("r1")] == ["b2", "b9"]


def test_a_transaction_over_two_databases_is_refused_and_nothing_is_written() -> None:
    _, ring, site = filled(4)
    first, second = _racks_apart(ring)
    before = [raw_keys(database) for database in ring.databases]

    def insert_both(tx: Site) -> None:
        for rack in (first, second):
            tx.blades.insert(BladeKey(rack, "new"), Blade("new"))

    with pytest.raises(SplitCommitError) as caught:
        site.run(insert_both)
    assert len(caught.value.facts["raw_keys"]) == 2  # type: ignore[arg-type]  # Why: facts are of any type.
    assert [raw_keys(database) for database in ring.databases] == before


def test_what_a_transaction_has_read_in_another_database_counts_too() -> None:
    _, ring, site = filled(4)
    first, second = _racks_apart(ring)
    for read in (lambda tx: tx.blades.get(BladeKey(first, "b1")), lambda tx: list(tx.blades.list())):

        def read_and_insert(tx: Site, read: Callable[[Site], object] = read) -> None:
            read(tx)
            tx.blades.insert(BladeKey(second, "new"), Blade("new"))

        with pytest.raises(SplitCommitError):
            site.run(read_and_insert)
    assert not site.blades.exists(BladeKey(second, "new"))


def _racks_apart(ring: RingEngine) -> tuple[str, str]:
    keys = Site.bound().tables["blades"].keys
    homes = {rack: ring.database_of(keys.encode(BladeKey(rack, "b"))) for rack in RACKS}
    return "r1", next(rack for rack in RACKS if homes[rack] != homes["r1"])


def test_many_keys_go_to_their_databases() -> None:
    ring = ring_of(memories(3), Numbers)
    keys = sorted(UUID(int=group).bytes + number.to_bytes(8, "big") for group in range(30) for number in range(5))
    assert ring.put_sorted(keys) == 150
    assert ring.put_sorted(keys[:10]) == 0
    assert sorted(key for database in ring.databases for key in raw_keys(database)) == keys
    assert all(len(raw_keys(database)) % 5 == 0 for database in ring.databases)
    with ring.snapshot() as snapshot:
        assert list(snapshot.keys(ALL_KEYS)) == keys
        assert snapshot.count(ALL_KEYS) == 150


def test_the_check_finds_nothing_wrong_in_a_ring() -> None:
    store, _, _ = filled(3)
    assert list(check(store, Site(store))) == []


def test_deleting_a_range_leaves_the_ring_s_description() -> None:
    ring = ring_of(memories(1), Numbers)
    ring.put_sorted([bytes(16) + bytes(8), b"\xff" * 24])
    ring.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    assert raw_keys(ring.databases[0]) == []
    ring.put_sorted([b"\x01" * 24])  # its fence still holds
    assert raw_keys(ring.databases[0]) == [b"\x01" * 24]


def test_a_ring_claims_neither_revisions_nor_watches_nor_leases() -> None:
    _, ring, site = site_of(2)
    assert ring.profile.name == "ring"
    assert ring.profile.capabilities == frozenset()  # of two memories, which are not durable and not shared
    with pytest.raises(UnsupportedByEngineError):
        site.blades.watch()


# ---- what does not open ---------------------------------------------------------------------------------------------------


def problem(engines: list[Engine], layout: type[Layout] = Site) -> str:
    with pytest.raises(RingMismatchError) as caught:
        ring_of(engines, layout)
    return str(caught.value.problem)


def test_a_ring_opens_again_only_as_it_was() -> None:
    engines = memories(3)
    ring_of(engines, Site)
    ring_of(engines, Site)
    assert "written with 3 databases, not 4" in problem([*engines, MemoryEngine()])
    assert "written with 3 databases, not 2" in problem(engines[:2])
    assert "it is database 1 of its ring, and was given as number 0" in problem([engines[1], engines[0], engines[2]])
    assert "placed by another layout" in problem(engines, Numbers)
    other = memories(3)
    ring_of(other, Site)
    assert "another ring" in problem([engines[0], other[1], engines[2]])


def test_databases_with_keys_that_were_never_a_ring_are_refused_and_left() -> None:
    engines = memories(2)
    engines[1].commit(Commit((), (Put(b"a", b"b"),)))
    assert "was not written as part of a ring" in problem(engines)
    with engines[0].snapshot() as snapshot:
        assert snapshot.count(ALL_KEYS) == 0


def test_a_ring_that_was_made_half_is_made_whole() -> None:
    engines = memories(3)
    ring = ring_of(engines, Site)
    with engines[2].snapshot() as snapshot:
        (key,) = snapshot.keys(ALL_KEYS)
    engines[2].commit(Commit((), (DeleteRange(KeyRange.of_key(key)),)))
    again = ring_of(engines, Site)
    assert len(again.databases) == len(ring.databases) == 3
    Site(Store(again)).blades.insert(BladeKey("r1", "b"), Blade("s"))


def test_without_leave_to_create_a_new_ring_is_not_made() -> None:
    engines = memories(1)
    with pytest.raises(RingMismatchError):
        ring_of(engines, Site, create=False)
    with engines[0].snapshot() as snapshot:
        assert snapshot.count(ALL_KEYS) == 0


@pytest.mark.parametrize("raw", [b"{broken", b'{"ring":"\xff"}', b'{"placed":' * 50_000])
def test_a_description_that_is_damaged_is_corruption(raw: bytes) -> None:
    engines = memories(1)
    engines[0].commit(Commit((), (Put(RING_KEY, raw),)))
    with pytest.raises(CorruptionError):
        ring_of(engines, Site)


def test_an_index_that_would_lie_apart_from_its_records_is_refused() -> None:
    class Apart(Layout, root="/apart/"):
        blades = Table("rack/{rack}/blades/{blade}", key=BladeKey, value=Blade, place="rack")
        serials = Unique("serials/{serial}", of=blades, key=str)

    with pytest.raises(LayoutError) as caught:
        ring_of(memories(2), Apart)
    assert caught.value.facts["item"] == "serials"


def test_keys_placed_by_the_whole_of_them_spread() -> None:
    class Spread(Layout, root=b"s"):
        items = Table(b"{item}", key=UUID, value=None, place="item")

    ring = ring_of(memories(4), Spread)
    items = Spread(Store(ring)).items
    for number in range(64):
        items.insert(UUID(int=number), None)
    assert all(raw_keys(database) for database in ring.databases)
    assert [item.int for item in items.keys()]  # noqa: SIM118  # Why: a table's keys. == list(range(64))


# ---- by URL ---------------------------------------------------------------------------------------------------------------


def test_a_ring_is_opened_by_urls_and_by_a_file_of_urls(tmp_path: Path) -> None:
    urls = [f"lmdb:{tmp_path}/{number}" for number in range(2)]
    with open_ring(urls, Site) as store:
        Site(store).blades.insert(BladeKey("r1", "b1"), Blade("s"))
    listed = tmp_path / "ring.txt"
    listed.write_text("# the ring\n" + "\n".join(urls) + "\n")
    with keyplan.open(f"ring:{listed}") as store:
        assert Site(store).blades.require(BladeKey("r1", "b1")) == Blade("s")
    listed.write_text("\n".join(reversed(urls)))
    with pytest.raises(RingMismatchError):
        open_engine(f"ring:{listed}")


@pytest.mark.parametrize(("content", "says"), [(None, "cannot be read"), ("# none\n", "names no database")])
def test_a_file_without_urls_does_not_open(tmp_path: Path, content: str | None, says: str) -> None:
    listed = tmp_path / "ring.txt"
    if content is not None:
        listed.write_text(content)
    with pytest.raises(EngineOpenError) as caught:
        open_engine(f"ring:{listed}")
    assert says in str(caught.value.problem)


def test_databases_that_are_no_ring_cannot_be_joined() -> None:
    with pytest.raises(RingMismatchError):
        join_ring(memories(2))


def test_a_key_of_the_numbers_layout_is_where_placement_says() -> None:
    ring = ring_of(memories(4), Numbers)
    numbers = Numbers(Store(ring)).numbers
    for group in range(20):
        numbers.insert(NumberKey(UUID(int=group), 1), b"x")
    for number, database in enumerate(ring.databases):
        for key in raw_keys(database):
            assert ring.database_of(key) == number
