"""Who calls: the session of a request, checked in the order and with the words of the original."""

from typing import Any, NamedTuple
from uuid import UUID

from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.permission import Reader
from keyplan.apps.runm.records import Object, Partition
from keyplan.apps.runm.refusal import missing
from keyplan.errors import InvalidKeyError

__all__ = ["Caller", "caller_of", "partition_named", "required_partition_named"]


class Caller(NamedTuple):
    """A checked session."""

    user: str
    project: str
    partition: UUID
    roles: frozenset[str]

    @property
    def reader(self) -> Reader:
        """The caller as permissions see it."""
        return Reader(self.project, self.roles)

    def may_see(self, record: Object, deployment: Deployment) -> bool:
        """Whether an object is of the caller's partition, and of its project where the type has projects."""
        if record.partition != self.partition:
            return False
        return not deployment.has_project(record) or record.project == self.project


def caller_of(request: Any, state: State) -> Caller:
    """Return the caller of a request. Raises RefusedError, FAILED_PRECONDITION; an absent session is an empty one."""
    session = request.session
    if not session.user:
        raise missing("user is required in session.")
    if not session.partition:
        raise missing("partition is required in session.")
    partition = partition_named(state, session.partition)
    if partition is None:
        raise missing(f"Unknown partition '{session.partition}' specified in session")
    if not session.project:
        raise missing("project is required in session.")
    return Caller(session.user, spelled_project(session.project), partition.uuid, frozenset(session.roles))


def partition_named(state: State, text: str) -> Partition | None:
    """Return the partition of a name, or of a UUID however it is spelled; None when there is none."""
    uuid = parsed_uuid(text)
    if uuid is not None:
        return state.runm.partitions.get(uuid)
    # Why: a record with the name that it was found by before has it still; names are unique in each state.
    known = state.ahead.partition_named(text)
    record = None if known is None else state.runm.partitions.get(known)
    if record is not None and record.name == text:
        return record
    try:
        record = state.runm.partitions_by_name.one(text)
    except InvalidKeyError:
        return None  # Why: a text that no key can have, no partition has as its name.
    if record is not None:
        state.ahead.note_partition(text, record.uuid)
    return record


def required_partition_named(state: State, text: str) -> Partition:
    """Return the partition of a name or a UUID. Raises RefusedError, FAILED_PRECONDITION."""
    record = partition_named(state, text)
    if record is None:
        raise missing(f"Partition {text} not found")
    return record
