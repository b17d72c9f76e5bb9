"""What became of a record's fields: told at any depth, each loss by name, and always in the end."""

import time
from collections import Counter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pytest

from keyplan.layout import Impact, Layout, LayoutChange, Table, describe, differences
from keyplan.layout.difference.readability import Readability, Verdict
from keyplan.layout.schema_nodes import SchemaGraph, SchemaNode


class Line(msgspec.Struct):
    sku: str
    amount: int = 1


class ShortLine(msgspec.Struct):
    sku: str


class Circle(msgspec.Struct, tag=True):
    radius: int = 0


class Square(msgspec.Struct, tag=True):
    side: int = 0


class BareCircle(msgspec.Struct, tag="Circle"):
    pass


class Point(NamedTuple):
    x: int
    y: int = 0


class Turned(NamedTuple):
    y: int
    x: int = 0


class Pair(msgspec.Struct, array_like=True):
    width: int
    height: int = 0


class PairTurned(msgspec.Struct, array_like=True):
    height: int
    width: int = 0


class Narrow(msgspec.Struct, array_like=True):
    width: int


def holding(kind: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct("Holding", [("inner", kind)])


def valued(kind: Any, **options: Any) -> type[Layout]:
    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{name}", key=str, value=kind, **options)

    return Made


def changes(old: Any, new: Any, **options: Any) -> list[LayoutChange]:
    return list(differences(valued(old), valued(new), **options))


def losses(old: Any, new: Any, **options: Any) -> list[str]:
    return [change.subject for change in changes(old, new, **options) if change.loses_values]


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (Line, ShortLine, "amount"),
        (holding(Line), holding(ShortLine), "inner.amount"),
        (holding(Line | None), holding(ShortLine | None), "inner.amount"),
        (holding(list[Line]), holding(list[ShortLine]), "inner.amount"),
        (holding(list[Line] | None), holding(list[ShortLine]), "inner.amount"),
        (holding(dict[str, Line]), holding(dict[str, ShortLine]), "inner.amount"),
        (holding(dict[str, list[Line | None]]), holding(dict[str, list[ShortLine | None]]), "inner.amount"),
        (holding(tuple[int, Line]), holding(tuple[int, ShortLine]), "inner.1.amount"),
        (holding(Circle | Square), holding(BareCircle | Square), "inner.Circle.radius"),
        (holding(Circle | Square | None), holding(BareCircle | Square | None), "inner.Circle.radius"),
        (list[Line], list[ShortLine], "amount"),
        (Pair, Narrow, "height"),
        (dict[str, int], ShortLine, ""),
    ],
)
def test_a_dropped_field_is_a_loss_at_any_depth(old: Any, new: Any, lost: str) -> None:
    subject = f"boxes.{lost}" if lost else "boxes"
    (change,) = [change for change in changes(old, new) if change.loses_values]
    assert (change.subject, change.impact) == (subject, Impact.BREAKING)
    assert f"--drop boxes.{lost}" in change.advice
    assert losses(describe(valued(old).spec) and old, new, drops=[f"boxes.{lost}"]) == []


@pytest.mark.parametrize("kind", [Line, holding(list[Line]), holding(Circle | Square), Pair, Point])
def test_what_did_not_change_is_no_loss(kind: Any) -> None:
    assert changes(kind, kind) == []
    assert list(differences(describe(valued(kind).spec), valued(kind))) == []


def test_another_form_hides_no_loss() -> None:
    found = differences(valued(Line), valued(ShortLine, form="msgpack"))
    assert [(change.code, change.loses_values) for change in found] == [("E8", False), ("E10", True)]


def test_a_loss_that_was_consented_to_by_name_is_none() -> None:
    (change,) = changes(Line, ShortLine, drops=["boxes.amount"])
    assert (change.code, change.impact, change.loses_values) == ("E10", Impact.READERS_FIRST, False)
    assert losses(Line, ShortLine, drops=["boxes", "amount", "other.amount"]) == ["boxes.amount"]


@pytest.mark.parametrize("kind", [dict[Literal["a", "b", "c"], int], set[Literal["a", "b", "c"]]])
def test_a_bound_of_what_cannot_be_longer_is_no_change(kind: Any) -> None:
    for most, impacts in ((3, []), (2, [Impact.REWRITE])):
        bounded = Annotated[kind, msgspec.Meta(max_length=most)]
        assert [change.impact for change in changes(kind, bounded) if change.impact is not Impact.COMPATIBLE] == impacts


def test_a_likely_rename_is_asked_for() -> None:
    old = msgspec.defstruct("Order", [("name", str), ("status", str, "new")])
    new = msgspec.defstruct("Order", [("name", str), ("state", str, "new"), ("count", int, 0)])
    (change,) = [change for change in changes(old, new) if change.loses_values]
    assert change.renamed_to == ("state",)
    assert "renamed to state?" in change.advice


def test_the_field_that_tells_tagged_records_apart_is_no_loss() -> None:
    class Untagged(msgspec.Struct):
        radius: int = 0

    assert losses(Circle, Untagged) == []


def test_a_type_that_is_used_in_two_places_is_told_in_both() -> None:
    old, new = (msgspec.defstruct("Order", [("first", kind), ("second", kind)]) for kind in (Line, ShortLine))
    assert losses(old, new) == ["boxes.first.amount", "boxes.second.amount"]


# ---- records that are stored as arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(Pair, PairTurned), (Point, Turned), (holding(Pair), holding(PairTurned))])
def test_fields_of_one_type_that_change_places_in_an_array_are_a_rewrite(old: Any, new: Any) -> None:
    found = [change for change in changes(old, new) if change.code == "E11" and "place" in change.message]
    assert [change.impact for change in found] == [Impact.REWRITE, Impact.REWRITE]
    assert {change.field.rpartition(".")[2] for change in found} in ({"width", "height"}, {"x", "y"})


# ---- types that hold themselves ----------------------------------------------------------------------------------------------


class Leaf(msgspec.Struct, tag=True):
    size: int = 0


class Branch(msgspec.Struct, tag=True):
    left: "Leaf | Branch | Knot"
    right: "Leaf | Branch | Knot"


class Knot(msgspec.Struct, tag=True):
    parts: "list[Leaf | Branch | Knot]"
    by_name: "dict[str, Leaf | Branch | Knot]"


class NewLeaf(msgspec.Struct, tag="Leaf"):
    pass


class NewBranch(msgspec.Struct, tag="Branch"):
    left: "NewLeaf | NewBranch | NewKnot"
    right: "NewLeaf | NewBranch | NewKnot"


class NewKnot(msgspec.Struct, tag="Knot"):
    parts: "list[NewLeaf | NewBranch | NewKnot]"
    by_name: "dict[str, NewLeaf | NewBranch | NewKnot]"


class Chain(msgspec.Struct):
    label: str = ""
    next: "Chain | None" = None


class ShortChain(msgspec.Struct):
    next: "ShortChain | None" = None


def test_tagged_records_that_hold_each_other_are_compared_and_it_ends() -> None:
    begun = time.process_time()
    found = losses(Branch, NewBranch)
    assert {"boxes.left.Leaf.size", "boxes.right.Leaf.size"} <= set(found)
    assert all(subject.endswith("Leaf.size") for subject in found)
    assert time.process_time() - begun < 5


def test_a_record_that_holds_itself_is_told_once() -> None:
    assert losses(Chain, ShortChain) == ["boxes.label"]


def test_many_levels_of_shared_types_end() -> None:
    old: Any = Line
    new: Any = ShortLine
    for number in range(40):
        old, new = (msgspec.defstruct(f"Level{number}", [("first", kind), ("second", kind)]) for kind in (old, new))
    begun = time.process_time()
    found = losses(old, new)
    assert found
    assert time.process_time() - begun < 5


def test_a_reference_that_leads_nowhere_but_to_itself_ends() -> None:
    described = describe(valued(Line).spec)
    value = described["items"][0]["value"]
    value["schema"] = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert len(list(differences(described, valued(Line)))) == 1


def kinds_that_hold_each_other(count: int, **fields: Any) -> dict[str, Any]:
    """The description of a layout whose records are told apart by tags, and each of which holds all of them."""
    names = [f"Kind{number}" for number in range(count)]
    union = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    defined = {
        name: {
            "title": name,
            "type": "object",
            "properties": {
                "type": {"enum": [name]},
                "left": union,
                "right": {"type": "array", "items": union},
                **fields,
            },
            "required": ["type", "left", "right"],
        }
        for name in names
    }
    described = describe(valued(Line).spec)
    described["items"][0]["value"]["schema"] = {"$ref": "#/$defs/Kind0", "$defs": defined}
    return described


def test_many_types_that_hold_each_other_end() -> None:
    old, new = kinds_that_hold_each_other(8, size={"type": "integer"}), kinds_that_hold_each_other(8)
    begun = time.process_time()
    found = [change.field for change in differences(old, new) if change.loses_values]
    assert {"size", *(f"left.Kind{number}.size" for number in range(1, 8))} <= set(found)
    assert len(found) <= 8 * 64
    assert time.process_time() - begun < 20


def test_a_pair_of_types_is_judged_again_only_when_another_one_got_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: Counter[tuple[int, int]] = Counter()
    judge = Readability._judge

    def counted(self: Readability, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        judged[id(wide), id(narrow)] += 1
        return judge(self, wide, narrow)

    monkeypatch.setattr(Readability, "_judge", counted)
    old, new = (
        SchemaGraph(described["items"][0]["value"]["schema"])
        for described in (kinds_that_hold_each_other(8, size={"type": "integer"}), kinds_that_hold_each_other(8))
    )
    reading = Readability(is_of_before=True, is_msgpack=False)
    assert reading.of(new.root, old.root) == Verdict(reads=True, keeps=False)
    # Why so many: each pair of the 64 holds two others, each of which gets worse twice at most; the rest stand within.
    assert sum(judged.values()) <= 3 * len(judged) * 4


def test_hundreds_of_tables_are_compared() -> None:
    def tables(prefix: str, codec: str) -> type[Layout]:
        made = {f"t{n}": Table(f"{prefix}{n}/{{name:{codec}}}", key=str, value=Line) for n in range(300)}
        return type("Many", (Layout,), made, root="/s/")

    begun = time.process_time()
    first = tables("boxes", "text(dots=false)")
    assert differences(first, tables("boxes", "text(dots=false)")) == ()
    assert {change.code for change in differences(first, tables("boxes", "text"))} == {"E6"}
    moved = differences(first, tables("crates", "text(dots=false)"))
    assert [change.second for change in moved][:2] == [b"/s/crates0/a", b"/s/crates1/a"]
    assert len(moved) == 300
    assert time.process_time() - begun < 20
