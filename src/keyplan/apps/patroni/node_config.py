"""What a node is told: Patroni's configuration as a value. Nothing here touches a disk or a process."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, field

from keyplan.apps.patroni.backups.archive import ARCHIVE_FILE, fetching, recovering
from keyplan.apps.patroni.backups.records import Archive, Recovery
from keyplan.apps.patroni.records import Credentials
from keyplan.apps.patroni.upgrades.records import Upgrade
from keyplan.apps.patroni.upgrades.script import upgrading
from keyplan.codec import Secret

__all__ = [
    "CERTIFICATE_FILE",
    "DYNAMIC_DEFAULT",
    "KEY_FILE",
    "LOGINS_TAG",
    "Gateway",
    "NodePlan",
    "merged",
    "patroni_configuration",
    "tls_parameters",
    "written",
]

CERTIFICATE_FILE: Final = "server.crt"
KEY_FILE: Final = "server.key"
LOGINS_TAG: Final = "keyplan_logins"
"""The tag by which a member's record says which logins Patroni has read: it reads all of its file, or nothing."""

DYNAMIC_DEFAULT: Final[Mapping[str, Any]] = {
    # 4.1: Patroni's own defaults are 30, 10 and 10. With these a leader that vanished is replaced within twenty seconds.
    "ttl": 20,
    "loop_wait": 5,
    "retry_timeout": 5,
    "maximum_lag_on_failover": 1_048_576,
    # Why: all clusters of a gateway lose their store together. A leader whose members all agree leads on until it is back.
    "failsafe_mode": True,
    "postgresql": {
        "use_pg_rewind": True,
        # Why: a pg_rewind that is cut off, as by the end of the leader that it copies from, leaves data from which nothing
        # starts, and Patroni would wait for ever. They were to be given up anyway: a copy of the leader takes their place.
        "remove_data_directory_on_rewind_failure": True,
        "use_slots": True,
        "parameters": {
            "max_connections": 100,
            "shared_buffers": "32MB",
            "max_wal_senders": 10,
            "wal_keep_size": "64MB",
        },
    },
}
"""The dynamic configuration that a cluster is bootstrapped with; later it is the cluster's own, in its `config` key."""


class Gateway(Struct, frozen=True):
    """Where Patroni finds its store, and by which protocol: `etcd` is the v2 keys API, `etcd3` the JSON gateway of v3."""

    hosts: str
    mode: Literal["etcd", "etcd3"] = "etcd3"
    username: str = ""
    password: Secret[str] = Secret("")


class NodePlan(Struct, kw_only=True):
    """What one node is: of which instance, where it listens, and by which passwords."""

    instance: str
    node: str
    address: str = "127.0.0.1"
    port: int
    rest_port: int
    superuser: Credentials
    replication: Credentials
    rest: Credentials
    rewind: Credentials = field(default_factory=Credentials)
    """Whom a former leader copies as; without one, as the superuser."""
    logins: int = 0
    """How often it was given other users or another token; its member says so, once it uses them."""
    gateway: Gateway
    parameters: dict[str, str] = field(default_factory=dict)
    dynamic: dict[str, Any] = field(default_factory=lambda: dict(DYNAMIC_DEFAULT))
    restore: str = ""
    """Where the backup is that the cluster begins with; empty: it begins empty."""
    restore_command: str = ""
    """What makes a data folder of a backup, called as Patroni calls it, with the backup's place behind."""
    archive: Archive | None = None
    """Where it archives its log, and its backups go; None: nowhere."""
    recovery: Recovery | None = None
    """The backup and the time that its cluster begins with, where it has an archive to begin from."""
    upgrade: Upgrade | None = None
    """The node of another version whose data its cluster begins with; None: it does not."""
    version: str = ""
    """The major version of PostgreSQL that its data are to be of; empty: that of the cell's new clusters."""
    halted: bool = False
    """Whether it stays ended, and keeps its data, whoever looks after it."""
    user: str = ""
    """Whose processes it is; empty: the user of all nodes of its cell that have none of their own."""
    has_tls: bool = False
    """Whether PostgreSQL has a certificate, and talks to nobody without TLS."""

    @property
    def member(self) -> str:
        """Its name in the cluster. Names of members become names of replication slots, which hold no dots (1.3)."""
        return self.node.replace(".", "_")

    @property
    def place(self) -> str:
        """The `host:port` of its PostgreSQL."""
        return _place(self.address, self.port)

    @property
    def rest_place(self) -> str:
        """The `host:port` of its Patroni's REST API."""
        return _place(self.address, self.rest_port)

    def __repr__(self) -> str:
        return f"NodePlan(instance={self.instance!r}, node={self.node!r}, port={self.port})"


def patroni_configuration(plan: NodePlan, *, home: Path, programs: Path) -> dict[str, Any]:
    """Return what Patroni reads for this node. `home` is the folder that PostgreSQL may write to; certificates lie above it."""
    rest, address = plan.rest_place, plan.place
    store: dict[str, Any] = {"hosts": plan.gateway.hosts}
    if gateway_password := plan.gateway.password.reveal():
        name = plan.gateway.username or "cell"
        if plan.gateway.mode == "etcd":
            # Trap: HTTP's basic authentication ends a name at its first colon, and the rest would be taken for the password.
            name = name.replace(":", ".")
        store |= {"username": name, "password": gateway_password}
    connection = "hostssl" if plan.has_tls else "host"
    log_in = {"authentication": _user(plan.rest)} if plan.rest.password.reveal() else {}
    rewind = {"rewind": _user(plan.rewind)} if plan.rewind.username else {}
    return {
        "scope": plan.instance,
        "namespace": "/service/",
        "name": plan.member,
        **({"tags": {LOGINS_TAG: plan.logins}} if plan.logins else {}),
        "restapi": {"listen": rest, "connect_address": rest, **log_in},
        plan.gateway.mode: store,
        "bootstrap": {
            **_restoring(plan, home.parent),
            "dcs": dict(plan.dynamic),
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "scram-sha-256"}, "data-checksums"],
        },
        "postgresql": {
            "listen": address,
            "connect_address": address,
            "data_dir": str(home / "data"),
            "bin_dir": str(programs),
            "pgpass": str(home / "pgpass"),
            **_fetching(plan, home.parent),
            "authentication": {
                "superuser": _user(plan.superuser),
                "replication": _user(plan.replication),
                **rewind,
            },
            "parameters": {
                "password_encryption": "scram-sha-256",
                # Why: the path of a socket is at most 107 bytes, and a data folder's may be longer.
                "unix_socket_directories": "",
                # Why: the shared memory of a killed PostgreSQL is removed with its folder then.
                "dynamic_shared_memory_type": "mmap",
                **(tls_parameters(home.parent) if plan.has_tls else {}),
                **plan.parameters,
            },
            "pg_hba": [
                # Why all: the role that standbys log in as is another one after a rotation, and no other may replicate.
                f"{connection} replication all all scram-sha-256",
                f"{connection} all all all scram-sha-256",
            ],
        },
    }


def tls_parameters(folder: Path) -> dict[str, str]:
    """Return PostgreSQL's parameters of a node that has a certificate, which lies in the node's folder."""
    return {
        "ssl": "on",
        "ssl_cert_file": str(folder / CERTIFICATE_FILE),
        "ssl_key_file": str(folder / KEY_FILE),
        "ssl_min_protocol_version": "TLSv1.2",
    }


def _fetching(plan: NodePlan, folder: Path) -> dict[str, Any]:
    """How a node finds what it lacks and the leader has removed: a replica, or a former leader that is rewound."""
    if plan.archive is None:
        return {}
    return {"recovery_conf": {"restore_command": fetching(plan.archive.stanza, folder / ARCHIVE_FILE)}}


def _restoring(plan: NodePlan, folder: Path) -> dict[str, Any]:
    """How the first node makes its data, where not by initdb: Patroni adds `--scope` and `--datadir` to a site's command."""
    roles = [login.username for login in (plan.superuser, plan.replication, plan.rewind) if login.username]
    if plan.recovery is not None:
        return recovering(plan.recovery, folder=folder, roles=roles)
    if plan.upgrade is not None:
        return upgrading(folder, roles)
    if not plan.restore:
        return {}
    command = f"{plan.restore_command} {shlex.quote(plan.restore)}"
    return {"method": "restore", "restore": {"command": command}}


def merged(base: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `above` laid over it, objects within objects too; a null takes a setting away."""
    result = dict(base)
    for name, value in above.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(result.get(name), Mapping):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


def written(configuration: Mapping[str, Any]) -> str:
    """The text of Patroni's file: JSON, which is YAML as well."""
    return json.dumps(configuration, indent=2) + "\n"


def _user(credentials: Credentials) -> dict[str, str]:
    return {"username": credentials.username, "password": credentials.password.reveal()}


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
