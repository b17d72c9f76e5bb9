"""The audit log of a server's changes: a line before each change, and one with its outcome before the answer is sent.

What an operation discloses is noted in the same way; where somebody is refused it, that is a line, too.

    async with context.audit.change(operation, asker, arguments):
        ...                                                      # performed: by coroutines, or in threads of the workers

Why two lines: between a commit and a line behind it a server may be killed, and a change that is in the store would be in no
log. So the first says what is about to be done, on the disk before it is; the second how that ended. Which commits a change
made is noted by the engine that services are given (`NotingEngine`): what runs in the context of a change, in whatever thread,
is noted with it. Without a log nothing of this is there.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, Protocol

from keyplan.access import AccessFile, PrincipalChange
from keyplan.audit_log import REVISIONS_MAX, Asker, Event, Notice
from keyplan.engine import (
    SYSTEM_CLOCK,
    Capability,
    Clock,
    Commit,
    Engine,
    Fences,
    FencesHolder,
    Guard,
    WrappedEngine,
)
from keyplan.errors import AuditLogError, CommitOutcomeUnknownError
from keyplan.operations import Declared
from keyplan.server.access import Caller
from keyplan.server.allowances import Allowances
from keyplan.server.answers import AnswerError
from keyplan.server.logs import LOGGER

__all__ = [
    "REFUSALS_MAX",
    "AuditLines",
    "NotedChange",
    "NotingEngine",
    "ServiceAudit",
    "asker_of",
    "log_notice",
    "note_access_file",
    "note_answer",
]

REFUSALS_MAX: Final = 20
"""Lines about refusals that somebody may cause at once. Why: a log that is filled keeps everybody else from changing things."""

_REFUSAL_SECONDS_EACH: Final = 3.0
_AFTER_REFUSALS: Final = {"Retry-After": "3"}
_NAMES_MAX: Final = 10_000

_UNREADABLE: Final = "?"
"""The subject of a change whose answer cannot be told: it was made all the same."""


def asker_of(caller: Caller | None, address: str) -> Asker:
    """Return who asks, as a line has it. Nobody asks only where a service has a log-in of its own."""
    if caller is None:
        return Asker("", "anybody", address)
    return Asker(caller.name, caller.known_by, address)


class AuditLines(Protocol):
    """What lines of an audit log are asked of: the log, or another process that writes it."""

    def append(self, event: Event, **fields: Any) -> "Future[int]":
        """Have a line written, as `AuditLog.append` does."""
        ...


class NotedChange:
    """A change that is being made, and what is known of it so far."""

    def __init__(
        self, log: AuditLines, facts: Mapping[str, Any], subject_of: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._log = log
        self._facts = dict(facts)
        self._subject_of = subject_of
        self._answer: dict[str, Any] = {}
        self._revisions: list[int] = []
        self._commits = 0
        self._number = 0

    def note_revision(self, revision: int) -> None:
        """Note that a commit was made; the store had this revision after it."""
        self._commits += 1
        if len(self._revisions) < REVISIONS_MAX:
            self._revisions.append(revision)

    def note_answer(self, result: Any) -> None:
        """Note what is answered: a subject may name its fields."""
        self._answer |= {"answer": result}

    def note_argument(self, name: str, value: Any) -> None:
        """Note what an argument turned out to be: the subject names this one from now on."""
        self._answer |= {name: value}

    def begin(self) -> "Future[int]":
        """Have the line written that is before the change. Raises AuditLogError, here or by the future."""
        return self._log.append(Event.BEGUN, **self._facts, subject=self._subject())

    def began(self, number: int) -> None:
        """The line is there; it has this number."""
        self._number = number

    def refused(self, error: Exception) -> "Future[int]":
        """Have the line written that somebody was not let do it. Raises AuditLogError, here or by the future."""
        return self._log.append(Event.REFUSED, **self._facts, subject=self._subject(), code=_code_of(error))

    def abandoned(self, begun: "Future[int]") -> None:
        """Have a line written that the change was not made, of which nobody waited for the beginning; if that was written."""
        if not begun.cancelled() and begun.exception() is None:
            self.began(begun.result())
            with suppress(AuditLogError):
                self._log.append(
                    Event.FAILED, **self._facts, of=self._number, subject=self._subject(), code="cancelled"
                )

    def end(self, error: BaseException | None) -> "Future[int]":
        """Have the line written that is behind the change, which was made, or ended by an error."""
        event, code = _outcome(error)
        return self._log.append(
            event,
            **self._facts,
            of=self._number,
            subject=self._subject(),
            revisions=tuple(self._revisions),
            commits=self._commits if self._commits > len(self._revisions) else 0,
            code=code,
        )

    def _subject(self) -> str:
        try:
            return self._subject_of(self._answer)
        except (AttributeError, LookupError, TypeError, ValueError):
            # Why no failure: before the change there is no answer; behind it, it may be of another form than declared. A value
            # that cannot be told keeps no line from being written.
            return _UNREADABLE if self._answer else ""


_CURRENT: Final[ContextVar[NotedChange | None]] = ContextVar("keyplan.change", default=None)


def note_answer(result: Any) -> None:
    """Note the answer to the change that is being made here, if one is."""
    change = _CURRENT.get()
    if change is not None:
        change.note_answer(result)


class NotingEngine(WrappedEngine):
    """An engine whose commits are noted with the change that they are made for: the one in whose context they are made."""

    def __init__(self, inner: Engine, *, closes_inner: bool = False) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._has_revisions = Capability.REVISIONS in inner.profile.capabilities

    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(commit)
        change = _CURRENT.get()
        if change is not None and self._has_revisions:
            change.note_revision(revision)
        return revision

    # Why these: each is faster in the engine itself than what stands in for it.

    def value(self, key: bytes) -> bytes | None:
        return self.inner.value(key)

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        return self.inner.fenced_value(key, fences)

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        return self.inner.fenced_reader(prefix, holder, otherwise)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        if self._has_revisions:
            # Why the default way: it goes through `commit` above; engines with revisions have no other.
            return Engine.put_sorted(self, keys, values, guards=guards, overwrite=overwrite)
        return self.inner.put_sorted(keys, values, guards=guards, overwrite=overwrite)


_NOTHING: Final = nullcontext(None)


class ServiceAudit:
    """How one service notes its changes; without a log they are made, and nothing is noted."""

    def __init__(self, service: str = "", log: AuditLines | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._service = service
        self.log = log
        self._refusals: Allowances[str] = Allowances(
            REFUSALS_MAX, _REFUSAL_SECONDS_EACH, keys_max=_NAMES_MAX, monotonic=clock.monotonic
        )

    def noting(self, engine: Engine) -> Engine:
        """Return an engine whose commits are noted, for a service that opens one of its own; closing it closes the other."""
        if self.log is None or not engine.profile.claims(Capability.REVISIONS):
            return engine  # Why: without revisions there is nothing to note.
        return NotingEngine(engine, closes_inner=True)

    def change(
        self, declared: Declared, asker: Asker, arguments: Mapping[str, Any], *, request: str = ""
    ) -> AbstractAsyncContextManager[NotedChange | None]:
        """Surround a change: its line is written before the block is entered, and its outcome before it is left.

        An operation that is not noted is let through. Raises AuditLogError, and then the block is not entered;
        AuditLogIncompleteError where the change was made; and what the block raises.
        """
        change = self._change(declared, asker, arguments, request)
        return _NOTHING if change is None else _surrounding(change)

    @contextmanager
    def change_here(
        self, declared: Declared, asker: Asker, arguments: Mapping[str, Any], *, request: str = ""
    ) -> Iterator[NotedChange | None]:
        """The same for a service that answers in threads of its own."""
        change = self._change(declared, asker, arguments, request)
        if change is None:
            yield None
            return
        with _reported():
            change.began(change.begin().result())
        token = _CURRENT.set(change)
        try:
            yield change
        except BaseException as error:
            with suppress(AuditLogError), _reported():
                change.end(error).result()
            raise
        else:
            with _reported():
                change.end(None).result()
        finally:
            _CURRENT.reset(token)

    async def refused(
        self, declared: Declared, asker: Asker, arguments: Mapping[str, Any], error: Exception, *, request: str = ""
    ) -> None:
        """Write the line that somebody was refused what an operation discloses, before they are told.

        Whoever is refused again and again is slowed: see REFUSALS_MAX. Raises AuditLogError; AnswerError (429) for more.
        """
        change = None if declared.discloses is None else self._change(declared, asker, arguments, request)
        if change is None:
            return
        # Why not by address: who asks is known, or this would be refused before.
        if not self._refusals.take_if_left(asker.who):
            raise AnswerError(429, "too_many_refusals", "this was refused too often: wait", headers=_AFTER_REFUSALS)
        with _reported():
            await asyncio.shield(asyncio.wrap_future(change.refused(error)))

    async def refused_change(
        self, declared: Declared, asker: Asker, arguments: Mapping[str, Any], error: Exception, *, request: str = ""
    ) -> None:
        """Write the line that somebody was not let change what they asked for: of a change that does not begin.

        For who may change other things; who may change nothing is to leave none. Of somebody who is refused again and again few
        are written: see REFUSALS_MAX. Raises nothing: what is refused stays refused.
        """
        change = self._change(declared, asker, arguments, request)
        if change is not None and self._refusals.take_if_left(asker.who):
            with suppress(AuditLogError), _reported():
                await asyncio.shield(asyncio.wrap_future(change.refused(error)))

    # ---- pieces ---------------------------------------------------------------------------------------------------------

    def _change(
        self, declared: Declared, asker: Asker, arguments: Mapping[str, Any], request: str
    ) -> NotedChange | None:
        noted = declared.noted
        if self.log is None or noted is None:
            return None
        facts = {
            "who": asker.who,
            "known_by": asker.known_by,
            "address": asker.address,
            "service": self._service,
            "operation": declared.name,
            "act": noted.act,
            "request": request,
        }
        return NotedChange(self.log, facts, lambda answer: noted.subject_of({**arguments, **answer}))


@asynccontextmanager
async def _surrounding(change: NotedChange) -> AsyncIterator[NotedChange]:
    """Surround a change with its lines, which are waited for without holding the event loop."""
    with _reported():
        begun = change.begin()
        try:
            change.began(await asyncio.wrap_future(begun))
        except asyncio.CancelledError:
            begun.add_done_callback(change.abandoned)
            raise
    token = _CURRENT.set(change)
    try:
        yield change
    except asyncio.CancelledError as error:
        # Why not waited for: who is cancelled has no time; the line is written all the same.
        with suppress(AuditLogError), _reported():
            change.end(error)
        raise
    except BaseException as error:
        with suppress(AuditLogError), _reported():
            await asyncio.shield(asyncio.wrap_future(change.end(error)))
        raise
    else:
        with _reported():
            # Why shielded: a change that was made is told of, whoever no longer waits for it.
            await asyncio.shield(asyncio.wrap_future(change.end(None)))
    finally:
        _CURRENT.reset(token)


def _outcome(error: BaseException | None) -> tuple[Event, str]:
    """Return how a change ended, and the code of what it failed with."""
    if error is None:
        return Event.DONE, ""
    is_unknown = isinstance(error, (CommitOutcomeUnknownError, asyncio.CancelledError, KeyboardInterrupt))
    is_unknown = is_unknown or getattr(error, "is_outcome_unknown", False)
    return (Event.UNKNOWN if is_unknown else Event.FAILED), _code_of(error)


def _code_of(error: BaseException) -> str:
    """Return the word for a failure: its code, or its status where its protocol has no other; none of ours is internal."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    for name in ("code", "status"):
        found = getattr(error, name, None)
        if isinstance(found, Enum):
            return found.name.lower()
        if isinstance(found, str | int) and found:
            return str(found)
    return "internal_error"


def note_access_file(log: AuditLines, file: AccessFile) -> None:
    """Have a line written for each principal that comes, goes or changes in an access file, before that counts.

    Who changed the file, the system knows; the lines say what the server took in, and when.

    A line that cannot be written keeps no change from counting: what takes a right away has to count on a full disk, too. It is
    written before the next line of anybody, and without lines nothing is changed: what a grant opens until then is reading.
    """

    def note(changes: Sequence[PrincipalChange]) -> None:
        for change in changes:
            facts = {"act": f"{change.act} principal", "subject": f"{change.name}: {change.what}".removesuffix(": ")}
            # Why not waited for: it is seen in the course of a request, by the loop that answers all others.
            with suppress(AuditLogError), _reported():
                log.append(Event.DONE, known_by="access file", service="server", operation="accessFile", **facts)

    file.tell(note)


def log_notice(notice: Notice) -> None:
    """Say in the server's log what an audit log has to tell: its head, too, which shows, kept elsewhere, what is cut off."""
    LOGGER.log(logging.ERROR if notice.is_problem else logging.INFO, notice.words, extra={"facts": dict(notice.facts)})


@contextmanager
def _reported() -> Iterator[None]:
    """Say in the server's log that a line cannot be written. Raises AuditLogError on."""
    try:
        yield
    except AuditLogError as error:
        LOGGER.error("the audit log cannot be written", extra={"facts": {"error": str(error)}})
        raise
