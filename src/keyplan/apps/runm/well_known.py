"""The types of objects and of providers that every deployment has, in the original's words."""

from collections.abc import Iterable
from typing import Final

from keyplan.apps.runm.deployment import PROVIDER, Deployment
from keyplan.apps.runm.records import ObjectType, ObjectTypeScope, ProviderType

__all__ = ["WELL_KNOWN_OBJECT_TYPES", "WELL_KNOWN_PROVIDER_TYPES", "known_types"]

WELL_KNOWN_OBJECT_TYPES: Final = (
    ObjectType(PROVIDER, "A provider of some resources, e.g. a compute node or an SR-IOV NIC"),
    ObjectType("runm.provider_group", "A group of providers"),
    ObjectType("runm.image", "A bootable bunch of bits", ObjectTypeScope.PROJECT),
    ObjectType(
        "runm.machine",
        "Created by a user, a machine consumes compute resources from one of more providers",
        ObjectTypeScope.PROJECT,
    ),
)
WELL_KNOWN_PROVIDER_TYPES: Final = (
    ProviderType("runm.compute", "A provider of CPU, memory, local block storage, etc"),
    ProviderType("runm.storage.block", "A provider of block storage"),
)


def known_types(deployment: Deployment, own: Iterable[ObjectType] = ()) -> dict[str, ObjectType]:
    """Return the object types that there are once the service has started, with an operator's own: the store's count first."""
    return {one.code: one for one in (*WELL_KNOWN_OBJECT_TYPES, *own)} | dict(deployment.object_types())
