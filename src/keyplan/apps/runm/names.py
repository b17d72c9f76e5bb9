"""Whether each record is found: by its UUID, by its name, in the lists of its project; and the commits by which it is.

The original spelled names raw and checked little, so that records of its stores can lie where no list looks, and their names
can be taken again. Whoever serves or writes out such a store refuses it; `migrate` carries out the steps that are found here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.original import NAMED_TABLES, Decisions, Original, Undecided, Written
from keyplan.apps.runm.records import ObjectType
from keyplan.apps.runm.well_known import known_types
from keyplan.engine import Commit, Delete, Entry, Guard, KeyAbsent, KeyRange, KeyUnchanged, Mutation, Put, Snapshot
from keyplan.errors import CorruptionError, InvalidInputError, RecordError
from keyplan.layout import BoundTable, shown_key
from keyplan.store import Backoff

__all__ = ["NO_DECISIONS", "Records", "Step", "record_behind", "refuse", "refuse_unnamed"]

_BATCH: Final = 512
_SHOWN_MAX: Final = 3

NO_DECISIONS: Final = Decisions()


class Step(NamedTuple):
    """One thing that a migration does, would do, or leaves to a decision."""

    code: str
    key: str
    what: str
    is_left: bool = False

    def __str__(self) -> str:
        return f"{self.code}: {self.key}: {self.what}"


def refuse_unnamed(deployment: Deployment) -> None:
    """Raise InvalidInputError when a record is not found, by its name or at all, or another record has its name."""
    records = Records(deployment, known_types(deployment), has_every_type=True)
    refuse(deployment, records.steps(is_dry_run=True))


def refuse(deployment: Deployment, steps: Iterator[Step], own: Iterable[ObjectType] = ()) -> None:
    """Raise InvalidInputError, with the command that goes on from there, when there are steps.

    `own` are object types that an operator gave, and the command has to be given, too.
    """
    found = list(islice(steps, _SHOWN_MAX + 1))
    if not found:
        return
    shown = "; ".join(map(str, found[:_SHOWN_MAX])) + ("; ..." if len(found) > _SHOWN_MAX else "")
    given = [word for one in own for word in ("--object-type", f"{one.code}:{one.scope.name}")]
    command = deployment.command("migrate", "--yes", *given)
    problem = (
        f"the original wrote what is not found as it stands ({shown}): lists would leave it out, and its names could be taken "
        f"again. Run `{command}`; what takes a decision it leaves, and says how to decide"
    )
    raise InvalidInputError(source="the store", problem=problem)


class Records:
    """The records that have names, as the original wrote them, and the steps by which each is found."""

    def __init__(
        self,
        deployment: Deployment,
        types: Mapping[str, ObjectType],
        decisions: Decisions = NO_DECISIONS,
        *,
        has_every_type: bool = False,
    ) -> None:
        self.original = Original(deployment.bound, types, decisions, has_every_type=has_every_type)
        self._engine = deployment.store.engine
        self._bound = deployment.bound
        self._claims: Counter[bytes] | None = None
        self.touched: set[bytes] = set()
        """Keys that a dry run would have written or removed."""

    def steps(self, *, is_dry_run: bool) -> Iterator[Step]:
        """Yield each step once it is done, or in a dry run as it would be; and what is left to a decision.

        Each is one guarded commit. Where a writer comes between, it is planned anew.
        """
        for table_name, entry in self._unplaced():
            if is_dry_run:
                with self._engine.snapshot() as snapshot:
                    step, commit = self._step(snapshot, table_name, entry.key)
                mutations = () if commit is None else commit.mutations
                self.touched.update(one.key for one in mutations if isinstance(one, Put | Delete))
            else:
                step = Backoff().until_committed(partial(self._taken, table_name, entry.key))
            if step is not None:
                yield step

    def is_placed(self, snapshot: Snapshot, written: Written) -> bool:
        """Whether a record is as it is to be, with its own entries of its name."""
        found = snapshot.get_many(list(written.names))
        pairs = zip(written.names.values(), found, strict=True)
        return not written.is_changed and all(entry is not None and entry.value == value for value, entry in pairs)

    # ---- pieces --------------------------------------------------------------------------------------------------------

    def _taken(self, table_name: str, raw_key: bytes) -> Step | None:
        with self._engine.snapshot() as snapshot:
            step, commit = self._step(snapshot, table_name, raw_key)
        if commit is not None:
            self._engine.commit(commit)
        return step

    def _unplaced(self) -> Iterator[tuple[str, Entry]]:
        """Yield the entries that are not placed, or cannot be, each with its table's name. No snapshot is held for long."""
        for name in NAMED_TABLES:
            key_range = KeyRange(*self._bound.table(name).keys.range(()))
            while True:
                with self._engine.snapshot() as snapshot:
                    batch = list(snapshot.scan(key_range, limit=_BATCH))
                    odd = list(self._odd(snapshot, name, batch))
                if not batch:
                    break
                yield from ((name, entry) for entry in odd)
                key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)

    def _odd(self, snapshot: Snapshot, table_name: str, batch: list[Entry]) -> Iterator[Entry]:
        """Yield the entries of a batch that are not placed, or cannot be. Why at once: one read for all their names."""
        read = [(entry, self.original.read(table_name, entry)) for entry in batch]
        keys = [key for _, one in read if isinstance(one, Written) for key in one.names]
        stored = dict(zip(keys, snapshot.get_many(keys), strict=True))
        for entry, one in read:
            if isinstance(one, Undecided) or (one is not None and (one.is_changed or not _stands(one, stored))):
                yield entry

    def _claimed(self, key: bytes) -> int:
        """How many records that are not placed should have a key: that of a name, or their own."""
        if self._claims is None:
            read = (self.original.read(name, entry) for name, entry in self._unplaced())
            self._claims = Counter(
                key for one in read if isinstance(one, Written) for key in (*one.names, _place_of(one))
            )
        return self._claims[key]

    def _step(self, snapshot: Snapshot, table_name: str, raw_key: bytes) -> tuple[Step | None, Commit | None]:
        entry = snapshot.get(raw_key)
        read = None if entry is None else self.original.read(table_name, entry)
        if read is None:
            return None, None
        if isinstance(read, Undecided):
            return Step(*read, is_left=True), None
        plan = _Plan(read)
        left = self._plan_record(snapshot, plan) or self._plan_names(snapshot, plan)
        if left is not None:
            return left, None
        if not plan.mutations:
            return None, None
        return Step(*plan.told()), Commit(tuple(plan.guards), tuple(plan.mutations), snapshot.epoch)

    def _plan_record(self, snapshot: Snapshot, plan: "_Plan") -> Step | None:
        one = plan.written
        if not one.is_changed:
            return None
        raw_key, value = _place_of(one), one.table.form.encode(one.record)
        plan.code = "respelt"
        if raw_key != one.entry.key:
            if snapshot.get(raw_key) is not None or self._claimed(raw_key) > 1:
                words = (
                    f"left: another record is {shown_key(raw_key)}, too. Delete one of the two by `keyplan raw delete`"
                )
                return Step("uuid-taken", shown_key(one.entry.key), words, is_left=True)
            plan.guards.append(KeyAbsent(raw_key))
            plan.mutations.append(Delete(one.entry.key))
            # Why: nobody could read the record before, and what keeps the indexes did not know of it.
            plan.mutations += _shared_entries(one)
        plan.mutations.append(Put(raw_key, value))
        return None

    def _plan_names(self, snapshot: Snapshot, plan: "_Plan") -> Step | None:
        one = plan.written
        for key, value in one.names.items():
            found = snapshot.get(key)
            if found is not None and found.value == value:
                continue
            if found is None:
                plan.guards.append(KeyAbsent(key))
            else:
                guard = self._stale(snapshot, one, key, found)
                if guard is None:
                    return _name_taken(one, f"{shown_key(key)} is another record's")
                plan.guards += [KeyUnchanged(key, found.mod_revision), *guard]
            if self._claimed(key) > 1:
                return _name_taken(one, f"{self._claimed(key)} records are to have {shown_key(key)}")
            plan.mutations.append(Put(key, value))
            plan.moved_to = key
        plan.give_up(snapshot)
        return None

    def _stale(self, snapshot: Snapshot, one: Written, key: bytes, found: Entry) -> list[Guard] | None:
        """Whether a name's entry, which points elsewhere, is no record's: what has to stay so; None where it is one's."""
        if one.text.encode() == found.value or parsed_uuid(found.value.decode("ascii", "replace")) == one.uuid:
            return []
        holder_key, holder = record_behind(snapshot, one.table, found.value)
        if holder is None:
            return [KeyAbsent(holder_key)]
        read = self.original.read(one.table.spec.name, holder)
        if isinstance(read, Written) and key not in read.names:
            return [KeyUnchanged(holder.key, holder.mod_revision)]
        return None


class _Plan:
    """The commit of one record in the making."""

    def __init__(self, written: Written) -> None:
        self.written = written
        self.code = "unnamed"
        self.moved_to: bytes | None = None
        self.guards: list[Guard] = [KeyUnchanged(written.entry.key, written.entry.mod_revision)]
        self.mutations: list[Mutation] = []

    def give_up(self, snapshot: Snapshot) -> None:
        """Remove the entries by which the record was found, those that it should not have any more."""
        one = self.written
        own = {one.text.encode(), one.uuid.hex.encode()}
        for key in _former_names(one) - one.names.keys():
            found = snapshot.get(key)
            if found is not None and found.value in own:
                self.guards.append(KeyUnchanged(found.key, found.mod_revision))
                self.mutations.append(Delete(found.key))
                if self.code == "unnamed":
                    self.code = "raw-name"

    def told(self) -> tuple[str, str, str]:
        """Return the step's code, key and words."""
        one = self.written
        if self.code == "respelt":
            return self.code, shown_key(one.entry.key), "written as it is spelled here, with the entry of its name"
        moved = "" if self.moved_to is None else f" moved to {shown_key(self.moved_to)}"
        if self.code == "raw-name":
            return self.code, shown_key(one.original_name), moved.strip() or "removed: the record has another entry"
        return self.code, shown_key(one.entry.key), "given the entry of its name, which was not there"


def record_behind(snapshot: Snapshot, table: BoundTable, value: bytes) -> tuple[bytes, Entry | None]:
    """Return the key and the entry of the record that a name's entry points at, however its UUID is spelled."""
    raw_key = table.keys.prefix(()) + value
    entry = snapshot.get(raw_key)
    uuid: UUID | None = parsed_uuid(value.decode("ascii", "replace"))
    if entry is None and uuid is not None:
        raw_key = table.keys.encode(uuid)
        entry = snapshot.get(raw_key)
    return raw_key, entry


def _name_taken(one: Written, why: str) -> Step:
    text = f"left: {why}. Rename one of them by --rename {one.uuid.hex}=NAME, or delete it"
    return Step("name-taken", shown_key(one.entry.key), text, is_left=True)


def _shared_entries(one: Written) -> Iterator[Put]:
    """Puts of the entries that a record has in indexes that allow several, of the items that fit."""
    for index in one.table.indexes:
        if not index.spec.is_unique:
            try:
                yield from (Put(key, value) for key, value in index.possible_entries(one.uuid, one.record))
            except RecordError:
                continue


def _place_of(one: Written) -> bytes:
    return one.table.keys.encode(one.uuid)


def _former_names(one: Written) -> set[bytes]:
    """The keys that the record's name has as it is stored: the original's, and ours where it was ours that wrote it."""
    former = {one.original_name}
    try:
        record = one.table.form.decode(one.entry.value)
        for index in one.table.indexes:
            if index.spec.is_unique:
                former.update(key for key, _ in index.entries(one.uuid, record))
    except (CorruptionError, RecordError):
        return former
    return former


def _stands(one: Written, stored: Mapping[bytes, Entry | None]) -> bool:
    return all((entry := stored[key]) is not None and entry.value == value for key, value in one.names.items())
