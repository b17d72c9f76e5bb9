"""What the broker offers: services, plans and their numbers of nodes; the built-in catalog, or one from a JSON file."""

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from keyplan.apps.patroni.backups.records import BackupPolicy
from keyplan.apps.patroni.dynamic_configuration import require_changes
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.errors import InvalidInputError

__all__ = [
    "BUILT_IN_CATALOG",
    "NODES_MAX",
    "PARAMETERS",
    "PARAMETERS_OF_CREATION",
    "Catalog",
    "Offer",
    "Plan",
    "read_catalog",
]

NODES_DEFAULT: Final = 2
NODES_MAX: Final = 64
POLLING_SECONDS_MAX: Final = 900

PARAMETERS: Final[dict[str, Any]] = {
    "node-count": {
        "type": "integer",
        "minimum": 0,
        "maximum": NODES_MAX,
        "description": "Nodes of the cluster; 0: as the plan says.",
    },
    "cells": {
        "type": "array",
        "items": {"type": "string"},
        "description": "The cells that may hold its nodes; none: all.",
    },
}
"""The schemas of the parameters of an instance."""

PARAMETERS_OF_CREATION: Final[dict[str, Any]] = {
    **PARAMETERS,
    "clone-from": {
        "type": "string",
        "maxLength": 255,
        "description": "The name of an instance in the same space, whose backups it is made from.",
    },
}

_DRAFT: Final = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False}
_SCHEMA_OF_PARAMETERS: Final = {**_DRAFT, "properties": PARAMETERS}
_SCHEMA_OF_CREATION: Final = {**_DRAFT, "properties": PARAMETERS_OF_CREATION}


class Plan(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan. `patroni` goes into the dynamic configuration of clusters; `shows_superuser`: bindings hold the superuser too.

    `backups` says where its clusters are backed up, and when; without, they are not.
    """

    id: str
    name: str
    description: str
    node_count: int = NODES_DEFAULT
    database: str = "postgres"
    shows_superuser: bool = False
    patroni: dict[str, Any] = field(default_factory=dict)
    backups: BackupPolicy | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.node_count <= NODES_MAX:
            raise ValueError(f"a plan has 1 to {NODES_MAX} nodes")
        if self.patroni:
            try:
                require_changes(self.patroni)
            except RefusedError as error:
                raise ValueError(f"patroni of plan {self.name}: {error.description}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "metadata": {"node-count": self.node_count, **self.metadata},
            "free": True,
            "bindable": True,
            "plan_updateable": True,
            "maximum_polling_duration": POLLING_SECONDS_MAX,
            "schemas": {
                "service_instance": {
                    "create": {"parameters": _SCHEMA_OF_CREATION},
                    "update": {"parameters": _SCHEMA_OF_PARAMETERS},
                },
                "service_binding": {"create": {"parameters": _DRAFT}},
            },
        }


class Offer(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A service of the catalog."""

    id: str
    name: str
    description: str
    plans: list[Plan]
    tags: list[str] = field(default_factory=lambda: ["postgresql", "patroni"])
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the service as the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "tags": self.tags,
            "metadata": self.metadata,
            "bindable": True,
            "plan_updateable": True,
            "instances_retrievable": True,
            "bindings_retrievable": True,
            "plans": [plan.to_json() for plan in self.plans],
        }


class Catalog(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """All services. Ids of services and plans are each used once."""

    services: list[Offer]

    def __post_init__(self) -> None:
        ids = [offer.id for offer in self.services] + [plan.id for offer in self.services for plan in offer.plans]
        if len(set(ids)) < len(ids) or not all(ids):
            raise ValueError("every service and plan has an id of its own")
        if not all(offer.plans for offer in self.services):
            raise ValueError("every service has a plan")

    def to_json(self) -> dict[str, Any]:
        """Return the body of GET /v2/catalog."""
        return {"services": [offer.to_json() for offer in self.services]}

    @property
    def tag(self) -> str:
        """The entity tag of the body, in quotes."""
        return f'"{hashlib.sha256(msgspec.json.encode(self.to_json())).hexdigest()[:32]}"'

    def plan(self, service_id: str, plan_id: str) -> Plan:
        """Return the plan. Raises RefusedError (400) when there is no such service, or no such plan of it."""
        offer = next((offer for offer in self.services if offer.id == service_id), None)
        if offer is None:
            raise RefusedError(400, "there is no service with this service_id")
        plan = next((plan for plan in offer.plans if plan.id == plan_id), None)
        if plan is None:
            raise RefusedError(400, "the service has no plan with this plan_id")
        return plan


BUILT_IN_CATALOG: Final = Catalog(
    services=[
        Offer(
            id="0b6f1d4e-8a53-4a7e-9c36-2f1f6f0c7a10",
            name="postgresql-patroni",
            description="PostgreSQL clusters that fail over by themselves",
            plans=[
                Plan(
                    id="5a3d8c52-6b1e-4d0f-8f0a-0d7a5d1f3e01",
                    name="solo",
                    description="One node: restarts, but does not fail over",
                    node_count=1,
                ),
                Plan(
                    id="5a3d8c52-6b1e-4d0f-8f0a-0d7a5d1f3e02",
                    name="pair",
                    description="A leader and a replica",
                    node_count=2,
                ),
                Plan(
                    id="5a3d8c52-6b1e-4d0f-8f0a-0d7a5d1f3e03",
                    name="trio",
                    description="A leader and two replicas",
                    node_count=3,
                ),
            ],
        )
    ]
)


def read_catalog(path: Path) -> Catalog:
    """Read a catalog from a JSON file: `{"services": [{"id", "name", "description", "plans": [...]}]}`.

    Raises InvalidInputError.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Catalog)
    except OSError as error:
        raise InvalidInputError(source=str(path), problem="the catalog cannot be read") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInputError(source=str(path), problem=str(error)) from error
