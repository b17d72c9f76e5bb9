"""Migrations as files: declared, drafted from two layouts, read in their order, and which of them are due in a store."""

from typing import TYPE_CHECKING, Final

from keyplan.lazy_names import lazy_names

if TYPE_CHECKING:
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

_MODULES: Final = {
    "declared": ("KeptLayout", "Migration", "unwritten"),
    "draft": ("draft_migration",),
    "folder": ("LAYOUTS", "MigrationFile", "MigrationFolder", "read_migrations"),
    "leg": (
        "NEXT_COMMANDS",
        "Leg",
        "MigrationPlace",
        "StepState",
        "UnderWay",
        "ended_at",
        "phase_under_way",
        "place_in",
        "plan_leg",
        "remember_passed",
        "steps_of",
        "under_way_at",
    ),
}
"""Imported when a name is first used. Why: most commands need a few of them."""

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.
    __getattr__ = lazy_names(__name__, _MODULES)
