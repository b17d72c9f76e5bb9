"""Stores that the shipped layouts wrote, with data such as their users have: `numbers` says which part of it.

Two fillings with different numbers have no key of a field in common but those that every store has: what is held out.
"""

from collections.abc import Callable
from uuid import NAMESPACE_URL, UUID, uuid5

from keyplan import Secret
from keyplan.apps.cloudchamber import (
    Blade,
    BladeKey,
    Capacity,
    CloudChamber,
    DeviceDetails,
    Instance,
    InstanceActual,
    InstanceKey,
    InstanceTarget,
    Pdu,
    Rack,
    RackDetails,
    Tor,
    User,
    Workload,
)
from keyplan.apps.hepnos import (
    DataSetKey,
    EventKey,
    HEPnOSDataSets,
    HEPnOSEvents,
    HEPnOSProducts,
    HEPnOSRuns,
    HEPnOSSubRuns,
    ProductKey,
    RunKey,
    SubRunKey,
)
from keyplan.apps.patroni import Broker, InstanceState, Member, MemberKey, NodeKey, RegistrationKey, Status, Sync
from keyplan.apps.runm import (
    Object,
    ObjectDefinition,
    ObjectSubType,
    ObjectType,
    Partition,
    PartitionType,
    Property,
    ProviderType,
    Runm,
    root_of,
)
from keyplan.keyspace import KeySpaces
from keyplan.store import Store

__all__ = ["FILLINGS", "fill_cloudchamber", "fill_hepnos", "fill_patroni", "fill_registry", "fill_runm"]


def fill_cloudchamber(store: Store, numbers: range) -> None:
    """Racks of eight blades with a TOR and a PDU, users, workloads of two instances."""
    chamber = CloudChamber(store)
    for number in numbers:
        rack, user, workload = f"rack{number}", f"user-{number}", f"web{number}"
        chamber.users.insert(user, User(name=user, password_hash=Secret(b"$2a$10$"), user_id=number, enabled=True))
        chamber.racks.insert(rack, Rack(RackDetails(enabled=True, location=f"row {number % 7}")))
        chamber.tor.insert(rack, Tor(DeviceDetails(enabled=True)))
        chamber.pdu.insert(rack, Pdu(DeviceDetails(enabled=True)))
        for blade in range(1, 9):
            chamber.blades.insert(BladeKey(rack, blade), Blade(capacity=Capacity(cores=16, memory_in_mb=32_768)))
        chamber.workloads.insert(workload, Workload(name=workload))
        for instance in (f"{workload}-a", f"{workload}-b"):
            key = InstanceKey(workload, instance)
            chamber.instances.insert(key, Instance(system_name=instance))
            chamber.instance_target.insert(key, InstanceTarget("running", rack, 3, number))
            chamber.instance_actual.insert(key, InstanceActual("running", rack, 3, number, number))


def fill_runm(store: Store, numbers: range) -> None:
    """Two partitions with objects of three types, with tags and properties; the types and their definitions."""
    runm = Runm(store, prefix=root_of("/"))
    types = ("runm.image", "runm.machine", "runm.volume", "runm.provider")
    for code in types:
        runm.object_types.insert(code, ObjectType(code, f"what {code} says"))
    for code in ("runm.compute", "runm.storage.block", "runm.storage.file"):
        runm.sub_types.insert(ObjectSubType("runm.provider", code), ProviderType(code, f"what {code} says"))
    for number in numbers[:4]:
        partition = _uuid("partition", number)
        runm.partitions.insert(partition, Partition(partition, f"part{number}"))
        for code in types:
            definition = ObjectDefinition(_uuid(f"definition {code}", number), '{"type": "object"}')
            runm.definitions.insert(definition.uuid, definition)
            runm.partition_type_definitions.insert(PartitionType(partition, code), definition.uuid)
    for number in numbers:
        code = types[number % 4]
        key = _uuid("object", number)
        runm.objects.insert(
            key,
            Object(
                partition=_uuid("partition", numbers[number // 4 % 4]),
                object_type=code,
                uuid=key,
                name=f"{code.removeprefix('runm.')}-{number}",
                project="" if code == "runm.provider" else f"project{number % 5}",
                properties=(
                    Property("arch", ("x86_64", "aarch64")[number % 2]),
                    Property("os", f"debian/{number % 3}"),
                ),
                tags=(f"tag{number % 6}", "all"),
            ),
        )


def fill_patroni(store: Store, numbers: range) -> None:
    """Clusters of two members as Patroni writes them, registered containers, the broker's instances and ports."""
    broker = Broker(store)
    lease = store.lease(60)
    for number in numbers:
        cluster = f"pg-{number}"
        for member in (f"cf-{number}a", f"cf-{number}b"):
            address = f"10.0.{number % 250}.7:{5432 + number}"
            patroni = Member(
                role="replica", state="running", conn_url=Secret(f"postgres://{address}/postgres"), timeline=2
            )
            broker.members.insert(MemberKey(cluster, member), patroni, lease=lease)
            broker.registrations.insert(
                RegistrationKey("postgresql-patroni", f"cell{number % 3}", member, 5432), address, lease=lease
            )
            broker.nodes.insert(NodeKey(cluster, member), f"cell{number % 3}")
        broker.leaders.insert(cluster, f"cf-{number}a", lease=lease)
        broker.initializations.insert(cluster, str(7_710_453_740_755_543_520 + number))
        broker.configurations.insert(cluster, {"ttl": 30, "loop_wait": 10, "postgresql": {"use_slots": True}})
        broker.histories.insert(cluster, [[1, 50_813_560, "no recovery target specified"]])
        broker.statuses.insert(cluster, Status(optime=53_417_672 + number, slots={"n1": 1}))
        if number % 3 == 0:
            broker.syncs.insert(cluster, Sync(leader=f"cf-{number}a", quorum=0, sync_standby=f"cf-{number}b"))
        broker.instances.insert(cluster, InstanceState(instance_id=cluster, node_count=2))
        broker.allocations.insert(cluster, 33_000 + number)
    if not broker.next_port.peek() > 33_000:
        broker.next_port.next()


def fill_hepnos(layout: type) -> Callable[[Store, range], None]:
    """Return what fills one kind of HEPnOS database: three data sets, runs, subruns, events, products."""

    def fill(store: Store, numbers: range) -> None:
        bound = layout(store)
        datasets = [_random_uuid("dataset", number) for number in range(3)]
        with bound.transaction() as transaction:
            for number in numbers:
                dataset, run = datasets[number % 3], 294_927 + number
                match layout.__name__:
                    case "HEPnOSDataSets":
                        for path in (f"nova{number}", f"nova{number}/prod5", f"nova{number}/prod5/near"):
                            transaction.datasets.insert(DataSetKey.of_path(path), _random_uuid(path, number))
                    case "HEPnOSRuns":
                        transaction.runs.insert(RunKey(dataset, run), None)
                    case "HEPnOSSubRuns":
                        transaction.subruns.insert(SubRunKey(dataset, run, number % 9), None)
                    case "HEPnOSEvents":
                        transaction.events.insert(EventKey(dataset, run, number % 9, 11 * number), None)
                    case _:
                        label = ("slc", "vertices")[number % 2]
                        key = ProductKey(dataset, run, number % 9, 11 * number, label, "std::vector<rec::Slice>")
                        transaction.products.insert(key, bytes([7, number % 256, 255]))

    return fill


def fill_registry(store: Store, numbers: range) -> None:
    """A registry of key spaces, with some of them."""
    registry = KeySpaces(store.engine)
    registry.init()
    for number in numbers:
        registry.create(f"tenant-{number}", "shop")


FILLINGS: dict[str, Callable[[Store, range], None]] = {
    "cloudchamber": fill_cloudchamber,
    "runm": fill_runm,
    "patroni": fill_patroni,
    "registry": fill_registry,
    **{
        f"hepnos {layout.__name__.removeprefix('HEPnOS').lower()}": fill_hepnos(layout)
        for layout in (HEPnOSDataSets, HEPnOSRuns, HEPnOSSubRuns, HEPnOSEvents, HEPnOSProducts)
    },
}


def _uuid(kind: str, number: int) -> UUID:
    return uuid5(NAMESPACE_URL, f"{kind} {number}")


def _random_uuid(kind: str, number: int) -> UUID:
    """A UUID of version 4, as the programs make them, and the same in every run."""
    return UUID(int=_uuid(kind, number).int, version=4)
