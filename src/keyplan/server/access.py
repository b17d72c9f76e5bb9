"""Who asks, and what they may do: roles by token, and by the address that a request comes from.

Tokens are kept as SHA-256 sums and compared in constant time, all of them each time. A request without a token is somebody on
this machine, or nobody:

- it came over a unix socket, or from a loopback address and a process of the server's own user, and
- nothing about it says that a proxy passed it on, and
- it names this machine as its host: a page of another site that was made to resolve to 127.0.0.1 does not, and
- no page of another site had a browser make it.

With an access file, none of this counts: see `principals`.
"""

import hashlib
import hmac
from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from keyplan.access import Policy, Principal, Target
from keyplan.audit_log import AuditLog
from keyplan.operations import Act
from keyplan.server.answers import AnswerError
from keyplan.server.guessing import Guesses
from keyplan.server.loopback import can_tell_users
from keyplan.server.origins import AllowedOrigins
from keyplan.server.peers import peer_of
from keyplan.server.proxies import TrustedProxies, is_over_unix, is_passed_on

__all__ = [
    "LOCAL",
    "TOKEN_CHARACTERS_MIN",
    "Access",
    "Caller",
    "Role",
    "Token",
    "caller_in",
    "caller_of",
    "is_loopback",
    "require_admin",
    "require_unrefused",
    "set_caller",
    "unauthorized",
]

TOKEN_CHARACTERS_MIN: Final = 16
"""Why: a shorter one can be guessed over a network within a token's life."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ADDRESSES_MAX: Final = 1_024
"""Why: reading an address takes longer than reading a small key, and a client that stays asks from one address."""
_CALLER: Final = "keyplan.caller"
_REFUSAL: Final = "keyplan.refusal"
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="keyplan", Basic realm="keyplan", charset="UTF-8"'}

LOCAL: Final = "local"
"""The name of whoever asks without a token, from this machine: no token has it."""


class Role(StrEnum):
    """What a caller may do: a client what every application may, an administrator everything."""

    CLIENT = auto()
    ADMIN = auto()


class Caller(NamedTuple):
    """Who asks. `name` is the token's or the principal's, or `local` without one; it stands in audit logs.

    `principal` is who the access file says that it is; None where the server has none.
    """

    role: Role
    name: str
    principal: Principal | None = None

    @property
    def known_by(self) -> str:
        """How it is known who asks: a `principal` of the access file, a `token`, or being `local`."""
        if self.principal is not None:
            return "principal"
        return LOCAL if self.name == LOCAL else "token"


class Token(NamedTuple):
    """A bearer token by its SHA-256 sum: who has it, and what they may do."""

    role: Role
    name: str
    digest: bytes

    @classmethod
    def of_text(cls, role: Role, name: str, text: str) -> "Token":
        """The token with this text."""
        return cls(role, name, hashlib.sha256(text.encode()).digest())


@dataclass(frozen=True)
class Access:
    """The tokens, and the role of a request without one from this machine; None: such a request is nobody's.

    `is_open_to_other_users`: over loopback it is every user of this machine, and not only who runs the server. `proxies` are
    those whose word counts for where a request comes from. Pages of `origins` may ask as the server's own pages may. `guesses`
    counts wrong tokens.

    What a caller may do, its role says. With an access file (`PolicyAccess`) every caller is a principal, and it is granted.
    """

    tokens: Sequence[Token] = ()
    local_role: Role | None = Role.CLIENT
    host_names: frozenset[str] = field(default_factory=frozenset)
    is_open_to_other_users: bool = False
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    origins: AllowedOrigins = field(default_factory=AllowedOrigins)
    guesses: Guesses = field(default_factory=Guesses, compare=False, repr=False)

    @property
    def has_callers(self) -> bool:
        """True when callers are known by more than being on this machine: then others may reach the server, too."""
        return bool(self.tokens)

    @property
    def policy(self) -> Policy | None:
        """What an access file says now, the same object until it changes; then `require` and `allows` decide, and no role.

        None without an access file.
        """
        return None

    def take_in(self, principals: Callable[[], Sequence[Principal]]) -> None:
        """Let principals that a service keeps be known, too: `principals` returns the same object until they change.

        Nothing happens without an access file: where roles decide, a token that is good for a part of the store is nobody's.
        """

    def caller(self, scope: Scope) -> Caller | None:
        """Return who made a request, or None for nobody: no token and not from this machine, or a token that is not known.

        Raises AnswerError (403 `cross_site`) for a request that a page of another site had a browser make, unless it is a link
        that somebody followed.
        """
        headers = Headers(scope=scope)
        given = headers.get("authorization")
        if given is not None:
            scheme, _, credentials = given.partition(" ")
            if scheme.lower() == "bearer":
                return self._holder(credentials.strip())
            if scheme.lower() != "basic":
                return self._holder_of_bare(given)
        self._refuse_cross_site(scope, headers)
        if given is not None:
            return self._holder(_password(given))
        return self._without_token(scope, headers)

    def require(self, caller: Caller, act: Act, on: Target) -> None:
        """Return if a caller may act on a target. Raises AccessDeniedError. Without an access file, roles decide elsewhere."""

    def allows(self, caller: Caller, act: Act, on: Target) -> bool:
        """Tell whether a caller may act on a target. Without an access file, roles decide elsewhere."""
        return True

    def noted_in(self, log: AuditLog) -> None:
        """Have changes of who may do what stand in an audit log. Without an access file there are none while a server runs."""

    def described(self) -> dict[str, Any]:
        """Return who may ask and as what, for the server's log."""
        roles = {role: [token.name for token in self.tokens if token.role is role] for role in Role}
        return {
            "without_token": f"{self._described_users()}, as {self.local_role}" if self.local_role else "nobody",
            "administrators": roles[Role.ADMIN],
            "clients": roles[Role.CLIENT],
            "trusted_proxies": self.proxies.described(),
            "allowed_origins": sorted(self.origins.names),
        }

    def _described_users(self) -> str:
        is_anybody = self.is_open_to_other_users or not can_tell_users()
        return "whoever is on this machine" if is_anybody else "who runs this server, on this machine"

    def _without_token(self, scope: Scope, headers: Headers) -> Caller | None:
        if self.local_role is None or not self._is_local(scope, headers):
            return None
        return Caller(self.local_role, LOCAL)

    def _holder_of_bare(self, text: str) -> Caller | None:
        """Who sends a token without a word before it, as clients of etcd do."""
        return self._holder(text)

    def _holder(self, text: str) -> Caller | None:
        # Why: a file may have the sum of nothing, made of a variable that was empty, and nobody is to be known by nothing.
        if len(text) < TOKEN_CHARACTERS_MIN:
            return None
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
        holder = None
        for token in self.tokens:  # Invariant: every token is compared, so that the time tells nothing.
            if hmac.compare_digest(token.digest, digest):
                holder = Caller(token.role, token.name)
        return holder

    def _is_local(self, scope: Scope, headers: Headers) -> bool:
        if is_passed_on(scope):
            return False
        if is_over_unix(scope):
            return True  # Why: who may open it, the file's permissions say.
        client = scope.get("client")
        if client is None or not is_loopback(client[0]) or not self._names_this_machine(headers.get("host")):
            return False
        # Why last: the kernel is asked for it, once for each connection.
        peer = None if self.is_open_to_other_users else peer_of(scope)
        return peer is None or peer.is_own_user

    def _names_this_machine(self, host: str | None) -> bool:
        if host is None:
            return True  # Why: browsers, which are to be kept out here, always send it.
        name = _host_name(host)
        return name in self.host_names or name == "localhost" or name.endswith(".localhost") or is_loopback(name)

    def _refuse_cross_site(self, scope: Scope, headers: Headers) -> None:
        if self.origins.named_in(scope) is not None:
            return
        is_safe = scope["type"] == "http" and scope["method"] in _SAFE_METHODS
        if is_safe and headers.get("sec-fetch-mode") == "navigate":
            return  # Why: a page that opens belongs to nobody but its reader; the page that led to it sees nothing of it.
        origin = headers.get("origin")
        is_foreign = headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}
        if origin is not None:
            # Trap: urlsplit raises for what is no URL, and anybody may send that.
            own = headers.get("host", "").lower()
            is_foreign = is_foreign or not own or origin.partition("://")[2].lower() != own
        if is_foreign:
            raise AnswerError(403, "cross_site", "a page of another site may not ask here without a token of its own")


def caller_of(connection: HTTPConnection) -> Caller | None:
    """Return who made this request; None only for a service with its own access."""
    return caller_in(connection.scope)


def caller_in(scope: Scope) -> Caller | None:
    """Return the same of a request's scope."""
    caller: Caller | None = scope.get(_CALLER)
    return caller


def set_caller(scope: Scope, caller: Caller | None, *, refusal: AnswerError | None = None) -> None:
    """Keep who made a request; of nobody's, what it is to be refused with, where a service has a log-in of its own."""
    scope[_CALLER], scope[_REFUSAL] = caller, refusal


def require_unrefused(connection: HTTPConnection) -> None:
    """Return unless a request has a token that is not known, or a page of another site caused it. Raises AnswerError.

    For a service with a log-in of its own. Browsers send its cookie along whoever has them ask: SameSite knows no ports.
    """
    refusal: AnswerError | None = connection.scope.get(_REFUSAL)
    if refusal is not None:
        raise refusal


def unauthorized() -> AnswerError:
    """Return the failure of a request that is nobody's."""
    return AnswerError(401, "unauthorized", "a token is needed, or the one given is not known", headers=_CHALLENGE)


def require_admin(connection: HTTPConnection) -> Caller:
    """Return who made this request. Raises AnswerError (403 `forbidden`) unless it is an administrator."""
    caller = caller_of(connection)
    if caller is None or caller.role is not Role.ADMIN:
        raise AnswerError(403, "forbidden", "this needs the role of an administrator")
    return caller


@lru_cache(maxsize=_ADDRESSES_MAX)
def is_loopback(address: str) -> bool:
    """Tell whether an IP address is this machine's own loopback; False for a name."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _password(authorization: str) -> str:
    """The password of HTTP's basic authentication: browsers ask for one, and it is the token."""
    try:
        pair = b64decode(authorization.partition(" ")[2], validate=True).decode()
    except (BinasciiError, UnicodeDecodeError):
        return ""
    return pair.partition(":")[2]
