"""The two calls that get one object, by a way that is short where calls are alike: the same session, the same types.

What a session may see, and what the definitions of a type let it see, is worked out once by the functions that all calls use,
and kept with the values that it was made from. A call reads those again, in one state with its object: while they are the
same, so is what follows. The object goes from stored bytes to the answer's without becoming a record. Whatever is not as
expected is left to the long way, which has the errors: so this one raises none, and answers nothing that the other would not.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.calls import GivenCall
from keyplan.apps.runm.deployment import PROVIDER, Deployment, generation_of
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.kept_rules import bytes_of
from keyplan.apps.runm.layout import ObjectName, PartitionObjectName
from keyplan.apps.runm.objects import RulesByScope
from keyplan.apps.runm.permission import PropertyRules
from keyplan.apps.runm.read_ahead import remember
from keyplan.apps.runm.records import Object, ObjectType, ObjectTypeScope
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.shown import spelled_generation, whole_object
from keyplan.engine import Entry, Fences, Snapshot
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.layout import BoundIndex
from keyplan.store import NotedState, raw_keys_of

__all__ = ["WarmGetByName", "WarmGetByUuid"]

_SESSION_BYTES_MAX: Final = 2_000
"""Bytes of a session that is kept. Why: clients write them, thousands are kept, and a request may have four megabytes."""

_FENCES_MAX: Final = 64
"""Values that a session is kept with; it is begun anew for more. Why: all are compared after each commit to the store."""

_FENCE_BYTES_MAX: Final = 20_000
"""Bytes of those values. Why: a definition may have four megabytes, each session has its own, and thousands are kept."""


class _Session:
    """A checked session, and what its caller sees of objects by their place, in every state in which the fences hold.

    Invariant: what is added to `rules` was found in such a state, and hangs on nothing else.
    """

    __slots__ = ("caller", "fences", "partition", "rules")

    def __init__(self, caller: Caller, fences: Fences, rules: "dict[_Place, PropertyRules]") -> None:
        self.caller = caller
        self.partition = caller.partition.hex
        self.fences = fences
        self.rules = rules


_Place: TypeAlias = tuple[str, str]
"""The type and the project of objects that a session sees, as they are stored."""


class _WarmGet:
    """What both calls have in common. Safe for use by several threads: what is kept is written at once."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._engine = deployment.store.engine
        self._reads_wait = not self._engine.profile.has_local_reads
        self._encode = deployment.bound.table("objects").keys.encode
        self._sessions: dict[object, _Session] = deployment.ahead.sessions

    def _warm(self, spelled: object, session: _Session, uuid: UUID, snapshot: Snapshot) -> bytes | None:
        """Return the answer with the object of a UUID, read in one call with what is known, or None."""
        if self._reads_wait:
            snapshot.read_along([key for key, _ in session.fences])
        entry = snapshot.get(self._encode(uuid))
        if not snapshot.holds(session.fences):
            # Why this one alone: who changes a definition again and again shall make nobody else slow.
            self._sessions.pop(spelled, None)
            return None
        return self._answer(spelled, session, uuid, entry, snapshot)

    def _learnt(self, request: Any, bounds: Bounds, noted: NotedState, uuids: Sequence[UUID]) -> _Session | None:
        """Check the session of a request in a state, and keep what follows; None for one that is refused, or too long."""
        if request.session.ByteSize() > _SESSION_BYTES_MAX:
            return None
        ahead = self._deployment.ahead
        partition = ahead.partition_of(request)
        refs = *ahead.of_session(request, partition), *ahead.of_objects(uuids, partition), *ahead.of_types(partition)
        state = self._deployment.over(noted, *refs)
        try:
            caller = GivenCall(self._deployment, request, bounds, bool).checked(state).caller
        except (RefusedError, CorruptionError):
            return None
        fences = noted.fences()
        if fences is None:
            return None
        session = _Session(caller, fences, {})
        if bytes_of(fences) <= _FENCE_BYTES_MAX:
            remember(self._sessions, _spelled(request, bounds), session)
        return session

    def _answer(
        self,
        spelled: object,
        session: _Session,
        uuid: UUID,
        entry: Entry | None,
        snapshot: Snapshot,
        noted: NotedState | None = None,
    ) -> bytes | None:
        """Return the answer with an object; the fences of the session hold in the snapshot.

        `noted` is the state that the session was checked in, if it was just now.
        """
        if entry is None:
            return None
        message = whole_object(entry.value)
        if message is None or message.uuid != uuid.hex or message.partition != session.partition:
            return None
        rules = session.rules.get((message.object_type, message.project))
        if rules is None:
            record = Object(session.caller.partition, message.object_type, uuid, message.name, message.project)
            rules = self._rules_of(spelled, session, record, noted or self._noted(snapshot))
            if rules is None:
                return None
        generation = entry.version or generation_of(0, entry.mod_revision)
        if not rules.hides:
            return entry.value + spelled_generation(generation)
        rules.hide(message.properties)
        message.generation = generation
        answer: bytes = message.SerializeToString()
        return answer

    def _rules_of(self, spelled: object, session: _Session, record: Object, noted: NotedState) -> PropertyRules | None:
        """Return what holds for objects as this one, and keep it; None for one that is not seen, or needs the long way."""
        caller, code = session.caller, record.object_type
        # Why no provider: what holds for one hangs on a record beside it.
        if code == PROVIDER:
            return None
        state = self._deployment.over(noted)
        try:
            # Why read: whether its objects have projects is kept with the rest, while the type is as it is. Why first: another
            # thread may read the types anew meanwhile, and who may see the object would have been told by the former one.
            if self._deployment.object_type(code) != state.runm.object_types.get(code):
                return None
            if not caller.may_see(record, self._deployment):
                return None
            rules = RulesByScope(state, caller.reader).of(record)
        except CorruptionError:
            return None
        more = noted.fences()
        if more is None:
            return None
        if bytes_of(more) > _FENCE_BYTES_MAX:
            return rules
        fences = dict((*session.fences, *more))
        if len(fences) > _FENCES_MAX or bytes_of(fences.items()) > _FENCE_BYTES_MAX:
            self._sessions.pop(spelled, None)
            return rules
        if len(fences) > len(session.fences):
            session = _Session(caller, tuple(fences.items()), dict(session.rules))
            remember(self._sessions, spelled, session)
        remember(session.rules, (code, record.project), rules)
        return rules

    def _noted(self, snapshot: Snapshot) -> NotedState:
        return NotedState.over(snapshot, self._engine, secrets=self._deployment.store.secrets)


class WarmGetByUuid(_WarmGet):
    """`object_get_by_uuid`: takes a request and what it may reach, gives the answer's bytes or None."""

    def __call__(self, request: Any, bounds: Bounds) -> bytes | None:
        uuid = parsed_uuid(request.uuid)
        if uuid is None:
            return None
        spelled = _spelled(request, bounds)
        session = self._sessions.get(spelled)
        with self._engine.snapshot() as snapshot:
            if session is not None:
                return self._warm(spelled, session, uuid, snapshot)
            noted = self._noted(snapshot)
            session = self._learnt(request, bounds, noted, [uuid])
            if session is None:
                return None
            return self._answer(spelled, session, uuid, noted.entry(self._encode(uuid)), snapshot, noted)


class WarmGetByName(_WarmGet):
    """`object_get_by_name`: as above, for requests that name no partition but the session's."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._indexes = deployment.bound.indexes

    def __call__(self, request: Any, bounds: Bounds) -> bytes | None:
        kind = self._deployment.known_type(request.object_type_code)
        if kind is None or request.partition_uuid or not request.name:
            return None
        spelled = _spelled(request, bounds)
        session = self._sessions.get(spelled)
        with self._engine.snapshot() as snapshot:
            if session is None:
                # Why then the long way: it reads the name with the session, in one call; the next one is warm.
                self._learnt(request, bounds, self._noted(snapshot), ())
                return None
            index, key = self._name(kind, session.caller, request)
            try:
                raw_keys = raw_keys_of([(index, key)])
            except InvalidKeyError:
                return None
            stage, entry = snapshot.get_many(raw_keys)
            if stage is not None or entry is None:
                return None
            uuid = index.primary_key(entry.key, entry.value)
            return self._warm(spelled, session, uuid, snapshot) if isinstance(uuid, UUID) else None

    def _name(self, kind: ObjectType, caller: Caller, request: Any) -> tuple[BoundIndex, object]:
        if kind.scope is ObjectTypeScope.PROJECT:
            project = spelled_project(request.project) or caller.project
            key = ObjectName(caller.partition, kind.code, project, request.name)
            return self._indexes["objects_by_project_and_name"], key
        return self._indexes["objects_by_name"], PartitionObjectName(caller.partition, kind.code, request.name)


def _spelled(request: Any, bounds: Bounds) -> object:
    """What a session is kept by. Why its bytes: they are made by one call of protobuf's own code."""
    raw = request.session.SerializeToString()
    return raw if bounds is UNBOUNDED else (raw, bounds)
