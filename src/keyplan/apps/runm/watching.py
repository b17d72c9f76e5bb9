"""The stream of what becomes of the objects of one type: an extension, over the index of their names."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from keyplan.apps.runm.answers import object_message
from keyplan.apps.runm.calls import CheckedCall, performs
from keyplan.apps.runm.deployment import Deployment, State, Stored
from keyplan.apps.runm.objects import RulesByScope, stored_objects
from keyplan.apps.runm.operations import MetadataOperations
from keyplan.apps.runm.readable import log_damage, readable
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope
from keyplan.apps.runm.refusal import missing
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import CorruptionError
from keyplan.layout import Change, ChangeKind, Changes, UniqueView

__all__ = ["object_watch"]

_POLL_SECONDS = 0.5
"""How long a stream can go on after its client has left or the server stops."""

_BATCH = 128
"""Objects that are there already, read at once."""

_KINDS = {ChangeKind.INSERTED: 0, ChangeKind.CHANGED: 1, ChangeKind.REMOVED: 2}

_ObjectEvent = messages.ObjectEvent


@performs(MetadataOperations)
def object_watch(call: CheckedCall) -> Iterator[Any]:
    deployment, request, state, caller = call.deployment, call.request, call.state, call.caller
    if not request.object_type_code:
        raise missing("object type code is required.")
    kind = deployment.required_type(request.object_type_code)
    partition = _partition_of(call, request.partition_uuid)
    existing = _existing(state, caller, partition, kind) if request.include_existing else []
    after = request.after or (state.runm.revision if request.include_existing else None)

    def events() -> Iterator[Any]:
        with _watched(deployment, caller, partition, kind, after) as changes:
            yield from _events_of_existing(deployment, caller, partition, kind, existing)
            while call.is_wanted():
                yield from _events(deployment, caller, changes)

    return events()


def _watched(
    deployment: Deployment, caller: Caller, partition: UUID, kind: ObjectType, after: int | str | None
) -> Changes[UUID, Object]:
    # Why bound anew: a watch has a view of its own.
    if kind.scope is ObjectTypeScope.PROJECT:
        projects = () if caller.has_every_project else (caller.project,)
        return deployment.runm.objects_by_project_and_name.watch(partition, kind.code, *projects, after=after)
    return deployment.runm.objects_by_name.watch(partition, kind.code, after=after)


def _existing(state: State, caller: Caller, partition: UUID, kind: ObjectType) -> list[UUID]:
    index: UniqueView[Any, UUID, Object]
    if kind.scope is ObjectTypeScope.PROJECT:
        place: tuple[object, ...] = (partition, kind.code, *(() if caller.has_every_project else (caller.project,)))
        index = state.runm.objects_by_project_and_name
    else:
        place, index = (partition, kind.code), state.runm.objects_by_name
    try:
        return list(index.keys(*place))
    except CorruptionError:  # Why not so at first: it reads the objects, too.
        return [uuid for uuid, _ in readable(index.rows(*place))]


def _events_of_existing(
    deployment: Deployment, caller: Caller, partition: UUID, kind: ObjectType, uuids: list[UUID]
) -> Iterator[Any]:
    for start in range(0, len(uuids), _BATCH):
        # Why whole batches: who takes them slowly holds no snapshot.
        with deployment.reading() as state:
            events = [
                event
                for stored in stored_objects(state, uuids[start : start + _BATCH])
                if (event := _event_of_existing(deployment, state, caller, partition, kind, stored)) is not None
            ]
        yield from events


def _event_of_existing(
    deployment: Deployment,
    state: State,
    caller: Caller,
    partition: UUID,
    kind: ObjectType,
    stored: Stored | CorruptionError | None,
) -> Any:
    try:
        if isinstance(stored, CorruptionError):
            raise stored
        # Why the place: the UUID may be another tenant's object by now.
        if stored is None or (stored.record.partition, stored.record.object_type) != (partition, kind.code):
            return None
        if not _is_seen(deployment, caller, stored.record):
            return None
        visible = _visible(state, caller, stored.record)
    except CorruptionError as error:
        log_damage(error)
        return None
    return _ObjectEvent(kind=0, object=object_message(stored._replace(record=visible)))


def _events(deployment: Deployment, caller: Caller, changes: Changes[UUID, Object]) -> Iterator[Any]:
    try:
        found = changes.poll(_POLL_SECONDS)
    except CorruptionError as error:
        log_damage(error)
        return
    if found:
        with deployment.reading() as state:
            told = (change for change in found if _is_told(deployment, caller, change))
            events = [event for change in told if (event := _event(state, caller, change)) is not None]
        yield from events


def _is_told(deployment: Deployment, caller: Caller, change: Change[UUID, Object]) -> bool:
    record = change.new or change.old
    return record is None or _is_seen(deployment, caller, record)


def _is_seen(deployment: Deployment, caller: Caller, record: Object) -> bool:
    """Whether a project is the caller's to see: where its session is of all of them, the watched range has others', too."""
    return not deployment.has_project(record) or caller.sees_project(record.project)


def _event(state: State, caller: Caller, change: Change[UUID, Object]) -> Any:
    """Objects of events carry no generation: they are as they were in the event's commit, which may be long ago.

    None where nobody knows what of it may be shown.
    """
    event = _ObjectEvent(kind=_KINDS[change.kind], token=change.token)
    for name, record in (("object", change.new), ("previous", change.old)):
        if record is not None:
            try:
                visible = _visible(state, caller, record)
            except CorruptionError as error:
                log_damage(error)
                return None
            getattr(event, name).CopyFrom(object_message(Stored(visible, 0, 0)))
    return event


def _visible(state: State, caller: Caller, record: Object) -> Object:
    rules = RulesByScope(state, caller.reader)
    rules.learn([record])
    return rules.of(record).visible(record)


def _partition_of(call: CheckedCall, text: str) -> UUID:
    if not text:
        return call.caller.partition
    return call.state.required_partition(text)
