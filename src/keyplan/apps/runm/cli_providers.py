"""The commands `runm provider`."""

from typing import Annotated

import typer

from keyplan.apps.runm.cli_frame import (
    EndedError,
    FileOption,
    FilterOption,
    LimitOption,
    MarkerOption,
    SortOption,
    command_group,
    document_of,
    listed,
    own_context,
)
from keyplan.apps.runm.expressions import provider_expression
from keyplan.apps.runm.rendering import provider_lines, provider_row

__all__ = ["providers"]

providers = command_group()


@providers.command("list")
def provider_list(
    context: typer.Context,
    filters: FilterOption = None,
    limit: LimitOption = 0,
    marker: MarkerOption = "",
    sort: SortOption = None,
) -> None:
    """List providers. A filter is words that must all hold: partition=, type=, uuid=, name=, or a property's key."""
    own = own_context(context)
    expressions = [provider_expression(one) for one in filters or ()]
    found = listed(own.client.api.provider_list, expressions, limit, marker, sort)
    own.output.many(found, ("Partition", "Provider Type", "UUID", "Name"), provider_row, 2)


@providers.command("get")
def provider_get(context: typer.Context, search: Annotated[str, typer.Argument(help="A UUID or a name.")]) -> None:
    """Show a provider of the session's partition."""
    own = own_context(context)
    found = own.client.api.provider_get(filter={"primary_filter": {"search": search}})
    own.output.one(found, provider_lines(found), found.uuid)


@providers.command("create")
def provider_create(context: typer.Context, file: FileOption = None) -> None:
    """Make the provider of a document, which its definition must allow. Prints its UUID."""
    own = own_context(context)
    made = own.client.api.provider_create(payload=document_of(file)).provider
    own.output.made(made, provider_lines(made), made.uuid)


@providers.command("delete")
def provider_delete(
    context: typer.Context,
    searches: Annotated[list[str] | None, typer.Argument(metavar="ID", help="UUIDs or names.")] = None,
    filters: FilterOption = None,
) -> None:
    """Delete providers by UUID, name or filter."""
    own = own_context(context)
    expressions = [provider_expression(one) for one in filters or ()]
    wanted = [{"primary_filter": {"search": one}} for one in searches or ()]
    for expression in expressions:
        if expression.property_prefixes:
            # Why: the service matches values whole; what fits by its beginning is found first, and named by UUID.
            found = own.client.api.provider_list(any=[expression.fields])
            wanted += [{"primary_filter": {"search": one.uuid}} for one in found if expression.fits(one)]
        else:
            wanted.append(expression.fields)
    if not wanted and expressions:
        raise EndedError(5, "no matching records could be found.")
    count = own.client.api.provider_delete(any=wanted).num_deleted
    own.output.done(f"deleted {count} provider(s)", {"deleted": count})
