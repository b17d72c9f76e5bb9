"""How much each caller has the server hold in memory at once: bodies, what is read for answers, answers that are not taken.

A request's first FREE_BYTES are nobody's. What is more is its caller's from the moment that it is known to come: the body that
it declares, what is read for its answer, the answer until it is taken. What would be more than one may hold is not read: a body
waits for room, and is refused when none comes; all else is refused at once. Who holds all that one may is refused any request.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock
from typing import Final, NamedTuple

from starlette.types import Scope

from keyplan.server.access import LOCAL, caller_in
from keyplan.server.answers import AnswerError
from keyplan.server.bounds import EdgeBounds
from keyplan.server.guessing import LOOPBACK, place_of
from keyplan.server.peers import peer_of
from keyplan.server.places import Full, Places
from keyplan.server.proxies import address_of

__all__ = ["FREE_BYTES", "Excess", "HeldBytes", "Holding", "holding_of_request"]

FREE_BYTES: Final = 64 << 10
"""What one request holds without being counted. Why: nearly all hold less, and counting costs them nothing then."""

_AFTER: Final = {"Retry-After": "1"}
_MIB: Final = 1 << 20


class Excess(NamedTuple):
    """Why no more may be held: by this caller, or by all."""

    full: Full
    bytes_max: int

    @property
    def sentence(self) -> str:
        """The same, for who asks."""
        size = f"{self.bytes_max} bytes" if self.bytes_max % _MIB else f"{self.bytes_max // _MIB} MiB"
        if self.full is Full.OF_ONE:
            return (
                f"your requests, and answers that you have not taken, hold {size}, as much as one caller may"
                " (--held-bytes-per-caller): take the answers, or ask for less at once"
            )
        return f"the requests of all callers hold {size}, as much as they may (--held-bytes): ask again later"

    @property
    def answer(self) -> AnswerError:
        """The failure that a request is answered with: 429 where the caller can help it, else 503."""
        status = 429 if self.full is Full.OF_ONE else 503
        return AnswerError(status, "too_much_held", self.sentence, {"bytes_max": self.bytes_max}, headers=_AFTER)


class HeldBytes:
    """What all requests of one server hold, by callers. Its requests are begun and ended in one event loop."""

    def __init__(self, bounds: EdgeBounds) -> None:
        self.places = Places(bounds.held_bytes_max, bounds.held_bytes_of_one)
        self._waiting: set[asyncio.Event] = set()

    def begun(self, scope: Scope) -> "Holding":
        """Return what a request holds, of whom its scope says who asks, and let `holding_of_request` return it, too."""
        holding = Holding(self, scope)
        holding.enter()
        return holding

    def give_back(self, who: str, number: int) -> None:
        """Count so many bytes less, and let go on who waits for room."""
        self.places.leave(who, number)
        for event in self._waiting:
            event.set()

    async def changed(self) -> None:
        """Wait until something is given back."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await event.wait()
        finally:
            self._waiting.discard(event)


class Holding:
    """What one request holds beyond FREE_BYTES, or its answer until it is taken. `take` is safe for use by several threads."""

    __slots__ = ("_held", "_is_over", "_kept", "_lock", "_scope", "_who", "bytes")

    def __init__(self, held: HeldBytes, scope: Scope) -> None:
        self._held = held
        self._scope = scope
        self._who: str | None = None
        self._lock = Lock()
        self._is_over = False
        self._kept = 0
        self.bytes = 0

    @property
    def who(self) -> str:
        """Whose it is: a token's or a principal's, or, without one, an address's, of this machine a user's."""
        if self._who is None:
            self._who = _who_in(self._scope)
        return self._who

    def enter(self) -> None:
        """Let `holding_of_request` return this, here and in what is begun here."""
        _CURRENT.set(self)

    def admit(self) -> None:
        """Return if this caller may begin a request. Raises AnswerError: 429 while they hold all that one may."""
        places = self._held.places
        if places.number >= places.of_one and places.taken_by(self.who) >= places.of_one:
            raise Excess(Full.OF_ONE, places.of_one).answer

    def take(self, number: int) -> Excess | None:
        """Hold so many bytes more; or return why that is too much, and hold what it held.

        One whose request is over holds nothing more: a thread may read for it still.
        """
        with self._lock:
            full = Full.OF_ONE if self._is_over else self._held.places.take(self.who, number)
            if full is None:
                self.bytes += number
                return None
        places = self._held.places
        return Excess(full, places.of_one if full is Full.OF_ONE else places.of_all)

    async def take_when_there_is_room(self, number: int, seconds_max: float) -> None:
        """Hold so many bytes more, as soon as others are given back. Raises AnswerError: 429 or 503, after so many seconds."""
        excess = self.take(number)
        try:
            # Why none of what never fits: nobody is to wait for it.
            async with asyncio.timeout(seconds_max if number <= self._held.places.of_one else 0):
                while excess is not None:
                    await self._held.changed()
                    excess = self.take(number)
        except TimeoutError:
            assert excess is not None
            raise excess.answer from None

    def keep(self, number: int) -> None:
        """Hold so many bytes in place of all that it held: an answer that is there is not refused."""
        with self._lock:
            self._kept += 1
            more = 0 if self._is_over else number - self.bytes
            self.bytes += more
            if more > 0:
                self._held.places.enter(self.who, more)
        if more < 0:
            self._held.give_back(self.who, -more)

    def keep_answer(self, number: int) -> None:
        """Hold an answer of so many bytes in place of all that it held; a small one is nobody's."""
        if number > FREE_BYTES:
            self.keep(number)
        elif self.bytes:
            self.keep(0)

    def end(self) -> None:
        """Hold nothing, now and from now on. Ending twice is harmless."""
        with self._lock:
            self._is_over = True
            number, self.bytes = self.bytes, 0
        if number:
            self._held.give_back(self.who, number)

    def keep_until_taken(self) -> None:
        """Hold what it keeps, a part of an answer, until its client has taken it or is gone, or it keeps the next part.

        Why not until the end: a stream that has sent a large part may wait for days for the next one.
        """
        kept = self._kept

        def taken() -> None:
            if self._kept == kept:
                self.keep(0)

        self._call_when_taken(taken)

    def end_when_taken(self) -> None:
        """End when the client has taken what was written, or is gone."""
        self._call_when_taken(self.end)

    def _call_when_taken(self, call: Callable[[], None]) -> None:
        peer = peer_of(self._scope) if self.bytes else None
        when_taken: Callable[[Callable[[], None]], None] | None = None if peer is None else peer.when_taken
        if when_taken is None:
            call()
        else:
            when_taken(call)


_CURRENT: Final[ContextVar[Holding | None]] = ContextVar("keyplan.holding", default=None)


def holding_of_request() -> Holding | None:
    """Return what the request holds that is answered here, also in its threads; None outside a request."""
    return _CURRENT.get()


def _who_in(scope: Scope) -> str:
    caller = caller_in(scope)
    if caller is not None and caller.name != LOCAL:
        return caller.name
    place = place_of(address_of(scope))
    peer = peer_of(scope)
    # Why a sign before it: a principal may be called as an address is.
    return f"@{place}" if place != LOOPBACK or peer is None or peer.uid is None else f"@user {peer.uid}"
