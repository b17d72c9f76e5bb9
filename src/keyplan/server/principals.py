"""Callers as an access file knows them, and what each may do as it says.

Beside the file, services may keep principals of their own (`Service.principals`); the file's come first.

By a token first: one that is not known is nobody's, whatever else is known of the connection. Without one, by the certificate
of a TLS client, and then by the user at the other end of a unix socket. Being on this machine is not enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from operator import is_
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from keyplan.access import EVERYTHING, AccessFile, Policy, Principal, Target, idle_grants
from keyplan.audit_log import AuditLog
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import AccessDeniedError, InvalidInputError
from keyplan.operations import Act
from keyplan.server.access import Access, Caller, Role, caller_in, unauthorized
from keyplan.server.auditing import note_access_file
from keyplan.server.logs import LOGGER
from keyplan.server.peers import peer_of
from keyplan.server.proxies import is_passed_on

__all__ = ["KnownCallerRoute", "PolicyAccess", "WholeStoreOrOwnRoute", "WholeStoreRoute"]

_WHOLE_STORE = (Act.READ, Act.WRITE)


class _KeptPrincipals:
    """The principals that services keep, and the policy that they make with an access file's: made anew when one changes."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Sequence[Principal]]] = []
        """Each returns the same object until what it keeps changes."""
        self._made: tuple[Policy, list[Sequence[Principal]], Policy] | None = None

    def add(self, principals: Callable[[], Sequence[Principal]]) -> None:
        """Let what another service keeps count."""
        self.sources.append(principals)
        self._made = None

    def beside(self, policy: Policy) -> Policy:
        """Return the policy with what services keep; the same object until either changes."""
        found = [source() for source in self.sources]
        made = self._made
        # Why by identity: it is asked with every request.
        is_known = made is not None and made[0] is policy and all(map(is_, made[1], found))
        if made is None or not is_known:
            made = (policy, found, policy.beside(chain.from_iterable(found)))
            self._made = made
        return made[2]


@dataclass(frozen=True, kw_only=True)
class PolicyAccess(Access):
    """Who asks, and what they may do, by an access file. Tokens of roles and the role of this machine count for nothing."""

    file: AccessFile
    clock: Clock = SYSTEM_CLOCK
    kept: _KeptPrincipals = field(default_factory=_KeptPrincipals, compare=False, repr=False)

    @classmethod
    def of_file(cls, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> "PolicyAccess":
        """Read an access file; its changes are logged. Raises InvalidInputError when it is not sound."""

        def log(error: InvalidInputError | None) -> None:
            if error is None:
                LOGGER.info("the access file has changed", extra={"facts": {"access_file": str(path)}})
                _log_idle_grants(file)
                return
            facts = {"access_file": str(path), "error": str(error)}
            LOGGER.error("the access file is not sound: its last sound state counts on", extra={"facts": facts})

        file = AccessFile(path, monotonic=clock.monotonic, on_change=log)
        _log_idle_grants(file)
        return cls(file=file, clock=clock, local_role=None)

    @property
    def has_callers(self) -> bool:
        return True

    @property
    def policy(self) -> Policy:
        policy = self.file.policy
        return self.kept.beside(policy) if self.kept.sources else policy

    def take_in(self, principals: Callable[[], Sequence[Principal]]) -> None:
        self.kept.add(principals)

    def noted_in(self, log: AuditLog) -> None:
        note_access_file(log, self.file)

    def _holder(self, text: str) -> Caller | None:
        at = datetime.fromtimestamp(self.clock.wall(), UTC)
        policy = self.policy
        return _caller_of(policy, policy.known_by_token(text, at=at))

    def _without_token(self, scope: Scope, headers: Headers) -> Caller | None:
        peer = peer_of(scope)
        # Why not what a proxy passes on: it is the proxy that is at the other end, and not who asks.
        if peer is None or is_passed_on(scope):
            return None
        policy = self.policy
        if peer.certificate is not None:
            return _caller_of(policy, policy.known_by_certificate(*peer.certificate))
        return _caller_of(policy, policy.known_by_user(*peer.user)) if peer.user is not None else None

    def require(self, caller: Caller, act: Act, on: Target) -> None:
        if not self.allows(caller, act, on):
            raise AccessDeniedError(who=caller.name, act=str(act), where=str(on))

    def allows(self, caller: Caller, act: Act, on: Target) -> bool:
        return self.policy.allows(caller.name, act, on)

    def described(self) -> dict[str, Any]:
        policy = self.file.policy  # Why not what services keep: it comes and goes, and there may be thousands.
        administrators = [one.name for one in policy.principals if policy.may(one.name, Act.ADMINISTER)]
        others = [one.name for one in policy.principals if one.name not in administrators]
        return {
            "access_file": str(self.file.path),
            "administrators": administrators,
            "others": others,
            "anybody_else": "nothing",
            "trusted_proxies": self.proxies.described(),
            "allowed_origins": sorted(self.origins.names),
        }


def _caller_of(policy: Policy, principal: Principal | None) -> Caller | None:
    if principal is None:
        return None
    is_administrator = policy.may(principal.name, Act.ADMINISTER)
    return Caller(Role.ADMIN if is_administrator else Role.CLIENT, principal.name, principal)


def _log_idle_grants(file: AccessFile) -> None:
    """Warn of grants that let nobody do anything. Why not refuse them: the file may be that of other servers, too."""
    for principal, grant, problem in idle_grants(file.policy):
        place = f"{file.path}:{grant.line}"
        facts = {"place": place, "principal": principal, "act": grant.act, "on": str(grant.on), "problem": problem}
        LOGGER.warning("a grant lets nobody do anything", extra={"facts": facts})


class KnownCallerRoute(BaseRoute):
    """A route that nobody comes through whom nobody knows, whatever the gate let in for another one.

    Why beside the gate: it lets in, without a caller, what a service with a log-in of its own may have a route for, and which
    route is taken of two that fit is found out later.
    """

    def __init__(self, route: BaseRoute) -> None:
        self._route = route
        self.path: str = getattr(route, "path", "")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether the request is for the service's route."""
        return self._route.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in or refuse it. Raises AnswerError, AccessDeniedError."""
        caller = caller_in(scope)
        if caller is None:
            raise unauthorized()
        self.admit(caller)
        await self._route.handle(scope, receive, send)

    def admit(self, caller: Caller) -> None:
        """Return if this caller may come through."""


class WholeStoreRoute(KnownCallerRoute):
    """A route of a service that cannot confine its callers to what they may see: it is for those who may see everything.

    Who has no grant to read and write everything is refused before the service hears of the request.
    """

    def __init__(self, route: BaseRoute, access: Access) -> None:
        super().__init__(route)
        self._access = access

    def admit(self, caller: Caller) -> None:
        for act in _WHOLE_STORE:
            self._access.require(caller, act, EVERYTHING)


class WholeStoreOrOwnRoute(WholeStoreRoute):
    """The same of a service with a log-in of its own: a request without a caller is that service's to refuse."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if caller_in(scope) is None:
            await self._route.handle(scope, receive, send)
        else:
            await super().handle(scope, receive, send)
