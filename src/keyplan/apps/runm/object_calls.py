"""The calls on objects: the way in from the wire, with the original's checks in its order."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from msgspec import structs

from keyplan.apps.runm.answers import object_message, object_record, property_records
from keyplan.apps.runm.calls import CheckedCall, GivenCall, performs
from keyplan.apps.runm.deletion import delete, deleted_objects, restore
from keyplan.apps.runm.deployment import Deployment, State, Stored
from keyplan.apps.runm.identity import checked_uuid, parsed_uuid, spelled_project
from keyplan.apps.runm.layout import ObjectName, PartitionObjectName
from keyplan.apps.runm.objects import create, created, get, update
from keyplan.apps.runm.operations import MetadataOperations
from keyplan.apps.runm.ordering import options_of
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import Object, ObjectTypeScope, Property
from keyplan.apps.runm.refusal import invalid, missing, not_found, property_named
from keyplan.apps.runm.search import OBJECT_FIELDS, search
from keyplan.apps.runm.warm_creates import warm_create
from keyplan.apps.runm.warm_finds import WarmFind
from keyplan.apps.runm.warm_gets import WarmGetByName, WarmGetByUuid
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import InvalidKeyError
from keyplan.store import KeyRef

__all__ = [
    "object_create",
    "object_delete_by_uuids",
    "object_deleted_find",
    "object_find",
    "object_get_by_name",
    "object_get_by_uuid",
    "object_modify",
    "object_restore",
    "object_update",
]


def _ahead_of_uuid(deployment: Deployment, request: Any, partition: UUID | None) -> Iterable[KeyRef]:
    uuid = parsed_uuid(request.uuid)
    return () if uuid is None else deployment.ahead.of_objects([uuid], partition)


@performs(MetadataOperations, ahead=_ahead_of_uuid, short=WarmGetByUuid)
def object_get_by_uuid(call: CheckedCall) -> Any:
    if not call.request.uuid:
        raise missing("UUID is required.")
    return _visible(call, parsed_uuid(call.request.uuid) or checked_uuid(call.request.uuid))


def _ahead_of_name(deployment: Deployment, request: Any, session_partition: UUID | None) -> Iterator[KeyRef]:
    """Where the name of a request by name most likely points."""
    ahead = deployment.ahead
    partition = parsed_uuid(request.partition_uuid) or session_partition
    kind = deployment.known_type(request.object_type_code)
    if partition is not None and kind is not None and request.name:
        has_project = kind.scope is ObjectTypeScope.PROJECT
        project = spelled_project(request.project or request.session.project) if has_project else ""
        if project or not has_project:
            yield from ahead.of_name(partition, kind.code, project, request.name)
    yield from ahead.of_partitions([request.partition_uuid])


@performs(MetadataOperations, ahead=_ahead_of_name, short=WarmGetByName)
def object_get_by_name(call: CheckedCall) -> Any:
    request, state, caller = call.request, call.state, call.caller
    if not request.name:
        raise missing("name is required.")
    if not request.object_type_code:
        raise missing("object type code is required.")
    kind = call.deployment.required_type(request.object_type_code)
    partition = state.required_partition(request.partition_uuid) if request.partition_uuid else caller.partition
    project = spelled_project(request.project) or caller.project
    try:
        if kind.scope is ObjectTypeScope.PROJECT:
            key = ObjectName(partition, kind.code, project, request.name)
            uuid = state.runm.objects_by_project_and_name.key_of(key)
        else:
            uuid = state.runm.objects_by_name.key_of(PartitionObjectName(partition, kind.code, request.name))
    except InvalidKeyError:
        uuid = None
    if uuid is None:
        raise not_found()
    state.read_ahead(state.ahead.of_objects([uuid], partition))
    return _visible(call, uuid)


def _ahead_of_search(deployment: Deployment, request: Any, _: UUID | None) -> Iterable[KeyRef]:
    named = (uuid for one in request.any for uuid in one.partition_filter.uuids)
    return (*deployment.ahead.of_partitions(named), *deployment.ahead.of_index_states())


@performs(MetadataOperations, ahead=_ahead_of_search, short=WarmFind)
def object_find(call: CheckedCall) -> Iterator[Any]:
    options = options_of(call.request.options, OBJECT_FIELDS, identity="uuid")
    return search(call.deployment, call.caller, call.state, call.request.any, options)


@performs(MetadataOperations, checks_session=True)
def object_create(call: GivenCall) -> Any:
    made = warm_create(call)
    if made is not None:
        return made
    # Why the session is checked here: in the transaction, with what the object is checked against, it takes no round trip.
    deployment, request = call.deployment, call.request
    given = request.object
    new_uuid = uuid4()

    def work(state: State) -> Stored:
        checked = call.checked(state)
        if not given.object_type:
            raise missing("object type is required.")
        if not given.partition:
            raise missing("partition is required.")
        partition = checked.state.required_partition(given.partition)
        deployment.required_type(given.object_type)
        record = object_record(given, partition, checked_uuid(given.uuid) if given.uuid else new_uuid)
        return create(deployment, state, checked.caller, record)

    stored = created(deployment, work, *_places_of_new(deployment, request, new_uuid))
    return messages.ObjectCreateResponse(object=object_message(stored))


@performs(MetadataOperations)
def object_delete_by_uuids(call: CheckedCall) -> Callable[[], Any]:
    if not call.request.uuids:
        raise missing("at least one UUID is required.")
    uuids = [checked_uuid(text) for text in call.request.uuids]
    return lambda: messages.DeleteResponse(num_deleted=delete(call.deployment, call.caller, uuids))


@performs(MetadataOperations)
def object_deleted_find(call: CheckedCall) -> Iterator[Any]:
    options = options_of(call.request.options, ("uuid",), identity="uuid")
    if not options.is_by_identity:
        raise invalid("deleted objects are listed by uuid, ascending.")
    every = deleted_objects(call.deployment, call.caller, call.state, options.after)
    make = messages.DeletedObject
    return (
        make(object=object_message(Stored(one.object, 0, 0)), deleted_at=one.deleted_at, user=one.user)
        for one in list(islice(every, options.limit or None))
    )


@performs(MetadataOperations)
def object_restore(call: CheckedCall) -> Callable[[], Any]:
    if not call.request.uuid:
        raise missing("UUID is required.")
    uuid = checked_uuid(call.request.uuid)

    def restored() -> Any:
        return messages.ObjectRestoreResponse(object=object_message(restore(call.deployment, call.caller, uuid)))

    return restored


@performs(MetadataOperations)
def object_update(call: CheckedCall) -> Callable[[], Any]:
    given = call.request.object

    def change(old: Object) -> Object:
        partition = checked_uuid(given.partition) if given.partition else old.partition
        wanted = object_record(given, partition, old.uuid)
        return structs.replace(
            wanted, object_type=wanted.object_type or old.object_type, project=wanted.project or old.project
        )

    return _updating(call, given.uuid, given.generation, change)


@performs(MetadataOperations)
def object_modify(call: CheckedCall) -> Callable[[], Any]:
    request = call.request

    def change(old: Object) -> Object:
        set_values = {one.key: one.value for one in property_records(request.set_properties)}
        removed = frozenset(request.remove_property_keys)
        kept = {one.key: one.value for one in old.properties if one.key not in removed}
        if both := removed & set_values.keys():
            raise invalid(f"{property_named(min(both))} is both set and removed.")
        gone = frozenset(request.remove_tags)
        return structs.replace(
            old,
            name=request.name or old.name,
            properties=tuple(Property(key, value) for key, value in {**kept, **set_values}.items()),
            tags=(*(tag for tag in old.tags if tag not in gone), *request.add_tags),
        )

    return _updating(call, request.uuid, request.generation, change)


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _updating(call: CheckedCall, uuid: str, generation: int, change: Callable[[Object], Object]) -> Callable[[], Any]:
    if not uuid:
        raise missing("UUID is required.")
    known = checked_uuid(uuid)

    def updated() -> Any:
        stored = update(call.deployment, call.caller, known, generation, change)
        return messages.ObjectUpdateResponse(object=object_message(stored))

    return updated


def _places_of_new(deployment: Deployment, request: Any, new_uuid: UUID) -> Iterator[KeyRef]:
    """What the creation of an object looks at."""
    given, ahead = request.object, deployment.ahead
    partition = parsed_uuid(given.partition)
    yield from ahead.of_session(request, ahead.partition_of(request))
    yield from ahead.of_partitions([given.partition])
    kind = deployment.known_type(given.object_type)
    if partition is None or kind is None or not given.name:
        return
    yield from ahead.of_scope(Scope(partition, kind.code))
    yield from ahead.of_objects([parsed_uuid(given.uuid) or new_uuid], None)
    if bool(given.project) == (kind.scope is ObjectTypeScope.PROJECT):
        yield from ahead.of_name(partition, kind.code, spelled_project(given.project), given.name)


def _visible(call: CheckedCall, uuid: UUID) -> Any:
    stored, rules = get(call.deployment, call.caller, call.state, uuid)
    return object_message(Stored(rules.visible(stored.record), stored.generation, stored.revision))
