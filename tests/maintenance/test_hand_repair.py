"""Single keys by hand: shown with what belongs to them, guarded by what was shown, never past a fence unsaid."""

import sys
from pathlib import Path

import pytest

from keyplan.errors import CommitConflictError, InvalidInputError, NotFoundError, UniqueViolationError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaces, open_key_space
from keyplan.layout import lint
from keyplan.maintenance import (
    Quarantine,
    Selection,
    back_up_key_spaces,
    carry_out_change,
    check,
    extract,
    list_quarantined,
    plan_delete,
    plan_put,
    plan_quarantine,
    plan_release,
)
from keyplan.store import Store
from tests.maintenance.backups import file_of, filled, section_file, write_backup
from tests.maintenance.layouts import Blade, BladeKey, Site, dump, write

BLADE_1 = b"/site/rack/r1/blades/1"
SITE = Site.bound()


@pytest.fixture
def damaged(store: Store, site: Site) -> Store:
    """The first blade cannot be read; its entries are there."""
    assert site.blades.count() == 3
    write(store, puts={BLADE_1: b"{broken"})
    return store


def test_a_damaged_record_is_deleted_with_the_entries_that_point_at_it(damaged: Store) -> None:
    change = plan_delete(damaged.engine, BLADE_1, layout=SITE)
    assert sorted(mutation.key for mutation in change.commit.mutations) == [  # type: ignore[union-attr]
        b"/site/by-serial/s1",
        b"/site/by-tag/blue/r1/1",
        b"/site/by-tag/red/r1/1",
        BLADE_1,
    ]
    carry_out_change(damaged.engine, change)
    assert list(check(damaged, SITE)) == []


def test_a_damaged_record_is_replaced_byte_for_byte_and_its_entries_with_it(damaged: Store) -> None:
    value = b'{"serial":"s9", "tags":["red"]}'
    carry_out_change(damaged.engine, plan_put(damaged.engine, BLADE_1, value, layout=SITE))
    assert dump(damaged)[BLADE_1] == (value, 0)
    assert Site(damaged).by_serial.key_of("s9") == BladeKey("r1", "1")
    assert list(check(damaged, SITE)) == []


def test_a_damaged_record_is_set_aside_and_put_back(damaged: Store) -> None:
    before = dump(damaged)
    carry_out_change(damaged.engine, plan_quarantine(damaged.engine, BLADE_1, layout=SITE, reason="torn"))
    assert list(check(damaged, SITE)) == []
    (kept,) = list_quarantined(damaged.engine)
    assert (kept.raw_key, kept.value.reveal(), kept.reason) == (BLADE_1, b"{broken", "torn")
    write(damaged, puts={BLADE_1: b'{"serial":"other"}'})
    with pytest.raises(InvalidInputError):
        plan_release(damaged.engine, kept, layout=SITE)
    write(damaged, BLADE_1)
    change = plan_release(damaged.engine, kept, layout=SITE)
    assert "cannot read this value" in change.notes[0]
    carry_out_change(damaged.engine, change)
    assert dump(damaged)[BLADE_1] == before[BLADE_1]
    assert list_quarantined(damaged.engine) == []


def test_a_second_entry_of_a_key_that_is_set_aside_does_not_replace_the_first(damaged: Store) -> None:
    carry_out_change(damaged.engine, plan_quarantine(damaged.engine, BLADE_1))
    write(damaged, puts={BLADE_1: b"{again"})
    with pytest.raises(InvalidInputError, match="set aside already"):
        plan_quarantine(damaged.engine, BLADE_1)


@pytest.mark.parametrize("key", [BLADE_1, b"/site/by-serial/s1"])
def test_what_changed_since_it_was_shown_is_not_written_over(damaged: Store, key: bytes) -> None:
    change = plan_delete(damaged.engine, BLADE_1, layout=SITE)
    write(damaged, puts={key: b"changed"})
    before = dump(damaged)
    with pytest.raises(CommitConflictError):
        carry_out_change(damaged.engine, change)
    assert dump(damaged) == before


def test_a_record_put_by_hand_takes_no_unique_entry_of_another(store: Store, site: Site) -> None:
    assert site.blades.count() == 3
    with pytest.raises(UniqueViolationError):
        plan_put(store.engine, b"/site/rack/r9/blades/9", b'{"serial":"s1"}', layout=SITE)


def test_any_key_is_written_and_deleted_without_a_layout(store: Store) -> None:
    carry_out_change(store.engine, plan_put(store.engine, b"/what", b"\xff\x00"))
    change = plan_put(store.engine, b"/what", b"2")
    assert change.before is not None
    assert change.notes == ("no layout is named: what else belongs to the key is not known",)
    carry_out_change(store.engine, plan_delete(store.engine, b"/what"))
    assert dump(store) == {}
    with pytest.raises(NotFoundError):
        plan_delete(store.engine, b"/what")


def test_an_entry_keeps_its_lease_unless_another_is_named(store: Store) -> None:
    lease = store.engine.lease(600.0)
    Site(store).members.put("m", Blade("x"), lease=lease.id)
    carry_out_change(store.engine, plan_put(store.engine, b"/site/members/m", b'{"serial":"y"}', layout=SITE))
    assert dump(store)[b"/site/members/m"][1] == dump(store)[b"/site/member-serial/y"][1] == lease.id
    carry_out_change(store.engine, plan_put(store.engine, b"/site/members/m", b'{"serial":"y"}', layout=SITE, lease=0))
    assert dump(store)[b"/site/member-serial/y"] == (b"m", 0)


def test_a_key_of_a_registered_key_space_or_of_keyplan_is_written_only_when_that_is_said(store: Store) -> None:
    registry = KeySpaces(store.engine)
    registry.init()
    space = registry.create("orders", "shop")
    for key in (space.raw_prefix + b"x", b"\x00kp\x00header", b"\x00ki"):
        with pytest.raises(InvalidInputError, match="--past-fence"):
            plan_put(store.engine, key, b"")
    change = plan_put(store.engine, space.raw_prefix + b"x", b"1", past_fence=True)
    assert "key space orders" in change.notes[0]
    carry_out_change(store.engine, change)
    with open_key_space(store.engine, "orders", "shop") as opened:
        assert opened.engine.value(b"x") == b"1"


def test_a_key_that_is_registered_to_somebody_after_it_was_shown_is_not_written(store: Store) -> None:
    put = plan_put(store.engine, b"/own/k", b"by hand")
    carry_out_change(store.engine, plan_put(store.engine, b"/own/old", b"old"))
    delete = plan_delete(store.engine, b"/own/old")
    aside = plan_quarantine(store.engine, b"/own/old")
    KeySpaces(store.engine).create(
        "own", "app", prefix=b"/own/".hex(), adopt_existing_data=True, allow_legacy_prefix=True
    )
    for change in (put, delete, aside):
        with pytest.raises(CommitConflictError):
            carry_out_change(store.engine, change)
    assert store.engine.value(b"/own/k") is None
    assert store.engine.value(b"/own/old") == b"old"


def test_keyplans_own_layout_has_nothing_that_lint_finds() -> None:
    assert lint(Quarantine.spec).failures() == ()


# ---- out of a backup -------------------------------------------------------------------------------------------------------


def test_a_record_a_table_or_a_prefix_is_taken_out_of_a_backup(store: Store, site: Site, tmp_path: Path) -> None:
    assert site.blades.count() == 3
    path = write_backup(store.engine, tmp_path / "all.kpb")
    assert [key for key, _ in extract(path, Selection(key=BLADE_1))] == [BLADE_1]
    assert len(extract(path, Selection(layout=SITE, table="blades"))) == 3
    assert len(extract(path, Selection(prefix=b"/site/rack/r1/"))) == 2
    assert len(extract(path, Selection(prefix=b"/site/", layout=SITE))) == 3
    assert extract(path, Selection(key=b"/nothing")) == []


def test_of_a_backup_of_key_spaces_one_is_named(tmp_path: Path) -> None:
    with filled("memory:", {}) as engine:
        registry = KeySpaces(engine)
        registry.init()
        registry.create("orders", "shop")
        with open_key_space(engine, "orders", "shop") as opened:
            write(opened, puts={b"x": b"1"})
        with new_file(tmp_path / "full.kpb") as file:
            back_up_key_spaces(engine, file)
    assert extract(tmp_path / "full.kpb", Selection(), keyspace="orders") == [(b"x", b"1")]
    for name in (None, "other"):
        with pytest.raises(InvalidInputError, match="it holds: orders"):
            extract(tmp_path / "full.kpb", Selection(), keyspace=name)


def test_what_is_taken_out_is_bounded_by_what_it_takes_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path / "many.kpb", section_file({b"%04d" % number: b"" for number in range(100)}))
    monkeypatch.setattr(sys.modules["keyplan.maintenance.extraction"], "EXTRACT_BYTES_MAX", 100 * 200)
    with pytest.raises(InvalidInputError, match="select less"):
        extract(path, Selection())
    assert len(extract(path, Selection(prefix=b"000"))) == 10
