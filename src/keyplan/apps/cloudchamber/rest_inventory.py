"""Racks and blades over HTTP (5.3): reading, for everybody who is logged in. rest_definitions.py and imports write them.

The last two operations look records up by an index: the original has no such routes.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec

from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed
from keyplan.apps.cloudchamber.inventory_parts import PartKind
from keyplan.apps.cloudchamber.layout_keys import BLADE_NUMBER_MAX, BladeKey, InstanceKey
from keyplan.apps.cloudchamber.readable import ReadableRack, ReadableZone
from keyplan.apps.cloudchamber.records import Capacity, Condition, PartActual
from keyplan.apps.cloudchamber.refusals import RefusedError, no_indexes, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    BladeEntry,
    BladeList,
    BladeView,
    Empty,
    Observed,
    PduView,
    PlacedInstance,
    PlacedInstanceList,
    RackEntry,
    RackView,
    TorView,
    ZoneSummary,
)
from keyplan.apps.cloudchamber.rest_routes import DAMAGED_FACT, Resource, Who, damaged_header, rest
from keyplan.apps.cloudchamber.rest_stored import ONE_RACK, RACKS, blade_uri, instance_uri, rack_uri
from keyplan.apps.cloudchamber.rest_words import Name, number_of_path, one_of
from keyplan.operations import Answered, In, Schema
from keyplan.protobuf import Message

__all__ = ["Inventory", "blade_number"]


V = TypeVar("V", BladeView, PduView, TorView)

_BLADES: Final = f"{ONE_RACK}/blades"
_BLADE: Final = f"{_BLADES}/{{blade}}"
_CONDITION: Final = one_of("condition", {str(one): str(one) for one in Condition})


class Inventory(Resource):
    """The operations on racks and blades. Names are as written where there is such a rack, else in lower case (5.1)."""

    @rest("GET", RACKS, Who.LOGGED_IN, 500, has_slash=True, headers=DAMAGED_FACT)
    def summary(self) -> Answered[ZoneSummary]:
        """List the racks."""
        zone = self.web.racks.zone()
        if not zone.racks:
            raise RefusedError(500, "Inventory empty or not yet loaded")
        damaged = [*zone.damaged, *(key for rack in zone.racks.values() for key in rack.damaged)]
        return Answered(_summary(zone), headers=damaged_header(damaged))

    @rest("GET", ONE_RACK, Who.LOGGED_IN, 404, has_slash=True, headers=DAMAGED_FACT)
    def read(self, rack: Name) -> Answered[RackView]:
        """Read a rack."""
        found = self.web.racks.rack(rack)
        if found is None:
            raise not_found("rack", rack.lower())
        return Answered(_view(found), headers=damaged_header(found.damaged))

    @rest("GET", _BLADES, Who.LOGGED_IN, has_slash=True)
    def list_blades(self, rack: Name) -> str:
        """List the blades of a rack."""
        name, numbers = self.web.racks.blade_numbers(rack)
        lines = [f"Blades in {quoted(name)} (List)", *(blade_uri(BladeKey(name, number)) for number in numbers)]
        return "".join(f"{line}\n" for line in lines)

    @rest("GET", _BLADE, Who.LOGGED_IN, 404)
    def read_blade(self, rack: Name, blade: Name) -> Capacity:
        """Read a blade."""
        number = blade_number(blade)
        found = None if number is None else self.web.racks.blade(rack, number)
        if found is None:
            raise RefusedError(404, f"blade {blade} not found in rack {quoted(rack.lower())}")
        return found.capacity or Capacity()

    @rest("GET", "/api/blades", Who.LOGGED_IN, 400, 409, has_slash=True)
    def find_blades(
        self,
        *,
        arch: Annotated[str | None, Schema("only blades of this architecture")] = None,
        condition: Annotated[str | None, In(form=_CONDITION), Schema("only blades in this condition")] = None,
    ) -> BladeList:
        """List the blades of all racks, or those of an architecture or condition."""
        keys = sorted(self._blade_keys(arch, condition))
        return BladeList(blades=[BladeEntry(rack=key.rack, blade=key.blade, uri=blade_uri(key)) for key in keys])

    @rest("GET", f"{_BLADE}/instances", Who.LOGGED_IN, has_slash=True)
    def find_instances(self, rack: Name, blade: Name) -> PlacedInstanceList:
        """List the instances that are wanted on a blade."""
        number = blade_number(blade)
        keys = [] if number is None else self._instance_keys(rack, number)
        return PlacedInstanceList(
            instances=[PlacedInstance(workload=key.workload, name=key.instance, uri=instance_uri(key)) for key in keys]
        )

    def _blade_keys(self, arch: str | None, condition: str | None) -> Iterable[BladeKey]:
        if arch is None and condition is None:
            return self.web.racks.blade_keys()
        # Why one state: a blade that changes between two looks would have had both at no time.
        with self._indexed().snapshot() as state:
            found: list[set[BladeKey]] = []
            if arch is not None:
                found.append(set(state.blades_by_arch.keys(arch)))
            if condition is not None:
                found.append(set(state.blades_by_condition.keys(condition)))
        return set.intersection(*found)

    def _instance_keys(self, rack: str, number: int) -> list[InstanceKey]:
        with self.layout.snapshot() as state:
            for spelled in dict.fromkeys((rack, rack.lower())):
                keys = list(state.instances_by_blade.keys(spelled, number))
                if keys:
                    return keys
        return []

    def _indexed(self) -> CloudChamberIndexed:
        if not isinstance(self.layout, CloudChamberIndexed):
            raise no_indexes()
        return self.layout


def blade_number(given: str) -> int | None:
    """Return the blade's number in a path; None for one that no blade can have. Raises RefusedError (400) for no number."""
    number = number_of_path(given)
    return number if 0 <= number <= BLADE_NUMBER_MAX else None


def _view(found: ReadableRack) -> RackView:
    rack = found.contents

    def seen(view: type[V], kind: PartKind, parts: Mapping[int, Message]) -> dict[int, V]:
        return {number: _seen(view, part, found.actuals.get((kind, number))) for number, part in parts.items()}

    return RackView(
        details=rack.rack.details,
        pdu=Empty(),
        tor=Empty(),
        blades={number: blade.capacity or Capacity() for number, blade in rack.blades.items()},
        pdus=seen(PduView, PartKind.PDU, rack.pdus),
        tors=seen(TorView, PartKind.TOR, rack.tors),
        full_blades=seen(BladeView, PartKind.BLADE, rack.blades),
    )


def _seen(view: type[V], part: Message, actual: PartActual | None) -> V:
    """A part's record as a view shows it: what a simulator says goes before a field of that name which is unknown here."""
    fields = msgspec.structs.asdict(part)
    if actual is not None:
        fields["observed"] = Observed(at=actual.at, sm_state=actual.sm_state, entered_at=actual.entered_at)
        fields["unknown_fields"] = {name: it for name, it in part.unknown_fields.items() if name != "observed"}
    return view(**fields)


def _summary(zone: ReadableZone) -> ZoneSummary:
    contents = [rack.contents for rack in zone.racks.values()]
    capacities = [blade.capacity for rack in contents for blade in rack.blades.values() if blade.capacity is not None]
    ports = [
        *(len(tor.ports) for rack in contents for tor in rack.tors.values()),
        *(len(pdu.ports) for rack in contents for pdu in rack.pdus.values()),
    ]
    return ZoneSummary(
        racks={name: RackEntry(uri=rack_uri(name)) for name in zone.racks},
        max_blade_count=_most(len(rack.blades) for rack in contents),
        max_capacity=Capacity(
            cores=_most(one.cores for one in capacities),
            memory_in_mb=_most(one.memory_in_mb for one in capacities),
            disk_in_gb=_most(one.disk_in_gb for one in capacities),
            network_bandwidth_in_mbps=_most(one.network_bandwidth_in_mbps for one in capacities),
        ),
        # Why also where nothing is known: the original's web page reads the location without looking.
        details=zone.details,
        name=zone.name,
        max_tor_count=_most(len(rack.tors) for rack in contents),
        max_pdu_count=_most(len(rack.pdus) for rack in contents),
        max_connectors=_most(ports),
    )


def _most(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)
