"""Instances of workloads: description, target and actual state, created and deleted together (R1), and how far they differ.

What is written here fits: a target that names a blade takes its place there in the same commit (placement.py).
"""

from typing import NamedTuple

from keyplan.apps.cloudchamber.go_served import SERVED_ZONE
from keyplan.apps.cloudchamber.layout import CloudChamberGo, ServedLayout
from keyplan.apps.cloudchamber.layout_keys import GoRackKey, InstanceKey
from keyplan.apps.cloudchamber.placement import needs_more, placed
from keyplan.apps.cloudchamber.records import Instance, InstanceActual, InstanceTarget
from keyplan.errors import CorruptionError, NotFoundError, StaleRecordError
from keyplan.layout import Damaged, ExpectedRevision, Versioned
from keyplan.protobuf import INT64_MAX

__all__ = [
    "InstanceDifference",
    "InstanceStates",
    "Orphan",
    "OrphanKind",
    "WrittenTarget",
    "create_instance",
    "delete_instance",
    "differences_of",
    "find_orphans",
    "insert_target",
    "list_instances",
    "read_instance",
    "write_description",
    "write_target",
]


class InstanceStates(NamedTuple):
    """One instance as of one revision: what it is to be like, what is wanted of it, and what it is."""

    description: Instance | None
    target: InstanceTarget | None
    actual: InstanceActual | None


class WrittenTarget(NamedTuple):
    """A target as it was written, and the revision of that write."""

    record: InstanceTarget
    revision: int


class InstanceDifference(NamedTuple):
    """An instance whose actual state is not its target: what is wanted and what is found, by field of the target.

    `is_damaged`: its target or its actual state cannot be read, and nothing is known of what differs.
    """

    key: InstanceKey
    wanted: dict[str, str | int]
    found: dict[str, str | int]
    is_damaged: bool = False


class OrphanKind:
    """What can be wrong with the parts of racks and workloads; none of it can come from the operations here."""

    STATE_WITHOUT_DESCRIPTION = "an instance has a target or actual state, and no description"
    DESCRIPTION_WITHOUT_TARGET = "an instance has a description, and no target"
    INSTANCE_WITHOUT_WORKLOAD = "an instance belongs to a workload that is not there"
    PART_WITHOUT_RACK = "a part belongs to a rack that is not there"


class Orphan(NamedTuple):
    """A record that stands alone: its table and key, and what is wrong."""

    table: str
    key: object
    problem: str


def create_instance(
    chamber: ServedLayout,
    key: InstanceKey,
    description: Instance,
    target: InstanceTarget,
    actual: InstanceActual | None = None,
    *,
    needs_workload: bool = False,
) -> int:
    """Create an instance: description, target and, when given, actual state, in one commit (AC-07). Return its revision.

    Raises AlreadyExistsError; with `needs_workload` NotFoundError when there is no such workload; as `placed` does where the
    target names a blade.
    """

    def work(transaction: ServedLayout) -> ServedLayout:
        if needs_workload:
            transaction.workloads.require(key.workload)
        transaction.instances.insert(key, description)
        transaction.instance_target.insert(key, placed(chamber, transaction, key, description, target))
        if actual is not None:
            transaction.instance_actual.insert(key, actual)
        return transaction

    return chamber.run(work).revision


def delete_instance(
    chamber: ServedLayout,
    key: InstanceKey,
    *,
    expected_revision: ExpectedRevision | None = None,
    missing_ok: bool = True,
) -> int:
    """Delete an instance's description, target and actual state, whichever there are, in one commit.

    Returns the store's revision after it. The revision expected is the description's. Raises StaleRecordError, and
    NotFoundError unless `missing_ok` when there is none of the three.
    """

    def work(transaction: ServedLayout) -> ServedLayout:
        states = (transaction.instance_target, transaction.instance_actual)
        has_state = [view.exists(key) for view in states] != [False, False]
        transaction.instances.delete(
            key, expected_revision=expected_revision, missing_ok=missing_ok or has_state, damaged_ok=True
        )
        transaction.instance_target.delete(key, damaged_ok=True)
        transaction.instance_actual.delete(key, damaged_ok=True)
        return transaction

    return chamber.run(work).revision


def read_instance(chamber: ServedLayout, key: InstanceKey) -> InstanceStates:
    """Return an instance's three records as of one revision."""
    with chamber.snapshot() as state:
        return InstanceStates(state.instances.get(key), state.instance_target.get(key), state.instance_actual.get(key))


def write_description(
    chamber: ServedLayout, key: InstanceKey, description: Instance, *, expected_revision: int | None = None
) -> int:
    """Replace an instance's description, damaged or not; return its revision.

    Raises NotFoundError, StaleRecordError; as `placed` does where it needs more than before of the blade that it is on.
    """

    def work(transaction: ServedLayout) -> ServedLayout:
        try:
            before = transaction.instances.get(key)
        except CorruptionError:
            before = None
        transaction.instances.update(key, description, expected_revision=expected_revision, damaged_ok=True)
        # Why not else: a target that cannot be read keeps nobody from writing the description.
        if needs_more(description, before):
            target = transaction.instance_target.get(key) or InstanceTarget()
            placed(chamber, transaction, key, description, target, before=(before, target))
        return transaction

    return chamber.run(work).revision


def insert_target(chamber: ServedLayout, key: InstanceKey, target: InstanceTarget) -> WrittenTarget:
    """Write the target of an instance that has none, as other programs may leave it.

    Raises NotFoundError without a description, AlreadyExistsError for one that has a target; as `placed` does.
    """

    def work(transaction: ServedLayout) -> tuple[ServedLayout, InstanceTarget]:
        record = placed(chamber, transaction, key, transaction.instances.require(key), target)
        transaction.instance_target.insert(key, record)
        return transaction, record

    transaction, record = chamber.run(work)
    return WrittenTarget(record, transaction.revision)


def write_target(
    chamber: ServedLayout, key: InstanceKey, target: InstanceTarget, *, expected_revision: int | None = None
) -> WrittenTarget:
    """Replace an instance's target; its generation rises by one when the wish changes, whatever number was given.

    Raises NotFoundError, StaleRecordError; CorruptionError for a target that cannot be read, whose generation nobody knows; as
    `placed` does when it names another blade than before.
    """

    def work(transaction: ServedLayout) -> tuple[ServedLayout, InstanceTarget]:
        try:
            there = transaction.instance_target.versioned(key)
        except CorruptionError as error:
            advice = "delete the instance and create it again, or set its target aside with `keyplan raw quarantine`"
            raise CorruptionError(**error.facts, advice=advice) from error
        if there is None:
            raise NotFoundError(table="instance_target", key=key)
        if expected_revision is not None and there.revision != expected_revision:
            raise StaleRecordError(
                table="instance_target",
                key=key,
                expected_revision=expected_revision,
                actual_revision=there.revision,
            )
        wanted = target
        # Why not for no rack: who leaves takes nothing, and so leaves even where nobody can read what it needs.
        if target.rackid and (target.rackid, target.bladeid) != (there.record.rackid, there.record.bladeid):
            description = transaction.instances.get(key) or Instance()
            wanted = placed(chamber, transaction, key, description, target, before=(description, there.record))
        same = _with_generation(wanted, there.record.generation)
        record = same if same == there.record else _with_generation(wanted, _next_generation(same.generation))
        transaction.instance_target.put(key, record)
        return transaction, record

    transaction, record = chamber.run(work)
    return WrittenTarget(record, transaction.revision)


def list_instances(chamber: ServedLayout, workload: str, *, derive: bool = False) -> list[str]:
    """Return the names of a workload's instances in order: those with a description.

    With `derive` also those of which there is a state alone, as other programs may have written it (R1).
    """
    with chamber.snapshot() as state:
        names = {key.instance for key in state.instances.keys(workload)}
        if derive:
            names |= {key.instance for key in state.instance_target.keys(workload)}
            names |= {key.instance for key in state.instance_actual.keys(workload)}
    return sorted(names)


def differences_of(chamber: ServedLayout, workload: str | None = None) -> list[InstanceDifference]:
    """Return the instances, of one workload or of all, whose actual state is not their target, as of one revision.

    Compared are state, rack, blade and generation; an instance without an actual state differs in all that is wanted of it.
    """
    prefix = () if workload is None else (workload,)
    with chamber.snapshot() as state:
        actual = {row.key: row for row in state.instance_actual.rows(*prefix)}
        found = [_difference_of(row, actual.get(row.key)) for row in state.instance_target.rows(*prefix)]
    return [difference for difference in found if difference is not None]


def _difference_of(
    target: Versioned[InstanceKey, InstanceTarget] | Damaged[InstanceKey],
    actual: Versioned[InstanceKey, InstanceActual] | Damaged[InstanceKey] | None,
) -> InstanceDifference | None:
    assert target.key is not None, "rows of a table have the record's key"
    if isinstance(target, Damaged) or isinstance(actual, Damaged):
        return InstanceDifference(target.key, {}, {}, is_damaged=True)
    return _difference(target.key, target.record, InstanceActual() if actual is None else actual.record)


def find_orphans(chamber: ServedLayout) -> list[Orphan]:
    """Return the parts that stand alone, as of one revision: the original's deletes leave such behind (3.5).

    So does a delete in steps that was cut off.
    """
    with chamber.snapshot() as state:
        workloads, described = set(state.workloads.keys()), set(state.instances.keys())
        targets, actuals = set(state.instance_target.keys()), set(state.instance_actual.keys())
        racks = set(state.racks.keys())
        found = [
            Orphan(table, key, OrphanKind.STATE_WITHOUT_DESCRIPTION)
            for table, keys in (("instance_target", targets), ("instance_actual", actuals))
            for key in sorted(keys - described)
        ]
        found += [
            Orphan("instances", key, OrphanKind.DESCRIPTION_WITHOUT_TARGET) for key in sorted(described - targets)
        ]
        found += [
            Orphan("instances", key, OrphanKind.INSTANCE_WITHOUT_WORKLOAD)
            for key in sorted(described)
            if key.workload not in workloads
        ]
        is_go = isinstance(state, CloudChamberGo)
        for table in ("pdus", "tors", "blades") if is_go else ("tor", "pdu", "tors", "pdus", "blades"):
            parts = state.view(table)
            found += [
                Orphan(table, key, OrphanKind.PART_WITHOUT_RACK)
                for key in parts.keys()  # noqa: SIM118  # Why: a table's, not a dictionary's.
                if (GoRackKey(*key[:4]) if is_go else key if isinstance(key, str) else key.rack) not in racks
            ]
        found += [
            Orphan("part_actual", key, OrphanKind.PART_WITHOUT_RACK)
            for key in state.part_actual.keys()  # noqa: SIM118  # Why: a table's, not a dictionary's.
            if (GoRackKey(*SERVED_ZONE, key.rack) if is_go else key.rack) not in racks
        ]
    return found


def _next_generation(generation: int) -> int:
    """Why from 1 again behind the last: whoever made a target gave any number, and it is compared for equality alone."""
    return generation + 1 if generation < INT64_MAX else 1


def _with_generation(target: InstanceTarget, generation: int) -> InstanceTarget:
    return InstanceTarget(
        desired_state=target.desired_state,
        rackid=target.rackid,
        bladeid=target.bladeid,
        generation=generation,
        unknown_fields=target.unknown_fields,
    )


def _difference(key: InstanceKey, target: InstanceTarget, actual: InstanceActual) -> InstanceDifference | None:
    wanted: dict[str, str | int] = {
        "desiredState": target.desired_state,
        "rackid": target.rackid,
        "bladeid": target.bladeid,
        "generation": target.generation,
    }
    found: dict[str, str | int] = {
        "desiredState": actual.state,
        "rackid": actual.rackid,
        "bladeid": actual.bladeid,
        "generation": actual.observed_generation,
    }
    differing = [name for name in wanted if wanted[name] != found[name]]
    if not differing:
        return None
    return InstanceDifference(
        key, {name: wanted[name] for name in differing}, {name: found[name] for name in differing}
    )
