"""What is to be done so that no region spans key spaces: splits, and the rules that keep regions apart from then on. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.keyspace import State
from keyplan.regions.captured import Label, Region, Rule, rule_data
from keyplan.regions.proof import Proof, boundary_text, verify
from keyplan.regions.spaces import OwnedRange, Space, StoreMode, owned_ranges

__all__ = ["RegionPlan", "SpaceRegions", "guard_rules", "plan_regions"]

LABEL_KEY: Final = "keyplan"

_OURS: Final = "keyplan/"


@dataclass(frozen=True, slots=True)
class SpaceRegions:
    """The regions that lie in a key space, and what PD estimates of them; `is_covered`: they are exactly its range."""

    name: str
    range: KeyRange
    region_ids: tuple[int, ...]
    is_covered: bool
    size_mebibytes: int
    keys: int


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """What to do, and the proof of how things stand. Rules come first, then splits: PD must not merge what was just split."""

    proof: Proof
    split_keys: tuple[bytes, ...]
    rules_to_set: tuple[Rule, ...]
    rules_to_delete: tuple[str, ...]
    rules_unknown: tuple[str, ...]
    """Rules of ours for key spaces that the list does not have: they stay, because the list may be an older one."""
    spaces: tuple[SpaceRegions, ...]

    @property
    def is_needed(self) -> bool:
        """True when there is something to do."""
        return bool(self.split_keys or self.rules_to_set or self.rules_to_delete)

    def data(self) -> dict[str, Any]:
        """The plan as JSON data."""
        return {
            **self.proof.data(),
            "split_keys": [boundary_text(key) for key in self.split_keys],
            "rules": {"set": [rule_data(rule) for rule in self.rules_to_set], "delete": list(self.rules_to_delete)},
            "rules_unknown": list(self.rules_unknown),
            "keyspaces": [
                {
                    "name": space.name,
                    "range": [boundary_text(space.range.start), boundary_text(space.range.end or b"")],
                    "covered": space.is_covered,
                    "regions": list(space.region_ids),
                    "approximate_size": space.size_mebibytes,
                    "approximate_keys": space.keys,
                }
                for space in self.spaces
            ],
        }


def plan_regions(
    spaces: Iterable[Space],
    regions: Iterable[Region],
    rules: Iterable[Rule] | None = None,
    *,
    cluster: str,
    modes: Sequence[StoreMode] = (StoreMode.TRANSACTIONAL,),
    guards_empty: bool = True,
) -> RegionPlan:
    """Return the splits and rules that are missing, and the rules of ours that are for nothing any more.

    A rule is deleted when its key space is in the list as deleted, or is left to merge; one whose key space is not in the
    list stays, since the list may be older than the rule. Where PD has a label rule of its own for the same ranges, ours is
    left out.

    rules: PD's label rules and placement rules; None: not known, so that every guard is to be set.
    cluster: which registry the rules are of; it stands in their ids. Rules of other ids are never touched.
    guards_empty: False for neither splits nor guards around key spaces that are known to be empty.

    No split key is the start of a region already: PD counts such a key as not done. Raises InvalidInputError.
    """
    listed = list(spaces)
    owned = owned_ranges(listed, modes, has_empty=guards_empty)
    known_regions = sorted(regions, key=lambda region: region.range.start)
    known_rules = None if rules is None else list(rules)
    proof = verify(owned, known_regions, known_rules)
    pds_own = {frozenset(rule.ranges) for rule in known_rules or [] if rule.labels and not rule.id.startswith(_OURS)}
    guards = guard_rules(owned, cluster)
    wanted = [rule for rule in guards if frozenset(rule.ranges) not in pds_own]
    stored = {rule.id: rule for rule in known_rules or []}
    own = {rule_id for rule_id in stored if rule_id.startswith(_owner(cluster))} - {rule.id for rule in wanted}
    known = {_owner(cluster) + space.name for space in listed if _is_for(stored, _owner(cluster), space, modes)}
    starts = [region.range.start for region in known_regions]
    return RegionPlan(
        proof,
        _split_keys(proof.boundaries, known_regions, starts),
        tuple(rule for rule in wanted if not _is_same(rule, stored.get(rule.id))),
        tuple(sorted(own & known)),
        tuple(sorted(own - known)),
        tuple(_statistics(one, known_regions, starts) for one in owned),
    )


def _is_for(stored: dict[str, Rule], owner: str, space: Space, modes: Sequence[StoreMode]) -> bool:
    """Tell whether the rule of a key space's name is about this key space, and not about a later one of the name."""
    rule = stored.get(owner + space.name)
    if rule is None or space.state is not State.DELETED:
        return rule is not None
    gone = owned_ranges([replace(space, state=State.ENABLED)], modes)
    return {one.range for one in gone} == set(rule.ranges)


def guard_rules(owned: Iterable[OwnedRange], cluster: str) -> list[Rule]:
    """Return one label rule for each key space. PD splits at the ends of its ranges, and merges no regions across them.

    Not `merge_option=deny`: that would forbid merges inside the key space as well. Raises InvalidInputError for a cluster that
    cannot stand in an id.
    """
    if not cluster or "/" in cluster:
        raise InvalidInputError(source="cluster", problem="a name without slashes is needed")
    ranges: dict[str, list[KeyRange]] = {}
    for one in owned:
        ranges.setdefault(one.name, []).append(one.range)
    return [Rule(_owner(cluster) + name, tuple(own), (Label(LABEL_KEY, name),)) for name, own in sorted(ranges.items())]


def _owner(cluster: str) -> str:
    return f"{_OURS}{cluster}/"


def _is_same(wanted: Rule, stored: Rule | None) -> bool:
    return (
        stored is not None
        and set(stored.ranges) == set(wanted.ranges)
        and set(stored.labels) == set(wanted.labels)
        and stored.index == wanted.index
    )


def _split_keys(boundaries: Iterable[bytes], ordered: Sequence[Region], starts: Sequence[bytes]) -> tuple[bytes, ...]:
    """The boundaries that lie strictly inside a region; one in a hole can be split by nobody."""
    found: list[bytes] = []
    for boundary in boundaries:
        place = bisect_right(starts, boundary) - 1
        if place >= 0 and starts[place] != boundary and boundary in ordered[place].range:
            found.append(boundary)
    return tuple(found)


def _statistics(one: OwnedRange, ordered: Sequence[Region], starts: Sequence[bytes]) -> SpaceRegions:
    inside: list[Region] = []
    reached: bytes | None = one.range.start
    is_tiled = True
    for region in ordered[bisect_left(starts, one.range.start) :]:
        if one.range.end is not None and region.range.start >= one.range.end:
            break
        if one.range.end is not None and (region.range.end is None or region.range.end > one.range.end):
            break
        is_tiled = is_tiled and region.range.start == reached
        reached = region.range.end
        inside.append(region)
    return SpaceRegions(
        one.name,
        one.range,
        tuple(region.id for region in inside),
        is_tiled and bool(inside) and reached == one.range.end,
        sum(region.size_mebibytes for region in inside),
        sum(region.keys for region in inside),
    )
