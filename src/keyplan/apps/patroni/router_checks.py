"""Whether those who hold leader keys say that they take writes: all are asked at once, and nobody waits for one that hangs.

What is asked is what members have written of themselves. It may be no place at all, or answer without an end.
"""

import re
import socket
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

import msgspec

from keyplan.apps.patroni.router_routes import Candidate, Leader
from keyplan.engine import SYSTEM_CLOCK

__all__ = ["FailsafeChecks", "PrimaryChecks", "is_member_replica", "is_primary"]

_ASK_SECONDS_MAX: Final = 1.0
_FIRST_SECONDS: Final = 0.25
"""How long one look waits for answers to new questions. Why at all: who is healthy answers in some hundredths of it."""
_PARALLEL: Final = 64
"""Why so many: each thread waits for somebody else. With more that hang than these, a question takes a second longer."""
_LINE_BYTES_MAX: Final = 1_024
_ANSWER_BYTES_MAX: Final = 65_536
"""Why: Patroni says a kilobyte of itself, and some hundred bytes of each replica."""
_KEYLESS_SECONDS_MAX: Final = 5.0
"""How long who led in failsafe mode may hold no leader key when its store is back. Patroni takes it in the same look."""
_YES: Final = re.compile(rb"HTTP/1\.[01] 200\b")


class PrimaryChecks:
    """Questions that are under way. `ask` tells whether an instance's candidate takes writes."""

    def __init__(self, ask: Callable[[str, Candidate], bool] | None = None) -> None:
        self._ask = ask or _is_primary
        self._asked: dict[str, tuple[Candidate, Future[bool]]] = {}
        self._silent: dict[str, Candidate] = {}
        # Why longer at first: who begins knows of nobody, and would close ports that lead where they should.
        self._first_seconds = _ASK_SECONDS_MAX
        self._executor = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="router-ask")

    def confirmed(self, wanted: Mapping[str, Candidate]) -> set[str]:
        """Ask all that are not asked already, and return the instances whose candidates have said yes by now.

        Blocks for a moment at most, and not again for who let it wait before.
        """
        self._forget(wanted)
        fresh: list[Future[bool]] = []
        for instance, candidate in wanted.items():
            if instance not in self._asked:
                begun = self._executor.submit(self._ask, instance, candidate)
                self._asked[instance] = candidate, begun
                if self._silent.get(instance) != candidate:
                    fresh.append(begun)
        wait(fresh, self._first_seconds)
        self._first_seconds = _FIRST_SECONDS
        self._silent |= {name: candidate for name, (candidate, begun) in self._asked.items() if not begun.done()}
        ended = {name: begun for name, (_, begun) in self._asked.items() if begun.done()}
        for instance in ended:
            del self._asked[instance]
        found = {instance for instance, begun in ended.items() if begun.result()}
        for instance in found:
            self._silent.pop(instance, None)
        return found

    @property
    def pending(self) -> Set[str]:
        """The instances whose candidates have not answered yet."""
        return self._asked.keys()

    def _forget(self, wanted: Mapping[str, Candidate]) -> None:
        """Drop questions about those that hold no key any more: an answer of before says nothing."""
        for instance, (candidate, begun) in list(self._asked.items()):
            if wanted.get(instance) != candidate:
                begun.cancel()
                del self._asked[instance]
        self._silent = {name: candidate for name, candidate in self._silent.items() if wanted.get(name) == candidate}


class _Patroni(msgspec.Struct):
    scope: str
    name: str | None = None
    """Patroni says it from 3.2 on."""


class _Status(msgspec.Struct):
    patroni: _Patroni
    failsafe_mode_is_active: bool = False


def is_primary(leader: Leader) -> bool:
    """Whether a member says by its REST interface that it takes writes. It has a second, whatever it answers with."""
    return _YES.match(_said(leader, b"OPTIONS /primary", until=b"\n", bytes_max=_LINE_BYTES_MAX)) is not None


def _is_primary(_instance: str, candidate: Candidate) -> bool:
    return is_primary(candidate.leader)


class FailsafeChecks:
    """Whether who led last leads on. `leads_on` is called by several threads, once at a time for an instance."""

    def __init__(self) -> None:
        self._said_at: dict[str, tuple[Candidate, float]] = {}

    def leads_on(self, instance: str, candidate: Candidate) -> bool:
        """Whether it says that it takes writes in failsafe mode: without its store, and by the consent of all members.

        Or that it takes writes still, and it did so in failsafe mode a moment ago. Why: its store is back before it
        holds its leader key again, and whoever closed its port then would end all sessions.
        """
        said, now = _status_of(instance, candidate, b"GET /primary"), SYSTEM_CLOCK.monotonic()
        if said is None:
            return False
        if said.failsafe_mode_is_active:
            self._said_at[instance] = candidate, now
            return True
        former, at = self._said_at.get(instance, (None, 0.0))
        return former == candidate and now - at < _KEYLESS_SECONDS_MAX


def is_member_replica(instance: str, candidate: Candidate) -> bool:
    """Whether it says that it is this member of this cluster, and a replica that is read from."""
    return _status_of(instance, candidate, b"GET /replica") is not None


def _status_of(instance: str, candidate: Candidate, question: bytes) -> _Status | None:
    """Return what who says yes says of itself; None where nobody does, or it is another member, or one of another cluster."""
    head, _, body = _said(candidate.leader, question, until=b"", bytes_max=_ANSWER_BYTES_MAX).partition(b"\r\n\r\n")
    if _YES.match(head) is None:
        return None
    try:
        said = msgspec.json.decode(body, type=_Status)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    is_it = said.patroni.scope == instance and said.patroni.name in {None, candidate.member}
    return said if is_it else None


def _said(leader: Leader, question: bytes, *, until: bytes, bytes_max: int) -> bytes:
    """Return what a member answers, up to the end of the connection, or to `until`; nothing where it does not."""
    host, _, port = leader.health.rpartition(":")
    give_up = SYSTEM_CLOCK.monotonic() + _ASK_SECONDS_MAX
    said = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ASK_SECONDS_MAX) as connection:
            connection.sendall(question + b" HTTP/1.0\r\n\r\n")
            while not (until and until in said) and len(said) < bytes_max:
                # Why anew: a time limit of a socket is one for each piece, and of pieces there may be any number.
                connection.settimeout(max(0.001, give_up - SYSTEM_CLOCK.monotonic()))
                piece = connection.recv(bytes_max)
                if not piece:
                    break
                said += piece
    # Why the last two: a host may be no name, which a look-up refuses before it looks, and a port none.
    except (OSError, ValueError, OverflowError):
        return b""
    return said
