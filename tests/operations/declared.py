"""Every operation that is declared, of all services, by its service and name."""

from collections.abc import Iterator, Mapping
from typing import Final

from keyplan.apps.cloudchamber.service import RESOURCES
from keyplan.apps.hepnos.operations import DatabaseOperations
from keyplan.apps.hepnos.queue_operations import QueueOperations
from keyplan.apps.patroni.admin_routes import Administration
from keyplan.apps.patroni.osb_routes import ServiceBroker
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.keyspace import RegistryOperations
from keyplan.operations import Declared, operations_of, rpcs_of
from keyplan.server.etcd_v2.declared import Keys, Members
from keyplan.server.etcd_v3.declared import GatewayCalls
from keyplan.server.explorer.operations import ExplorerOperations
from keyplan.server.shell import ShellOperations

__all__ = ["DECLARED", "INTERFACES"]

INTERFACES: Final[Mapping[str, tuple[type, ...]]] = {
    "server": (ShellOperations,),
    "explorer": (ExplorerOperations,),
    "keyspaces": (RegistryOperations,),
    "etcd-v2": (Keys, Members),
    "etcd-v3": (GatewayCalls,),
    "cloudchamber": tuple(RESOURCES),
    "patroni-broker": (ServiceBroker, Administration),
    "hepnos": (DatabaseOperations, QueueOperations),
    "runm": (MetadataOperations, ApiOperations),
}


def _declared() -> Iterator[tuple[str, Declared]]:
    for interfaces in INTERFACES.values():
        for interface in interfaces:
            for one in (*operations_of(interface).values(), *rpcs_of(interface).values()):
                yield f"{interface.__name__}.{one.name}", one


DECLARED: Final = dict(_declared())
