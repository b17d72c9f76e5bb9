"""Options that the commands for cells, routers and `up` share."""

import getpass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.apps.patroni.certificates import TlsFiles, read_pair
from keyplan.apps.patroni.dynamic_configuration import require_changes
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_host import NODE_USER_DEFAULT, Host, find_host
from keyplan.apps.patroni.node_users import InstanceUsers
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.errors import InvalidInputError

__all__ = [
    "AddressOption",
    "ConsentOption",
    "ForwardOption",
    "HostnameOption",
    "InstanceUsersOption",
    "LeaseOption",
    "LogLevelOption",
    "ModeOption",
    "NodeOptions",
    "tell_of_common_user",
]

_DIGITS_MAX: Final = 18
"""Why: Python reads no number of thousands of digits."""

AddressOption = Annotated[
    str,
    typer.Option("--address", metavar="HOST", help="The address that clients and other nodes reach this machine at."),
]
HostnameOption = Annotated[
    str, typer.Option("--hostname", metavar="NAME", help="The name that its nodes are registered under.")
]
LeaseOption = Annotated[
    float, typer.Option("--lease", metavar="SECONDS", min=2, help="How long it counts as alive when it has died.")
]
ForwardOption = Annotated[
    bool, typer.Option("--forward", help="Forward connections in this process, also where HAProxy is installed.")
]
ModeOption = Annotated[
    str, typer.Option("--mode", metavar="etcd3|etcd", help="Patroni's protocol: v3's JSON gateway, or v2's keys API.")
]
InstanceUsersOption = Annotated[
    str,
    typer.Option(
        "--instance-users",
        metavar="USER,FIRST-LAST,...",
        help="Users of this machine, one for each node, that nothing else runs as; by name or number.",
    ),
]
LogLevelOption = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]


ConsentOption = Annotated[
    str,
    typer.Option(
        "--accept-store", metavar="CONSENT", help="Follow another store than before, once: a refusal names the consent."
    ),
]


def tell_of_common_user(host: Host, users: InstanceUsers) -> None:
    """Say on standard error that nodes are not kept apart, where they are not."""
    if users.names:
        return
    who = host.user or getpass.getuser()
    remedy = "give --instance-users" if host.user else "root can give each a user of its own, with --instance-users"
    LOGGER.warning("all nodes run as the user %s: who breaks into one reads the files of all; %s", who, remedy)


def _settings_of(given: list[str] | None, option: str) -> dict[str, str]:
    """Read NAME=VALUE. Raises InvalidInputError."""
    settings: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InvalidInputError(source=option, problem=f"{text} is not NAME=VALUE")
        settings[name] = value
    return settings


class NodeOptions(NamedTuple):
    """How nodes are run, by one cell or by all cells of `up`."""

    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="Who runs PostgreSQL, when this is started by root.")
    ] = NODE_USER_DEFAULT
    postgresql: Annotated[
        Path | None,
        typer.Option(
            "--postgresql", metavar="FOLDER", help="PostgreSQL's programs; by default the newest of Debian's."
        ),
    ] = None
    further: Annotated[
        list[Path] | None,
        typer.Option(
            "--also-postgresql",
            metavar="FOLDER",
            help="Programs of another major version, for clusters of it and for upgrades; may be repeated.",
        ),
    ] = None
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", metavar="NAME=VALUE", help="A parameter of PostgreSQL on all nodes; may be repeated."
        ),
    ] = None
    patroni: Annotated[
        list[str] | None,
        typer.Option(
            "--patroni", metavar="NAME=NUMBER", help="A dynamic setting of new clusters, as ttl; may be repeated."
        ),
    ] = None
    restore: Annotated[
        str, typer.Option("--restore", metavar="COMMAND", help="Makes a data folder of a backup; its place is added.")
    ] = ""
    bucket_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--bucket-keys",
            metavar="BUCKET=FILE",
            help="The keys of a bucket of backups, two lines in a file, or printed by command:WORDS; may be repeated.",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate", metavar="FILE", help="What PostgreSQL shows; without TLS it talks to nobody then."
        ),
    ] = None
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None
    log_level: LogLevelOption = "info"

    def host(self, users: InstanceUsers) -> Host:
        """Find what runs nodes here. Raises InvalidInputError."""
        return find_host(
            user=self.user,
            programs=self.postgresql,
            further=self.further or (),
            instance_users=users,
            bucket_keys=self.keys_of_buckets,
        )

    @property
    def tls(self) -> TlsFiles | None:
        """Both files, or None for neither. Raises InvalidInputError for one alone, and for what does not fit."""
        if self.certificate is None and self.key is None:
            return None
        if self.certificate is None or self.key is None:
            raise InvalidInputError(source="--tls-certificate", problem="belongs with --tls-key")
        files = TlsFiles(self.certificate.absolute(), self.key.absolute())
        read_pair(files)
        return files

    @property
    def parameters(self) -> dict[str, str]:
        """PostgreSQL's parameters. Raises InvalidInputError."""
        return _settings_of(self.parameter, "--parameter")

    @property
    def keys_of_buckets(self) -> dict[str, str]:
        """Where the keys of buckets are. Raises InvalidInputError."""
        return _settings_of(self.bucket_keys, "--bucket-keys")

    @property
    def dynamic(self) -> dict[str, Any]:
        """Patroni's dynamic settings, numbers or words: `ttl=20`, `synchronous_mode=true`. Raises InvalidInputError."""
        words = {"true": True, "false": False}
        found = {
            name: int(value) if value.isdecimal() and len(value) <= _DIGITS_MAX else words.get(value, value)
            for name, value in _settings_of(self.patroni, "--patroni").items()
        }
        try:
            if found:
                require_changes(found)
        except RefusedError as error:
            raise InvalidInputError(source="--patroni", problem=error.description) from error
        return found

    def words(self) -> list[str]:
        """Return the options as a cell's command takes them. Raises InvalidInputError, as the cell would."""
        tls = self.tls
        given = [
            ("--user", [self.user]),
            ("--log-level", [self.log_level]),
            ("--postgresql", [] if self.postgresql is None else [str(self.postgresql)]),
            ("--also-postgresql", [str(folder) for folder in self.further or ()]),
            ("--restore", [self.restore] if self.restore else []),
            ("--bucket-keys", self.bucket_keys or []),
            ("--tls-certificate", [] if tls is None else [str(tls.certificate)]),
            ("--tls-key", [] if tls is None else [str(tls.key)]),
            ("--parameter", self.parameter or []),
            ("--patroni", self.patroni or []),
        ]
        return [word for option, texts in given for text in texts for word in (option, text)]
