"""The protocols that are attacked.

Not runm's gRPC: its rights are on calls, projects and partitions, and no place is somebody's. A table says of each of its calls
who may make it, and for what: tests/apps/runm/test_access.py.
"""

from typing import Final

from tests.attacks import broker, cloudchamber, etcd_v2, etcd_v3, explorer, hepnos, registry

__all__ = ["ROWS"]

ROWS: Final = (
    etcd_v3.ROW,
    etcd_v2.ROW,
    explorer.ROW,
    registry.ROW,
    cloudchamber.ROW,
    broker.ROW,
    hepnos.ROW,
    hepnos.FRAMES_ROW,
)
