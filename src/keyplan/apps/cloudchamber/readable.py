"""Racks and blades as a web server shows them: what can be read, and the keys of what cannot.

A record that another program damaged hides no other: its rack has the parts that can be read, and the list all racks.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from keyplan.apps.cloudchamber.chamber import Chamber, RackContents
from keyplan.apps.cloudchamber.inventory_parts import PartKind
from keyplan.apps.cloudchamber.layout import CloudChamber, ServedLayout
from keyplan.apps.cloudchamber.layout_keys import BladeKey
from keyplan.apps.cloudchamber.namespace_store import NamespaceStore
from keyplan.apps.cloudchamber.records import Blade, PartActual, Pdu, Rack, Tor, ZoneDetails
from keyplan.errors import CorruptionError
from keyplan.layout import Damaged, Versioned, readable_rows, shown_key

__all__ = [
    "DEFAULT_ZONE",
    "DocumentRacks",
    "RackReader",
    "Readable",
    "ReadableRack",
    "ReadableZone",
    "spellings",
    "with_actuals",
]

DEFAULT_ZONE: Final = "standard"
"""The zone, and the region, that the original's server shows."""

_KINDS: Final = (PartKind.BLADE.value, PartKind.PDU.value, PartKind.TOR.value)

K = TypeVar("K")
R = TypeVar("R")


class ReadableRack(NamedTuple):
    """A rack with those of its records that can be read, and the keys of the others, below the name space."""

    contents: RackContents
    damaged: tuple[str, ...]
    actuals: Mapping[tuple[str, int], PartActual] = MappingProxyType({})
    """What a simulator says of its parts, by kind and number. A zone's racks come without."""


class ReadableZone(NamedTuple):
    """All racks by name, with what is said of their zone; `details` says nothing where the layout keeps none."""

    name: str
    details: ZoneDetails
    racks: Mapping[str, ReadableRack]
    damaged: tuple[str, ...] = ()


class RackReader(Protocol):
    """What a web server reads of an inventory. A rack's name is one that somebody wrote into a path.

    Every method reads one state. Safe for use by several threads.
    """

    def zone(self) -> ReadableZone:
        """Return the racks with their zone."""
        ...

    def rack(self, name: str) -> ReadableRack | None:
        """Return a rack; None when there is none of the name."""
        ...

    def blade_numbers(self, rack: str) -> tuple[str, list[int]]:
        """Return the rack's name as it is stored, and the numbers of its blades, damaged ones too; none for no rack."""
        ...

    def blade(self, rack: str, number: int) -> Blade | None:
        """Return a blade; None when there is none. Raises CorruptionError for one that cannot be read."""
        ...

    def blade_keys(self) -> Iterable[BladeKey]:
        """Return the blades of all racks, damaged ones too."""
        ...


class Readable:
    """Collects what can be read, and the keys of what cannot."""

    def __init__(self, chamber: NamespaceStore[Any]) -> None:
        self._place_of = chamber.place_of
        self._damaged: list[str] = []

    @property
    def damaged(self) -> tuple[str, ...]:
        """The keys so far."""
        return tuple(self._damaged)

    def note(self, shown: str) -> None:
        """Count a key, as people read it, among those that cannot be read."""
        self._damaged.append(self._place_of(shown))

    def all(self, rows: Iterable[Versioned[K, R] | Damaged[K]]) -> Iterator[tuple[K, R]]:
        """Return the records among rows that can be read."""
        return readable_rows(rows, lambda row: self.note(shown_key(row.raw_key)))

    def one(self, view: Any, key: object) -> Any:
        """Return the record at a key of a view; None when it cannot be read, too."""
        try:
            return view.get(key)
        except CorruptionError as error:
            self.note(shown_key(bytes.fromhex(str(error.facts["raw_key"]))))
            return None


class DocumentRacks:
    """The racks under the document's keys: names are as written where there is such a rack, else in lower case (5.1)."""

    def __init__(self, chamber: Chamber) -> None:
        self._chamber = chamber
        self._layout = chamber.layout

    def zone(self) -> ReadableZone:
        """Return the racks; the document has no place for what is said of their zone."""
        with self._layout.snapshot() as state:
            racks = {}
            for row in state.racks.rows():
                readable = Readable(self._chamber)
                record = next((one for _, one in readable.all([row])), Rack())
                racks[str(row.key)] = self._read(state, str(row.key), record, readable)
        return ReadableZone(DEFAULT_ZONE, ZoneDetails(), racks)

    def rack(self, name: str) -> ReadableRack | None:
        """Return a rack; None when there is none of the name."""
        with self._layout.snapshot() as state:
            for spelled in spellings(name):
                readable = Readable(self._chamber)
                record = readable.one(state.racks, spelled)
                if record is not None or readable.damaged:
                    return with_actuals(
                        self._read(state, spelled, record or Rack(), readable), state, spelled, readable
                    )
        return None

    def blade_numbers(self, rack: str) -> tuple[str, list[int]]:
        """Return the rack's name as it is stored, and the numbers of its blades, damaged ones too."""
        for spelled in spellings(rack):
            # Why keys alone: a list of names needs no record, and a damaged one is still a blade.
            numbers = sorted(key.blade for key in self._layout.blades.keys(spelled))
            if numbers:
                return spelled, numbers
        return rack.lower(), []

    def blade(self, rack: str, number: int) -> Blade | None:
        """Return a blade; None when there is none. Raises CorruptionError for one that cannot be read."""
        with self._layout.snapshot() as state:
            # Why one after the other: a damaged blade of rack r is none of rack R's.
            found = (state.blades.get(BladeKey(spelled, number)) for spelled in spellings(rack))
            return next((one for one in found if one is not None), None)

    def blade_keys(self) -> Iterable[BladeKey]:
        """Return the blades of all racks, damaged ones too."""
        return self._layout.blades.keys()

    @staticmethod
    def _read(state: CloudChamber, name: str, rack: Rack, readable: Readable) -> ReadableRack:
        tor: Tor | None = readable.one(state.tor, name)
        pdu: Pdu | None = readable.one(state.pdu, name)
        tors = {key.device: one for key, one in readable.all(state.tors.rows(name))}
        pdus = {key.device: one for key, one in readable.all(state.pdus.rows(name))}
        blades = {key.blade: one for key, one in readable.all(state.blades.rows(name))}
        contents = RackContents(
            rack,
            {**({} if tor is None else {0: tor}), **tors},
            {**({} if pdu is None else {0: pdu}), **pdus},
            dict(sorted(blades.items())),
        )
        return ReadableRack(contents, readable.damaged)


def with_actuals(rack: ReadableRack, state: ServedLayout, name: str, readable: Readable) -> ReadableRack:
    """Return a rack with what a simulator says of its parts, as far as that can be read; `name` is as keys have it."""
    # Why kind by kind: the range of all would hold the document's records of the rack, too.
    rows = chain.from_iterable(state.part_actual.rows(name, kind) for kind in _KINDS)
    found = {(key.kind, key.number): one for key, one in readable.all(rows)}
    return rack._replace(damaged=readable.damaged, actuals=found)


def spellings(name: str) -> list[str]:
    """Return the names that a part of a path may mean, the likeliest first."""
    return list(dict.fromkeys((name, name.lower())))
