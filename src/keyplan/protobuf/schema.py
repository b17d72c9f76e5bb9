"""A declaration together with the classes that are made of it."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from keyplan.protobuf.classes import MessageClasses
from keyplan.protobuf.declaration import Declaration
from keyplan.protobuf.record_wire import RecordWire
from keyplan.protobuf.records import RecordClasses
from keyplan.protobuf.wire_form import WireForm

__all__ = ["Schema"]

V = TypeVar("V", bound=Struct)


class Schema(Declaration):
    """One table of messages, enumerations and services, with everything that is made of it, when it is first used.

    `classes` has the protobuf package's message classes as attributes: `schema.classes.Partition(name="p")`; `classes.pool`
    describes them. Using one raises ModuleNotFoundError, with what to install, when that package is not there. `records` has
    record classes as attributes: msgspec Structs that need no package. `record_wire` reads and writes those as wire bytes.

    Why both are Any: classes that are made at run time have no static type; who uses them wraps each use.
    """

    def __init__(
        self,
        package: str,
        messages: str,
        *,
        enums: Mapping[str, type[IntEnum]] = MappingProxyType({}),
        services: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(package, messages, enums=enums, services=services)
        self.classes: Any = MessageClasses(self)
        self.records: Any = RecordClasses(self)
        self.record_wire = RecordWire(self, self.classes, self.records)

    def wire_form(self, record: type[V], message: str | None = None) -> WireForm[V]:
        """Return the form that stores records of a class as wire bytes of the message of that name, or of `message`.

        Raises LayoutError for a class with a field that the message has not, or not of this type.
        """
        return WireForm(self, record, message)
