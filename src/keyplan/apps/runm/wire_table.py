"""Every message and enumeration of the wire contract as one table, nearly in the words of a .proto file.

The stored values and the messages of the service are both made of it, so that they cannot disagree. What the original service
did not have is marked as an extension: it uses numbers and names that were free.
"""

from enum import IntEnum
from typing import Final

from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.records import ObjectTypeScope
from keyplan.operations import service_table
from keyplan.protobuf import Schema

__all__ = ["RUNM", "messages"]


class SortDirection(IntEnum):
    """Which way a list is sorted."""

    ASC = 0
    DESC = 1


class PayloadFormat(IntEnum):
    """What a payload is written in."""

    YAML = 0
    PROTOBUFFER = 1


class ObjectEventKind(IntEnum):
    """What happened to an object. An extension."""

    INSERTED = 0
    CHANGED = 1
    REMOVED = 2


_MESSAGES: Final = """
# ---- what is stored
Partition: 1 uuid string, 2 name string
ObjectType: 1 code string, 2 description string, 3 scope ObjectTypeScope
ProviderType: 1 code string, 2 description string
Property: 1 key string, 2 value string
Object: 1 partition string, 2 object_type string, 3 project string, 4 uuid string, 5 name string,
    50 properties repeated Property, 51 tags repeated string, 100 generation uint32  # extension: 100 generation, never stored
PropertyPermission: 1 project string, 2 role string, 3 permission uint32
PropertyPermissions: 1 key string, 50 permissions repeated PropertyPermission
ObjectDefinition: 1 uuid string, 2 schema string, 50 property_permissions repeated PropertyPermissions

# ---- what calls share
DeleteResponse: 2 num_deleted uint64
Session: 1 user string, 2 project string, 3 partition string, 4 roles repeated string  # extension: 4 roles
SortField: 1 field string, 2 direction SortDirection
SearchOptions: 1 limit uint32, 2 marker string, 3 sort_fields repeated SortField
UuidFilter: 1 uuid string, 2 use_prefix bool
UuidsFilter: 1 uuids repeated string
NameFilter: 1 name string, 2 use_prefix bool
CodeFilter: 1 code string, 2 use_prefix bool
CodesFilter: 1 codes repeated string
SearchFilter: 1 search string, 2 use_prefix bool
PropertyFilter: 1 require_items repeated Property, 2 require_keys repeated string, 3 forbid_items repeated Property,
    4 forbid_keys repeated string, 5 any_items repeated Property, 6 any_keys repeated string
TagFilter: 1 require repeated string, 2 forbid repeated string, 3 any repeated string  # extension

# ---- RunmMetadata
PartitionFindFilter: 1 uuid_filter UuidFilter, 2 name_filter NameFilter
PartitionCreateResponse: 1 partition Partition
ObjectTypeFilter: 1 code_filter CodeFilter
ProviderTypeFindFilter: 1 code_filter CodeFilter
# Extension: 7 tag_filter.
ObjectFilter: 1 partition_filter UuidsFilter, 2 object_type_filter ObjectTypeFilter, 3 uuid_filter UuidFilter,
    4 name_filter NameFilter, 5 project string, 6 property_filter PropertyFilter, 7 tag_filter TagFilter
ObjectDefinitionSetResponse: 1 object_definition ObjectDefinition
PartitionGetByUuidRequest: 1 session Session, 2 uuid string
PartitionGetByNameRequest: 1 session Session, 2 name string
PartitionFindRequest: 1 session Session, 2 options SearchOptions, 3 any repeated PartitionFindFilter
PartitionCreateRequest: 1 session Session, 2 partition Partition
ObjectTypeGetByCodeRequest: 1 session Session, 2 code string
ObjectTypeFindRequest: 1 session Session, 2 options SearchOptions, 3 any repeated ObjectTypeFilter
ObjectGetByUuidRequest: 1 session Session, 2 uuid string
ObjectGetByNameRequest: 1 session Session, 2 partition_uuid string, 3 object_type_code string, 4 project string,
    5 name string
ObjectCreateRequest: 1 session Session, 2 object Object
ObjectCreateResponse: 1 object Object
ObjectFindRequest: 1 session Session, 2 options SearchOptions, 3 any repeated ObjectFilter
ObjectDeleteByUuidsRequest: 1 session Session, 2 uuids repeated string
ProviderTypeGetByCodeRequest: 1 session Session, 2 code string
ProviderTypeFindRequest: 1 session Session, 2 options SearchOptions, 3 any repeated ProviderTypeFindFilter
ProviderDefinitionGetGlobalDefaultRequest: 1 session Session
ProviderDefinitionGetByPartitionRequest: 1 session Session, 2 partition_uuid string
ProviderDefinitionGetByTypeRequest: 1 session Session, 2 provider_type_code string
ProviderDefinitionGetByPartitionAndTypeRequest: 1 session Session, 2 partition_uuid string, 3 provider_type_code string
ProviderObjectDefinitionSetRequest: 1 session Session, 2 partition_uuid string, 3 provider_type_code string,
    50 object_definition ObjectDefinition

# ---- extensions of RunmMetadata
ObjectUpdateRequest: 1 session Session, 2 object Object
ObjectModifyRequest: 1 session Session, 2 uuid string, 3 name string, 4 set_properties repeated Property,
    5 remove_property_keys repeated string, 6 add_tags repeated string, 7 remove_tags repeated string,
    100 generation uint32
ObjectUpdateResponse: 1 object Object
ObjectRestoreRequest: 1 session Session, 2 uuid string
ObjectRestoreResponse: 1 object Object
ObjectDeletedFindRequest: 1 session Session, 2 options SearchOptions
DeletedObject: 1 object Object, 2 deleted_at uint64, 3 user string
ObjectWatchRequest: 1 session Session, 2 object_type_code string, 3 partition_uuid string, 4 after string,
    5 include_existing bool
ObjectEvent: 1 kind ObjectEventKind, 2 object Object, 3 previous Object, 4 token string
DefinitionScope: 1 partition_uuid string, 2 object_type_code string, 3 sub_type_code string
DefinitionGetRequest: 1 session Session, 2 scope DefinitionScope, 3 resolve bool
DefinitionGetResponse: 1 object_definition ObjectDefinition, 2 scope DefinitionScope
DefinitionSetRequest: 1 session Session, 2 scope DefinitionScope, 50 object_definition ObjectDefinition
DefinitionHistoryRequest: 1 session Session, 2 scope DefinitionScope
DefinitionVersion: 1 number uint32, 2 object_definition ObjectDefinition, 3 replaced_at uint64, 4 user string
DefinitionDeleteRequest: 1 session Session, 2 scope DefinitionScope
StringValue: 1 value string
BootstrapRequest: 1 bootstrap_token string, 2 partition_name string, 3 partition_uuid StringValue
BootstrapResponse: 1 partition Partition

# ---- RunmAPI
PartitionFilter: 1 primary_filter SearchFilter
ProviderTypeFilter: 1 search string, 2 use_prefix bool
CreateRequest: 1 session Session, 2 format PayloadFormat, 3 payload bytes
PartitionGetRequest: 1 session Session, 2 filter PartitionFilter
PartitionListRequest: 1 session Session, 2 options SearchOptions, 3 any repeated PartitionFilter
ProviderTypeGetRequest: 1 session Session, 2 filter ProviderTypeFilter
ProviderTypeListRequest: 1 session Session, 2 options SearchOptions, 3 any repeated ProviderTypeFilter
ProviderDefinitionGetRequest: 1 session Session, 2 partition string, 3 provider_type string
ProviderDefinitionSetRequest: 1 session Session, 2 format PayloadFormat, 3 payload bytes, 4 partition string,
    5 provider_type string
ProviderFilter: 1 primary_filter SearchFilter, 2 partition_filter SearchFilter, 3 provider_type_filter SearchFilter,
    4 property_filter PropertyFilter
ProviderGetRequest: 1 session Session, 2 filter ProviderFilter
ProviderListRequest: 1 session Session, 2 options SearchOptions, 3 any repeated ProviderFilter
ProviderDeleteRequest: 1 session Session, 2 any repeated ProviderFilter
ProviderCreateResponse: 1 provider Provider
ProviderGroup: 1 uuid string, 2 name string, 100 generation uint32
Capability: 1 code string, 2 description StringValue
DistanceType: 1 code string, 2 description StringValue
Distance: 1 code string, 2 description StringValue, 3 position uint32, 50 type DistanceType
ProviderDistance: 1 provider_group ProviderGroup, 2 distance Distance
Provider: 1 partition Partition, 2 provider_type ProviderType, 3 uuid string, 4 name string,
    50 properties repeated Property, 51 tags repeated string, 52 parent Provider, 53 groups repeated ProviderGroup,
    54 capabilities repeated Capability, 55 distances repeated ProviderDistance, 100 generation uint32
ProviderRecord: 1 partition string, 2 provider_type string, 3 uuid string, 4 parent string  # extension, stored
"""

RUNM: Final = Schema(
    "runm",
    _MESSAGES,
    enums={
        "SortDirection": SortDirection,
        "ObjectTypeScope": ObjectTypeScope,
        "PayloadFormat": PayloadFormat,
        "ObjectEventKind": ObjectEventKind,
    },
    services={one.service: service_table(one) for one in (MetadataOperations, ApiOperations)},
)
"""The table; the calls of its services are declared in `operations`."""

messages: Final = RUNM.classes
"""The message classes, as attributes; `messages.pool` is what reflection reads."""
