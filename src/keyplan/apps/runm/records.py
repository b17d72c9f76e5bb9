"""The records of runm-metadata, with the names and defaults of its protobuf messages.

They are stored as proto3 wire bytes (wire_table.py), the same bytes as the original service's. `ProviderRecord` is of the
layout beside the document's, which holds what an Object has no field for.
"""

from enum import IntEnum
from uuid import UUID

from msgspec import Struct

__all__ = [
    "Object",
    "ObjectDefinition",
    "ObjectType",
    "ObjectTypeScope",
    "Partition",
    "Property",
    "PropertyPermission",
    "PropertyPermissions",
    "ProviderRecord",
    "ProviderType",
]


class Partition(Struct, frozen=True):
    """A shard of a deployment, with a name that is unique in it."""

    uuid: UUID
    name: str


class ObjectTypeScope(IntEnum):
    """Where the names of a type's objects are unique: in a partition, or in a project of a partition."""

    PARTITION = 0
    PROJECT = 1


class ObjectType(Struct, frozen=True):
    """A kind of objects, such as runm.image."""

    code: str
    description: str = ""
    scope: ObjectTypeScope = ObjectTypeScope.PARTITION


class ProviderType(Struct, frozen=True):
    """A kind of objects of one object type, such as runm.compute of runm.provider."""

    code: str
    description: str = ""


class Property(Struct, frozen=True):
    """A named value of an object. Ruling S13: an object has at most one property of a key."""

    key: str
    value: str


class Object(Struct, frozen=True):
    """Anything that has a name: an image, a machine, a provider, a group of providers.

    `project` is empty exactly for the types whose scope is the partition (rulings C12 and C14).
    """

    partition: UUID
    object_type: str
    uuid: UUID
    name: str
    project: str = ""
    properties: tuple[Property, ...] = ()
    tags: tuple[str, ...] = ()


class PropertyPermission(Struct, frozen=True):
    """What a project and a role may do: 0 nothing, 1 read, 2 write, 3 both. Empty: every project, every role."""

    project: str = ""
    role: str = ""
    permission: int = 0


class PropertyPermissions(Struct, frozen=True):
    """The permissions on the properties of one key."""

    key: str
    permissions: tuple[PropertyPermission, ...] = ()


class ObjectDefinition(Struct, frozen=True):
    """What objects of a type must look like: a JSON Schema, draft 07, as text, and permissions on properties."""

    uuid: UUID
    schema: str
    property_permissions: tuple[PropertyPermissions, ...] = ()


class ProviderRecord(Struct, frozen=True):
    """What a provider has beyond its Object: its provider type and, when it has one, its parent provider's UUID in hex.

    The original keeps this in runm-resource's own database.
    """

    partition: UUID
    provider_type: str
    uuid: UUID
    parent: str = ""
