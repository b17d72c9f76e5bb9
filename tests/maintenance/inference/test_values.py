"""Values of an inferred layout: record types with their optional fields, and what no record is."""

import json

import pytest

from keyplan.maintenance.inference.json_shape import JsonShape
from keyplan.maintenance.inference.record_types import RecordTypes
from tests.maintenance.inference.foreign_stores import inferred


def typed(*values: object) -> tuple[str, list[str]]:
    """The type that these JSON values fit, and the classes in it."""
    shape, records = JsonShape(), RecordTypes()
    for value in values:
        shape.add(value)
    return records.of(shape.type(), "Thing").source, records.classes


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ([1, 2], "int"),
        ([1, 2.5], "float"),
        ([True, 1], "bool | int"),
        (["a", None], "str | None"),
        ([None], "Any"),
        ([[1], ["a", 2]], "list[int | str]"),
        ([[]], "list[Any]"),
        ([{}], "dict[str, Any]"),
        ([{"a": [{"b": None}]}, "x"], "str | Thing"),
    ],
)
def test_the_type_of_json_values_is_the_narrowest_that_fits(values: list[object], source: str) -> None:
    assert typed(*values)[0] == source


def test_fields_that_not_every_record_has_are_optional() -> None:
    source, classes = typed({"name": "a", "age": 5}, {"name": "b", "mail": "x"}, {"name": "c", "age": None})
    assert source == "Thing"
    assert classes == [
        (
            "class Thing(msgspec.Struct, kw_only=True, omit_defaults=True):\n"
            "    name: str\n"
            "    age: int | None = None\n"
            "    mail: str | None = None"
        )
    ]


def test_names_that_python_does_not_allow_are_stored_as_they_were() -> None:
    _, classes = typed({"api-url": "x", "class": 1, "2nd": True, "Api url": "y"})
    assert classes == [
        (
            "class Thing(msgspec.Struct, kw_only=True, omit_defaults=True):\n"
            "    api_url: str = msgspec.field(name='api-url')\n"
            "    class_name: int = msgspec.field(name='class')\n"
            "    n2nd: bool = msgspec.field(name='2nd')\n"
            "    api_url_2: str = msgspec.field(name='Api url')"
        )
    ]


def test_an_object_whose_names_are_data_is_a_mapping() -> None:
    assert typed(*({f"node{number}": {"port": number}} for number in range(9)))[0] == "dict[str, ThingValue]"
    assert typed({f"k{number}": number for number in range(100)})[0] == "dict[str, int]"


def test_shapes_of_two_streams_merge_into_that_of_both() -> None:
    values: list[object] = [{"a": 1}, {"a": 2.5, "b": [1]}, {"b": ["x"]}, None]
    whole, left, right = JsonShape(), JsonShape(), JsonShape()
    for number, value in enumerate(values):
        whole.add(value)
        (left if number % 2 else right).add(value)
    right.merge(left)
    assert right.type() == whole.type()


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([b"", b""], {"form": "empty"}),
        ([b"5", b"17"], {"form": "element", "element": "decimal"}),
        ([b"5", b"x"], {"form": "utf8"}),
        ([b"5", b""], {"form": "utf8"}),
        ([b"3f2504e04f8941d39a0c0305e82c3301"], {"form": "element", "element": "hex_uuid"}),
        ([b"line one\nline two"], {"form": "utf8"}),
        ([b"\x0a\x03abc", b"text"], {"form": "raw"}),
        ([b"\xff"], {"form": "raw"}),
        ([b"{not json"], {"form": "utf8"}),
        ([b'"a"', b'"b"'], {"form": "json", "type": "str", "schema": {"type": "string"}}),
    ],
)
def test_the_form_of_values_is_what_all_of_them_are(values: list[bytes], form: dict[str, object]) -> None:
    found = inferred({b"/k/%d" % number: value for number, value in enumerate(values)})
    assert [item["value"] for item in found.description["items"]] == [form]


def test_records_are_described_by_a_schema() -> None:
    records = [{"name": "a", "tags": ["x"]}, {"name": "b"}]
    found = inferred({b"/k/%d" % number: json.dumps(record).encode() for number, record in enumerate(records)})
    assert found.description["items"][0]["value"] == {
        "form": "json",
        "type": "KRecord",
        "schema": {
            "$ref": "#/$defs/KRecord",
            "$defs": {
                "KRecord": {
                    "title": "KRecord",
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "tags": {
                            "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                            "default": None,
                        },
                    },
                    "required": ["name"],
                    "x-omitted": ["tags"],
                }
            },
        },
    }
