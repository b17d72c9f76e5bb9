"""A process without memory is no fault of a record: it would count as damaged, and be restored or removed."""

from typing import Any

import msgspec
import pytest

from keyplan.codec import ValueForm, value_form_of
from keyplan.layout import Index, Layout, Table


class Hungry(msgspec.Struct):
    name: str

    def __post_init__(self) -> None:
        if self.name == "large":
            raise MemoryError


class Computed(msgspec.Struct):
    size: int = 0

    @property
    def color(self) -> str:
        raise MemoryError


class Boxes(Layout):
    boxes = Table("boxes/{box}", key=str, value=Computed)
    by_color = Index("by-color/{color}/{box}", of=boxes, key=str, on=lambda _key, box: box.color, version=1)
    by_size = Index("by-size/{size}/{box}", of=boxes, key=int, when={"color": "red"})


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_value_that_no_memory_was_left_for_is_not_damaged(form: str) -> None:
    stored: ValueForm[Any] = value_form_of(Hungry, form=form, is_text=True)
    raw = stored.encode(Hungry("small")).replace(b"small", b"large")
    with pytest.raises(MemoryError):
        stored.decode(raw)


def test_a_models_value_that_no_memory_was_left_for_is_not_damaged() -> None:
    pydantic = pytest.importorskip("pydantic")

    def hungry(_self: object) -> object:
        raise MemoryError

    made = {"check": pydantic.model_validator(mode="after")(hungry)}
    model = pydantic.create_model("Model", name=(str, ...), __validators__=made)
    with pytest.raises(MemoryError):
        value_form_of(model, is_text=True).decode(b'{"name":"a"}')


def test_entries_that_no_memory_was_left_for_are_no_refusal() -> None:
    bound = Boxes.bound()
    for index in bound.indexes.values():
        with pytest.raises(MemoryError):
            index.entries("a", Computed())
    with pytest.raises(MemoryError):
        bound.tables["boxes"].encoded_record("a", Computed())
