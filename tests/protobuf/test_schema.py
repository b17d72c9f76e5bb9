"""A table of messages: what it says, what is made of it, what contradicts itself."""

import json
import subprocess
import sys
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from keyplan.errors import LayoutError
from keyplan.protobuf import (
    ETCD,
    Field,
    JsonStyle,
    Message,
    Method,
    MisfitError,
    Schema,
    json_codec,
    with_unknown_fields_of,
)


class Colour(IntEnum):
    RED = 0
    BLUE = 7


TEXT = """
Leaf: 1 name string, 2 colour Tree.Colour  # a comment
Tree: 3 leaves repeated Leaf, 1 height uint32,
    5 tags repeated string,

    7 oak oneof Leaf, 8 pine oneof int64, 9 weight double, 10 roots repeated Tree.Colour
Nothing:
"""
FOREST = Schema(
    "forest", TEXT, enums={"Tree.Colour": Colour}, services={"Grove": "grow Leaf stream Tree\n\n fell Tree Nothing"}
)


def test_a_message_has_the_fields_of_its_lines() -> None:
    assert FOREST.messages["Leaf"] == (Field(1, "name", "string"), Field(2, "colour", "Tree.Colour"))
    assert FOREST.messages["Tree"][0] == Field(3, "leaves", "Leaf", is_repeated=True)
    assert [field.number for field in FOREST.messages["Tree"]] == [3, 1, 5, 7, 8, 9, 10]
    assert FOREST.messages["Tree"][3].is_choice
    assert FOREST.messages["Nothing"] == ()
    assert FOREST.method("Grove", "grow") == Method("/forest.Grove/grow", "grow", "Leaf", "Tree", is_stream=True)
    assert FOREST.method("Grove", "fell").is_stream is False


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A 1 b string", "declared as `Name: fields`"),
        ("A: 1 b", "declared as `number name type`"),
        ("A: 0 b string", "declared as `number name type`"),
        ("A: 536870912 b string", "declared as `number name type`"),
        ("A: 1 b map string", "declared as `number name type`"),
        ("A: 1 b string, 1 c string", "stands twice"),
        ("A: 1 b string, 2 b string", "stands twice"),
        ("A: 1 b string\nA: 2 c string", "declared twice"),
        ("A: 1 b B", "nobody declares"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(text: str, problem: str) -> None:
    with pytest.raises(LayoutError, match=problem):
        _ = Schema("p", text).messages


@pytest.mark.parametrize("call", ["grow Leaf", "grow Leaf stream Missing", "grow Leaf streams Leaf"])
def test_a_call_that_is_none_is_refused(call: str) -> None:
    with pytest.raises(LayoutError, match="a call is declared as"):
        _ = Schema("p", "Leaf:", services={"S": call}).services


def test_names_that_are_not_declared_are_no_attributes() -> None:
    for made in (FOREST.classes, FOREST.records):
        with pytest.raises(AttributeError, match="forest has no message Bush"):
            _ = made.Bush
    with pytest.raises(KeyError):
        FOREST.method("Grove", "burn")


def test_classes_are_made_once_also_when_two_threads_begin() -> None:
    """The second to come begins while the first one makes the pool: both get the same one, or messages would not fit."""
    pytest.importorskip("google.protobuf")
    schema = Schema("p", "A: 1 b B\nB: 1 c string")
    begun: list[Any] = []
    make = schema.classes._made_pool

    def interrupted() -> Any:
        if not begun:
            begun.append(None)
            begun[0] = schema.classes.B
        return make()

    schema.classes._made_pool = interrupted
    assert schema.classes.A(b=begun[0](c="x")).b.c == "x"
    assert schema.classes.B is begun[0]
    assert schema.records.A is schema.records.A


# ---- one message in its three forms ------------------------------------------------------------------------------------

leaves = st.builds(
    lambda name, colour: FOREST.records.Leaf(name=name, colour=colour), st.text(max_size=5), st.sampled_from(Colour)
)
trees = st.builds(
    FOREST.records.Tree,
    leaves=st.lists(leaves, max_size=3),
    height=st.integers(0, 2**32 - 1),
    tags=st.lists(st.text(max_size=5), max_size=3),
    pine=st.none() | st.integers(-(2**63), 2**63 - 1),
    weight=st.floats(allow_nan=False),
    roots=st.lists(st.sampled_from(Colour), max_size=3),
)


@given(trees, st.booleans(), st.booleans())
def test_a_record_as_json_is_what_the_protobuf_package_reads_and_writes(
    tree: Any,
    is_camel: bool,  # noqa: FBT001
    has_oak: bool,  # noqa: FBT001
) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    if has_oak:
        tree.pine, tree.oak = None, FOREST.records.Leaf()
    codec = json_codec(FOREST.records.Tree, JsonStyle(is_camel=is_camel))
    text = codec.write(tree)
    message = json_format.Parse(text, FOREST.classes.Tree())
    assert codec.read(json.loads(text)) == tree
    assert codec.read(json_format.MessageToDict(message, preserving_proto_field_name=not is_camel)) == tree
    assert codec.read(json_format.MessageToDict(FOREST.classes.Tree.FromString(message.SerializeToString()))) == tree


def test_etcds_names_are_written_as_they_are_and_read_in_both_spellings() -> None:
    records, codec = ETCD.records, json_codec(ETCD.records.RangeResponse, JsonStyle(is_camel=False))
    answer = records.RangeResponse(
        header=records.ResponseHeader(cluster_id=2**64 - 1, revision=7),
        kvs=[records.KeyValue(key=b"\xfb\xff")],
        count=1,
    )
    text = '{"header":{"cluster_id":"18446744073709551615","revision":"7"},"kvs":[{"key":"+/8="}],"count":"1"}'
    assert codec.write(answer) == text
    other = {"header": {"clusterId": 2**64 - 1, "revision": 7}, "kvs": [{"key": "-_8"}], "count": "1", "new": {"x": 1}}
    assert codec.read(other) == answer


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"height": -1}, "height"),
        ({"height": 2**32}, "height"),
        ({"height": "+5"}, "height"),
        ({"height": True}, "height"),
        ({"leaves": [{}, {"colour": "GREEN"}]}, "leaves.1.colour"),
        ({"leaves": [{"colour": 1}]}, "leaves.0.colour"),
        ({"tags": "x"}, "tags"),
        ({"oak": []}, "oak"),
        ({"weight": "x"}, "weight"),
    ],
)
def test_what_is_no_value_of_its_field_is_refused_by_place(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(MisfitError) as caught:
        json_codec(FOREST.records.Tree, JsonStyle()).read(fields)
    assert caught.value.place == place


# ---- wire bytes --------------------------------------------------------------------------------------------------------


class Leaf(Struct, frozen=True):
    name: str = ""
    unknown_fields: bytes = b""


class Tree(Struct, frozen=True):
    leaves: tuple[Leaf, ...] = ()
    height: int = 0
    unknown_fields: bytes = b""


def test_unknown_fields_are_kept_at_every_depth_behind_the_known_ones() -> None:
    pytest.importorskip("google.protobuf")
    tree = FOREST.classes.Tree(height=3, tags=["old"], weight=1.5, leaves=[FOREST.classes.Leaf(name="l", colour=7)])
    form = FOREST.wire_form(Tree)
    record = form.decode(tree.SerializeToString())
    assert (record.height, [leaf.name for leaf in record.leaves]) == (3, ["l"])
    assert record.unknown_fields
    assert record.leaves[0].unknown_fields == b"\x10\x07"
    raw = form.encode(record)
    assert FOREST.classes.Tree.FromString(raw) == tree
    assert form.decode(raw) == record
    assert raw.startswith(b"\x1a\x05\x0a\x01l\x10\x07\x08\x03")


class Stranger(Struct, frozen=True):
    nam: str = ""


class Unfit(Struct, frozen=True):
    name: int = 0


class Rooted(Struct, frozen=True):
    roots: tuple[Colour, ...] = ()


class Numbered(Struct, frozen=True):
    roots: int = 0


class Oaken(Struct, frozen=True):
    oak: Leaf = Leaf()


@pytest.mark.parametrize(
    ("record", "message", "problem"),
    [
        (Stranger, "Leaf", "fields that its message has not"),
        (Unfit, "Leaf", "cannot be stored as its message's"),
        (Rooted, "Tree", "cannot be stored as its message's"),  # zeros in the list would be left out
        (Numbered, "Tree", "cannot be stored as its message's"),
        (Oaken, "Tree", "cannot be stored as its message's"),  # what is not set would be read as empty
    ],
)
def test_a_record_that_would_lose_a_field_is_refused_when_it_is_declared(
    record: type[Struct], message: str, problem: str
) -> None:
    with pytest.raises(LayoutError, match=problem):
        FOREST.wire_form(record, message)


# ---- what a newer program added ------------------------------------------------------------------------------------------


class Wheel(Message, frozen=True):
    size: int = 0


class Cart(Message, frozen=True):
    front: Wheel | None = None
    spare: list[Wheel] = field(default_factory=list)
    by_side: dict[str, Wheel] = field(default_factory=dict)


def wheel(size: int, added: str = "") -> Wheel:
    return Wheel(size=size, unknown_fields={"added": added} if added else {})


def test_what_stays_of_a_message_keeps_its_unknown_fields_at_every_depth() -> None:
    old = Cart(
        front=wheel(1, "f"),
        spare=[wheel(2, "a"), wheel(2, "b"), wheel(3, "c")],
        by_side={"left": wheel(4, "l"), "right": wheel(4, "r")},
        unknown_fields={"owner": "o"},
    )
    new = Cart(front=wheel(9), spare=[wheel(3), wheel(5), wheel(2)], by_side={"left": wheel(8), "top": wheel(4)})
    kept = with_unknown_fields_of(old, new)
    assert kept == Cart(
        front=wheel(9, "f"),
        spare=[wheel(3, "c"), wheel(5), wheel(2, "a")],
        by_side={"left": wheel(8, "l"), "top": wheel(4)},
        unknown_fields={"owner": "o"},
    )
    plain = Cart(front=wheel(1), spare=[wheel(2), wheel(2), wheel(3)], by_side={"left": wheel(4), "right": wheel(4)})
    assert with_unknown_fields_of(old, plain) == old


# ---- without the package -----------------------------------------------------------------------------------------------


def test_everything_but_the_classes_works_without_the_protobuf_package() -> None:
    program = """
import sys
sys.modules["google"] = sys.modules["google.protobuf"] = None
from keyplan.protobuf import ETCD, JsonStyle, json_codec
import keyplan.server.etcd_v3, keyplan.apps.cloudchamber
print(json_codec(ETCD.records.PutRequest, JsonStyle()).write(ETCD.records.PutRequest(key=b"a")))
try:
    ETCD.classes.PutRequest
except ModuleNotFoundError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        '{"key":"YQ=="}',
        "messages need the package 'protobuf', which is not installed: pip install 'keyplan[protobuf]'",
    ]
