"""Objects deleted, several to a commit, and, where an operator lets it, restored.

What can be restored is kept on a lease beside the document's keys. It is written in the commit that deletes the object, and is
gone by itself when the time is over. Its name, properties and tags are free meanwhile, and no search finds it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from keyplan.apps.runm.constraint import range_of_digits
from keyplan.apps.runm.deployment import PROVIDER, Deployment, State, Stored
from keyplan.apps.runm.layout import Deleted
from keyplan.apps.runm.objects import RulesByScope, created, stored_objects
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.readable import log_damage, readable, readable_many, readable_one
from keyplan.apps.runm.records import Object
from keyplan.apps.runm.refusal import not_found
from keyplan.apps.runm.session import Caller
from keyplan.errors import CorruptionError
from keyplan.store import Lease, Transaction

__all__ = ["delete", "deleted_objects", "restore"]

_DELETED_AT_ONCE_MAX: Final = 256
"""Objects of one commit of a delete, where the engine does not allow fewer."""

_SPARED_OPERATIONS: Final = 32
"""Left unused in a commit that deletes several objects. Why: one may have grown between the look and the commit."""

_OPERATIONS_OF_AN_OBJECT: Final = 4
"""Besides its properties and tags: record, name, what stands beside it, and what is kept of it."""


def delete(deployment: Deployment, caller: Caller, uuids: Sequence[UUID]) -> int:
    """Delete those of the objects that the caller may see, with all their entries; return how many there were.

    Objects are deleted several to a commit, as many as surely fit; each commit holds only if its objects are as they were read.
    """
    pending = list(dict.fromkeys(uuids))
    starts = range(0, len(pending), _DELETED_AT_ONCE_MAX)
    seconds = deployment.rulings.deleted_kept_seconds
    lease = deployment.store.lease(seconds, keep_alive=False) if seconds and pending else None
    return sum(
        deployment.store.run(partial(_delete, deployment, caller, lease, batch))
        for start in starts
        for batch in _batches(deployment, pending[start : start + _DELETED_AT_ONCE_MAX])
    )


def deleted_objects(deployment: Deployment, caller: Caller, state: State, after: UUID | None) -> Iterator[Deleted]:
    """Yield what can be restored, as far as the caller may see it, by UUID, from behind `after`."""
    first, below = range_of_digits("", after)
    rules = RulesByScope(state, caller.reader)
    for _, deleted in readable(state.beside.deleted.rows(at_least=first, below=below)):
        if not caller.may_see(deleted.object, deployment):
            continue
        try:
            visible = _visible(rules, deleted)
        except CorruptionError as error:
            log_damage(error)
            continue
        yield Deleted(visible, deleted.deleted_at, deleted.user, deleted.provider)


def restore(deployment: Deployment, caller: Caller, uuid: UUID) -> Stored:
    """Make a deleted object again as it was, with its index entries, at generation 1; return what the caller sees of it.

    Raises RefusedError: NOT_FOUND when it cannot be restored any more, or is not the caller's to see; ALREADY_EXISTS when its
    name, or its UUID, was taken meanwhile.
    """

    def work(state: State) -> Stored:
        deleted = state.beside.deleted.get(uuid)
        if deleted is None or not caller.may_see(deleted.object, deployment):
            raise not_found()
        if not state.partitions.exists(deleted.object.partition):
            raise not_found()  # Why here: the session was checked before, and the partition may be going since.
        state.runm.objects.insert(uuid, deleted.object)
        if deleted.provider is not None:
            state.beside.providers.put(uuid, deleted.provider)
        state.beside.deleted.delete(uuid)
        return Stored(_visible(RulesByScope(state, caller.reader), deleted), 1, 0)

    return created(deployment, work)


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _batches(deployment: Deployment, uuids: Sequence[UUID]) -> Iterator[list[UUID]]:
    """The objects in batches that surely fit into one commit each; an object that does not stands alone."""
    limit = deployment.store.engine.profile.commit_operations_max
    with deployment.reading() as state:
        found = stored_objects(state, uuids)
    if limit is None:
        yield list(uuids)
        return
    batch: list[UUID] = []
    operations = _SPARED_OPERATIONS
    for uuid, stored in zip(uuids, found, strict=True):
        own = _OPERATIONS_OF_AN_OBJECT + (
            len(stored.record.properties) + len(stored.record.tags) if isinstance(stored, Stored) else 0
        )
        if batch and operations + own > limit:
            yield batch
            batch, operations = [], _SPARED_OPERATIONS
        batch.append(uuid)
        operations += own
    if batch:
        yield batch


def _delete(
    deployment: Deployment, caller: Caller, lease: Lease | None, uuids: Sequence[UUID], transaction: Transaction
) -> int:
    state = deployment.over(transaction)
    # Why past those that cannot be read: nobody knows whose they are.
    found = zip(uuids, readable_many(state.runm.objects, uuids), strict=True)
    own = [(uuid, one) for uuid, one in found if one is not None and caller.may_see(one, deployment)]
    # Why: a delete looks at the entry of the name, and would do so for one object after the other.
    state.read_ahead(
        place for _, one in own for place in state.ahead.of_name(one.partition, one.object_type, one.project, one.name)
    )
    for uuid, record in own:
        if lease is not None:
            provider = readable_one(state.beside.providers, uuid) if record.object_type == PROVIDER else None
            kept = Deleted(record, int(deployment.clock.wall()), caller.user, provider)
            state.beside.deleted.put(uuid, kept, lease=lease)
        state.runm.objects.delete(uuid)
        if record.object_type == PROVIDER:
            state.beside.providers.delete(uuid)
    return len(own)


def _visible(rules: RulesByScope, deleted: Deleted) -> Object:
    record = deleted.object
    sub_type = "" if deleted.provider is None else deleted.provider.provider_type
    return rules.of_scope(Scope(record.partition, record.object_type, sub_type), record.project).visible(record)
