"""Racks and blades over HTTP (5.3): reading, for everybody who is logged in. An import writes them."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.chamber import RackContents
from keyplan.apps.cloudchamber.layout import BLADE_NUMBER_MAX, BladeKey
from keyplan.apps.cloudchamber.records import Blade, Capacity
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    DamagedRecord,
    Empty,
    RackEntry,
    RackView,
    ZoneSummary,
    message_answer,
    text_answer,
)
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation
from keyplan.apps.cloudchamber.rest_uris import RACKS, blade_uri, rack_uri

__all__ = ["blade_number", "inventory_operations", "spellings"]

_ZONE: Final = "standard"
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX: Final = 18


def inventory_operations(handler: Handler) -> Sequence[Operation]:
    """Return the operations on the inventory."""
    racks = _Racks(handler)
    one = f"{RACKS}/{{rack}}"
    return [
        Operation("GET", RACKS, racks.summary, "List the racks.", ZoneSummary, failures="403 500", has_slash=True),
        Operation("GET", one, racks.read, "Read a rack.", RackView, failures="403 404", has_slash=True),
        Operation("GET", f"{one}/blades", racks.list_blades, "List the blades of a rack.", has_slash=True),
        Operation(
            "GET", f"{one}/blades/{{blade}}", racks.read_blade, "Read a blade.", Capacity, failures="400 403 404"
        ),
    ]


class _Racks:
    def __init__(self, handler: Handler) -> None:
        self._chamber = handler.chamber
        self._run = handler.context.run

    async def summary(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        racks = await self._run(self._chamber.readable_racks)
        if not racks:
            raise RefusedError(500, "Inventory empty or not yet loaded")
        return message_answer(_summary(racks))

    async def read(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        rack, damaged = await self._run(self._rack, request.literal("rack"))
        if rack is None:
            raise not_found("rack", request.name("rack"))
        view = RackView(
            details=rack.rack.details,
            pdu=Empty(),
            tor=Empty(),
            blades={number: blade.capacity or Capacity() for number, blade in rack.blades.items()},
            pdus=dict(rack.pdus),
            tors=dict(rack.tors),
            full_blades=dict(rack.blades),
            damaged=[DamagedRecord(key=key) for key in damaged],
        )
        return message_answer(view)

    async def list_blades(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        rack, numbers = await self._run(self._blade_numbers, request.literal("rack"))
        lines = [
            f"Blades in {quoted(rack)} (List)",
            *(blade_uri(BladeKey(rack, number)) for number in numbers),
        ]
        return text_answer("".join(f"{line}\n" for line in lines))

    async def read_blade(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        number = blade_number(request)
        blade = None if number is None else await self._run(self._blade, request.literal("rack"), number)
        if blade is None:
            given, rack = request.literal("blade"), request.name("rack")
            raise RefusedError(404, f"blade {given} not found in rack {quoted(rack)}")
        return message_answer(blade.capacity or Capacity())

    # ---- names: as written when there is such a rack, else in lower case (5.1) -------------------------------------------

    def _rack(self, name: str) -> tuple[RackContents | None, list[str]]:
        for spelled in spellings(name):
            found, damaged = self._chamber.readable_rack(spelled)
            if found is not None:
                return found, damaged
        return None, []

    def _blade(self, rack: str, number: int) -> Blade | None:
        keys = [BladeKey(spelled, number) for spelled in spellings(rack)]
        return next((blade for blade in self._chamber.layout.blades.get_many(keys) if blade is not None), None)

    def _blade_numbers(self, rack: str) -> tuple[str, list[int]]:
        for spelled in spellings(rack):
            # Why keys alone: a list of names needs no record, and a damaged one is still a blade.
            numbers = sorted(key.blade for key in self._chamber.layout.blades.keys(spelled))
            if numbers:
                return spelled, numbers
        return rack.lower(), []


def spellings(name: str) -> list[str]:
    """Return the names that a part of a path may mean, the likeliest first."""
    return list(dict.fromkeys((name, name.lower())))


def blade_number(request: AuthenticatedRequest) -> int | None:
    """Return the blade's number in a path; None for one that no blade can have. Raises RefusedError (400) for no number."""
    given = request.literal("blade")
    if not _WHOLE.fullmatch(given):
        raise invalid(f"blade id {quoted(given)} is not a whole number")
    number = int(given) if len(given) <= _DIGITS_MAX else -1
    return number if 0 <= number <= BLADE_NUMBER_MAX else None


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
