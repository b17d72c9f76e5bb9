"""Where a cluster's next node goes: cells in the order in which they are asked. Pure; the store is read elsewhere.

Spread first over availability zones, then over cells, then by load (specification 3.4).
"""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

__all__ = ["CellLoad", "available_cells", "cells_in_order", "too_few_cells", "version_of_new"]

_VERSION: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")


class CellLoad(NamedTuple):
    """A cell that is alive, with the number of nodes of all clusters that are placed or ordered there."""

    guid: str
    availability_zone: str
    load: int = 0
    capacity: int = 0
    is_draining: bool = False
    versions: tuple[str, ...] = ()

    def runs(self, version: str) -> bool:
        """True when it has programs of a major version of PostgreSQL, or nobody knows whether it has."""
        return not version or not self.versions or version in self.versions

    @property
    def has_room(self) -> bool:
        """True when it takes one more node."""
        return not self.is_draining and (self.capacity == 0 or self.load < self.capacity)


def available_cells(
    cells: Sequence[CellLoad], *, allowed: Collection[str] = (), used: Collection[str] = ()
) -> list[CellLoad]:
    """Return the cells that may hold a node of a cluster: those that have room, and those of `used` that are not draining.

    `allowed` restricts them by name; a name that there is no cell of is passed over. Empty: all.
    """
    return [
        cell
        for cell in cells
        if (not allowed or cell.guid in allowed) and (cell.has_room or (cell.guid in used and not cell.is_draining))
    ]


def too_few_cells(node_count: int, cells: Sequence[CellLoad], *, outside: int = 0) -> str:
    """Say that a cluster of so many nodes, of which so many are on no cell, has too few available cells, and what to do."""
    beside = f", of which no cell runs {outside}" if outside else ""
    counts = f"nodes asked for: {node_count}{beside}, available cells: {len(cells)}"
    return f"{counts}. Start cells, or ask for fewer nodes; a cell that is full or draining is not available"


def version_of_new(cells: Sequence[CellLoad]) -> str:
    """Return the major version that a cluster on these cells begins with: that with which most of them begin new clusters.

    Of equally many it is the newest. Empty where no cell says which versions it has; what is no version counts as none.
    """
    # Why: cells write their records themselves, and one that cannot be compared would keep every cluster from being made.
    firsts = [cell.versions[0] for cell in cells if cell.versions and _VERSION.fullmatch(cell.versions[0])]
    return max(firsts, key=lambda version: (firsts.count(version), float(version)), default="")


def cells_in_order(cells: Sequence[CellLoad], used: Sequence[str] = ()) -> list[str]:
    """Return the names of cells in the order in which they are asked for the next node of a cluster.

    `used` are the cells of its nodes so far, one name for each node. First the zones that hold the fewest of them; of these the
    least loaded cell; cells that hold a node already come last of all, by their load. Equal ones go by name.
    """
    zone_of = {cell.guid: cell.availability_zone for cell in cells}
    nodes_of_zone: dict[str, int] = {}
    for guid in used:
        zone = zone_of.get(guid)
        if zone is not None:
            nodes_of_zone[zone] = nodes_of_zone.get(zone, 0) + 1

    def rank(cell: CellLoad) -> tuple[bool, int, int, str]:
        is_used = cell.guid in used
        return is_used, 0 if is_used else nodes_of_zone.get(cell.availability_zone, 0), cell.load, cell.guid

    return [cell.guid for cell in sorted(cells, key=rank)]
