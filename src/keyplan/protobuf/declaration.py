"""Messages declared once, nearly in the words of a .proto file: names, numbers and types of fields, and the calls of services.

    Partition: 1 uuid string, 2 name string
    Object: 1 partition string, 50 properties repeated Property,
        51 tags repeated string        # an indented line continues the one before
    RequestOp: 1 request_range oneof RangeRequest, 2 request_put oneof PutRequest

A field is `number name type`; before the type may stand `repeated` or `oneof` (one of the message's such fields is set). A type
is a scalar, an enumeration or a message; `Compare.CompareTarget` is an enumeration that the message Compare holds. A line of a
service is `call Request Response`; a request or a response that is a stream of messages has `stream` before it.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from keyplan.errors import LayoutError
from keyplan.protobuf.scalars import SCALARS

__all__ = ["Declaration", "Field", "Method"]

_FIELD: Final = re.compile(r"(\d+) (\w+) (?:(repeated|oneof) )?([\w.]+)")
_CALL: Final = re.compile(r"(\w+) (?:(stream) )?(\w+) (?:(stream) )?(\w+)")
_NUMBER_MAX: Final = (1 << 29) - 1


class Field(NamedTuple):
    """A field of a message. `kind` is a scalar's name, an enumeration's or a message's.

    `is_choice`: at most one of the message's fields that are so is set, and whether it is set can be told.
    """

    number: int
    name: str
    kind: str
    is_repeated: bool = False
    is_choice: bool = False


class Method(NamedTuple):
    """A call of a service: its path, what it takes, what it gives, and of which of both it has one or a stream of them."""

    path: str
    name: str
    request: str
    response: str
    is_stream: bool
    takes_stream: bool = False


class Declaration:
    """The messages, enumerations and services of one protobuf package, as data.

    Nothing is read before it is asked for. Reading raises LayoutError for a declaration that contradicts itself.
    """

    def __init__(
        self,
        package: str,
        messages: str,
        *,
        enums: Mapping[str, type[IntEnum]] = MappingProxyType({}),
        services: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.package: Final = package
        self.enums: Final = enums
        self._source = messages
        self._service_sources = services

    @cached_property
    def messages(self) -> Mapping[str, tuple[Field, ...]]:
        """The fields of every message, in the order declared."""
        found: dict[str, tuple[Field, ...]] = {}
        for name, fields in _entries(self._source):
            if name in found:
                raise LayoutError(problem="a message is declared twice", message=name)
            found[name] = _fields(name, fields)
        for name, declared in found.items():
            for field in declared:
                if not (field.kind in SCALARS or field.kind in self.enums or field.kind in found):
                    raise LayoutError(
                        problem="a field has a type that nobody declares", field=f"{name}.{field.name}", kind=field.kind
                    )
        return found

    @cached_property
    def services(self) -> Mapping[str, tuple[Method, ...]]:
        """The calls of every service, in the order declared."""
        return {service: self._methods(service, source) for service, source in self._service_sources.items()}

    def method(self, service: str, name: str) -> Method:
        """Return a call of a service. Raises KeyError for one that is not declared."""
        for method in self.services[service]:
            if method.name == name:
                return method
        raise KeyError(f"{service}.{name}")

    def full_name(self, name: str) -> str:
        """Return the name of a message or a service with its package, as in `runm.Partition`."""
        return f"{self.package}.{name}"

    def _methods(self, service: str, source: str) -> tuple[Method, ...]:
        methods: list[Method] = []
        for line in filter(None, map(str.strip, source.splitlines())):
            found = _CALL.fullmatch(line)
            if found is None or not {found[3], found[5]} <= self.messages.keys():
                problem = (
                    "a call is declared as `name Request Response`, with `stream` before a message that comes often"
                )
                raise LayoutError(problem=problem, call=line)
            path = f"/{self.full_name(service)}/{found[1]}"
            methods.append(Method(path, found[1], found[3], found[5], found[4] is not None, found[2] is not None))
        return tuple(methods)


def _entries(source: str) -> list[tuple[str, str]]:
    """Return the name and the fields' text of each message."""
    entries: list[tuple[str, str]] = []
    for line in source.splitlines():
        text = line.partition("#")[0].rstrip()
        if not text:
            continue
        if text[0].isspace():
            name, before = entries.pop() if entries else ("", "")
            entries.append((name, f"{before} {text.strip()}".strip()))
            continue
        name, colon, fields = text.partition(":")
        if not colon:
            raise LayoutError(problem="a message is declared as `Name: fields`", line=text)
        entries.append((name, fields.strip()))
    return entries


def _fields(message: str, source: str) -> tuple[Field, ...]:
    fields: list[Field] = []
    for part in source.split(",") if source else ():
        found = _FIELD.fullmatch(part.strip())
        if found is None or not 1 <= int(found[1]) <= _NUMBER_MAX:
            raise LayoutError(problem="a field is declared as `number name type`", message=message, field=part.strip())
        field = Field(
            int(found[1]), found[2], found[4], is_repeated=found[3] == "repeated", is_choice=found[3] == "oneof"
        )
        if any(field.number == other.number or field.name == other.name for other in fields):
            raise LayoutError(
                problem="a name or a number stands twice in a message", message=message, field=part.strip()
            )
        fields.append(field)
    return tuple(fields)
