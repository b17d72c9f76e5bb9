"""The commands of `keyplan patroni`: start it, see what runs, find what is wrong. They read arguments and print."""

from typing import Annotated, Final

import typer

from keyplan.apps.patroni.backups.cli import add_backups
from keyplan.apps.patroni.cli_actions import add_actions
from keyplan.apps.patroni.cli_adoption import add_adoption
from keyplan.apps.patroni.cli_cells import cell, router
from keyplan.apps.patroni.cli_events import show_events
from keyplan.apps.patroni.cli_status import show_status
from keyplan.apps.patroni.cli_top import show_top
from keyplan.apps.patroni.cli_up import up
from keyplan.apps.patroni.clusters import advertised_addresses, belonging_of
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.layout import Broker, NodeKey, OrderKey
from keyplan.apps.patroni.mending import MENDABLE, mend_all
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.records import NodeOrder
from keyplan.apps.patroni.upgrades.cli import add_upgrades
from keyplan.cli import (
    ConfigOption,
    JsonOption,
    StoreOption,
    agreed,
    print_grid,
    print_hint,
    print_json,
    print_text,
    store_of_option,
)
from keyplan.errors import InvalidInputError
from keyplan.layout import Binding

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

_PLAN: Final = " to carry out the plan"
_FOUND = 1
"""The exit code when something is wrong."""


@app.callback()
def _group() -> None:
    """PostgreSQL clusters as a service: the broker's store, its cells and its routers."""


app.command("up")(up)
app.command("cell")(cell)
app.command("router")(router)
app.command("status")(show_status)
app.command("top")(show_top)
app.command("events")(show_events)
add_actions(app)
add_adoption(app)
add_backups(app)
add_upgrades(app)


@app.command("doctor")
def examine(
    store: StoreOption = None,
    is_mending: Annotated[
        bool,
        typer.Option(
            "--mend",
            help="Show and remove stale registrations and orders, orphan nodes, lost and leaked ports, hung bootstraps.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --mend: do not ask.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Find stale registrations, orphan nodes, lost ports, clusters without a leader, and more.

    Exit code 1 when something is wrong that was not mended. Nothing is removed that a cluster has a trace of, whoever made it.
    """
    if yes and not is_mending:
        raise InvalidInputError(source="--yes", problem="--yes belongs to --mend: pass both")
    with store_of_option(store, config) as opened:
        found = diagnose(opened)
        plan = [fault for fault in found if is_mending and fault.kind in MENDABLE]
        if plan and not yes:
            for fault in plan:
                print_hint(f"to be removed: {fault.kind} {fault.subject}: {fault.text}")
        is_agreed = not plan or agreed(f"Remove {len(plan)} of these?", is_agreed=yes, source="--mend", instead=_PLAN)
        mended = mend_all(opened, plan) if is_agreed else set()
    if as_json:
        print_json({"findings": [{**fault._asdict(), "mended": fault in mended} for fault in found]})
    elif found:
        rows = [[fault.kind, fault.subject, fault.text, "mended" if fault in mended else ""] for fault in found]
        print_grid(["what", "where", "why", ""], rows)
    else:
        typer.echo("Nothing is wrong.")
    if len(mended) < len(found):
        raise typer.Exit(_FOUND)


@app.command("discard")
def discard(
    cell: Annotated[str, typer.Argument(help="The cell that has the node.")],
    node: Annotated[str, typer.Argument(help="The node that nobody ordered, as the doctor names it.")],
    is_sure: Annotated[bool, typer.Option("--yes", help="Remove its data. Nothing brings them back.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Order a cell to remove a node that nobody ordered, with its data. Without --yes it only says what it would do."""

    def ordered(binding: Binding) -> str:
        broker, key = Broker(binding), OrderKey(cell, node)
        report = broker.reports.get(key)
        if report is None or report.state != "unordered" or broker.orders.exists(key):
            problem = "the cell reports no such node as unordered; `keyplan patroni doctor` lists them"
            raise InvalidInputError(source=f"{cell}/{node}", problem=problem)
        if broker.nodes.get(NodeKey(report.instance, node)) == cell:
            problem = (
                f"the broker counts on it as a node of {report.instance}, whose order was lost. Let the broker remove it: "
                "update the instance to fewer nodes, or delete it"
            )
            raise InvalidInputError(source=f"{cell}/{node}", problem=problem)
        if is_sure:
            broker.orders.put(key, NodeOrder(instance=report.instance, remove=True))
        return report.instance

    with store_of_option(store, config, create=False) as opened:
        instance = opened.run(ordered)
    if is_sure:
        print_text(f"cell {cell} is ordered to remove node {node} of {instance}, with its data")
    else:
        print_text(f"cell {cell} would remove node {node} of {instance}, with its data: pass --yes")


@app.command("whose")
def show_registrations(store: StoreOption = None, as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List registered containers with the instance and node that each belongs to, by address or by name."""
    rows: list[list[str]] = []
    with store_of_option(store, config) as opened, opened.snapshot() as state:
        broker = Broker(state)
        advertised = advertised_addresses(broker)
        for key, address in readable(broker.registrations.rows()):
            found = belonging_of(broker, key, address, advertised)
            whose = ["", "", "unresolved"] if found is None else list(found)
            rows.append([f"{key.image}/{key.host}:{key.container}:{key.port}", address, *whose])
    names = ["registration", "address", "instance", "node", "found by"]
    if as_json:
        print_json({"registrations": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_grid(names, rows)
