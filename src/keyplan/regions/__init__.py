"""Regions of a TiKV cluster and key spaces: what PD must split and keep apart, the proof of it, and PD's own key spaces."""

from keyplan.regions.apply import Applied, apply_plan, plan_with
from keyplan.regions.captured import Label, Region, Rule, parse_regions, parse_rules, parse_spaces, rule_data
from keyplan.regions.memcomparable import memcomparable, of_memcomparable
from keyplan.regions.metadata import ImportedSpaces, PlacementDriverKeys, clusters_of, import_spaces
from keyplan.regions.metadata_form import SpaceMetadata, SpaceMetadataForm, SpaceMetadataState
from keyplan.regions.placement_driver import PlacementDriver, tls_context
from keyplan.regions.plan import RegionPlan, SpaceRegions, guard_rules, plan_regions
from keyplan.regions.proof import Overlap, Proof, Violation, ViolationKind, verify
from keyplan.regions.spaces import (
    NUMBER_MAX,
    NumberedSpace,
    OwnedRange,
    RegisteredSpace,
    Space,
    StoreMode,
    boundaries_of,
    owned_ranges,
)

__all__ = [
    "NUMBER_MAX",
    "Applied",
    "ImportedSpaces",
    "Label",
    "NumberedSpace",
    "Overlap",
    "OwnedRange",
    "PlacementDriver",
    "PlacementDriverKeys",
    "Proof",
    "Region",
    "RegionPlan",
    "RegisteredSpace",
    "Rule",
    "Space",
    "SpaceMetadata",
    "SpaceMetadataForm",
    "SpaceMetadataState",
    "SpaceRegions",
    "StoreMode",
    "Violation",
    "ViolationKind",
    "apply_plan",
    "boundaries_of",
    "clusters_of",
    "guard_rules",
    "import_spaces",
    "memcomparable",
    "of_memcomparable",
    "owned_ranges",
    "parse_regions",
    "parse_rules",
    "parse_spaces",
    "plan_regions",
    "plan_with",
    "rule_data",
    "tls_context",
    "verify",
]
