"""Who may make which call, and where: decided here for all calls, from what each declares that it needs.

Identity comes first, then the grant, then the session, which may narrow what its principal is and never widen it. What is left
are the bounds of the call. Nothing of the store is read before, but the caller's own partitions where one is named by UUID and
the access file has its name, or the other way round.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from keyplan.access import ANY, EVERYTHING, AccessFile, OnOperation, Principal
from keyplan.apps.runm.bounds import EVERY_PROJECT, UNBOUNDED, Bounds
from keyplan.apps.runm.callers import Callers
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.identity import parsed_uuid, spelled_project
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.refusal import denied
from keyplan.apps.runm.session import partition_named
from keyplan.operations import Need, OnKind, Rpc, rpcs_of
from keyplan.server import Role, RpcAsking, Token

__all__ = ["Admission", "Authorizer", "operation_of"]

_DECLARED: Final = tuple(
    one for interface in (MetadataOperations, ApiOperations) for one in rpcs_of(interface).values()
)
_NEEDS_DECIDED: Final = frozenset({OnKind.NOTHING, OnKind.OPERATION})


class Admission(NamedTuple):
    """A caller who may make a call, and what it may reach at most. `user` is None where the session says it alone."""

    who: str
    bounds: Bounds
    users: frozenset[str] | None = None


def operation_of(declared: Rpc) -> OnOperation:
    """Return what a grant on a call is on. A call of both services is one operation."""
    return OnOperation(f"runm.{declared.name}")


class Authorizer:
    """Decides for one deployment: by an access file, by tokens, or, without either, that everybody may do everything.

    `of_anybody` is what everybody is then admitted to, whatever the request; None when it has to be asked.
    """

    def __init__(
        self, deployment: Deployment, *, tokens: Sequence[Token] = (), access: AccessFile | None = None
    ) -> None:
        self._deployment = deployment
        self._callers = Callers(tokens, access, clock=deployment.clock)
        self._access = access
        self._believed = Admission("", Bounds(is_isolated=True) if deployment.rulings.is_isolated else UNBOUNDED)
        self.of_anybody = self._believed if self._callers.are_anybody else None

    def require_decidable(self, declared: Rpc) -> None:
        """Raise LookupError for a call whose need is not declared, or on something that nobody here can tell."""
        needs: object = declared.needs
        if not isinstance(needs, Need) or needs.on.kind not in _NEEDS_DECIDED:
            raise LookupError(f"{declared.name} does not declare what is needed for it: it cannot be served")

    def admitted(self, asking: RpcAsking, declared: Rpc) -> Admission:
        """Return who asks, and what the call may reach. Raises RefusedError: UNAUTHENTICATED, PERMISSION_DENIED."""
        if self._access is None:
            return self._by_tokens(asking)
        self.require_decidable(declared)
        policy = self._access.policy
        principal = self._callers.principal(policy, asking)
        act, on = declared.needs
        is_everywhere = policy.decide(principal.name, act, EVERYTHING).is_allowed
        if on.kind is not OnKind.NOTHING and not is_everywhere:
            decision = policy.decide(principal.name, act, operation_of(declared))
            if not decision.is_allowed:
                raise denied(f"{decision.reason}.", who=principal.name)
        users = principal.labelled("user") or frozenset({principal.name})
        return Admission(principal.name, self._bounds(principal, is_everywhere=is_everywhere), users)

    def narrow(self, admission: Admission, request: Any) -> None:
        """Make the session of a request the one that counts: what it leaves out is its principal's, where that is one.

        Raises RefusedError, PERMISSION_DENIED, when it claims a user, project, partition or role that is not its principal's.
        """
        if admission.users is None or "session" not in request.DESCRIPTOR.fields_by_name:
            return
        who, bounds, users = admission
        session = request.session
        session.user = _claimed(who, "user", session.user, users)
        if session.project != EVERY_PROJECT:
            session.project = _claimed(who, "project", spelled_project(session.project), bounds.projects)
        if bounds.partitions is None or not self._is_own_partition(session.partition, bounds.partitions):
            session.partition = _claimed(who, "partition", session.partition, bounds.partitions)
        if bounds.roles is not None:
            for role in session.roles:
                _claimed(who, "role", role, bounds.roles)
            if not session.roles:
                session.roles.extend(sorted(bounds.roles))

    def may_describe(self, asking: RpcAsking) -> bool:
        """Whether reflection tells a caller of our services: with an access file, who may call anything of them.

        Raises RefusedError, UNAUTHENTICATED, where callers have to be known.
        """
        if self._access is None:
            self._by_tokens(asking)
            return True
        policy = self._access.policy
        principal = self._callers.principal(policy, asking)
        return any(
            policy.decide(principal.name, declared.needs.act, operation_of(declared)).is_allowed
            for declared in _DECLARED
        )

    # ---- pieces ---------------------------------------------------------------------------------------------------------

    def _by_tokens(self, asking: RpcAsking) -> Admission:
        if self._callers.are_anybody:
            return self._believed
        known = self._callers.holder(asking)
        # Why: somebody has to make the partitions of an isolated deployment, and what holds for all of them.
        is_admin = any(token.role is Role.ADMIN for token in known)
        return Admission(known[0].name, UNBOUNDED if is_admin else self._believed.bounds)

    def _bounds(self, principal: Principal, *, is_everywhere: bool) -> Bounds:
        if is_everywhere:
            return Bounds(has_every_project=True)
        partitions = _names(map(_spelled_partition, principal.labelled("partition")))
        return Bounds(
            partitions=partitions,
            projects=_names(map(spelled_project, principal.labelled("project"))),
            roles=principal.labelled("role"),
            is_isolated=self._deployment.rulings.is_isolated and partitions is not None,
            has_every_project=True,
        )

    def _is_own_partition(self, text: str, own: frozenset[str]) -> bool:
        """Whether a session names one of the caller's partitions in the other way: by UUID where the file has the name."""
        is_uuid = parsed_uuid(text) is not None
        others = [name for name in own if (parsed_uuid(name) is None) is is_uuid]
        if not text or _spelled_partition(text) in own or not others:
            return False
        with self._deployment.reading() as state:
            records = [partition_named(state, name) for name in others]
        return any(one is not None and _spelled_partition(text) in {one.name, one.uuid.hex} for one in records)


def _claimed(who: str, kind: str, given: str, own: frozenset[str] | None) -> str:
    """What counts of a session: what is given, if it is the principal's; what is not given, if there is only one."""
    if not given:
        return next(iter(own)) if own is not None and len(own) == 1 else ""
    if own is not None and (_spelled_partition(given) if kind == "partition" else given) not in own:
        raise denied(f"the session's {kind} is none of {who}'s.", who=who)
    return given


def _names(labels: Iterable[str]) -> frozenset[str] | None:
    found = frozenset(labels)
    return None if ANY in found else found


def _spelled_partition(text: str) -> str:
    uuid = parsed_uuid(text)
    return text if uuid is None else uuid.hex
