"""The proof that no region spans key spaces: ranges, regions and rules go in, every violation comes out. Pure.

Boundaries are opaque bytes: what cannot be decoded is compared like everything else.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from keyplan.engine import KeyRange
from keyplan.regions.captured import Region, Rule
from keyplan.regions.spaces import OwnedRange, boundaries_of, checked_ranges

__all__ = ["Overlap", "Proof", "Violation", "ViolationKind", "boundary_text", "range_text", "verify"]


class ViolationKind(StrEnum):
    """What is wrong with a region, or with a boundary."""

    SPANS_KEYSPACES = auto()
    """A region holds keys of two key spaces or more."""
    CROSSES_BOUNDARY = auto()
    """A region holds keys of one key space, and keys of none."""
    GUARD_MISSING = auto()
    """No rule has an end at a boundary: PD may merge regions across it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong. `split_keys` are the boundaries inside the region; of a missing guard, the boundary."""

    kind: ViolationKind
    region_id: int | None
    names: tuple[str, ...]
    split_keys: tuple[bytes, ...]

    def data(self) -> dict[str, Any]:
        """The violation as JSON data."""
        return {
            "kind": self.kind.value,
            "region_id": self.region_id,
            "keyspaces": list(self.names),
            "split_keys": [boundary_text(key) for key in self.split_keys],
        }


@dataclass(frozen=True, slots=True)
class Overlap:
    """Keys that two regions hold, as no sound list has them."""

    region_ids: tuple[int, int]
    range: KeyRange


@dataclass(frozen=True, slots=True)
class Proof:
    """What was looked at, and what is wrong with it; proven when nothing is.

    `inputs_sha256` is the digest of the ranges, regions and rules in key order. `guards` are the boundaries that a rule ends
    at; None: no rules were given, and nothing is said about merges.
    """

    inputs_sha256: str
    boundaries: tuple[bytes, ...]
    violations: tuple[Violation, ...]
    holes: tuple[KeyRange, ...]
    overlaps: tuple[Overlap, ...]
    guards: tuple[bytes, ...] | None

    @property
    def is_proven(self) -> bool:
        """True when no region spans key spaces, the regions are all the keys there are, each once, and no guard is missing."""
        return not (self.violations or self.holes or self.overlaps)

    def data(self) -> dict[str, Any]:
        """The proof as JSON data."""
        return {
            "ok": self.is_proven,
            "inputs_sha256": self.inputs_sha256,
            "violations": [violation.data() for violation in self.violations],
            "holes": [range_text(hole) for hole in self.holes],
            "overlaps": [
                {"region_ids": list(overlap.region_ids), "range": range_text(overlap.range)}
                for overlap in self.overlaps
            ],
            "boundaries": [boundary_text(boundary) for boundary in self.boundaries],
            "guards": None if self.guards is None else [boundary_text(boundary) for boundary in self.guards],
        }


def verify(ranges: Iterable[OwnedRange], regions: Iterable[Region], rules: Iterable[Rule] | None = None) -> Proof:
    """Judge the regions: every hole, overlap, region that spans key spaces or crosses a boundary, boundary without a guard.

    rules: label and placement rules; None: not known, and not judged.

    Raises InvalidInputError when the ranges themselves overlap.
    """
    owned = checked_ranges(ranges)
    ordered = sorted(regions, key=lambda region: (region.range.start, region.id))
    known_rules = None if rules is None else sorted(rules, key=lambda rule: rule.id)
    boundaries = boundaries_of(owned)
    holes, overlaps = _gaps(ordered)
    violations = list(_region_violations(owned, boundaries, ordered))
    guards = None
    if known_rules is not None:
        ends = {end for rule in known_rules for pair in rule.ranges for end in (pair.start, pair.end) if end}
        guards = tuple(boundary for boundary in boundaries if boundary in ends)
        names = _names_by_boundary(owned)
        violations += [
            Violation(ViolationKind.GUARD_MISSING, None, tuple(names[boundary]), (boundary,))
            for boundary in boundaries
            if boundary not in ends
        ]
    digest = _digest(owned, ordered, known_rules)
    return Proof(digest, tuple(boundaries), tuple(violations), tuple(holes), tuple(overlaps), guards)


def boundary_text(key: bytes) -> str:
    """A boundary as PD prints it."""
    return key.hex().upper()


def range_text(key_range: KeyRange) -> list[str]:
    """A range as PD prints it: an empty text is no bound."""
    return [boundary_text(key_range.start), boundary_text(key_range.end or b"")]


def _gaps(ordered: Sequence[Region]) -> tuple[list[KeyRange], list[Overlap]]:
    holes: list[KeyRange] = []
    overlaps: list[Overlap] = []
    # Invariant: all keys before `reached` were seen; `furthest` is the region that reaches it. None: no end.
    reached: bytes | None = b""
    furthest: Region | None = None
    for region in ordered:
        start, end = region.range.start, region.range.end
        if reached is not None and start > reached:
            holes.append(KeyRange(reached, start))
        elif furthest is not None and (reached is None or start < reached):
            shared = min((bound for bound in (reached, end) if bound is not None), default=None)
            overlaps.append(Overlap((furthest.id, region.id), KeyRange(start, shared)))
        if reached is not None and (end is None or end > reached):
            reached, furthest = end, region
    if reached is not None:
        holes.append(KeyRange(reached, None))
    return holes, overlaps


def _region_violations(
    owned: Sequence[OwnedRange], boundaries: Sequence[bytes], ordered: Sequence[Region]
) -> Iterable[Violation]:
    starts = [one.range.start for one in owned]
    for region in ordered:
        owners = _owners(owned, starts, region.range)
        if not owners or (len(owners) == 1 and _is_within(region.range, owners[0].range)):
            continue
        names = tuple(dict.fromkeys(owner.name for owner in owners))
        kind = ViolationKind.SPANS_KEYSPACES if len(names) > 1 else ViolationKind.CROSSES_BOUNDARY
        yield Violation(kind, region.id, names, _strictly_inside(boundaries, region.range))


def _owners(owned: Sequence[OwnedRange], starts: Sequence[bytes], key_range: KeyRange) -> list[OwnedRange]:
    """The ranges that share a key with `key_range`, in order."""
    place = max(bisect_right(starts, key_range.start) - 1, 0)
    found: list[OwnedRange] = []
    for one in owned[place:]:
        if key_range.end is not None and one.range.start >= key_range.end:
            break
        if one.range.end is None or one.range.end > key_range.start:
            found.append(one)
    return found


def _is_within(inner: KeyRange, outer: KeyRange) -> bool:
    return inner.start >= outer.start and (outer.end is None or (inner.end is not None and inner.end <= outer.end))


def _strictly_inside(boundaries: Sequence[bytes], key_range: KeyRange) -> tuple[bytes, ...]:
    first = bisect_right(boundaries, key_range.start)
    inside: list[bytes] = []
    for boundary in boundaries[first:]:
        if key_range.end is not None and boundary >= key_range.end:
            break
        inside.append(boundary)
    return tuple(inside)


def _names_by_boundary(owned: Sequence[OwnedRange]) -> dict[bytes, dict[str, None]]:
    """Return for each boundary the key spaces that begin or end there, in order."""
    found: dict[bytes, dict[str, None]] = {}
    for one in owned:
        for boundary in (one.range.start, one.range.end or b""):
            found.setdefault(boundary, {})[one.name] = None
    return found


def _digest(owned: Sequence[OwnedRange], ordered: Sequence[Region], rules: Sequence[Rule] | None) -> str:
    inputs = {
        "ranges": [[one.name, *range_text(one.range)] for one in owned],
        "regions": [[region.id, *range_text(region.range)] for region in ordered],
        "rules": None if rules is None else [[rule.id, *map(range_text, rule.ranges)] for rule in rules],
    }
    return hashlib.sha256(json.dumps(inputs, separators=(",", ":")).encode()).hexdigest()
