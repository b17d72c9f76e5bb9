"""Migrations as files: declared, drafted from two layouts, read in their order, and which of them are due in a store."""

from keyplan.maintenance.migration_files.declared import KeptLayout, Migration, unwritten
from keyplan.maintenance.migration_files.draft import draft_migration
from keyplan.maintenance.migration_files.folder import LAYOUTS, MigrationFile, MigrationFolder, read_migrations
from keyplan.maintenance.migration_files.leg import (
    NEXT_COMMANDS,
    Leg,
    MigrationPlace,
    StepState,
    UnderWay,
    ended_at,
    phase_under_way,
    place_in,
    plan_leg,
    remember_passed,
    steps_of,
    under_way_at,
)

__all__ = [
    "LAYOUTS",
    "NEXT_COMMANDS",
    "KeptLayout",
    "Leg",
    "Migration",
    "MigrationFile",
    "MigrationFolder",
    "MigrationPlace",
    "StepState",
    "UnderWay",
    "draft_migration",
    "ended_at",
    "phase_under_way",
    "place_in",
    "plan_leg",
    "read_migrations",
    "remember_passed",
    "steps_of",
    "under_way_at",
    "unwritten",
]
