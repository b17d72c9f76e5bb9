"""Which rack of the document's keys is which rack of the Go program's: by what is known of them, else by a rule (R7). Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from keyplan.apps.cloudchamber.go_inventory import folded
from keyplan.apps.cloudchamber.inventory import RackIds
from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.sidecar import RackName
from keyplan.errors import InvalidInputError

__all__ = ["RackNames", "RackPath"]

UNNAMED: Final = "standard"
"""The Go program's own default for region and zone (2.2)."""


class RackPath(NamedTuple):
    """A rack's names as they stand in the Go program's keys."""

    region: str
    zone: str
    rack: str

    @classmethod
    def of(cls, name: RackName) -> "RackPath":
        """The path of a rack that is known."""
        return cls(folded(name.region), folded(name.zone), folded(name.rack))


class RackNames:
    """Names racks one by one, and sees to it that no two get one name. Raises InvalidInputError that names both."""

    def __init__(self, known: Iterable[RackName], rack_ids: RackIds, source: LayoutSide) -> None:
        self._rack_ids = rack_ids
        self._source = str(source)
        known = tuple(known)
        self._by_id = {name.id: name for name in known}
        self._by_path = {RackPath.of(name): name for name in known}
        zones = {(name.region, name.zone) for name in known}
        self._home = next(iter(zones)) if len(zones) == 1 else None if zones else (UNNAMED, UNNAMED)
        self.made: dict[str, RackName] = {}
        self._made_by_path: dict[RackPath, RackName] = {}

    def of_path(self, path: RackPath, region: str, zone: str, rack: str) -> RackName:
        """Return the name of a rack of the Go program, whose names are given in their own case too."""
        found = self._made_by_path.get(path)
        if found is not None:
            return found
        known = self._by_path.get(path)
        rack_id = known.id if known else rack if self._rack_ids is RackIds.NAME else f"{region}.{zone}.{rack}"
        return self._take(RackName(rack_id, region, zone, rack), path)

    def of_id(self, rack_id: str) -> RackName:
        """Return the name of a rack of the document."""
        found = self.made.get(rack_id)
        if found is not None:
            return found
        name = self._by_id.get(rack_id) or self._by_rule(rack_id)
        return self._take(name, RackPath.of(name))

    def _by_rule(self, rack_id: str) -> RackName:
        if self._rack_ids is RackIds.NAME:
            if self._home is None:
                problem = f"the rack {rack_id!r} came later, and there are several zones in which it could be"
                raise InvalidInputError(source=self._source, problem=problem)
            return RackName(rack_id, *self._home, rack_id)
        parts = rack_id.split(".")
        if len(parts) != 3 or not all(parts):
            problem = f"the rack {rack_id!r} is not named 'region.zone.rack'"
            raise InvalidInputError(source=self._source, problem=problem)
        return RackName(rack_id, *parts)

    def _take(self, name: RackName, path: RackPath) -> RackName:
        other = self.made.get(name.id) or self._made_by_path.get(path)
        if other is not None:
            if other.id == name.id:
                problem = (
                    f"the racks {other.path} and {name.path} would both have the id {name.id!r}"
                    " (rack ids 'region.zone.rack' tell them apart)"
                )
            else:
                problem = f"the racks {other.id!r} and {name.id!r} would both have one key: keys know no upper case"
            raise InvalidInputError(source=self._source, problem=problem)
        self.made[name.id] = self._made_by_path[path] = name
        return name
