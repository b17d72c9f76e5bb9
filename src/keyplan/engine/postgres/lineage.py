"""Which store answers on a connection, and whether it went back: looked at once for each connection, before it is used.

The state row names the server (its system identifier and timeline) that the last commits were made on. A server that took over,
or that the store was restored to, has another name: the first connection that may write claims the store, and lets its
revisions leap beyond all that were given out. So no revision is ever given out twice, and commits need not look.
"""

from threading import Lock
from typing import Any, Final

from keyplan.engine.lineage import LEAP, Lineage
from keyplan.engine.postgres.commit_sql import LAST_REVISION
from keyplan.engine.postgres.failures import ServerRefusalError
from keyplan.engine.postgres.session import Session
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.wire import number

__all__ = ["Identity"]

_SERVER: Final = (
    "CASE WHEN pg_is_in_recovery() THEN NULL ELSE (SELECT system_identifier::text FROM pg_control_system()) || ':' || "
    "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
)
"""Why the name of the log's file: the control file has the timeline of the last checkpoint, before a promotion perhaps."""
_KNOWN: Final = f"s.server, s.store, s.leapt, {LAST_REVISION} FROM @state s"
_LEAPT: Final = f"({LAST_REVISION} / {LEAP} + 2) * {LEAP}"
_NOT_ITS_OWN: Final = frozenset({"42883", "42501"})
"""Undefined function, insufficient privilege: a server that speaks the protocol, and does not say which one it is."""


class Identity:
    """What an engine knows of its store's lineage. Safe for use by several threads."""

    def __init__(self, statements: Statements, *, is_readonly: bool) -> None:
        self._is_readonly = is_readonly
        self._lock = Lock()
        self._lineage = Lineage("", "")
        self._revision = 0  # the highest that this engine has made
        self._names_servers = True
        self._who = statements.of("who", f"SELECT {_SERVER}, {_KNOWN}")
        self._who_unnamed = statements.of("who_unnamed", f"SELECT ''::text, {_KNOWN}")
        self._claim = statements.of(
            "claim",
            f"UPDATE @state SET server = $1::text, leapt = CASE server WHEN '' THEN leapt ELSE {_LEAPT} END, "
            f"compacted = CASE server WHEN '' THEN compacted ELSE {_LEAPT} END WHERE server <> $1::text",
        )
        self._leap = statements.of(
            "leap", f"UPDATE @state SET leapt = {_LEAPT}, compacted = {_LEAPT} WHERE {LAST_REVISION} < $1::int8"
        )

    @property
    def lineage(self) -> Lineage:
        """What the latest connection found."""
        return self._lineage

    def note(self, revision: int) -> None:
        """Keep that a revision was made: whoever answers with less has gone back."""
        with self._lock:
            self._revision = max(self._revision, revision)

    def check(self, session: Session, *, give_up_at: float) -> None:
        """Look at the store that a connection leads to; claim it when it went back. Raises PostgresError."""
        # Why before the question: what is made meanwhile is not in its answer.
        known = self._revision
        server, known_server, store, leapt, revision = self._ask(session, give_up_at)
        may_claim = server is not None and not self._is_readonly
        # Why not without a name: who may not ask for it, beside others who may, would claim the store in turn with them.
        is_taken_over = server is not None and server not in ("", known_server)
        if may_claim and server is not None and is_taken_over:
            session.run((self._claim, (server.encode(),)), give_up_at=give_up_at)
        elif may_claim and revision < known:
            session.run((self._leap, (number(known),)), give_up_at=give_up_at)
        if may_claim and (is_taken_over or revision < known):
            server, known_server, store, leapt, revision = self._ask(session, give_up_at)
        session.leapt = leapt
        session.is_checked = server is not None or self._is_readonly
        self._lineage = Lineage(store, f"{server or known_server}:{leapt}")

    def _ask(self, session: Session, give_up_at: float) -> tuple[Any, ...]:
        if self._names_servers:
            try:
                return session.run((self._who, ()), give_up_at=give_up_at)[0].row()
            except ServerRefusalError as refusal:
                if refusal.state not in _NOT_ITS_OWN:
                    raise
                self._names_servers = False
        return session.run((self._who_unnamed, ()), give_up_at=give_up_at)[0].row()
