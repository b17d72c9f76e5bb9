"""The command `keyplan patroni up`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Annotated, Final

import typer

from keyplan.apps.patroni.certificates import read_authorities
from keyplan.apps.patroni.cli_options_cells import (
    ForwardOption,
    InstanceUsersOption,
    NodeOptions,
    tell_of_common_user,
)
from keyplan.apps.patroni.logs import LOGGER, set_up_logging
from keyplan.apps.patroni.node_users import InstanceUsers
from keyplan.apps.patroni.up import Everything, UpSettings
from keyplan.cli import JsonOption, print_hint, print_json, print_text, spread
from keyplan.errors import InvalidInputError
from keyplan.signals import told_by_signals

__all__ = ["broker_tls_settings", "up"]

_BROKER: Final = "patroni-broker."
_PART_SETTING: Final = f"{_BROKER}part="
_PORTS_SETTING: Final = f"{_BROKER}ports="
_SSL_MODE_SETTING: Final = f"{_BROKER}sslmode="
_AUTHORITY_SETTING: Final = f"{_BROKER}tls-authority="


_AuthorityOption = Annotated[
    Path | None,
    typer.Option("--tls-authority", metavar="FILE", help="What clients verify the certificate by; bindings have it."),
]


@spread
def up(
    *,
    cells: Annotated[int, typer.Option("--cells", metavar="N", min=1, max=50, help="How many cells.")] = 2,
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="The store; by default an embedded one in the folder.")
    ] = "",
    data: Annotated[
        Path, typer.Option("--data", metavar="FOLDER", help="The folder of everything that is started.")
    ] = Path("keyplan-patroni"),
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the broker answers.")
    ] = "127.0.0.1:8210",
    gateway: Annotated[
        str,
        typer.Option(
            "--gateway", metavar="HOST:PORT", help="Where Patroni finds the store; by default one port higher."
        ),
    ] = "",
    ports: Annotated[
        int,
        typer.Option(
            "--node-ports", metavar="FIRST", min=1_024, max=55_000, help="The first port for nodes; 200 a cell."
        ),
    ] = 25_000,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="NAME.KEY=VALUE", help="A setting of the broker, or of a gateway; may be repeated."
        ),
    ] = None,
    authority: _AuthorityOption = None,
    instance_users: InstanceUsersOption = "",
    nodes: NodeOptions,
    forward: ForwardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start a store, the broker, cells and a router on this machine; Ctrl-C ends them all, and their data stay.

    When it answers, a line says where, and where the broker's password is. Started again with the same folder it goes on with
    what is there, processes too where it was killed. A second Ctrl-C kills PostgreSQL.
    """
    set_up_logging(nodes.log_level)
    _require_two_parts(listen, gateway, setting)
    # Why here: what is wrong or missing is said now, and not in the log of a cell.
    _ = nodes.parameters, nodes.dynamic
    users = InstanceUsers.of_text(instance_users)
    host = nodes.host(users)
    tell_of_common_user(host, users)
    folder = data.absolute()
    settings = UpSettings(
        folder=folder,
        store=store or f"lmdb:{folder / 'store'}",
        node_owner=host.owner,
        instance_users=users,
        listen=listen,
        cells=cells,
        first_port=ports,
        cell_options=nodes.words(),
        router_options=[*(["--forward"] if forward else []), *_router_ports(setting), "--log-level", nodes.log_level],
        gateway=gateway,
        broker_options=_broker_options(setting or (), authority, nodes),
        gateway_options=_settings_for(setting, is_broker=False),
    )
    _run(settings, as_json=as_json)


def _run(settings: UpSettings, *, as_json: bool) -> None:
    """Run everything until a signal comes. Raises KeyboardInterrupt for one before all answer, EngineUnavailableError."""
    stop, is_ready = Event(), False
    with told_by_signals(stop, logger=LOGGER) as impatient:
        everything = Everything(settings)
        try:
            everything.start(stop)
            if not stop.is_set():
                is_ready = True
                _announce(everything, as_json=as_json)
                everything.watch(stop)
        finally:
            killed = everything.stop(impatient)
            everything.close()
    if killed:
        names = ", ".join(killed)
        print_hint(f"{names} did not end and were killed; what they ran may run on, and the same command finds it")
    else:
        print_hint(f"everything has ended; the data stay in {settings.folder}, and the same command goes on with them")
    if not is_ready:
        raise KeyboardInterrupt


def _announce(everything: Everything, *, as_json: bool) -> None:
    described = everything.described()
    if as_json:
        print_json(described)
    else:
        cells = ", ".join(described["cells"])
        print_text(f"ready: broker {described['broker']}, credentials {described['credentials']}, cells {cells}")
    sys.stdout.flush()


def _broker_options(settings: Sequence[str], authority: Path | None, nodes: NodeOptions) -> list[str]:
    tls = broker_tls_settings(settings, authority, has_tls=nodes.tls is not None)
    return _settings_for([*tls, *settings], is_broker=True)


def broker_tls_settings(settings: Sequence[str], authority: Path | None, *, has_tls: bool) -> list[str]:
    """What the broker says of TLS in bindings, where PostgreSQL has it and no setting says otherwise."""
    if authority is not None:
        if not has_tls:
            raise InvalidInputError(source="--tls-authority", problem="belongs with --tls-certificate and --tls-key")
        read_authorities(authority)
        return [f"patroni-broker.tls-authority={authority.absolute()}"]
    says = any(text.startswith((_SSL_MODE_SETTING, _AUTHORITY_SETTING)) for text in settings)
    return [f"{_SSL_MODE_SETTING}require"] if has_tls and not says else []


def _router_ports(settings: Sequence[str] | None) -> list[str]:
    """The broker's public ports, for the router: it gives some to clusters that nobody ordered."""
    given = [text.removeprefix(_PORTS_SETTING) for text in settings or () if text.startswith(_PORTS_SETTING)]
    return ["--ports", given[-1]] if given else []


def _settings_for(settings: Sequence[str] | None, *, is_broker: bool) -> list[str]:
    """Return the settings of the broker's process, or of that of the gateways, as options."""
    chosen = [text for text in settings or () if text.startswith(_BROKER) is is_broker]
    return [word for text in chosen for word in ("--setting", text)]


def _require_two_parts(listen: str, gateway: str, settings: Sequence[str] | None) -> None:
    """Refuse what would leave the broker without a place of its own, or make its process another one of gateways."""
    _require_address(listen, "--listen")
    if gateway:
        _require_address(gateway, "--gateway")
        if gateway == listen:
            raise InvalidInputError(source="--gateway", problem=f"{gateway} is where the broker answers: give another")
    if any(text.startswith(_PART_SETTING) for text in settings or ()):
        raise InvalidInputError(
            source="--setting", problem=f"{_PART_SETTING[:-1]} is not yours to give: both parts run"
        )


def _require_address(listen: str, option: str) -> None:
    host, _, port = listen.rpartition(":")
    # Why one less than there are: the gateways have the next one.
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 0xFFFF:
        # Why no free port: it stands in the nodes' configurations, and must be the same tomorrow.
        raise InvalidInputError(source=option, problem="is HOST:PORT with a port of its own, as in 127.0.0.1:8210")
