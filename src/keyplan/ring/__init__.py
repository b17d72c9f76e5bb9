"""A ring: one store over several databases, each record placed on one of them by a declared part of its key."""

from keyplan.ring.description import (
    OWN_PREFIX,
    OWN_RANGE,
    RING_KEY,
    SHARED_PREFIX,
    RingDescription,
    read_description,
    ring_id,
)
from keyplan.ring.engine import RingEngine
from keyplan.ring.opening import database_engine, join_ring, open_ring, open_ring_url, remembered, ring_of
from keyplan.ring.placement import Placement, described_placement, placement_of, read_placement
from keyplan.ring.rebalance import Rebalanced, rebalance
from keyplan.ring.rendezvous import fnv1a_64, lookup3, place, virtual_nodes

__all__ = [
    "OWN_PREFIX",
    "OWN_RANGE",
    "RING_KEY",
    "SHARED_PREFIX",
    "Placement",
    "Rebalanced",
    "RingDescription",
    "RingEngine",
    "database_engine",
    "described_placement",
    "fnv1a_64",
    "join_ring",
    "lookup3",
    "open_ring",
    "open_ring_url",
    "place",
    "placement_of",
    "read_description",
    "read_placement",
    "rebalance",
    "remembered",
    "ring_id",
    "ring_of",
    "virtual_nodes",
]
