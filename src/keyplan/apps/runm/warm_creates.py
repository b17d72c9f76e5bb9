"""The call that makes one object, by a way that is short where calls are alike: the same session, the same place and type.

What a session may make there, and what it must fit, is worked out once by the functions that all calls use, in a transaction;
what that has read is kept as the guards that it would have committed with. A call then reads nothing: it commits its object
under those guards, with those of the object. Where one does not hold, nothing was written, and the long way says what is so;
it says all that is refused: this way has no errors of its own.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from keyplan.apps.runm.answers import object_record
from keyplan.apps.runm.bounds import Bounds
from keyplan.apps.runm.calls import GivenCall
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.identity import decorated_object, parsed_uuid, require_key_lengths, spelled_project
from keyplan.apps.runm.objects import CreationTerms, creation_terms
from keyplan.apps.runm.read_ahead import Scope, remember
from keyplan.apps.runm.records import Object, ObjectType
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.wire_table import messages
from keyplan.engine import NO_LEASE, Commit, Guard, KeyAbsent, KeyUnchanged
from keyplan.errors import CommitConflictError, CorruptionError, EngineLimitError, RecordError
from keyplan.store import RecordState, plan_insertion

__all__ = ["warm_create"]

_PLACE_BYTES_MAX: Final = 2_000
"""Bytes of a session and a place that are kept. Why: clients write them, and thousands are kept."""

_TERMS_BYTES_MAX: Final = 20_000
"""Bytes of what objects must fit, kept with each place. Why: as above, and each place of a large definition has its own."""


class _Known(NamedTuple):
    """What holds for new objects of one place and session, in every state in which the guards hold."""

    partition: UUID
    kind: ObjectType
    terms: CreationTerms
    guards: tuple[Guard, ...]
    epoch: str

    @property
    def raw_keys(self) -> frozenset[bytes]:
        """The keys that the guards are on."""
        return frozenset(one.key for one in self.guards if isinstance(one, KeyAbsent | KeyUnchanged))


def warm_create(call: GivenCall) -> Any | None:
    """Store the object of a request and return the answer; None where the long way has to do it, and nothing was written.

    Raises what an engine does that cannot commit, CommitOutcomeUnknownError among it.
    """
    deployment, given = call.deployment, call.request.object
    uuid = parsed_uuid(given.uuid) if given.uuid else uuid4()
    if uuid is None:
        return None
    place = _place_of(call.request, call.bounds)
    known = deployment.ahead.creators.get(place)
    if known is None:
        known = _learnt(call)
        if known is None:
            return None
        remember(deployment.ahead.creators, place, known)
    message = _stored_message(given, known.partition, uuid)
    insertion = _insertion(deployment, known, object_record(message, known.partition, uuid), message)
    if insertion is None:
        return None
    try:
        deployment.store.engine.commit(Commit((*insertion.guards, *known.guards), insertion.mutations, known.epoch))
    except CommitConflictError as conflict:
        failed = conflict.facts.get("failed", ())
        # Why: a name that is taken says nothing of what is known.
        if not isinstance(failed, tuple) or not failed or any(one.key in known.raw_keys for one in failed):
            deployment.ahead.creators.pop(place, None)
        return None
    except EngineLimitError:
        return None
    message.generation = 1
    return messages.ObjectCreateResponse(object=message)


def _place_of(request: Any, bounds: Bounds) -> object:
    session, given = request.session, request.object
    return (
        *(session.user, session.partition, session.project, tuple(session.roles)),
        *(bounds, given.partition, given.object_type, given.project),
    )


def _learnt(call: GivenCall) -> _Known | None:
    """Return what holds for objects that are made as this one, worked out as the long way does; None where it refuses it."""
    deployment, given = call.deployment, call.request.object
    place_bytes = len(given.partition) + len(given.object_type) + len(given.project)
    if call.request.session.ByteSize() + place_bytes > _PLACE_BYTES_MAX:
        return None
    ahead = deployment.ahead
    refs = [*ahead.of_session(call.request, ahead.partition_of(call.request)), *ahead.of_partitions([given.partition])]
    named = parsed_uuid(given.partition)
    if named is not None and deployment.known_type(given.object_type) is not None:
        refs += ahead.of_scope(Scope(named, given.object_type))
    with deployment.store.transaction() as transaction:
        state = deployment.over(transaction, *refs)
        try:
            checked = call.checked(state)
            partition = checked.state.required_partition(given.partition)
            kind = deployment.required_type(given.object_type)
            project = spelled_project(given.project)
            checked.caller.require_place(Object(partition, kind.code, partition, "", project))
            terms = creation_terms(deployment, state, checked.caller, Scope(partition, kind.code), project)
        except (RefusedError, CorruptionError):
            return None
        if terms.size > _TERMS_BYTES_MAX:
            return None
        premises = transaction.collected()
    # Why no ranges: what was listed would be compared with each object that is made.
    if not all(isinstance(one, KeyAbsent | KeyUnchanged) for one in premises.guards):
        return None
    return _Known(partition, kind, terms, premises.guards, premises.epoch)


def _stored_message(given: Any, partition: UUID, uuid: UUID) -> Any:
    """Return the message of an object as it is stored: in its one spelling, and each tag once."""
    message = messages.Object()
    message.CopyFrom(given)
    message.DiscardUnknownFields()
    message.ClearField("generation")
    message.partition, message.uuid, message.project = partition.hex, uuid.hex, spelled_project(given.project)
    if len(set(given.tags)) < len(given.tags):
        message.tags[:] = dict.fromkeys(given.tags)
    return message


def _insertion(deployment: Deployment, known: _Known, record: Object, message: Any) -> Commit | None:
    """Return the commit of an object alone; None for one that the long way refuses."""
    try:
        kept = decorated_object(record, known.kind)
        raw_key, raw_value, entries, unique = deployment.bound.table("objects").encoded_record(
            kept.uuid, kept, message.SerializeToString()
        )
        require_key_lengths(entries)
        known.terms.require(kept)
    except (RefusedError, RecordError):
        return None
    return plan_insertion(raw_key, RecordState(raw_value, NO_LEASE, entries, 0, unique))
