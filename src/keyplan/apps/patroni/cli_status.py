"""`keyplan patroni status`: every cluster with its leader, members, lag, port and cells; once, or as it changes."""

import sys
from threading import Event
from typing import Annotated

import msgspec
import typer

from keyplan.apps.patroni.clusters import ClusterView, clusters
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logs import LOGGER
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_grid, print_json, store_of_option
from keyplan.errors import InvalidInputError
from keyplan.signals import told_by_signals, wait_for
from keyplan.store import Store

__all__ = ["show_status"]

_COLUMNS = ["instance", "port", "operation", "node", "cell", "role", "state", "address", "lag"]


def show_status(
    instance: Annotated[str, typer.Argument(help="One instance; all without it.", show_default=False)] = "",
    store: StoreOption = None,
    is_live: Annotated[bool, typer.Option("--live", help="Show it again and again, until Ctrl-C.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How often with --live.")] = 2.0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Show every cluster with its leader, members, lag, port and cells."""
    if is_live and as_json:
        raise InvalidInputError(source="--live", problem="a live view is for people; leave out --json")
    with store_of_option(store, config) as opened:
        if as_json:
            print_json({"clusters": msgspec.to_builtins(_read(opened, instance))})
        elif is_live and sys.stdout.isatty():
            _show_live(opened, instance, seconds)
        elif is_live:
            raise InvalidInputError(source="--live", problem="a live view needs a terminal")
        else:
            print_grid(_COLUMNS, _rows(_read(opened, instance)))


def _read(store: Store, instance: str) -> list[ClusterView]:
    with store.snapshot() as state:
        return [view for view in clusters(Broker(state)) if instance in {"", view.instance}]


def _rows(views: list[ClusterView]) -> list[list[str]]:
    rows: list[list[str]] = []
    for view in views:
        head = [view.instance, str(view.port or ""), view.operation]
        for node in view.nodes:
            role = "leader" if node.name == view.leader else node.role
            cell = node.cell if node.cell_is_alive or not node.cell else f"{node.cell} (dead)"
            lag = "" if node.lag_bytes is None else str(node.lag_bytes)
            rows.append([*head, node.name, cell, role, node.state or node.report, node.address, lag])
            head = ["", "", ""]
        rows += [[view.instance, "", "", "", "", "", "cannot be read", record, ""] for record in view.damaged]
        if not view.nodes:
            rows.append([*head, "", "", "", view.message, "", ""])
    return rows


def _show_live(store: Store, instance: str, seconds: float) -> None:
    # Why here: rich takes a fifth of a second to import, which the other commands do without.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    def table() -> Table:
        shown = Table(*_COLUMNS, box=None, pad_edge=False)
        for row in _rows(_read(store, instance)):
            shown.add_row(*row)
        return shown

    # Why a flag: an interrupt that falls into a finalizer is printed by Python and forgotten, and the view would go on.
    stop = Event()
    with told_by_signals(stop, logger=LOGGER), Live(table(), console=Console(), auto_refresh=False) as live:
        while not wait_for(stop, seconds):
            live.update(table(), refresh=True)
    raise KeyboardInterrupt
