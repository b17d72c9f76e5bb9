"""Protobuf messages as JSON data: what decides their bytes, by field numbers. protobuf itself is not imported."""

from typing import Any, Final

__all__ = ["described_messages"]

_TYPES: Final = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The names of descriptor.proto's types, which are numbered from 1."""


def described_messages(descriptor: Any) -> dict[str, Any]:
    """Return a message and those within it, each once by its full name, with their fields by number, and enumerations."""
    messages: dict[str, Any] = {}
    enums: dict[str, Any] = {}
    pending = [descriptor]
    while pending:
        message = pending.pop()
        if message.full_name in messages:
            continue
        messages[message.full_name] = {str(field.number): _described(field) for field in message.fields}
        for field in message.fields:
            if field.message_type is not None:
                pending.append(field.message_type)
            if field.enum_type is not None:
                enums[field.enum_type.full_name] = {
                    "closed": bool(getattr(field.enum_type, "is_closed", False)),
                    "values": {str(value.number): value.name for value in field.enum_type.values},
                }
    return {"messages": messages, "enums": enums}


def _described(field: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"name": field.name, "type": _TYPES[field.type - 1]}
    if field.is_repeated:
        described["repeated"] = True
    if field.is_required:
        described["required"] = True
    kind = field.message_type if field.message_type is not None else field.enum_type
    if kind is not None:
        described["of"] = kind.full_name
    group = field.containing_oneof
    # Why not all: a field that is `optional` is alone in a group that the compiler made.
    if group is not None and len(group.fields) > 1:
        described["oneof"] = group.name
    if field.has_default_value:
        default = field.default_value
        described["default"] = default.hex() if isinstance(default, bytes) else default
    return described
