"""Care for a store that is in use: infer a layout, audit, explain a key, check and repair, build indexes, back up, copy."""

from keyplan.maintenance.audit import AuditReport, ItemTally, audit
from keyplan.maintenance.backup import (
    BackupReport,
    SectionReport,
    back_up_key_spaces,
    back_up_store,
    open_backup,
    read_backup,
    verify_backup,
)
from keyplan.maintenance.backup_blocks import Block, BlockKind, BlockReader, BlockWriter
from keyplan.maintenance.backup_file import (
    KIND_FULL,
    KIND_SINGLE,
    KIND_STORE,
    BackupHeader,
    BackupReader,
    BackupSection,
    BackupTrailer,
    BackupWriter,
)
from keyplan.maintenance.check import Check, check
from keyplan.maintenance.claims import Claim, Transfers, refuse_unfinished, unfinished_work
from keyplan.maintenance.copying import CopyReport, copy_store
from keyplan.maintenance.departures import Departure
from keyplan.maintenance.examine import SYSTEM_AREA
from keyplan.maintenance.explain import DueEntry, EntryState, KeyExplanation, PointedAt, explain_key, lease_life
from keyplan.maintenance.extract import EXTRACT_BYTES_MAX, Selection, extract
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.maintenance.hand_repair import (
    Quarantine,
    Quarantined,
    RawChange,
    carry_out_change,
    list_quarantined,
    plan_delete,
    plan_put,
    plan_quarantine,
    plan_release,
)
from keyplan.maintenance.index_build import BuildReport, build_index
from keyplan.maintenance.index_states import IndexStatus, drop_index, list_indexes, prepare_index
from keyplan.maintenance.inference import Confidence, Inference, Note, Suggestion, infer, infer_keys
from keyplan.maintenance.migration import (
    CleanUpReport,
    Contest,
    Conversion,
    MigrationPhase,
    MigrationPlan,
    MigrationReport,
    Migrations,
    MigrationStep,
    Verification,
    clean_up_migration,
    migrate,
    plan_migration,
)
from keyplan.maintenance.open_jobs import JobKind, OpenJob, open_jobs
from keyplan.maintenance.pair_digest import PairDigest, Tally
from keyplan.maintenance.repair import Outcome, Repair, RepairResult, carry_out, plan_repairs
from keyplan.maintenance.restore import RestoreReport, restore_store
from keyplan.maintenance.restore_key_spaces import KeySpacesRestored, SpaceRestored, restore_key_spaces
from keyplan.maintenance.restore_plan import OnConflict, RestoreAction, RestorePolicy, RestoreStep
from keyplan.maintenance.restored_indexes import IndexesAfterwards
from keyplan.maintenance.secret_rotation import (
    RotationReport,
    SecretCounts,
    SecretRotations,
    UnsealedRecord,
    rotate_secrets,
    secret_counts,
)
from keyplan.maintenance.transfers import Written

__all__ = [
    "EXTRACT_BYTES_MAX",
    "KIND_FULL",
    "KIND_SINGLE",
    "KIND_STORE",
    "SYSTEM_AREA",
    "AuditReport",
    "BackupHeader",
    "BackupReader",
    "BackupReport",
    "BackupSection",
    "BackupTrailer",
    "BackupWriter",
    "Block",
    "BlockKind",
    "BlockReader",
    "BlockWriter",
    "BuildReport",
    "Check",
    "Claim",
    "CleanUpReport",
    "Confidence",
    "Contest",
    "Conversion",
    "CopyReport",
    "Departure",
    "DueEntry",
    "EntryState",
    "Finding",
    "FindingKind",
    "IndexStatus",
    "IndexesAfterwards",
    "Inference",
    "ItemTally",
    "JobKind",
    "KeyExplanation",
    "KeySpacesRestored",
    "MigrationPhase",
    "MigrationPlan",
    "MigrationReport",
    "MigrationStep",
    "Migrations",
    "Note",
    "OnConflict",
    "OpenJob",
    "Outcome",
    "PairDigest",
    "PointedAt",
    "Quarantine",
    "Quarantined",
    "RawChange",
    "Repair",
    "RepairResult",
    "RestoreAction",
    "RestorePolicy",
    "RestoreReport",
    "RestoreStep",
    "RotationReport",
    "SecretCounts",
    "SecretRotations",
    "SectionReport",
    "Selection",
    "SpaceRestored",
    "Suggestion",
    "Tally",
    "Transfers",
    "UnsealedRecord",
    "Verification",
    "Written",
    "audit",
    "back_up_key_spaces",
    "back_up_store",
    "build_index",
    "carry_out",
    "carry_out_change",
    "check",
    "clean_up_migration",
    "copy_store",
    "drop_index",
    "explain_key",
    "extract",
    "infer",
    "infer_keys",
    "lease_life",
    "list_indexes",
    "list_quarantined",
    "migrate",
    "open_backup",
    "open_jobs",
    "plan_delete",
    "plan_migration",
    "plan_put",
    "plan_quarantine",
    "plan_release",
    "plan_repairs",
    "prepare_index",
    "read_backup",
    "refuse_unfinished",
    "restore_key_spaces",
    "restore_store",
    "rotate_secrets",
    "secret_counts",
    "unfinished_work",
    "verify_backup",
]
