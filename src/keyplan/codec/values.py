"""How a record's value is stored: the value forms.

PROVISIONAL, by the lead, so that others can run: the codec helper replaces the bodies and keeps these names:
ValueForm (encode, decode, value_type, code, describe), value_form_of, value_form_of_description.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from keyplan.codec.element import Element, element_of_spec
from keyplan.codec.numbers import U64, Decimal
from keyplan.codec.uuids import HexUuid, RawUuid
from keyplan.errors import CorruptionError, InvalidInputError, InvalidRecordError

__all__ = ["ValueForm", "value_form_of", "value_form_of_description"]

V = TypeVar("V")


class ValueForm(ABC, Generic[V]):
    """A way to store values of one type as bytes."""

    code: str

    @property
    @abstractmethod
    def value_type(self) -> type: ...

    @abstractmethod
    def encode(self, value: V) -> bytes: ...

    @abstractmethod
    def decode(self, raw: bytes) -> V: ...

    def describe(self) -> dict[str, Any]:
        return {"form": self.code, "type": getattr(self.value_type, "__name__", str(self.value_type))}


class JsonForm(ValueForm[Any]):
    code = "json"

    def __init__(self, value_type: Any) -> None:
        self._type = value_type
        self._decoder = msgspec.json.Decoder(value_type)

    @property
    def value_type(self) -> type:
        return self._type if isinstance(self._type, type) else object

    def encode(self, value: Any) -> bytes:
        return msgspec.json.encode(value)

    def decode(self, raw: bytes) -> Any:
        try:
            return self._decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptionError(problem="the value is not JSON of the record's type") from error


class EmptyForm(ValueForm[None]):
    code = "empty"

    @property
    def value_type(self) -> type:
        return type(None)

    def encode(self, value: None) -> bytes:
        if value is not None:
            raise InvalidRecordError(problem="the table's records have no value")
        return b""

    def decode(self, raw: bytes) -> None:
        return None


class RawForm(ValueForm[bytes]):
    code = "raw"

    @property
    def value_type(self) -> type:
        return bytes

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, raw: bytes) -> bytes:
        return raw


class TextForm(ValueForm[str]):
    code = "utf8"

    @property
    def value_type(self) -> type:
        return str

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, raw: bytes) -> str:
        return raw.decode()


class ElementForm(ValueForm[Any]):
    code = "element"

    def __init__(self, element: Element[Any]) -> None:
        self._element = element

    @property
    def value_type(self) -> type:
        return self._element.value_type

    def encode(self, value: Any) -> bytes:
        return self._element.encode(value)

    def decode(self, raw: bytes) -> Any:
        return self._element.decode(raw)

    def describe(self) -> dict[str, Any]:
        return {"form": "element", "element": self._element.spec}


def value_form_of(value_type: object, *, form: object = None, is_text: bool = True) -> ValueForm[object]:
    if isinstance(form, ValueForm):
        return form
    if isinstance(form, Element):
        return cast("ValueForm[object]", ElementForm(form))
    if value_type is None or value_type is type(None):
        return cast("ValueForm[object]", EmptyForm())
    if value_type is bytes:
        return cast("ValueForm[object]", RawForm())
    if value_type is str:
        return cast("ValueForm[object]", TextForm())
    if value_type is int:
        return ElementForm(cast("Element[Any]", Decimal() if is_text else U64()))
    if value_type is UUID:
        return ElementForm(cast("Element[Any]", HexUuid() if is_text else RawUuid()))
    return JsonForm(value_type)


def value_form_of_description(described: Any, *, is_text: bool) -> ValueForm[object]:
    match described["form"]:
        case "empty":
            return cast("ValueForm[object]", EmptyForm())
        case "raw":
            return cast("ValueForm[object]", RawForm())
        case "utf8":
            return cast("ValueForm[object]", TextForm())
        case "element":
            return ElementForm(cast("Element[Any]", element_of_spec(described["element"])))
        case "json":
            return JsonForm(object)
        case other:
            raise InvalidInputError(source="layout", problem="unknown value form", form=other)
