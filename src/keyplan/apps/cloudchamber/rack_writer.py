"""Writing an inventory part by part: racks, their PDUs, TORs and blades, the zone and the region; each in one commit.

The same under the keys of both layouts; where records stand, part_keys.py knows. A whole inventory is written by an import.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from keyplan.apps.cloudchamber.conditions import (
    Address,
    RevisionCondition,
    merged,
    require,
    require_of,
    revision_of,
    row_at,
)
from keyplan.apps.cloudchamber.inventory_parts import Part, PartKind, PartRecord, completed
from keyplan.apps.cloudchamber.layout_keys import BladeKey, TargetBlade
from keyplan.apps.cloudchamber.namespace_store import DeletePolicy, require_no_parts
from keyplan.apps.cloudchamber.part_actuals import actual_beside, require_sound
from keyplan.apps.cloudchamber.part_keys import PartKeys
from keyplan.apps.cloudchamber.placement import require_capacity, take_turn
from keyplan.apps.cloudchamber.readable import DEFAULT_ZONE
from keyplan.apps.cloudchamber.records import Blade, Capacity, PartActual, Pdu, Tor
from keyplan.apps.cloudchamber.validation import crowding_problems, part_problems, port_problems, require_none
from keyplan.errors import ConflictError, InvalidInputError, NotFoundError
from keyplan.layout import Damaged, Versioned

__all__ = ["NoPartError", "NoPlaceError", "NoRackError", "RackWriter", "RulesOfRackError", "WrittenPart"]

_SOURCE: Final = "the definition"

_SIBLINGS_GUARDED_MAX: Final = 64
"""Why: etcd compares each of them by itself, 128 operations to a commit; racks have 8, seldom 48. Larger ones have a guard."""


class NoPlaceError(NotFoundError):
    """The layout of the store has no keys for such a part: a zone or region under the document's."""

    code = "no-place-for-part"
    summary = "the store's layout has no keys for this"


class NoRackError(NotFoundError):
    """A part of a rack was to be written that is not there. Facts: `rack`."""

    code = "no-rack-for-part"
    summary = "there is no such rack"


class NoPartError(NotFoundError):
    """A simulator says something of a part that is not there. Facts: `rack`, `part`, `number`."""

    code = "no-part-for-actual"
    summary = "there is no such part"


class RulesOfRackError(ConflictError):
    """A part is right by itself, and its rack would not be. Facts: `problem`, and `further` ones. Nothing was written."""

    code = "rules-of-rack"
    summary = "the rack would not be as an inventory has to be"


class WrittenPart(NamedTuple):
    """A record as it was written, its revision, and whether there was none before."""

    record: Any
    revision: int
    is_new: bool


class _Found(NamedTuple):
    """A part, where it stands or would stand, and what stands there."""

    part: Part
    address: Address
    row: Versioned[Any, Any] | Damaged[Any] | None


class RackWriter:
    """Writes the parts of an inventory. Safe for use by several threads.

    A part's revision is its record's. Conditions are those of conditions.py; nothing is written without one. Damaged records
    have a revision, and are replaced and deleted, as others.
    """

    def __init__(self, keys: PartKeys) -> None:
        self._keys = keys

    def find(self, part: Part) -> Versioned[Any, Any] | Damaged[Any] | None:
        """Return a part's record as it stands, or that it is damaged; None when there is none."""
        if not self._keys.addresses(part):
            return None
        with self._keys.chamber.layout.snapshot() as state:
            return self._found(state, part).row

    def write(self, part: Part, record: PartRecord, condition: RevisionCondition) -> WrittenPart:
        """Write a part's record if the condition holds, with all that belongs to it, in one commit.

        Messages that it lacks become empty ones, and fields that are unknown here stay as they are, as in an import; others are
        refused. What a definition file may not say is refused, too, in its words: InvalidInputError for the record itself,
        RulesOfRackError for what its rack would be, InUseError for a blade with less than the instances need that are wanted
        there. Raises NoRackError, NoPlaceError, InvalidKeyError, PartsLeftError for a new rack while parts are there that have
        none, and for the condition AlreadyExistsError, NotFoundError, StaleRecordError.
        """
        new = completed(record)
        if isinstance(new, Pdu | Tor | Blade):
            require_none(part_problems(DEFAULT_ZONE, DEFAULT_ZONE, part.rack, part.number, new), _SOURCE)

        def work(transaction: Any) -> tuple[Any, PartRecord, bool]:
            found = self._found(transaction, part)
            require(found.address, condition, revision_of(found.row))
            whole = merged(new, found.row, source=_SOURCE)
            if part.kind is PartKind.RACK and found.row is None:
                require_no_parts(transaction, "racks", part.rack, self._keys.parts(found.address))
            if isinstance(whole, Pdu | Tor | Blade):
                self._require_room(transaction, found, whole)
            if isinstance(whole, Blade) and found.row is not None:
                before = found.row.record.capacity or Capacity() if isinstance(found.row, Versioned) else None
                require_capacity(layout, transaction, _blade_of(found), whole.capacity or Capacity(), before=before)
            transaction.view(found.address.table).put(found.address.key, whole, damaged_ok=True)
            for beside, value in self._keys.beside(transaction, part, found.address).items():
                transaction.view(beside.table).put(beside.key, value, damaged_ok=True)
            return transaction, whole, found.row is None

        layout = self._keys.chamber.layout
        transaction, written, is_new = layout.run(work)
        return WrittenPart(written, transaction.revision, is_new)

    def delete(
        self, part: Part, condition: RevisionCondition, *, delete_policy: DeletePolicy, in_steps: bool = False
    ) -> None:
        """Delete a part if the condition holds, a rack under CASCADE with all that is in it, in one commit unless `in_steps`.

        Under CASCADE also what is left of a rack that is not there any more, whatever the condition is: see `part_left`.
        Raises PartsExistError for a rack under RESTRICT that is not empty, InUseError for a blade that instances are wanted on,
        or a rack with one, EngineLimitError for a rack that is too large for one commit, and what `write` raises for the
        condition.
        """
        if part.kind is PartKind.RACK:
            self._delete_rack(part, condition, delete_policy, in_steps=in_steps)
            return

        def work(transaction: Any) -> None:
            found = self._found(transaction, part)
            require(found.address, condition, revision_of(found.row))
            if part.kind is PartKind.BLADE:
                require_capacity(layout, transaction, _blade_of(found), None)
            for address in (found.address, *self._keys.entries(found.address)):
                transaction.view(address.table).delete(address.key, damaged_ok=True)

        layout = self._keys.chamber.layout
        layout.run(work)

    # ---- what a simulator says -------------------------------------------------------------------------------------------

    def find_actual(self, part: Part) -> Versioned[Any, Any] | Damaged[Any] | None:
        """Return a part's actual state as it stands, or that it is damaged; None when there is none."""
        with self._keys.chamber.layout.snapshot() as state:
            return row_at(state, _actual_of(self._found(state, part)))

    def write_actual(self, part: Part, actual: PartActual, condition: RevisionCondition) -> WrittenPart:
        """Write what a simulator says of a part that is there, if the condition holds.

        Fields that are unknown here stay as they are; others are refused. Raises InvalidInputError for these, and for what a
        part of this kind cannot be, NoRackError, NoPartError, and for the condition NotFoundError and StaleRecordError.
        """
        require_sound(part.kind, actual)

        def work(transaction: Any) -> tuple[Any, PartActual, bool]:
            found = self._found(transaction, part)
            # Why of the rack, too: one that is deleted in steps goes before its parts.
            if not self._has_rack(transaction, found.address):
                raise NoRackError(rack=part.rack)
            if found.row is None:
                raise NoPartError(rack=part.rack, part=str(part.kind), number=part.number)
            address = _actual_of(found)
            row = row_at(transaction, address)
            require(address, condition, revision_of(row))
            whole = merged(actual, row, source="the actual state")
            transaction.view(address.table).put(address.key, whole, damaged_ok=True)
            return transaction, whole, row is None

        layout = self._keys.chamber.layout
        transaction, written, is_new = layout.run(work)
        return WrittenPart(written, transaction.revision, is_new)

    def delete_actual(self, part: Part, condition: RevisionCondition) -> None:
        """Delete what a simulator says of a part, if the condition holds; NotFoundError, StaleRecordError otherwise."""

        def work(transaction: Any) -> None:
            address = _actual_of(self._found(transaction, part))
            require_of(transaction, address, condition)
            transaction.view(address.table).delete(address.key, damaged_ok=True)

        self._keys.chamber.layout.run(work)

    # ---- racks -----------------------------------------------------------------------------------------------------------

    def _delete_rack(
        self, part: Part, condition: RevisionCondition, delete_policy: DeletePolicy, *, in_steps: bool
    ) -> None:
        address = self._address_left(part) if delete_policy is DeletePolicy.CASCADE else None
        if address is None:
            with self._keys.chamber.layout.snapshot() as state:
                found = self._found(state, part)
            require(found.address, condition, revision_of(found.row))
            address = found.address
        self._keys.chamber.delete_with_parts(
            self._keys.owner(address),
            delete_policy=delete_policy,
            expected_revision=condition.revision or None,
            missing_ok=False,
            in_steps=in_steps,
        )

    def part_left(self, rack: Part) -> str | None:
        """Return the first key of what is left of a rack that is not there any more; None without any, or with the rack.

        A delete in steps that was cut off leaves parts, as other programs do.
        """
        address = self._address_left(rack)
        return None if address is None else self._keys.chamber.part_left(self._keys.owner(address))

    def _address_left(self, rack: Part) -> Address | None:
        """Return where a rack stood that is not there in any spelling, and has parts."""
        addresses = self._keys.addresses(rack)
        with self._keys.chamber.layout.snapshot() as state:
            if any(state.view(one.table).exists(one.key) for one in addresses):
                return None
        left = self._keys.chamber.part_left
        return next((one for one in addresses if left(self._keys.owner(one)) is not None), None)

    # ---- what is there ---------------------------------------------------------------------------------------------------

    def _found(self, state: Any, part: Part) -> _Found:
        """Where a part stands. Where none of its name does: where it would, in a rack that is there if one of the name is."""
        addresses = self._keys.addresses(part)
        if not addresses:
            raise NoPlaceError(part=str(part.kind))
        if part.is_in_rack:
            racks = (address for address in addresses if self._has_rack(state, address))
            # Why also without a rack: parts that another program left alone can be read and deleted.
            addresses = next(((address,) for address in racks), addresses)
        found = [_Found(part, address, row_at(state, address)) for address in addresses]
        return next((one for one in found if one.row is not None), found[0])

    def _has_rack(self, state: Any, address: Address) -> bool:
        rack = self._keys.rack_of(address)
        return bool(state.view(rack.table).exists(rack.key))

    # ---- what a rack may become ------------------------------------------------------------------------------------------

    def _require_room(self, transaction: Any, found: _Found, new: Pdu | Tor | Blade) -> None:
        """Raise if there is no rack for a part, or if its rack would not be as an inventory has to be with it."""
        if not self._has_rack(transaction, found.address):
            raise NoRackError(rack=found.part.rack)
        place = (DEFAULT_ZONE, DEFAULT_ZONE, found.part.rack)
        rack = self._keys.rack_of(found.address)
        is_new = found.row is None
        problems: list[Iterator[str]] = []
        if not isinstance(new, Blade):
            others = self._devices(transaction, rack, found.part.kind)
            problems.append(crowding_problems(*place, new, len(others) + 1 if is_new else 0))
            problems.append(port_problems(*place, [(found.part.number, new)], self._count_blades(transaction, rack)))
        elif is_new:
            blades = self._count_blades(transaction, rack) + 1
            problems.append(crowding_problems(*place, new, blades))
            for kind in (PartKind.PDU, PartKind.TOR):
                rows = self._devices(transaction, rack, kind).items()
                devices = [(number, row.record) for number, row in rows if isinstance(row, Versioned)]
                problems.append(port_problems(*place, devices, blades))
        try:
            require_none(chain(*problems), _SOURCE)
        except InvalidInputError as error:
            raise RulesOfRackError(**error.facts) from error

    def _devices(self, state: Any, rack: Address, kind: PartKind) -> dict[int, Versioned[Any, Any] | Damaged[Any]]:
        rows = ((number, row_at(state, address)) for number, address in self._keys.devices(rack, kind))
        return {number: row for number, row in rows if row is not None}

    def _count_blades(self, transaction: Any, rack: Address) -> int:
        """How many blades a rack has, which is so when the commit is made, or it fails."""
        prefix = self._keys.blades(rack)
        seen = sum(1 for _ in transaction.blades.keys(*prefix, limit=_SIBLINGS_GUARDED_MAX + 1))
        if seen <= _SIBLINGS_GUARDED_MAX:
            return seen
        # Why with a slash: no rack and so no blade has a guard of this name.
        take_turn(transaction, TargetBlade(f"{prefix[-1]}/", 0))
        with self._keys.chamber.layout.snapshot() as state:
            count: int = state.blades.count(*prefix)
            return count


def _actual_of(found: _Found) -> Address:
    """Where the actual state of a blade, PDU or TOR stands."""
    return next(actual_beside(*found.address))


def _blade_of(found: _Found) -> BladeKey:
    """A blade as targets name it: by its rack and number, which the keys of both layouts end in."""
    return BladeKey(*found.address.key[-2:])
