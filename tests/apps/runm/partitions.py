"""A partition with something of everything, beside one that shares what can be shared."""

from typing import Final
from uuid import UUID

from keyplan.apps.runm import Object, Partition, Property
from keyplan.apps.runm.definitions import Scope, point
from keyplan.apps.runm.deployment import PROVIDER, Deployment
from keyplan.apps.runm.layout import DefinitionVersion, Deleted, Replaced
from keyplan.apps.runm.records import ObjectDefinition, ProviderRecord
from keyplan.store import Lease

__all__ = ["DOOMED", "KEPT", "filled_partition"]

DOOMED: Final = UUID(int=7)
KEPT: Final = UUID(int=8)


def filled_partition(deployment: Deployment, lease: Lease | None = None) -> None:
    """Make both; with a lease also objects that can be restored. UUIDs are small numbers, so that a key tells whose it is."""
    with deployment.store.transaction() as transaction:
        state = deployment.over(transaction)
        for partition, name in ((DOOMED, "doomed"), (KEPT, "kept")):
            state.runm.partitions.insert(partition, Partition(partition, name))
            for number in range(3):
                uuid = UUID(int=partition.int * 1_000 + number)
                properties = (Property("k", str(number)),)
                record = Object(partition, "runm.image", uuid, f"n{number}", "p", properties, ("t",))
                state.runm.objects.insert(uuid, record)
            provider = UUID(int=partition.int * 1_000 + 9)
            state.runm.objects.insert(provider, Object(partition, PROVIDER, provider, "node"))
            state.beside.providers.put(provider, ProviderRecord(partition, "runm.compute", provider))
            for sub_type, uuid in (("", UUID(int=partition.int * 100)), ("runm.compute", UUID(int=99))):
                point(state.runm, Scope(partition, PROVIDER, sub_type), uuid)
                state.runm.definitions.put(uuid, ObjectDefinition(uuid, "{}"))
            replaced = Replaced(ObjectDefinition(UUID(int=1), "{}"), 0, "u")
            state.beside.definition_versions.insert(DefinitionVersion(partition, PROVIDER, "default", 1), replaced)
            gone = UUID(int=partition.int * 1_000 + 5)
            if lease is not None:
                deleted = Deleted(Object(partition, "runm.image", gone, "gone", "p"), 0, "u")
                state.beside.deleted.insert(gone, deleted, lease=lease)
        transaction.commit()
