"""Whether there is a store in a database, and making one."""

from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres.failures import ServerRefusalError
from keyplan.engine.postgres.options import PostgresOptions
from keyplan.engine.postgres.session import Session, Statement
from keyplan.engine.postgres.statements import BEGIN, COMMIT, FORMAT, ROLLBACK, Statements, making
from keyplan.errors import EngineOpenError, StoreMissingError

__all__ = ["prepare"]

_MADE_BY_OTHERS: Final = frozenset({"23505", "42P06", "42P07", "42710"})
"""Unique violation in a catalog, schema, table or object exists: somebody else makes the same store."""
_ATTEMPTS_MAX: Final = 5


def prepare(session: Session, options: PostgresOptions, statements: Statements) -> None:
    """See that the store is there and of our format; make it where that is allowed.

    Raises StoreMissingError, EngineOpenError, PostgresError.
    """
    for _ in range(_ATTEMPTS_MAX):
        give_up_at = SYSTEM_CLOCK.monotonic() + options.timeout_seconds
        has_schema, has_store = session.run((statements.find, ()), give_up_at=give_up_at)[0].row()
        if has_store:
            _check_format(session, options, statements)
            return
        if options.is_readonly or not options.create:
            problem = f"there is no keyplan store in the schema {options.schema!r}"
            raise StoreMissingError(url=options.shown_url, problem=problem)
        texts = making(options.schema, has_schema=has_schema)
        steps = [(Statement(b"make %d" % number, text), ()) for number, text in enumerate(texts)]
        try:
            session.run((BEGIN, ()), *steps, (COMMIT, ()), give_up_at=give_up_at)
        except ServerRefusalError as refusal:
            session.run((ROLLBACK, ()), give_up_at=give_up_at)
            if refusal.state not in _MADE_BY_OTHERS:
                raise
    problem = f"the schema {options.schema!r} holds something else by the names of a keyplan store"
    raise EngineOpenError(url=options.shown_url, problem=problem)


def _check_format(session: Session, options: PostgresOptions, statements: Statements) -> None:
    give_up_at = SYSTEM_CLOCK.monotonic() + options.timeout_seconds
    try:
        rows = session.run((statements.format, ()), give_up_at=give_up_at)[0].rows(tuple)
    except ServerRefusalError as refusal:
        if refusal.state != "42703":  # a column that is not there
            raise
        rows = []
    found, has_lineage = rows[0] if rows else ("of somebody else", False)
    if found != FORMAT:
        problem = f"the tables in the schema {options.schema!r} are {found}; this keyplan reads {FORMAT!r}"
        raise EngineOpenError(url=options.shown_url, problem=problem)
    if has_lineage:
        return
    if options.is_readonly:
        problem = f"the tables in the schema {options.schema!r} have no lineage yet; open the store once for writing"
        raise EngineOpenError(url=options.shown_url, problem=problem)
    session.run((statements.add_lineage, ()), give_up_at=give_up_at)
