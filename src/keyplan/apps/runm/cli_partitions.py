"""The commands `runm partition`, `runm provider-type`, `runm object-type` and `runm bootstrap`."""

from typing import Annotated, Any

import typer

from keyplan.apps.runm.cli_frame import (
    FileOption,
    FilterOption,
    LimitOption,
    MarkerOption,
    SortOption,
    command_group,
    document_of,
    options_of,
    own_context,
)
from keyplan.apps.runm.expressions import search_of
from keyplan.apps.runm.rendering import partition_lines, type_lines

__all__ = ["bootstrap", "object_types", "partitions", "provider_types"]

partitions = command_group()
provider_types = command_group()
object_types = command_group()


@partitions.command("list")
def partition_list(
    context: typer.Context,
    filters: FilterOption = None,
    limit: LimitOption = 0,
    marker: MarkerOption = "",
    sort: SortOption = None,
) -> None:
    """List partitions, all or those of a UUID or name; a star at the end asks for the beginning."""
    own = own_context(context)
    found = own.client.api.partition_list(
        any=[{"primary_filter": search_of(one)} for one in filters or ()],
        options=options_of(limit, marker, sort),
    )
    own.output.many(found, ("UUID", "Name"), lambda one: [one.uuid, one.name], 0)


@partitions.command("get")
def partition_get(context: typer.Context, search: Annotated[str, typer.Argument(help="A UUID or a name.")]) -> None:
    """Show a partition."""
    own = own_context(context)
    found = own.client.api.partition_get(filter={"primary_filter": {"search": search}})
    own.output.one(found, partition_lines(found), found.uuid)


@partitions.command("create")
def partition_create(context: typer.Context, file: FileOption = None) -> None:
    """Make the partition of a document: name, and a uuid where it is to be a certain one. Prints its UUID."""
    own = own_context(context)
    made = own.client.api.partition_create(payload=document_of(file)).partition
    own.output.made(made, partition_lines(made), made.uuid)


def bootstrap(
    context: typer.Context,
    token: Annotated[str, typer.Argument(help="The bootstrap token that the service was started with.")],
    name: Annotated[str, typer.Argument(metavar="PARTITION", help="The partition's name.")],
    partition_uuid: Annotated[str, typer.Option("--partition-uuid", help="Its UUID; a new one without it.")] = "",
) -> None:
    """Make the first partition of a deployment, by the token. Prints its UUID."""
    own = own_context(context)
    fields: dict[str, Any] = {"bootstrap_token": token, "partition_name": name}
    if partition_uuid:
        fields["partition_uuid"] = {"value": partition_uuid}
    made = own.client.metadata.bootstrap(**fields).partition
    own.output.made(made, partition_lines(made), made.uuid)


@provider_types.command("list")
def provider_type_list(context: typer.Context, filters: FilterOption = None) -> None:
    """List provider types, all or those of a code."""
    own = own_context(context)
    found = own.client.api.provider_type_list(any=[search_of(one) for one in filters or ()])
    own.output.many(found, ("Code", "Description"), lambda one: [one.code, one.description], 0)


@provider_types.command("get")
def provider_type_get(context: typer.Context, code: Annotated[str, typer.Argument()]) -> None:
    """Show a provider type."""
    own = own_context(context)
    found = own.client.api.provider_type_get(filter={"search": code})
    own.output.one(found, type_lines(found), found.code)


@object_types.command("list")
def object_type_list(context: typer.Context, filters: FilterOption = None) -> None:
    """List object types, all or those of a code."""
    own = own_context(context)
    codes = [{"code_filter": {"code": one.removesuffix("*"), "use_prefix": one.endswith("*")}} for one in filters or ()]
    found = own.client.metadata.object_type_find(any=codes)
    scopes = ("PARTITION", "PROJECT")
    own.output.many(
        found, ("Code", "Scope", "Description"), lambda one: [one.code, scopes[one.scope], one.description], 0
    )


@object_types.command("get")
def object_type_get(context: typer.Context, code: Annotated[str, typer.Argument()]) -> None:
    """Show an object type."""
    own = own_context(context)
    found = own.client.metadata.object_type_get_by_code(code=code)
    own.output.one(found, type_lines(found), found.code)
