"""Where records are over HTTP: the one place that spells their paths, for answers that name others."""

from typing import Final
from urllib.parse import quote

from keyplan.apps.cloudchamber.layout import BladeKey, InstanceKey

__all__ = ["RACKS", "WORKLOADS", "blade_uri", "instance_uri", "rack_uri", "workload_uri"]

RACKS: Final = "/api/racks"
WORKLOADS: Final = "/api/workloads"


def rack_uri(rack: str) -> str:
    """Return where a rack is; it ends in a slash, as the original's does."""
    return f"{RACKS}/{_segment(rack)}/"


def blade_uri(key: BladeKey) -> str:
    """Return where a blade is."""
    return f"{rack_uri(key.rack)}blades/{key.blade}"


def workload_uri(workload: str) -> str:
    """Return where a workload is."""
    return f"{WORKLOADS}/{_segment(workload)}"


def instance_uri(key: InstanceKey) -> str:
    """Return where an instance of a workload is."""
    return f"{workload_uri(key.workload)}/instances/{_segment(key.instance)}"


def _segment(name: str) -> str:
    return quote(name, safe="")
