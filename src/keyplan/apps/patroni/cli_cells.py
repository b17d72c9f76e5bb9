"""The commands `keyplan patroni cell` and `keyplan patroni router`: each follows one store until it is told to stop."""

import os
import secrets
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

import typer

from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.cell_reach import cell_store
from keyplan.apps.patroni.cli_options_cells import (
    AddressOption,
    ConsentOption,
    ForwardOption,
    HostnameOption,
    InstanceUsersOption,
    LeaseOption,
    LogLevelOption,
    ModeOption,
    NodeOptions,
    tell_of_common_user,
)
from keyplan.apps.patroni.logs import LOGGER, set_up_logging
from keyplan.apps.patroni.node_config import DYNAMIC_DEFAULT, Gateway, merged
from keyplan.apps.patroni.node_ports import PortRange
from keyplan.apps.patroni.node_users import InstanceUsers
from keyplan.apps.patroni.ports import PORTS_DEFAULT, PortAllocator, port_range
from keyplan.apps.patroni.records import Cell
from keyplan.apps.patroni.registrar import CELL_LEASE_SECONDS
from keyplan.apps.patroni.router_agent import Router, Switchboard
from keyplan.apps.patroni.router_haproxy import HAProxy, find_haproxy
from keyplan.cli import ConfigOption, StoreOption, print_text, spread, store_of_option
from keyplan.codec import Secret
from keyplan.errors import InvalidInputError
from keyplan.signals import told_by_signals

__all__ = ["cell", "router"]


@spread
def cell(
    name: Annotated[str, typer.Argument(help="The cell's name: unique in the store, and the same after a restart.")],
    *,
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="HOST:PORT,...", help="Where Patroni finds the same store as etcd.")
    ],
    data: Annotated[
        Path, typer.Option("--data", metavar="FOLDER", help="The cell's own folder; nodes' data lie in it.")
    ],
    store: StoreOption = None,
    config: ConfigOption = None,
    mode: ModeOption = "etcd3",
    password_file: Annotated[
        Path | None, typer.Option("--gateway-password-file", metavar="FILE", help="The gateway's token, in a file.")
    ] = None,
    zone: Annotated[str, typer.Option("--zone", metavar="NAME", help="The cell's availability zone.")] = "z1",
    capacity: Annotated[
        int, typer.Option("--capacity", metavar="N", min=0, help="How many nodes it takes; 0: any.")
    ] = 0,
    address: AddressOption = "127.0.0.1",
    hostname: HostnameOption = "",
    ports: Annotated[
        str, typer.Option("--ports", metavar="FIRST-LAST", help="The ports of its nodes, two for each.")
    ] = "20000-24999",
    instance_users: InstanceUsersOption = "",
    nodes: NodeOptions,
    lease: LeaseOption = CELL_LEASE_SECONDS,
    stop_nodes: Annotated[
        bool,
        typer.Option(
            "--stop-nodes", help="End the nodes with the agent. Without, they go on, and it finds them again."
        ),
    ] = False,
    accept_store: ConsentOption = "",
) -> None:
    """Run the nodes that the broker orders of this machine: Patroni and PostgreSQL as processes of an unprivileged user.

    SIGTERM ends the agent; its nodes go on without it, as they do when it is killed, and the next one finds them.
    """
    set_up_logging(nodes.log_level)
    users = InstanceUsers.of_text(instance_users)
    host = nodes.host(users)
    tell_of_common_user(host, users)
    settings = CellSettings(
        name=name,
        folder=data.absolute(),
        gateway=Gateway(
            gateway, _mode(mode), password=Secret(password_file.read_text().strip() if password_file else "")
        ),
        cell=Cell(availability_zone=zone, host=address, capacity=capacity, versions=host.versions),
        ports=PortRange.of_text(ports),
        hostname=(hostname or socket.gethostname()).replace(":", "-").replace("/", "-"),
        parameters=nodes.parameters,
        dynamic=merged(DYNAMIC_DEFAULT, nodes.dynamic),
        lease_seconds=lease,
        accepted_store=accept_store,
        restore_command=nodes.restore,
        tls=nodes.tls,
        users=users,
    )
    stop = Event()
    with told_by_signals(stop, logger=LOGGER) as impatient, ExitStack() as stack:
        opened = stack.enter_context(store_of_option(store, config, create=False))
        # Why the cell's own: nothing that it is told, or does wrong, leads to what is another cell's.
        own = stack.enter_context(cell_store(opened, name, hostname=settings.hostname, image=settings.image))
        agent = CellAgent(own, settings, host)
        agent.open()
        try:
            print_text(f"cell {name}")
            sys.stdout.flush()
            agent.run(stop)
            if stop_nodes:
                agent.stop_nodes(impatient)
        finally:
            agent.close()


def router(
    data: Annotated[Path, typer.Option("--data", metavar="FOLDER", help="The router's own folder: HAProxy's files.")],
    store: StoreOption = None,
    config: ConfigOption = None,
    bind: Annotated[
        str, typer.Option("--bind", metavar="HOST", help="The address that the public ports are opened at.")
    ] = "127.0.0.1",
    ports: Annotated[
        str,
        typer.Option(
            "--ports", metavar="FIRST-LAST", help="The public ports for clusters that nobody ordered; as the broker's."
        ),
    ] = f"{PORTS_DEFAULT.first}-{PORTS_DEFAULT.last}",
    only_ordered: Annotated[
        bool, typer.Option("--only-ordered", help="Give clusters that nobody ordered of the broker no port.")
    ] = False,
    forward: ForwardOption = False,
    stop_haproxy: Annotated[
        bool,
        typer.Option("--stop-haproxy", help="End HAProxy with the router. Without, it goes on, and is found again."),
    ] = False,
    log_level: LogLevelOption = "info",
) -> None:
    """Make the public port of every instance lead to its current leader, by HAProxy, or by itself where there is none.

    A cluster that appears below /service, and that nobody ordered, is given a port as soon as somebody leads it.
    """
    set_up_logging(log_level)
    public = port_range(ports)
    program = None if forward else find_haproxy()
    stop = Event()
    with told_by_signals(stop, logger=LOGGER), store_of_option(store, config, create=False) as opened:
        switchboard: Switchboard
        if program is None:
            # Why here: asyncio is for who forwards alone.
            from keyplan.apps.patroni.router_forward import Forwarder  # noqa: PLC0415

            switchboard = Forwarder(bind=bind)
        else:
            switchboard = HAProxy(data.absolute(), program=program, bind=bind, is_root=os.geteuid() == 0)
        by = "forwarding" if program is None else "haproxy"
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        allocator = None if only_ordered else PortAllocator(opened, public)
        last = None if program is None else data.absolute() / "last-leaders.json"
        following = Router(opened, switchboard, name=name, by=by, ports=allocator, last_leaders=last)
        try:
            print_text(f"router by {'this process' if program is None else program}")
            sys.stdout.flush()
            following.run(stop)
        finally:
            following.close()
            following.leave()
            if stop_haproxy or program is None:
                switchboard.stop()


def _mode(text: str) -> Literal["etcd", "etcd3"]:
    if text == "etcd3":
        return "etcd3"
    if text == "etcd":
        return "etcd"
    raise InvalidInputError(source="--mode", problem="Patroni's protocol is etcd3 or etcd")
