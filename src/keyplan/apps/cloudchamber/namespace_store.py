"""The records of one name space under either layout, as far as both are alike: watches, workloads, deletes.

R and AC numbers are those of this folder's README.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from enum import StrEnum, auto
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from keyplan.apps.cloudchamber.layout import prefix_of_parts
from keyplan.apps.cloudchamber.layout_keys import InstanceKey
from keyplan.apps.cloudchamber.steps import Steps, is_too_large
from keyplan.apps.cloudchamber.watches import RecordWatch, watch_records
from keyplan.engine import (
    Commit,
    Delete,
    DeleteRange,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    RangeEmpty,
    Reads,
)
from keyplan.errors import ConflictError, CorruptionError, EngineLimitError, NotFoundError, StaleRecordError
from keyplan.layout import BoundLayout, ExpectedRevision, Layout, Versioned, bound_layout_of, shown_key
from keyplan.store import Backoff, Store, entries_pointing_at, stored_state

__all__ = [
    "INSTANCES",
    "PARTS",
    "DeletePolicy",
    "InUseError",
    "NamespaceStore",
    "Owner",
    "PartsExistError",
    "PartsLeftError",
    "carried_out_in_steps",
    "delete_place",
    "require_no_parts",
    "require_unwanted",
]

PARTS: Final = {
    "racks": ("tor", "pdu", "tors", "pdus", "blades", "part_actual"),
    "workloads": ("instances", "instance_target", "instance_actual"),
}
"""The tables that hold the parts of each whole, as the document has them."""

INSTANCES: Final = "instances_by_blade"
"""The index of what is wanted on blades."""

_NAMED_MAX: Final = 3

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


class PartsLeftError(ConflictError):
    """Something was to be made, and parts of another one of its name are left. Facts: `table`, `key`, `part`.

    Nothing was written: they would be the new one's. A delete in steps that was cut off leaves them, as other programs do.
    """

    code = "parts-left"
    summary = "parts of another one of this name are left"


class InUseError(ConflictError):
    """Instances are wanted on a rack or blade that was to go, or to become too small. Nothing was written.

    Facts: `rack`, `blade` where it is one blade, `problem`.
    """

    code = "in-use"
    summary = "instances are wanted there"


def require_unwanted(rack: str, instances: Iterable[InstanceKey], *, blade: int | None = None) -> None:
    """Raise InUseError for a rack, or one blade of it, that instances are wanted on; it names the first of them."""
    keys = list(instances)
    if not keys:
        return
    names = ", ".join(f"{key.workload}/{key.instance}" for key in keys[:_NAMED_MAX])
    more = f" and {len(keys) - _NAMED_MAX} more" if len(keys) > _NAMED_MAX else ""
    facts = {"rack": rack} if blade is None else {"rack": rack, "blade": blade}
    verb, them = ("is", "it") if len(keys) == 1 else ("are", "them")
    raise InUseError(**facts, problem=f"{names}{more} {verb} wanted there: move or delete {them} first")


def require_no_parts(transaction: Layout, table: str, key: Any, parts: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    """Raise PartsLeftError while there is a part of something that a transaction makes; that there is none is its premise.

    `parts` are tables, each with the key fields that the parts begin with.
    """
    for part, prefix in parts:
        for found in transaction.view(part).keys(*prefix, limit=1):
            bound = bound_layout_of(transaction)
            raw_key = bound.tables[part].keys.encode(found)
            raise PartsLeftError(table=table, key=key, part=shown_key(raw_key.removeprefix(bound.root)))


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

    def workload_part_left(self, name: str) -> str | None:
        """Return the first key of the parts of a workload that is not there itself; None without any."""
        return self.part_left(self._owned("workloads", name))

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

        What a delete `in_steps` that was cut off has left is deleted when it is given again, whatever revision is expected: the
        record itself is gone by then. Raises PartsExistError, InUseError, StaleRecordError, NotFoundError, EngineLimitError, as
        `delete_workload` does; ConflictError when something of that name is made while its steps go on.
        """
        raw_key = self._bound.tables[owner.table].keys.encode(owner.key)
        expected: Versioned[Any, Any] | None = None

        def attempt() -> int:
            nonlocal expected
            with closing(Reads(self.store.engine)) as reads:
                entry = reads.fetch(raw_key)
                # Why once: a bare revision is of the epoch that this call begins in, in every try.
                expected = expected or _expected(expected_revision, owner.key, reads.epoch)
                has_parts = any(any(reads.look_through(one, limit=1, keys_only=True)) for one in owner.parts)
                is_cascade = delete_policy is DeletePolicy.CASCADE
                if entry is not None or not (is_cascade and has_parts):
                    self._require(owner, entry, expected, reads.epoch, missing_ok=missing_ok)
                own = (Delete(raw_key), *map(Delete, owner.beside))
                if delete_policy is DeletePolicy.RESTRICT:
                    if has_parts:
                        raise PartsExistError(table=owner.table, key=owner.key)
                    if entry is None:
                        return self.layout.revision
                    stands = KeyUnchanged(raw_key, entry.mod_revision)
                    commit = Commit((stands, *map(RangeEmpty, owner.parts)), own, reads.epoch)
                else:
                    self._require_vacant(owner, reads)
                    index_entries = map(Delete, self._index_entries(owner, reads))
                    mutations: tuple[Mutation, ...] = (*map(DeleteRange, owner.parts), *own, *index_entries)
                    guards: tuple[Guard, ...] = tuple(reads.guards())
                    # Why also where it must be there: of two such deletes at once, one finds nothing.
                    if entry is not None and (expected_revision is not None or not missing_ok):
                        guards = (KeyUnchanged(raw_key, entry.mod_revision), *guards)
                    elif entry is None and has_parts:
                        # Why: whoever makes it anew meanwhile has parts of their own.
                        guards = (KeyAbsent(raw_key), *guards)
                    commit = Commit(guards, mutations, reads.epoch)
            return self.store.engine.commit(commit)

        try:
            return Backoff().until_committed(attempt)
        except EngineLimitError as error:
            if not in_steps or not is_too_large(error):
                raise
        left = self._parts_left(owner, expected)
        return carried_out_in_steps(self.layout, left, partial(_delete_part, owner))

    def part_left(self, owner: "Owner") -> str | None:
        """Return the first key of the parts of something that is not there itself, as people read it; None without any."""
        own = self._bound.tables[owner.table].keys.encode(owner.key)
        with self.store.engine.snapshot() as snapshot:
            if snapshot.get(own) is not None:
                return None
            found = (one for part in owner.parts for one in snapshot.scan(part, limit=1, keys_only=True))
            first = next(found, None)
        return None if first is None else self.place_of(shown_key(first.key))

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

    def _require_vacant(self, owner: "Owner", reads: Reads) -> None:
        """Raise InUseError while instances are wanted on a rack's blades. That there are none is a premise of the commit."""
        if not owner.rack:
            return
        index = self._bound.indexes[INSTANCES]
        wanted = reads.scan(KeyRange(*index.keys.range((owner.rack,))), keys_only=True)
        require_unwanted(owner.rack, (cast("InstanceKey", index.primary_key(one.key, b"")) for one in wanted))

    def _index_entries(self, owner: "Owner", reads: Reads) -> Iterator[bytes]:
        """Yield the index entries of the parts, which go in the same commit. Reading them guards it.

        Why not the parts one by one: however many there are, their range is one operation.
        """
        for name in owner.listed:
            table = self._bound.tables[name]
            if not table.indexes:
                continue
            for entry in reads.scan(KeyRange(*table.keys.range((owner.key,)))):
                meaning = self._bound.meaning(entry.key)
                if meaning.item != name:
                    continue
                look_through = partial(entries_pointing_at, table, entry.key, scan=reads.look_through)
                try:
                    record = table.form.decode(entry.value)
                except CorruptionError:
                    yield from look_through(table.indexes)
                else:
                    yield from stored_state(table, meaning.key, entry, record, look_through).index_entries

    def _parts_left(self, owner: "Owner", expected: Versioned[Any, Any] | None) -> list[tuple[str, Any]]:
        """Delete the record of a whole by itself, and return what is left of its parts.

        Why first: nothing is added to it, or placed there, from then on. Raises StaleRecordError, InUseError.
        """
        with self.layout.transaction() as transaction:
            if owner.rack:
                require_unwanted(owner.rack, transaction.view(INSTANCES).keys(owner.rack))
            view = transaction.view(owner.table)
            # Why only then: of one whose steps were cut off the record is gone.
            if view.exists(owner.key):
                view.delete(owner.key, expected_revision=expected, damaged_ok=True)
        # Why not in the transaction: each part that it lists would count.
        with self.layout.snapshot() as state:
            return [(part, key) for part in owner.listed for key in state.view(part).keys(owner.key)]


def _delete_part(owner: "Owner", transaction: Layout, place: tuple[str, Any]) -> None:
    """Delete a part of something that is gone. Raises ConflictError once it is there again: the part is that one's."""
    if transaction.view(owner.table).exists(owner.key):
        raise ConflictError(problem=f"{owner.key} was made again while its parts were deleted")
    delete_place(transaction, place)


def delete_place(transaction: Layout, place: tuple[str, Any]) -> None:
    """Delete the record at a table's key, a damaged one too; that there is none is no error."""
    table, key = place
    transaction.view(table).delete(key, damaged_ok=True)


class Owner(NamedTuple):
    """Something with parts: its record, the ranges and the tables of these, and raw keys that go with it.

    `rack` is how targets name it, where it is a rack that they can name: it goes only when none does.
    """

    table: str
    key: Any
    parts: tuple[KeyRange, ...]
    listed: tuple[str, ...]
    beside: tuple[bytes, ...] = ()
    rack: str = ""


def _expected(expected: ExpectedRevision | None, key: Any, epoch: str) -> Versioned[Any, Any] | None:
    """Return what is expected of a record, whose bare revision is of `epoch`."""
    return Versioned(key, None, 0, expected, 0, 0, epoch) if isinstance(expected, int) else expected


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
