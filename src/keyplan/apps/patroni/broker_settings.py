"""What `keyplan serve --setting patroni-broker.NAME=TEXT` says of the broker."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from keyplan.apps.patroni.ports import PORTS_DEFAULT, PortRange, port_range
from keyplan.settings import Setting, TextForm

__all__ = ["SERVICE_NAME", "BrokerSettings"]

SERVICE_NAME: Final = "patroni-broker"
_SECONDS_MAX: Final = 86_400.0
_FILE: Final = TextForm(Path, "a JSON file")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What `keyplan serve --setting patroni-broker.NAME=TEXT` says."""

    part: Annotated[
        Literal["broker", "clusters"],
        Setting("`clusters`: no broker; clusters are known to the gateways of this process, and nothing else is done"),
    ] = "broker"
    host: Annotated[str, Setting("the router's address, as bindings tell it")] = "127.0.0.1"
    sslmode: Annotated[
        Literal["prefer", "require", "verify-ca", "verify-full"] | None,
        Setting("stands in the URIs of bindings", default="none; `verify-full` with `tls-authority`"),
    ] = None
    tls_authority: Annotated[
        Path | None,
        Setting(
            "certificates, as PEM, that clients verify PostgreSQL by; bindings have them as `ca_certificate`",
            form=TextForm(Path, "a file"),
        ),
    ] = None
    ports: Annotated[
        PortRange, Setting("the public ports", form=TextForm(port_range, "`FIRST-LAST`"), default="33000-33999")
    ] = PORTS_DEFAULT
    replica_ports: Annotated[
        str | None,
        Setting("the first of as many ports that lead to replicas; bindings then have `read_port` and `read_uri`"),
    ] = None
    catalog: Annotated[
        Path | None,
        Setting("services and plans, in place of the built-in plans `solo`, `pair`, `trio`", form=_FILE),
    ] = None
    callbacks: Annotated[
        Path | None,
        Setting("programs that keep data about clusters and copy backups: see *Callbacks of the site*", form=_FILE),
    ] = None
    cells: Annotated[
        Literal["alone", "shared"],
        Setting("`alone`: fewer cells than nodes are refused; `shared`: a cell may hold several nodes of one cluster"),
    ] = "alone"
    version_header: Annotated[
        Literal["required", "optional"],
        Setting("`optional`: requests without `X-Broker-API-Version` are answered"),
    ] = "required"
    parallel: Annotated[int, Setting("operations at a time", least=1, most=_SECONDS_MAX)] = 32
    claim_seconds: Annotated[
        float,
        Setting("how long after a broker's death another one takes its operations up", least=1, most=_SECONDS_MAX),
    ] = 10.0
    cell_seconds: Annotated[float, Setting("how long a cell's answer is waited for", least=0.1, most=_SECONDS_MAX)] = (
        30.0
    )
    step_seconds: Annotated[
        float, Setting("how long a step is waited for that comes no nearer", least=0.1, most=_SECONDS_MAX)
    ] = 300.0
