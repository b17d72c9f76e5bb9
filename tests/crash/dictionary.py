"""What a store with one indexed table does to one record at a time, said with a dictionary. Leases: see workload.py.

The model in tests/model knows more, but its time and its leases are those of one process that lives.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.store.layouts import Blade, BladeKey

__all__ = ["Delete", "Dictionary", "Insert", "Modify", "Operation", "Put", "Rename", "Update"]


class Insert(NamedTuple):
    key: BladeKey
    blade: Blade


class Put(NamedTuple):
    key: BladeKey
    blade: Blade


class Update(NamedTuple):
    key: BladeKey
    blade: Blade


class Modify(NamedTuple):
    key: BladeKey
    watts: int


class Delete(NamedTuple):
    key: BladeKey


class Rename(NamedTuple):
    key: BladeKey
    new_key: BladeKey


Operation = Insert | Put | Update | Modify | Delete | Rename


@dataclass
class Dictionary:
    """The records by key. `apply` tells what comes of an operation: "done", or the name of the error."""

    records: dict[BladeKey, Blade] = field(default_factory=dict)

    def apply(self, operation: Operation) -> str:
        present = operation.key in self.records
        match operation:
            case Insert(key, blade):
                return "AlreadyExistsError" if present else self._write(key, blade)
            case Put(key, blade):
                return self._write(key, blade)
            case Update(key, blade):
                return self._write(key, blade) if present else "NotFoundError"
            case Modify(key, watts):
                if not present:
                    return "NotFoundError"
                old = self.records[key]
                return self._write(key, Blade(old.serial, old.tags, watts))
            case Delete(key):
                self.records.pop(key, None)
                return "done"
            case Rename(key, new_key):
                if not present:
                    return "NotFoundError"
                if new_key != key and new_key in self.records:
                    return "AlreadyExistsError"
                self.records[new_key] = self.records.pop(key)
                return "done"

    def _write(self, key: BladeKey, blade: Blade) -> str:
        holders = {other.serial for name, other in self.records.items() if name != key and other.serial is not None}
        if blade.serial in holders:
            return "UniqueViolationError"
        self.records[key] = blade
        return "done"
