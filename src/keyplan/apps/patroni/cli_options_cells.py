"""Options that the commands for cells, routers and `up` share."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AddressOption",
    "CertificateOption",
    "ConsentOption",
    "ForwardOption",
    "HostnameOption",
    "KeyOption",
    "LeaseOption",
    "LogLevelOption",
    "ModeOption",
    "ParameterOption",
    "PatroniOption",
    "PostgreSQLOption",
    "RestoreOption",
    "UserOption",
    "settings_of",
    "tls_of",
]

from keyplan.apps.patroni.cell_agent import TlsFiles
from keyplan.errors import InvalidInputError

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
UserOption = Annotated[
    str, typer.Option("--user", metavar="NAME", help="Who runs PostgreSQL, when this is started by root.")
]
PostgreSQLOption = Annotated[
    Path | None,
    typer.Option("--postgresql", metavar="FOLDER", help="PostgreSQL's programs; by default the newest of Debian's."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="NAME=VALUE", help="A parameter of PostgreSQL on all nodes; may be repeated."),
]
PatroniOption = Annotated[
    list[str] | None,
    typer.Option(
        "--patroni", metavar="NAME=NUMBER", help="A dynamic setting of new clusters, as ttl; may be repeated."
    ),
]
RestoreOption = Annotated[
    str, typer.Option("--restore", metavar="COMMAND", help="Makes a data folder of a backup; its place is added.")
]
ForwardOption = Annotated[
    bool, typer.Option("--forward", help="Forward connections in this process, also where HAProxy is installed.")
]
ModeOption = Annotated[
    str, typer.Option("--mode", metavar="etcd3|etcd", help="Patroni's protocol: v3's JSON gateway, or v2's keys API.")
]
LogLevelOption = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]


ConsentOption = Annotated[
    str,
    typer.Option(
        "--accept-store", metavar="CONSENT", help="Follow another store than before, once: a refusal names the consent."
    ),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate", metavar="FILE", help="What PostgreSQL shows; without TLS it talks to nobody then."
    ),
]
KeyOption = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")]


def tls_of(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Return both files, or None for neither. Raises InvalidInputError for one alone, and for one that is not there."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InvalidInputError(source="--tls-certificate", problem="belongs with --tls-key")
    for file in (certificate, key):
        if not file.is_file():
            raise InvalidInputError(source=str(file), problem="there is no such file")
    return TlsFiles(certificate.absolute(), key.absolute())


def settings_of(given: list[str] | None, option: str) -> dict[str, str]:
    """Read NAME=VALUE. Raises InvalidInputError."""
    settings: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InvalidInputError(source=option, problem=f"{text} is not NAME=VALUE")
        settings[name] = value
    return settings
