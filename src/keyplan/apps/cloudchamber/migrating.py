"""Moving a store from one layout to the other: read one state, plan, carry aside, write in bounded commits, read back.

The source is only read, and nothing that the target holds is changed or removed: a migration adds. Where it is cut off, running
it again goes on. What goes where, migration.py says.
"""

from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeAlias, cast

from msgspec import structs

from keyplan.apps.cloudchamber.go_inventory import GO_INVENTORY_TABLES, GoKey, GoPlace
from keyplan.apps.cloudchamber.indexed import layout_in_use, store_for_writing
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.layout_keys import TESTS
from keyplan.apps.cloudchamber.migration import (
    Contents,
    Migration,
    MigrationOptions,
    bound_side,
    is_kept_up,
    planned_migration,
)
from keyplan.apps.cloudchamber.sidecar import MigrationSidecar, write_sidecar
from keyplan.apps.cloudchamber.steps import Steps
from keyplan.engine import Commit, KeyAbsent, KeyRange, MemoryEngine, Put
from keyplan.errors import (
    CommitConflictError,
    ConflictError,
    CorruptionError,
    InvalidInputError,
    InvalidRecordError,
    TargetNotEmptyError,
)
from keyplan.layout import BoundLayout, Kind, shown_key
from keyplan.maintenance import PairDigest, Tally
from keyplan.store import Store

__all__ = ["MigrationOutcome", "NotRepresentableError", "migrate", "plan_of_migration"]

_SHOWN_MAX: Final = 4

Pair: TypeAlias = tuple[bytes, bytes]


class NotRepresentableError(InvalidInputError):
    """The target has no place for something, and nothing was said of where it should go. Facts: `source`, `problem`."""

    code: ClassVar[str] = "not-representable"
    summary: ClassVar[str] = "the other layout has no place for something"


class MigrationOutcome(NamedTuple):
    """What a migration did. `written` of the keys were not there; `others` are the target's own, which stay as they are.

    `tally` is that of all keys that it brought, read back from the target.
    """

    plan: Migration
    written: int
    others: int
    commits: int
    tally: Tally
    revision: int


def plan_of_migration(
    source: Store, side: LayoutSide, options: MigrationOptions, back: MigrationSidecar | None = None
) -> Migration:
    """Return what a migration away from `side` would do; write nothing. Raises as `planned_migration` does."""
    return planned_migration(_contents(source, side, options.namespace), side, options, back)


def _check_representable(plan: Migration) -> None:
    """Raise NotRepresentableError when something is left over, with each reason and the first keys that it is about."""
    if not plan.leftovers:
        return
    told: list[str] = []
    for why, count in plan.reasons().items():
        keys = [leftover.key for leftover in plan.leftovers if leftover.why == why]
        more = f" and {count - _SHOWN_MAX} more" if count > _SHOWN_MAX else ""
        told.append(f"{why}: {', '.join(keys[:_SHOWN_MAX])}{more}")
    raise NotRepresentableError(source=str(plan.sidecar.source), problem="; ".join(told))


def migrate(
    source: Store,
    target: Store,
    side: LayoutSide,
    options: MigrationOptions,
    *,
    back: MigrationSidecar | None = None,
    sidecar: Path | None = None,
    leave_behind: bool = False,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> MigrationOutcome:
    """Move what `source` holds in the layout `side` to the other layout in `target`, which may be the same store.

    What is left over goes into the file `sidecar`, before anything is written; without a file it is refused, unless
    `leave_behind`. Then what the target does not have yet is written, in as many commits as it takes: each holds only if nobody
    wrote its keys meanwhile, and a record of the Go program and its list key are in one. Values are the same, byte for byte.
    At the end everything is read back. When it is cut off, running it again completes it.

    Raises, before anything is written, InvalidInputError as `planned_migration` does, NotRepresentableError for leftovers,
    TargetNotEmptyError when the target has something else at one of the keys, and EngineLimitError for what its engine does not
    take. Afterwards ConflictError, when other writers come
    between; what was written by then stays.
    """
    contents = _contents(source, side, options.namespace)
    plan = planned_migration(contents, side, options, back)
    if sidecar is None and not leave_behind:
        _check_representable(plan)
    stored = _contents(target, side.other, options.namespace)
    missing = _missing(stored, plan.desired)
    bound = bound_side(side.other, options.namespace)
    units = _units(bound, missing)
    with Store(MemoryEngine(profile=target.engine.profile), secrets=target.secrets) as rehearsal:
        # Why: what the target's engine does not take is told before anything is written, not behind the first commits.
        rehearsal.engine.load(sorted(stored.items()))
        Steps(units, _Writer(rehearsal, side.other, bound, options.namespace).write).carry_out()
    if sidecar is not None and plan.leftovers:
        write_sidecar(sidecar, plan.sidecar)
    writer = _Writer(target, side.other, bound, options.namespace)
    steps = Steps(units, writer.write, report)
    steps.carry_out()
    outcome = _read_back(target, plan, options, written=len(missing), commits=steps.commits)
    if _contents(source, side, options.namespace) != contents:
        raise _changed("the source")
    return outcome


def _contents(store: Store, side: LayoutSide, namespace: str) -> dict[bytes, bytes]:
    """Everything below a layout's root, from one state; of production, nothing below Test/ (R14)."""
    root = bound_side(side, namespace).root
    tests = KeyRange.of_prefix(root + TESTS.encode())
    with store.engine.snapshot() as snapshot:
        pairs = snapshot.pairs(KeyRange.of_prefix(root))
        return {key: value for key, value in pairs if namespace or key not in tests}


def _missing(stored: Contents, desired: Contents) -> list[Pair]:
    others = [key for key, value in desired.items() if stored.get(key, value) != value]
    if others:
        shown = ", ".join(map(shown_key, others[:_SHOWN_MAX]))
        problem = f"it holds something else at {len(others)} of {len(desired)} keys, beginning with {shown}"
        raise TargetNotEmptyError(problem=problem)
    return [(key, value) for key, value in desired.items() if key not in stored]


def _units(bound: BoundLayout, pairs: list[Pair]) -> list[tuple[Pair, ...]]:
    """What one commit must hold together: a record of the Go program with its list key, any other by itself."""

    def unit(pair: Pair) -> bytes:
        meaning = bound.meaning(pair[0])
        if is_go and meaning.kind is Kind.RECORD and meaning.item in GO_INVENTORY_TABLES:
            place = GoPlace(str(meaning.item), cast("GoKey", meaning.key))
            # Why: the record's key for both, in whose order racks are together.
            return bound.tables[place.records].keys.encode(place.key)
        return pair[0]

    is_go = bound.name == CloudChamberGo.__name__
    ordered = sorted((unit(pair), *pair) for pair in pairs)
    return [tuple(pair[1:] for pair in unit) for _, unit in groupby(ordered, key=lambda pair: pair[0])]


class _Writer:
    """Writes pairs into a store: records with their index entries, and the bytes as they came."""

    def __init__(self, store: Store, side: LayoutSide, bound: BoundLayout, namespace: str) -> None:
        self._bound = bound
        if side is LayoutSide.DOCUMENT:
            layout = layout_in_use(store, namespace)
            self._store = store_for_writing(store, namespace, layout)
            self._layout: CloudChamber | CloudChamberGo = layout(self._store, namespace=namespace)
        else:
            self._store = store
            self._layout = CloudChamberGo(store, namespace=namespace)

    def write(self, pairs: tuple[Pair, ...]) -> None:
        """Write what is not there yet, all of it at one revision. Raises CommitConflictError when one of the keys is."""
        raw_values = dict(pairs)
        with closing(self._store.transaction()) as transaction:
            layout = self._layout.over(transaction)
            for raw_key, raw_value in pairs:
                record = self._record(raw_key, raw_value)
                if record is not None:
                    meaning = self._bound.meaning(raw_key)
                    layout.view(str(meaning.item)).put(meaning.key, record, expected_revision=0)
            commit = transaction.collected()
        # Why: a record spells itself anew when it is written; what another program spelled differently must stay as it is.
        written = {mutation.key for mutation in commit.mutations if isinstance(mutation, Put)}
        mutations = tuple(
            structs.replace(mutation, value=raw_values[mutation.key])
            if isinstance(mutation, Put) and mutation.key in raw_values
            else mutation
            for mutation in commit.mutations
        )
        others = [pair for pair in pairs if pair[0] not in written]
        self._store.engine.commit(
            Commit(
                (*commit.guards, *(KeyAbsent(raw_key) for raw_key, _ in others)),
                (*mutations, *(Put(raw_key, raw_value) for raw_key, raw_value in others)),
                commit.epoch,
            )
        )

    def _record(self, raw_key: bytes, raw_value: bytes) -> object:
        """The record of a pair; None where the layout knows none, or cannot read it: such a pair is written as bytes."""
        meaning = self._bound.meaning(raw_key)
        if meaning.kind is not Kind.RECORD:
            return None
        try:
            return cast("object", self._bound.tables[str(meaning.item)].form.decode(raw_value))
        except (CorruptionError, InvalidRecordError):
            return None


def _read_back(
    target: Store, plan: Migration, options: MigrationOptions, *, written: int, commits: int
) -> MigrationOutcome:
    stored = _contents(target, plan.sidecar.source.other, options.namespace)
    if any(stored.get(key) != value for key, value in plan.desired.items()):
        raise _changed("the target")
    bound = bound_side(plan.sidecar.source.other, options.namespace)
    others = sum(key not in plan.desired and not is_kept_up(bound, key) for key in stored)
    tally = PairDigest.of(sorted(plan.desired.items()))
    return MigrationOutcome(plan, written, others, commits, tally, target.revision)


def _changed(what: str) -> ConflictError:
    return CommitConflictError(
        problem=f"{what} was changed while the migration went on: what was moved is not all it holds now"
    )
