"""Records over HTTP: where each is, spelled here alone; and what the operations on workloads and instances share (5.4)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

from keyplan.apps.cloudchamber.conditions import Address, merged, revision_of, row_at
from keyplan.apps.cloudchamber.layout_keys import BladeKey, InstanceKey
from keyplan.apps.cloudchamber.placement import NotPlacedError
from keyplan.apps.cloudchamber.refusals import (
    RefusedError,
    already_exists,
    invalid,
    newer_version,
    not_found,
    quoted,
)
from keyplan.apps.cloudchamber.rest_routes import Resource, etag
from keyplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StaleRecordError
from keyplan.layout import Damaged, TableView, Versioned, shown_key
from keyplan.operations import Answered
from keyplan.protobuf import Message

__all__ = [
    "ONE_RACK",
    "ONE_WORKLOAD",
    "RACKS",
    "WORKLOADS",
    "WRITES",
    "StoredResource",
    "blade_uri",
    "instance_uri",
    "known",
    "rack_uri",
    "read_row",
    "worded",
    "workload_uri",
]

RACKS: Final = "/api/racks"
ONE_RACK: Final = f"{RACKS}/{{rack}}"
WORKLOADS: Final = "/api/workloads"
ONE_WORKLOAD: Final = f"{WORKLOADS}/{{name}}"

WRITES: Final[dict[str, Any]] = {"takes_unknown_fields": True}
"""Stored records keep what a newer program has added; `known` and `replacing` refuse what nobody has."""

M = TypeVar("M", bound=Message)


def rack_uri(rack: str) -> str:
    """Return where a rack is; it ends in a slash, as the original's does."""
    return f"{RACKS}/{_segment(rack)}/"


def blade_uri(key: BladeKey) -> str:
    """Return where a blade is."""
    return f"{rack_uri(key.rack)}blades/{key.blade}"


def workload_uri(workload: str) -> str:
    """Return where a workload is."""
    return f"{WORKLOADS}/{_segment(workload)}"


def instance_uri(key: InstanceKey) -> str:
    """Return where an instance of a workload is."""
    return f"{workload_uri(key.workload)}/instances/{_segment(key.instance)}"


def _segment(name: str) -> str:
    return quote(name, safe="")


class StoredResource(Resource):
    """What operations on workloads and on instances share."""

    def spelled(self, name: str, exists: Callable[[str], bool]) -> str:
        """A name as written when there is such a thing, else in lower case (5.1)."""
        return name if name == name.lower() or exists(name) else name.lower()

    def workload(self, name: str) -> str:
        """The workload that a path names."""
        return self.spelled(name, self.layout.workloads.exists)

    def read_record(self, table: str, key: Any) -> Answered[Any] | None:
        """Answer with a record and its ETag; None without one. Raises as `read_row` does."""
        row = row_at(self.layout, Address(table, key))
        return None if row is None else read_row(row)

    def replacing(self, table: str, key: Any, record: M, expected: int) -> M:
        """Return what a client sends in place of a record with what that has which is unknown here.

        That of one revision: who writes it expects the same. Raises NotFoundError, StaleRecordError; RefusedError (400) for
        unknown fields that the record does not have.
        """
        row = row_at(self.layout, Address(table, key))
        if row is None:
            raise NotFoundError(table=table, key=key)
        if row.revision != expected:
            raise StaleRecordError(table=table, key=key, expected_revision=expected, actual_revision=revision_of(row))
        return known(record, row)

    def update_record(self, table: str, key: Any, record: M, expected: int) -> tuple[M, int]:
        """Replace a record, damaged or not, that is at the revision expected; return what is stored, and its revision.

        Raises as `replacing` does.
        """
        whole = self.replacing(table, key, record, expected)
        view: TableView[Any, Message] = self.layout.view(table)
        return whole, view.update(key, whole, expected_revision=expected, damaged_ok=True)


def read_row(row: Versioned[Any, Any] | Damaged[Any]) -> Answered[Any]:
    """Answer with a record and its ETag. Raises RefusedError (500) for a damaged one."""
    if isinstance(row, Damaged):
        # Why with its ETag: it can be replaced, or deleted.
        text = f"stored bytes are damaged: {shown_key(row.raw_key)}"
        raise RefusedError(500, text, headers=etag(row.revision)) from row.error
    return Answered(row.record, headers=etag(row.revision))


def known(record: M, row: Versioned[Any, Any] | Damaged[Any] | None = None) -> M:
    """Return a record with the unknown fields of what it replaces. Raises RefusedError (400) for others."""
    try:
        return merged(record, row, source="the body")
    except InvalidInputError as error:
        raise invalid(str(error.facts["problem"])) from error


@contextmanager
def worded(kind: str, name: str) -> Iterator[None]:
    """Refuse in words what an act finds, misses or comes too late for."""
    try:
        yield
    except AlreadyExistsError as error:
        raise already_exists(kind, name) from error
    except NotFoundError as error:
        raise not_found(kind, name) from error
    except NotPlacedError as error:
        workload, instance = quoted(str(error.facts["workload"])), quoted(str(error.facts["instance"]))
        text = f"instance {instance} of workload {workload} cannot be placed: {error.facts['problem']}"
        raise RefusedError(409, text) from error
    except StaleRecordError as error:
        if error.facts.get("actual_revision") == 0:
            raise not_found(kind, name) from error
        raise newer_version(kind, name) from error
