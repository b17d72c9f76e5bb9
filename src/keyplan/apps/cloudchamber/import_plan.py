"""What an import would write: from the records that are there and those that should be, to one plan. Pure.

Any layout of inventories will do: what the plan must know of one, it asks its places.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from keyplan.layout import ExpectedRevision
from keyplan.protobuf import Message, with_unknown_fields_of

__all__ = ["ImportChange", "ImportPlan", "InventoryPlace", "PlaceOrder", "StoredRecord", "plan_import"]

PlaceOrder: TypeAlias = tuple[str | int, ...]


class InventoryPlace(Protocol):
    """Where a record of an inventory is, in one of the layouts: a table and a key, hashable."""

    @property
    def table(self) -> str:
        """The table's name."""
        ...

    @property
    def key(self) -> object:
        """The key in the table."""
        ...

    @property
    def rack(self) -> str:
        """The rack that the record is, or is a part of, as people are told; of zones and regions their own name."""
        ...

    @property
    def number(self) -> int | None:
        """The number of the blade or device, if it has one."""
        ...

    @property
    def noun(self) -> str:
        """What the record is, in a word for people."""
        ...

    @property
    def unit(self) -> object:
        """What is equal for records that one commit must hold together."""
        ...

    @property
    def facts(self) -> dict[str, str | int]:
        """The key's fields by name, for programs."""
        ...

    def order(self, *, is_deleted: bool) -> PlaceOrder:
        """When the record's turn comes in an import of several commits."""
        ...


P = TypeVar("P", bound=InventoryPlace)


class StoredRecord(NamedTuple):
    """A record as the store has it, and what a change of it expects: its last write."""

    record: object
    seen: ExpectedRevision


class ImportChange(NamedTuple):
    """What becomes of one record: from `old`, as it was `seen` (0: absent), to `new`; None is absence."""

    place: InventoryPlace
    old: object | None
    seen: ExpectedRevision
    new: object | None

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
        changes = (*self.creates, *self.updates, *self.deletes)
        return tuple(sorted(changes, key=lambda change: change.place.order(is_deleted=change.new is None)))


def plan_import(current: Mapping[P, StoredRecord], desired: Mapping[P, object]) -> ImportPlan:
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
        old = stored.record
        new = wanted
        if isinstance(old, Message) and isinstance(wanted, Message):
            new = with_unknown_fields_of(old, wanted)
        if new == stored.record:
            unchanged += 1
        else:
            updates.append(ImportChange(place, stored.record, stored.seen, new))
    deletes = [
        ImportChange(place, stored.record, stored.seen, None)
        for place, stored in current.items()
        if place not in desired
    ]
    return ImportPlan(tuple(creates), tuple(updates), tuple(deletes), unchanged)


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
