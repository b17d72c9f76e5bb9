"""Care for a store that is in use: explain a key, check records against indexes and repair, build and drop indexes."""

from keyplan.maintenance.check import Check, check
from keyplan.maintenance.explain import DueEntry, EntryState, KeyExplanation, PointedAt, explain_key
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.maintenance.index_build import BuildProgress, BuildReport, build_index
from keyplan.maintenance.index_states import IndexStatus, drop_index, list_indexes, prepare_index
from keyplan.maintenance.repair import Outcome, Repair, RepairResult, carry_out, plan_repairs

__all__ = [
    "BuildProgress",
    "BuildReport",
    "Check",
    "DueEntry",
    "EntryState",
    "Finding",
    "FindingKind",
    "IndexStatus",
    "KeyExplanation",
    "Outcome",
    "PointedAt",
    "Repair",
    "RepairResult",
    "build_index",
    "carry_out",
    "check",
    "drop_index",
    "explain_key",
    "list_indexes",
    "plan_repairs",
    "prepare_index",
]
