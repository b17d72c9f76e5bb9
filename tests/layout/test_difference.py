"""Changes of a layout: each code with a layout that has it, the class it gets, and the key that shows it."""

import re
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from keyplan import Counter, Index, Layout, Table, Unique
from keyplan.apps.cloudchamber import CloudChamber, CloudChamberIndexed
from keyplan.apps.runm import Runm
from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.layout import CHANGE_CODES, Impact, describe, differences, layout_spec_of, pair_items
from tests.layout.differing import Box, Old, Rack, Shelf, found, keyed, one, valued


@pytest.mark.parametrize("layout", [CloudChamber, CloudChamberIndexed, Runm, Old])
def test_a_layout_does_not_differ_from_its_description(layout: type[Layout]) -> None:
    assert differences(layout, describe(layout.spec)) == ()
    assert differences(describe(layout.spec), layout.spec) == ()


def test_another_name_or_version_is_told_and_nothing_to_do() -> None:
    change = one(Old, type("New", (Old,), {}), "E1")
    assert (change.impact, change.message) == (Impact.COMPATIBLE, "Old version 1 is New version 1")


def test_cloudchambers_indexes_are_to_be_built() -> None:
    assert found(CloudChamber, CloudChamberIndexed) == [
        ("E4", "compatible", "indexes_begun"),
        ("E12", "build", "blades_by_arch"),
        ("E12", "build", "blades_by_condition"),
        ("E12", "build", "users_by_right"),
        ("E12", "build", "users_by_folded_name"),
    ]


def test_a_table_that_goes_is_a_loss_until_somebody_says_so() -> None:
    class New(Layout, root="/s/"):
        tickets = Counter("tickets", start=10)

    assert found(Old, New) == [("E5", "breaking", "boxes"), ("E13", "readers-first", "by_name")]
    assert one(Old, New, "E5").witness == b"/s/boxes/a/0"
    assert found(Old, New, drops=["boxes"]) == [("E5", "readers-first", "boxes"), ("E13", "readers-first", "by_name")]


# ---- which table is which ------------------------------------------------------------------------------------------------


def test_a_table_with_the_same_template_is_the_same_under_another_name() -> None:
    class New(Layout, root="/s/"):
        crates = Table("boxes/{hall}/{number}", key=Rack, value=Box)
        by_name = Unique("by-name/{name}", of=crates, key=str)
        tickets = Counter("tickets", start=10)

    assert found(Old, New) == [("E3", "compatible", "crates"), ("E7", "compatible", "crates")]


def test_a_table_with_another_name_and_template_is_never_guessed() -> None:
    new = type("New", (Layout,), {"crates": Table("crates/{name}", key=str, value=Box)}, root="/s/")
    old = keyed("boxes/{name}")
    assert found(old, new) == [("E4", "compatible", "crates"), ("E5", "breaking", "boxes")]
    assert found(old, new, renames={"boxes": "crates"}) == [("E3", "compatible", "crates"), ("E6", "rewrite", "crates")]


def test_a_table_that_may_be_another_one_under_a_new_name_is_asked_for() -> None:
    class Likely(msgspec.Struct):
        name: str
        size: int = 0
        color: str = ""

    class Other(msgspec.Struct):
        price: int

    class New(Layout, root="/s/"):
        crates = Table("crates/{crate}", key=str, value=Likely)
        prices = Table("prices/{price}", key=str, value=Other)
        numbers = Counter("numbers")

    change = one(Old, New, "E5")
    assert (change.impact, change.renamed_to) == (Impact.BREAKING, ("crates",))
    assert change.advice == (
        "renamed to crates? Then --rename boxes=crates; else say that it shall be removed (--drop boxes)"
    )
    counter = next(change for change in differences(Old, New) if change.item == "tickets")
    assert counter.renamed_to == ("numbers",)
    assert one(Old, New, "E23", renames={"boxes": "crates"}).item == "crates"


@pytest.mark.parametrize(
    ("old", "new", "likely"),
    [
        (("{name}", str, str), ("{label}", str, str), True),
        (("{name}", str, str), ("{name:decimal}", int, str), False),
        (("{name}", str, str), ("{name}", str, bytes), False),
        (("{name}", str, Box), ("{room}/{number}", Shelf, Box), True),
        (("{name}", str, Box), ("{name}", str, str), False),
        (("{name}", str, dict[str, int]), ("{name}", str, dict[str, int]), True),
    ],
)
def test_tables_are_like_by_their_records_or_by_values_and_keys(old: Any, new: Any, *, likely: bool) -> None:
    first, second = (
        type("Made", (Layout,), {name: Table(f"{name}/{template}", key=key, value=value)}, root="/s/")
        for name, (template, key, value) in (("first", old), ("second", new))
    )
    assert one(first, second, "E5").renamed_to == (("second",) if likely else ())


def test_two_tables_that_changed_templates_are_two_renamed_tables() -> None:
    class First(Layout, root="/s/"):
        a = Table("a/{x}", key=str, value=str)
        b = Table("b/{x}", key=str, value=str)

    class Second(Layout, root="/s/"):
        a = Table("b/{x}", key=str, value=str)
        b = Table("a/{x}", key=str, value=str)

    assert dict(pair_items(First.spec, Second.spec).names) == {"a": "b", "b": "a"}
    stated = found(First, Second, renames={"a": "a", "b": "b"})
    assert ("E19", "breaking", "a") in stated  # a moved record of a would lie where one of b does


@pytest.mark.parametrize(
    ("renames", "error"),
    [
        ({"boxes": "nothing"}, UnknownNameError),
        ({"none": "boxes"}, UnknownNameError),
        ({"boxes": "by_name"}, InvalidInputError),
    ],
)
def test_a_renaming_names_items_of_one_kind_that_are_there(renames: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        differences(Old, Old, renames=renames)


# ---- values ----------------------------------------------------------------------------------------------------------------


class Plain(msgspec.Struct):
    name: str


class WithDefault(msgspec.Struct):
    name: str
    size: int = 0


class WithMore(msgspec.Struct):
    name: str
    size: int


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class Wider(msgspec.Struct):
    name: str | None


class Holding(msgspec.Struct):
    inner: list[Plain]


class HoldingMore(msgspec.Struct):
    inner: list[WithMore]


Small = Annotated[int, msgspec.Meta(ge=-5, le=5)]


class Node(msgspec.Struct):
    left: "Node | None" = None
    right: "Node | None" = None


class OtherNode(msgspec.Struct):
    left: "OtherNode | None" = None
    right: "OtherNode | None" = None
    label: str = ""


@pytest.mark.parametrize(
    ("old", "new", "code", "impact", "field"),
    [
        (Plain, WithDefault, "E9", "writers-first", "size"),
        (Plain, WithMore, "E9", "rewrite", "size"),
        (Closed, WithDefault, "E9", "readers-first", "size"),
        (WithDefault, Plain, "E10", "breaking", "size"),
        (WithMore, Plain, "E10", "breaking", "size"),
        (WithMore, Closed, "E10", "breaking", "size"),
        (Plain, Wider, "E11", "readers-first", "name"),
        (Wider, Plain, "E11", "rewrite", "name"),
        (WithDefault, WithMore, "E11", "rewrite", "size"),
        (WithMore, WithDefault, "E11", "compatible", "size"),
        (Holding, HoldingMore, "E9", "rewrite", "inner.size"),
        (HoldingMore, Holding, "E10", "breaking", "inner.size"),
        (dict[str, int], dict[str, float], "E11", "breaking", ""),
        (dict[str, Small], dict[str, float], "E11", "readers-first", ""),
    ],
)
def test_a_field_that_changed_has_the_class_of_what_reads_what(
    old: Any, new: Any, code: str, impact: str, field: str
) -> None:
    subject = f"boxes.{field}" if field else "boxes"
    assert found(valued(old), valued(new)) == [(code, impact, subject)]


def test_types_that_hold_themselves_are_compared() -> None:
    assert found(valued(Node), valued(Node)) == []
    assert found(valued(Node), valued(OtherNode)) == [("E9", "writers-first", "boxes.label")]


def test_the_name_of_a_record_class_is_no_change() -> None:
    renamed = type("Box2", (msgspec.Struct,), {"__annotations__": {"name": str, "size": int}, "size": 0})
    assert found(valued(Box), valued(renamed)) == []


def test_another_form_is_a_rewrite() -> None:
    assert found(valued(Box), valued(Box, "msgpack")) == [("E8", "rewrite", "boxes")]
    assert found(valued(UUID, "raw_uuid"), valued(UUID, "hex_uuid")) == [("E11", "rewrite", "boxes")]


# ---- indexes, counters, the rest -------------------------------------------------------------------------------------------


def _indexed(template: str, **options: Any) -> type[Layout]:
    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{box}", key=str, value=Box)
        by_name = Unique(template, of=boxes, key=str, **options)

    return Made


def test_other_entries_are_built_anew() -> None:
    first = _indexed("by-name/{name}")
    assert found(first, _indexed("names/{name}")) == [("E14", "build", "by_name")]
    assert found(first, _indexed("by-name/{name}", when={"size": 1})) == [("E14", "build", "by_name")]
    made = [_indexed("n/{name}", on=lambda _key, box: box.name.lower(), version=number) for number in (1, 2)]
    assert found(*made) == [("E14", "build", "by_name")]
    assert found(made[0], describe(made[0].spec)) == []


def test_an_index_that_becomes_unique_says_what_the_data_may_do_to_it() -> None:
    class Plain(Layout, root="/s/"):
        boxes = Table("boxes/{box}", key=str, value=Box)
        by_name = Index("by-name/{name}/{box}", of=boxes, key=str)

    change = one(Plain, _indexed("by-name/{name}"), "E14")
    assert (change.impact, change.message) == (Impact.BUILD, "it is unique")
    assert "where two records claim one entry, the build names both" in change.advice
    back = one(_indexed("by-name/{name}"), Plain, "E14")
    assert (back.impact, back.message) == (Impact.BUILD, "it is not unique any more")
    assert "claim" not in back.advice


def _with_default(default: Any, **options: Any) -> type[Layout]:
    item: Any = msgspec.defstruct("Item", [("sku", str), ("color", str, default)])
    kind = msgspec.defstruct("Sized", [("name", str), ("size", int, default), ("items", list[item], [])])

    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{box}", key=str, value=kind)
        by_size = Index("by-size/{size:decimal}/{box}", of=boxes, key=int, **options)

    return Made


def test_another_default_is_told_and_an_index_over_it_is_built_anew() -> None:
    assert found(_with_default(0), _with_default(0)) == []
    changed = found(_with_default(0), _with_default(1))
    assert changed == [
        ("E14", "build", "by_size"),
        ("E20", "compatible", "boxes.size"),
        ("E20", "compatible", "boxes.items.color"),
    ]
    assert found(describe(_with_default(0).spec), _with_default(1)) == changed
    told = [str(change) for change in differences(_with_default(0), _with_default(1))]
    assert "records stored without size have another default there, and so other entries" in told[0]
    assert "records without it were read with 0 there, and are with 1" in told[1]


def test_another_default_in_a_condition_or_an_item_makes_other_entries() -> None:
    def by_color(default: str) -> type[Layout]:
        item: Any = msgspec.defstruct("Item", [("sku", str), ("color", str, default)])
        kind = msgspec.defstruct("Colored", [("items", list[item], [])])

        class Made(Layout, root="/s/"):
            boxes = Table("boxes/{box}", key=str, value=kind)
            by_color = Index("by-color/{color}/{box}", of=boxes, key=str, each={"color": "items[].color"})

        return Made

    def when_open(default: str) -> type[Layout]:
        kind = msgspec.defstruct("Stated", [("name", str), ("state", str, default)])

        class Made(Layout, root="/s/"):
            boxes = Table("boxes/{box}", key=str, value=kind)
            by_name = Index("by-name/{name}/{box}", of=boxes, key=str, when={"state": "open"})

        return Made

    assert ("E14", "build", "by_color") in found(by_color("red"), by_color("blue"))
    assert ("E14", "build", "by_name") in found(when_open("open"), when_open("shut"))


def test_unique_entries_that_name_a_moved_record_otherwise_are_told() -> None:
    class New(Layout, root="/s/"):
        boxes = Table("crates/{room}/{number}", key=Shelf, value=Box)
        by_name = Unique("by-name/{name}", of=boxes, key=str)
        tickets = Counter("tickets", start=10)

    assert found(Old, New) == [("E6", "rewrite", "boxes"), ("E14", "rewrite", "by_name")]


def test_counters_leases_places_and_embedded_keys() -> None:
    class New(Old):
        boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box, lease=True, place="room", holds_keys="name")
        by_name = Unique("by-name/{name}", of=boxes, key=str)
        tickets = Counter("numbers", start=20)

    assert found(Old, New) == [
        ("E15", "writers-first", "boxes"),
        ("E16", "rewrite", "tickets"),
        ("E16", "compatible", "tickets"),
        ("E17", "breaking", "boxes"),
        ("E18", "compatible", "boxes"),
    ]


def test_binary_and_text_layouts_are_not_one() -> None:
    binary = type("Binary", (Layout,), {"boxes": Table(b"b{name:tail}", key=bytes, value=Box)}, root=b"/s/")
    assert ("E2", "breaking", "layout") in found(keyed("boxes/{name}"), binary)


def test_the_reference_has_a_row_for_each_code_and_each_class(repository: Path) -> None:
    text = (repository / "docs" / "reference" / "differences.md").read_text()
    assert re.findall(r"^\| `(E\d+)` \|", text, flags=re.MULTILINE) == list(CHANGE_CODES)
    assert re.findall(r"^\| `([a-z-]+)` \|", text, flags=re.MULTILINE) == [impact.value for impact in Impact]


def test_impacts_have_an_order_and_codes_a_sentence() -> None:
    assert [impact.rank for impact in Impact] == [0, 1, 2, 3, 4, 5]
    assert list(CHANGE_CODES) == [f"E{number}" for number in range(1, 24)]
    assert layout_spec_of(Old) is Old.spec


def test_a_change_is_one_line_with_its_keys() -> None:
    assert str(one(keyed("boxes/{name}"), keyed("crates/{name}"), "E6")) == (
        "E6 rewrite boxes: its keys are crates/{name}, no longer boxes/{name} [/s/boxes/a, /s/crates/a]; `keyplan migrate` "
        "copies the records, keeps the copies up to date until programs are switched, and cleans up"
    )
