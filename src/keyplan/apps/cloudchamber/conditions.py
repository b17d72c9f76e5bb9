"""Several records at once under conditions on their revisions: the original's transactions, as typed reads and writes.

A request is all or nothing and made at one revision. What is read is one state of the store. 0 is the revision of a record that
is not there; `==` and its like take a revision greater than 0.
"""

import operator
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from keyplan.apps.cloudchamber.layout import CloudChamber
from keyplan.apps.cloudchamber.namespaces import check_production_key
from keyplan.errors import (
    AlreadyExistsError,
    CorruptionError,
    InvalidInputError,
    InvalidKeyError,
    NotFoundError,
    StaleRecordError,
)
from keyplan.layout import Damaged, Kind, Layout, Versioned, bound_layout_of, shown_key
from keyplan.protobuf import Message, unknown_field_paths, with_unknown_fields_of

__all__ = [
    "ANY",
    "NEW",
    "REQUIRED",
    "Address",
    "Relation",
    "RevisionCondition",
    "RevisionRead",
    "address_of",
    "at_revision",
    "delete_records",
    "list_records",
    "merged",
    "read_records",
    "require",
    "require_of",
    "revision_of",
    "row_at",
    "write_records",
]

M = TypeVar("M", bound=Message)

_STRANGE_SHOWN_MAX: Final = 4


class Relation(StrEnum):
    """What a condition asks; the values are the original's tokens."""

    NEW = "new"
    REQUIRED = "req"
    ANY = "*"
    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER_OR_EQUAL = ">="
    GREATER = ">"


_COMPARE: Final[dict[Relation, Callable[[int, int], bool]]] = {
    Relation.EQUAL: operator.eq,
    Relation.NOT_EQUAL: operator.ne,
    Relation.LESS: operator.lt,
    Relation.LESS_OR_EQUAL: operator.le,
    Relation.GREATER_OR_EQUAL: operator.ge,
    Relation.GREATER: operator.gt,
}


class RevisionCondition(NamedTuple):
    """What must be true of one record's revision."""

    relation: Relation
    revision: int = 0


NEW: Final = RevisionCondition(Relation.NEW)
REQUIRED: Final = RevisionCondition(Relation.REQUIRED)
ANY: Final = RevisionCondition(Relation.ANY)


def at_revision(revision: int, relation: Relation = Relation.EQUAL) -> RevisionCondition:
    """The condition that a record's revision compares so with `revision`. Raises InvalidInputError unless that is above 0."""
    if relation not in _COMPARE:
        raise InvalidInputError(source="condition", problem=f"{relation.value!r} compares with no revision")
    if revision < 1:
        raise InvalidInputError(source="condition", problem=f"a revision is greater than 0, not {revision}")
    return RevisionCondition(relation, revision)


class Address(NamedTuple):
    """One record: the name of its table, and its key there."""

    table: str
    key: Any


def address_of(raw_key: bytes, *, namespace: str = "") -> Address:
    """Return which record of a name space a raw key is (AC-10).

    Raises InvalidKeyError, naming the nearest template, for a key that is none: `users` itself, `users/a/b`, another prefix,
    and in production everything of the tests (AC-11, R14, R20).
    """
    if not namespace:
        check_production_key(raw_key)
    meaning = CloudChamber.bound(namespace=namespace).meaning(raw_key)
    if meaning.kind is not Kind.RECORD:
        nearest = {} if meaning.template is None else {"nearest": meaning.template}
        raise InvalidKeyError(problem="the key is none of the layout's", raw_key=shown_key(raw_key), **nearest)
    return Address(str(meaning.item), meaning.key)


class RevisionRead(NamedTuple):
    """The records that were there, each with its own revision, and the store's revision that they were read at."""

    revision: int
    records: dict[Address, Versioned[Any, Any]]


def read_records(chamber: CloudChamber, wanted: Mapping[Address, RevisionCondition]) -> RevisionRead:
    """Read records as of one revision. Absent ones are left out, unless their condition says otherwise.

    Raises NotFoundError, AlreadyExistsError or StaleRecordError for the first condition that does not hold.
    """
    with chamber.snapshot() as state:
        found = {address: state.view(address.table).versioned(address.key) for address in wanted}
        for address, condition in wanted.items():
            there = found[address]
            require(address, condition, 0 if there is None else there.revision)
        return RevisionRead(state.revision, {address: one for address, one in found.items() if one is not None})


def list_records(chamber: CloudChamber, table: str, *prefix: Any) -> RevisionRead:
    """Read the records of a table whose first key fields equal `prefix`, by key, as of one revision; there may be none."""
    with chamber.snapshot() as state:
        found = {Address(table, one.key): one for one in state.view(table).entries(*prefix)}
        return RevisionRead(state.revision, found)


def write_records(chamber: CloudChamber, writes: Mapping[Address, tuple[Message, RevisionCondition]]) -> int:
    """Write records in one commit, over damaged ones too, if every condition holds; return the revision of all of them.

    Raises as `read_records` does, and EngineLimitError; then nothing is written.
    """

    def work(transaction: CloudChamber) -> CloudChamber:
        for address, (record, condition) in writes.items():
            require_of(transaction, address, condition)
            transaction.view(address.table).put(address.key, record, damaged_ok=True)
        return transaction

    return chamber.run(work).revision


def delete_records(chamber: CloudChamber, deletes: Mapping[Address, RevisionCondition]) -> int:
    """Delete records in one commit, damaged ones too, if every condition holds; return the store's revision after it.

    Deleting what is not there changes nothing, not even the revision. Raises as `write_records` does.
    """

    def work(transaction: CloudChamber) -> CloudChamber:
        for address, condition in deletes.items():
            require_of(transaction, address, condition)
            transaction.view(address.table).delete(address.key, damaged_ok=True)
        return transaction

    return chamber.run(work).revision


def row_at(state: Layout, address: Address) -> Versioned[Any, Any] | Damaged[Any] | None:
    """Return what stands at an address, be it damaged; None when nothing does."""
    view = state.view(address.table)
    try:
        found: Versioned[Any, Any] | Damaged[Any] | None = view.versioned(address.key)
    except CorruptionError:
        fields = bound_layout_of(state).tables[address.table].keys.shape.split(address.key)
        found = next(iter(view.rows(*fields)), None)
    return found


def revision_of(row: Versioned[Any, Any] | Damaged[Any] | None) -> int:
    """Return the revision of what stands at an address; 0 when nothing does."""
    return 0 if row is None else row.revision


def merged(new: M, row: Versioned[Any, Any] | Damaged[Any] | None, *, source: str) -> M:
    """Return what clients send in place of what stands somewhere, with the fields of that which are unknown here.

    So what a newer program added stays. Raises InvalidInputError, naming them, for unknown fields that are not there: a field
    that is misspelt must not be kept in the place of the one that was meant.
    """
    old = row.record if isinstance(row, Versioned) else None
    known = set() if old is None else set(unknown_field_paths(old))
    strange = [path for path in unknown_field_paths(new) if path not in known]
    if strange:
        shown = ", ".join(map(repr, strange[:_STRANGE_SHOWN_MAX]))
        raise InvalidInputError(source=source, problem=f"there is no field {shown}")
    return new if old is None else with_unknown_fields_of(old, new)


def require(address: Address, condition: RevisionCondition, actual: int) -> None:
    """Return if a condition holds of the record's revision, 0 for absent.

    Raises AlreadyExistsError, NotFoundError, StaleRecordError; InvalidInputError for a condition that is none.
    """
    if condition.relation is Relation.NEW and actual:
        raise AlreadyExistsError(table=address.table, key=address.key, revision=actual)
    if condition.relation is Relation.REQUIRED and not actual:
        raise NotFoundError(table=address.table, key=address.key)
    compare = _COMPARE.get(condition.relation)
    if compare is None:
        return
    at_revision(condition.revision, condition.relation)
    if not compare(actual, condition.revision):
        raise StaleRecordError(
            table=address.table,
            key=address.key,
            condition=condition.relation.value,
            expected_revision=condition.revision,
            actual_revision=actual,
        )


def require_of(transaction: Layout, address: Address, condition: RevisionCondition) -> None:
    """Return if a condition holds of what stands at an address, be it damaged. Raises as `require` does."""
    # Why: a record that is read becomes a guard, and ANY asks for none.
    if condition.relation is not Relation.ANY:
        require(address, condition, revision_of(row_at(transaction, address)))
