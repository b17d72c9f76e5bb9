"""The commands `runm provider definition` and `runm definition`."""

from pathlib import Path
from typing import Annotated

import grpc
import typer

from keyplan.apps.runm.cli_frame import (
    EndedError,
    FileOption,
    command_group,
    document_of,
    own_context,
    text_of,
)
from keyplan.apps.runm.rendering import DEFINITION, RESOLVED, VERSION

__all__ = ["definitions", "provider_definitions"]

PartitionUuidOption = Annotated[str, typer.Option("--partition-uuid", help="For a partition; for all without it.")]
SubTypeOption = Annotated[str, typer.Option("--sub-type", help="For a sub-type.")]

provider_definitions = command_group()
definitions = command_group()


@provider_definitions.command("get")
def provider_definition_get(
    context: typer.Context,
    is_global: Annotated[bool, typer.Option("--global", "-g", help="The one of all partitions.")] = False,
    partition: Annotated[str, typer.Option("--partition", help="The one of a partition.")] = "",
    provider_type: Annotated[str, typer.Option("--type", "-t", help="Of a provider type.")] = "",
) -> None:
    """Show a definition of providers: the session's partition's without options, where it has none the global one."""
    own = own_context(context)
    own_partition = "" if is_global else partition or own.connection.partition
    try:
        found = own.client.api.provider_definition_get(partition=own_partition, provider_type=provider_type)
    except grpc.RpcError as error:
        is_explicit = is_global or partition
        if is_explicit or error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        found = own.client.api.provider_definition_get(partition="", provider_type=provider_type)
    own.output.one(found, DEFINITION)


@provider_definitions.command("set")
def provider_definition_set(
    context: typer.Context,
    file: FileOption = None,
    is_global: Annotated[bool, typer.Option("--global", "-g", help="For all partitions.")] = False,
    partition: Annotated[str, typer.Option("--partition", help="For a partition; the session's without it.")] = "",
    provider_type: Annotated[str, typer.Option("--type", "-t", help="For a provider type.")] = "",
) -> None:
    """Set a definition of providers from a document."""
    own = own_context(context)
    made = own.client.api.provider_definition_set(
        payload=document_of(file),
        partition="" if is_global else partition or own.connection.partition,
        provider_type=provider_type,
    ).object_definition
    own.output.stored(made, DEFINITION)


@definitions.command("get")
def definition_get(
    context: typer.Context,
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="The objects' type.")],
    partition_uuid: PartitionUuidOption = "",
    sub_type: SubTypeOption = "",
    resolve: Annotated[bool, typer.Option("--resolve", help="The one that holds, wherever it was set.")] = False,
) -> None:
    """Show a definition of objects of any type."""
    own = own_context(context)
    scope = _scope(object_type, partition_uuid, sub_type)
    found = own.client.metadata.definition_get(scope=scope, resolve=resolve)
    own.output.one(found, RESOLVED)


@definitions.command("set")
def definition_set(
    context: typer.Context,
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="The objects' type.")],
    schema: Annotated[Path, typer.Option("--schema", help="A file with the JSON Schema, draft 07.")],
    partition_uuid: PartitionUuidOption = "",
    sub_type: SubTypeOption = "",
) -> None:
    """Set the schema of objects of any type; permissions that were set before stay."""
    own = own_context(context)
    scope = _scope(object_type, partition_uuid, sub_type)
    try:
        definition = own.client.metadata.definition_get(scope=scope).object_definition
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        made = {"schema": text_of(schema)}
        stored = own.client.metadata.definition_set(scope=scope, object_definition=made).object_definition
    else:
        definition.schema = text_of(schema)
        stored = own.client.metadata.definition_set(scope=scope, object_definition=definition).object_definition
    own.output.stored(stored, DEFINITION)


@definitions.command("history")
def definition_history(
    context: typer.Context,
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="The objects' type.")],
    partition_uuid: PartitionUuidOption = "",
    sub_type: SubTypeOption = "",
    number: Annotated[int, typer.Option("--number", min=0, help="Show this version whole.")] = 0,
) -> None:
    """List the definitions that held before, the latest first, with when each was replaced and by whom."""
    own = own_context(context)
    found = own.client.metadata.definition_history(scope=_scope(object_type, partition_uuid, sub_type))
    if not number:
        own.output.many(found, VERSION)
        return
    version = next((one for one in found if one.number == number), None)
    if version is None:
        raise EndedError(5, "object could not be found.")
    own.output.one(version, VERSION)


@definitions.command("delete")
def definition_delete(
    context: typer.Context,
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="The objects' type.")],
    partition_uuid: PartitionUuidOption = "",
    sub_type: SubTypeOption = "",
) -> None:
    """Remove a definition, so that the next less explicit one holds."""
    own = own_context(context)
    scope = _scope(object_type, partition_uuid, sub_type)
    if not own.client.metadata.definition_delete(scope=scope).num_deleted:
        raise EndedError(5, "object could not be found.")
    own.output.done("deleted", {"deleted": 1})


def _scope(object_type: str, partition_uuid: str, sub_type: str) -> dict[str, str]:
    return {"partition_uuid": partition_uuid, "object_type_code": object_type, "sub_type_code": sub_type}
