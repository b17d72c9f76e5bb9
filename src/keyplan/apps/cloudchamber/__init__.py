"""CloudChamber's persistent store: the key layout of its document, and that of its Go program."""

from keyplan.apps.cloudchamber.layout import (
    BladeKey,
    CloudChamber,
    CloudChamberGo,
    DeviceKey,
    GoBladeKey,
    GoDeviceKey,
    GoRackKey,
    GoRegionKey,
    GoZoneKey,
    InstanceKey,
)

__all__ = [
    "BladeKey",
    "CloudChamber",
    "CloudChamberGo",
    "DeviceKey",
    "GoBladeKey",
    "GoDeviceKey",
    "GoRackKey",
    "GoRegionKey",
    "GoZoneKey",
    "InstanceKey",
]
