"""A unique index on records that violate it: the plan says so, by example, and a function of it says what becomes of them."""

from typing import Any

import pytest

from keyplan.errors import MigrationRefusedError
from keyplan.layout import Layout, Table, Unique
from keyplan.maintenance import Resolution, check, migrate
from keyplan.store import Store
from tests.maintenance.evolving import Box, Shelf, plan, switched


class Plain(Layout, root="/s/"):
    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)


class Named(Layout, root="/s/"):
    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    by_name = Unique("by-name/{name}", of=boxes, key=str)


def renamed(key: Shelf, box: Box) -> Box:
    return Box(f"{box.name}-{key.room}{key.number}", box.tags)


@pytest.fixture
def dirty(store: Store) -> Store:
    boxes = Plain(store).boxes
    for number, name in enumerate(["a", "b", "a", "c", "a", "b"]):
        boxes.insert(Shelf("r", number), Box(name))
    return store


def given(function: Any) -> dict[str, Any]:
    return {"resolutions": {"by_name": Resolution(function, "tests:function")}}


def test_records_that_violate_a_new_unique_index_are_told_by_example(dirty: Store) -> None:
    (obstacle,) = plan(dirty, Plain, Named).obstacles
    assert "/s/boxes/r/0 and /s/boxes/r/2 both claim the entry /s/by-name/a of by_name" in obstacle
    assert "/s/boxes/r/1 and /s/boxes/r/5" in obstacle
    with pytest.raises(MigrationRefusedError):
        migrate(dirty, plan(dirty, Plain, Named))


def test_they_are_told_in_several_passes_as_well(dirty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.maintenance.migration.collisions._KEYS_COMPARED", 2)
    (obstacle,) = plan(dirty, Plain, Named).obstacles
    for number in (2, 4, 5):
        assert f"and /s/boxes/r/{number} both claim" in obstacle


def test_a_function_changes_those_that_come_later(dirty: Store) -> None:
    found = plan(dirty, Plain, Named, **given(renamed))
    assert found.obstacles == ()
    assert [step.records for step in found.steps if "change or remove" in step.what] == [3]
    report = switched(dirty, Plain, Named, **given(renamed))
    assert (report.is_settled, report.resolved) == (True, 3)
    new = Named(dirty)
    names = {key.number: box.name for key, box in new.boxes.list()}
    assert names == {0: "a", 1: "b", 2: "a-r2", 3: "c", 4: "a-r4", 5: "b-r5"}
    assert new.by_name.key_of("a-r4") == Shelf("r", 4)
    assert list(check(dirty, new)) == []
    assert switched(dirty, Plain, Named, **given(renamed)).is_settled
    assert {key.number: box.name for key, box in new.boxes.list()} == names


def test_a_function_removes_those_that_come_later(dirty: Store) -> None:
    assert switched(dirty, Plain, Named, **given(lambda *_: None)).resolved == 3
    assert [key.number for key, _ in Named(dirty).boxes.list()] == [0, 1, 3]
    assert list(check(dirty, Named(dirty))) == []


@pytest.mark.parametrize("function", [lambda _, box: box, lambda *_: 1 / 0, lambda *_: "no box"])
def test_what_a_function_does_not_resolve_is_left_and_reported(dirty: Store, function: Any) -> None:
    report = switched(dirty, Plain, Named, **given(function))
    assert not report.is_settled
    assert len(report.entries_contested) == 2 or len(report.entries_contested) == 3
    assert [box.name for _, box in Plain(dirty).boxes.list()] == ["a", "b", "a", "c", "a", "b"]
