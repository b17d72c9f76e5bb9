"""Look-ups through unique and fan-out indexes."""

from collections.abc import Callable

import pytest

from keyplan.engine import Commit, Put
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    IndexNotReadyError,
    InvalidInputError,
    InvalidKeyError,
    NotFoundError,
)
from keyplan.maintenance import build_index, drop_index, prepare_index
from keyplan.store import Store
from tests.store.layouts import Blade, BladeKey, Site

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")
THREE = BladeKey("r2", "1")


@pytest.fixture
def blades(site: Site) -> Site:
    site.blades.insert(THREE, Blade("s1", ["hot", "new"]))
    site.blades.insert(ONE, Blade("s2", ["new"]))
    site.blades.insert(TWO, Blade("s3", ["newer", "hot"]))
    return site


def test_a_unique_index_leads_to_its_record(blades: Site) -> None:
    assert blades.by_serial.one("s2") == Blade("s2", ["new"])
    assert blades.by_serial.require("s2") == Blade("s2", ["new"])
    assert blades.by_serial.key_of("s2") == ONE


def test_an_entry_that_is_not_there_is_none_or_not_found(blades: Site) -> None:
    assert blades.by_serial.one("s9") is None
    assert blades.by_serial.key_of("s9") is None
    with pytest.raises(NotFoundError) as caught:
        blades.by_serial.require("s9")
    assert caught.value.facts == {"table": "blades", "index": "by_serial", "key": "s9"}


def test_a_unique_index_lists_in_its_own_order(blades: Site) -> None:
    assert list(blades.by_serial.list()) == [
        (THREE, Blade("s1", ["hot", "new"])),
        (ONE, Blade("s2", ["new"])),
        (TWO, Blade("s3", ["newer", "hot"])),
    ]
    assert list(blades.by_serial.keys(reverse=True, limit=2)) == [TWO, ONE]
    assert list(blades.by_serial.keys("s1")) == [THREE]
    assert list(blades.by_serial.keys(starts_with="s")) == [THREE, ONE, TWO]
    assert blades.by_serial.count() == 3


def test_a_fan_out_index_has_an_entry_for_each_item(blades: Site) -> None:
    assert list(blades.by_tag.keys("new")) == [ONE, THREE]
    assert list(blades.by_tag.list("hot")) == [
        (TWO, Blade("s3", ["newer", "hot"])),
        (THREE, Blade("s1", ["hot", "new"])),
    ]
    assert list(blades.by_tag.keys(starts_with="new")) == [ONE, THREE, TWO]
    assert list(blades.by_tag.keys("new", "r2")) == [THREE]
    assert list(blades.by_tag.keys("hot", reverse=True)) == [THREE, TWO]
    assert blades.by_tag.count() == 5
    assert blades.by_tag.count("new") == 2


def test_an_indexs_list_goes_on_behind_a_value_or_a_record(blades: Site) -> None:
    assert list(blades.by_serial.keys(at_least="s2")) == [ONE, TWO]
    assert list(blades.by_serial.list(at_least="s1", below="s2")) == [(THREE, Blade("s1", ["hot", "new"]))]
    assert list(blades.by_serial.keys(at_least="s3", below="s1")) == []
    assert list(blades.by_tag.keys("new", "r1", at_least="1")) == [ONE]
    assert list(blades.by_tag.keys("new", "r1", at_least="2")) == []
    assert list(blades.by_tag.keys("hot", "r1", below="3", reverse=True)) == [TWO]
    assert blades.by_serial.count(at_least="s2") == 2
    assert blades.by_serial.count(below="s2") == 1
    with pytest.raises(InvalidKeyError):  # a tag is followed by a slash, which sorts after what a longer tag may have
        blades.by_tag.keys(at_least="new")


def test_a_limit_counts_records(blades: Site) -> None:
    assert len(list(blades.by_tag.list(limit=4))) == 4
    assert list(blades.by_tag.list("new", limit=0)) == []
    assert list(blades.by_tag.keys("new", limit=0)) == []
    with pytest.raises(InvalidInputError):
        blades.by_tag.list(limit=-1)


def test_arguments_are_checked_at_the_call(blades: Site) -> None:
    with pytest.raises(InvalidKeyError):
        blades.by_tag.list("a/b")
    with pytest.raises(InvalidKeyError):
        blades.by_serial.keys("s1", "more")
    with pytest.raises(InvalidKeyError):
        blades.by_serial.one("a/b")


def test_no_entry_is_made_while_a_component_is_none(site: Site) -> None:
    site.blades.insert(ONE, Blade(None, ["x"]))
    site.blades.insert(TWO, Blade(None, []))

    assert site.by_serial.count() == 0
    assert list(site.by_tag.keys()) == [ONE]


def test_an_item_that_comes_twice_has_one_entry(site: Site) -> None:
    site.blades.insert(ONE, Blade(None, ["x", "x"]))

    assert list(site.by_tag.keys("x")) == [ONE]


def test_more_records_than_one_batch_are_all_listed(site: Site, store: Store) -> None:
    names = [f"{number:03}" for number in range(300)]
    for name in names:
        site.blades.insert(BladeKey("r", name), Blade(None, ["many"], int(name)))

    assert [blade.watts for _, blade in site.by_tag.list("many")] == list(range(300))
    assert [blade.watts for _, blade in site.by_tag.list("many", limit=130, reverse=True)] == list(range(299, 169, -1))


def test_a_list_through_an_index_is_one_state(blades: Site) -> None:
    found = blades.by_tag.list("hot")
    first = next(found)
    blades.blades.delete(THREE)

    assert [first, *found] == [(TWO, Blade("s3", ["newer", "hot"])), (THREE, Blade("s1", ["hot", "new"]))]


def test_an_entry_without_its_record_is_passed_over(blades: Site, store: Store) -> None:
    left_over = (Put(b"/site/by-tag/new/r0/9", b""), Put(b"/site/by-serial/s0", b"rack/r0/blades/9"))
    store.engine.commit(Commit((), left_over))

    assert [key for key, _ in blades.by_tag.list("new", limit=2)] == [ONE, THREE]
    assert next(iter(blades.by_tag.keys("new"))) == BladeKey("r0", "9")
    assert blades.by_serial.one("s0") is None
    with pytest.raises(NotFoundError):
        blades.by_serial.require("s0")

    blades.blades.put(BladeKey("r0", "9"), Blade("s0", ["new"]))


def test_an_entry_that_names_no_key_is_corruption(blades: Site, store: Store) -> None:
    store.engine.commit(Commit((), (Put(b"/site/by-serial/bad", b"nonsense"),)))

    with pytest.raises(CorruptionError) as caught:
        blades.by_serial.one("bad")
    assert caught.value.raw_key == b"/site/by-serial/bad".hex()

    store.engine.commit(Commit((), (Put(b"/site/by-serial/bad", b"rack/r8/blades/8"),)))
    blades.blades.put(BladeKey("r8", "8"), Blade("bad"))


# ---- an index that stops being readable ---------------------------------------------------------------------------------

LOOKS: list[Callable[[Site], object]] = [
    lambda site: site.by_serial.one("s1"),
    lambda site: site.by_serial.require("s1"),
    lambda site: site.by_serial.key_of("s1"),
    lambda site: list(site.by_serial.list()),
    lambda site: list(site.by_serial.keys()),
    lambda site: list(site.by_serial.rows()),
    lambda site: site.by_serial.count(),
    lambda site: list(site.by_tag.list("t")),
    lambda site: list(site.by_tag.keys("t")),
    lambda site: list(site.by_tag.rows("t")),
]


@pytest.mark.parametrize("look", LOOKS)
def test_a_view_that_was_used_does_not_answer_for_an_index_that_was_dropped(
    site: Site, store: Store, look: Callable[[Site], object]
) -> None:
    site.blades.insert(BladeKey("r1", "1"), Blade("s1", ["t"]))
    assert look(site)
    for name in ("by_serial", "by_tag"):
        drop_index(store, site, name)

    with pytest.raises(IndexNotReadyError):
        look(site)

    for name in ("by_serial", "by_tag"):
        assert build_index(store, site, name).is_readable
    assert look(site)


@pytest.mark.parametrize("look", LOOKS)
def test_what_a_transaction_read_of_an_index_rests_on_its_being_readable(
    site: Site, store: Store, look: Callable[[Site], object]
) -> None:
    site.blades.insert(BladeKey("r1", "1"), Blade("s1", ["t"]))
    tx = store.transaction()
    look(Site(tx))
    Site(tx).flags.put("seen", None)
    for name in ("by_serial", "by_tag"):
        prepare_index(store, site, name)

    with pytest.raises(CommitConflictError):
        tx.commit()

    for name in ("by_serial", "by_tag"):
        assert build_index(store, site, name).is_readable
