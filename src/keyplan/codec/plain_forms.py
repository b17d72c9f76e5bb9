"""Values that need no serializing: nothing, bytes, text, and one value spelled as an element does."""

from types import NoneType
from typing import Any

from keyplan.codec.element import Element
from keyplan.codec.value_form import ValueForm, check_type, require
from keyplan.errors import CorruptionError, InvalidKeyError, InvalidRecordError

__all__ = ["ElementForm", "EmptyForm", "RawForm", "TextForm"]


class EmptyForm(ValueForm[None]):
    """No value. Reading ignores what stands there, so that a later version may store something."""

    code = "empty"

    def __init__(self, value_type: Any = None) -> None:
        require(self, value_type in (None, NoneType, Any), value_type)

    @property
    def value_type(self) -> Any:
        return None

    def encode(self, value: None) -> bytes:
        if value is not None:
            self.refuse("this table stores no value", type_found=type(value).__name__)
        return b""

    def decode(self, raw: bytes) -> None:
        return None


class RawForm(ValueForm[bytes]):
    """Bytes as they are."""

    code = "raw"

    def __init__(self, value_type: Any = bytes) -> None:
        require(self, value_type in (bytes, Any), value_type)

    @property
    def value_type(self) -> Any:
        return bytes

    def encode(self, value: bytes) -> bytes:
        check_type(self, value, bytes)
        return bytes(value)

    def decode(self, raw: bytes) -> bytes:
        return bytes(raw)


class TextForm(ValueForm[str]):
    """Text in UTF-8."""

    code = "utf8"

    def __init__(self, value_type: Any = str) -> None:
        require(self, value_type in (str, Any), value_type)

    @property
    def value_type(self) -> Any:
        return str

    def encode(self, value: str) -> bytes:
        check_type(self, value, str)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(form=self.code, problem="a lone surrogate has no UTF-8") from error

    def decode(self, raw: bytes) -> str:
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptionError(problem="the value is not UTF-8") from error


class ElementForm(ValueForm[Any]):
    """One value, spelled as the element does in keys."""

    code = "element"

    def __init__(self, element: Element[Any]) -> None:
        self._element = element

    @property
    def value_type(self) -> Any:
        return self._element.value_type

    def encode(self, value: Any) -> bytes:
        try:
            return self._element.encode(value)
        except InvalidKeyError as error:
            # Why: the key error's facts hold the value, which may be shown for a key, but not for a record.
            raise InvalidRecordError(form=self._element.spec, problem=error.facts["problem"]) from error

    def decode(self, raw: bytes) -> Any:
        try:
            return self._element.decode(raw)
        except InvalidKeyError as error:
            raise CorruptionError(problem=f"the value is no {self._element.spec}: {error.facts['problem']}") from error

    def describe(self) -> dict[str, Any]:
        return {"form": self.code, "element": self._element.spec}
