"""`keyplan patroni status`: every cluster with its leader, members, lag, port, cells and version, a line for each member."""

from typing import Annotated

import msgspec
import typer

from keyplan.apps.patroni.clusters import ClusterView, clusters, role_of
from keyplan.apps.patroni.layout import Broker
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_grid, print_hint, print_json, store_of_option
from keyplan.store import Store

__all__ = ["show_status"]

_COLUMNS = ["instance", "port", "operation", "node", "cell", "role", "state", "address", "lag", "PostgreSQL"]


def show_status(
    instance: Annotated[str, typer.Argument(help="One instance; all without it.", show_default=False)] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Show every cluster with its leader, members, lag, port, cells and version of PostgreSQL."""
    with store_of_option(store, config) as opened:
        views = _read(opened, instance)
    if as_json:
        print_json({"clusters": msgspec.to_builtins(views)})
    elif views:
        print_grid(_COLUMNS, _rows(views))
    else:
        # Why a hint: whoever reads lines of members takes none for none.
        print_hint(f"there is no cluster {instance}" if instance else "there are no clusters in this store")


def _read(store: Store, instance: str) -> list[ClusterView]:
    with store.snapshot() as state:
        return [view for view in clusters(Broker(state)) if instance in {"", view.instance}]


def _rows(views: list[ClusterView]) -> list[list[str]]:
    rows: list[list[str]] = []
    for view in views:
        head, version = [view.instance, str(view.port or ""), view.operation], view.version
        for node in view.nodes:
            role = role_of(view, node)
            cell = node.cell if node.cell_is_alive or not node.cell else f"{node.cell} (dead)"
            lag = "" if node.lag_bytes is None else str(node.lag_bytes)
            rows.append([*head, node.name, cell, role, node.state or node.report, node.address, lag, version])
            head, version = ["", "", ""], ""
        if view.archive is not None:
            rows.append([view.instance, "", "", "", "", "", "archive", view.archive.text, "", ""])
        if view.former:
            rows.append([view.instance, "", "", "", "", "", "former", view.former, "", ""])
        rows += [[view.instance, "", "", "", "", "", "cannot be read", record, "", ""] for record in view.damaged]
        if not view.nodes:
            rows.append([*head, "", "", "", view.message, "", "", version])
    return rows
