"""The calls on partitions: the way in from the wire, with the original's checks in its order."""

import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from keyplan.apps.runm.answers import partition_message, uuid_or_new
from keyplan.apps.runm.constraint import digits_of, range_of_digits
from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import KEY_BYTES_MAX, parsed_uuid
from keyplan.apps.runm.ordering import Options, options_of
from keyplan.apps.runm.records import Partition
from keyplan.apps.runm.refusal import already_exists, invalid, missing, not_found
from keyplan.apps.runm.session import caller_of
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import AlreadyExistsError, InvalidKeyError, UniqueViolationError
from keyplan.layout import Only

__all__ = [
    "add_partition",
    "bootstrap",
    "find_partitions",
    "partition_create",
    "partition_find",
    "partition_get_by_name",
    "partition_get_by_uuid",
]

_PartitionFindFilter = messages.PartitionFindFilter

PARTITION_FIELDS: Final[Mapping[str, Callable[[Partition], str]]] = {
    "uuid": lambda record: record.uuid.hex,
    "name": lambda record: record.name,
}


def partition_get_by_uuid(deployment: Deployment, request: Any) -> Any:
    """Return the partition of a UUID, however it is spelled."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        uuid = parsed_uuid(request.uuid)
        if uuid is None:
            raise missing("UUID is required.")
        record = state.runm.partitions.get(uuid)
    if record is None:
        raise not_found()
    return partition_message(record)


def partition_get_by_name(deployment: Deployment, request: Any) -> Any:
    """Return the partition of a name."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        if not request.name:
            raise missing("name is required.")
        record = _named(state, request.name)
    if record is None:
        raise not_found()
    return partition_message(record)


def partition_find(deployment: Deployment, request: Any) -> Iterator[Any]:
    """Stream the partitions that fit any of the filters, all without filters, by UUID unless told otherwise."""
    with deployment.reading_for(request) as state:
        caller_of(request, state)
        options = options_of(request.options, PARTITION_FIELDS, identity="uuid")
        found = find_partitions(state, request.any, options)
    return map(partition_message, found)


def find_partitions(state: State, filters: Any, options: Options) -> list[Partition]:
    """Return the partitions that fit any PartitionFindFilter, all without filters, ordered and bounded by the options."""
    if not filters and options.is_by_identity:
        first, below = range_of_digits("", options.after)
        listed = state.runm.partitions.list(at_least=first, below=below, limit=options.limit or None)
        return [record for _, record in listed]
    found: dict[UUID, Partition] = {}
    for one in filters or (_PartitionFindFilter(),):
        found.update((record.uuid, record) for record in _candidates(state, one) if _fits(record, one))
    return options.arranged(found.values(), PARTITION_FIELDS["uuid"], PARTITION_FIELDS)


def partition_create(deployment: Deployment, request: Any) -> Any:
    """Make a partition. No session is asked for: there is none to name before the first partition.

    While a bootstrap token is configured, that is so for nobody: the first partition is made by `bootstrap`.
    """
    with deployment.reading() as state:
        if deployment.rulings.bootstrap_token:
            caller_of(request, state)
    uuid = uuid_or_new(request.partition.uuid) if request.partition.name else uuid4()
    record = add_partition(deployment, request.partition.name, uuid)
    return messages.PartitionCreateResponse(partition=partition_message(record))


def bootstrap(deployment: Deployment, request: Any) -> Any:
    """Make a partition by the bootstrap token, which is used up by it. Every failure has the same answer."""
    failed = missing("Bootstrap failed.")
    given = request.bootstrap_token.encode()
    uuid = parsed_uuid(request.partition_uuid.value) if request.partition_uuid.value else uuid4()
    name = request.partition_name
    if uuid is None or not given or not _is_name(deployment, name):
        raise failed
    record = Partition(uuid, name)

    def work(state: State) -> None:
        stored = state.runm.bootstrap_token.get(Only())
        if stored is None or not hmac.compare_digest(stored, given):
            raise failed
        state.runm.partitions.insert(uuid, record)
        state.runm.bootstrap_token.delete(Only())

    try:
        deployment.store.run(lambda transaction: work(deployment.over(transaction)))
    except (AlreadyExistsError, UniqueViolationError) as error:
        raise failed from error
    return messages.BootstrapResponse(partition=partition_message(record))


def add_partition(deployment: Deployment, name: str, uuid: UUID) -> Partition:
    """Store a new partition. Raises RefusedError: no name, one that cannot be, or a name or UUID that is taken."""
    if not name:
        raise missing("partition name is required.")
    if not _is_name(deployment, name):
        raise invalid("a partition's name is no UUID, and fits into a key.")
    record = Partition(uuid, name)
    try:
        deployment.runm.partitions.insert(uuid, record)
    except (AlreadyExistsError, UniqueViolationError) as error:
        raise already_exists() from error
    return record


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _is_name(deployment: Deployment, name: str) -> bool:
    """Why no UUIDs: a session names its partition by either, and must not be ambiguous (S24)."""
    if parsed_uuid(name) is not None:
        return False
    try:
        return len(deployment.bound.indexes["partitions_by_name"].keys.encode(name)) <= KEY_BYTES_MAX
    except InvalidKeyError:
        return False


def _named(state: State, name: str) -> Partition | None:
    try:
        return state.runm.partitions_by_name.one(name)
    except InvalidKeyError:
        return None


def _candidates(state: State, given: Any) -> Iterator[Partition]:
    name, digits = given.name_filter.name, digits_of(given.uuid_filter)
    if digits:
        first, below = range_of_digits(digits)
        return (record for _, record in state.runm.partitions.list(at_least=first, below=below))
    if not name:
        return (record for _, record in state.runm.partitions.list())
    if not given.name_filter.use_prefix:
        record = _named(state, name)
        return iter(() if record is None else (record,))
    try:
        return (record for _, record in state.runm.partitions_by_name.list(starts_with=name))
    except InvalidKeyError:
        return iter(())


def _fits(record: Partition, given: Any) -> bool:
    name = given.name_filter.name
    is_named = record.name.startswith(name) if given.name_filter.use_prefix else name in {"", record.name}
    return is_named and record.uuid.hex.startswith(digits_of(given.uuid_filter))
