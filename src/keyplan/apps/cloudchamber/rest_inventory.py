"""Racks and blades over HTTP (5.3): reading, for everybody who is logged in. An import writes them.

The last two operations look records up by a secondary index: the original has no such routes.
"""

from collections.abc import Iterable
from typing import Annotated, Final

from keyplan.apps.cloudchamber.chamber import RackContents
from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed
from keyplan.apps.cloudchamber.layout import BLADE_NUMBER_MAX, BladeKey, InstanceKey
from keyplan.apps.cloudchamber.records import Capacity, Condition
from keyplan.apps.cloudchamber.refusals import RefusedError, no_indexes, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    BladeEntry,
    BladeList,
    DamagedRecord,
    Empty,
    PlacedInstance,
    PlacedInstanceList,
    RackEntry,
    RackView,
    ZoneSummary,
)
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, rest
from keyplan.apps.cloudchamber.rest_stored import RACKS, blade_uri, instance_uri, rack_uri
from keyplan.apps.cloudchamber.rest_words import Name, number_of_path, one_of
from keyplan.operations import In, Schema

__all__ = ["Inventory"]

_ZONE: Final = "standard"

_RACK: Final = f"{RACKS}/{{rack}}"
_BLADES: Final = f"{_RACK}/blades"
_BLADE: Final = f"{_BLADES}/{{blade}}"
_CONDITION: Final = one_of("condition", {str(one): str(one) for one in Condition})


class Inventory(Resource):
    """The operations on racks and blades. Names are as written where there is such a rack, else in lower case (5.1)."""

    @rest("GET", RACKS, Who.LOGGED_IN, 500, has_slash=True)
    def summary(self) -> ZoneSummary:
        """List the racks."""
        racks = self.web.chamber.readable_racks()
        if not racks:
            raise RefusedError(500, "Inventory empty or not yet loaded")
        return _summary(racks)

    @rest("GET", _RACK, Who.LOGGED_IN, 404, has_slash=True)
    def read(self, rack: Name) -> RackView:
        """Read a rack."""
        for spelled in _spellings(rack):
            found, damaged = self.web.chamber.readable_rack(spelled)
            if found is not None:
                return _view(found, damaged)
        raise not_found("rack", rack.lower())

    @rest("GET", _BLADES, Who.LOGGED_IN, has_slash=True)
    def list_blades(self, rack: Name) -> str:
        """List the blades of a rack."""
        name, numbers = rack.lower(), list[int]()
        for spelled in _spellings(rack):
            # Why keys alone: a list of names needs no record, and a damaged one is still a blade.
            numbers = sorted(key.blade for key in self.layout.blades.keys(spelled))
            if numbers:
                name = spelled
                break
        lines = [f"Blades in {quoted(name)} (List)", *(blade_uri(BladeKey(name, number)) for number in numbers)]
        return "".join(f"{line}\n" for line in lines)

    @rest("GET", _BLADE, Who.LOGGED_IN, 404)
    def read_blade(self, rack: Name, blade: Name) -> Capacity:
        """Read a blade."""
        number = _blade_number(blade)
        keys = [] if number is None else [BladeKey(spelled, number) for spelled in _spellings(rack)]
        found = next((one for one in self.layout.blades.get_many(keys) if one is not None), None)
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

    @rest("GET", f"{_BLADE}/instances", Who.LOGGED_IN, 409, has_slash=True)
    def find_instances(self, rack: Name, blade: Name) -> PlacedInstanceList:
        """List the instances that are wanted on a blade."""
        number = _blade_number(blade)
        keys = [] if number is None else self._instance_keys(rack, number)
        return PlacedInstanceList(
            instances=[PlacedInstance(workload=key.workload, name=key.instance, uri=instance_uri(key)) for key in keys]
        )

    def _blade_keys(self, arch: str | None, condition: str | None) -> Iterable[BladeKey]:
        if arch is None and condition is None:
            return self.layout.blades.keys()
        # Why one state: a blade that changes between two looks would have had both at no time.
        with self._indexed().snapshot() as state:
            found: list[set[BladeKey]] = []
            if arch is not None:
                found.append(set(state.blades_by_arch.keys(arch)))
            if condition is not None:
                found.append(set(state.blades_by_condition.keys(condition)))
        return set.intersection(*found)

    def _instance_keys(self, rack: str, number: int) -> list[InstanceKey]:
        with self._indexed().snapshot() as state:
            for spelled in _spellings(rack):
                keys = list(state.instances_by_blade.keys(spelled, number))
                if keys:
                    return keys
        return []

    def _indexed(self) -> CloudChamberIndexed:
        if not isinstance(self.layout, CloudChamberIndexed):
            raise no_indexes()
        return self.layout


def _spellings(name: str) -> list[str]:
    """The names that a part of a path may mean, the likeliest first."""
    return list(dict.fromkeys((name, name.lower())))


def _blade_number(given: str) -> int | None:
    """The blade's number in a path; None for one that no blade can have. Raises RefusedError (400) for no number."""
    number = number_of_path(given)
    return number if 0 <= number <= BLADE_NUMBER_MAX else None


def _view(rack: RackContents, damaged: Iterable[str]) -> RackView:
    return RackView(
        details=rack.rack.details,
        pdu=Empty(),
        tor=Empty(),
        blades={number: blade.capacity or Capacity() for number, blade in rack.blades.items()},
        pdus=dict(rack.pdus),
        tors=dict(rack.tors),
        full_blades=dict(rack.blades),
        damaged=[DamagedRecord(key=key) for key in damaged],
    )


def _summary(racks: dict[str, RackContents | None]) -> ZoneSummary:
    contents = [rack for rack in racks.values() if rack is not None]
    capacities = [blade.capacity for rack in contents for blade in rack.blades.values() if blade.capacity is not None]
    ports = [
        *(len(tor.ports) for rack in contents for tor in rack.tors.values()),
        *(len(pdu.ports) for rack in contents for pdu in rack.pdus.values()),
    ]
    return ZoneSummary(
        racks={name: RackEntry(uri=rack_uri(name), damaged=rack is None) for name, rack in racks.items()},
        max_blade_count=_most(len(rack.blades) for rack in contents),
        max_capacity=Capacity(
            cores=_most(one.cores for one in capacities),
            memory_in_mb=_most(one.memory_in_mb for one in capacities),
            disk_in_gb=_most(one.disk_in_gb for one in capacities),
            network_bandwidth_in_mbps=_most(one.network_bandwidth_in_mbps for one in capacities),
        ),
        name=_ZONE,
        max_tor_count=_most(len(rack.tors) for rack in contents),
        max_pdu_count=_most(len(rack.pdus) for rack in contents),
        max_connectors=_most(ports),
    )


def _most(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)
