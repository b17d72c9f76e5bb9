"""Connections in reserve, and calls that are tried again on another one while nothing was written.

There are two pools: of connections that snapshots keep while they are open, and of those that one call uses. So nobody waits
for a connection while he holds one that others wait for.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition
from typing import Final, TypeVar

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres.failures import NAME, ConnectionLostError, PostgresError, ServerRefusalError, translated
from keyplan.engine.postgres.lineage import Identity
from keyplan.engine.postgres.options import PostgresOptions
from keyplan.engine.postgres.session import Request, Result, Session, connect
from keyplan.engine.postgres.statements import ROLLBACK, settings
from keyplan.errors import EngineOpenError, EngineUnavailableError

__all__ = ["Pool", "open_session"]

Answer = TypeVar("Answer")

_LEFT_SECONDS_MAX: Final = 0.05
"""Who waits for a connection looks this often for one that was left: nobody wakes him for it."""
_PAUSE_SECONDS_FIRST: Final = 0.02
_PAUSE_SECONDS_MAX: Final = 0.5
_VERSION_MIN: Final = 120_000
"""Why: `plan_cache_mode`, and the planner's way with WITH, are those of PostgreSQL 12."""


def open_session(
    options: PostgresOptions, *, seconds: float, ends_idle_transactions: bool = False
) -> tuple[Session, bool]:
    """Open a connection and set it up; tell whether its server flushes what is committed.

    Raises PostgresError, EngineOpenError when the server is too old.
    """
    session = connect(options.connection, seconds=seconds)
    try:
        begin = settings(
            is_readonly=options.is_readonly,
            is_durable=options.is_durable,
            seconds=options.timeout_seconds,
            ends_idle_transactions=ends_idle_transactions,
        )
        version, is_flushed = session.run((begin, ()), give_up_at=SYSTEM_CLOCK.monotonic() + seconds)[0].row()[:2]
    except BaseException:
        session.close()
        raise
    if version < _VERSION_MIN:
        session.close()
        problem = f"PostgreSQL {version // 10_000} is too old; keyplan needs 12 or newer"
        raise EngineOpenError(url=options.shown_url, problem=problem)
    return session, bool(is_flushed)


class Pool:
    """Up to `connections_max` connections, made when they are needed."""

    def __init__(
        self,
        options: PostgresOptions,
        *,
        identity: Identity,
        connections_max: int,
        purpose: str,
        ends_idle_transactions: bool,
    ) -> None:
        self._options = options
        self._identity = identity
        self._connections_max = connections_max
        self._purpose = purpose
        self._ends_idle_transactions = ends_idle_transactions
        self._idle: list[Session] = []
        self._taken = 0
        self._left: deque[Session] = deque()
        """Connections of snapshots that nobody closed; see `leave`."""
        self._changed = Condition()
        self._is_closed = False
        self._process = os.getpid()

    # ---- taking and giving back ------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    @property
    def is_foreign(self) -> bool:
        """True in a process that was forked from the one that opened the engine."""
        return os.getpid() != self._process

    def check_open(self) -> None:
        """Raise EngineUnavailableError after `close`, and in a forked process: its parent speaks on these connections."""
        if self._is_closed:
            raise EngineUnavailableError(engine=NAME, problem="the engine was closed")
        if self.is_foreign:
            raise EngineUnavailableError(engine=NAME, problem="the process was forked; open the store again")

    def take(self, give_up_at: float, *, waits: bool = True) -> Session:
        """Return a connection that nobody else has until `give`. Raises PostgresError, EngineUnavailableError.

        Without `waits`, it raises at once where all connections are in use.
        """
        session = self._reserved(give_up_at if waits else SYSTEM_CLOCK.monotonic())
        try:
            remaining = max(give_up_at - SYSTEM_CLOCK.monotonic(), 0.05)
            if session is None:
                ends_idle = self._ends_idle_transactions
                session, _ = open_session(self._options, seconds=remaining, ends_idle_transactions=ends_idle)
            if not session.is_checked:
                self._identity.check(session, give_up_at=SYSTEM_CLOCK.monotonic() + remaining)
        except BaseException:
            if session is not None:
                session.close()
            self._let_go()
            raise
        return session

    def _reserved(self, give_up_at: float) -> Session | None:
        """Return a connection from the reserve, or None: the caller may make one. Either is counted as taken."""
        with self._changed:
            while True:
                self.check_open()
                self._take_in_left()
                while self._idle:
                    session = self._idle.pop()
                    if session.is_fit():
                        self._taken += 1
                        return session
                    session.close()
                if self._taken < self._connections_max:
                    self._taken += 1
                    return None
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                if remaining <= 0:
                    problem = f"all {self._connections_max} connections {self._purpose}"
                    raise EngineUnavailableError(engine=NAME, problem=problem)
                self._changed.wait(min(remaining, _LEFT_SECONDS_MAX))

    def give(self, session: Session, *, is_clean: bool) -> None:
        """Take a connection back; without `is_clean` it may be in a transaction, which is rolled back.

        In a forked process nothing is done: the connection is the parent's, and so is whoever held the pool's lock.
        """
        if self.is_foreign:
            return
        if not is_clean and session.is_open and not self._is_closed:
            # Why without waiting: the answer is taken when the connection is used again.
            with suppress(PostgresError):
                session.send((ROLLBACK, ()))
        with self._changed:
            if self._is_closed or not session.is_open:
                session.close()
            else:
                self._idle.append(session)
        self._let_go()

    def leave(self, session: Session) -> None:
        """Take back the connection of a snapshot that is being collected: without a lock, and without a word to the server.

        Why: a collection comes at any moment, in a thread that may hold any lock.
        """
        if not self.is_foreign:
            self._left.append(session)

    def _take_in_left(self) -> None:
        """Take in what was left by collected snapshots. Called with the lock."""
        while self._left:
            session = self._left.popleft()
            self._taken -= 1
            if session.is_open:
                with suppress(PostgresError):
                    session.send((ROLLBACK, ()))
                self._idle.append(session)

    def _let_go(self) -> None:
        with self._changed:
            self._taken -= 1
            self._changed.notify()

    def add(self, session: Session) -> None:
        """Put a new connection in reserve."""
        with self._changed:
            self._idle.append(session)

    def deadline(self) -> float:
        """Return when a call that begins now must end."""
        return SYSTEM_CLOCK.monotonic() + self._options.timeout_seconds

    # ---- calls -----------------------------------------------------------------------------------------------------------

    def call(self, *requests: Request, seconds_max: float | None = None) -> list[Result]:
        """Carry out statements that may be carried out twice, in one round trip. Raises what `attempt` does."""
        return self.attempt(
            lambda session, give_up_at: session.run(*requests, give_up_at=give_up_at), seconds_max=seconds_max
        )

    def attempt(
        self,
        act: Callable[[Session, float], Answer],
        *,
        keeps: bool = False,
        waits: bool = True,
        seconds_max: float | None = None,
    ) -> Answer:
        """Do something that may be done twice, with a connection; again on another one when that broke, until the time is over.

        With `keeps`, the connection is not given back when `act` has succeeded; without `waits`, nobody is waited for who has
        one. Raises EngineUnavailableError,
        EngineRefusedError. What `act` itself raises goes through.
        """
        give_up_at = self.deadline()
        if seconds_max is not None:
            give_up_at = min(give_up_at, SYSTEM_CLOCK.monotonic() + seconds_max)
        pause_seconds = _PAUSE_SECONDS_FIRST
        while True:
            self.check_open()
            try:
                session = self.take(give_up_at, waits=waits)
                is_kept = is_clean = False
                try:
                    answer = act(session, give_up_at)
                    is_kept, is_clean = keeps, True
                finally:
                    if not is_kept:
                        self.give(session, is_clean=is_clean)
            except PostgresError as failure:
                now = SYSTEM_CLOCK.monotonic()
                if not _may_pass(failure) or now + pause_seconds >= give_up_at:
                    self.check_open()
                    raise translated(failure) from failure
                if isinstance(failure, ServerRefusalError) and failure.has_changed_hands:
                    self.forget()
            else:
                return answer
            self.pause(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _PAUSE_SECONDS_MAX)

    def pause(self, seconds: float) -> None:
        """Wait, or until the pool is closed."""
        give_up_at = SYSTEM_CLOCK.monotonic() + seconds
        with self._changed:
            while not self._is_closed and (remaining := give_up_at - SYSTEM_CLOCK.monotonic()) > 0:
                self._changed.wait(remaining)

    def forget(self) -> None:
        """Close what is in reserve. Why: when one connection was ended by the server, the others were, too."""
        with self._changed:
            self._take_in_left()
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def close(self) -> None:
        """Close what is in reserve, and what is taken when it is given back."""
        if self.is_foreign:
            self._is_closed = True  # Trap: the lock may be held here for ever, by a thread that only the parent has
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.forget()


def _may_pass(failure: PostgresError) -> bool:
    if isinstance(failure, ServerRefusalError):
        return failure.has_changed_hands or failure.has_lost_a_race
    return isinstance(failure, ConnectionLostError) and not failure.is_refused
