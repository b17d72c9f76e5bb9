"""Sessions of logged-in users, in this process's memory, and the bound on failed logins. For one event loop.

The cookie holds 256 random bits and nothing else. A session is good while its user is the same account, enabled, with the same
password: whoever asks for a session compares it with the store, so that several servers agree.
"""

import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.requests import Request

from keyplan.apps.cloudchamber.records import User
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, no_session, permission_denied
from keyplan.engine import Clock
from keyplan.layout import Versioned
from keyplan.server import place_of

__all__ = ["COOKIE", "AuthenticatedRequest", "LoginBound", "Session", "SessionTable"]

COOKIE: Final = "CC-Session"
FAILURES_MAX: Final = 10
FAILURES_OF_CLIENT_MAX: Final = 100
FAILURES_OF_USER_MAX: Final = 100
"""Of all clients together that the user was not let in from. Why: a hundred machines find no more passwords than ten."""
WINDOW_SECONDS: Final = 60.0
"""Why: ten guesses a minute find no password; a person who mistypes has another try."""
SESSIONS_SHARE: Final = 10
"""Which part of the sessions one user may have at most: a tenth, and one at least."""
COUNTED_MAX: Final = 10_000
"""Why: a bound on memory; whoever cycles through so many names has long met the bound of one client."""


@dataclass
class Session:
    """One login: `id` for people, `secret` for the cookie. `expires_at` is on the monotonic clock."""

    id: int
    secret: str = field(repr=False)
    user: str
    account_revision: int
    password_mark: bytes = field(repr=False)
    expires_at: float

    def is_of(self, user: Versioned[str, User] | None) -> bool:
        """Tell whether this is still the account that logged in, and may."""
        return (
            user is not None
            and user.record.enabled
            and user.create_revision == self.account_revision
            and secrets.compare_digest(_mark(user.record.password_hash.reveal()), self.password_mark)
        )


class SessionTable:
    """The sessions of one server, at most `sessions_max`; each ends `inactivity_seconds` after its last use.

    One user has a part of them at most, a tenth unless `of_user_max` says how many: whoever logs in again and again ends
    sessions of their own, and nobody else's.
    """

    def __init__(
        self, clock: Clock, *, inactivity_seconds: float, sessions_max: int, of_user_max: int | None = None
    ) -> None:
        self._clock = clock
        self.inactivity_seconds = inactivity_seconds
        self._sessions_max = sessions_max
        self._of_user_max = max(1, sessions_max // SESSIONS_SHARE) if of_user_max is None else of_user_max
        self._by_secret: dict[bytes, Session] = {}
        self._last_id = 0

    def open(self, user: Versioned[str, User]) -> Session:
        """Begin a session. The user's oldest makes room for it where they have as many as one user may, or the server is full.

        Raises RefusedError (400) when there are as many as may be, none of them this user's.
        """
        self._drop_expired()
        own = [one for one in self if one.user == user.key]
        is_full = len(self._by_secret) >= self._sessions_max
        if own and (is_full or len(own) >= self._of_user_max):
            self.close(own[0])
        elif is_full:
            raise invalid("the number of active sessions is at its limit")
        self._last_id += 1
        secret = secrets.token_urlsafe(32)
        session = Session(
            self._last_id,
            secret,
            user.key,
            user.create_revision,
            _mark(user.record.password_hash.reveal()),
            self._expiry(),
        )
        self._by_secret[_mark(secret.encode())] = session
        return session

    def find(self, secret: str) -> Session | None:
        """Return the session of a cookie, and let it live on from now; None when there is none, or none any more."""
        mark = _mark(secret.encode("utf-8", "surrogateescape"))
        session = self._by_secret.get(mark)
        if session is None:
            return None
        if session.expires_at <= self._clock.monotonic():
            del self._by_secret[mark]
            return None
        session.expires_at = self._expiry()
        return session

    def renew(self, session: Session, user: User) -> None:
        """Keep a session whose user has just changed its own password."""
        session.password_mark = _mark(user.password_hash.reveal())

    def close(self, session: Session) -> None:
        """End a session. Ending it twice is harmless."""
        self._by_secret.pop(_mark(session.secret.encode()), None)

    def is_open(self, session: Session) -> bool:
        """Tell whether a session was not ended, and lives still."""
        return _mark(session.secret.encode()) in self._by_secret and session.expires_at > self._clock.monotonic()

    def of_id(self, number: int) -> Session | None:
        """Return the session of this number, without letting it live longer."""
        return next((session for session in self if session.id == number), None)

    def __iter__(self) -> Iterator[Session]:
        self._drop_expired()
        return iter(sorted(self._by_secret.values(), key=lambda session: session.id))

    def seconds_left(self, session: Session) -> float:
        """Return how long a session lives on if nothing happens."""
        return session.expires_at - self._clock.monotonic()

    def _expiry(self) -> float:
        return self._clock.monotonic() + self.inactivity_seconds

    def _drop_expired(self) -> None:
        now = self._clock.monotonic()
        self._by_secret = {mark: one for mark, one in self._by_secret.items() if one.expires_at > now}


async def _refuse() -> None:
    raise no_session()


@dataclass
class AuthenticatedRequest:
    """A request over HTTP and its session; None: nobody is logged in. What becomes of the cookie stands here, too.

    `principal` is who asks without a session, by the server's access file, and was granted what the request is for. Trap: it is
    the name of no account, though an account may have the same. `decide` returns while the grant is there; it raises
    AccessDeniedError, and for nobody RefusedError.
    """

    http: Request
    session: Session | None
    principal: str | None = None
    decide: Callable[[], Awaitable[None]] = _refuse
    opened: Session | None = None
    is_logged_out: bool = False

    @property
    def caller(self) -> str:
        """The key of the user who asks. Raises RefusedError (403)."""
        if self.session is None:
            raise permission_denied()
        return self.session.user

    @property
    def account(self) -> str | None:
        """The key of the user who asks; None for a principal."""
        return None if self.session is None else self.session.user

    @property
    def waits_as(self) -> str:
        """By what those who wait are counted. Raises RefusedError (403) for nobody."""
        # Why a blank: no account's key has one.
        return self.caller if self.principal is None else f"principal {self.principal}"

    @property
    def client(self) -> str:
        """What the address that the request comes from counts as."""
        return "" if self.http.client is None else place_of(self.http.client.host)


class LoginBound:
    """Bounds the guesses of passwords: by client and user, by client, and by user. Every try counts until it has succeeded.

    The bound of a user is on clients that user has not been let in from: a stranger who guesses, from however many addresses,
    keeps nobody out from where they work. `client` is an address; of IPv6 its network counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: OrderedDict[_Counted, deque[float]] = OrderedDict()
        self._proven: OrderedDict[_Counted, None] = OrderedDict()

    def begin(self, client: str, user: str) -> None:
        """Count a try. Raises RefusedError (429) when there were too many in the last minute."""
        now, bounds = self._clock.monotonic(), self._bounds(client, user)
        for key, most in bounds.items():
            # Why none is made here: a try that is refused costs nothing, and would push out what others are counted for.
            tries = self._tries.get(key)
            while tries and tries[0] <= now - WINDOW_SECONDS:
                tries.popleft()
            if tries and len(tries) >= most:
                wait = str(int(tries[0] + WINDOW_SECONDS - now) + 1)
                raise RefusedError(429, "too many failed logins, try again later", headers={"Retry-After": wait})
        for key in bounds:
            self._tries.setdefault(key, deque()).append(now)
            self._tries.move_to_end(key)
        while len(self._tries) > COUNTED_MAX:
            self._tries.popitem(last=False)

    def succeeded(self, client: str, user: str) -> None:
        """Forget the tries of who turned out to know the password, and remember that it was from there."""
        both, *others = self._bounds(client, user)
        self._tries.pop(both, None)
        for key in others:
            if tries := self._tries.get(key):
                tries.pop()
        self._proven[both] = None
        self._proven.move_to_end(both)
        if len(self._proven) > COUNTED_MAX:
            self._proven.popitem(last=False)

    def _bounds(self, client: str, user: str) -> dict["_Counted", int]:
        """Return what a try counts for, and how many may."""
        place = place_of(client)
        both = _Counted(place, user)
        bounds = {both: FAILURES_MAX, _Counted(place, None): FAILURES_OF_CLIENT_MAX}
        # Why without counting them: who mistypes where they work takes nothing from who is elsewhere.
        return bounds if both in self._proven else {**bounds, _Counted(None, user): FAILURES_OF_USER_MAX}


class _Counted(NamedTuple):
    """What tries are counted for; None: of all clients, of all users."""

    client: str | None
    user: str | None


def _mark(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()
