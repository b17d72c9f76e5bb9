"""The calls on partitions: the way in from the wire, with the original's checks in its order."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from keyplan.access import sum_of_token
from keyplan.apps.runm.answers import partition_message, uuid_or_new
from keyplan.apps.runm.calls import CheckedCall, GivenCall, performs
from keyplan.apps.runm.constraint import digits_of, range_of_digits
from keyplan.apps.runm.deployment import State
from keyplan.apps.runm.identity import parsed_uuid, partition_name_problem
from keyplan.apps.runm.operations import MetadataOperations
from keyplan.apps.runm.ordering import Options, options_of
from keyplan.apps.runm.partition_removal import require_free_uuid
from keyplan.apps.runm.records import Partition
from keyplan.apps.runm.refusal import already_exists, denied, found, invalid, missing
from keyplan.apps.runm.wire_table import messages
from keyplan.codec import Secret
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
    return partition_message(found(call.state.partitions.get(uuid)))


@performs(MetadataOperations)
def partition_get_by_name(call: CheckedCall) -> Any:
    if not call.request.name:
        raise missing("name is required.")
    return partition_message(found(call.state.partitions.named(call.request.name)))


@performs(MetadataOperations)
def partition_find(call: CheckedCall) -> Iterator[Any]:
    options = options_of(call.request.options, PARTITION_FIELDS, identity="uuid")
    return map(partition_message, find_partitions(call.state, call.request.any, options))


def find_partitions(state: State, filters: Any, options: Options) -> list[Partition]:
    """Return the partitions that fit any PartitionFindFilter, all without filters, ordered and bounded by the options."""
    if not filters and options.is_by_identity:
        first, below = range_of_digits("", options.after)
        return list(state.partitions.listed(first, below, options.limit or None))
    fitting: dict[UUID, Partition] = {}
    for one in filters or (_PartitionFindFilter(),):
        fitting.update((record.uuid, record) for record in _candidates(state, one) if _fits(record, one))
    return options.arranged(fitting.values(), PARTITION_FIELDS["uuid"], PARTITION_FIELDS)


@performs(MetadataOperations)
def partition_create(call: GivenCall) -> Any:
    require_founder(call)
    given = call.request.partition
    record = add_partition(call, given.name, uuid_or_new(given.uuid) if given.name else uuid4())
    return messages.PartitionCreateResponse(partition=partition_message(record))


@performs(MetadataOperations)
def bootstrap(call: GivenCall) -> Any:
    deployment, request = call.deployment, call.request
    failed = missing("Bootstrap failed.")
    given = request.bootstrap_token
    uuid = parsed_uuid(request.partition_uuid.value) if request.partition_uuid.value else uuid4()
    name = request.partition_name
    if uuid is None or not given or partition_name_problem(deployment.bound, name):
        raise failed
    record = Partition(uuid, name)

    def work(state: State) -> None:
        stored = state.runm.bootstrap_token.get(Only())
        if stored is None or stored != Secret(sum_of_token(given)):
            raise failed
        require_free_uuid(deployment, state, uuid)
        state.runm.partitions.insert(uuid, record)
        state.runm.bootstrap_token.delete(Only())

    try:
        deployment.store.run(lambda transaction: work(deployment.over(transaction)))
    except (AlreadyExistsError, UniqueViolationError) as error:
        raise failed from error
    return messages.BootstrapResponse(partition=partition_message(record))


def require_founder(call: GivenCall) -> None:
    """Raise RefusedError when a partition may be made in a session alone, and the request has none that is known."""
    if call.deployment.rulings.bootstrap_token:
        with call.deployment.reading() as state:
            call.checked(state)


def add_partition(call: GivenCall, name: str, uuid: UUID) -> Partition:
    """Store a new partition. Raises RefusedError: no name, one that cannot be, or a name or UUID that is taken.

    PERMISSION_DENIED for one outside the call's bounds; where sessions are isolated, for any after the first.
    """
    deployment = call.deployment
    if not name:
        raise missing("partition name is required.")
    if problem := partition_name_problem(deployment.bound, name):
        raise invalid(f"{problem}.")
    record = Partition(uuid, name)
    if not call.bounds.holds(record):
        raise denied("the partition is none of the caller's.")

    def work(state: State) -> None:
        require_free_uuid(deployment, state, uuid)
        if call.bounds.is_isolated and not state.is_empty:
            raise denied("further partitions are made by an administrator.")
        state.runm.partitions.insert(uuid, record)

    try:
        deployment.store.run(lambda transaction: work(deployment.over(transaction)))
    except (AlreadyExistsError, UniqueViolationError) as error:
        raise already_exists() from error
    return record


# ---- pieces ------------------------------------------------------------------------------------------------------------


def _candidates(state: State, given: Any) -> Iterator[Partition]:
    name, digits = given.name_filter.name, digits_of(given.uuid_filter)
    if digits:
        first, below = range_of_digits(digits)
        return state.partitions.listed(first, below)
    if not name:
        return state.partitions.listed(*range_of_digits(""))
    if not given.name_filter.use_prefix:
        record = state.partitions.named(name)
        return iter(() if record is None else (record,))
    try:
        return state.partitions.beginning(name)
    except InvalidKeyError:
        return iter(())


def _fits(record: Partition, given: Any) -> bool:
    name = given.name_filter.name
    is_named = record.name.startswith(name) if given.name_filter.use_prefix else name in {"", record.name}
    return is_named and record.uuid.hex.startswith(digits_of(given.uuid_filter))
