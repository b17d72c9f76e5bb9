"""What a simulator says of blades, PDUs and TORs, beside what users say of them: where it stands, and what it may say.

It stands below `rack/{rack}/` in both layouts, goes with its part in the same commit, and is not written without one.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from keyplan.apps.cloudchamber.conditions import Address
from keyplan.apps.cloudchamber.go_inventory import LISTED
from keyplan.apps.cloudchamber.go_served import SERVED_ZONE
from keyplan.apps.cloudchamber.inventory_parts import PartKind
from keyplan.apps.cloudchamber.layout_keys import BladeKey, DeviceKey, GoBladeKey, GoDeviceKey, PartActualKey
from keyplan.apps.cloudchamber.records import PartActual
from keyplan.errors import InvalidInputError

__all__ = ["actual_beside", "require_sound"]

_TABLE: Final = "part_actual"

_STATES: Final[Mapping[PartKind, tuple[str, ...]]] = {
    PartKind.PDU: ("working", "off", "stuck"),
    PartKind.TOR: ("working", "stuck"),
    PartKind.BLADE: (
        "start",
        "off_disconnected",
        "off_connected",
        "powered_disconnected",
        "powered_connected",
        "booting",
        "working",
        "isolated",
        "stopping",
        "stopping_isolated",
        "faulted",
    ),
}
"""The states of the original's state machines: its strict clients know no others."""


def actual_beside(table: str, key: object) -> Iterator[Address]:
    """Yield where the actual state of a part stands whose record is at `key`; nothing for what has none.

    Under the Go program's keys parts of the zone that is served have one.
    """
    kind = table.removesuffix("s")
    match key:
        case BladeKey(rack=rack, blade=number) | DeviceKey(rack=rack, device=number):
            yield Address(_TABLE, PartActualKey(rack, kind, number))
        case GoBladeKey(rack=rack, blade=number) | GoDeviceKey(rack=rack, device=number):
            if key[:3] == SERVED_ZONE and not table.startswith(LISTED):
                yield Address(_TABLE, PartActualKey(rack, kind, number))
        case str() if table in {"pdu", "tor"}:
            yield Address(_TABLE, PartActualKey(key, kind, 0))
        case _:
            pass


def require_sound(kind: PartKind, actual: PartActual) -> None:
    """Raise InvalidInputError for an actual state that a part of this kind cannot have."""
    states = _STATES[kind]
    problem = ""
    if actual.sm_state not in states:
        problem = f"smState {actual.sm_state!r} is none of a {kind}'s: {', '.join(states)}"
    elif actual.at < 0:
        problem = f"at is a tick, 0 or later, and not {actual.at}"
    elif not 0 <= actual.entered_at <= actual.at:
        problem = f"enteredAt is from 0 to at, which is {actual.at}, and not {actual.entered_at}"
    if problem:
        raise InvalidInputError(source="the actual state", problem=problem)
