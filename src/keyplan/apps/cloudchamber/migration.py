"""From the entries of one layout to those of the other, and what that leaves over. Pure: bytes in, bytes out.

Values are carried as they are stored, byte for byte: both layouts spell records alike. What the other layout has no place for
is a `Leftover`; nothing is dropped but list keys, which the way back makes again. `planned_migration` proves that by going
back: what does not come back as it was is left over as well. migrating.py reads and writes stores.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from keyplan.apps.cloudchamber.go_inventory import GO_VIEW, GoKey, folded, list_table, lists
from keyplan.apps.cloudchamber.go_served import SERVED_ZONE
from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed
from keyplan.apps.cloudchamber.inventory import ExtraDevices, RackIds
from keyplan.apps.cloudchamber.layout import CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.layout_keys import (
    GUARDS,
    BladeKey,
    DeviceKey,
    GoBladeKey,
    GoDeviceKey,
    GoRackKey,
    GoRegionKey,
    GoZoneKey,
    PartActualKey,
)
from keyplan.apps.cloudchamber.rack_names import RackNames, RackPath
from keyplan.apps.cloudchamber.sidecar import MigrationSidecar, RackName, SidecarEntry
from keyplan.errors import CorruptionError, InvalidInputError, InvalidKeyError, InvalidRecordError
from keyplan.layout import BoundLayout, Kind, shown_key

__all__ = ["Contents", "Leftover", "Migration", "MigrationOptions", "bound_side", "is_kept_up", "planned_migration"]

Contents = Mapping[bytes, bytes]
"""Values by raw key, in key order."""

_NO_DETAILS: Final = b'{"details":{}}'
_WORKLOADS: Final = frozenset({"workloads", "instances", "instance_actual", "instance_target"})
ACTUALS: Final = "part_actual"
_ALIKE: Final = frozenset({"users", *_WORKLOADS})
"""The tables that both layouts have alike."""

NO_PLACE: Final = "{} has no place there"
NO_PART: Final = "the part that it is the actual state of is not there, or cannot be read"
OTHER_ZONE: Final = "an actual state has a place there in the zone that is served alone"
OTHER_VIEW: Final = "the view {} has no place there"
UNKNOWN: Final = "the key is unknown"
DAMAGED: Final = "the value cannot be read"
UNFIT: Final = "the name cannot be part of a key there"
FURTHER: Final = "a rack's further devices have no place there (extra devices 'extend' gives them one)"
UNPAIRED: Final = "the list key has no record there, or lists another name"
HOMELESS: Final = "the names of a rack's region and zone have no place there"
RENAMED: Final = "the upper case of a name has no place there"
CHANGED: Final = "the way back would not bring it back as it is"


class MigrationOptions(NamedTuple):
    """How a migration goes: which view, how racks are named, what becomes of further devices, and the name space."""

    view: str = GO_VIEW
    rack_ids: RackIds = RackIds.NAME
    extra_devices: ExtraDevices = ExtraDevices.REFUSE
    namespace: str = ""


class Leftover(NamedTuple):
    """One thing that the target cannot represent: its raw key as text, and why."""

    key: str
    why: str


class Migration(NamedTuple):
    """What the target shall hold, by raw key; what is left over; the sidecar with it; and what of a sidecar was not needed."""

    desired: Contents
    leftovers: tuple[Leftover, ...]
    sidecar: MigrationSidecar
    unused: tuple[Leftover, ...]
    made: tuple[str, ...]

    def reasons(self) -> dict[str, int]:
        """How much is left over, by reason."""
        return dict(Counter(leftover.why for leftover in self.leftovers))


def is_kept_up(bound: BoundLayout, raw_key: bytes) -> bool:
    """Tell whether writers of a store keep a key up by themselves: index entries, guards, the note that there are indexes."""
    meaning = bound.meaning(raw_key)
    return meaning.kind is Kind.INDEX_ENTRY or meaning.item in {GUARDS, "indexes_begun"}


def bound_side(side: LayoutSide, namespace: str = "") -> BoundLayout:
    """Return the layout of a side, compiled."""
    # Why: with its indexes, which are known for what they are whether or not a store has them.
    return (CloudChamberIndexed if side is LayoutSide.DOCUMENT else CloudChamberGo).bound(namespace=namespace)


def planned_migration(
    contents: Contents, source: LayoutSide, options: MigrationOptions, back: MigrationSidecar | None = None
) -> Migration:
    """Return what a store of the other layout shall hold for `contents`. `back` is what the way there had carried aside.

    Raises InvalidInputError when two racks or users would get one key, naming both; when racks go by name and there are several
    zones; or when `back` belongs to a migration in the same direction.
    """
    if back is not None and back.source is source:
        raise InvalidInputError(source="aside", problem=f"it was carried aside on the way from {source}, not to it")
    bound = bound_side(source, options.namespace)
    contents = {key: value for key, value in contents.items() if not is_kept_up(bound, key)}
    there = _translated(contents, source, options, back)
    racks = tuple(there.carried_racks())
    entries = [SidecarEntry(*left) for left in there.leftovers]
    sidecar = MigrationSidecar(source, racks, there.renamed_users, tuple(entries))
    root = bound.root
    # Why: the Go program's keys have a place for further devices; whether to come back with them is asked then.
    way_back = options._replace(extra_devices=ExtraDevices.EXTEND)
    returned = _translated(there.desired, source.other, way_back, sidecar).desired
    absent = tuple(key.removeprefix(root) for key in returned if key not in contents)
    sidecar = MigrationSidecar(source, racks, there.renamed_users, tuple(entries), absent)
    lost = [Leftover(shown_key(key), CHANGED) for key, value in contents.items() if returned.get(key) != value]
    leftovers = [Leftover(shown_key(root + entry.key), entry.why) for entry in entries]
    leftovers += [Leftover(user, RENAMED) for user in there.renamed_users.values()]
    leftovers += [Leftover(name.id, there.why_unreturned) for name in there.unreturned_names(options)]
    return Migration(there.desired, (*leftovers, *lost), sidecar, tuple(there.unused), tuple(there.made))


def _translated(
    contents: Contents, source: LayoutSide, options: MigrationOptions, back: MigrationSidecar | None
) -> "_Translation":
    kind = _ToDocument if source is LayoutSide.GO else _ToGo
    translation = kind(contents, source, options, back)
    translation.translate()
    translation.bring_back()
    return translation


class _Translation(ABC):
    """One way of a migration, as far as both are alike."""

    why_unreturned = RENAMED

    def __init__(
        self, contents: Contents, source: LayoutSide, options: MigrationOptions, back: MigrationSidecar | None
    ) -> None:
        self._contents = contents
        self._options = options
        self._source = bound_side(source, options.namespace)
        self._target = bound_side(source.other, options.namespace)
        self._back = back or MigrationSidecar(source.other)
        self.names = RackNames(self._back.racks, options.rack_ids, source)
        self.desired: dict[bytes, bytes] = {}
        self.leftovers: list[tuple[bytes, bytes, str]] = []
        self.renamed_users: dict[str, str] = {}
        self.unused: list[Leftover] = []
        self.made: list[str] = []
        self._derived: set[bytes] = set()
        self._carried: set[str] = set()
        self._from: dict[bytes, bytes] = {}

    def translate(self) -> None:
        """Find the place of every entry."""
        for raw_key, value in self._contents.items():
            meaning = self._source.meaning(raw_key)
            table = self._source.tables.get(str(meaning.item)) if meaning.kind is Kind.RECORD else None
            if table is None:
                self._leave(raw_key, value, UNKNOWN)
                continue
            try:
                table.form.decode(value)
            except (CorruptionError, InvalidRecordError):
                self._leave(raw_key, value, DAMAGED)
                continue
            try:
                why = self.place(table.name, meaning.key, raw_key, value)
            except InvalidKeyError:
                why = UNFIT
            if why:
                self._leave(raw_key, value, why)
        self.finish()

    @abstractmethod
    def place(self, table: str, key: Any, raw_key: bytes, value: bytes) -> str:
        """Put an entry where it belongs, or return why there is no place. Raises InvalidKeyError for a name."""

    def finish(self) -> None:  # noqa: B027  # Why: one direction has nothing to add.
        """Add what the target has besides."""

    @abstractmethod
    def unreturned_names(self, options: MigrationOptions) -> Iterator[RackName]:
        """Yield the racks whose names the way back would not find by itself."""

    def carried_racks(self) -> list[RackName]:
        """The racks of which anything has a place in the target."""
        return [name for name in self.names.made.values() if name.id in self._carried]

    def bring_back(self) -> None:
        """Add what was carried aside on the way there, unless its rack is gone, and take away what was not there."""
        root = self._target.root
        gone = {RackPath.of(name) for name in self._back.racks} - {RackPath.of(name) for name in self.carried_racks()}
        for entry in self._back.entries:
            raw_key = root + entry.key
            if self._rack_path(raw_key) in gone:
                self.unused.append(Leftover(shown_key(raw_key), "its rack is gone"))
            elif raw_key in self.desired and raw_key not in self._derived and self.desired[raw_key] != entry.value:
                self.unused.append(Leftover(shown_key(raw_key), "the store holds a later one"))
            else:
                self.desired[raw_key] = entry.value
        for key in self._back.absent:
            if root + key in self._derived:
                self.desired.pop(root + key, None)
        self.desired = dict(sorted(self.desired.items()))

    def _rack_path(self, raw_key: bytes) -> RackPath | None:
        """The rack of a key of the target, where its keys name racks by path."""
        return None

    def _can_be_read(self, table: str, key: object) -> bool:
        """Whether a record of the source is there and can be read."""
        source = self._source.tables[table]
        value = self._contents.get(source.keys.encode(key))
        if value is None:
            return False
        try:
            source.form.decode(value)
        except CorruptionError:
            return False
        return True

    def _put(self, table: str, key: object, value: bytes, raw_key: bytes) -> None:
        target = self._target.tables[table].keys.encode(key)
        earlier = self._from.setdefault(target, raw_key)
        if earlier != raw_key:
            problem = f"{shown_key(earlier)} and {shown_key(raw_key)} would both become {shown_key(target)}"
            raise InvalidInputError(source=self._source.name, problem=problem)
        self.desired[target] = value

    def _derive(self, table: str, key: object, value: bytes) -> bool:
        target = self._target.tables[table].keys.encode(key)
        is_new = target not in self.desired
        if is_new:
            self.desired[target] = value
            self._derived.add(target)
        return is_new

    def _leave(self, raw_key: bytes, value: bytes, why: str) -> None:
        self.leftovers.append((raw_key.removeprefix(self._source.root), value, why))


class _ToDocument(_Translation):
    """From the Go program's keys to the document's."""

    why_unreturned = HOMELESS

    def translate(self) -> None:
        self._read_names()
        super().translate()

    def _read_names(self) -> None:
        """The names in their own case, and where there are list keys that agree."""
        self._listed: dict[tuple[str, GoKey], str] = {}
        self._records: set[tuple[str, GoKey]] = set()
        zones: set[tuple[str, str]] = set()
        paths: set[RackPath] = set()
        for raw_key, value in self._contents.items():
            meaning = self._source.meaning(raw_key)
            if meaning.kind is not Kind.RECORD or meaning.item in _ALIKE:
                continue
            table, key = str(meaning.item), cast("Any", meaning.key)
            if table == ACTUALS:
                continue
            if table.startswith("listed_"):
                listed = value.decode(errors="replace")
                if lists(key, listed) if isinstance(key[-1], str) else listed == str(key[-1]):
                    self._listed[table.removeprefix("listed_"), key] = listed
                continue
            self._records.add((table, key))
            if key[0] == self._options.view and len(key) >= 4:
                zones.add(key[1:3])
                paths.add(RackPath(*key[1:4]))
        is_known = paths <= {RackPath.of(name) for name in self._back.racks}
        if len(zones) > 1 and self._options.rack_ids is RackIds.NAME and not is_known:
            problem = (
                f"the document's keys know no regions and zones, and the store has racks in {len(zones)} zones"
                " (rack ids 'region.zone.rack' tell them apart)"
            )
            raise InvalidInputError(source=self._source.name, problem=problem)

    def place(self, table: str, key: Any, raw_key: bytes, value: bytes) -> str:
        if table == "users":
            self._put("users", self._back.users.get(key, key), value, raw_key)
            return ""
        if table in _WORKLOADS:
            self._put(table, key, value, raw_key)
            return ""
        if table == ACTUALS:
            return self._place_actual(key, raw_key, value)
        if key.view != self._options.view:
            return OTHER_VIEW.format(key.view)
        records = table.removeprefix("listed_")
        if records in {"regions", "zones"}:
            return NO_PLACE.format("a region" if records == "regions" else "a zone")
        is_further = isinstance(key, GoDeviceKey) and key.device > 0
        if is_further and self._options.extra_devices is ExtraDevices.REFUSE:
            return FURTHER
        rack_id = self._rack_of(key)
        # Why: before list keys, which come back only where their record has a place.
        self._target.tables["racks"].keys.encode(rack_id)
        if table != records:
            is_paired = (records, key) in self._listed and self._can_be_read(records, key)
            return "" if is_paired else UNPAIRED
        target, target_key = _document_place(table, key, rack_id)
        self._put(target, target_key, value, raw_key)
        self._carried.add(rack_id)
        return ""

    def _place_actual(self, key: PartActualKey, raw_key: bytes, value: bytes) -> str:
        """Put an actual state where its part goes, of whose rack it takes the name."""
        if self._options.view != SERVED_ZONE.view:
            return OTHER_VIEW.format(SERVED_ZONE.view)
        table, part = _go_part(key)
        if not self._can_be_read(table, part):
            return NO_PART
        if isinstance(part, GoDeviceKey) and part.device and self._options.extra_devices is ExtraDevices.REFUSE:
            return FURTHER
        self._put(ACTUALS, key._replace(rack=self._rack_of(part)), value, raw_key)
        return ""

    def _rack_of(self, key: Any) -> str:
        path = RackPath(*key[1:4])
        view = key.view
        region = self._listed.get(("regions", GoRegionKey(view, path.region)), path.region)
        zone = self._listed.get(("zones", GoZoneKey(view, path.region, path.zone)), path.zone)
        rack = self._listed.get(("racks", GoRackKey(view, *path)), path.rack)
        return self.names.of_path(path, region, zone, rack).id

    def unreturned_names(self, options: MigrationOptions) -> Iterator[RackName]:
        for name in self.carried_racks():
            try:
                by_rule = RackNames((), options.rack_ids, LayoutSide.DOCUMENT).of_id(name.id)
            except InvalidInputError:
                by_rule = None
            if by_rule != name:
                yield name


class _ToGo(_Translation):
    """From the document's keys to the Go program's."""

    def translate(self) -> None:
        self._with_record: set[str] = set()
        super().translate()

    def place(self, table: str, key: Any, raw_key: bytes, value: bytes) -> str:
        if table == "users":
            self._put("users", folded(key), value, raw_key)
            if folded(key) != key:
                self.renamed_users[folded(key)] = key
            return ""
        if table in _WORKLOADS:
            self._put(table, key, value, raw_key)
            return ""
        if table == ACTUALS:
            return self._place_actual(key, raw_key, value)
        name = self.names.of_id(key if isinstance(key, str) else key.rack)
        rack = GoRackKey(self._options.view, *RackPath.of(name))
        target, target_key, listed = _go_place(table, key, rack, name.rack)
        self._put(target, target_key, value, raw_key)
        self._carried.add(name.id)
        self._derive(list_table(target), target_key, listed.encode())
        if table == "racks":
            self._with_record.add(name.id)
        return ""

    def _place_actual(self, key: PartActualKey, raw_key: bytes, value: bytes) -> str:
        """Put an actual state where its part goes, if that is the zone that is served."""
        path = RackPath.of(self.names.of_id(key.rack))
        if GoRackKey(self._options.view, *path)[:3] != SERVED_ZONE:
            return OTHER_ZONE
        if not self._can_be_read(*_document_place(*_go_part(key), key.rack)):
            return NO_PART
        self._put(ACTUALS, key._replace(rack=path.rack), value, raw_key)
        return ""

    def finish(self) -> None:
        """Every region and zone that a rack is in: what was carried aside takes the place of these."""
        carried = {self._target.root + entry.key for entry in self._back.entries}
        for name in self.carried_racks():
            path = RackPath.of(name)
            region = GoRegionKey(self._options.view, path.region)
            zone = GoZoneKey(self._options.view, path.region, path.zone)
            for table, key, spelled in (("regions", region, name.region), ("zones", zone, name.zone)):
                if self._derive(table, key, _NO_DETAILS):
                    self._derive(list_table(table), key, spelled.encode())
                    if self._target.tables[table].keys.encode(key) not in carried:
                        self.made.append(f"{table.removesuffix('s')} {'/'.join(key[1:])}")

    def unreturned_names(self, options: MigrationOptions) -> Iterator[RackName]:
        names = self.carried_racks()
        regions = {RackPath.of(name)[:1]: name.region for name in reversed(names)}
        zones = {RackPath.of(name)[:2]: name.zone for name in reversed(names)}
        for name in names:
            path = RackPath.of(name)
            rack = name.rack if name.id in self._with_record else path.rack
            by_rule = rack if options.rack_ids is RackIds.NAME else f"{regions[path[:1]]}.{zones[path[:2]]}.{rack}"
            if by_rule != name.id:
                yield name

    def _rack_path(self, raw_key: bytes) -> RackPath | None:
        meaning = self._target.meaning(raw_key)
        key = cast("Any", meaning.key)
        is_of_rack = meaning.kind is Kind.RECORD and meaning.item not in _ALIKE and len(key) >= 4
        return RackPath(*key[1:4]) if is_of_rack else None


def _go_part(key: PartActualKey) -> tuple[str, GoBladeKey | GoDeviceKey]:
    """The Go program's table and key of the part that an actual state is of."""
    kind = GoBladeKey if key.kind == "blade" else GoDeviceKey
    return f"{key.kind}s", kind(*SERVED_ZONE, key.rack, key.number)


def _document_place(table: str, key: Any, rack_id: str) -> tuple[str, object]:
    """The document's table and key for one of the Go program's records."""
    match key:
        case GoBladeKey(blade=number):
            return table, BladeKey(rack_id, number)
        case GoDeviceKey(device=0):
            return table.removesuffix("s"), rack_id
        case GoDeviceKey(device=number):
            return table, DeviceKey(rack_id, number)
        case _:
            return table, rack_id


def _go_place(table: str, key: Any, rack: GoRackKey, name: str) -> tuple[str, GoKey, str]:
    """The Go program's table and key for one of the document's records, and what its list key says."""
    match key:
        case BladeKey(blade=number):
            return table, GoBladeKey(*rack, number), str(number)
        case DeviceKey(device=number):
            return table, GoDeviceKey(*rack, number), str(number)
        case _ if table == "racks":
            return table, rack, name
        case _:
            return f"{table}s", GoDeviceKey(*rack, 0), "0"
