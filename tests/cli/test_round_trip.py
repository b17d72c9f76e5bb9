"""What `keyplan get` prints is what `keyplan put ... -` takes: for every type of value, the same record again."""

import dataclasses
import datetime as dt
import decimal
import enum
import io
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

import keyplan
from keyplan import Layout, Table
from keyplan.layout import kind_in_words
from tests.cli.conftest import Keyplan


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"


class Size(enum.StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Circle(msgspec.Struct, tag="circle"):
    radius: int = 0


class Square(msgspec.Struct, tag=4, tag_field="corners"):
    side: float = 0.0


class Disc(msgspec.Struct, tag=0, tag_field="corners"):
    radius: float = 0.0


class Row(msgspec.Struct, array_like=True, tag="row"):
    first: int = 0


class Sparse(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    number: int = 0
    names: dict[int, str] = {}


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str = ""


class Nested(msgspec.Struct):
    shape: Circle
    payload: bytes
    pairs: list[tuple[int, str]]
    maybe: str | None = None


@dataclasses.dataclass
class Plain:
    number: int = 0
    payload: bytes = b""


class Pair(NamedTuple):
    number: int
    name: str


class Model(pydantic.BaseModel):
    number: int
    name: str = "x"
    at: dt.date | None = None


VALUES: Final[list[tuple[Any, Any]]] = [
    (str, "he llo"),
    (str, "7"),
    (str, '"quoted"'),
    (str, "with an end\n"),
    (str, "ä\u2028\x00"),
    (str, ""),
    (bool, True),
    (bool, False),
    (int, 2**63),
    (float, 1.5),
    (bytes, b"\x00ab\xff"),
    (bytes, b"\\x41 is not A"),
    (bytes, b""),
    (UUID, UUID(int=5)),
    (Colour, Colour.GREEN),
    (Size, Size.LARGE),
    (Level, Level.HIGH),
    (Circle, Circle(3)),
    (Square | Disc, Square(2.0)),
    (Square | Disc, Disc(1.0)),
    (Row, Row(3)),
    (Sparse, Sparse(0, {5: "x"})),
    (Sparse, Sparse()),
    (Renamed, Renamed("Ann")),
    (Nested, Nested(Circle(1), b"\x00\xff", [(1, "a")])),
    (Plain, Plain(1, b"zz")),
    (Pair, Pair(1, "x")),
    (Model, Model(number=1, at=dt.date(2024, 2, 29))),
    (dt.datetime, dt.datetime(2024, 1, 1, 12, 30, tzinfo=dt.UTC)),
    (decimal.Decimal, decimal.Decimal("1.50")),
    (str | None, "x"),
    (list[int], [1, 2]),
    (dict[str, Any], {"a": [1, None, True], "b": {"c": 1.5}}),
]


def layout_of(kind: Any) -> type[Layout]:
    members = {"things": Table("things/{thing}", key=str, value=kind), "__module__": __name__}
    return type("RoundTrip", (Layout,), members, root="/round/")


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda value: str(value)[:30])
def test_what_get_prints_put_takes(run: Keyplan, monkeypatch: pytest.MonkeyPatch, kind: Any, value: Any) -> None:
    layout = layout_of(kind)
    monkeypatch.setattr("tests.cli.test_round_trip.RoundTrip", layout, raising=False)
    with keyplan.open("lmdb:store") as store:
        layout(store).things.put("a", value)  # type: ignore[attr-defined]  # a layout made here
    where = ("--store", "lmdb:store", "--layout", "tests.cli.test_round_trip:RoundTrip", "things")
    got = run("get", *where, "a")
    assert got.code == 0, got.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(got.out.encode())))
    put = run("put", *where, "b", "-")
    assert put.code == 0, put.err
    with keyplan.open("lmdb:store") as store, store.engine.snapshot() as snapshot:
        assert layout(store).things.get("b") == value  # type: ignore[attr-defined]
        assert snapshot.value(b"/round/things/b") == snapshot.value(b"/round/things/a")


WORDS: Final[list[tuple[Any, str, Any]]] = [
    (bool, "true", True),
    (bool, "false", False),
    (int, "+7", 7),
    (float, "1e3", 1000.0),
    (str, "false", "false"),
    (Size, "l", Size.LARGE),
    (UUID, "00000000-0000-0000-0000-000000000005", UUID(int=5)),
    (bytes, r"\x00a", b"\x00a"),
]


@pytest.mark.parametrize(("kind", "word", "value"), WORDS, ids=lambda value: str(value)[:30])
def test_a_word_is_read_by_the_type_of_the_table(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, kind: Any, word: str, value: Any
) -> None:
    layout = layout_of(kind)
    monkeypatch.setattr("tests.cli.test_round_trip.RoundTrip", layout, raising=False)
    put = run("put", "--store", "lmdb:store", "--layout", "tests.cli.test_round_trip:RoundTrip", "things", "a", word)
    assert put.code == 0, put.err
    with keyplan.open("lmdb:store") as store:
        assert layout(store).things.get("a") == value  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (bool, "False"),
        (bool, "0"),
        (bool, ""),
        (int, "1_000"),
        (int, " 7"),
        (int, "٣"),
        (int, "7.0"),
        (float, "1_0"),
        (Size, "x"),
    ],
    ids=str,
)
def test_a_word_that_python_would_take_for_something_is_refused(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, kind: Any, word: str
) -> None:
    monkeypatch.setattr("tests.cli.test_round_trip.RoundTrip", layout_of(kind), raising=False)
    put = run("put", "--store", "lmdb:store", "--layout", "tests.cli.test_round_trip:RoundTrip", "things", "a", word)
    assert put.code == 5
    assert put.err.startswith(f"keyplan: the input is not valid: the record must be {kind_in_words(kind)}")
