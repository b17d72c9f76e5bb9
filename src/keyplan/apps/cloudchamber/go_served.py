"""A store of the Go program as a web server works with it, in place: its users, its racks, and workloads beside them.

The program's own server shows one zone, that of `readable.DEFAULT_ZONE`; so does this one. Its list keys say what a list shows.
Racks are read here; rack_writer.py and imports write them, with record and list key in one commit.
"""

from collections.abc import Iterable
from typing import Final

from keyplan.apps.cloudchamber.chamber import RackContents
from keyplan.apps.cloudchamber.go_inventory import GO_VIEW, folded, lists
from keyplan.apps.cloudchamber.layout import CloudChamberGo, go_prefixes_of_parts
from keyplan.apps.cloudchamber.layout_keys import BladeKey, GoBladeKey, GoRackKey, GoZoneKey
from keyplan.apps.cloudchamber.namespace_store import NamespaceStore, Owner
from keyplan.apps.cloudchamber.readable import DEFAULT_ZONE, Readable, ReadableRack, ReadableZone, with_actuals
from keyplan.apps.cloudchamber.records import Blade, Rack, Zone, ZoneDetails
from keyplan.engine import KeyRange
from keyplan.layout import Damaged, bound_layout_of, shown_key
from keyplan.store import Store

__all__ = ["SERVED_ZONE", "GoChamber", "GoRacks"]

SERVED_ZONE: Final = GoZoneKey(GO_VIEW, DEFAULT_ZONE, DEFAULT_ZONE)
"""The one zone that is served."""


class GoChamber(NamespaceStore[CloudChamberGo]):
    """A store under the Go program's keys, in one name space."""

    def __init__(self, store: Store, *, namespace: str = "") -> None:
        bound = CloudChamberGo.bound(namespace=namespace)
        super().__init__(store, CloudChamberGo(store, namespace=namespace), bound)

    def owner_of_rack(self, rack: GoRackKey) -> Owner:
        """Return a rack as something with parts: in both trees and beside them, with its own list key."""
        parts = [KeyRange.of_prefix(prefix) for prefix in go_prefixes_of_parts(self._bound, rack)]
        own_list_key = self._bound.tables["listed_racks"].keys.encode(rack)
        # Why of one zone: targets and actual states name racks of that which is served.
        named = rack.rack if rack[:3] == SERVED_ZONE else ""
        if named:
            parts.append(KeyRange(*self._bound.tables["part_actual"].keys.range((named,))))
        return Owner("racks", rack, tuple(parts), (), (own_list_key,), named)


class GoRacks:
    """The racks of the one zone, by the names of their list keys, in their own case; a path may have them in any."""

    def __init__(self, chamber: GoChamber) -> None:
        self._chamber = chamber
        self._layout = chamber.layout

    def zone(self) -> ReadableZone:
        """Return the racks that are listed, with what the zone's record says of it."""
        with self._layout.snapshot() as state:
            own = Readable(self._chamber)
            zone: Zone | None = own.one(state.zones, SERVED_ZONE)
            racks = {}
            for key, name in self._listed(state, own):
                readable = Readable(self._chamber)
                record: Rack | None = readable.one(state.racks, key)
                racks[name] = _read(state, key, record or Rack(), readable)
        details = None if zone is None else zone.details
        return ReadableZone(DEFAULT_ZONE, details or ZoneDetails(), racks, own.damaged)

    def rack(self, name: str) -> ReadableRack | None:
        """Return a rack; None when there is none of the name."""
        key = GoRackKey(*SERVED_ZONE, folded(name))
        with self._layout.snapshot() as state:
            readable = Readable(self._chamber)
            record: Rack | None = readable.one(state.racks, key)
            if record is None and not readable.damaged:
                return None
            return with_actuals(_read(state, key, record or Rack(), readable), state, key.rack, readable)

    def blade_numbers(self, rack: str) -> tuple[str, list[int]]:
        """Return the rack's name as its key has it, and the numbers of its blades that are listed."""
        key = GoRackKey(*SERVED_ZONE, folded(rack))
        return key.rack, sorted(one.blade for one in self._layout.listed_blades.keys(*key))

    def blade(self, rack: str, number: int) -> Blade | None:
        """Return a blade; None when there is none."""
        return self._layout.blades.get(GoBladeKey(*SERVED_ZONE, folded(rack), number))

    def blade_keys(self) -> Iterable[BladeKey]:
        """Return the blades of all racks that are listed."""
        return [BladeKey(key.rack, key.blade) for key in self._layout.listed_blades.keys(*SERVED_ZONE)]

    def _listed(self, state: CloudChamberGo, readable: Readable) -> Iterable[tuple[GoRackKey, str]]:
        """Yield the racks that are listed with their names; of one whose list key says another name, that of the key."""
        for row in state.listed_racks.rows(*SERVED_ZONE):
            if isinstance(row, Damaged) or not lists(row.key, row.record):
                assert row.key is not None, "rows of a table have the record's key"
                readable.note(shown_key(bound_layout_of(state).tables["listed_racks"].keys.encode(row.key)))
                yield row.key, row.key.rack
            else:
                yield row.key, row.record


def _read(state: CloudChamberGo, key: GoRackKey, rack: Rack, readable: Readable) -> ReadableRack:
    contents = RackContents(
        rack,
        {one.device: tor for one, tor in readable.all(state.tors.rows(*key))},
        {one.device: pdu for one, pdu in readable.all(state.pdus.rows(*key))},
        dict(sorted((one.blade, blade) for one, blade in readable.all(state.blades.rows(*key)))),
    )
    return ReadableRack(contents, readable.damaged)
