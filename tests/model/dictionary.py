"""What a store with two indexed tables, a counter and leases does, said with a dictionary: no engine, no codec, no commits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from keyplan.layout import ChangeKind
from tests.model.operations import AdvanceTo, Delete, Insert, Key, Modify, Next, Operation, Put, Rename, Update
from tests.store.layouts import Blade, BladeKey

__all__ = ["Changed", "Dictionary", "Holder", "Stored", "raw_key"]

NUMBER_START = 33000


class Stored(NamedTuple):
    """A record and the lease that it lives on; 0 for none."""

    blade: Blade
    lease: int


class Changed(NamedTuple):
    """What one revision did to one record."""

    kind: ChangeKind
    key: Key
    old: Blade | None
    new: Blade | None


@dataclass
class Holder:
    """Somebody with a lease. `is_over` is what he knows, from having revoked it or from failing to renew it."""

    lease: int
    is_over: bool = False


def raw_key(key: Key) -> bytes:
    """The raw key of a record. Names here are of letters, digits and dashes, which are spelled as they are."""
    if isinstance(key, str):
        return f"/site/members/{key}".encode()
    return f"/site/rack/{key.rack}/blades/{key.slot}".encode()


@dataclass
class Dictionary:
    """The records by key, the counter, the living leases with the time of their end, and what each revision changed.

    `commit` carries out operations as one transaction. What comes of each is "done", a number, or the name of the error.
    """

    records: dict[Key, Stored] = field(default_factory=dict)
    number: int | None = None
    now: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    holders: list[Holder] = field(default_factory=list)
    revisions: list[list[Changed]] = field(default_factory=list)
    ttls: list[int] = field(default_factory=list)

    def copy(self) -> "Dictionary":
        """A second one that what is done to this one does not concern."""
        return Dictionary(dict(self.records), self.number)

    # ---- transactions ----------------------------------------------------------------------------------------------------

    def begin(self, operations: Sequence[Operation]) -> tuple["Begun", list[str]]:
        """Apply one after the other; those that fail do nothing. Call `end` with what is returned first."""
        begun = Begun(dict(self.records), self.number, set())
        return begun, [self._apply(operation, begun.touched) for operation in operations]

    def end(self, begun: "Begun") -> str:
        """Make what was applied one revision, or none if nothing changed, or undo it if a lease is gone: the error's name."""
        written = [self.records[key].lease for key in begun.touched if key in self.records]
        if any(lease and lease not in self.ends for lease in written):
            self.records, self.number = begun.records, begun.number
            return "LeaseNotFoundError"
        changes = self._changes(begun.records, begun.touched)
        if changes or self.number != begun.number:
            self.revisions.append(changes)
        return "done"

    def commit(self, operation: Operation) -> str:
        """Apply one operation as a transaction of its own."""
        begun, (outcome,) = self.begin([operation])
        problem = self.end(begun)
        return outcome if problem == "done" else problem

    def _changes(self, before: dict[Key, Stored], touched: set[Key]) -> list[Changed]:
        changes = []
        for key in sorted(touched, key=raw_key):
            old, new = before.get(key), self.records.get(key)
            if old is not None and new is not None:
                changes.append(Changed(ChangeKind.CHANGED, key, old.blade, new.blade))
            elif new is not None:
                changes.append(Changed(ChangeKind.INSERTED, key, None, new.blade))
            elif old is not None:
                changes.append(Changed(ChangeKind.REMOVED, key, old.blade, None))
        return changes

    # ---- operations ------------------------------------------------------------------------------------------------------

    def _apply(self, operation: Operation, touched: set[Key]) -> str:
        match operation:
            case Next(numbers):
                first = self.next_number
                self.number = first + numbers
                return str(first)
            case AdvanceTo(number):
                if number > self.next_number:
                    self.number = number
                return str(self.next_number)
            case Insert(key, blade, holder) | Put(key, blade, holder):
                if isinstance(key, str) and self.holders[holder].is_over:
                    return "LeaseNotFoundError"
                if isinstance(operation, Insert) and key in self.records:
                    return "AlreadyExistsError"
                return self._write(
                    key, Stored(blade, self.holders[holder].lease if isinstance(key, str) else 0), touched
                )
            case Delete(key):
                if self.records.pop(key, None) is not None:
                    touched.add(key)
                return "done"
            case Update() | Modify() | Rename():
                return self._move(operation, touched) if operation.key in self.records else "NotFoundError"

    def _move(self, operation: Update | Modify | Rename, touched: set[Key]) -> str:
        stored = self.records[operation.key]
        match operation:
            case Update(key, blade):
                return self._write(key, Stored(blade, stored.lease), touched)
            case Modify(key, watts):
                return self._write(
                    key, Stored(Blade(stored.blade.serial, stored.blade.tags, watts), stored.lease), touched
                )
            case Rename(key, new_key):
                if new_key != key:
                    if new_key in self.records:
                        return "AlreadyExistsError"
                    self.records[new_key] = self.records.pop(key)
                    touched |= {key, new_key}
                return "done"

    def _write(self, key: Key, stored: Stored, touched: set[Key]) -> str:
        others = [other.blade.serial for name, other in self.records.items() if name != key and type(name) is type(key)]
        if stored.blade.serial is not None and stored.blade.serial in others:
            return "UniqueViolationError"
        self.records[key] = stored
        touched.add(key)
        return "done"

    # ---- leases ----------------------------------------------------------------------------------------------------------

    def grant(self, ttl_seconds: int) -> Holder:
        """Grant a lease to somebody. Leases are counted from 1."""
        self.ttls.append(ttl_seconds)
        lease = len(self.ttls)
        self.ends[lease] = self.now + ttl_seconds
        return Holder(lease)

    def renew(self, holder: Holder) -> str:
        """What comes of it, as of an operation; whoever cannot renew his lease knows that it is over."""
        if holder.is_over or holder.lease not in self.ends:
            holder.is_over = True
            return "LeaseNotFoundError"
        self.ends[holder.lease] = self.now + self.ttls[holder.lease - 1]
        return "done"

    def revoke(self, holder: Holder) -> None:
        """End a lease with its records; one that is gone is no error."""
        holder.is_over = True
        self._end(holder.lease)

    def pass_time(self, seconds: int) -> None:
        """Let time pass: leases whose time is over end, each in a revision of its own, the earliest first."""
        self.now += seconds
        for _, lease in sorted((end, lease) for lease, end in self.ends.items() if end <= self.now):
            self._end(lease)

    def _end(self, lease: int) -> None:
        self.ends.pop(lease, None)
        before = dict(self.records)
        gone = {key for key, stored in before.items() if stored.lease == lease}
        for key in gone:
            del self.records[key]
        if gone:
            self.revisions.append(self._changes(before, gone))

    # ---- what there is ---------------------------------------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """What the counter hands out next."""
        return NUMBER_START if self.number is None else self.number

    def blades(self) -> list[tuple[BladeKey, Blade]]:
        """All blades in the order of their raw keys."""
        found = [(key, stored.blade) for key, stored in self.records.items() if not isinstance(key, str)]
        return sorted(found, key=lambda item: raw_key(item[0]))

    def members(self) -> list[tuple[str, Stored]]:
        """All members in the order of their raw keys, with their leases."""
        return sorted((key, stored) for key, stored in self.records.items() if isinstance(key, str))

    def raw_keys(self) -> dict[bytes, int]:
        """Every raw key that a store with these records holds, and the lease it hangs on."""
        found = {} if self.number is None else {b"/site/next-port": 0}
        for key, (blade, lease) in self.records.items():
            found[raw_key(key)] = lease
            before, place = ("member-", key) if isinstance(key, str) else ("", f"{key.rack}/{key.slot}")
            if blade.serial is not None:
                found[f"/site/{before}by-serial/{blade.serial}".encode()] = lease
            for tag in blade.tags:
                found[f"/site/{before}by-tag/{tag}/{place}".encode()] = lease
        return found


class Begun(NamedTuple):
    """What a transaction began with, and the keys that it wrote."""

    records: dict[Key, Stored]
    number: int | None
    touched: set[Key]
