"""What is done with racks as wholes under the document's keys: several records of one thing, in one commit.

Single records are written through the layout's tables (`chamber.layout.blades.update(...)`), which take expected revisions, and
several under conditions by conditions.py. R and AC numbers are those of this folder's README.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from keyplan.apps.cloudchamber.indexed import store_for_writing
from keyplan.apps.cloudchamber.layout import CloudChamber
from keyplan.apps.cloudchamber.layout_choice import require_document
from keyplan.apps.cloudchamber.layout_keys import BladeKey, DeviceKey
from keyplan.apps.cloudchamber.namespace_store import (
    PARTS,
    DeletePolicy,
    NamespaceStore,
    Owner,
    carried_out_in_steps,
    delete_place,
)
from keyplan.apps.cloudchamber.records import Blade, Pdu, Rack, Tor
from keyplan.apps.cloudchamber.steps import is_too_large
from keyplan.engine import Commit, DeleteRange, KeyRange
from keyplan.errors import (
    AlreadyExistsError,
    EngineLimitError,
)
from keyplan.layout import ExpectedRevision, Versioned
from keyplan.protobuf import Message
from keyplan.store import Store

__all__ = ["Chamber", "RackContents"]

_FIELDS_OF_A_PLACE: Final = {"users": 0, "racks": 0, "workloads": 0, "tors": 1, "pdus": 1, "blades": 1, "instances": 1}
"""How many key fields have to be given until the range of a table holds that table alone."""


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


class Chamber(NamespaceStore[CloudChamber]):
    """CloudChamber's store under one name space: the layout's tables, and operations on whole racks and workloads.

    Every operation is one commit or reads one state, unless `in_steps` is asked for. Safe for use by several threads. Under a
    layout without indexes every write raises IndexesBegunError once the name space has some.
    """

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = "",
        layout: type[CloudChamber] = CloudChamber,
        is_beside_go: bool = False,
    ) -> None:
        """Look whether the name space is the document's. Raises InvalidInputError where it has keys of the Go program alone.

        `is_beside_go`: that is known, and nothing is looked at.
        """
        if not is_beside_go:
            require_document(store.engine, namespace, who="Chamber")
        writing = store_for_writing(store, namespace, layout)
        super().__init__(writing, layout(writing, namespace=namespace), layout.bound(namespace=namespace))

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

        Parts that have no rack go as well: a delete in steps that was cut off goes on when it is asked for again, whatever
        revision is expected. Raises InUseError while instances are wanted on its blades, PartsExistError under RESTRICT,
        StaleRecordError for another revision than expected, NotFoundError unless `missing_ok`.

        A range is one operation, so that any number of blades fits; under a layout that finds blades by indexes each of their
        entries counts, and EngineLimitError is raised unless `in_steps`.
        """
        return self.delete_with_parts(
            self.owner_of_rack(name),
            delete_policy=delete_policy,
            expected_revision=expected_revision,
            missing_ok=missing_ok,
            in_steps=in_steps,
        )

    def owner_of_rack(self, name: str) -> Owner:
        """Return a rack as something with parts."""
        return self._owned("racks", name)._replace(rack=name)

    def delete_listed(self, table: str, *prefix: Any, in_steps: bool = False) -> int:
        """Delete the records of a table whose first key fields equal `prefix`, in one commit; return how many there were.

        Racks and workloads take all their parts along, which are not counted. None at all is fine, and changes nothing. What is
        a place of its own (users, racks, workloads; blades, tors and pdus of a rack; instances of a workload) goes as a range,
        any number at once, if no index finds them; otherwise each record counts: EngineLimitError unless `in_steps`.
        """
        has_entries = any(self._bound.tables[one].indexes for one in (table, *PARTS.get(table, ())))
        if has_entries or len(prefix) < _FIELDS_OF_A_PLACE.get(table, len(prefix) + 1):
            return self._delete_each(table, prefix, in_steps=in_steps)
        own = KeyRange(*self._bound.table(table).keys.range(prefix))
        ranges = (own, *(KeyRange(*self._bound.table(part).keys.range(())) for part in PARTS.get(table, ())[:1]))
        with self.store.engine.snapshot() as snapshot:
            counts = [snapshot.count(one) for one in ranges]
        if any(counts):
            self.store.engine.commit(Commit((), tuple(map(DeleteRange, ranges))))
        return counts[0]

    def _delete_each(self, table: str, prefix: tuple[Any, ...], *, in_steps: bool) -> int:
        def found(state: CloudChamber) -> list[tuple[str, Any]]:
            own = [(table, key) for key in state.view(table).keys(*prefix)]
            return [*own, *((part, key) for part in PARTS.get(table, ()) for key in state.view(part).keys())]  # noqa: SIM118  # Why: a table's.

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
        carried_out_in_steps(self.layout, places, delete_place)
        return sum(one == table for one, _ in places)


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
