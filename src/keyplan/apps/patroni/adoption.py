"""Clusters that others made become instances of ours, and are forgotten again: records of the store alone, nothing of theirs.

`Adoption.planned` reads what there is and refuses what cannot be; `check` asks the members, by the users that the operator
gives; `adopt` writes, in one commit, guarded by the leader, the system identifier and the members that were seen.
"""

from typing import Final

import msgspec
from msgspec import Struct, field

from keyplan.apps.patroni import patroni_rest
from keyplan.apps.patroni.catalog import NODES_MAX, Offer, Plan
from keyplan.apps.patroni.clusters import leader_of, members_astray, outside_nodes
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import OUTSIDE, BindingKey, Broker, MemberKey, NodeKey
from keyplan.apps.patroni.operations import SUCCESS, new_operation, note_progress, refuse_under_way
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.records import Credentials, InstanceState, Member
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.codec import secret_of_plain
from keyplan.engine import Clock
from keyplan.layout import Binding, Damaged
from keyplan.store import Store

__all__ = ["Adoption", "Found", "FoundNode", "Logins", "Released", "logins_of", "release"]

_BATCH: Final = 20
"""Why: etcd takes 128 operations a commit."""
_TOLD_MAX: Final = 100


class Logins(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The users of a cluster, as its own configuration has them. `rest` is empty where Patroni's REST API asks for none.

    `rewind` is whom pg_rewind logs in as on nodes that ours add; the superuser, where there is none.
    """

    superuser: Credentials
    replication: Credentials
    rest: Credentials = field(default_factory=Credentials)
    rewind: Credentials = field(default_factory=Credentials)


class FoundNode(Struct, frozen=True, kw_only=True):
    """A member that becomes a node: on a cell that has it, or OUTSIDE. `problem` is why it cannot be counted on now."""

    name: str
    cell: str
    address: str
    problem: str


class Found(Struct, frozen=True, kw_only=True):
    """A cluster as it was found, which nothing is written of yet. `port` is the one that it has, None where it gets one."""

    instance: str
    leader: str
    identifier: str
    port: int | None
    nodes: list[FoundNode]


class Adoption:
    """Makes a cluster below `/service` an instance.

    Raises RefusedError: 404 where there is none, 409 where it is ours, 422 where it cannot be adopted now.
    """

    def __init__(self, store: Store, ports: PortAllocator, clock: Clock) -> None:
        self._store = store
        self._ports = ports
        self._clock = clock
        self._events = EventLog(store, clock)

    def planned(self, instance: str) -> Found:
        """Return the cluster as it is. Nothing is written, and nobody is asked."""
        with self._store.snapshot() as state:
            return _found(Broker(state), instance)

    def check(self, found: Found, logins: Logins) -> str:
        """Ask the leader's PostgreSQL, and every member's Patroni, whether all is as found and the users are right.

        Return the major version that PostgreSQL is of. Nothing of theirs is changed. Raises RefusedError (422), which names who
        answers otherwise, and how.
        """
        _refuse_incomplete(logins)
        with self._store.snapshot() as state:
            broker = Broker(state)
            members = {node.name: broker.members.require(MemberKey(found.instance, node.name)) for node in found.nodes}
        for name, member in members.items():
            _check_member(found.instance, name, member)
        return _check_users(found, members[found.leader], logins)

    def adopt(self, found: Found, logins: Logins, offer: Offer, plan: Plan, *, version: str = "") -> InstanceState:
        """Write the instance, its nodes and its port, in one commit. Raises RefusedError (422) where it has changed since.

        `version` is the major version that `check` returned: nodes of cells are made of it.
        """

        def work(binding: Binding) -> InstanceState:
            broker = Broker(binding)
            _refuse_ours(broker, found.instance)
            seen = (broker.leaders.get(found.instance), broker.initializations.get(found.instance))
            if seen != (found.leader, found.identifier):
                raise RefusedError(422, "its leader or its system identifier has changed meanwhile; try again")
            if [key.member for key in broker.members.keys(found.instance)] != [node.name for node in found.nodes]:
                raise RefusedError(422, "its members have changed meanwhile; try again")
            port = self._ports.allocate_in(binding, found.instance)
            self._ports.allocate_reads_in(binding, found.instance, port)
            for node in found.nodes:
                key = NodeKey(found.instance, node.name)
                if broker.nodes.get(key) is None:
                    broker.nodes.insert(key, node.cell)
            state = self._state(found, logins, offer, plan, port, version)
            made = new_operation(self._clock, "adopt", [], state.parameters)
            made.status, made.message, made.ended_at = SUCCESS, "adopted", made.begun_at
            made.plan_id, made.node_count = state.plan_id, state.node_count
            note_progress(state, made)
            broker.operations.put(found.instance, made)
            broker.instances.insert(found.instance, state)
            self._events.ended(broker, found.instance, made, is_success=True)
            return state

        return self._store.run(work)

    def _state(self, found: Found, logins: Logins, offer: Offer, plan: Plan, port: int, version: str) -> InstanceState:
        count = len(found.nodes)
        now = self._clock.wall()
        return InstanceState(
            instance_id=found.instance,
            service_id=offer.id,
            plan_id=plan.id,
            allocated_port=port,
            superuser_credentials=logins.superuser,
            replication_credentials=logins.replication,
            admin_credentials=logins.rest,
            rewind_credentials=logins.rewind,
            node_count=count,
            parameters={} if count == plan.node_count else {"node-count": count},
            version=version,
            created_at=now,
            adopted_at=now,
        )


def _refuse_ours(broker: Broker, instance: str) -> None:
    if broker.instances.exists(instance):
        raise RefusedError(409, "it is an instance of ours already")
    refuse_under_way(broker.operations.get(instance))


def _found(broker: Broker, instance: str) -> Found:
    _refuse_ours(broker, instance)
    names: list[str] = []
    for row in broker.members.rows(instance):
        if isinstance(row, Damaged):
            raise RefusedError(422, "the record of a member cannot be read; `keyplan patroni doctor` names it")
        names.append(row.key.member)
    if not names:
        raise RefusedError(404, "no member of a cluster of this name is below /service in this store")
    led = leader_of(broker, instance)
    if led is None:
        raise RefusedError(422, "nobody leads it now; it can be adopted when somebody does")
    leader, member = led
    if not member.is_primary or leader not in names:
        raise RefusedError(422, f"{leader} leads it, and takes no writes yet; try again")
    identifier = broker.initializations.get(instance)
    if not identifier:
        raise RefusedError(422, "its key `initialize` has no system identifier: its bootstrap is not over")
    if len(names) > NODES_MAX:
        raise RefusedError(422, f"it has {len(names)} members, and an instance at most {NODES_MAX}")
    placed = {key.node: cell for key, cell in broker.nodes.list(instance)}
    astray = members_astray(broker, instance, names)
    nodes = [
        FoundNode(
            name=name,
            cell=placed.get(name, OUTSIDE),
            address=broker.members.require(MemberKey(instance, name)).address or "",
            problem=astray.get(name, ""),
        )
        for name in names
    ]
    port = broker.allocations.get(instance)
    return Found(instance=instance, leader=leader, identifier=identifier, port=port, nodes=nodes)


def _refuse_incomplete(logins: Logins) -> None:
    # Why: for an empty name or password libpq takes one of its own, out of the environment or a file of whoever types.
    for words, user in (("superuser", logins.superuser), ("replication", logins.replication)):
        if not user.username or not user.password.reveal():
            text = f"{words} has no {'password' if user.username else 'username'}"
            raise RefusedError(422, f"{text}; where PostgreSQL asks for none, give any")
    for words, user in (("rest", logins.rest), ("rewind", logins.rewind)):
        if bool(user.username) is not bool(user.password.reveal()):
            raise RefusedError(422, f"{words} has a username or a password alone; give both, or none")


def _check_member(instance: str, name: str, member: Member) -> None:
    try:
        told = patroni_rest.identity(member)
    except PatroniRefusedError as error:
        raise RefusedError(422, f"{name} cannot be asked from here: {error}") from error
    if told != (instance, name):
        found, of = (text[:_TOLD_MAX] for text in reversed(told))
        raise RefusedError(422, f"at the REST API of {name} answers {found} of {of}, another one")


def _check_users(found: Found, leader: Member, logins: Logins) -> str:
    """Return the major version that the leader's PostgreSQL is of. Raises RefusedError."""
    # Why here: routers and cells come through this module, and psycopg is for who logs in.
    from keyplan.apps.patroni.postgresql_roles import system_identifier_of  # noqa: PLC0415

    if leader.address is None:
        raise RefusedError(422, f"{found.leader} advertises no address of its PostgreSQL")
    version = ""
    for words, user, is_replication in (
        ("the superuser", logins.superuser, False),
        ("the user for replication", logins.replication, True),
    ):
        told = system_identifier_of(leader.address, user, is_replication=is_replication)
        if told.problem:
            raise RefusedError(422, f"{words} {user.username} at {found.leader} ({leader.address}): {told.problem}")
        if told.identifier != found.identifier:
            text = f"PostgreSQL at {leader.address} has system identifier {told.identifier}, and the cluster {found.identifier}"
            raise RefusedError(422, text)
        version = version or told.version
    try:
        patroni_rest.check_log_in(leader, logins.rest)
    except PatroniRefusedError as error:
        raise RefusedError(422, f"the user of Patroni's REST API at {found.leader}: {error}") from error
    return version


# ---- the reverse -----------------------------------------------------------------------------------------------------------


class Released(Struct, frozen=True, kw_only=True):
    """What is forgotten with an instance. The roles of its bindings stay in PostgreSQL, and its port stays the cluster's."""

    nodes: list[str]
    roles: list[str]
    port: int | None


def release(store: Store, instance: str, *, is_trial: bool) -> Released:
    """Forget an instance, and touch nothing of its cluster: it goes on, as one that merely appears. The first commit decides.

    Raises RefusedError: 404 without the instance, 422 while an operation goes on, or while cells of ours run its nodes: those
    would be nobody's.
    """
    with store.snapshot() as state:
        found = _releasable(Broker(state), instance)
        roles = [record.credentials.username for _, record in Broker(state).bindings.list(instance)]
    found = msgspec.structs.replace(found, roles=roles)
    if is_trial:
        return found
    # Why the bindings behind it: nobody begins anything with an instance that is gone, and none is left with half of them.
    store.run(lambda binding: _forget(Broker(binding), instance))
    while keys := list(Broker(store).bindings.keys(instance, limit=_BATCH)):
        store.run(lambda binding, keys=keys: _unbind(Broker(binding), instance, keys))  # type: ignore[misc]
    return found


def _releasable(broker: Broker, instance: str) -> Released:
    """Return what is forgotten, without the roles. Raises RefusedError."""
    # Why bindings too: whoever was killed behind the first commit has left them.
    if not broker.instances.exists(instance) and not any(True for _ in broker.bindings.keys(instance, limit=1)):
        raise RefusedError(404, "there is no such instance")
    refuse_under_way(broker.operations.get(instance))
    outside = outside_nodes(broker, instance)
    ours = sorted({key.node for key, _ in broker.nodes.list(instance)} - set(outside))
    if ours:
        text = f"cells of ours run its nodes {', '.join(ours)}: without the instance nobody would look after them"
        raise RefusedError(422, text)
    return Released(nodes=outside, roles=[], port=broker.allocations.get(instance))


def _forget(broker: Broker, instance: str) -> None:
    for node in _releasable(broker, instance).nodes:
        broker.nodes.delete(NodeKey(instance, node))
    broker.instances.delete(instance)
    broker.operations.delete(instance)


def _unbind(broker: Broker, instance: str, keys: list[BindingKey]) -> None:
    _refuse_ours(broker, instance)
    for key in keys:
        broker.bindings.delete(key)


def logins_of(given: bytes) -> Logins:
    """Read the users from JSON. Raises ValueError with what is wrong, without a password."""
    try:
        return msgspec.json.decode(given, type=Logins, dec_hook=secret_of_plain)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
