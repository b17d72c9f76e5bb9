"""Records of a table as wire bytes and back, by the protobuf package: for what comes over a network from anybody.

Why by that package: its parser is in C, bounds how deep messages nest, and is proven against every kind of bytes. Unknown
fields are passed over.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from keyplan.protobuf.declaration import Declaration, Field
from keyplan.protobuf.scalars import MisfitError

__all__ = ["RecordWire"]


class _Plan(NamedTuple):
    """How one field goes over: `is_optional` where it may not be set; `inner` names the message that it holds."""

    name: str
    is_repeated: bool
    is_optional: bool
    inner: str
    enum: type[IntEnum] | None


class RecordWire:
    """Reads and writes the records of one table. Raises ModuleNotFoundError, with what to install, without the package."""

    def __init__(self, declared: Declaration, classes: Any, records: Any) -> None:
        self._declared = declared
        self._classes = classes
        self._records = records
        self._plans: dict[str, tuple[_Plan, ...]] = {}

    def read(self, record: Any, raw: bytes) -> Any:
        """Return the record of this class that the bytes are a message of. Raises MisfitError."""
        name: str = record.__name__
        try:
            message = self._classes.parsed(name, raw)
        except ValueError as error:
            raise MisfitError(f"the bytes are no {name}") from error
        return self._record(name, message)

    def write(self, record: Any) -> bytes:
        """Return a record as bytes."""
        raw: bytes = self._message(type(record).__name__, record).SerializeToString()
        return raw

    def _plan(self, name: str) -> tuple[_Plan, ...]:
        found = self._plans.get(name)
        if found is None:
            found = self._plans[name] = tuple(map(self._planned, self._declared.messages[name]))
        return found

    def _planned(self, field: Field) -> _Plan:
        is_message = field.kind in self._declared.messages
        return _Plan(
            field.name,
            field.is_repeated,
            field.is_choice or (is_message and not field.is_repeated),
            field.kind if is_message else "",
            self._declared.enums.get(field.kind),
        )

    def _message(self, name: str, record: Any) -> Any:
        given: dict[str, Any] = {}
        for field, is_repeated, is_optional, inner, _ in self._plan(name):
            value = getattr(record, field)
            # Why: what is zero is not written, but where it can be told whether it is set.
            if value is None if is_optional else not value:
                continue
            if inner:
                value = [self._message(inner, one) for one in value] if is_repeated else self._message(inner, value)
            given[field] = value
        return getattr(self._classes, name)(**given)

    def _record(self, name: str, message: Any) -> Any:
        found: dict[str, Any] = {}
        for field, is_repeated, is_optional, inner, enum in self._plan(name):
            if is_optional and not message.HasField(field):
                continue
            value = getattr(message, field)
            if is_repeated:
                found[field] = [self._single(inner, enum, one, field) for one in value]
            else:
                found[field] = self._single(inner, enum, value, field)
        return getattr(self._records, name)(**found)

    def _single(self, inner: str, enum: type[IntEnum] | None, value: Any, field: str) -> Any:
        if inner:
            return self._record(inner, value)
        if enum is None:
            return value
        try:
            return enum(value)
        except ValueError as error:
            raise MisfitError(f"{value} is no {enum.__name__}", field) from error
