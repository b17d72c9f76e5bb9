"""The protobuf message classes and service descriptors, built at import from wire_table.py: no generated file, no protoc."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from keyplan.apps.runm.wire_table import CALLS, ENUMS, MESSAGES, PACKAGE, SCALARS, Call, WireField

__all__ = ["POOL", "message_class", "service_name"]

_FILE: Final = "runm.proto"

_LABELS: Final = {False: FieldDescriptorProto.LABEL_OPTIONAL, True: FieldDescriptorProto.LABEL_REPEATED}
_TYPES: Final[Mapping[str, FieldDescriptorProto.Type.ValueType]] = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}") for name in SCALARS
}


def message_class(name: str) -> Any:
    """Return the class of the message `runm.NAME`. Classes are made once: equal names give the same class."""
    return _CLASSES[name]


def service_name(service: str) -> str:
    """The service's full name, as in `runm.RunmMetadata`."""
    return f"{PACKAGE}.{service}"


def _field(field: WireField) -> FieldDescriptorProto:
    made = FieldDescriptorProto(name=field.name, number=field.number, label=_LABELS[field.is_repeated])
    if field.kind in SCALARS:
        made.type = _TYPES[field.kind]
    else:
        made.type = FieldDescriptorProto.TYPE_ENUM if field.kind in ENUMS else FieldDescriptorProto.TYPE_MESSAGE
        made.type_name = f".{PACKAGE}.{field.kind}"
    return made


def _enum(name: str) -> EnumDescriptorProto:
    values = [EnumValueDescriptorProto(name=value, number=number) for number, value in enumerate(ENUMS[name])]
    return EnumDescriptorProto(name=name, value=values)


def _method(call: Call) -> MethodDescriptorProto:
    return MethodDescriptorProto(
        name=call.name,
        input_type=f".{PACKAGE}.{call.request}",
        output_type=f".{PACKAGE}.{call.response}",
        server_streaming=call.is_stream,
    )


def _file() -> FileDescriptorProto:
    return FileDescriptorProto(
        name=_FILE,
        package=PACKAGE,
        syntax="proto3",
        enum_type=[_enum(name) for name in ENUMS],
        message_type=[
            DescriptorProto(name=name, field=[_field(field) for field in fields]) for name, fields in MESSAGES.items()
        ],
        service=[
            ServiceDescriptorProto(name=name, method=[_method(call) for call in calls]) for name, calls in CALLS.items()
        ],
    )


# Why a pool of our own: in the default one another package's `runm` messages, an original client's stubs, would collide.
POOL: Final = DescriptorPool()
"""The descriptors of the contract; reflection reads them here."""

POOL.AddSerializedFile(_file().SerializeToString())

_CLASSES: Final[Mapping[str, Any]] = {
    name: GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES
}
