"""The records of the Patroni broker's store: what Patroni, the registrar, the router and the broker write, typed.

Patroni's JSON grows with its versions. Records here keep the fields that they do not know (`unknown`), so that reading and
writing one back loses nothing.
"""

import re
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from keyplan.apps.patroni.backups.records import Archive, ArchiveState, Recovery
from keyplan.apps.patroni.upgrades.records import Upgrade
from keyplan.codec import Secret, ValueForm, plain_of_secret, secret_of_plain, value_schema
from keyplan.errors import CorruptionError, InvalidRecordError

__all__ = [
    "Binding",
    "Cell",
    "Claim",
    "Credentials",
    "Failover",
    "FailoverForm",
    "FormerCluster",
    "InstanceState",
    "Member",
    "NodeOrder",
    "NodeReport",
    "NodeState",
    "OpenJson",
    "OpenRecord",
    "Operation",
    "OperationInfo",
    "RouterReport",
    "Status",
    "Step",
    "StoreIdentity",
    "Sync",
    "address_of",
]


class OpenRecord(Struct, kw_only=True, omit_defaults=True):
    """A record that others write too: fields that are not declared are kept in `unknown`. Null counts as absent."""

    unknown: dict[str, Any] = field(default_factory=dict)


R = TypeVar("R", bound=OpenRecord)


class OpenJson(ValueForm[R]):
    """A JSON object as a record of the class given, with the fields that the class does not declare in `unknown`."""

    code = "json"

    def __init__(self, record_type: type[R]) -> None:
        self._type = record_type
        self._known = frozenset(each.encode_name for each in msgspec.structs.fields(record_type)) - {"unknown"}

    @property
    def value_type(self) -> type[R]:
        return self._type

    def encode(self, value: R) -> bytes:
        if not isinstance(value, self._type):
            self.refuse(f"the record is no {self._type.__name__}", type_found=type(value).__name__)
        if not self._known.isdisjoint(value.unknown):
            self.refuse(
                "an unknown field has the name of a declared one", fields=sorted(self._known & set(value.unknown))
            )
        try:
            fields = msgspec.to_builtins(value, enc_hook=plain_of_secret)
            fields |= fields.pop("unknown", {})
            raw = msgspec.json.encode(fields)
            # Why: serializing does not look at declared types; a field of the wrong type would be found at the next read.
            self.decode(raw)
        except (CorruptionError, TypeError, ValueError) as error:
            raise InvalidRecordError(form=self.code, problem="a field is not of its declared type") from error
        return raw

    def decode(self, raw: bytes) -> R:
        try:
            fields = msgspec.json.decode(raw, type=dict[str, Any])
            # Why: Patroni writes null for what it has nothing to say about.
            known = {name: part for name, part in fields.items() if name in self._known and part is not None}
            record = msgspec.convert(known, self._type, dec_hook=secret_of_plain)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CorruptionError(problem=f"the value is no JSON of a {self._type.__name__}") from error
        record.unknown = {name: part for name, part in fields.items() if name not in self._known}
        return record

    def describe(self) -> dict[str, Any]:
        return {"form": self.code, "type": self._type.__name__, "schema": value_schema(self._type)}


class Member(OpenRecord, kw_only=True, omit_defaults=True):
    """What one Patroni process says about itself. `conn_url` of old versions holds a password.

    A `state` of running says that PostgreSQL runs, and nothing of whether it follows anybody: `replication_state` does, which
    old versions do not write.
    """

    role: str = ""
    state: str = ""
    conn_url: Secret[str] | None = None
    api_url: str | None = None
    conn_address: str | None = None
    version: str | None = None
    xlog_location: int | None = None
    timeline: int | None = None
    replication_state: str | None = None

    @property
    def is_primary(self) -> bool:
        """Whether the member takes writes: old versions say master, new ones primary."""
        return self.role in {"master", "primary"}

    @property
    def address(self) -> str | None:
        """The `host:port` of the member's PostgreSQL; None when `conn_url` is absent or cannot be read."""
        return None if self.conn_url is None else address_of(self.conn_url.reveal())

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "conn_url"}
        return f"Member({', '.join(f'{name}={part!r}' for name, part in shown.items())}, address={self.address!r})"


_HOST: Final = re.compile(r"[0-9A-Za-z._-]{1,249}|\[[0-9A-Fa-f:.]{2,45}\]")
"""Why 249: with colon and port an address fits into the 255 bytes of a name in a key."""
_POSTGRESQL_PORT: Final = 5432


def address_of(url: str | None) -> str | None:
    """The `host:port` that a connection URL names, without credentials; the port is PostgreSQL's own when none is given.

    None for anything that is no such URL: members are written by other programs, and an index never refuses a record of theirs.
    """
    if url is None:
        return None
    try:
        place = urlsplit(url)
        port = place.port or _POSTGRESQL_PORT
    except ValueError:
        return None
    host = place.netloc.rpartition("@")[2].removesuffix(f":{port}")
    return f"{host}:{port}" if _HOST.fullmatch(host) else None


class Status(OpenRecord, kw_only=True, omit_defaults=True):
    """The leader's WAL position, and the replication slots that must be kept."""

    optime: int | None = None
    slots: dict[str, int] | None = None
    retain_slots: list[str] | None = None


class Sync(OpenRecord, kw_only=True, omit_defaults=True):
    """Which members replicate synchronously."""

    leader: str | None = None
    quorum: int | None = None
    sync_standby: str | None = None


class Failover(OpenRecord, kw_only=True, omit_defaults=True):
    """A failover that somebody asked for; without fields: none."""

    leader: str | None = None
    member: str | None = None
    scheduled_at: str | None = None


class FailoverForm(OpenJson[Failover]):
    """A Failover as JSON; the form of old versions, `leader:member`, is read but not written."""

    def __init__(self) -> None:
        super().__init__(Failover)

    def decode(self, raw: bytes) -> Failover:
        if raw[:1] == b"{":
            return super().decode(raw)
        try:
            leader, colon, member = raw.decode().partition(":")
        except UnicodeDecodeError as error:
            raise CorruptionError(problem="the failover is not text") from error
        if raw and not colon:
            raise CorruptionError(problem="the failover is neither JSON nor leader:member")
        return Failover(leader=leader or None, member=member or None)


def _no_password() -> Secret[str]:
    # Why a factory: the schema of a record has the defaults of fields that msgspec knows, and of factories alone.
    return Secret("")


class Credentials(Struct, kw_only=True):
    """A database user of an instance; the password is empty where there is none."""

    username: str = ""
    password: Secret[str] = field(default_factory=_no_password)

    def opened(self) -> "Credentials":
        """Return it with the password in clear, for what is kept outside the store: a sealed one opens in its place alone.

        Raises SecretKeyError, CorruptionError.
        """
        return Credentials(username=self.username, password=Secret(self.password.reveal()))


class NodeState(Struct, kw_only=True):
    """A node as the broker's record of its instance lists it."""

    node_id: str = ""
    cell_guid: str = ""
    state: str = ""
    role: str = ""


class OperationInfo(Struct, kw_only=True):
    """How far the last operation on an instance has come."""

    status: str = ""
    steps: int = 0
    completed_steps: int = 0
    last_message: str = ""


class FormerCluster(Struct, kw_only=True):
    """A cluster that another one took the place of: its nodes are halted, with their data, until it comes back or is removed.

    `nodes` are their cells, and `leader` who led last. `system` is its identifier, `version` that of its PostgreSQL;
    `configuration`, `archive` and the users are what they were. `laid_aside_at` is in seconds of Unix time.
    """

    nodes: dict[str, str]
    leader: str = ""
    system: str = ""
    version: str = ""
    configuration: dict[str, Any] = field(default_factory=dict)
    archive: Archive | None = None
    superuser_credentials: Credentials = field(default_factory=Credentials)
    replication_credentials: Credentials = field(default_factory=Credentials)
    rewind_credentials: Credentials = field(default_factory=Credentials)
    laid_aside_at: float = 0.0


class InstanceState(Struct, kw_only=True):
    """What the broker knows of a service instance beside its nodes: plan, owner, users, operation.

    Users: `superuser_credentials` is PostgreSQL's superuser, whom Patroni and the broker log in as; `replication_credentials`
    whom standbys log in as; `rewind_credentials` whom a former leader copies as; `admin_credentials` the log-in of Patroni's
    REST API. `app_credentials` is the shared user of former brokers and stays empty here: each binding has its own. `nodes` was
    theirs too: the `nodes` table is the truth. `restore` is where the site's backup is that the cluster was made from.
    `archive` is where its own backups go; None: there are none. `recovery` or `upgrade` is what it is made from, until it is.
    `former` is the cluster in whose place it was restored, or upgraded. `version` is the major version of PostgreSQL of its
    nodes; empty: what their cells say.

    Of a cluster that was adopted, `adopted_at` is when.

    `store_credentials` is what the cluster's nodes log in to their store with: a principal, and a token that is good for the
    cluster's keys alone. The one before it counts until `former_store_until`, in seconds of Unix time. `logins` is how often
    the nodes were given other users or another token; `rotated_at` says when, by the word for what was replaced.
    """

    instance_id: str = ""
    service_id: str = ""
    plan_id: str = ""
    organization_guid: str = ""
    space_guid: str = ""
    service_instance_name: str = ""
    allocated_port: int | None = None
    admin_credentials: Credentials = field(default_factory=Credentials)
    superuser_credentials: Credentials = field(default_factory=Credentials)
    app_credentials: Credentials = field(default_factory=Credentials)
    replication_credentials: Credentials = field(default_factory=Credentials)
    rewind_credentials: Credentials = field(default_factory=Credentials)
    store_credentials: Credentials = field(default_factory=Credentials)
    former_store_credentials: Credentials = field(default_factory=Credentials)
    former_store_until: float = 0.0
    logins: int = 0
    rotated_at: dict[str, float] = field(default_factory=dict)
    node_count: int = 0
    cells: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    restore: str = ""
    archive: Archive | None = None
    recovery: Recovery | None = None
    upgrade: Upgrade | None = None
    former: FormerCluster | None = None
    version: str = ""
    created_at: float = 0.0
    adopted_at: float = 0.0
    info: OperationInfo = field(default_factory=OperationInfo)
    nodes: list[NodeState] = field(default_factory=list)


# ---- what broker and cells tell each other ------------------------------------------------------------------------------


class Cell(Struct, kw_only=True):
    """A server that runs nodes, as it announces itself on its lease: there is a record as long as it is alive.

    `host` is the address under which its nodes are reached. `capacity` is how many nodes it takes; 0: no bound. One that is
    `is_draining` is given no new nodes. `versions` are the major versions of PostgreSQL that it has programs of, first that of
    new clusters; none: it does not say.
    """

    availability_zone: str = "z1"
    host: str = "127.0.0.1"
    capacity: int = 0
    is_draining: bool = False
    versions: list[str] = field(default_factory=list)


class StoreIdentity(Struct, kw_only=True):
    """Which store this is: random, and written once. A cell takes orders from no other store than the one that it knows."""

    id: str
    created_at: float = 0.0


class NodeOrder(Struct, kw_only=True):
    """That a cell is to run a node; with `halted` to stop it, and keep its data; with `remove` to stop it, and remove them.

    A node without an order is left as it is: the absence of an order is no order. The users are those of the instance's state,
    which no cell reads: an order has all that its cell needs. With other `logins` the node is to use these from now on.
    `patroni` is merged into the cluster's dynamic configuration when it is bootstrapped (`ttl`, `loop_wait`, ...). `restore` is
    where the site's backup is that the cluster is made from, and `recovery` one of the broker's; `upgrade` is a node of
    another version whose data it is made from. Without any it begins empty. `archive` is where the node archives its log.
    `version` is the major version of PostgreSQL that it is of; empty: that of the cell's new clusters.
    """

    instance: str
    patroni: dict[str, Any] = field(default_factory=dict)
    restore: str = ""
    archive: Archive | None = None
    recovery: Recovery | None = None
    upgrade: Upgrade | None = None
    version: str = ""
    superuser: Credentials = field(default_factory=Credentials)
    replication: Credentials = field(default_factory=Credentials)
    rewind: Credentials = field(default_factory=Credentials)
    rest: Credentials = field(default_factory=Credentials)
    store: Credentials = field(default_factory=Credentials)
    logins: int = 0
    halted: bool = False
    remove: bool = False


class NodeReport(Struct, kw_only=True):
    """What a cell says about a node that was ordered of it, or that it still runs, on the cell's lease.

    `state` is `starting`, `running`, `failed`, `refused` (it will not run it; nothing is left), `stopping`, `halted` (it has
    ended, and its data are kept), or `unordered` (it has the node, and nobody ordered it). `message` is for people and holds no
    secret. `address` is the `host:port` that clients of this node's PostgreSQL use. `data_bytes` is how large its data are
    while PostgreSQL takes no connections, and grows while they are copied. `archive` is there once the node has been told where
    it archives. `version` is the major version of PostgreSQL that has made its data. `failures` is how often Patroni has ended
    by itself since PostgreSQL last took connections for a while, behind its recovery; also while the node is `starting` again.
    """

    instance: str = ""
    state: str = "starting"
    message: str = ""
    address: str = ""
    data_bytes: int = 0
    archive: ArchiveState | None = None
    version: str = ""
    failures: int = 0


class Step(Struct, kw_only=True):
    """One step of an operation. Every step may be made again: what it has done already, it finds done.

    `kind` is a word of `STEP_TITLES`. `node` is whom it concerns: of a `remove` it is empty until the step has chosen one, of a
    `copy` it is the instance whose backups are copied. `target` is who is to lead after a `switch`, the cell of a node that is
    added, `on` or `off`, the kind of a backup; empty: whichever. `mark` is what was there before the step began, or the name of
    what a cell was asked for, and `is_asked` says that a member took on what it was asked for: so whoever goes on with it sees
    whether it is done, and does not ask once more. `tries` counts bootstraps that hung.
    """

    schema_name: ClassVar[str] = "BrokerStep"
    kind: str
    node: str = ""
    target: str = ""
    mark: str = ""
    is_asked: bool = False
    tries: int = 0


class Operation(Struct, kw_only=True):
    """The last operation on an instance: what was asked for, how it is done, how far it is. It outlives a deleted instance.

    `kind` is `provision`, `update`, `deprovision`, or the word of an action, as `switchover`. `status` is `in-progress`,
    `success` or `failed`. Times are seconds of Unix time. `plan_id`, `node_count`, `cells` and `parameters` are what the
    instance is once it has succeeded. `configuration` is what changes in that of the cluster, `archive` where it is to archive.
    `keep_seconds` is how long logins count that were replaced. `recovery` is what it restores in place, `upgrade` what it
    upgrades. `failure` is why what it has done is being undone; it fails with that. One that `is_called_off` is undone as soon
    as it may be.
    """

    schema_name: ClassVar[str] = "BrokerLastOperationRecord"
    id: str
    kind: str
    status: str = "in-progress"
    steps: list[Step] = field(default_factory=list)
    completed_steps: int = 0
    message: str = ""
    plan_id: str = ""
    node_count: int = 0
    cells: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    keep_seconds: float = 0.0
    archive: Archive | None = None
    recovery: Recovery | None = None
    upgrade: Upgrade | None = None
    failure: str = ""
    is_called_off: bool = False
    begun_at: float = 0.0
    ended_at: float = 0.0


class RouterReport(Struct, kw_only=True):
    """What a router says of itself on its lease: what carries connections, and where its ports lead.

    `ports` are those that it listens at; `leading` of them lead to a leader; `pending` leaders do not take writes yet.
    `switches` counts how often a port was led elsewhere since the router began. `gives` are the ports that it gives to
    clusters which nobody ordered, as FIRST-LAST; empty: none. `failsafe` has the clusters that are led in failsafe mode, and
    that nobody holds the leader key of, with who leads each.
    """

    by: str = ""
    ports: int = 0
    leading: int = 0
    pending: int = 0
    switches: int = 0
    gives: str = ""
    failsafe: dict[str, str] = {}


class Claim(Struct, kw_only=True):
    """Which broker works on an instance's operation, on that broker's lease: when it dies, another takes the operation up."""

    broker: str
    operation: str


class Binding(Struct, kw_only=True):
    """A service binding: a role of its own in the instance's PostgreSQL. `state` is `creating`, `ready` or `removing`.

    Its user is another one since `rotated_at`, in seconds of Unix time; 0: it is still the first.
    """

    service_id: str
    plan_id: str
    state: str = "creating"
    credentials: Credentials = field(default_factory=Credentials)
    parameters: dict[str, Any] = field(default_factory=dict)
    app_guid: str = ""
    created_at: float = 0.0
    rotated_at: float = 0.0
