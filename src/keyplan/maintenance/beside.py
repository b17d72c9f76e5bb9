"""What must not be under way beside a copy or a restore into a prefix: a migration of its keys, another transfer across it."""

from keyplan.engine import Engine
from keyplan.errors import ConflictError, InvalidInputError, MigrationUnderWayError, TargetTakenError
from keyplan.layout import shown_key
from keyplan.maintenance.claims import standing_claims
from keyplan.maintenance.migration.marks import Migrations, states_in
from keyplan.maintenance.registered import refuse_registered
from keyplan.maintenance.transfers import Target

__all__ = ["refuse_beside", "require_alone"]


def refuse_beside(engine: Engine, prefix: bytes) -> None:
    """Refuse to bring anything into a prefix of whose keys a migration is under way, or across another transfer.

    Why a migration: its marks stand outside of the prefix, and say of records what would no longer be true. A prefix that holds
    the system area replaces them as well. Raises MigrationUnderWayError, TargetTakenError.
    """
    with engine.snapshot() as snapshot:
        claims = [(other, claim) for other, claim in standing_claims(snapshot, [prefix]) if other != prefix]
        holds_marks = Migrations.bound().root.startswith(prefix)
        states = [] if holds_marks else [state for _, state in states_in(snapshot) if not state.is_cleaned]
    for state in states:
        for root in (state.old_root, state.new_root):
            if root.startswith(prefix) or prefix.startswith(root):
                raise MigrationUnderWayError(root=root, old=state.old, new=state.new)
    for other, claim in claims:
        problem = f"a {claim.kind} into {shown_key(other) or 'the whole store'}, across this prefix, is not finished"
        raise TargetTakenError(prefix=prefix, problem=problem)


def require_alone(target: Target, *, is_resumed: bool) -> None:
    """Look once more, now that the claim stands; take it away again where the work has not begun.

    Why: whoever begins looks before and after it has written that it begins; of two, at least one sees the other.
    """
    try:
        refuse_beside(target.engine, target.prefix)
        refuse_registered(target.engine, target.prefix, is_resumed=is_resumed)
    except (ConflictError, InvalidInputError):
        if not is_resumed:
            target.finish()
        raise
