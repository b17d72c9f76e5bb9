"""The records of one name space under either layout, as far as both are alike: watches, workloads, deletes.

R and AC numbers are those of this folder's README.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum, auto
from typing import Any, Final, Generic, NamedTuple, TypeVar

from keyplan.apps.cloudchamber.layout import prefix_of_parts
from keyplan.apps.cloudchamber.steps import Steps, is_too_large
from keyplan.apps.cloudchamber.watches import RecordWatch, watch_records
from keyplan.engine import Commit, Delete, DeleteRange, Entry, Guard, KeyRange, KeyUnchanged, RangeEmpty
from keyplan.errors import ConflictError, EngineLimitError, NotFoundError, StaleRecordError
from keyplan.layout import BoundLayout, ExpectedRevision, Layout, Versioned, shown_key
from keyplan.store import Backoff, Store

__all__ = [
    "PARTS",
    "DeletePolicy",
    "NamespaceStore",
    "Owner",
    "PartsExistError",
    "carried_out_in_steps",
    "delete_place",
]

PARTS: Final = {
    "racks": ("tor", "pdu", "tors", "pdus", "blades"),
    "workloads": ("instances", "instance_target", "instance_actual"),
}
"""The tables that hold the parts of each whole, as the document has them."""

L = TypeVar("L", bound=Layout)
W = TypeVar("W")


class DeletePolicy(StrEnum):
    """What becomes of the parts of something that is deleted (R17)."""

    CASCADE = auto()
    """They are deleted with it."""
    RESTRICT = auto()
    """While there are any, nothing is deleted."""


class PartsExistError(ConflictError):
    """What was to be deleted still has parts. Facts: `table`, `key`. Nothing was deleted."""

    code = "parts-exist"
    summary = "there are parts, and the delete was not to take them along"


class NamespaceStore(Generic[L]):
    """A store under one name space. `layout` has its tables. Safe for use by several threads."""

    def __init__(self, store: Store, layout: L, bound: BoundLayout) -> None:
        self.store = store
        self.layout = layout
        self._bound = bound

    # ---- watches ---------------------------------------------------------------------------------------------------------

    def watch(self, table: str | None = None, *prefix: object, after: int | None = None) -> RecordWatch:
        """Watch a table, part of it, or all records of the name space, from now on or after a revision (3.4)."""
        start = self.layout.revision if after is None else after
        return watch_records(self.store.engine, self._bound, table, prefix, after=start)

    def place_of(self, shown: str) -> str:
        """Return a shown key without the name space before it."""
        return shown.removeprefix(shown_key(self._bound.root))

    # ---- workloads -------------------------------------------------------------------------------------------------------

    def delete_workload(
        self,
        name: str,
        *,
        delete_policy: DeletePolicy = DeletePolicy.CASCADE,
        expected_revision: ExpectedRevision | None = None,
        missing_ok: bool = True,
        in_steps: bool = False,
    ) -> int:
        """Delete a workload with its instances, as `delete_rack` does a rack."""
        return self.delete_with_parts(
            self._owned("workloads", name),
            delete_policy=delete_policy,
            expected_revision=expected_revision,
            missing_ok=missing_ok,
            in_steps=in_steps,
        )

    # ---- deletes ---------------------------------------------------------------------------------------------------------

    def _owned(self, table: str, key: str) -> "Owner":
        return Owner(table, key, (KeyRange.of_prefix(prefix_of_parts(self._bound, table, key)),), PARTS[table])

    def delete_with_parts(
        self,
        owner: "Owner",
        *,
        delete_policy: DeletePolicy,
        expected_revision: ExpectedRevision | None = None,
        missing_ok: bool = True,
        in_steps: bool = False,
    ) -> int:
        """Delete something with its parts, in one commit unless `in_steps`; return the store's revision after it.

        Raises PartsExistError, StaleRecordError, NotFoundError, EngineLimitError, as `delete_workload` does.
        """
        if self._bound.indexes and delete_policy is DeletePolicy.CASCADE:
            return self._delete_records(owner, expected_revision, missing_ok=missing_ok, in_steps=in_steps)
        raw_key = self._bound.tables[owner.table].keys.encode(owner.key)
        expected: Versioned[Any, Any] | None = None

        def attempt() -> int:
            nonlocal expected
            with self.store.engine.snapshot() as snapshot:
                entry = snapshot.get(raw_key)
                has_parts = any(next(iter(snapshot.scan(one, limit=1, keys_only=True)), None) for one in owner.parts)
                epoch = snapshot.epoch
            # Why once: a bare revision is of the epoch that this call begins in, in every try.
            expected = expected or _expected(expected_revision, owner.key, epoch)
            self._require(owner, entry, expected, epoch, missing_ok=missing_ok)
            own = (Delete(raw_key), *map(Delete, owner.beside))
            if delete_policy is DeletePolicy.RESTRICT:
                if has_parts:
                    raise PartsExistError(table=owner.table, key=owner.key)
                if entry is None:
                    return self.layout.revision
                if self._bound.indexes:
                    return self._delete_alone(owner, _seen(owner.key, entry, epoch))
                stands = KeyUnchanged(raw_key, entry.mod_revision)
                commit = Commit((stands, *map(RangeEmpty, owner.parts)), own, epoch)
            else:
                guards: tuple[Guard, ...] = ()
                # Why also where it must be there: of two such deletes at once, one finds nothing.
                if entry is not None and (expected_revision is not None or not missing_ok):
                    guards = (KeyUnchanged(raw_key, entry.mod_revision),)
                commit = Commit(guards, (*map(DeleteRange, owner.parts), *own), epoch)
            return self.store.engine.commit(commit)

        return Backoff().until_committed(attempt)

    @staticmethod
    def _require(
        owner: "Owner", entry: Entry | None, expected: Versioned[Any, Any] | None, epoch: str, *, missing_ok: bool
    ) -> None:
        actual = 0 if entry is None else entry.mod_revision
        if expected is not None and (expected.revision, expected.epoch or epoch) != (actual, epoch):
            raise StaleRecordError(
                table=owner.table, key=owner.key, expected_revision=expected.revision, actual_revision=actual
            )
        if not actual and not missing_ok:
            raise NotFoundError(table=owner.table, key=owner.key)

    def _delete_alone(self, owner: "Owner", seen: Versioned[Any, Any]) -> int:
        def work(transaction: Layout) -> Layout:
            if any(transaction.view(part).count(owner.key) for part in owner.listed):
                raise PartsExistError(table=owner.table, key=owner.key)
            transaction.view(owner.table).delete(owner.key, expected_revision=seen, damaged_ok=True)
            return transaction

        return self.layout.run(work).revision

    def _delete_records(
        self, owner: "Owner", expected_revision: ExpectedRevision | None, *, missing_ok: bool, in_steps: bool
    ) -> int:
        def found(state: Layout) -> list[tuple[str, Any]]:
            own = state.view(owner.table)
            is_there = own.exists(owner.key)
            if expected_revision is not None or not (is_there or missing_ok):
                own.delete(owner.key, expected_revision=expected_revision, missing_ok=missing_ok, damaged_ok=True)
            parts = [(part, key) for part in owner.listed for key in state.view(part).keys(owner.key)]
            return [*([(owner.table, owner.key)] if is_there else []), *parts]

        def work(transaction: Layout) -> Layout:
            for table, key in found(transaction):
                transaction.view(table).delete(key, damaged_ok=True)
            return transaction

        try:
            return self.layout.run(work).revision
        except EngineLimitError as error:
            if not in_steps or not is_too_large(error):
                raise
        with self.layout.transaction() as transaction:
            places = found(transaction)
        return carried_out_in_steps(self.layout, places, delete_place)


def delete_place(transaction: Layout, place: tuple[str, Any]) -> None:
    """Delete the record at a table's key, a damaged one too; that there is none is no error."""
    table, key = place
    transaction.view(table).delete(key, damaged_ok=True)


class Owner(NamedTuple):
    """Something with parts: its record, the ranges and the tables of these, and raw keys that go with it."""

    table: str
    key: Any
    parts: tuple[KeyRange, ...]
    listed: tuple[str, ...]
    beside: tuple[bytes, ...] = ()


def _expected(expected: ExpectedRevision | None, key: Any, epoch: str) -> Versioned[Any, Any] | None:
    """Return what is expected of a record, whose bare revision is of `epoch`."""
    return Versioned(key, None, 0, expected, 0, 0, epoch) if isinstance(expected, int) else expected


def _seen(key: Any, entry: Entry, epoch: str) -> Versioned[Any, Any]:
    """Return an entry as what a delete expects of its record, which need not be readable."""
    return Versioned(key, None, entry.create_revision, entry.mod_revision, entry.version, entry.lease, epoch)


def carried_out_in_steps(layout: Layout, items: Iterable[W], write: Callable[[Layout, W], object]) -> int:
    """Write items in order, as many in one commit as the engine takes; return the revision of the last commit."""
    revision = layout.revision

    def commit(step: tuple[W, ...]) -> None:
        nonlocal revision
        with layout.transaction() as transaction:
            for item in step:
                write(transaction, item)
        revision = transaction.revision

    Steps([(item,) for item in items], commit).carry_out()
    return revision
