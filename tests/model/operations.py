"""What can be done to the stores of the model: operations as values, and what comes of one on a layout."""

from typing import Any, NamedTuple

from keyplan.errors import KeyplanError
from keyplan.layout import TableView
from keyplan.store import Lease
from tests.store.layouts import Blade, BladeKey, Site

__all__ = [
    "AdvanceTo",
    "Delete",
    "Insert",
    "Key",
    "Modify",
    "Next",
    "Operation",
    "Put",
    "Rename",
    "Update",
    "done_to",
]

Key = BladeKey | str
"""Of a blade, or the name of a member: the type tells the table. Members live on leases."""


class Insert(NamedTuple):
    key: Key
    blade: Blade
    holder: int = 0


class Put(NamedTuple):
    key: Key
    blade: Blade
    holder: int = 0


class Update(NamedTuple):
    key: Key
    blade: Blade


class Modify(NamedTuple):
    key: Key
    watts: int


class Delete(NamedTuple):
    key: Key


class Rename(NamedTuple):
    key: Key
    new_key: Key


class Next(NamedTuple):
    numbers: int


class AdvanceTo(NamedTuple):
    number: int


Operation = Insert | Put | Update | Modify | Delete | Rename | Next | AdvanceTo


def done_to(site: Site, operation: Operation, leases: list[Lease]) -> str:
    """Do it to a store or a transaction; return "done", a counter's number, or the name of the error.

    `leases` are those of the holders, who are counted from 0. A store without leases is given none and no members.
    """
    try:
        match operation:
            case Next(numbers):
                return str(site.ports.next(numbers))
            case AdvanceTo(number):
                return str(site.ports.advance_to(number))
            case _:
                _done_to_record(site, operation, leases)
    except KeyplanError as error:
        return type(error).__name__
    return "done"


def _done_to_record(
    site: Site, operation: Insert | Put | Update | Modify | Delete | Rename, leases: list[Lease]
) -> None:
    is_member = isinstance(operation.key, str)
    table: TableView[Any, Blade] = site.members if is_member else site.blades
    match operation:
        case Insert(key, blade, holder):
            table.insert(key, blade, lease=leases[holder] if is_member else 0)
        case Put(key, blade, holder):
            table.put(key, blade, lease=leases[holder] if is_member else 0)
        case Update(key, blade):
            table.update(key, blade)
        case Modify(key, watts):
            table.modify(key, lambda old: Blade(old.serial, old.tags, watts))
        case Delete(key):
            table.delete(key)
        case Rename(key, new_key):
            table.rename(key, new_key)
