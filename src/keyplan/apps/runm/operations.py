"""The calls of both services, each declared once: what is asked for and answered, by whom, and how it can be refused.

The messages stand in `wire_table`, whose services are made of this; so are the handlers' table, the methods of the client and
docs/reference/runm-grpc.md. What a call takes are the fields of its request, without the session, which the client adds.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from keyplan.grpc_status import GrpcStatus
from keyplan.operations import ITSELF, NOTHING, Act, CallerKind, Change, Need, needs_of, rpc

__all__ = ["NEEDS", "ApiOperations", "MetadataOperations"]

_SESSION: Final = CallerKind.SESSION
_TO_READ: Final = Need(Act.READ, ITSELF)
_TO_WRITE: Final = Need(Act.WRITE, ITSELF)
_TO_ADMINISTER: Final = Need(Act.ADMINISTER, ITSELF)

_SCOPE: Final = "{scope.partition_uuid}/{scope.object_type_code}/{scope.sub_type_code}"

_LISTED: Final = (GrpcStatus.INVALID_ARGUMENT,)
_ONE: Final = (GrpcStatus.NOT_FOUND,)
_MADE: Final = (GrpcStatus.INVALID_ARGUMENT, GrpcStatus.ALREADY_EXISTS)
_OBJECT_MADE: Final = (GrpcStatus.INVALID_ARGUMENT, GrpcStatus.ALREADY_EXISTS, GrpcStatus.PERMISSION_DENIED)
_CHANGED: Final = (*_OBJECT_MADE, GrpcStatus.NOT_FOUND, GrpcStatus.ABORTED)
_DOCUMENT: Final = (GrpcStatus.INVALID_ARGUMENT, GrpcStatus.UNIMPLEMENTED)
_WATCHED: Final = (GrpcStatus.INVALID_ARGUMENT, GrpcStatus.RESOURCE_EXHAUSTED, GrpcStatus.OUT_OF_RANGE)


class MetadataOperations:
    """The calls of `runm.RunmMetadata`, those of the original first, extensions after them: the descriptor has this order."""

    service: ClassVar = "RunmMetadata"

    @rpc("PartitionGetByUuidRequest", "Partition", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def partition_get_by_uuid(self, **fields: Any) -> Any:
        """Return the partition of a UUID, however it is spelled."""
        raise NotImplementedError

    @rpc("PartitionGetByNameRequest", "Partition", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def partition_get_by_name(self, **fields: Any) -> Any:
        """Return the partition of a name."""
        raise NotImplementedError

    @rpc("PartitionFindRequest", "Partition", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def partition_find(self, **fields: Any) -> Iterator[Any]:
        """Stream the partitions that fit any of the filters, all without filters, by UUID unless told otherwise."""
        raise NotImplementedError

    @rpc(
        "PartitionCreateRequest",
        "PartitionCreateResponse",
        needs=_TO_ADMINISTER,
        change=Change("create partition", "{answer.partition.uuid}"),
        statuses=_MADE,
    )
    def partition_create(self, **fields: Any) -> Any:
        """Make a partition. No session is asked for: there is none to name before the first partition.

        While a bootstrap token is configured, that is so for nobody: the first partition is made by `bootstrap`.
        """
        raise NotImplementedError

    @rpc("ObjectTypeGetByCodeRequest", "ObjectType", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def object_type_get_by_code(self, **fields: Any) -> Any:
        """Return the object type of a code."""
        raise NotImplementedError

    @rpc("ObjectTypeFindRequest", "ObjectType", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def object_type_find(self, **fields: Any) -> Iterator[Any]:
        """Stream the object types that fit any of the filters, all without filters, by code unless told otherwise."""
        raise NotImplementedError

    @rpc(
        "ObjectGetByUuidRequest",
        "Object",
        needs=_TO_READ,
        caller=_SESSION,
        statuses=(GrpcStatus.NOT_FOUND, GrpcStatus.INVALID_ARGUMENT),
    )
    def object_get_by_uuid(self, **fields: Any) -> Any:
        """Return an object; one answer for what is not there and for what the caller may not see."""
        raise NotImplementedError

    @rpc("ObjectGetByNameRequest", "Object", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def object_get_by_name(self, **fields: Any) -> Any:
        """Return the object of a name, in the session's partition and project unless others are named."""
        raise NotImplementedError

    @rpc(
        "ObjectDeleteByUuidsRequest",
        "DeleteResponse",
        needs=_TO_WRITE,
        change=Change("delete objects", "{uuids}"),
        caller=_SESSION,
        statuses=(GrpcStatus.INVALID_ARGUMENT,),
    )
    def object_delete_by_uuids(self, **fields: Any) -> Any:
        """Delete objects; those that are not there, or not the caller's to see, are passed over. All of them are UUIDs (D7)."""
        raise NotImplementedError

    @rpc(
        "ObjectCreateRequest",
        "ObjectCreateResponse",
        needs=_TO_WRITE,
        change=Change("create object", "{answer.object.uuid}"),
        caller=_SESSION,
        statuses=_OBJECT_MADE,
    )
    def object_create(self, **fields: Any) -> Any:
        """Store a new object."""
        raise NotImplementedError

    @rpc("ObjectFindRequest", "Object", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def object_find(self, **fields: Any) -> Iterator[Any]:
        """Stream the objects that fit any of the filters, by UUID unless told otherwise.

        A filter that names a project which is not the session's is refused with PERMISSION_DENIED.
        """
        raise NotImplementedError

    @rpc("ProviderTypeGetByCodeRequest", "ProviderType", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def provider_type_get_by_code(self, **fields: Any) -> Any:
        """Return the provider type of a code."""
        raise NotImplementedError

    @rpc("ProviderTypeFindRequest", "ProviderType", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def provider_type_find(self, **fields: Any) -> Iterator[Any]:
        """Stream the provider types, as `object_type_find` does object types."""
        raise NotImplementedError

    @rpc(
        "ProviderDefinitionGetGlobalDefaultRequest", "ObjectDefinition", needs=_TO_READ, caller=_SESSION, statuses=_ONE
    )
    def provider_definition_get_global_default(self, **fields: Any) -> Any:
        """Return the definition of providers for which there is no more explicit one."""
        raise NotImplementedError

    @rpc("ProviderDefinitionGetByPartitionRequest", "ObjectDefinition", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def provider_definition_get_by_partition(self, **fields: Any) -> Any:
        """Return a partition's own definition of providers."""
        raise NotImplementedError

    @rpc("ProviderDefinitionGetByTypeRequest", "ObjectDefinition", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def provider_definition_get_by_type(self, **fields: Any) -> Any:
        """Return the definition of a provider type for all partitions."""
        raise NotImplementedError

    @rpc(
        "ProviderDefinitionGetByPartitionAndTypeRequest",
        "ObjectDefinition",
        needs=_TO_READ,
        caller=_SESSION,
        statuses=_ONE,
    )
    def provider_definition_get_by_partition_and_type(self, **fields: Any) -> Any:
        """Return a partition's own definition of a provider type."""
        raise NotImplementedError

    @rpc(
        "ProviderObjectDefinitionSetRequest",
        "ObjectDefinitionSetResponse",
        needs=_TO_ADMINISTER,
        change=Change("set definition", "{partition_uuid}/{provider_type_code}"),
        caller=_SESSION,
        statuses=_MADE,
    )
    def provider_definition_set(self, **fields: Any) -> Any:
        """Set the definition of providers on one of the four levels."""
        raise NotImplementedError

    # ---- extensions -----------------------------------------------------------------------------------------------------

    @rpc(
        "ObjectUpdateRequest",
        "ObjectUpdateResponse",
        needs=_TO_WRITE,
        change=Change("update object", "{object.uuid}"),
        caller=_SESSION,
        statuses=_CHANGED,
    )
    def object_update(self, **fields: Any) -> Any:
        """Replace an object's name, properties and tags by those of the one that is given."""
        raise NotImplementedError

    @rpc(
        "ObjectModifyRequest",
        "ObjectUpdateResponse",
        needs=_TO_WRITE,
        change=Change("modify object", "{uuid}"),
        caller=_SESSION,
        statuses=_CHANGED,
    )
    def object_modify(self, **fields: Any) -> Any:
        """Change parts of an object: rename it, set and remove properties, add and remove tags."""
        raise NotImplementedError

    @rpc(
        "ObjectRestoreRequest",
        "ObjectRestoreResponse",
        needs=_TO_WRITE,
        change=Change("restore object", "{uuid}"),
        caller=_SESSION,
        statuses=(GrpcStatus.INVALID_ARGUMENT, GrpcStatus.NOT_FOUND, GrpcStatus.ALREADY_EXISTS),
    )
    def object_restore(self, **fields: Any) -> Any:
        """Make a deleted object again, as it was."""
        raise NotImplementedError

    @rpc("ObjectDeletedFindRequest", "DeletedObject", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def object_deleted_find(self, **fields: Any) -> Iterator[Any]:
        """Stream the deleted objects of the session's partition and project that can be restored, by UUID."""
        raise NotImplementedError

    @rpc("ObjectWatchRequest", "ObjectEvent", needs=_TO_READ, caller=_SESSION, statuses=_WATCHED, is_endless=True)
    def object_watch(self, **fields: Any) -> Iterator[Any]:
        """Stream the changes of the objects of a type in a partition, each once and in order.

        Of types with projects, those of the session's project. With `include_existing` the objects that there are come first,
        as INSERTED without a token; with `after`, a token of an earlier event, everything since. A token of a history that was
        compacted is refused: OUT_OF_RANGE; then list again.
        """
        raise NotImplementedError

    @rpc("DefinitionGetRequest", "DefinitionGetResponse", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def definition_get(self, **fields: Any) -> Any:
        """Return the definition of exactly a scope; with `resolve`, the one that holds for it, and where it was found."""
        raise NotImplementedError

    @rpc(
        "DefinitionSetRequest",
        "ObjectDefinitionSetResponse",
        needs=_TO_ADMINISTER,
        change=Change("set definition", _SCOPE),
        caller=_SESSION,
        statuses=_MADE,
    )
    def definition_set(self, **fields: Any) -> Any:
        """Set the definition of a scope of any object type."""
        raise NotImplementedError

    @rpc(
        "DefinitionDeleteRequest",
        "DeleteResponse",
        needs=_TO_ADMINISTER,
        change=Change("delete definition", _SCOPE),
        caller=_SESSION,
        statuses=(GrpcStatus.ALREADY_EXISTS,),
    )
    def definition_delete(self, **fields: Any) -> Any:
        """Remove the definition of exactly a scope, so that the next less explicit one holds."""
        raise NotImplementedError

    @rpc("DefinitionHistoryRequest", "DefinitionVersion", needs=_TO_READ, caller=_SESSION)
    def definition_history(self, **fields: Any) -> Iterator[Any]:
        """Stream what held for exactly a scope before, the latest first."""
        raise NotImplementedError

    @rpc(
        "BootstrapRequest",
        "BootstrapResponse",
        needs=Need(Act.ADMINISTER, NOTHING),
        change=Change("create partition", "{answer.partition.uuid}"),
    )
    def bootstrap(self, **fields: Any) -> Any:
        """Make a partition by the bootstrap token, which is used up by it. Every failure has the same answer."""
        raise NotImplementedError


class ApiOperations:
    """The calls of `runm.RunmAPI`, the front end: documents for messages, names for UUIDs, providers validated."""

    service: ClassVar = "RunmAPI"

    @rpc("PartitionGetRequest", "Partition", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def partition_get(self, **fields: Any) -> Any:
        """Return the partition of a UUID or a name."""
        raise NotImplementedError

    @rpc("PartitionListRequest", "Partition", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def partition_list(self, **fields: Any) -> Iterator[Any]:
        """Stream the partitions that fit any filter, a UUID or name or the beginning of one."""
        raise NotImplementedError

    @rpc(
        "CreateRequest",
        "PartitionCreateResponse",
        needs=_TO_ADMINISTER,
        change=Change("create partition", "{answer.partition.uuid}"),
        statuses=(*_DOCUMENT, GrpcStatus.ALREADY_EXISTS),
    )
    def partition_create(self, **fields: Any) -> Any:
        """Make the partition of a document. As in RunmMetadata, a session is asked for with a bootstrap token alone."""
        raise NotImplementedError

    @rpc("ProviderTypeGetRequest", "ProviderType", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def provider_type_get(self, **fields: Any) -> Any:
        """Return the provider type of a code."""
        raise NotImplementedError

    @rpc("ProviderTypeListRequest", "ProviderType", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def provider_type_list(self, **fields: Any) -> Iterator[Any]:
        """Stream the provider types that fit any filter, a code or the beginning of one."""
        raise NotImplementedError

    @rpc("ProviderDefinitionGetRequest", "ObjectDefinition", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def provider_definition_get(self, **fields: Any) -> Any:
        """Return the definition of exactly one of the four levels, as RunmMetadata's gets do."""
        raise NotImplementedError

    @rpc(
        "ProviderDefinitionSetRequest",
        "ObjectDefinitionSetResponse",
        needs=_TO_ADMINISTER,
        change=Change("set definition", "{partition}/{provider_type}"),
        caller=_SESSION,
        statuses=(*_DOCUMENT, GrpcStatus.ALREADY_EXISTS),
    )
    def provider_definition_set(self, **fields: Any) -> Any:
        """Compile the definition of a document, and set it on one of the four levels."""
        raise NotImplementedError

    @rpc("ProviderGetRequest", "Provider", needs=_TO_READ, caller=_SESSION, statuses=_ONE)
    def provider_get(self, **fields: Any) -> Any:
        """Return the provider of a UUID or a name, in the session's partition unless the filter names another."""
        raise NotImplementedError

    @rpc("ProviderListRequest", "Provider", needs=_TO_READ, caller=_SESSION, statuses=_LISTED)
    def provider_list(self, **fields: Any) -> Iterator[Any]:
        """Stream the providers that fit any of the filters, those of the session's partition without filters."""
        raise NotImplementedError

    @rpc(
        "CreateRequest",
        "ProviderCreateResponse",
        needs=_TO_WRITE,
        change=Change("create provider", "{answer.provider.uuid}"),
        caller=_SESSION,
        statuses=(*_OBJECT_MADE, GrpcStatus.UNIMPLEMENTED),
    )
    def provider_create(self, **fields: Any) -> Any:
        """Make the provider of a document, validated whole by the definition that holds for its partition and type."""
        raise NotImplementedError

    @rpc(
        "ProviderDeleteRequest",
        "DeleteResponse",
        needs=_TO_WRITE,
        change=Change("delete providers", "{any}"),
        caller=_SESSION,
        statuses=_ONE,
    )
    def provider_delete(self, **fields: Any) -> Any:
        """Delete the providers of the session's partition that fit any of the filters.

        A filter that asks for nothing is refused, not taken for all.
        """
        raise NotImplementedError


NEEDS: Final = needs_of(MetadataOperations, ApiOperations, family="runm.")
"""What each needs, for `keyplan.access`."""
