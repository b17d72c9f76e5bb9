"""What is done with racks, workloads and instances as wholes: several records of one thing, in one commit.

Single records are written through the layout's tables (`chamber.layout.blades.update(...)`), which take expected revisions, and
several under conditions by conditions.py. R and AC numbers are those of this folder's README.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, auto
from typing import Any, Final, NamedTuple, TypeVar

from keyplan.apps.cloudchamber.indexed import store_for_writing
from keyplan.apps.cloudchamber.layout import BladeKey, CloudChamber, DeviceKey, prefix_of_parts
from keyplan.apps.cloudchamber.records import Blade, Pdu, Rack, Tor
from keyplan.apps.cloudchamber.steps import Steps, is_too_large
from keyplan.apps.cloudchamber.watches import RecordWatch, watch_records
from keyplan.engine import Commit, Delete, DeleteRange, Entry, Guard, KeyRange, KeyUnchanged, RangeEmpty
from keyplan.errors import (
    AlreadyExistsError,
    ConflictError,
    EngineLimitError,
    NotFoundError,
    StaleRecordError,
)
from keyplan.layout import ExpectedRevision, Versioned, shown_key
from keyplan.protobuf import Message
from keyplan.store import Backoff, Store

__all__ = ["Chamber", "DeletePolicy", "PartsExistError", "RackContents", "carried_out_in_steps"]

_PARTS: Final = {
    "racks": ("tor", "pdu", "tors", "pdus", "blades"),
    "workloads": ("instances", "instance_target", "instance_actual"),
}
"""The tables that hold the parts of each whole."""

_FIELDS_OF_A_PLACE: Final = {"users": 0, "racks": 0, "workloads": 0, "tors": 1, "pdus": 1, "blades": 1, "instances": 1}
"""How many key fields have to be given until the range of a table holds that table alone."""

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


class RackContents(NamedTuple):
    """A rack and its parts as of one revision, by number in numeric order. Number 0 is the device with the documented key."""

    rack: Rack
    tors: Mapping[int, Tor]
    pdus: Mapping[int, Pdu]
    blades: Mapping[int, Blade]

    def records(self, name: str) -> dict[tuple[str, Any], Message]:
        """Return every record by table and key: the parts, then the rack itself."""
        tors: Any = {
            ("tors", DeviceKey(name, number)) if number else ("tor", name): it for number, it in self.tors.items()
        }
        pdus: Any = {
            ("pdus", DeviceKey(name, number)) if number else ("pdu", name): it for number, it in self.pdus.items()
        }
        blades = {("blades", BladeKey(name, number)): blade for number, blade in self.blades.items()}
        return {**tors, **pdus, **blades, ("racks", name): self.rack}


class Chamber:
    """CloudChamber's store under one name space: the layout's tables, and operations on whole racks and workloads.

    Every operation is one commit or reads one state, unless `in_steps` is asked for. Safe for use by several threads. Under a
    layout without indexes every write raises IndexesBegunError once the name space has some.
    """

    def __init__(self, store: Store, *, namespace: str = "", layout: type[CloudChamber] = CloudChamber) -> None:
        self.store = store_for_writing(store, namespace, layout)
        self.layout = layout(self.store, namespace=namespace)
        self._bound = layout.bound(namespace=namespace)

    # ---- racks -----------------------------------------------------------------------------------------------------------

    def create_rack(self, name: str, contents: RackContents, *, in_steps: bool = False) -> int:
        """Create a rack with its parts in one commit; return its revision (AC-03).

        Raises AlreadyExistsError for a record that is there, and EngineLimitError when the engine does not take so many records
        at once; then nothing is written. With `in_steps` such a rack is written in several commits, the rack's own record last
        (AC-31); if that is cut off, parts without a rack are left, which `delete_rack` removes.
        """
        records = contents.records(name)

        def work(transaction: CloudChamber) -> CloudChamber:
            for (table, key), record in records.items():
                transaction.view(table).insert(key, record)
            return transaction

        try:
            return self.layout.run(work).revision
        except EngineLimitError as error:
            if not in_steps or not is_too_large(error):
                raise
        with self.layout.snapshot() as state:
            for table, key in records:
                there = state.view(table).versioned(key)
                if there is not None:
                    raise AlreadyExistsError(table=table, key=key, revision=there.revision)
        return carried_out_in_steps(
            self.layout, list(records.items()), lambda tx, item: tx.view(item[0][0]).insert(item[0][1], item[1])
        )

    def read_rack(self, name: str) -> RackContents | None:
        """Return a rack and all its parts as of one revision; None when there is no such rack."""
        with self.layout.snapshot() as state:
            rack = state.racks.get(name)
            return None if rack is None else contents_of(state, name, rack)

    def read_racks(self) -> dict[str, RackContents]:
        """Return every rack with its parts, all as of one revision, in the order of their names."""
        with self.layout.snapshot() as state:
            return {name: contents_of(state, name, rack) for name, rack in state.racks.list()}

    def list_blades(self, rack: str) -> list[Versioned[BladeKey, Blade]]:
        """Return the blades of a rack in numeric order (R10), as of one revision."""
        return sorted(self.layout.blades.entries(rack), key=lambda found: found.key.blade)

    def delete_rack(
        self,
        name: str,
        *,
        delete_policy: DeletePolicy = DeletePolicy.CASCADE,
        expected_revision: ExpectedRevision | None = None,
        missing_ok: bool = True,
        in_steps: bool = False,
    ) -> int:
        """Delete a rack and everything under `rack/{name}/`, in one commit; return the store's revision after it (R17).

        Parts that have no rack go as well. Raises PartsExistError under RESTRICT, StaleRecordError for another revision than
        expected, NotFoundError unless `missing_ok`. A range is one operation, so that any number of blades fits; under a layout
        with indexes each record counts, and EngineLimitError is raised unless `in_steps`.
        """
        owned = self._owned("racks", name)
        return self._delete(owned, delete_policy, expected_revision, missing_ok=missing_ok, in_steps=in_steps)

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
        owned = self._owned("workloads", name)
        return self._delete(owned, delete_policy, expected_revision, missing_ok=missing_ok, in_steps=in_steps)

    # ---- deletes ---------------------------------------------------------------------------------------------------------

    def delete_listed(self, table: str, *prefix: Any, in_steps: bool = False) -> int:
        """Delete the records of a table whose first key fields equal `prefix`, in one commit; return how many there were.

        Racks and workloads take all their parts along, which are not counted. None at all is fine, and changes nothing. What is
        a place of its own (users, racks, workloads; blades, tors and pdus of a rack; instances of a workload) goes as a range,
        any number at once, if there are no indexes; otherwise each record counts: EngineLimitError unless `in_steps`.
        """
        if self._bound.indexes or len(prefix) < _FIELDS_OF_A_PLACE.get(table, len(prefix) + 1):
            return self._delete_each(table, prefix, in_steps=in_steps)
        own = KeyRange(*self._bound.table(table).keys.range(prefix))
        ranges = (own, *(KeyRange(*self._bound.table(part).keys.range(())) for part in _PARTS.get(table, ())[:1]))
        with self.store.engine.snapshot() as snapshot:
            counts = [snapshot.count(one) for one in ranges]
        if any(counts):
            self.store.engine.commit(Commit((), tuple(map(DeleteRange, ranges))))
        return counts[0]

    def _delete_each(self, table: str, prefix: tuple[Any, ...], *, in_steps: bool) -> int:
        def found(state: CloudChamber) -> list[tuple[str, Any]]:
            own = [(table, key) for key in state.view(table).keys(*prefix)]
            return [*own, *((part, key) for part in _PARTS.get(table, ()) for key in state.view(part).keys())]  # noqa: SIM118  # Why: a table's.

        def work(transaction: CloudChamber) -> int:
            places = found(transaction)
            for one, key in places:
                transaction.view(one).delete(key, damaged_ok=True)
            return sum(one == table for one, _ in places)

        try:
            return self.layout.run(work)
        except EngineLimitError as error:
            if not in_steps or not is_too_large(error):
                raise
        with self.layout.snapshot() as state:
            places = found(state)
        carried_out_in_steps(self.layout, places, _delete_place)
        return sum(one == table for one, _ in places)

    def _owned(self, table: str, key: str) -> "_Owned":
        return _Owned(table, key, KeyRange.of_prefix(prefix_of_parts(self._bound, table, key)), _PARTS[table])

    def _delete(
        self,
        owned: "_Owned",
        delete_policy: DeletePolicy,
        expected_revision: ExpectedRevision | None,
        *,
        missing_ok: bool,
        in_steps: bool,
    ) -> int:
        if self._bound.indexes and delete_policy is DeletePolicy.CASCADE:
            return self._delete_records(owned, expected_revision, missing_ok=missing_ok, in_steps=in_steps)
        raw_key = self._bound.tables[owned.table].keys.encode(owned.key)
        expected: Versioned[Any, Any] | None = None

        def attempt() -> int:
            nonlocal expected
            with self.store.engine.snapshot() as snapshot:
                entry = snapshot.get(raw_key)
                has_parts = next(iter(snapshot.scan(owned.parts, limit=1, keys_only=True)), None) is not None
                epoch = snapshot.epoch
            # Why once: a bare revision is of the epoch that this call begins in, in every try.
            expected = expected or _expected(expected_revision, owned.key, epoch)
            self._require(owned, entry, expected, epoch, missing_ok=missing_ok)
            if delete_policy is DeletePolicy.RESTRICT:
                if has_parts:
                    raise PartsExistError(table=owned.table, key=owned.key)
                if entry is None:
                    return self.layout.revision
                if self._bound.indexes:
                    return self._delete_alone(owned, _seen(owned.key, entry, epoch))
                stands = KeyUnchanged(raw_key, entry.mod_revision)
                commit = Commit((stands, RangeEmpty(owned.parts)), (Delete(raw_key),), epoch)
            else:
                guards: tuple[Guard, ...] = ()
                # Why also where it must be there: of two such deletes at once, one finds nothing.
                if entry is not None and (expected_revision is not None or not missing_ok):
                    guards = (KeyUnchanged(raw_key, entry.mod_revision),)
                commit = Commit(guards, (DeleteRange(owned.parts), Delete(raw_key)), epoch)
            return self.store.engine.commit(commit)

        return Backoff().until_committed(attempt)

    @staticmethod
    def _require(
        owned: "_Owned", entry: Entry | None, expected: Versioned[Any, Any] | None, epoch: str, *, missing_ok: bool
    ) -> None:
        actual = 0 if entry is None else entry.mod_revision
        if expected is not None and (expected.revision, expected.epoch or epoch) != (actual, epoch):
            raise StaleRecordError(
                table=owned.table, key=owned.key, expected_revision=expected.revision, actual_revision=actual
            )
        if not actual and not missing_ok:
            raise NotFoundError(table=owned.table, key=owned.key)

    def _delete_alone(self, owned: "_Owned", seen: Versioned[Any, Any]) -> int:
        def work(transaction: CloudChamber) -> CloudChamber:
            if any(transaction.view(part).count(owned.key) for part in owned.listed):
                raise PartsExistError(table=owned.table, key=owned.key)
            transaction.view(owned.table).delete(owned.key, expected_revision=seen, damaged_ok=True)
            return transaction

        return self.layout.run(work).revision

    def _delete_records(
        self, owned: "_Owned", expected_revision: ExpectedRevision | None, *, missing_ok: bool, in_steps: bool
    ) -> int:
        def found(state: CloudChamber) -> list[tuple[str, Any]]:
            own = state.view(owned.table)
            is_there = own.exists(owned.key)
            if expected_revision is not None or not (is_there or missing_ok):
                own.delete(owned.key, expected_revision=expected_revision, missing_ok=missing_ok, damaged_ok=True)
            parts = [(part, key) for part in owned.listed for key in state.view(part).keys(owned.key)]
            return [*([(owned.table, owned.key)] if is_there else []), *parts]

        def work(transaction: CloudChamber) -> CloudChamber:
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
        return carried_out_in_steps(self.layout, places, _delete_place)


def _delete_place(transaction: CloudChamber, place: tuple[str, Any]) -> None:
    table, key = place
    transaction.view(table).delete(key, damaged_ok=True)


class _Owned(NamedTuple):
    """Something with parts: its record, the raw keys of its parts, and the tables that they are in."""

    table: str
    key: str
    parts: KeyRange
    listed: tuple[str, ...]


def contents_of(state: CloudChamber, name: str, rack: Rack) -> RackContents:
    """Return a rack with its parts as a snapshot or transaction sees them; `state.tor` is number 0."""
    tors = {key.device: tor for key, tor in state.tors.list(name)}
    pdus = {key.device: pdu for key, pdu in state.pdus.list(name)}
    tor, pdu = state.tor.get(name), state.pdu.get(name)
    blades = sorted(((key.blade, blade) for key, blade in state.blades.list(name)), key=lambda pair: pair[0])
    return RackContents(
        rack,
        {**({} if tor is None else {0: tor}), **tors},
        {**({} if pdu is None else {0: pdu}), **pdus},
        dict(blades),
    )


def _expected(expected: ExpectedRevision | None, key: str, epoch: str) -> Versioned[Any, Any] | None:
    """Return what is expected of a record, whose bare revision is of `epoch`."""
    return Versioned(key, None, 0, expected, 0, 0, epoch) if isinstance(expected, int) else expected


def _seen(key: str, entry: Entry, epoch: str) -> Versioned[Any, Any]:
    """Return an entry as what a delete expects of its record, which need not be readable."""
    return Versioned(key, None, entry.create_revision, entry.mod_revision, entry.version, entry.lease, epoch)


def carried_out_in_steps(layout: CloudChamber, items: Iterable[W], write: Callable[[CloudChamber, W], object]) -> int:
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
