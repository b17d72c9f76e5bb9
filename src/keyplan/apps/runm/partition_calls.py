"""The calls on partitions: the way in from the wire, with the original's checks in its order."""

import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from keyplan.apps.runm.answers import partition_message, uuid_or_new
from keyplan.apps.runm.calls import CheckedCall, performs
from keyplan.apps.runm.constraint import digits_of, range_of_digits
from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.identity import KEY_BYTES_MAX, parsed_uuid
from keyplan.apps.runm.operations import MetadataOperations
from keyplan.apps.runm.ordering import Options, options_of
from keyplan.apps.runm.records import Partition
from keyplan.apps.runm.refusal import already_exists, found, invalid, missing
from keyplan.apps.runm.session import caller_of
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import AlreadyExistsError, InvalidKeyError, UniqueViolationError
from keyplan.layout import Only

__all__ = [
    "PARTITION_FIELDS",
    "add_partition",
    "bootstrap",
    "find_partitions",
    "partition_create",
    "partition_find",
    "partition_get_by_name",
    "partition_get_by_uuid",
    "require_founder",
]

_PartitionFindFilter = messages.PartitionFindFilter

PARTITION_FIELDS: Final[Mapping[str, Callable[[Partition], str]]] = {
    "uuid": lambda record: record.uuid.hex,
    "name": lambda record: record.name,
}


@performs(MetadataOperations)
def partition_get_by_uuid(call: CheckedCall) -> Any:
    uuid = parsed_uuid(call.request.uuid)
    if uuid is None:
        raise missing("UUID is required.")
    return partition_message(found(call.state.runm.partitions.get(uuid)))


@performs(MetadataOperations)
def partition_get_by_name(call: CheckedCall) -> Any:
    if not call.request.name:
        raise missing("name is required.")
    return partition_message(found(_named(call.state, call.request.name)))


@performs(MetadataOperations)
def partition_find(call: CheckedCall) -> Iterator[Any]:
    options = options_of(call.request.options, PARTITION_FIELDS, identity="uuid")
    return map(partition_message, find_partitions(call.state, call.request.any, options))


def find_partitions(state: State, filters: Any, options: Options) -> list[Partition]:
    """Return the partitions that fit any PartitionFindFilter, all without filters, ordered and bounded by the options."""
    if not filters and options.is_by_identity:
        first, below = range_of_digits("", options.after)
        listed = state.runm.partitions.list(at_least=first, below=below, limit=options.limit or None)
        return [record for _, record in listed]
    fitting: dict[UUID, Partition] = {}
    for one in filters or (_PartitionFindFilter(),):
        fitting.update((record.uuid, record) for record in _candidates(state, one) if _fits(record, one))
    return options.arranged(fitting.values(), PARTITION_FIELDS["uuid"], PARTITION_FIELDS)


@performs(MetadataOperations)
def partition_create(deployment: Deployment, request: Any) -> Any:
    require_founder(deployment, request)
    uuid = uuid_or_new(request.partition.uuid) if request.partition.name else uuid4()
    record = add_partition(deployment, request.partition.name, uuid)
    return messages.PartitionCreateResponse(partition=partition_message(record))


@performs(MetadataOperations)
def bootstrap(deployment: Deployment, request: Any) -> Any:
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


def require_founder(deployment: Deployment, request: Any) -> None:
    """Raise RefusedError when a partition may be made in a session alone, and the request has none that is known."""
    if deployment.rulings.bootstrap_token:
        with deployment.reading() as state:
            caller_of(request, state)


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
