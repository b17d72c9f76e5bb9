"""The commands `runm object`, and `runm provider delete`: what is more than the table of resources says."""

import sys
from typing import Annotated

import typer

from keyplan.apps.runm.cli_frame import (
    EndedError,
    FileOption,
    FilterOption,
    LimitOption,
    MarkerOption,
    Paging,
    SortOption,
    command_group,
    document_of,
    listed,
    object_named,
    own_context,
    plain_of,
)
from keyplan.apps.runm.cli_resources import GROUPS
from keyplan.apps.runm.documents import object_document, read_document
from keyplan.apps.runm.expressions import object_expression, provider_expression
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.rendering import DELETED, OBJECT
from keyplan.cli import print_json, print_text
from keyplan.errors import InvalidInputError

__all__ = ["objects", "providers"]

ObjectArgument = Annotated[str, typer.Argument(help="A UUID, or a name; --type where several types have it.")]
TypeOption = Annotated[str, typer.Option("--type", "-t", help="The type of the object of that name.")]

objects, providers = command_group(), GROUPS["provider"]


@objects.command("list")
def object_list(
    context: typer.Context,
    filters: FilterOption = None,
    limit: LimitOption = 0,
    marker: MarkerOption = "",
    sort: SortOption = None,
) -> None:
    """List objects. A filter is words that must all hold: partition=, type=, project=, uuid=, name=, tag=, or a property."""
    own = own_context(context)
    expressions = [object_expression(one) for one in filters or ()]
    own.output.many(listed(own.client.metadata.object_find, expressions, Paging(limit, marker, sort)), OBJECT)


@objects.command("get")
def object_get(context: typer.Context, search: ObjectArgument, object_type: TypeOption = "") -> None:
    """Show an object."""
    own = own_context(context)
    own.output.one(object_named(own, search, object_type), OBJECT)


@objects.command("create")
def object_create(context: typer.Context, file: FileOption = None) -> None:
    """Make the object of a document; partition and project are the session's unless it says otherwise. Prints its UUID."""
    own = own_context(context)
    given = object_document(read_document(document_of(file)))
    partition = given.partition or own.connection.partition
    if parsed_uuid(partition) is None and partition:
        partition = own.client.api.partition_get(filter={"primary_filter": {"search": partition}}).uuid
    kinds = {one.code: one.scope for one in own.client.metadata.object_type_find()}
    project = given.project or (own.connection.project if kinds.get(given.object_type) else "")
    made = own.client.metadata.object_create(
        object={
            "partition": partition,
            "object_type": given.object_type,
            "project": project,
            "uuid": given.uuid,
            "name": given.name,
            "properties": [{"key": one.key, "value": one.value} for one in given.properties],
            "tags": list(given.tags),
        },
    ).object
    own.output.made(made, OBJECT)


@objects.command("set")
def object_set(
    context: typer.Context,
    search: ObjectArgument,
    object_type: TypeOption = "",
    name: Annotated[str, typer.Option("--name", help="A new name.")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="Set a property; repeated.")
    ] = None,
    remove_properties: Annotated[
        list[str] | None, typer.Option("--remove-property", metavar="KEY", help="Remove a property; repeated.")
    ] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Add a tag; repeated.")] = None,
    remove_tags: Annotated[list[str] | None, typer.Option("--remove-tag", help="Remove a tag; repeated.")] = None,
    generation: Annotated[int, typer.Option(min=0, help="Only if the object is at this generation; 0: at any.")] = 0,
) -> None:
    """Change parts of an object: its name, properties and tags."""
    own = own_context(context)
    pairs = [one.partition("=") for one in properties or ()]
    for given, (key, equals, _) in zip(properties or (), pairs, strict=True):
        if not (key and equals):
            raise InvalidInputError(
                source="--property", problem=f"{given!r} is not KEY=VALUE: give a key, = and the value"
            )
    changed = own.client.metadata.object_modify(
        uuid=object_named(own, search, object_type).uuid,
        name=name,
        set_properties=[{"key": key, "value": value} for key, _, value in pairs],
        remove_property_keys=remove_properties or [],
        add_tags=tags or [],
        remove_tags=remove_tags or [],
        generation=generation,
    ).object
    own.output.made(changed, OBJECT._replace(identity=lambda _: "ok"))


@objects.command("delete")
def object_delete(
    context: typer.Context,
    searches: Annotated[list[str], typer.Argument(metavar="SEARCH", help="UUIDs; with --type, names.")],
    object_type: Annotated[str, typer.Option("--type", "-t", help="The type of the objects of these names.")] = "",
) -> None:
    """Delete objects that the session can see. With --type nothing is deleted unless every name is found."""
    own = own_context(context)
    uuids = [object_named(own, search, object_type).uuid if object_type else search for search in searches]
    count = own.client.metadata.object_delete_by_uuids(uuids=uuids).num_deleted
    if not count:
        raise EndedError(5, "no matching records could be found.")
    own.output.done(f"deleted {count} object{'' if count == 1 else 's'}", {"deleted": count})


@objects.command("deleted")
def object_deleted(context: typer.Context, limit: LimitOption = 0, marker: MarkerOption = "") -> None:
    """List deleted objects that can be restored, where the service keeps them: when they were deleted, and by whom."""
    own = own_context(context)
    own.output.many(own.client.metadata.object_deleted_find(options=Paging(limit, marker).options), DELETED)


@objects.command("restore")
def object_restore(context: typer.Context, uuid: Annotated[str, typer.Argument(metavar="UUID")]) -> None:
    """Make a deleted object again, as it was. Prints its UUID."""
    own = own_context(context)
    own.output.made(own.client.metadata.object_restore(uuid=uuid).object, OBJECT)


@objects.command("watch")
def object_watch(
    context: typer.Context,
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="The objects' type.")],
    after: Annotated[str, typer.Option("--after", help="The token of an event to go on after.")] = "",
    existing: Annotated[bool, typer.Option("--existing", help="First the objects that there are.")] = False,
) -> None:
    """Print what becomes of the objects of a type, until Ctrl-C: a line each."""
    own = own_context(context)
    for event in own.client.metadata.object_watch(object_type_code=object_type, after=after, include_existing=existing):
        if own.output.is_json:
            print_json(plain_of(event))
        else:
            shown = event.object if event.HasField("object") else event.previous
            print_text("\t".join([("inserted", "changed", "removed")[event.kind], shown.uuid, shown.name, event.token]))
        sys.stdout.flush()


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
