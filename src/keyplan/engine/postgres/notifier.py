"""Word that something was committed: of this process at once, of others by LISTEN on a connection of its own.

A thread takes what arrives there, for as long as the engine is open once a watch was. Why a thread: a listener that does not
read holds up the server's queue of notifications, in the end for everybody.
"""

import os
import select
from contextlib import suppress
from threading import Condition, Thread
from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres.failures import PostgresError
from keyplan.engine.postgres.options import PostgresOptions
from keyplan.engine.postgres.pool import open_session
from keyplan.engine.postgres.session import Session
from keyplan.engine.postgres.statements import Statements
from keyplan.errors import EngineOpenError

__all__ = ["CommitNotifier"]

_LOOK_SECONDS_LISTENING: Final = 1.0
"""Why: leases end without a word, and a notification may be lost with its connection."""
_LOOK_SECONDS_DEAF: Final = 0.05
"""Why: without notifications, a commit is noticed half of it late on average; a look costs the server some 50 microseconds."""
_PAUSE_SECONDS_FIRST: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0


class CommitNotifier:
    """A number that grows when there may be something new."""

    def __init__(self, options: PostgresOptions, statements: Statements) -> None:
        self._options = options
        self._statements = statements
        self._changed = Condition()
        self._number = 0
        self._is_listening = False
        self._is_closed = False
        self._thread: Thread | None = None
        self._woken, self._wake = -1, -1
        self._process = os.getpid()

    @property
    def number(self) -> int:
        """How often something may have been committed."""
        return self._number

    def tell(self) -> None:
        """There may be something new."""
        if os.getpid() != self._process:
            return  # Trap: the lock may be held here for ever, by a thread that only the parent has
        with self._changed:
            self._number += 1
            self._changed.notify_all()

    def wait(self, known: int, *, seconds: float) -> None:
        """Wait until the number is not `known`, at most so long, and not longer than anybody may go without looking."""
        with self._changed:
            look_seconds = _LOOK_SECONDS_LISTENING if self._is_listening else _LOOK_SECONDS_DEAF
            give_up_at = SYSTEM_CLOCK.monotonic() + min(seconds, look_seconds)
            while self._number == known and not self._is_closed:
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                if remaining <= 0:
                    return
                self._changed.wait(remaining)

    # ---- listening -------------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Begin to listen, unless that was done before, or is not wanted."""
        if not self._options.has_notify:
            return
        with self._changed:
            if self._thread is not None or self._is_closed:
                return
            self._woken, self._wake = os.pipe()
            thread = Thread(target=self._run, name="keyplan-postgres-listener", daemon=True)
            thread.start()
            self._thread = thread  # Why after it began: `close` waits for it.

    def _run(self) -> None:
        pause_seconds = _PAUSE_SECONDS_FIRST
        while not self._is_closed:
            with suppress(PostgresError, EngineOpenError):
                session, _ = open_session(self._options, seconds=self._options.timeout_seconds)
                try:
                    session.run((self._statements.listen, ()), give_up_at=self._deadline())
                    pause_seconds = _PAUSE_SECONDS_FIRST
                    self._hear(session)
                finally:
                    session.close()
                    self._is_listening = False
            self._sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _PAUSE_SECONDS_MAX)

    def _hear(self, session: Session) -> None:
        self._is_listening = True
        # Why: until now nobody listened.
        self.tell()
        poll = select.poll()
        poll.register(session.socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while not self._is_closed:
            poll.poll()
            if session.heard():
                self.tell()

    def _sleep(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.poll(seconds * 1_000)

    def _deadline(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self._options.timeout_seconds

    def close(self) -> None:
        """Stop to listen, and wake who waits."""
        if os.getpid() != self._process:
            return  # Trap: thread and pipe are the parent's, and the lock may be held here for ever
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is None:
            return
        os.write(self._wake, b"!")
        thread.join()
        os.close(self._wake)
        os.close(self._woken)
