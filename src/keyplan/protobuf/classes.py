"""The protobuf package's message classes, made of a declaration when first used: no generated file, no protoc."""

from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from keyplan.protobuf.declaration import Declaration, Field, Method

__all__ = ["MessageClasses"]

_CHOICE: Final = "choice"
_POOL: Final = "_pool"


class MessageClasses:
    """Message classes as attributes. Classes are made once: equal names give the same class."""

    def __init__(self, declared: Declaration) -> None:
        self._declared = declared

    def __getattr__(self, name: str) -> Any:
        # Only names that are not there yet come here: a class, once made, is an ordinary attribute.
        if name not in self._declared.messages:
            raise AttributeError(f"{self._declared.package} has no message {name}")
        found = _required("google.protobuf.message_factory").GetMessageClass(
            self.pool.FindMessageTypeByName(self._declared.full_name(name))
        )
        # Why: of two threads that made it, both return the one that was first.
        return self.__dict__.setdefault(name, found)

    def parsed(self, name: str, raw: bytes) -> Any:
        """Return the message that bytes are. Raises ValueError for bytes that are none of this name."""
        found = getattr(self, name)
        try:
            return found.FromString(raw)
        except _required("google.protobuf.message").DecodeError as error:
            raise ValueError(f"the bytes are no {name}") from error

    @property
    def pool(self) -> Any:
        """The descriptors of messages and services; a server's reflection reads them here."""
        found = self.__dict__.get(_POOL)
        return found or self.__dict__.setdefault(_POOL, self._made_pool())

    def _made_pool(self) -> Any:
        # Why a pool of our own: in the default one the stubs of another client of the same package would collide.
        pool = _required("google.protobuf.descriptor_pool").DescriptorPool()
        pool.AddSerializedFile(self._file().SerializeToString())
        return pool

    def _file(self) -> Any:
        declared, proto = self._declared, _required("google.protobuf.descriptor_pb2")
        file = proto.FileDescriptorProto(name=f"{declared.package}.proto", package=declared.package, syntax="proto3")
        for name, fields in declared.messages.items():
            described = file.message_type.add(name=name)
            if any(field.is_choice for field in fields):
                described.oneof_decl.add(name=_CHOICE)
            described.field.extend(self._field(proto, field) for field in fields)
        held_by = {described.name: described for described in file.message_type}
        for name, enum in declared.enums.items():
            holder, _, own = name.rpartition(".")
            (held_by[holder].enum_type if holder else file.enum_type).append(_enum(proto, own, enum))
        for service, methods in declared.services.items():
            file.service.add(name=service).method.extend(self._method(proto, method) for method in methods)
        return file

    def _field(self, proto: Any, field: Field) -> Any:
        kinds = proto.FieldDescriptorProto
        label = kinds.LABEL_REPEATED if field.is_repeated else kinds.LABEL_OPTIONAL
        made = kinds(name=field.name, number=field.number, label=label)
        if field.kind in self._declared.messages or field.kind in self._declared.enums:
            made.type = kinds.TYPE_MESSAGE if field.kind in self._declared.messages else kinds.TYPE_ENUM
            made.type_name = f".{self._declared.full_name(field.kind)}"
        else:
            made.type = getattr(kinds, f"TYPE_{field.kind.upper()}")
        if field.is_choice:
            made.oneof_index = 0
        return made

    def _method(self, proto: Any, method: Method) -> Any:
        return proto.MethodDescriptorProto(
            name=method.name,
            input_type=f".{self._declared.full_name(method.request)}",
            output_type=f".{self._declared.full_name(method.response)}",
            client_streaming=method.takes_stream,
            server_streaming=method.is_stream,
        )


def _enum(proto: Any, name: str, enum: type[IntEnum]) -> Any:
    values = [proto.EnumValueDescriptorProto(name=member.name, number=member.value) for member in enum]
    return proto.EnumDescriptorProto(name=name, value=values)


def _required(module: str) -> Any:
    """Import a module of the protobuf package. Raises ModuleNotFoundError with what to install: the core does without it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        advice = "messages need the package 'protobuf', which is not installed: pip install 'keyplan[protobuf]'"
        raise ModuleNotFoundError(advice, name=error.name, path=error.path) from error
