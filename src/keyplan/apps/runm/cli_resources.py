"""What `runm` lists, shows and makes: a table of resources, each with its three commands as far as it has them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.apps.runm.cli_frame import (
    Context,
    FileOption,
    FilterOption,
    LimitOption,
    MarkerOption,
    Paging,
    SortOption,
    command_group,
    document_of,
    listed,
    own_context,
)
from keyplan.apps.runm.expressions import provider_expression, search_of
from keyplan.apps.runm.rendering import OBJECT_TYPE, PARTITION, PROVIDER, PROVIDER_TYPE, Shown

__all__ = ["GROUPS", "RESOURCES", "Resource"]

_SEARCH: Final = typer.Argument(metavar="search", help="A UUID or a name.")
_CODE: Final = typer.Argument(metavar="code")


class Resource(NamedTuple):
    """Something that a deployment has several of: how it is shown, and what its commands do, each with its help.

    `list` finds what fits any of the filters, `get` what an argument names, `create` makes what a document says.
    """

    name: str
    help: str
    shown: Shown
    list_help: str
    list: Callable[[Context, Sequence[str], Paging], Iterable[Any]]
    get_help: str
    get: Callable[[Context, str], Any]
    argument: Any = _SEARCH
    create_help: str = ""
    create: Callable[[Context, bytes], Any] | None = None


def _group(resource: Resource) -> typer.Typer:
    """Return the group of a resource's commands."""
    group, shown = command_group(), resource.shown

    @group.command("list", help=resource.list_help)
    def _list(
        context: typer.Context,
        filters: FilterOption = None,
        limit: LimitOption = 0,
        marker: MarkerOption = "",
        sort: SortOption = None,
    ) -> None:
        own = own_context(context)
        own.output.many(resource.list(own, filters or (), Paging(limit, marker, sort)), shown)

    @group.command("get", help=resource.get_help)
    def _get(context: typer.Context, search: Annotated[str, resource.argument]) -> None:
        own = own_context(context)
        own.output.one(resource.get(own, search), shown)

    make = resource.create
    if make is not None:

        @group.command("create", help=resource.create_help)
        def _create(context: typer.Context, file: FileOption = None) -> None:
            own = own_context(context)
            own.output.made(make(own, document_of(file)), shown)

    return group


# ---- the table ---------------------------------------------------------------------------------------------------------


def _code_filter(text: str) -> dict[str, Any]:
    return {"code_filter": {"code": text.removesuffix("*"), "use_prefix": text.endswith("*")}}


RESOURCES: Final = (
    Resource(
        "partition",
        "Partitions of the deployment.",
        PARTITION,
        "List partitions, all or those of a UUID or name; a star at the end asks for the beginning.",
        lambda own, filters, paging: own.client.api.partition_list(
            any=[{"primary_filter": search_of(one)} for one in filters], options=paging.options
        ),
        "Show a partition.",
        lambda own, search: own.client.api.partition_get(filter={"primary_filter": {"search": search}}),
        create_help="Make the partition of a document: name, and a uuid where it is to be a certain one. Prints its UUID.",
        create=lambda own, document: own.client.api.partition_create(payload=document).partition,
    ),
    Resource(
        "provider-type",
        "Types of providers.",
        PROVIDER_TYPE,
        "List provider types, all or those of a code.",
        lambda own, filters, paging: own.client.api.provider_type_list(
            any=[search_of(one) for one in filters], options=paging.options
        ),
        "Show a provider type.",
        lambda own, code: own.client.api.provider_type_get(filter={"search": code}),
        argument=_CODE,
    ),
    Resource(
        "provider",
        "Providers of resources.",
        PROVIDER,
        "List providers. A filter is words that must all hold: partition=, type=, uuid=, name=, or a property's key.",
        lambda own, filters, paging: listed(
            own.client.api.provider_list, [provider_expression(one) for one in filters], paging
        ),
        "Show a provider of the session's partition.",
        lambda own, search: own.client.api.provider_get(filter={"primary_filter": {"search": search}}),
        create_help="Make the provider of a document, which its definition must allow. Prints its UUID.",
        create=lambda own, document: own.client.api.provider_create(payload=document).provider,
    ),
    Resource(
        "object-type",
        "Types of objects.",
        OBJECT_TYPE,
        "List object types, all or those of a code.",
        lambda own, filters, paging: own.client.metadata.object_type_find(
            any=[_code_filter(one) for one in filters], options=paging.options
        ),
        "Show an object type.",
        lambda own, code: own.client.metadata.object_type_get_by_code(code=code),
        argument=_CODE,
    ),
)
"""What has nothing but these commands, or them as they are here; objects have a type beside their names: see `cli_objects`."""

GROUPS: Final = {resource.name: _group(resource) for resource in RESOURCES}
"""The group of each resource's commands, by name."""
