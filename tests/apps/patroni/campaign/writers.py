"""Clients that write rows through the router without a pause, and remember each that was acknowledged: when, where, by whom."""

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from tests.apps.patroni.campaign.accounting import Acknowledged, wal_position

__all__ = ["TABLE", "Writers", "rows_of", "write_bulk"]

TABLE: Final = (
    "create table if not exists rows (writer int, sequence int, server text, timeline text, note text,"
    " primary key (writer, sequence))"
)
_INSERT: Final = (
    "insert into rows values (%s, %s, inet_server_addr()::text || ':' || inet_server_port(),"
    " substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), %s)"
    " returning server, timeline, pg_current_wal_insert_lsn()::text"
)
_PAUSE_SECONDS: Final = 0.04
_ANSWER_SECONDS_MAX: Final = 6.0
"""How long an answer is waited for; then the connection is cut, and the row's outcome is unknown."""
_CONNECT_SECONDS_MAX: Final = 4
_ROWS_OF_A_CONNECTION: Final = 40
"""After how many rows every second writer connects anew, as applications without a pool do."""
_NOTE_BYTES: Final = 700
_UNREPLICATED: Final = "might not have been replicated"
_JOIN_SECONDS_MAX: Final = 30.0


class _Writer(threading.Thread):
    """One client. What fails is never tried again."""

    def __init__(self, number: int, uri: str, acknowledged: list[Acknowledged]) -> None:
        super().__init__(daemon=True)
        self.is_writing = threading.Event()
        self.is_quiet = threading.Event()
        self.is_ended = threading.Event()
        self.asked_at = 0.0
        self.warned = 0
        self._number = number
        self._uri = uri
        self._acknowledged = acknowledged
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._was_warned = False

    def run(self) -> None:
        sequence = 0
        while not self.is_ended.is_set():
            if not self.is_writing.is_set():
                self.is_quiet.set()
                self.is_writing.wait(0.1)
                continue
            self.is_quiet.clear()
            sequence += 1
            try:
                self._write(sequence)
            except psycopg.Error:
                self._close()
            self.asked_at = 0.0
            if self._number % 2 and sequence % _ROWS_OF_A_CONNECTION == 0:
                self._close()
            self.is_ended.wait(_PAUSE_SECONDS)
        self._close()

    def _write(self, sequence: int) -> None:
        if self._connection is None:
            self._connection = psycopg.connect(self._uri, connect_timeout=_CONNECT_SECONDS_MAX, autocommit=True)
            self._connection.add_notice_handler(self._notice)
        self._was_warned = False
        asked_at = self.asked_at = time.monotonic()
        row = self._connection.execute(_INSERT, (self._number, sequence, "x" * _NOTE_BYTES)).fetchone()
        now = time.monotonic()
        if self._was_warned:
            # Why: PostgreSQL says so itself: it is committed there, and perhaps nowhere else.
            self.warned += 1
            return
        assert row is not None
        server, timeline, position = row
        self._acknowledged.append(
            Acknowledged(self._number, sequence, asked_at, now, server, int(timeline, 16), wal_position(position))
        )

    def _notice(self, told: psycopg.errors.Diagnostic) -> None:
        text = f"{told.message_primary} {told.message_detail}"
        self._was_warned = self._was_warned or _UNREPLICATED in text

    def cut_when_late(self) -> None:
        """Cut its connection when it has waited too long; the thread then hears that it is lost."""
        connection, asked_at = self._connection, self.asked_at
        if connection is None or not asked_at or time.monotonic() - asked_at < _ANSWER_SECONDS_MAX:
            return
        with suppress(OSError, psycopg.Error), socket.socket(fileno=_duplicate(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


def _duplicate(descriptor: int) -> int:
    with socket.socket(fileno=descriptor) as line:
        duplicate = line.dup()
        line.detach()
    return duplicate.detach()


class Writers:
    """Several clients of one cluster. `with Writers(uri, 3) as writers: ...`."""

    def __init__(self, uri: str, number: int) -> None:
        self._acknowledged: list[Acknowledged] = []
        self._writers = [_Writer(each, uri, self._acknowledged) for each in range(number)]
        self._ended = threading.Event()
        self._guard = threading.Thread(target=self._cut_late, daemon=True)

    @property
    def acknowledged(self) -> Sequence[Acknowledged]:
        """All that was acknowledged so far."""
        return tuple(self._acknowledged)

    @property
    def warned(self) -> int:
        """How many rows came with the warning that they may be on one server alone: those count as unknown."""
        return sum(each.warned for each in self._writers)

    def pause(self) -> None:
        """Write no more; return when no row is on its way. Raises TimeoutError when one stays so."""
        for each in self._writers:
            each.is_writing.clear()
        for each in self._writers:
            each.is_quiet.clear()
            if not each.is_quiet.wait(_JOIN_SECONDS_MAX):
                raise TimeoutError("a writer does not come to rest")

    def go_on(self) -> None:
        """Write again."""
        for each in self._writers:
            each.is_writing.set()

    def seconds_without(self, since: float) -> float:
        """The longest time from a moment on in which nothing was acknowledged, up to now."""
        now = time.monotonic()
        times = [since, *(each.acknowledged_at for each in self.acknowledged if each.acknowledged_at >= since), now]
        times.sort()
        return max(after - before for before, after in pairwise(times))

    def acknowledges_since(self, moment: float) -> bool:
        """Whether a row was asked for and acknowledged after a moment."""
        return any(each.asked_at > moment for each in reversed(self.acknowledged[-200:]))

    def _cut_late(self) -> None:
        while not self._ended.wait(0.5):
            for each in self._writers:
                each.cut_when_late()

    def __enter__(self) -> Self:
        for each in self._writers:
            each.start()
        self._guard.start()
        self.go_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._writers:
            each.is_ended.set()
        for each in self._writers:
            each.join(_JOIN_SECONDS_MAX)
        self._ended.set()


def write_bulk(uri: str) -> None:
    """Write two megabytes and a half that are no rows of the table, in one commit. Nobody waits for it to succeed."""
    with (
        suppress(psycopg.Error),
        psycopg.connect(
            uri, connect_timeout=_CONNECT_SECONDS_MAX, autocommit=True, tcp_user_timeout=20_000
        ) as connection,
    ):
        connection.execute("create table if not exists bulk (note text)")
        # Why plain: what is compressed would be less in the log.
        connection.execute("alter table bulk alter note set storage plain")
        connection.execute(
            "insert into bulk select string_agg(md5(random()::text || outer_number), '')"
            " from generate_series(1, 1300) outer_number, generate_series(1, 60) group by outer_number"
        )


def rows_of(uri: str) -> frozenset[tuple[int, int]]:
    """The rows that a server has."""
    with psycopg.connect(uri, connect_timeout=_CONNECT_SECONDS_MAX) as connection:
        return frozenset(
            (writer, sequence) for writer, sequence in connection.execute("select writer, sequence from rows")
        )
