"""What an import is asked for: the records that a definition wants under one layout, and the plan that somebody agreed to."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from keyplan.apps.cloudchamber.definition import Definition
from keyplan.apps.cloudchamber.go_inventory import go_inventory_records
from keyplan.apps.cloudchamber.import_plan import ImportChange, ImportPlan
from keyplan.apps.cloudchamber.inventory import ExtraDevices, RackIds, inventory_records
from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.errors import ConflictError, InvalidInputError
from keyplan.layout import ExpectedRevision
from keyplan.protobuf import Message, ProtoJson

__all__ = ["ApprovedPlan", "PlanChangedError", "plan_digest", "wanted_records"]

_DIGEST_DIGITS: Final = 32


class PlanChangedError(ConflictError):
    """An import would do other things than those that were agreed to. Facts: `done`, whether some of these were made before."""

    code = "plan-changed"
    summary = "the import would not do what was agreed to"


def wanted_records(
    side: LayoutSide,
    definition: Definition,
    *,
    extra_devices: ExtraDevices = ExtraDevices.REFUSE,
    rack_ids: RackIds = RackIds.NAME,
) -> Mapping[Any, Any]:
    """Return every record that a definition wants under a layout, by its place.

    Raises InvalidInputError, MultiplicityError: as `inventory_records` and `go_inventory_records` do, and for options of the
    document's keys under the Go program's.
    """
    if side is LayoutSide.DOCUMENT:
        return inventory_records(definition, extra_devices=extra_devices, rack_ids=rack_ids)
    if (extra_devices, rack_ids) != (ExtraDevices.REFUSE, RackIds.NAME):
        problem = "extra devices and rack ids are for the document's keys; the Go program's have a place for all"
        raise InvalidInputError(source="import", problem=problem)
    return go_inventory_records(definition)


class ApprovedPlan:
    """Lets an import do what one plan says, as its digest names it, and nothing else. For one import.

    One of several commits plans again when another writer came between: once some is done, what is left may be less.
    """

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._agreed: frozenset[bytes] = frozenset()

    def __call__(self, plan: ImportPlan, commits: int) -> None:
        """Return if a plan is the one that was agreed to, or after some `commits` what is left. Raises PlanChangedError."""
        changes = frozenset(map(_told, plan.changes))
        # Why anew each time: until something is written, an attempt that lost a race is none.
        if not commits and plan_digest(plan) == self._digest:
            self._agreed = changes
        elif not commits or not changes <= self._agreed:
            raise PlanChangedError(done=commits > 0)


def plan_digest(plan: ImportPlan) -> str:
    """Return what names a plan: the same for two that do the same to the same records, as they were written last."""
    return sha256(b"".join(sorted(map(_told, plan.changes)))).hexdigest()[:_DIGEST_DIGITS]


def _told(change: ImportChange) -> bytes:
    """Which record is changed, from which write of it, to what: 32 bytes."""
    place, new = change.place, change.new
    written = ProtoJson(type(new)).encode(new) if isinstance(new, Message) else repr(new).encode()
    return sha256(repr((place.table, place.key, _revision(change.seen))).encode() + b"\0" + written).digest()


def _revision(seen: ExpectedRevision) -> int:
    return seen if isinstance(seen, int) else seen.revision
