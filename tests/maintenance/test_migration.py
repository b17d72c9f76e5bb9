"""Migrations: planned, resumed from anywhere, beside writers of both layouts; nothing is lost, nothing is done twice."""

from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

import keyplan
from keyplan.apps.cloudchamber import CloudChamber, CloudChamberIndexed
from keyplan.apps.runm import Object, Runm
from keyplan.engine import Delete, Put
from keyplan.errors import IndexNotReadyError, MigrationRefusedError
from keyplan.layout import Layout, Table, describe, differences, layout_class_of, layout_of_description, lint
from keyplan.maintenance import (
    Conversion,
    Migrations,
    check,
    clean_up_migration,
    migrate,
)
from keyplan.store import Store
from tests.maintenance.evolving import (
    ENLARGED,
    Box,
    Crate,
    Moved,
    Old,
    Reindexed,
    Shelf,
    Stated,
    cleaned,
    fill,
    own,
    plan,
    switched,
)
from tests.maintenance.layouts import dump, write


@pytest.fixture
def full(store: Store) -> Store:
    fill(store)
    return store


# ---- the plan --------------------------------------------------------------------------------------------------------------


def test_a_plan_writes_nothing_and_says_what_is_done_when(full: Store) -> None:
    before = dump(full)
    found = plan(full, Old, Moved)
    assert dump(full) == before
    assert found.obstacles == ()
    assert [(step.phase.name, step.item, step.records) for step in found.steps] == [
        ("FILL", "boxes", 5),
        ("SWITCH", "boxes", None),
        ("CONTRACT", "boxes", None),
        ("CONTRACT", "by_name", None),
    ]
    assert "  boxes: remove the old records at boxes/{room}/{number}, each beside its copy" in [
        line.replace(":text", "").replace(":decimal", "") for line in found.lines()
    ]


def test_a_table_that_is_gone_is_in_the_way_until_it_is_dropped(full: Store) -> None:
    class Fewer(Layout, root="/s/"):
        notes = Table("notes/{note}", key=str, value=str)

    refused = plan(full, Old, Fewer)
    assert [obstacle.split(":")[0] for obstacle in refused.obstacles] == ["E5 breaking boxes"]
    with pytest.raises(MigrationRefusedError):
        migrate(full, refused)
    assert switched(full, Old, Fewer, drops=["boxes"]).is_settled
    cleaned(full, Old, Fewer, drops=["boxes"])
    assert own(full) == {b"/s/notes/n": b"note"}


def test_a_narrower_key_is_in_the_way_only_when_a_record_has_such_a_key(full: Store) -> None:
    class Narrow(Old):
        notes = Table("notes/{note:text(bytes_max=3)}", key=str, value=str)

    assert plan(full, Old, Narrow).obstacles == ()
    Old(full).notes.insert("longer", "x")
    (obstacle,) = plan(full, Old, Narrow).obstacles
    assert "/s/notes/longer" in obstacle


def test_a_record_that_cannot_be_converted_is_in_the_way_and_its_value_is_not_told(full: Store) -> None:
    (obstacle,) = plan(full, Old, Stated).obstacles
    assert "/s/boxes/a/0: the record is not valid" in obstacle
    assert "box0" not in obstacle
    assert plan(full, Old, Stated, conversions={"boxes": ENLARGED}).obstacles == ()


def test_keyplans_own_layout_has_nothing_that_lint_finds() -> None:
    assert lint(Migrations.spec).failures() == ()


# ---- indexes ---------------------------------------------------------------------------------------------------------------


def test_cloudchamber_gets_its_indexes_and_writers_may_go_on(store: Store) -> None:
    from keyplan.apps.cloudchamber import User  # noqa: PLC0415

    chamber = CloudChamber(store)
    chamber.users.insert("Alice", User(name="Alice"))
    steps = plan(store, CloudChamber, CloudChamberIndexed)
    migrate(store, steps)
    with pytest.raises(IndexNotReadyError):
        CloudChamberIndexed(store).users_by_folded_name.one("alice")
    CloudChamberIndexed(store).users.insert("Bob", User(name="Bob"))
    report = migrate(store, steps, is_switched=True)
    assert report.is_settled
    assert CloudChamberIndexed(store).users_by_folded_name.key_of("alice") == "Alice"
    assert list(check(store, CloudChamberIndexed(store))) == []
    # Again: nothing is made unreadable that is built.
    assert migrate(store, plan(store, CloudChamber, CloudChamberIndexed)).counts == {}
    assert CloudChamberIndexed(store).users_by_folded_name.key_of("bob") == "Bob"


def test_an_index_that_is_gone_refuses_its_readers_and_leaves_nothing(full: Store) -> None:
    assert switched(full, Old, Reindexed).is_settled
    assert Old(full).by_name.key_of("box1") == Shelf("a", 1)
    cleaned(full, Old, Reindexed)
    assert [key for key in own(full) if b"by-name" in key] == []
    with pytest.raises(IndexNotReadyError):
        Old(full).by_name.key_of("box1")
    assert list(check(full, Reindexed(full))) == []
    assert Reindexed(full).named.count("box1") == 1


def test_a_layout_may_go_back_and_forth(full: Store) -> None:
    for old, new in [(Old, Reindexed), (Reindexed, Old)] * 2:
        options = {"drops": ["tickets"]} if old is Reindexed else {}
        assert switched(full, old, new, **options).is_settled
        cleaned(full, old, new, **options)
        assert list(check(full, new(full))) == []
    assert Old(full).by_name.key_of("box1") == Shelf("a", 1)


def test_runm_drops_an_index_and_keeps_the_others(store: Store) -> None:
    """Objects by tag go; by name, by project and by property stay, with the bytes that they had."""
    runm = Runm(store)
    partition = UUID(int=7)
    runm.objects.insert(UUID(int=1), Object(partition, "runm.image", UUID(int=1), "rhel", "p", tags=("unicorn",)))
    without_tags = tuple(item for item in Runm.spec.items if item.name != "objects_by_tag")
    fewer = layout_class_of(replace(Runm.spec, items=without_tags))
    before = own(store)
    assert [change.code for change in differences(Runm, fewer)] == ["E13"]
    assert switched(store, Runm, fewer).is_settled
    assert own(store) == before
    cleaned(store, Runm, fewer)
    (gone,) = set(before) - set(own(store))
    assert gone == b"runm/metadata/partitions/%s/tags/unicorn/%s" % (
        partition.hex.encode(),
        UUID(int=1).hex.encode(),
    )
    assert {key: before[key] for key in own(store)} == own(store)
    assert list(check(store, fewer(store))) == []


# ---- records that move -----------------------------------------------------------------------------------------------------


def test_records_move_with_their_entries_and_the_old_ones_stay_until_the_clean_up(full: Store) -> None:
    before = own(full)
    steps = plan(full, Old, Moved)
    assert migrate(full, steps).counts == {"copied": 5}
    assert {key: own(full)[key] for key in before} == before
    assert Old(full).by_name.key_of("box3") == Shelf("a", 3)
    assert Moved(full).by_name.key_of("box3") == Shelf("a", 3)
    report = migrate(full, steps, is_switched=True)
    assert report.is_settled
    (verified,) = report.verified
    assert (verified.expected, verified.ahead, verified.missing) == (verified.found, 0, 0)
    assert verified.found[0] == 5
    cleaned(full, Old, Moved)
    assert own(full) == {
        **{b"/s/crates/a/%d" % number: b'{"name":"box%d","tags":["red"]}' % number for number in range(5)},
        **{b"/s/names/box%d" % number: b"crates/a/%d" % number for number in range(5)},
        **{b"/s/by-tag/red/a/%d" % number: b"" for number in range(5)},
        b"/s/notes/n": b"note",
    }
    assert list(check(full, Moved(full))) == []
    assert plan(full, Old, Moved).is_over
    assert switched(full, Old, Moved).is_settled


def test_another_root_takes_everything_along(full: Store) -> None:
    class Elsewhere(Old, root="/t/"):
        pass

    before = own(full)
    assert switched(full, Old, Elsewhere).is_settled
    cleaned(full, Old, Elsewhere)
    assert own(full) == {b"/t/" + key.removeprefix(b"/s/"): value for key, value in before.items()}


def test_what_old_programs_write_is_carried_over_and_what_new_ones_write_is_kept(full: Store) -> None:
    steps = plan(full, Old, Moved)
    migrate(full, steps)
    old, new = Old(full), Moved(full)
    old.boxes.put(Shelf("a", 0), Box("renamed"))
    old.boxes.delete(Shelf("a", 1))
    old.boxes.insert(Shelf("b", 9), Box("late"))
    new.boxes.put(Shelf("a", 2), Box("ahead"))
    new.boxes.delete(Shelf("a", 3))
    new.boxes.insert(Shelf("c", 1), Box("fresh"))
    report = migrate(full, steps, is_switched=True)
    assert report.is_settled
    assert (report.verified[0].ahead, report.verified[0].vanished) == (2, 1)
    with pytest.raises(MigrationRefusedError, match="--accept gone:boxes"):
        clean_up_migration(full, plan(full, Old, Moved))
    cleaned(full, Old, Moved, accepts=["gone:boxes"])
    assert dict(new.boxes.list()) == {
        Shelf("a", 0): Box("renamed"),
        Shelf("a", 2): Box("ahead"),
        Shelf("a", 4): Box("box4", ["red"]),
        Shelf("b", 9): Box("late"),
        Shelf("c", 1): Box("fresh"),
    }
    assert list(check(full, new)) == []


def test_a_record_that_was_changed_on_both_sides_is_left_to_a_person(full: Store) -> None:
    steps = plan(full, Old, Moved)
    migrate(full, steps)
    Old(full).boxes.put(Shelf("a", 0), Box("old"))
    Moved(full).boxes.put(Shelf("a", 0), Box("new"))
    report = migrate(full, steps, is_switched=True)
    assert not report.is_settled
    assert [str(contest) for contest in report.contested] == [
        "/s/boxes/a/0 and /s/crates/a/0: both the old and the new record were changed"
    ]
    with pytest.raises(MigrationRefusedError):
        clean_up_migration(full, steps)
    Moved(full).boxes.put(Shelf("a", 0), Box("old"))
    assert migrate(full, steps, is_switched=True).is_settled


def test_records_that_exchange_a_unique_name_do_not_wait_for_one_another(full: Store) -> None:
    steps = plan(full, Old, Moved)
    migrate(full, steps)
    with Old(full).transaction() as old:
        old.boxes.delete(Shelf("a", 1))
        old.boxes.put(Shelf("a", 0), Box("box1"))
        old.boxes.insert(Shelf("a", 1), Box("box0"))
    assert migrate(full, steps, is_switched=True).is_settled
    assert Moved(full).by_name.key_of("box0") == Shelf("a", 1)
    assert list(check(full, Moved(full), beside=[Old(full)])) == []


def test_an_old_program_that_writes_after_the_switch_is_not_cleaned_away(full: Store) -> None:
    steps = plan(full, Old, Moved)
    migrate(full, steps, is_switched=True)
    Old(full).boxes.put(Shelf("a", 0), Box("straggler"))
    with pytest.raises(MigrationRefusedError):
        clean_up_migration(full, steps)
    migrate(full, steps, is_switched=True)
    cleaned(full, Old, Moved)
    assert Moved(full).boxes.require(Shelf("a", 0)) == Box("straggler")


def test_unique_entries_under_one_key_are_the_old_layouts_until_the_switch(full: Store) -> None:
    class Sharing(Moved):
        by_name = keyplan.Unique("by-name/{name}", of=Moved.boxes, key=str)

    steps = plan(full, Old, Sharing)
    migrate(full, steps)
    assert Old(full).by_name.key_of("box3") == Shelf("a", 3)
    assert migrate(full, steps, is_switched=True).is_settled
    assert Sharing(full).by_name.key_of("box3") == Shelf("a", 3)
    cleaned(full, Old, Sharing)
    assert list(check(full, Sharing(full))) == []


def test_a_leased_record_is_copied_onto_its_lease(store: Store) -> None:
    class Before(Layout, root="/l/"):
        members = Table("members/{member}", key=str, value=str, lease=True)

    class After(Layout, root="/l/"):
        members = Table("people/{member}", key=str, value=str, lease=True)

    with store.lease(600) as lease:
        Before(store).members.insert("m", "x", lease=lease.id)
        steps = plan(store, Before, After)
        migrate(store, steps)
        assert dump(store)[b"/l/people/m"] == (b"x", lease.id)
        lease.revoke()
        assert migrate(store, steps, is_switched=True).is_settled
        cleaned(store, Before, After)
        assert own(store) == {}


def test_a_counter_is_taken_along_and_never_goes_back(store: Store) -> None:
    class Before(Layout, root="/n/"):
        tickets = keyplan.Counter("tickets", start=10)

    class After(Layout, root="/n/"):
        tickets = keyplan.Counter("numbers", start=10)

    Before(store).tickets.next(5)
    assert switched(store, Before, After).is_settled
    Before(store).tickets.next(1)
    cleaned(store, Before, After)
    assert own(store) == {b"/n/numbers": b"16"}


def test_an_old_program_that_comes_back_after_the_clean_up_is_carried_over_by_the_same_command(full: Store) -> None:
    switched(full, Old, Moved)
    cleaned(full, Old, Moved)
    Moved(full).boxes.put(Shelf("a", 1), Box("changed"))
    Old(full).boxes.insert(Shelf("z", 1), Box("late"))
    Old(full).boxes.insert(Shelf("a", 1), Box("lost?"))
    again = plan(full, Old, Moved)
    assert not again.is_over
    assert again.indexes_to_build == ()
    report = migrate(full, again, is_switched=True)
    assert [contest.old_key for contest in report.contested] == [b"/s/boxes/a/1"]
    Old(full).boxes.delete(Shelf("a", 1))
    assert migrate(full, again, is_switched=True).is_settled
    cleaned(full, Old, Moved)
    assert Moved(full).boxes.require(Shelf("z", 1)) == Box("late")
    assert Moved(full).boxes.require(Shelf("a", 1)) == Box("changed")
    assert plan(full, Old, Moved).is_over
    assert list(check(full, Moved(full))) == []


def test_a_migration_with_nothing_to_clean_up_is_over_when_it_is_settled(full: Store) -> None:
    class More(Old):
        named = keyplan.Index("named/{name}/{room}/{number}", of=Old.boxes, key=str)

    assert switched(full, Old, More).is_settled
    assert plan(full, Old, More).is_over
    assert plan(full, More, Old).obstacles == ()
    assert sum(key.startswith(b"\x00k") for key in dump(full)) == 3  # its state, the layouts of the root, its history


def test_layouts_that_differ_in_nothing_write_nothing(full: Store) -> None:
    before = dump(full)
    assert switched(full, Old, type("Same", (Old,), {"__doc__": "Noted."})).is_settled
    assert dump(full) == before


# ---- descriptions ----------------------------------------------------------------------------------------------------------


def test_the_old_layout_may_be_a_description(full: Store) -> None:
    described = layout_class_of(layout_of_description(describe(Old.spec)))
    assert switched(full, described, Moved).is_settled
    cleaned(full, described, Moved)
    assert Moved(full).by_name.key_of("box2") == Shelf("a", 2)
    assert list(check(full, Moved(full))) == []


def test_a_description_cannot_say_how_records_are_converted_nor_call_a_function(full: Store) -> None:
    described = layout_class_of(layout_of_description(describe(Stated.spec)))
    (obstacle,) = plan(full, Old, described).obstacles
    assert obstacle.startswith("boxes.size: a description cannot convert records")

    class Made(Old):
        folded = keyplan.Unique("folded/{name}", of=Old.boxes, key=str, on=lambda _, box: box.name.lower(), version=1)

    (obstacle,) = plan(full, Old, layout_class_of(layout_of_description(describe(Made.spec)))).obstacles
    assert obstacle.startswith("folded: its entries are made by a function")


# ---- values ----------------------------------------------------------------------------------------------------------------


def test_a_field_with_a_default_needs_no_migration(full: Store) -> None:
    class More(Box, frozen=True):
        size: int = 3

    class Wider(Layout, root="/s/"):
        boxes = Table("boxes/{room}/{number}", key=Shelf, value=More)
        by_name = keyplan.Unique("by-name/{name}", of=boxes, key=str)
        by_tag = keyplan.Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
        notes = Table("notes/{note}", key=str, value=str)

    for old, new, drops in [(Old, Wider, ()), (Wider, Old, ("boxes.size",))]:
        found = plan(full, old, new, drops=drops)
        assert (found.steps, found.obstacles) == ((), ())


def test_a_field_that_is_gone_stops_a_migration_until_it_is_dropped_by_name(full: Store) -> None:
    class Small(msgspec.Struct):
        label: str
        tags: list[str] = []

    class New(Layout, root="/s/"):
        boxes = Table("crates/{room}/{number}", key=Shelf, value=Small)
        notes = Table("notes/{note}", key=str, value=str)

    found = plan(full, Old, New)
    (loss,) = [obstacle for obstacle in found.obstacles if obstacle.startswith("E10")]
    assert "boxes.name" in loss
    assert "renamed to label?" in loss
    assert not any(obstacle.startswith("E10") for obstacle in plan(full, Old, New, drops=("boxes.name",)).obstacles)
    named = Conversion(lambda box: Small(box.name, box.tags), "labels")
    assert plan(full, Old, New, conversions={"boxes": named}).obstacles == ()


def test_records_that_are_arrays_are_carried_over_by_their_fields_names(store: Store) -> None:
    class Size(msgspec.Struct, array_like=True):
        width: int
        height: int = 0

    class Turned(msgspec.Struct, array_like=True):
        height: int
        width: int = 0

    class Before(Layout, root="/a/"):
        sizes = Table("sizes/{name}", key=str, value=Size)

    class After(Layout, root="/a/"):
        sizes = Table("sizes/{name}", key=str, value=Turned)

    Before(store).sizes.insert("door", Size(width=80, height=200))
    switched(store, Before, After)
    assert After(store).sizes.require("door") == Turned(width=80, height=200)


def test_values_are_converted_once_and_only_after_the_switch(full: Store) -> None:
    steps = plan(full, Old, Stated, conversions={"boxes": ENLARGED})
    before = own(full)
    migrate(full, steps)
    assert own(full) == before
    for _ in range(2):
        steps = plan(full, Old, Stated, conversions={"boxes": ENLARGED})
        assert steps.obstacles == ()
        assert migrate(full, steps, is_switched=True).is_settled
        assert Stated(full).boxes.require(Shelf("a", 0)) == Crate("box0", 4, ["red", "counted"])
    assert Stated(full).by_tag.count("counted") == 5
    cleaned(full, Old, Stated, conversions={"boxes": ENLARGED})
    assert switched(full, Old, Stated, conversions={"boxes": ENLARGED}).is_settled
    assert Stated(full).boxes.require(Shelf("a", 0)) == Crate("box0", 4, ["red", "counted"])
    assert list(check(full, Stated(full))) == []


def test_keys_may_get_another_type_while_values_are_converted(store: Store) -> None:
    class Numbered(Layout, root="/k/"):
        boxes = Table("boxes/{box}", key=int, value=Box)

    class Named(Layout, root="/k/"):
        boxes = Table("boxes/{box}", key=str, value=Crate)

    Numbered(store).boxes.insert(7, Box("seven"))
    assert switched(store, Numbered, Named, conversions={"boxes": ENLARGED}).is_settled
    assert Named(store).boxes.require("7") == Crate("seven", 5, ["counted"])
    assert plan(store, Numbered, Named, conversions={"boxes": ENLARGED}).is_over


def test_another_form_needs_no_function(full: Store) -> None:
    class Packed(Layout, root="/s/"):
        boxes = Table("packed/{room}/{number}", key=Shelf, value=Box, form="msgpack")
        notes = Table("notes/{note}", key=str, value=str)

    assert switched(full, Old, Packed).is_settled
    cleaned(full, Old, Packed)
    assert Packed(full).boxes.require(Shelf("a", 2)) == Box("box2", ["red"])
    assert own(full)[b"/s/packed/a/2"][:1] == b"\x82"


def test_another_version_of_a_function_is_another_migration(full: Store) -> None:
    migrate(full, plan(full, Old, Stated, conversions={"boxes": ENLARGED}), is_switched=True)
    later = Conversion(ENLARGED.function, ENLARGED.name, 2)
    assert any(
        "with other functions" in obstacle
        for obstacle in plan(full, Old, Stated, conversions={"boxes": later}).obstacles
    )


def test_a_function_that_fails_is_named_without_the_record(full: Store) -> None:
    failing = Conversion(lambda box: {}[box.name], "tests:failing")
    (obstacle,) = plan(full, Old, Stated, conversions={"boxes": failing}).obstacles
    assert "the function raised KeyError" in obstacle
    assert "box0" not in obstacle


def test_damage_is_left_where_it_is_and_told(full: Store) -> None:
    steps = plan(full, Old, Moved)
    write(full, puts={b"/s/boxes/a/0": b"{"})
    report = migrate(full, steps, is_switched=True)
    assert not report.is_settled
    assert [contest.old_key for contest in report.contested] == [b"/s/boxes/a/0"]
    assert len(plan(full, Old, Moved).obstacles) == 1


def test_a_record_at_a_new_key_that_is_somebody_elses_is_not_written_over(full: Store) -> None:
    write(full, Put(b"/s/crates/a/0", b'{"name":"mine"}'))
    report = migrate(full, plan(full, Old, Moved), is_switched=True)
    assert [str(contest) for contest in report.contested] == [
        "/s/boxes/a/0 and /s/crates/a/0: another record stands at its new key"
    ]
    write(full, Delete(b"/s/crates/a/0"))
    assert switched(full, Old, Moved).is_settled
