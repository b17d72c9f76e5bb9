"""The steps of a rotation: other logins made and seen on every node, all nodes told, and the former ones let end.

Nothing is refused meanwhile: a login is told to nobody before every node of the cluster takes it, and none ends before nobody
uses it. A password is in the store first where it is used; a broker that dies before that leaves a role which the next one
gives another password.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import psycopg

from keyplan.apps.patroni.catalog import Catalog
from keyplan.apps.patroni.cluster_login import new_store_credentials, replace_logins
from keyplan.apps.patroni.clusters import leader_of
from keyplan.apps.patroni.layout import BindingKey, Broker, MemberKey
from keyplan.apps.patroni.login_roles import (
    DATABASE,
    drop_former,
    end_sessions,
    free_name,
    let_former_end,
    logged_in,
    make_role,
    refusal,
)
from keyplan.apps.patroni.logins import FIELDS, ROLES, LoginKind, kinds_in, login_base, login_number
from keyplan.apps.patroni.node_config import LOGINS_TAG
from keyplan.apps.patroni.operation_progress import OperationProgress
from keyplan.apps.patroni.operations import new_password
from keyplan.apps.patroni.postgresql_roles import GROUP_ROLE, binding_roles, create_role
from keyplan.apps.patroni.records import Binding, Credentials, InstanceState, Member, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError

__all__ = ["LoginSteps"]


class LoginSteps:
    """The steps by their words. Each raises StepFailedError, StoppedError, SupersededError, and KeyplanError of the store."""

    def __init__(self, progress: OperationProgress, catalog: Catalog) -> None:
        self._progress = progress
        self._latest = progress.latest
        self._instance = progress.instance
        self._catalog = catalog
        self.steps: Final[Mapping[str, Callable[[Step], None]]] = {
            "make_logins": self._make_logins,
            "wait_logins": self._wait_logins,
            "end_logins": self._end_logins,
            "rotate_binding": self._rotate_binding,
            "settle_bindings": self._settle_bindings,
        }

    # ---- the instance's own ---------------------------------------------------------------------------------------------

    def _make_logins(self, step: Step) -> None:
        """Make the logins, and tell them, in the commit that ends the step: until then nobody has seen their passwords."""
        state = self._state()
        made = {kind: _fresh(state, kind) for kind in kinds_in(step.target)}
        self._until(partial(self._missing_roles, state, made))
        now, waits = self._progress.clock.wall(), self._progress.waits
        # Why so long: nodes are waited for with the former token, and the step that ends it says until when.
        former_until = now + waits.step_seconds_max + self._progress.current().keep_seconds

        def told(broker: Broker) -> None:
            replace_logins(broker, self._instance, made, now=now, former_until=former_until)

        self._progress.complete(told)

    def _missing_roles(self, state: InstanceState, made: dict[LoginKind, Credentials]) -> str:
        """Make the roles at the leader, and return which node does not take one of them yet."""
        superuser = state.superuser_credentials
        roles = {kind: role for kind, role in made.items() if kind in ROLES}
        if not roles:
            return ""
        address = self._leader_address()
        for kind, role in roles.items():
            if not role.username or refusal(address, role, _database_of(kind)):
                former: Credentials = getattr(state, FIELDS[kind])
                # Why not from the start: which names are free the server knows.
                taken = _in_use(state) | {other.username for other in made.values() if other is not role}
                role.username = free_name(address, superuser, former.username or ROLES[kind], taken)
                make_role(address, superuser, kind, role, former=former.username)
        for node, place in self._addresses().items():
            for kind, role in roles.items():
                if problem := refusal(place, role, _database_of(kind)):
                    return f"{node} does not know {role.username} yet: {problem}"
        return ""

    def _wait_logins(self, step: Step) -> None:
        self._until(partial(self._missing_logins, {*kinds_in(step.target)}))
        self._progress.complete()

    def _missing_logins(self, kinds: set[LoginKind]) -> str:
        """Return which node does not log in anew yet: its member says what its Patroni has read, and PostgreSQL who is in."""
        state = self._state()
        is_for_all = bool(kinds - {LoginKind.TOKEN})
        for node, cell in self._placed().items():
            member = self._latest.members.get(MemberKey(self._instance, node))
            # Why not all: a token that others have too is not to wait for a machine that is away.
            if _logins_read(member) < state.logins and (is_for_all or self._latest.cells.exists(cell)):
                return f"{node} has not read its new logins yet"
        if not kinds & {LoginKind.SUPERUSER, LoginKind.REPLICATION}:
            return ""
        leader = leader_of(self._latest, self._instance)
        for node, address in self._addresses().items():
            found = logged_in(address, state.superuser_credentials)
            if LoginKind.SUPERUSER in kinds and found.patroni != {state.superuser_credentials.username}:
                return f"Patroni of {node} has not logged in anew yet"
            if leader is None or node != leader[0]:
                continue
            for name in self._placed().keys() - {node} if LoginKind.REPLICATION in kinds else ():
                if found.standbys.get(name) != state.replication_credentials.username:
                    return f"{name} does not stream as {state.replication_credentials.username} yet"
        return ""

    def _end_logins(self, step: Step) -> None:
        kinds, keep_seconds = kinds_in(step.target), self._progress.current().keep_seconds
        state = self._state()
        roles = [getattr(state, FIELDS[kind]).username for kind in kinds if kind in ROLES]
        self._until(partial(self._ended, state.superuser_credentials, roles, DATABASE, keep_seconds, heir=""))

        def ended(broker: Broker) -> None:
            current = broker.instances.require(self._instance)
            if LoginKind.TOKEN in kinds:
                current.former_store_until = self._progress.clock.wall() + keep_seconds
                broker.instances.put(self._instance, current)

        self._progress.complete(ended)

    def _ended(
        self, superuser: Credentials, roles: Sequence[str], database: str, keep_seconds: float, *, heir: str
    ) -> str:
        """Let former roles end; what has ended by now has no session on any node, and is dropped. Return an empty text."""
        current = _in_use(self._state())
        for role in roles:
            address = self._leader_address()
            over = let_former_end(
                address,
                superuser,
                role,
                keep_seconds=keep_seconds,
                current=current,
                database=database,
                is_name_ours=bool(heir),
            )
            if over:
                for place in self._addresses().values():
                    end_sessions(place, superuser, over)
                drop_former(address, superuser, over, database=database, heir=heir)
        return ""

    # ---- bindings -------------------------------------------------------------------------------------------------------

    def _rotate_binding(self, step: Step) -> None:
        """Give a binding another user; its former one counts for a while. A binding that is gone, or goes, is passed over."""
        key = BindingKey(self._instance, step.node)
        record = self._latest.bindings.get(key)
        if not step.mark:
            if record is None or record.state != "ready":
                self._progress.complete()
                return
            step.mark = f"{login_base(record.credentials.username)}_{login_number(record.credentials.username) + 1}"
            self._progress.note(step)
        superuser = self._state().superuser_credentials
        database = self._database(record)
        if record is not None and record.state == "ready" and record.credentials.username != step.mark:
            credentials = Credentials(username=step.mark, password=new_password())
            self._until(partial(self._missing_role, superuser, database, credentials))
            now = self._progress.clock.wall()
            record = self._progress.commit(partial(_adopted, key, record.credentials.username, credentials, now))
        if record is not None and record.state == "ready":
            keep_seconds = self._progress.current().keep_seconds
            self._until(partial(self._ended, superuser, [step.mark], database, keep_seconds, heir=GROUP_ROLE))
        else:
            # Why: it was unbound meanwhile, perhaps before its other role was made.
            self._until(partial(self._dropped, superuser, database, step.mark))
        self._progress.complete()

    def _missing_role(self, superuser: Credentials, database: str, role: Credentials) -> str:
        address = self._leader_address()
        if refusal(address, role, database):
            create_role(address, superuser, database, role)
        for node, place in self._addresses().items():
            if problem := refusal(place, role, database):
                return f"{node} does not know {role.username} yet: {problem}"
        return ""

    def _dropped(self, superuser: Credentials, database: str, role: str) -> str:
        drop_former(self._leader_address(), superuser, [role], database=database, heir=GROUP_ROLE)
        return ""

    def _settle_bindings(self, _step: Step) -> None:
        """Make the users of all bindings, and end those of bindings that are gone: the database is that of another time."""
        self._until(self._unsettled)
        self._progress.complete()

    def _unsettled(self) -> str:
        state, address = self._state(), self._leader_address()
        records = [record for _, record in self._latest.bindings.list(self._instance)]
        for record in records:
            if record.state == "ready":
                create_role(address, state.superuser_credentials, self._database(record), record.credentials)
        bound = {record.credentials.username for record in records}
        made = binding_roles(address, state.superuser_credentials, DATABASE)
        gone = [role for role in made if role not in bound]
        drop_former(address, state.superuser_credentials, gone, database=self._database(state), heir=GROUP_ROLE)
        return ""

    def _database(self, record: Binding | InstanceState | None) -> str:
        try:
            return DATABASE if record is None else self._catalog.plan(record.service_id, record.plan_id).database
        except RefusedError:
            return DATABASE  # Why: a plan that was taken out of the catalog had, as far as is known, the defaults.

    # ---- the cluster ----------------------------------------------------------------------------------------------------

    def _until(self, problem: Callable[[], str]) -> None:
        """Wait until `problem` returns an empty text; a server that cannot be asked is asked again."""

        def asked() -> str:
            try:
                return problem()
            except psycopg.Error as error:
                return f"PostgreSQL: {(str(error).strip().splitlines() or [type(error).__name__])[-1]}"
            except _AwayError as error:
                return str(error)

        self._progress.until(asked, self._progress.waits.step_seconds_max)

    def _state(self) -> InstanceState:
        return self._latest.instances.require(self._instance)

    def _placed(self) -> dict[str, str]:
        return {key.node: cell for key, cell in self._latest.nodes.list(self._instance)}

    def _leader_address(self) -> str:
        found = leader_of(self._latest, self._instance)
        if found is None or found[1].address is None:
            raise _AwayError("the cluster has no leader")
        return found[1].address

    def _addresses(self) -> dict[str, str]:
        """Return where each node's PostgreSQL is. Raises _AwayError while one is no member, as after a breath of its store."""
        found: dict[str, str] = {}
        for node in self._placed():
            member = self._latest.members.get(MemberKey(self._instance, node))
            if member is None or member.address is None:
                raise _AwayError(f"{node} is no member of its cluster")
            found[node] = member.address
        return found


class _AwayError(Exception):
    """Whoever has to be asked is not there at the moment. The text says who."""


def _fresh(state: InstanceState, kind: LoginKind) -> Credentials:
    """Return credentials that nobody had before; a role's name is found where it is made."""
    if kind is LoginKind.TOKEN:
        return new_store_credentials(state.instance_id)
    former: Credentials = getattr(state, FIELDS[kind])
    return Credentials(username="" if kind in ROLES else former.username, password=new_password())


def _in_use(state: InstanceState) -> set[str]:
    """Return the roles that an instance logs in as now: of an adopted cluster one's name may be the beginning of another's."""
    return {getattr(state, FIELDS[kind]).username for kind in ROLES}


def _database_of(kind: LoginKind) -> str | None:
    return None if kind is LoginKind.REPLICATION else DATABASE


def _logins_read(member: Member | None) -> int:
    """Return which logins a member's Patroni has read."""
    tags = member.unknown.get("tags") if member is not None else None
    number = tags.get(LOGINS_TAG) if isinstance(tags, dict) else None
    return number if isinstance(number, int) else 0


def _adopted(
    key: BindingKey, former: str, credentials: Credentials, now: float, broker: Broker, _operation: Operation
) -> Binding | None:
    """Give a binding its other user, where it is as it was; return it as it is then."""
    record = broker.bindings.get(key)
    if record is not None and record.state == "ready" and record.credentials.username == former:
        record.credentials, record.rotated_at = credentials, now
        broker.bindings.put(key, record)
    return record
