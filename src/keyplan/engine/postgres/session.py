"""One connection: statements in a pipeline, one round trip for as many as are given, each call with a deadline.

It speaks through psycopg's libpq wrapper, since what is needed of a cursor costs more there than the statement itself. Every
statement is prepared once a connection; parameters and results are binary, so that keys and values are sent as they are.
"""

import os
import select
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import make_conninfo

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.postgres.failures import ConnectionLostError, ServerRefusalError

__all__ = ["Request", "Result", "Session", "Statement", "connect"]

Row = TypeVar("Row")
Parameters = tuple[bytes | None, ...]

_OWED_SECONDS: Final = 10.0
"""How long the answer to a ROLLBACK that was sent without waiting may take."""
_GOOD: Final = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})
_FATAL: Final = frozenset({b"FATAL", b"PANIC"})
_LAST_WORDS: Final = frozenset({b"ERROR", *_FATAL})
_REFUSALS: Final = (
    "authentication failed", "no password supplied", "pg_hba.conf", "does not exist", "permission denied", "not permitted",
    "certificate verify failed",
)  # fmt: skip
"""What a server says that will say the same the next time. Why by words: libpq tells no code before a connection is made. In
another language than English, it is asked again until the time is over, and its words are told all the same."""


class Statement(NamedTuple):
    """A statement with the name under which a connection has it prepared."""

    name: bytes
    text: bytes


Request = tuple[Statement, Parameters]


class Result(NamedTuple):
    """What a statement answered."""

    raw: Any
    session: "Session"

    def rows(self, make: Callable[[Any], Row]) -> list[Row]:
        """Return the rows, each made of a tuple of its columns."""
        return self.session.loaded(self.raw, make)

    def column(self) -> list[bytes]:
        """Return the only column of the rows, as the server sent it: of bytes, what they are.

        Why not by `rows`: to find out how a column is read costs several times what this does.
        """
        raw = self.raw
        return [raw.get_value(row, 0) for row in range(raw.ntuples)]

    @property
    def done(self) -> str:
        """What was done, as the server calls it: COMMIT, say."""
        return (self.raw.command_status or b"").decode("ascii", "replace")

    @property
    def touched(self) -> int:
        """How many rows were written or removed."""
        return int(self.raw.command_tuples or 0)

    def row(self) -> tuple[Any, ...]:
        """Return the first row. There must be one."""
        return self.rows(tuple)[0]


class _Connection(psycopg.Connection[Any]):
    """A connection that ends without a word when nobody has it any more."""

    def __del__(self, *_: object) -> None:
        """Warn of nothing. Why: what was not closed is an engine, and the driver would name what its user never saw."""


def connect(keywords: dict[str, str], *, seconds: float) -> "Session":
    """Open a connection. Raises ConnectionLostError, which says whether a server answered and refused."""
    try:
        ordered = _best_first(keywords)
        # Why two seconds at least: libpq knows no shorter time. It takes that time for each host.
        each = max(int(seconds / (keywords.get("host", "").count(",") + 1)), 2)
        conninfo = make_conninfo(**ordered, connect_timeout=each, client_encoding="utf8")
        connection = _Connection.connect(conninfo, autocommit=True)
        _answered[_hosts_of(keywords)] = (connection.info.host, str(connection.info.port))
    except (psycopg.Error, UnicodeError) as error:
        # Trap: the error carries the connection, and with it the password; so it must be nobody's cause or context.
        text = " ".join(str(error).split())
    else:
        return Session(connection)
    raise ConnectionLostError(text, is_refused=any(words in text for words in _REFUSALS))


_answered: Final[dict[tuple[str, str], tuple[str, str]]] = {}
"""Of several hosts, as they were given, the one that took the latest connection of this process."""


def _hosts_of(keywords: dict[str, str]) -> tuple[str, str]:
    return keywords.get("host", ""), keywords.get("port", "")


def _best_first(keywords: dict[str, str]) -> dict[str, str]:
    """Return the keywords with the host in front that answered last, so that a silent one costs its time once."""
    hosts, ports = (text.split(",") for text in _hosts_of(keywords))
    best = _answered.get(_hosts_of(keywords))
    if len(hosts) == 1 or len(hosts) != len(ports) or "hostaddr" in keywords or best is None:
        return keywords
    pairs = sorted(zip(hosts, ports, strict=True), key=lambda pair: (pair[0], pair[1] or "5432") != best)
    return {**keywords, "host": ",".join(host for host, _ in pairs), "port": ",".join(port for _, port in pairs)}


class Session:
    """A connection that one thread uses at a time. After ConnectionLostError it is closed.

    In a process that was forked it never touches the socket, on which the parent speaks: not to ask, and not to end.
    """

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._process = os.getpid()
        self._connection = connection
        self._raw = connection.pgconn
        self.warning = ""
        """What the server has warned of in the latest call."""
        self._raw.notice_handler = self._note
        self.leapt = 0
        """The revision that the store's latest leap reached, see `Identity`."""
        self.is_checked = False
        """True once the store that it leads to was looked at, and cannot become another one on this connection."""
        self._prepared: set[bytes] = set()
        self._expected: list[Statement | None] = []  # for each answer to come: what it prepares, None for a result
        self._is_answer_due = False
        self._is_receiving = False
        self._is_disturbed = False
        self._transformer = Transformer(connection)
        self._poll = select.poll()
        self._events = select.POLLIN
        self._poll.register(self._raw.socket, self._events)
        self._raw.enter_pipeline_mode()

    # ---- statements ------------------------------------------------------------------------------------------------------

    def run(self, *requests: Request, give_up_at: float) -> list[Result]:
        """Carry out statements in one round trip and return their results.

        Without BEGIN among them they are one transaction. Raises ServerRefusalError, after which a transaction that was begun
        must be rolled back, and ConnectionLostError when the connection broke or the time was over.
        """
        self.send(*requests)
        return self.receive(give_up_at)

    def send(self, *requests: Request) -> None:
        """Send statements whose answers are taken by the next `receive` or `run`."""
        self._check_own()
        if self._is_receiving:
            # Why: where in the answers the interruption came, nobody knows any more.
            self.close()
            raise ConnectionLostError("its user was interrupted while it answered")
        if self._is_answer_due:
            self.receive(SYSTEM_CLOCK.monotonic() + _OWED_SECONDS)
        elif not self._is_silent():
            # Why: answers are matched to statements by their order, and this one belongs to none.
            self.close()
            raise ConnectionLostError("the server said something that it was not asked")
        self.warning = ""  # Why here: what was said before belongs to nothing that is asked now
        raw, expected = self._raw, self._expected
        try:
            for statement, parameters in requests:
                if statement.name not in self._prepared:
                    raw.send_prepare(statement.name, statement.text)
                    expected.append(statement)
                raw.send_query_prepared(statement.name, parameters, (1,) * len(parameters), 1)
                expected.append(None)
            raw.pipeline_sync()
            self._is_answer_due = True
            raw.flush()
        except psycopg.Error as error:
            raise self._lost(error) from error

    def receive(self, give_up_at: float) -> list[Result]:
        """Take the answers to what was sent."""
        self._check_own()
        results: list[Result] = []
        refusal: ServerRefusalError | None = None
        self._is_receiving = True
        try:
            for prepared in self._expected:
                raw = self._next(give_up_at)
                if raw.status in _GOOD:
                    if prepared is None:
                        results.append(Result(raw, self))
                    else:
                        self._prepared.add(prepared.name)
                elif refusal is None:
                    refusal = self._refused(raw)
                self._next_is_none(give_up_at)
            self._expected.clear()
            self._next(give_up_at)  # the end of the pipeline
            self._is_answer_due = self._is_receiving = False
        except psycopg.Error as error:
            raise self._lost(error) from error
        if refusal is not None:
            raise refusal
        return results

    def _note(self, notice: Any) -> None:
        severity = notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED)
        if severity in _LAST_WORDS or notice.error_field(pq.DiagnosticField.SQLSTATE) is None:
            # Why without a code as well: such are libpq's own, of an answer that came while nothing was asked.
            self._is_disturbed = True
        if severity == b"WARNING":
            message = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            self.warning = message.decode("utf-8", "replace")

    def loaded(self, raw: Any, make: Callable[[Any], Row]) -> list[Row]:
        """Return the rows of a result."""
        self._transformer.set_pgresult(raw)
        return self._transformer.load_rows(0, raw.ntuples, make)

    def copy(self, statement: bytes, parts: Iterable[bytes], *, give_up_at: float) -> None:
        """Carry out a COPY from what is given. Raises as `run` does."""
        self._check_own()
        raw = self._raw
        self._is_receiving = True
        try:
            raw.exit_pipeline_mode()
            raw.send_query(statement)
            begun = self._next(give_up_at)
            if begun.status == pq.ExecStatus.COPY_IN:
                for part in parts:
                    self._wait(give_up_at, is_answer_wanted=False)
                    raw.put_copy_data(part)
                raw.put_copy_end()
                begun = self._next(give_up_at)
            self._next_is_none(give_up_at)
            raw.enter_pipeline_mode()
            self._is_receiving = False
        except psycopg.Error as error:
            raise self._lost(error) from error
        if begun.status not in _GOOD:
            raise self._refused(begun)

    # ---- notifications ---------------------------------------------------------------------------------------------------

    @property
    def socket(self) -> int:
        """What becomes readable when there is a notification."""
        return int(self._raw.socket)

    def heard(self) -> Sequence[bytes]:
        """Return the payloads of the notifications that have arrived. Raises ConnectionLostError."""
        self._check_own()
        try:
            self._raw.consume_input()
            payloads: list[bytes] = []
            while (notification := self._raw.notifies()) is not None:
                payloads.append(notification.extra)
        except psycopg.Error as error:
            raise self._lost(error) from error
        return payloads

    # ---- its end ---------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """False after `close`, after the connection broke, in a forked process, and when its user was interrupted."""
        return not self._is_foreign and not self._connection.closed and not self._is_receiving

    def is_fit(self) -> bool:
        """Tell whether the connection may be used again, as far as is known without asking the server."""
        if not self.is_open:
            return False
        if self._is_answer_due:
            return True
        return self._is_silent()

    def close(self) -> None:
        """End the connection. In a forked process it is only let go of: its end would be told to the server."""
        if not self._is_foreign:
            self._connection.close()

    def _is_silent(self) -> bool:
        """Tell whether nothing has come, between two calls, that is an answer to a statement or the end of the connection.

        A setting that was loaded anew, a notice and a notification may come at any time: libpq takes them in.
        """
        if not self._poll_for(select.POLLIN, 0.0):
            return True
        raw = self._raw
        try:
            raw.consume_input()
            raw.is_busy()  # Why: it has libpq look at what came; notifications stay for `heard`
        except psycopg.Error:
            return False
        is_answer = raw.transaction_status == pq.TransactionStatus.ACTIVE
        return raw.status == pq.ConnStatus.OK and not is_answer and not self._is_disturbed

    @property
    def _is_foreign(self) -> bool:
        return os.getpid() != self._process

    def _check_own(self) -> None:
        if self._is_foreign:
            raise ConnectionLostError("the process was forked, and this is its parent's connection")

    # ---- waiting ---------------------------------------------------------------------------------------------------------

    def _next(self, give_up_at: float) -> Any:
        self._wait(give_up_at)
        raw = self._raw.get_result()
        if raw is None:
            raise psycopg.OperationalError("the server answered otherwise than asked")
        return raw

    def _next_is_none(self, give_up_at: float) -> None:
        self._wait(give_up_at)
        if self._raw.get_result() is not None:
            raise psycopg.OperationalError("the server answered otherwise than asked")

    def _wait(self, give_up_at: float, *, is_answer_wanted: bool = True) -> None:
        """Wait until all is sent and, where one is wanted, an answer is there. Raises ConnectionLostError after the time."""
        raw = self._raw
        unsent = raw.flush()
        while unsent or (is_answer_wanted and raw.is_busy()):
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            ready = self._poll_for(select.POLLIN | select.POLLOUT if unsent else select.POLLIN, max(remaining, 0.0))
            if ready & ~select.POLLOUT:
                raw.consume_input()
            elif not ready and remaining <= 0:
                self.close()
                raise ConnectionLostError("no answer came in time (timeout= in the URL makes it longer)")
            unsent = raw.flush()

    def _poll_for(self, events: int, seconds: float) -> int:
        if events != self._events:
            self._events = events
            self._poll.modify(self._raw.socket, events)
        found = self._poll.poll(seconds * 1_000)
        return found[0][1] if found else 0

    def _refused(self, raw: Any) -> ServerRefusalError:
        """Return what the server refused with. Raises when that was its last word."""
        state = raw.error_field(pq.DiagnosticField.SQLSTATE)
        message = (raw.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or raw.error_message).decode("utf-8", "replace")
        if state is None:  # Why: libpq itself makes such a result when the connection breaks.
            self.close()
            raise ConnectionLostError(" ".join(message.split()))
        refusal = ServerRefusalError(state.decode("ascii", "replace"), message)
        if raw.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) in _FATAL:
            self.close()
            raise refusal
        return refusal

    def _lost(self, error: psycopg.Error) -> ConnectionLostError:
        text = " ".join(str(error).split()) or "the connection is lost"
        self.close()
        return ConnectionLostError(text)
