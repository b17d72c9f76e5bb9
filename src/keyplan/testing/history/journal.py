"""Where a client's records go: a file that is appended to, and typed operations that are recorded around a block."""

import itertools
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import CommitOutcomeUnknownError, KeyplanError
from keyplan.testing.history.records import NEVER, Act, Outcome, Record, encode_record

__all__ = ["Acting", "Journal"]


class Journal:
    """Takes records from the threads of one client. `descriptor`: a file open for appending; `client` names it in its records.

    A record is one write to the system, so that what a killed process had told is there. An engine that was given a clock of
    its own is recorded by that clock: leases are judged by it.
    """

    def __init__(self, descriptor: int, client: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.client = client
        self.now = clock.monotonic
        self._descriptor = descriptor
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def next_number(self) -> int:
        """Return a number that no other record of this client has."""
        return next(self._numbers)

    def add(self, record: Record) -> None:
        """Write one record down."""
        line = encode_record(record)
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]

    @contextmanager
    def act(self, kind: str) -> Generator["Acting", None, None]:
        """Record a typed operation: the block does it, leaves `mark` in what it stores and sets `revision`.

        A conflict, or another error of keyplan that says that nothing was written, ends the block and is recorded.
        """
        acting = Acting(self, kind)
        self.add(acting.record(NEVER, Outcome.UNKNOWN))
        error = ""
        try:
            yield acting
            outcome = Outcome.ACKNOWLEDGED
        except CommitOutcomeUnknownError as raised:
            outcome, error = Outcome.UNKNOWN, raised.code
        except KeyplanError as raised:
            outcome, error = Outcome.REFUSED, raised.code
        self.add(acting.record(self.now(), outcome, error))


class Acting:
    """A typed operation under way."""

    def __init__(self, journal: Journal, kind: str) -> None:
        self._client = journal.client
        self._number = journal.next_number()
        self._kind = kind
        self._begin = journal.now()
        self.mark = f"~{journal.client}.{self._number}~"
        self.revision = 0

    def record(self, end: float, outcome: Outcome, error: str = "") -> Act:
        """Return what is known of it."""
        revision = self.revision if outcome is Outcome.ACKNOWLEDGED else 0
        begin = self._begin
        return Act(self._client, self._number, self._kind, self.mark, begin, end, outcome, revision, error)
