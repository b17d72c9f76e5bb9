"""Value forms: what is stored, that it reads back, and that nothing wrong is written or quoted."""

import dataclasses
import enum
import uuid
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from keyplan.codec import U16, JsonForm, MsgpackForm, RawForm, ValueForm, value_form_of, value_form_of_description
from keyplan.errors import CorruptionError, InvalidRecordError, LayoutError, UnknownNameError


class Colour(enum.Enum):
    RED = "red"


class Blade(msgspec.Struct):
    cores: int
    colour: Colour = Colour.RED
    labels: dict[str, str] = {}


class Other(msgspec.Struct):
    cores: int


@dataclasses.dataclass
class Port:
    number: int


class Point(NamedTuple):
    x: int


class Sizes(TypedDict):
    width: int


class Model(pydantic.BaseModel):
    cores: int
    name: str = pydantic.Field(alias="Name")


IDENTIFIER = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

STORED: list[tuple[Any, Any, str, bytes]] = [
    (Blade, Blade(8, labels={"b": "2", "a": "1"}), "json", b'{"cores":8,"colour":"red","labels":{"a":"1","b":"2"}}'),
    (Port, Port(80), "json", b'{"number":80}'),
    (Point, Point(3), "json", b"[3]"),
    (Sizes, {"width": 3}, "json", b'{"width":3}'),
    (Model, Model(cores=8, Name="x"), "json", b'{"cores":8,"Name":"x"}'),
    (dict[str, Any], {"b": [1, None], "a": 1.5}, "json", b'{"a":1.5,"b":[1,null]}'),
    (dict[int, str], {2: "b"}, "json", b'{"2":"b"}'),
    (list[int], [1, 2], "json", b"[1,2]"),
    (bool, True, "json", b"true"),
    (Blade | None, None, "json", b"null"),
    (None, None, "empty", b""),
    (bytes, b"\x00\xff", "raw", b"\x00\xff"),
    (str, "é", "utf8", b"\xc3\xa9"),
    (int, 300, "element", b"300"),
    (uuid.UUID, IDENTIFIER, "element", b"00112233445566778899aabbccddeeff"),
    (FileDescriptorProto, FileDescriptorProto(name="x"), "protobuf", b"\x0a\x01x"),
]
stored = pytest.mark.parametrize(("kind", "value", "code", "raw"), STORED, ids=[str(row[0]) for row in STORED])


@stored
def test_a_type_has_its_own_form(kind: Any, value: Any, code: str, raw: bytes) -> None:
    form = value_form_of(kind, is_text=True)
    assert form.code == code
    assert form.encode(value) == raw
    assert form.decode(raw) == value
    assert type(form.decode(raw)) is type(value)


@stored
def test_a_described_form_reads_without_the_class_and_describes_itself_so(
    kind: Any, value: Any, code: str, raw: bytes
) -> None:
    description = value_form_of(kind, is_text=True).describe()
    assert msgspec.json.decode(msgspec.json.encode(description)) == description
    generic = value_form_of_description(description)
    assert generic.describe() == description
    expected = raw if code == "protobuf" else msgspec.json.decode(raw) if code == "json" else value
    assert generic.decode(raw) == expected
    assert generic.encode(generic.decode(raw)) == raw, "fields keep their order"


def test_numbers_and_uuids_are_raw_in_a_binary_layout() -> None:
    assert value_form_of(int, is_text=False).encode(300) == bytes.fromhex("000000000000012c")
    assert value_form_of(uuid.UUID, is_text=False).encode(IDENTIFIER) == IDENTIFIER.bytes


def test_a_form_can_be_named() -> None:
    assert value_form_of(Blade, form="msgpack", is_text=True).encode(Blade(1)) == bytes.fromhex(
        "83a5636f72657301a6636f6c6f7572a3726564a66c6162656c7380"
    )
    assert value_form_of(int, form="u16", is_text=True).encode(1) == b"\x00\x01"
    assert value_form_of(int, form="decimal(width=3)", is_text=True).encode(7) == b"007"
    assert value_form_of(int, form=U16(), is_text=True).encode(1) == b"\x00\x01"
    assert value_form_of(str, form="json", is_text=True).encode("é") == b'"\xc3\xa9"'


WRONG: list[tuple[Any, Any, str]] = [
    (Blade, Blade("secret"), "Expected `int`, got `str` - at `$.cores`"),  # type: ignore[arg-type]  # Why: planted.
    (Blade, Other(8), "a value of the wrong type"),
    (Blade, {"cores": 8}, "a value of the wrong type"),
    (Blade, None, "a value of the wrong type"),
    (Port, Port("secret"), "Expected `int`"),  # type: ignore[arg-type]  # Why: planted.
    (Sizes, {"width": "secret"}, "Expected `int`"),
    (Sizes, {}, "missing required field `width`"),
    (Model, Model.model_construct(cores="secret", name="x"), "int_parsing at cores"),
    (Model, {"cores": 8}, "a value of the wrong type"),
    (dict[str, Any], {"a": (1, 2)}, "reads back"),
    (dict[str, Any], {"a": float("nan")}, "reads back"),
    (dict[str, Any], {"a": object()}, "an invalid value"),
    (list[int], "secret", "Expected `array`"),
    (float, float("nan"), "Expected `float`"),
    (bytes, "secret", "a value of the wrong type"),
    (str, b"secret", "a value of the wrong type"),
    (str, "\ud800", "surrogate"),
    (None, "secret", "stores no value"),
    (int, True, "not an integer"),
    (int, -1, "out of range"),
    (FileDescriptorProto, b"secret", "a value of the wrong type"),
]


@pytest.mark.parametrize(("kind", "value", "problem"), WRONG, ids=[f"{row[0]}-{row[2]}" for row in WRONG])
def test_a_wrong_value_is_refused_before_it_is_written_without_being_quoted(
    kind: Any, value: Any, problem: str
) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        value_form_of(kind, is_text=True).encode(value)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_value_that_holds_itself_is_refused(form: str) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidRecordError):
        value_form_of(list[Any], form=form, is_text=True).encode(endless)


CORRUPT: list[tuple[Any, bytes, str]] = [
    (Blade, b'{"cores":8,"colour":"secret"}', "an invalid value - at `$.colour`"),
    (Blade, b'{"cores":"secret"}', "Expected `int`, got `str` - at `$.cores`"),
    (Blade, b'{"cores":8', "truncated"),
    (Blade, b"secret", "malformed"),
    (Blade, b'"\xff"', "does not fit"),
    (Blade, b"", "truncated"),
    (Blade, b"[" * 100_000, "does not fit"),
    (Model, b'{"cores":"secret"}', "int_parsing at cores, missing at Name"),
    (Model, b"secret", "json_invalid at top"),
    (str, b"secret\xff", "not UTF-8"),
    (int, b"secret", "not a decimal number"),
    (int, b"", "not a decimal number"),
    (uuid.UUID, b"secret", "hexadecimal"),
    (FileDescriptorProto, b"\xffsecret", "no FileDescriptorProto message"),
]


@pytest.mark.parametrize(("kind", "raw", "problem"), CORRUPT, ids=[f"{row[0]}-{row[2]}" for row in CORRUPT])
def test_damaged_bytes_are_corruption_and_not_quoted(kind: Any, raw: bytes, problem: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        value_form_of(kind, is_text=True).decode(raw)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_empty_form_ignores_what_a_later_version_wrote() -> None:
    assert value_form_of(None, is_text=True).decode(b"later") is None


def test_records_with_equal_dicts_have_equal_bytes() -> None:
    form: JsonForm[Blade] = JsonForm(Blade)
    assert form.encode(Blade(1, labels={"a": "1", "b": "2"})) == form.encode(Blade(1, labels={"b": "2", "a": "1"}))
    packed: MsgpackForm[Blade] = MsgpackForm(Blade)
    assert packed.encode(Blade(1, labels={"a": "1", "b": "2"})) == packed.encode(Blade(1, labels={"b": "2", "a": "1"}))


@pytest.mark.parametrize(
    ("kind", "form"), [(int, "utf8"), (Blade, "raw"), (Blade, "empty"), (Blade, "protobuf"), (object(), "json")]
)
def test_a_form_that_does_not_fit_the_type_is_a_mistake_of_the_layout(kind: Any, form: str) -> None:
    with pytest.raises(LayoutError):
        value_form_of(kind, form=form, is_text=True)


def test_an_unknown_form_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        value_form_of(Blade, form="yaml", is_text=True)
    known = caught.value.facts["known"]
    assert isinstance(known, list)
    assert {"json", "msgpack", "u64"} <= set(known)


class Shout(ValueForm[str]):
    """A form of the application's own."""

    code = "acme_shout"

    @property
    def value_type(self) -> Any:
        return str

    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            self.refuse("not text", type_found=type(value).__name__)
        return value.upper().encode()

    def decode(self, raw: bytes) -> str:
        return raw.decode().lower()


def test_a_form_of_ones_own_is_taken_as_it_is_and_read_raw_where_it_is_not_known() -> None:
    mine = Shout()
    assert value_form_of(str, form=mine, is_text=True) is mine
    assert mine.describe() == {"form": "acme_shout"}
    stranger = value_form_of_description(mine.describe())
    assert stranger.decode(b"HELLO") == b"HELLO"
    assert stranger.describe() == mine.describe()
    assert stranger.code == "acme_shout"
    with pytest.raises(InvalidRecordError, match="not text"):
        mine.encode(5)  # type: ignore[arg-type]  # Why: planted.


def test_a_described_struct_tells_its_fields() -> None:
    schema = JsonForm(Other).describe()["schema"]
    assert schema["$defs"]["Other"]["properties"] == {"cores": {"type": "integer"}}
    assert RawForm().describe() == {"form": "raw"}
