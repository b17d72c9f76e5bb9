"""Records as messages of the wire, and messages as records."""

from collections.abc import Callable, Iterable
from itertools import starmap
from operator import attrgetter
from typing import Any, Final
from uuid import UUID, uuid4

from keyplan.apps.runm.deployment import Stored
from keyplan.apps.runm.identity import checked_uuid, spelled_project
from keyplan.apps.runm.records import (
    Object,
    ObjectDefinition,
    ObjectType,
    Partition,
    Property,
    PropertyPermission,
    PropertyPermissions,
    ProviderType,
)
from keyplan.apps.runm.wire_table import messages

__all__ = [
    "definition_message",
    "definition_record",
    "object_message",
    "object_record",
    "object_type_message",
    "partition_message",
    "property_messages",
    "property_records",
    "provider_type_message",
    "uuid_or_new",
]

_Definition = messages.ObjectDefinition
_Object = messages.Object
_ObjectType = messages.ObjectType
_Partition = messages.Partition
_Permission = messages.PropertyPermission
_Permissions = messages.PropertyPermissions
_Property = messages.Property
_ProviderType = messages.ProviderType

_NOBODYS_UUID = UUID(int=0)
_ITEM: Final[Callable[[Any], tuple[str, str]]] = attrgetter("key", "value")


def partition_message(record: Partition) -> Any:
    """A Partition."""
    return _Partition(uuid=record.uuid.hex, name=record.name)


def object_type_message(record: ObjectType) -> Any:
    """An ObjectType."""
    return _ObjectType(code=record.code, description=record.description, scope=int(record.scope))


def provider_type_message(record: ProviderType) -> Any:
    """A ProviderType."""
    return _ProviderType(code=record.code, description=record.description)


def object_message(stored: Stored) -> Any:
    """An Object with its generation, which is not stored in it."""
    record = stored.record
    return _Object(
        partition=record.partition.hex,
        object_type=record.object_type,
        project=record.project,
        uuid=record.uuid.hex,
        name=record.name,
        properties=property_messages(record.properties),
        tags=record.tags,
        generation=stored.generation,
    )


def property_messages(properties: Iterable[Property]) -> list[Any]:
    """Property messages."""
    return [_Property(key=one.key, value=one.value) for one in properties]


def property_records(messages: Iterable[Any]) -> tuple[Property, ...]:
    """The records of Property messages."""
    return tuple(starmap(Property, map(_ITEM, messages)))


def object_record(message: Any, partition: UUID, uuid: UUID) -> Object:
    """The record of an Object message, whose partition and UUID are known in their one spelling."""
    return Object(
        partition=partition,
        object_type=message.object_type,
        uuid=uuid,
        name=message.name,
        project=spelled_project(message.project),
        properties=property_records(message.properties),
        tags=tuple(message.tags),
    )


def definition_message(record: ObjectDefinition) -> Any:
    """An ObjectDefinition."""
    return _Definition(
        uuid=record.uuid.hex,
        schema=record.schema,
        property_permissions=[
            _Permissions(
                key=one.key,
                permissions=[
                    _Permission(project=entry.project, role=entry.role, permission=entry.permission)
                    for entry in one.permissions
                ],
            )
            for one in record.property_permissions
        ],
    )


def definition_record(message: Any) -> ObjectDefinition:
    """The record of an ObjectDefinition message; its UUID is decided when it is set."""
    permissions = tuple(
        PropertyPermissions(
            one.key,
            tuple(
                PropertyPermission(spelled_project(entry.project), entry.role, entry.permission)
                for entry in one.permissions
            ),
        )
        for one in message.property_permissions
    )
    return ObjectDefinition(_NOBODYS_UUID, message.schema, permissions)


def uuid_or_new(text: str) -> UUID:
    """The UUID that a text spells, a new one for an empty text. Raises RefusedError, INVALID_ARGUMENT."""
    return checked_uuid(text) if text else uuid4()
