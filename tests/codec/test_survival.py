"""What a value form takes reads back as what was given, or is refused with the place, and nothing of the value."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

from keyplan.codec import value_form_of
from keyplan.codec.survival import difference
from keyplan.errors import InvalidRecordError


class Inner(msgspec.Struct):
    name: str = "n"


class Deeper(Inner):
    secret: str = "s"


class Record(msgspec.Struct):
    ratio: float | None = None
    exact: float = 0.0
    words: list[str] = []
    pair: tuple[int, ...] = ()
    free: Any = None
    inner: Inner = msgspec.field(default_factory=Inner)
    table: dict[str, Any] = {}


class Identity(msgspec.Struct, eq=False):
    free: Any = None


@dataclass(eq=False)
class Plain:
    free: Any = None
    words: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Model(pydantic.BaseModel):
    free: Any = None
    hidden: int = pydantic.Field(default=1, exclude=True)


class Open(pydantic.BaseModel, extra="allow"):
    kept: Any = None

    @cached_property
    def remembered(self) -> float:
        return math.nan


class Narrow(Record):
    extra: int = 1


class NarrowModel(Model):
    extra: int = 1


NAIVE = datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001  # Why: what is tested.

CHANGED: list[tuple[Any, str, str]] = [
    (Record(ratio=math.nan), "json", "$.ratio"),
    (Record(words=("a",)), "json", "$.words"),  # type: ignore[arg-type]
    (Record(words=("a",)), "msgpack", "$.words"),  # type: ignore[arg-type]
    (Record(free={1, 2}), "msgpack", "$.free"),
    (Record(free=UUID(int=1)), "json", "$.free"),
    (Record(free=UUID(int=1)), "msgpack", "$.free"),
    (Record(free=NAIVE), "msgpack", "$.free"),
    (Record(free=(1, 2)), "msgpack", "$.free"),
    (Record(table={"a": [{"b": (1,)}]}), "json", "$.table[...][0][...]"),
    (Record(inner=Deeper()), "json", "$.inner"),
    (Identity(free=(1,)), "json", "$.free"),
    (Plain(free=(1,)), "json", "$.free"),
    (Pair((1,)), "json", "$.left"),
    (Model(free=UUID(int=1)), "json", "$.free"),
    (Model(hidden=2), "json", "$.hidden"),
    (Open.model_validate({"more": (1,)}), "json", "$.more"),
    (Open.model_validate({"more": math.nan}), "json", "$.more"),
]


@pytest.mark.parametrize(("value", "form", "place"), CHANGED)
def test_a_value_that_would_read_back_otherwise_is_refused_with_its_place(value: Any, form: str, place: str) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        value_form_of(type(value), form=form, is_text=True).encode(value)
    assert str(caught.value.facts["problem"]).startswith(place + " ")


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize("value", [{"a": (1,)}, {"a": {1}}, {"a": UUID(int=3)}])
def test_a_value_without_a_class_is_refused_as_well(value: Any, form: str) -> None:
    with pytest.raises(InvalidRecordError):
        value_form_of(dict[str, Any], form=form, is_text=True).encode(value)


@pytest.mark.parametrize(("declared", "value"), [(Record, Narrow()), (Model, NarrowModel())])
def test_a_subclass_is_refused_because_its_fields_would_vanish(declared: Any, value: Any) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        value_form_of(declared, is_text=True).encode(value)
    assert caught.value.facts["type_found"] == type(value).__name__


KEPT: list[tuple[Any, str]] = [
    (Record(exact=1), "json"),
    (Record(ratio=math.nan, exact=math.nan), "msgpack"),
    (Record(ratio=math.inf), "msgpack"),
    (Record(free=datetime(2026, 1, 2, tzinfo=UTC)), "msgpack"),
    (Record(words=["a"], pair=(1, 2), free={"a": [1, None, "x"]}), "json"),
    (Identity(free=[1]), "json"),
    (Plain(free=[1], words=["a"]), "json"),
    (Pair([1], "b"), "json"),
    (Model(free=[1, "a"]), "json"),
    (Open.model_validate({"kept": 1, "more": [1]}), "json"),
]


@pytest.mark.parametrize(("value", "form"), KEPT)
def test_a_value_that_survives_is_taken(value: Any, form: str) -> None:
    kept = value_form_of(type(value), form=form, is_text=True)
    assert difference(value, kept.decode(kept.encode(value))) is None


def test_what_a_record_remembers_beside_its_fields_is_not_compared() -> None:
    value = Open(kept=1)
    assert math.isnan(value.remembered)
    kept = value_form_of(Open, is_text=True)
    assert kept.decode(kept.encode(value)) == Open(kept=1)


def test_nothing_of_the_value_is_told() -> None:
    with pytest.raises(InvalidRecordError) as caught:
        value_form_of(Record, is_text=True).encode(Record(free=("password",)))
    assert "password" not in str(caught.value)
