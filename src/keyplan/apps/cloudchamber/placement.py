"""Instances on blades by their capacity: what is taken of a blade, what fits beside it, and which blade fits best.

What is taken is never stored. It is the sum of what the instances need whose targets name the blade: an index of the targets
finds them, so it is right whoever wrote them, and `keyplan check` examines it like any other. Each commit that takes capacity
of a blade also writes the blade's guard. Of two at once, one is made again, and sees what the other has taken.

Everything here goes by a target's rack and blade, whatever state is desired there. A workload's affinity is not looked at.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from fractions import Fraction
from typing import Final, NamedTuple, TypeVar

from keyplan.apps.cloudchamber.capacity import Amounts, Needs, Shortage, needs_of, offer_of, shortages, sum_of
from keyplan.apps.cloudchamber.go_inventory import folded
from keyplan.apps.cloudchamber.go_served import SERVED_ZONE
from keyplan.apps.cloudchamber.layout import CloudChamberGo, ServedLayout
from keyplan.apps.cloudchamber.layout_keys import (
    BLADE_NUMBER_MAX,
    BladeKey,
    GoBladeKey,
    GoRackKey,
    InstanceKey,
    TargetBlade,
)
from keyplan.apps.cloudchamber.namespace_store import InUseError, require_unwanted
from keyplan.apps.cloudchamber.records import (
    Blade,
    BladeDetails,
    BladeGuard,
    Capacity,
    Condition,
    Instance,
    InstanceTarget,
    Rack,
    RackDetails,
)
from keyplan.errors import ConflictError, CorruptionError, InvalidInputError
from keyplan.layout import Damaged

__all__ = [
    "BladeLoad",
    "NotPlacedError",
    "blade_load",
    "needs_more",
    "on_chosen_blade",
    "placed",
    "require_capacity",
    "take_turn",
]

R = TypeVar("R")

CHOICES_MAX: Final = 32
"""Why: a blade is chosen again when others took its place meanwhile; each time, one of them went on."""

_CLOSEST_MAX: Final = 3


class NotPlacedError(ConflictError):
    """An instance cannot be on a blade, or on any. Nothing was written.

    Facts: `workload`, `instance`, `problem`; `rack` and `blade` when one was named; where capacity lacks, `dimension`, `wanted`
    and `free` of the first that does.
    """

    code = "not-placed"
    summary = "the instance cannot be placed"


class BladeLoad(NamedTuple):
    """What a blade offers, what is taken of it, and by whom, as of one state."""

    key: BladeKey
    capacity: Capacity
    taken: Amounts
    instances: tuple[InstanceKey, ...]


class _Found(NamedTuple):
    """A blade with its rack; None for what is not there."""

    key: BladeKey
    rack: Rack | None
    blade: Blade | None

    @property
    def why_idle(self) -> str:
        """Why it takes no work; empty when it does: rack and blade are there, enabled and operational (6.1)."""
        if self.rack is None or self.blade is None:
            return "it is not there"
        rack, blade = self.rack.details or RackDetails(), self.blade.details or BladeDetails()
        for it, details in (("its rack", rack), ("it", blade)):
            if not details.enabled:
                return f"{it} is not enabled"
            if details.condition is not Condition.OPERATIONAL:
                return f"{it} is {details.condition}"
        return ""

    @property
    def offer(self) -> Needs:
        return offer_of(None if self.blade is None else self.blade.capacity)


# ---- a blade that is named -------------------------------------------------------------------------------------------


def placed(
    layout: ServedLayout,
    transaction: ServedLayout,
    key: InstanceKey,
    description: Instance,
    target: InstanceTarget,
    *,
    before: tuple[Instance | None, InstanceTarget | None] = (None, None),
) -> InstanceTarget:
    """Have a transaction take what an instance needs of the blade that its target names; return the target to be written.

    For whoever writes a description or a target, in the transaction that does. `before` is what both are until then, as the
    transaction has read it: who stays where he is, and needs no more, is never refused. The target's rack is spelled as the
    rack itself is. One that names no rack takes nothing. `layout` is what the transaction was begun on.

    Raises NotPlacedError when the blade is not there, takes no work, or has not enough left; InvalidInputError for needs that
    are no amounts.
    """
    needs = needs_of(description)
    if not target.rackid:
        return target
    found = _blade_of(transaction, target.rackid, target.bladeid)
    target = _on(target, found.key)
    description_before, target_before = before
    if _is_on(target_before, found.key) and not needs_more(description, description_before):
        return target
    if found.why_idle:
        raise _not_placed(key, found.key, f"blade {_shown(found.key)} takes no work: {found.why_idle}")
    take_turn(transaction, TargetBlade(*found.key))
    # Invariant: taken after the guard was read. Whoever takes capacity later changes the guard, so the commit fails.
    with layout.snapshot() as state:
        try:
            taken = sum_of(_needs_on(state, found.key, without=key).values())
        except _UncountableError as error:
            raise _not_placed(key, found.key, f"blade {_shown(found.key)} {error}") from error
    lacking = list(shortages(needs, found.offer, taken))
    if lacking:
        raise _not_placed(key, found.key, f"blade {_shown(found.key)} has not enough: {_joined(lacking)}", lacking)
    return target


def needs_more(description: Instance, before: Instance | None) -> bool:
    """Tell whether an instance needs more than before, or other things; also when nobody knows what it needed.

    Raises InvalidInputError for needs that are no amounts.
    """
    needs = needs_of(description)
    try:
        return before is None or needs.exceeds(needs_of(before))
    except InvalidInputError:
        return True


def take_turn(transaction: ServedLayout, key: TargetBlade) -> None:
    """Have a transaction write a guard: of several that do, one commits, and the others are made again.

    What is read afterwards, in a state of its own, is so when the commit is made, as far as its writers take their turns too.
    """
    try:
        guard = transaction.blade_guards.get(key) or BladeGuard()
    except CorruptionError:
        guard = BladeGuard()  # Why not refused: only that it changes counts, and that it was read.
    transaction.blade_guards.put(key, BladeGuard(placements=guard.placements + 1), damaged_ok=True)


def _is_on(target: InstanceTarget | None, blade: BladeKey) -> bool:
    return target is not None and BladeKey(target.rackid, target.bladeid) == blade


def _on(target: InstanceTarget, blade: BladeKey) -> InstanceTarget:
    return InstanceTarget(
        desired_state=target.desired_state,
        rackid=blade.rack,
        bladeid=blade.blade,
        generation=target.generation,
        unknown_fields=target.unknown_fields,
    )


def _blade_of(state: ServedLayout, rack: str, number: int) -> _Found:
    """Find a blade by the names in a target. Raises InvalidInputError for a number that no blade can have."""
    if not 0 <= number <= BLADE_NUMBER_MAX:
        raise InvalidInputError(
            source="target", problem=f"bladeid is {number}: give a number from 0 to {BLADE_NUMBER_MAX}"
        )
    key = BladeKey(_spelled(state, rack), number)
    if isinstance(state, CloudChamberGo):
        go = GoRackKey(*SERVED_ZONE, key.rack)
        return _Found(key, state.racks.get(go), state.blades.get(GoBladeKey(*go, number)))
    return _Found(key, state.racks.get(key.rack), state.blades.get(key))


def _spelled(state: ServedLayout, rack: str) -> str:
    """Return a rack's name as its key has it: as written where there is such a rack, else in lower case."""
    if isinstance(state, CloudChamberGo):
        return folded(rack)
    return rack if rack == rack.lower() or state.racks.exists(rack) else rack.lower()


class _UncountableError(Exception):
    """What is taken of a blade is not known: an instance on it has a description that cannot be read, or counted."""


def _needs_on(state: ServedLayout, blade: BladeKey, without: InstanceKey | None = None) -> dict[InstanceKey, Needs]:
    """Return what each instance needs that is wanted on a blade. Raises _UncountableError."""
    keys = [key for key in state.instances_by_blade.keys(*blade) if key != without]
    try:
        found = state.instances.get_many(keys)
    except CorruptionError:
        found = [_description(state, key) for key in keys]
    return {key: _counted(key, one) for key, one in zip(keys, found, strict=True)}


def _description(state: ServedLayout, key: InstanceKey) -> Instance | None:
    try:
        return state.instances.get(key)
    except CorruptionError as error:
        raise _uncountable(key, "its description cannot be read") from error


def _counted(key: InstanceKey, description: Instance | None) -> Needs:
    try:
        # Why nothing without a description: another program left a target alone, and nobody knows what it needs.
        return needs_of(description or Instance())
    except InvalidInputError as error:
        raise _uncountable(key, str(error.facts["problem"])) from error


def _uncountable(key: InstanceKey, why: str) -> _UncountableError:
    return _UncountableError(f"holds instance {_name(key)}, whose needs are not known: {why}")


# ---- a blade that is chosen ------------------------------------------------------------------------------------------


def on_chosen_blade(
    layout: ServedLayout,
    key: InstanceKey,
    description: Instance,
    target: InstanceTarget,
    write: Callable[[InstanceTarget], R],
) -> R:
    """Call `write` with the target on the blade that fits best, in its rack when it names one; again where others were faster.

    The best fit is the blade with the least left afterwards: the sum over all dimensions of what would be free, each as a share
    of what the blade offers. So small blades fill first, and cards are kept for who needs them. Of equals it is the first by
    rack and number. Blades that take no work are passed over, as are those of which nobody knows what is taken.

    `write` is to place the instance, and may raise NotPlacedError. Raises NotPlacedError when no blade fits, with what lacked
    on the closest; InvalidInputError when the target names a blade itself.
    """
    if target.bladeid:
        problem = f"a blade is to be chosen, and the target names blade {target.bladeid}: leave bladeid out"
        raise InvalidInputError(source="target", problem=problem)
    needs = needs_of(description)
    faster: NotPlacedError | None = None
    refused: set[BladeKey] = set()
    for _ in range(CHOICES_MAX):
        chosen = _chosen(layout, key, needs, target.rackid, refused)
        try:
            return write(_on(target, chosen))
        except NotPlacedError as error:
            faster = error
            refused.add(chosen)
    assert faster is not None
    raise faster


class _Candidate(NamedTuple):
    """A blade that takes work: what of the needs it lacks, and how much would be left of it."""

    lacking: tuple[Shortage, ...]
    left: Fraction
    key: BladeKey


def _chosen(
    layout: ServedLayout, key: InstanceKey, needs: Needs, rack: str, refused: Container[BladeKey] = ()
) -> BladeKey:
    """Return the blade that fits best. Why `refused` ones last: what is taken there may not show in readable targets."""
    looked_at = 0
    candidates: list[_Candidate] = []
    with layout.snapshot() as state:
        only = _spelled(state, rack) if rack else ""
        taken_of = _taken_by_blade(state, key)
        for found in _all_blades(state):
            if only and found.key.rack != only:
                continue
            looked_at += 1
            taken = taken_of.get(found.key, {})
            if taken is not None and not found.why_idle:
                candidates.append(_candidate(found, needs, taken))
    fitting = [one for one in candidates if not one.lacking]
    if fitting:
        return min(fitting, key=lambda one: (one.key in refused, one.left, one.key)).key
    raise _nowhere(key, only, looked_at, candidates)


def _candidate(found: _Found, needs: Needs, taken: Amounts) -> _Candidate:
    offer = found.offer
    left = Fraction(0)
    for dimension, total in offer.amounts.items():
        if total:
            left += Fraction(total - taken.get(dimension, 0) - needs.amounts.get(dimension, 0), total)
    return _Candidate(tuple(shortages(needs, offer, taken)), left, found.key)


def _taken_by_blade(state: ServedLayout, without: InstanceKey) -> dict[BladeKey, Amounts | None]:
    """Return what is taken of each blade that anything is wanted on; None where nobody knows. Two scans, whatever is there."""
    descriptions = {row.key: row for row in state.instances.rows()}
    needs: dict[BladeKey, list[Needs] | None] = {}
    for row in state.instance_target.rows():
        if isinstance(row, Damaged) or not row.record.rackid or row.key == without:
            continue
        blade = BladeKey(row.record.rackid, row.record.bladeid)
        described = descriptions.get(row.key)
        so_far = needs.setdefault(blade, [])
        try:
            if isinstance(described, Damaged):
                needs[blade] = None
            elif described is not None and so_far is not None:
                so_far.append(needs_of(described.record))
        except InvalidInputError:
            needs[blade] = None
    return {blade: None if all_needs is None else sum_of(all_needs) for blade, all_needs in needs.items()}


def _all_blades(state: ServedLayout) -> Iterator[_Found]:
    """Yield the blades that can be read, with their racks."""
    if isinstance(state, CloudChamberGo):
        go_racks = {row.key.rack: row.record for row in state.racks.rows(*SERVED_ZONE) if not isinstance(row, Damaged)}
        for go in state.blades.rows(*SERVED_ZONE):
            if not isinstance(go, Damaged):
                yield _Found(BladeKey(go.key.rack, go.key.blade), go_racks.get(go.key.rack), go.record)
        return
    racks = {row.key: row.record for row in state.racks.rows() if not isinstance(row, Damaged)}
    for row in state.blades.rows():
        if not isinstance(row, Damaged):
            yield _Found(row.key, racks.get(row.key.rack), row.record)


def _nowhere(key: InstanceKey, rack: str, looked_at: int, candidates: list[_Candidate]) -> NotPlacedError:
    where = f' of rack "{rack}"' if rack else ""
    if not looked_at:
        return _not_placed(key, None, f"there is no blade{where}")
    told = f"no blade{where} has enough; of {looked_at}, {len(candidates)} take work"
    closest = sorted(candidates, key=lambda one: (len(one.lacking), one.left, one.key))[:_CLOSEST_MAX]
    shown = "; ".join(f"blade {_shown(one.key)} ({_joined(one.lacking)})" for one in closest)
    problem = f"{told}. The closest: {shown}" if closest else told
    return _not_placed(key, None, problem, closest[0].lacking if closest else ())


# ---- what is taken ---------------------------------------------------------------------------------------------------


def blade_load(layout: ServedLayout, rack: str, number: int) -> BladeLoad | None:
    """Return what is taken of a blade, as of one state; None when there is no such blade.

    Raises CorruptionError for a blade that cannot be read, InUseError when an instance's needs there are not known.
    """
    with layout.snapshot() as state:
        found = _blade_of(state, rack, number)
        if found.blade is None:
            return None
        try:
            needs = _needs_on(state, found.key)
        except _UncountableError as error:
            raise _in_use(found.key, str(error)) from error
        return BladeLoad(found.key, found.blade.capacity or Capacity(), sum_of(needs.values()), tuple(needs))


def require_capacity(
    layout: ServedLayout,
    transaction: ServedLayout,
    blade: BladeKey,
    capacity: Capacity | None,
    *,
    before: Capacity | None = None,
) -> None:
    """Let a transaction change a blade's capacity, or with None delete the blade, only if what is wanted there still fits.

    For whoever writes definitions: call it in the transaction that replaces or deletes the blade's record, with the rack's name
    as it is stored. `layout` is what the transaction was begun on. An instance that is placed meanwhile lets the commit fail.
    `before` is what the blade offered until then, where that is known: who takes nothing away is never refused.

    Raises InUseError, which names the instances of a blade that was to go, or what does not fit: each dimension, how much
    is taken of it, and how much there would be.
    """
    offer = offer_of(capacity)
    if capacity is not None and before is not None and not offer_of(before).exceeds(offer):
        return
    guard = TargetBlade(*blade)
    is_guarded = transaction.blade_guards.exists(guard)
    with layout.snapshot() as state:
        if capacity is None:
            require_unwanted(blade.rack, state.instances_by_blade.keys(*blade), blade=blade.blade)
            if is_guarded:
                transaction.blade_guards.delete(guard, damaged_ok=True)
            return
        try:
            needs = _needs_on(state, blade)
        except _UncountableError as error:
            raise _in_use(blade, str(error)) from error
    lacking = [f"{one.dimension}: {one.wanted} taken, it would have {one.total}" for one in _beyond(needs, offer)]
    if lacking:
        raise _in_use(blade, "; ".join(lacking))


def _beyond(needs: dict[InstanceKey, Needs], offer: Needs) -> Iterator[Shortage]:
    """Yield the dimensions in which an offer is less than what all need."""
    archs = {one.arch for one in needs.values()} - {"", offer.arch}
    yield from (Shortage("arch", arch, "", offer.arch or "none") for arch in sorted(archs))
    yield from shortages(Needs("", sum_of(needs.values())), offer, {})


# ---- words -----------------------------------------------------------------------------------------------------------


def _not_placed(
    key: InstanceKey, blade: BladeKey | None, problem: str, lacking: Iterable[Shortage] = ()
) -> NotPlacedError:
    where = {} if blade is None else {"rack": blade.rack, "blade": blade.blade}
    first = next(iter(lacking), None)
    what = {} if first is None else {"dimension": first.dimension, "wanted": first.wanted, "free": first.free}
    return NotPlacedError(workload=key.workload, instance=key.instance, **where, **what, problem=problem)


def _in_use(blade: BladeKey, problem: str) -> InUseError:
    return InUseError(rack=blade.rack, blade=blade.blade, problem=problem)


def _joined(lacking: Iterable[Shortage]) -> str:
    return "; ".join(map(str, lacking))


def _shown(blade: BladeKey) -> str:
    return f'{blade.blade} in rack "{blade.rack}"'


def _name(key: InstanceKey) -> str:
    return f"{key.workload}/{key.instance}"
