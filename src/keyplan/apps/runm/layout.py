"""The keys of runm-metadata: the layout of the document, K1 to K15, and the service registry beside it, K16.

`S..`, `C..`, `D..` in the notes are the rulings that README.md lists. Records are in records.py, their bytes by wire_table.py.
"""

from typing import Annotated, Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from keyplan.apps.runm.records import (
    Object,
    ObjectDefinition,
    ObjectType,
    Partition,
    ProviderRecord,
    ProviderType,
)
from keyplan.apps.runm.wire_table import RUNM
from keyplan.codec import Decimal, Percent, Secret, Text
from keyplan.layout import Index, Layout, Only, Parameter, Table, Unique, Unlike, Waiver

__all__ = [
    "DEFAULT_REGISTRY_PREFIX",
    "DefinitionVersion",
    "Deleted",
    "Endpoint",
    "ObjectName",
    "ObjectProperty",
    "ObjectSubType",
    "ObjectTag",
    "PartitionObjectName",
    "PartitionSubType",
    "PartitionType",
    "Replaced",
    "Runm",
    "RunmBeside",
    "RunmRegistry",
    "root_of",
]

# Why: the other words of S8 (by-name, by-project, by-type, by-uuid) hold a hyphen, which no code may. 64 bytes for a code and
# for the prefix leave room for a name of 255 within the 511 bytes of a key that S26 asks for.
TYPE_CODE: Final = Text(allow="a-z0-9_.", dots=False, reserved="default object", bytes_max=64)
PREFIX: Final = Text(exclude="", empty=True, bytes_max=64)

TypeCode: TypeAlias = Annotated[str, TYPE_CODE]
Escaped: TypeAlias = Annotated[str, Percent()]

_NESTED: Final = (
    "the document's setting takes any prefix; one that ends in the root itself is a second deployment in the first"
)


class ObjectSubType(NamedTuple):
    """A sub-type of an object type: ("runm.provider", "runm.compute")."""

    object_type: TypeCode
    sub_type: TypeCode


class PartitionType(NamedTuple):
    """An object type within a partition."""

    partition: UUID
    object_type: TypeCode


class PartitionSubType(NamedTuple):
    """A sub-type of an object type within a partition."""

    partition: UUID
    object_type: TypeCode
    sub_type: TypeCode


class PartitionObjectName(NamedTuple):
    """The name of an object whose type has the scope PARTITION."""

    partition: UUID
    object_type: TypeCode
    name: Escaped


class ObjectName(NamedTuple):
    """The name of an object whose type has the scope PROJECT."""

    partition: UUID
    object_type: TypeCode
    project: Escaped
    name: Escaped


class ObjectProperty(NamedTuple):
    """A property that objects of a type in a partition can have."""

    partition: UUID
    object_type: TypeCode
    key: Escaped
    value: Escaped


class ObjectTag(NamedTuple):
    """A tag that objects in a partition can have."""

    partition: UUID
    tag: Escaped


class Runm(Layout, root="{prefix}runm/metadata/"):
    """The metadata of a runmachine deployment: partitions, types, definitions and named, tagged objects.

    The root's parameter is what `root_of` makes of the service's setting; any other text is taken as it is, which opens a
    store that the original service wrote under "/".
    """

    waivers = (
        Waiver("L6", "Runm", _NESTED),
        *(
            Waiver("L7", field, "S14: the escapes keep prefixes, which searches need, and sort where % does")
            for field in (
                "partitions_by_name.name",
                "objects_by_name.name",
                "objects_by_project_and_name.project",
                "objects_by_project_and_name.name",
                "objects_by_property.key",
                "objects_by_property.value",
                "objects_by_tag.tag",
            )
        ),
    )

    prefix = Parameter("", PREFIX)

    object_types = Table(
        f"types/object/{{code:{TYPE_CODE.spec}}}",
        key=str,
        value=ObjectType,
        form=RUNM.wire_form(ObjectType),
        note='K1 "types/object/ runm.image -> serialized ObjectType message"; S8: no type is called object',
    )
    sub_types = Table(
        "types/{object_type}/{sub_type}",
        key=ObjectSubType,
        value=ProviderType,
        form=RUNM.wire_form(ProviderType),
        note='K2 "types/runm.provider/ runm.compute_node -> serialized ProviderType message"; S6',
    )
    definitions = Table(
        "definitions/by-uuid/{uuid}",
        key=UUID,
        value=ObjectDefinition,
        form=RUNM.wire_form(ObjectDefinition),
        note='K3 "a set of valued keys where the keys are UUIDs"',
    )
    type_definitions = Table(
        f"definitions/by-type/{{object_type:{TYPE_CODE.spec}}}/default",
        key=str,
        value=UUID,
        note='K4 "These are the default object definitions"; the value is the definition\'s UUID; S4',
    )
    sub_type_definitions = Table(
        "definitions/by-type/{object_type}/by-type/{sub_type}",
        key=ObjectSubType,
        value=UUID,
        note="K5, not in the document; S7: a global definition of a sub-type",
    )
    partitions = Table(
        "partitions/by-uuid/{uuid}",
        key=UUID,
        value=Partition,
        form=RUNM.wire_form(Partition),
        note='K7 "a valued key that will have as its value a serialized Partition protobuffer object"',
    )
    partitions_by_name = Unique(
        "partitions/by-name/{name:percent}",
        of=partitions,
        key=str,
        note='K6 "the human-readable name of the partition and the value being the UUID"; S14',
    )
    partition_type_definitions = Table(
        "partitions/{partition}/definitions/by-type/{object_type}/default",
        key=PartitionType,
        value=UUID,
        note='K9 "when an administrator has overridden a definition for that object type in the partition"; C10',
    )
    partition_sub_type_definitions = Table(
        "partitions/{partition}/definitions/by-type/{object_type}/by-type/{sub_type}",
        key=PartitionSubType,
        value=UUID,
        note='K10 "if an object type has a sub-type"; S5: the sample value of 33 characters is a slip',
    )
    objects = Table(
        "objects/by-uuid/{uuid}",
        key=UUID,
        value=Object,
        form=RUNM.wire_form(Object),
        note='K8 "the UUID of the object as the key and a serialized ... Object"; S10: records are global',
    )
    objects_by_name = Unique(
        "partitions/{partition}/objects/by-type/{object_type}/by-name/{name}",
        of=objects,
        key=PartitionObjectName,
        when={"project": ""},
        note='K11 "these objects are not specific to a project"; C14',
    )
    objects_by_project_and_name = Unique(
        "partitions/{partition}/objects/by-type/{object_type}/by-project/{project}/by-name/{name}",
        of=objects,
        key=ObjectName,
        when={"project": Unlike("")},
        note='K12 "a particular name and optionally belong to a specific project"; C12, S20',
    )
    objects_by_property = Index(
        "partitions/{partition}/properties/by-type/{object_type}/{key}/{value}/{uuid}",
        of=objects,
        key=ObjectProperty,
        each={"key": "properties[].key", "value": "properties[].value"},
        note='K13 "The lowest-level keys are UUIDs for the objects that match that particular property"; S15',
    )
    objects_by_tag = Index(
        "partitions/{partition}/tags/{tag}/{uuid}",
        of=objects,
        key=ObjectTag,
        each={"tag": "tags"},
        note='K14 "The lowest-level keys within each tag key namespace are the object\'s UUID"; S15',
    )
    bootstrap_token = Table(
        "bootstrap",
        key=Only,
        value=Secret[bytes],
        note="K15, not in the document; D3: there only while a bootstrap token is configured; its SHA-256 sum",
    )


def root_of(prefix: str) -> str:
    """Return the parameter `prefix` of Runm for a value of RUNM_METADATA_STORAGE_ETCD_KEY_PREFIX.

    Slashes at the end do not count, and nothing is left of the default "/": the root is then runm/metadata/ as the document
    says. A slash at the start of a longer value stays.
    """
    kept = prefix.rstrip("/")
    return f"{kept}/" if kept else ""


DEFAULT_REGISTRY_PREFIX: Final = "gsr/"
"""The value of GSR_KEY_PREFIX when it is not set."""


class Endpoint(NamedTuple):
    """One address at which a service answers. A host may be an IPv6 address: the port is what follows the last colon."""

    service: Annotated[str, Text()]
    host: Annotated[str, Text()]
    port: Annotated[int, Decimal(least=1, most=65535)]


class RunmRegistry(Layout, root="{prefix}services/"):
    """Where the services of a deployment find each other: absolute keys, outside the root of the metadata."""

    waivers = (
        Waiver("L4", "endpoints", "K16: the registry's own spelling; nobody lists the endpoints of one host"),
        Waiver("L6", "RunmRegistry", _NESTED),
        Waiver(
            "L7", "endpoints.port", "K16: the registry's own spelling; nobody lists endpoints in the order of ports"
        ),
    )

    prefix = Parameter(DEFAULT_REGISTRY_PREFIX, PREFIX)

    endpoints = Table(
        "{service}/{host}:{port}",
        key=Endpoint,
        value=None,
        lease=True,
        note="K16, not in the document: gsr/services/runmachine-metadata/{host:port}, empty, on a lease of 60 s",
    )


class IndexesKept(Struct, frozen=True):
    """The note that K13 and K14 are kept, or are known not to be (their index states say which), since keyplan came."""

    is_kept: bool


class Deleted(Struct, frozen=True):
    """An object that was deleted, as it was: when, in seconds since 1970, by which user, and what stood beside a provider."""

    object: Object
    deleted_at: int
    user: str
    provider: ProviderRecord | None = None


class DefinitionVersion(NamedTuple):
    """An earlier version of what held for a scope: all partitions are the zero UUID, all sub-types the word `default`."""

    partition: UUID
    object_type: TypeCode
    sub_type: Annotated[str, Text()]
    number: Annotated[int, Decimal(least=1, width=10)]


class Replaced(Struct, frozen=True):
    """A definition that was replaced or removed: when, in seconds since 1970, and by which user."""

    definition: ObjectDefinition
    replaced_at: int
    user: str


class RunmBeside(Layout, root="{prefix}runm/beside/"):
    """What the service keeps beside the document's keys, which have no place for it; nothing of it stands under their root.

    A provider's type and parent, which the original keeps in runm-resource's database; what was deleted and can be restored;
    the definitions that held before; and the note that somebody has looked whether the property and tag indexes can be trusted,
    which a store written by the original does not have.
    """

    waivers = (Waiver("L6", "RunmBeside", _NESTED),)

    prefix = Parameter("", PREFIX)

    providers = Table(
        "providers/by-uuid/{uuid}",
        key=UUID,
        value=ProviderRecord,
        form=RUNM.wire_form(ProviderRecord),
        note="S28: an Object carries no sub-type; written and removed in the commit of its Object",
    )
    deleted = Table(
        "deleted/by-uuid/{uuid}",
        key=UUID,
        value=Deleted,
        lease=True,
        note="not in the document: what was deleted, for as long as it can be restored; written in the commit of the delete",
    )
    definition_versions = Table(
        "definition-versions/{partition}/{object_type}/{sub_type}/{number}",
        key=DefinitionVersion,
        value=Replaced,
        note="S27: the definitions that held before, numbered in each scope; written in the commit that replaces them",
    )
    indexes_kept = Table(
        "indexes-kept",
        key=Only,
        value=IndexesKept,
        note="D17: without it nobody has looked whether K13 and K14 are whole",
    )
