"""Who calls: the session of a request, checked in the order and with the words of the original."""

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from keyplan.apps.runm.bounds import EVERY_PROJECT, Bounds
from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.permission import Reader
from keyplan.apps.runm.records import Object, Partition
from keyplan.apps.runm.refusal import denied, invalid, missing

__all__ = ["Caller", "caller_of", "partition_named", "required_partition_named"]


class Caller(NamedTuple):
    """A checked session. `bounds` are what it may reach beyond its own partition and project.

    `has_every_project`: the session is of all projects of its principal, an administrator's view.
    """

    user: str
    project: str
    partition: UUID
    roles: frozenset[str]
    bounds: Bounds
    has_every_project: bool = False

    @property
    def reader(self) -> Reader:
        """The caller as permissions see it."""
        return Reader(self.project, self.roles, self.bounds.roles, self.has_every_project)

    def sees_project(self, project: str) -> bool:
        """Whether objects of a project are the session's to see."""
        return self.bounds.holds_project(project) if self.has_every_project else project == self.project

    def may_see(self, record: Object, deployment: Deployment) -> bool:
        """Whether an object is of the caller's partition, and of its project where the type has projects."""
        if record.partition != self.partition:
            return False
        if not deployment.has_project(record):
            return True
        return self.sees_project(record.project) if self.has_every_project else record.project == self.project

    def require_place(self, record: Object) -> None:
        """Raise RefusedError unless the caller may make an object in this project; which partitions there are says a state."""
        if self.has_every_project and record.project == EVERY_PROJECT:
            raise invalid("an object is of one project: name it.")
        if record.project and not self.bounds.holds_project(record.project):
            raise denied("the object would not be of the session's partition and project.")

    def require_to_decide(self, partition: UUID | None) -> None:
        """Raise RefusedError unless what holds for a partition, or for all (None), is the caller's to decide."""
        if partition is None and not self.bounds.is_whole:
            raise denied("what holds for all partitions is decided by whoever reaches all of them.")


def caller_of(request: Any, state: State) -> Caller:
    """Return the caller of a request, within the bounds of the state. An absent session is an empty one.

    Raises RefusedError, FAILED_PRECONDITION.
    """
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
    project, bounds = spelled_project(session.project), state.partitions.bounds
    is_every = bounds.has_every_project and project == EVERY_PROJECT
    if bounds.is_isolated:
        projects = bounds.projects if is_every else frozenset({project})
        bounds = replace(bounds, partitions=frozenset({partition.uuid.hex}), projects=projects)
    return Caller(session.user, project, partition.uuid, frozenset(session.roles), bounds, is_every)


def partition_named(state: State, text: str) -> Partition | None:
    """Return the partition of a name, or of a UUID however it is spelled; None when there is none."""
    uuid = parsed_uuid(text)
    if uuid is not None:
        return state.partitions.get(uuid)
    # Why: a record with the name that it was found by before has it still; names are unique in each state.
    known = state.ahead.partition_named(text)
    record = None if known is None else state.partitions.get(known)
    if record is not None and record.name == text:
        return record
    record = state.partitions.named(text)
    if record is not None:
        state.ahead.note_partition(text, record.uuid)
    return record


def required_partition_named(state: State, text: str) -> Partition:
    """Return the partition of a name or a UUID. Raises RefusedError, FAILED_PRECONDITION."""
    record = partition_named(state, text)
    if record is None:
        raise missing(f"Partition {text} not found")
    return record
