"""A layout changed in production: planned, carried out beside writers of both layouts, resumed, verified, cleaned up."""

from typing import TYPE_CHECKING, Final

from keyplan.lazy_names import lazy_names

if TYPE_CHECKING:
    from keyplan.maintenance.migration.cleaning import CleanUpReport, clean_up_migration
    from keyplan.maintenance.migration.decision import Contest
    from keyplan.maintenance.migration.driver import MigrationReport, migrate
    from keyplan.maintenance.migration.functions import Conversion, Keyed, Resolution, Transform
    from keyplan.maintenance.migration.marks import Migrations, PastMigration, TableStage
    from keyplan.maintenance.migration.pausing import pause_migration, pause_of, resume_migration
    from keyplan.maintenance.migration.plan import MigrationPhase, MigrationPlan, MigrationStep
    from keyplan.maintenance.migration.planner import plan_migration
    from keyplan.maintenance.migration.rollback import RollbackReport, roll_back_migration
    from keyplan.maintenance.migration.root_history import history_of, note_layout
    from keyplan.maintenance.migration.trial import TableTrial, Trial, TriedRecord, try_migration
    from keyplan.maintenance.migration.verify import Verification

__all__ = [
    "CleanUpReport",
    "Contest",
    "Conversion",
    "Keyed",
    "MigrationPhase",
    "MigrationPlan",
    "MigrationReport",
    "MigrationStep",
    "Migrations",
    "PastMigration",
    "Resolution",
    "RollbackReport",
    "TableStage",
    "TableTrial",
    "Transform",
    "Trial",
    "TriedRecord",
    "Verification",
    "clean_up_migration",
    "history_of",
    "migrate",
    "note_layout",
    "pause_migration",
    "pause_of",
    "plan_migration",
    "resume_migration",
    "roll_back_migration",
    "try_migration",
]

_MODULES: Final = {
    "cleaning": ("CleanUpReport", "clean_up_migration"),
    "decision": ("Contest",),
    "driver": ("MigrationReport", "migrate"),
    "functions": ("Conversion", "Keyed", "Resolution", "Transform"),
    "marks": ("Migrations", "PastMigration", "TableStage"),
    "pausing": ("pause_migration", "pause_of", "resume_migration"),
    "plan": ("MigrationPhase", "MigrationPlan", "MigrationStep"),
    "planner": ("plan_migration",),
    "rollback": ("RollbackReport", "roll_back_migration"),
    "root_history": ("history_of", "note_layout"),
    "trial": ("TableTrial", "Trial", "TriedRecord", "try_migration"),
    "verify": ("Verification",),
}
"""Imported when a name is first used. Why: most commands need a few of them."""

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.
    __getattr__ = lazy_names(__name__, _MODULES)
