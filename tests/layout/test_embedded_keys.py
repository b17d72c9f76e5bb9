"""Keys in values: where a table declares them, how they are rewritten, and that nothing else of the value changes."""

import json
from typing import Any, NamedTuple

import msgspec
import pytest

from keyplan.codec import U64, ElementForm, TextForm
from keyplan.errors import CorruptionError, LayoutError
from keyplan.layout import Layout, Table, describe, layout_of_description, render_map, rewrite_embedded_keys


class Link(msgspec.Struct, rename="camel"):
    target_key: str
    weight: int = 1


class Node(msgspec.Struct, rename="kebab"):
    next_key: str | None = None
    raw_key: bytes = b""
    all_keys: list[str] = []
    by_name: dict[str, str] = {}
    links: list[Link] = []
    link: Link | None = None


class Graph(Layout, root="graph/"):
    nodes = Table(
        "nodes/{node}",
        key=str,
        value=Node,
        holds_keys=("next_key", "raw_key", "all_keys", "by_name", "links.target_key", "link.target_key"),
    )
    packed = Table("packed/{node}", key=str, value=Node, form="msgpack", holds_keys=("raw_key", "next_key"))
    texts = Table("texts/{node}", key=str, value=str, form=TextForm(), holds_keys="")
    raws = Table("raws/{node}", key=str, value=bytes, form="raw", holds_keys="")
    loose = Table("loose/{node}", key=str, value=dict[str, Any], holds_keys="at")


def moved(key: bytes) -> bytes:
    return b"\x80\x01" + key[1:] if key.startswith(b"\x01") else key


def moved_text(key: bytes) -> bytes:
    return b"new/" + key[4:] if key.startswith(b"old/") else key


def test_text_keys_are_rewritten_wherever_they_are_declared() -> None:
    raw = (
        b'{"next-key": "old/a", "all-keys": ["old/b", "foreign/old/c"], "by-name": {"old/x": "old/d"}, '
        b'"links": [{"targetKey": "old/e", "weight": 5}], "link": {"targetKey": "old/f"}}'
    )
    table = Graph.spec.tables["nodes"]
    assert json.loads(rewrite_embedded_keys(table, raw, moved_text)) == {
        "next-key": "new/a",
        "all-keys": ["new/b", "foreign/old/c"],
        "by-name": {"old/x": "new/d"},
        "links": [{"targetKey": "new/e", "weight": 5}],
        "link": {"targetKey": "new/f"},
    }


def test_what_is_not_a_key_stays_byte_for_byte() -> None:
    table = Graph.spec.tables["nodes"]
    raw = b'{"unknown":1.50e3,"big":123456789012345678901234567890,"next-key":"old/a","text":"old/a"}'
    expected = b'{"unknown":1.50e3,"big":123456789012345678901234567890,"next-key":"new/a","text":"old/a"}'
    assert rewrite_embedded_keys(table, raw, moved_text) == expected
    spaced = b'{ "next-key" : "other/a" , "link": null }'
    assert rewrite_embedded_keys(table, spaced, moved_text) == spaced


def test_keys_of_bytes_are_base64_in_json_and_bytes_in_msgpack() -> None:
    node = Node(raw_key=b"\x01abc")
    rewritten = rewrite_embedded_keys(Graph.spec.tables["nodes"], msgspec.json.encode(node), moved)
    assert msgspec.json.decode(rewritten, type=Node) == Node(raw_key=b"\x80\x01abc")
    packed = rewrite_embedded_keys(Graph.spec.tables["packed"], msgspec.msgpack.encode(node), moved)
    assert msgspec.msgpack.decode(packed, type=Node) == Node(raw_key=b"\x80\x01abc")


def test_values_that_are_a_key_as_a_whole_are_rewritten() -> None:
    assert rewrite_embedded_keys(Graph.spec.tables["texts"], b"old/a", moved_text) == b"new/a"
    assert rewrite_embedded_keys(Graph.spec.tables["raws"], b"\x01\xff", moved) == b"\x80\x01\xff"


def test_a_dict_is_followed_without_a_class() -> None:
    assert rewrite_embedded_keys(Graph.spec.tables["loose"], b'{"at":"old/a"}', moved_text) == b'{"at":"new/a"}'


@pytest.mark.parametrize("raw", [b"", b"{", b'{"next-key": ', b"5", b'{"link": 5}'])
def test_a_value_that_is_not_of_its_form_is_damage(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        rewrite_embedded_keys(Graph.spec.tables["nodes"], raw, moved_text)


def test_the_description_tells_of_them_and_is_read_back() -> None:
    described = json.loads(json.dumps(describe(Graph.spec)))
    nodes = described["items"][0]
    assert nodes["holds_keys"][:2] == [
        {"path": ["next-key"], "base64": False},
        {"path": ["raw-key"], "base64": True},
    ]
    again = layout_of_description(described)
    assert again.tables["nodes"].holds_keys == Graph.spec.tables["nodes"].holds_keys
    assert describe(again) == described
    assert "holds_keys" not in describe(Plain.spec)["items"][0]


def test_the_map_shows_them() -> None:
    assert "    holds    whole keys in next-key, raw-key, all-keys" in render_map(Graph.spec)


def test_a_key_that_would_be_no_text_is_told() -> None:
    with pytest.raises(CorruptionError, match="not UTF-8"):
        rewrite_embedded_keys(Graph.spec.tables["nodes"], b'{"next-key":"\\u0001a"}', moved)


class Plain(Layout, root="plain/"):
    texts = Table("{name}", key=str, value=str)


class Rows(msgspec.Struct, array_like=True):
    at: str


class Pair(NamedTuple):
    at: str


@pytest.mark.parametrize(
    ("value", "form", "held", "problem"),
    [
        (Node, None, "nothing", "no attribute 'nothing'"),
        (Node, None, "link.nothing", "no attribute 'nothing'"),
        (int, ElementForm(U64()), "", "cannot be rewritten"),
        (str, TextForm(), "at", "as a whole"),
        (Rows, None, "at", "arrays"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(value: Any, form: Any, held: str, problem: str) -> None:
    with pytest.raises(LayoutError, match=problem):

        class _Wrong(Layout, root="wrong/"):
            things = Table("{name}", key=str, value=value, form=form, holds_keys=held)
