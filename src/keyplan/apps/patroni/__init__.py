"""The Patroni broker's store: clusters, registered containers, routed ports, service instances. Start in layout.py."""

from keyplan.apps.patroni.layout import DEFAULT_IMAGE, Broker, MemberKey, NodeKey, RegistrationKey
from keyplan.apps.patroni.records import (
    Credentials,
    Failover,
    FailoverForm,
    InstanceState,
    Member,
    NodeState,
    OpenJson,
    OpenRecord,
    OperationInfo,
    Status,
    Sync,
    address_of,
)

__all__ = [
    "DEFAULT_IMAGE",
    "Broker",
    "Credentials",
    "Failover",
    "FailoverForm",
    "InstanceState",
    "Member",
    "MemberKey",
    "NodeKey",
    "NodeState",
    "OpenJson",
    "OpenRecord",
    "OperationInfo",
    "RegistrationKey",
    "Status",
    "Sync",
    "address_of",
]
