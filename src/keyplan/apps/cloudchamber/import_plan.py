"""What an import would write: from the records that are there and those that should be, to one plan. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from keyplan.apps.cloudchamber.inventory import InventoryRecord, Place
from keyplan.apps.cloudchamber.proto_json import Message, with_unknown_fields_of

__all__ = ["ImportChange", "ImportPlan", "StoredRecord", "plan_import"]


class StoredRecord(NamedTuple):
    """A record as the store has it, and the revision of its last write."""

    record: InventoryRecord
    revision: int


class ImportChange(NamedTuple):
    """What becomes of one record: from `old`, at `revision` (0: absent), to `new`; None is absence."""

    place: Place
    old: InventoryRecord | None
    revision: int
    new: InventoryRecord | None

    @property
    def changed_fields(self) -> tuple[str, ...]:
        """The fields that an update changes, dotted, a map's items by their key. Nothing for a create or delete."""
        return tuple(_differences(self.old, self.new)) if self.old is not None and self.new is not None else ()


class ImportPlan(NamedTuple):
    """Everything that an import writes. Equal records are written by nobody: they are only counted."""

    creates: tuple[ImportChange, ...]
    updates: tuple[ImportChange, ...]
    deletes: tuple[ImportChange, ...]
    unchanged: int

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to write."""
        return not (self.creates or self.updates or self.deletes)

    @property
    def changes(self) -> tuple[ImportChange, ...]:
        """All changes in the order in which they are carried out when one commit cannot hold them.

        Rack by rack, so that few racks are half done at any time. A rack's own record goes first when it is deleted and comes
        last when it is created: who lists racks while it lasts sees whole ones.
        """
        return tuple(sorted((*self.creates, *self.updates, *self.deletes), key=_order))


def plan_import(current: Mapping[Place, StoredRecord], desired: Mapping[Place, InventoryRecord]) -> ImportPlan:
    """Return what makes `current` to `desired`.

    Fields that are unknown here, in records that stay, are kept as they are. Whatever is current and not desired is deleted: a
    rack that the definition no longer has goes with all its parts.
    """
    creates: list[ImportChange] = []
    updates: list[ImportChange] = []
    unchanged = 0
    for place, wanted in desired.items():
        stored = current.get(place)
        if stored is None:
            creates.append(ImportChange(place, None, 0, wanted))
            continue
        new = with_unknown_fields_of(stored.record, wanted)
        if new == stored.record:
            unchanged += 1
        else:
            updates.append(ImportChange(place, stored.record, stored.revision, new))
    deletes = [
        ImportChange(place, stored.record, stored.revision, None)
        for place, stored in current.items()
        if place not in desired
    ]
    return ImportPlan(tuple(creates), tuple(updates), tuple(deletes), unchanged)


def _order(change: ImportChange) -> tuple[str, int, str, int]:
    place = change.place
    is_rack = place.table == "racks"
    phase = 1 if not is_rack else 0 if change.new is None else 2
    return place.rack, phase, place.table, place.number or 0


def _differences(old: object, new: object, place: str = "") -> list[str]:
    """The places where two messages differ: as deep as both are messages or maps."""
    if old == new:
        return []
    if isinstance(new, Message) and type(old) is type(new):
        pairs = {name: (getattr(old, name), getattr(new, name)) for name in new.__struct_fields__}
    elif isinstance(old, dict) and isinstance(new, dict):
        pairs = {str(key): (old.get(key), new.get(key)) for key in [*old, *(key for key in new if key not in old)]}
    else:
        return [place]
    return [
        found
        for name, (before, after) in pairs.items()
        for found in _differences(before, after, f"{place}.{name}" if place else name)
    ]
