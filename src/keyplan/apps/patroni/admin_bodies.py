"""What the operations below /admin answer with: cells, clusters, one instance, findings. None has a secret."""

from typing import Annotated, Any, ClassVar

from msgspec import Struct

from keyplan.apps.patroni.clusters import ClusterView
from keyplan.apps.patroni.diagnosis import FaultKind
from keyplan.apps.patroni.records import Operation, Step
from keyplan.operations import Schema

__all__ = [
    "ActionAnswered",
    "BindingState",
    "CellShown",
    "Cells",
    "Demoted",
    "Demotions",
    "FaultShown",
    "Faults",
    "InstanceRecord",
    "Instances",
    "KeptInstance",
    "PlacedNode",
]


class CellShown(Struct):
    """A cell that is alive."""

    schema_name: ClassVar[str] = "BrokerCell"
    guid: str
    availability_zone: str
    load: Annotated[int, Schema("How many nodes of all clusters are placed or ordered there.")]
    capacity: Annotated[int, Schema("How many may be; 0: no bound.")]
    is_draining: Annotated[bool, Schema("It takes no more nodes.")]
    versions: Annotated[list[str], Schema("The major versions of PostgreSQL that it has; first that of new clusters.")]
    host: str


class Cells(Struct):
    """The cells that are alive."""

    schema_name: ClassVar[str] = "BrokerCells"
    cells: list[CellShown]


class Demoted(Struct):
    """What came of it that a cluster was asked to move its lead."""

    schema_name: ClassVar[str] = "BrokerDemotion"
    instance_id: str
    node_id: str
    status: Annotated[str, Schema(enum=["asked", "failed"])] = "asked"
    description: Annotated[str, Schema("Why it failed.")] = ""


class Demotions(Struct):
    """A line for each cluster that was led from the cell."""

    schema_name: ClassVar[str] = "BrokerDemotions"
    results: list[Demoted]


class ActionAnswered(Struct):
    """What an action does, and the operation by which it is followed; none for one that was only planned."""

    schema_name: ClassVar[str] = "BrokerActionAnswered"
    operation: str
    steps: list[Step]


class Instances(Struct):
    """Every instance with its cluster: those that the broker made, and Patroni's clusters beside them."""

    schema_name: ClassVar[str] = "BrokerClusters"
    service_instances: list[ClusterView]


class PlacedNode(Struct):
    """Where a node of an instance is placed."""

    schema_name: ClassVar[str] = "BrokerPlacedNode"
    node_id: str
    cell_guid: str


class BindingState(Struct):
    """A binding without its credentials."""

    schema_name: ClassVar[str] = "BrokerBindingState"
    binding_id: str
    state: str
    app_guid: str


class InstanceRecord(Struct, kw_only=True):
    """What the broker knows of an instance."""

    schema_name: ClassVar[str] = "BrokerInstanceRecord"
    instance_id: str
    service_id: str
    plan_id: str
    organization_guid: str
    space_guid: str
    service_instance_name: str
    allocated_port: Annotated[int | None, Schema("The port that leads to the leader.")]
    replica_port: Annotated[int | None, Schema("The port that leads to replicas, where there are such.")]
    node_count: int
    cells: Annotated[list[str], Schema("The cells that its nodes may be on; none: all.")]
    parameters: dict[str, Any]
    nodes: list[PlacedNode]
    bindings: list[BindingState]
    operation: Annotated[Operation | None, Schema("The last operation; its `configuration` is not shown.")]


class KeptInstance(Struct, kw_only=True):
    """What the site's callbacks have kept of an instance."""

    schema_name: ClassVar[str] = "BrokerKeptInstance"
    instance_id: str
    service_id: str
    plan_id: str
    organization_guid: str
    space_guid: str
    service_instance_name: str
    allocated_port: int | None


class FaultShown(Struct):
    """One thing that is wrong: what kind, where, and why."""

    schema_name: ClassVar[str] = "BrokerFinding"
    kind: FaultKind
    subject: str
    text: str


class Faults(Struct):
    """Everything that is wrong, by kind and subject."""

    schema_name: ClassVar[str] = "BrokerFindings"
    findings: list[FaultShown]
