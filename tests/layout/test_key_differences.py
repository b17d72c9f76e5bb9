"""What became of keys: each relation of two templates with the key that shows it, and keys with other fields."""

from typing import Any, NamedTuple
from uuid import UUID

import pytest

from keyplan import Layout, Parameter, Table
from keyplan.layout import Impact, differences
from tests.layout.differing import Box, Old, Shelf, Shifted, Turned, found, keyed, one, texts


def test_records_whose_template_is_another_one_move_and_the_new_key_is_shown() -> None:
    change = one(keyed("boxes/{name}"), keyed("crates/{name}"), "E6")
    assert change.impact is Impact.REWRITE
    assert (change.witness, change.second) == (b"/s/boxes/a", b"/s/crates/a")


def test_a_wider_key_is_for_readers_first_and_shows_a_key_that_is_new() -> None:
    change = one(keyed("b/{x:text(dots=false)}"), keyed("b/{x:text}"), "E6")
    assert (change.impact, change.witness) == (Impact.READERS_FIRST, b"/s/b/.")


def test_a_narrower_key_is_a_loss_and_shows_a_key_that_goes() -> None:
    change = one(keyed("b/{x:text}"), keyed("b/{x:text(dots=false)}"), "E6")
    assert (change.impact, change.witness) == (Impact.BREAKING, b"/s/b/.")
    change = one(keyed("b/{x:decimal(most=1000)}", int), keyed("b/{x:decimal(most=100)}", int), "E6")
    assert (change.impact, change.witness) == (Impact.BREAKING, b"/s/b/101")


def test_a_key_that_is_read_as_another_record_is_shown() -> None:
    change = one(
        keyed("b/{room}/{number:text}", texts("room", "number")),
        keyed("b/{number:text}/{room}", texts("number", "room")),
        "E6",
    )
    assert (change.impact, change.witness) == (Impact.BREAKING, b"/s/b/a/b")  # a/a means the same


def test_bytes_that_mean_another_value_are_found() -> None:
    change = one(keyed("b/{x:text}"), keyed("b/{x:percent}"), "E6")
    assert (change.impact, change.witness) == (Impact.BREAKING, b"/s/b/%00")


@pytest.mark.parametrize(("old", "new"), [("path", "level_path"), ("level_path", "path")])
def test_a_path_that_gets_or_loses_its_level_is_read_as_another_one(old: str, new: str) -> None:
    change = one(keyed(f"b/{{x:{old}}}"), keyed(f"b/{{x:{new}}}"), "E6")
    assert (change.impact, change.witness) == (Impact.BREAKING, b"/s/b/\x01a/a")


def test_a_number_that_becomes_text_is_the_same_key() -> None:
    change = one(keyed("b/{x:decimal}", int), keyed("b/{x:text}"), "E6")
    assert (change.impact, change.witness) == (Impact.READERS_FIRST, b"/s/b/a")
    assert found(keyed("b/{x:hex_uuid}", UUID), keyed("b/{x:text(allow='0-9a-f')}"))[0][:2] == ("E6", "readers-first")


def test_binary_fields_of_another_width_move_and_large_ones_have_no_key() -> None:
    def layout(codec: str) -> type[Layout]:
        template = b"n{number:%s}" % codec.encode()
        return type("Numbers", (Layout,), {"numbers": Table(template, key=int, value=bytes)}, root=b"\x01")

    change = one(layout("u32"), layout("u64"), "E6")
    assert (change.impact, change.witness, change.second) == (
        Impact.REWRITE,
        b"\x01naaaa",
        b"\x01n\x00\x00\x00\x00aaaa",
    )
    assert one(layout("u64"), layout("u32"), "E6").impact is Impact.BREAKING
    assert one(layout("u32"), layout("i32"), "E6").impact is Impact.BREAKING


def test_fields_in_another_order_move_when_no_key_is_both() -> None:
    change = one(keyed("b/{room}/{number}", Shelf), keyed("c/{number}/{room}", Turned), "E6")
    assert (change.impact, change.witness, change.second) == (Impact.REWRITE, b"/s/b/a/0", b"/s/c/0/a")


class Placed(NamedTuple):
    hall: str
    number: int


def test_keys_that_move_say_which_field_has_whose_values() -> None:
    change = one(keyed("b/{room}/{number}", Shelf), keyed("c/{hall}/{number}", Placed), "E6")
    assert change.message == "its keys are c/{hall}/{number}, no longer b/{room}/{number}; hall has the values of room"


def test_a_number_that_loses_its_width_moves_where_the_digits_differ() -> None:
    change = one(keyed("b/{x:decimal(width=2)}", int), keyed("b/{x:decimal(most=99)}", int), "E6")
    assert (change.impact, change.witness, change.second) == (Impact.REWRITE, b"/s/b/00", b"/s/b/0")


@pytest.mark.parametrize(
    ("old", "new", "gone", "came", "witness", "second", "words"),
    [
        (
            keyed("b/{name}"),
            keyed("b/{name}/{size:decimal}", NamedTuple("Sized", [("name", str), ("size", int)])),
            (),
            ("size",),
            b"/s/b/a",
            b"/s/b/a/0",
            ["size is new", "says what size is for each record (records have a field size)"],
        ),
        (
            keyed("b/{room}/{number}", Shelf),
            keyed("b/{room}"),
            ("number",),
            (),
            b"/s/b/a/0",
            b"/s/b/a",
            [
                "number is gone; /s/b/a/0 and /s/b/a/10 would be one",
                "says which record stays where several have one key",
            ],
        ),
        (
            keyed("b/{place}"),
            keyed("b/{room}/{number}", Shelf),
            ("place",),
            ("room", "number"),
            b"/s/b/a",
            b"/s/b/a/0",
            ["place is split into room and number", "says how room and number are made of place"],
        ),
        (
            keyed("b/{room}/{number}", Shelf),
            keyed("b/{place}"),
            ("room", "number"),
            ("place",),
            b"/s/b/a/0",
            b"/s/b/a",
            ["room and number are joined to place", "says how place is made of room and number"],
        ),
        (
            keyed("b/{room}/{number}", Shelf),
            keyed("c/{number}/{slot}", Shifted),
            ("room",),
            ("slot",),
            b"/s/b/a/0",
            b"/s/c/0/a",
            ["room became slot"],
        ),
    ],
)
def test_a_key_with_other_fields_is_one_change_of_the_table(
    old: Any,
    new: Any,
    gone: tuple[str, ...],
    came: tuple[str, ...],
    witness: bytes,
    second: bytes,
    words: list[str],
) -> None:
    (change,) = differences(old, new)
    assert (change.code, change.impact, change.item) == ("E23", Impact.BREAKING, "boxes")
    assert (change.key_fields_gone, change.key_fields_new) == (gone, came)
    assert (change.witness, change.second) == (witness, second)
    assert all(word in change.message + change.advice for word in words)


def test_a_key_of_bytes_that_gets_a_field_keeps_the_others() -> None:
    class Numbered(NamedTuple):
        group: int
        number: int

    old = type("Groups", (Layout,), {"boxes": Table(b"g{group:u32}", key=int, value=Box)}, root=b"\x01")
    new = type("Groups", (Layout,), {"boxes": Table(b"g{group:u64}{number:u8}", key=Numbered, value=Box)}, root=b"\x01")
    change = one(old, new, "E23")
    assert (change.witness, change.second) == (b"\x01gaaaa", b"\x01g\0\0\0\0aaaaa")


def test_another_root_is_one_change_and_a_parameter_with_the_same_default_is_none() -> None:
    class Moved(Old, root="/t/"):
        pass

    assert found(Old, Moved) == [("E2", "rewrite", "layout")]

    class Rooted(Old, root="/{site:text(empty=true)}/"):
        site = Parameter("s")

    assert found(Old, Rooted) == [("E2", "compatible", "layout")]


def test_a_new_table_at_keys_of_an_old_one_is_shown() -> None:
    class New(Layout, root="/s/"):
        crates = Table("{kind}/{name}", key=texts("kind", "name"), value=Box)

    change = one(keyed("boxes/{name}"), New, "E19", drops=["boxes"])
    assert (change.impact, change.item, change.witness) == (Impact.BREAKING, "crates", b"/s/boxes/a")
