"""The commands by which clusters that others made become ours: `take-over`, `adopt`, and `release`, the way back."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from keyplan.apps.patroni.adoption import Adoption, Found, Logins, logins_of, release
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG, Catalog, Offer, Plan, read_catalog
from keyplan.apps.patroni.layout import OUTSIDE
from keyplan.apps.patroni.ports import PORTS_DEFAULT, PortAllocator, port_range
from keyplan.apps.patroni.records import Credentials
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.takeover import Keys, copy_state, keys_of_store, keys_of_v2
from keyplan.cli import ConfigOption, StoreOption, agreed, print_hint, print_text, store_of_option
from keyplan.codec import Secret
from keyplan.engine import SYSTEM_CLOCK, open_engine
from keyplan.errors import InvalidInputError
from keyplan.store import Store

__all__ = ["add_adoption"]

USERS_VARIABLE: Final = "KEYPLAN_PATRONI_USERS"
_BYTES_MAX: Final = 65_536
_USERS_FORM: Final = '{"superuser": {"username", "password"}, "replication": {...}, "rest": {...}}'

_Cluster = Annotated[str, typer.Argument(help="The cluster: what Patroni calls its scope.")]
_Trial = Annotated[bool, typer.Option("--dry-run", help="Check all, say what would be written, and write nothing.")]


def add_adoption(app: typer.Typer) -> None:
    """Add the commands to those of `keyplan patroni`."""
    for name, command in (("take-over", _take_over), ("adopt", _adopt), ("release", _release)):
        app.command(name)(command)


def _adopt(
    cluster: _Cluster,
    users: Annotated[
        Path | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help=f"Its users as JSON, {_USERS_FORM}; else KEYPLAN_PATRONI_USERS, else they are asked for.",
        ),
    ] = None,
    plan: Annotated[str, typer.Option("--plan", metavar="NAME", help="The plan that it is of, by name or id.")] = "",
    service: Annotated[
        str, typer.Option("--service", metavar="NAME", help="The plan's service, where several are.")
    ] = "",
    catalog: Annotated[
        Path | None, typer.Option("--catalog", metavar="FILE", help="The broker's catalog, where it has its own.")
    ] = None,
    ports: Annotated[
        str,
        typer.Option("--ports", metavar="FIRST-LAST", help="The public ports, where it has none yet; as the broker's."),
    ] = f"{PORTS_DEFAULT.first}-{PORTS_DEFAULT.last}",
    is_trial: _Trial = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Make a cluster that appears below /service an instance of ours, while it runs; nothing of its own is touched.

    Its port stays, its members are its nodes. The users are checked at its leader, and every member's Patroni is asked, before
    anything is written.
    """
    offer, chosen = _plan_of(BUILT_IN_CATALOG if catalog is None else read_catalog(catalog), service, plan)
    public = port_range(ports)
    with store_of_option(store, config, create=False) as opened:
        adoption = Adoption(opened, PortAllocator(opened, public), SYSTEM_CLOCK)
        try:
            found = adoption.planned(cluster)
            # Why first: who is asked for passwords sees to whom they go. Members write their addresses themselves.
            _print_found(found, offer, chosen)
            logins = _logins(users)
            version = adoption.check(found, logins)
            _print_users(found, logins, version)
            if is_trial:
                print_hint("nothing was written")
                return
            state = adoption.adopt(found, logins, offer, chosen, version=version)
        except RefusedError as error:
            raise InvalidInputError(source=cluster, problem=error.description) from error
    print_text(f"{cluster} is an instance of {offer.name}, plan {chosen.name}, at port {state.allocated_port}")
    if outside := [node.name for node in found.nodes if node.cell == OUTSIDE]:
        print_hint(
            f"{', '.join(outside)}: no cell runs them. They are not started again here, and hear of no other credentials; "
            f"`keyplan patroni move {cluster} NODE --to CELL` makes a node of a cell in the place of one"
        )


def _plan_of(catalog: Catalog, service: str, plan: str) -> tuple[Offer, Plan]:
    """Find the plan that is meant. Raises InvalidInputError, which names those that there are."""
    found = [
        (offer, one)
        for offer in catalog.services
        if service in {"", offer.id, offer.name}
        for one in offer.plans
        if plan in {one.id, one.name}
    ]
    if len(found) != 1:
        known = ", ".join(f"{offer.name}/{one.name}" for offer in catalog.services for one in offer.plans)
        problem = "names no plan" if not found else "names several plans; give --service"
        raise InvalidInputError(source="--plan", problem=f"{problem}: there are {known}")
    return found[0]


def _logins(file: Path | None) -> Logins:
    """Read the users from a file, the environment or the terminal; never from the command line. Raises InvalidInputError."""
    source, given = USERS_VARIABLE, os.environ.get(USERS_VARIABLE, "").encode()
    if file is not None:
        source = str(file)
        try:
            with file.open("rb") as opened:
                given = opened.read(_BYTES_MAX)
        except OSError as error:
            raise InvalidInputError(source=source, problem="it cannot be read") from error
        if not given.strip():
            raise InvalidInputError(source=source, problem=f"it is empty, and not {_USERS_FORM}")
    if given:
        try:
            return logins_of(given)
        except ValueError as error:
            raise InvalidInputError(source=source, problem=f"it is not {_USERS_FORM}: {error}") from error
    if not sys.stdin.isatty():
        problem = f"not a terminal: give the users as a file, or in {USERS_VARIABLE}"
        raise InvalidInputError(source="--users", problem=problem)
    return Logins(
        superuser=_asked("the superuser", "postgres"),
        replication=_asked("the user for replication", "replicator"),
        rest=_asked("the user of Patroni's REST API; empty: it asks for none", ""),
    )


def _asked(words: str, default: str) -> Credentials:
    username = typer.prompt(f"Name of {words}", default=default, err=True).strip()
    if not username:
        return Credentials()
    password = typer.prompt(f"Password of {username}", hide_input=True, default="", show_default=False, err=True)
    return Credentials(username=username, password=Secret(password))


def _print_found(found: Found, offer: Offer, plan: Plan) -> None:
    print_text(f"instance {found.instance}: {offer.name}, plan {plan.name}, system identifier {found.identifier}")
    print_text(f"port {found.port}, which it has" if found.port is not None else "port: the next one")
    for node in found.nodes:
        where = "on no cell" if node.cell == OUTSIDE else f"on cell {node.cell}"
        role = "leads" if node.name == found.leader else node.problem or "follows"
        print_text(f"node {node.name} at {node.address or 'no address'}, {where}: {role}")


def _print_users(found: Found, logins: Logins, version: str) -> None:
    names = [logins.superuser.username, logins.replication.username, logins.rest.username or "(none)"]
    print_text(f"users {names[0]}, {names[1]}, REST API {names[2]}: checked at {found.leader}")
    print_text(f"PostgreSQL {version}")


def _release(
    cluster: Annotated[str, typer.Argument(help="The instance.")],
    is_trial: _Trial = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Forget an instance that no cell runs, and touch nothing of its cluster: it goes on, and keeps its port."""
    with store_of_option(store, config, create=False) as opened:
        try:
            found = release(opened, cluster, is_trial=True)
            print_text(f"forgotten: instance {cluster}, its users, its nodes {', '.join(found.nodes) or '(none)'}")
            if found.roles:
                print_text(
                    f"forgotten with their passwords, and left in PostgreSQL: the roles {', '.join(found.roles)}"
                )
            print_text(f"left: the cluster as it is, and its port {found.port}")
            if is_trial:
                print_hint("nothing was written")
            elif agreed(f"Forget {cluster}?", is_agreed=yes):
                release(opened, cluster, is_trial=False)
        except RefusedError as error:
            raise InvalidInputError(source=cluster, problem=error.description) from error


def _take_over(
    cluster: _Cluster,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL",
            help="Its etcd: etcd://HOST:PORT, or http://HOST:PORT where Patroni's mode is `etcd`.",
        ),
    ],
    is_trial: _Trial = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Copy what another etcd keeps of a paused cluster, so that its nodes can move to this store without a stop.

    Nothing is written there, and nobody is stopped. The guide has the steps before and after.
    """
    with store_of_option(store, config, create=False) as target:
        try:
            copied = copy_state(lambda: _keys(source, cluster), target, cluster, is_trial=is_trial)
        except RefusedError as error:
            raise InvalidInputError(source=cluster, problem=error.description) from error
    print_text(f"{cluster}, system identifier {copied.identifier}: {', '.join(copied.keys)}")
    if is_trial:
        print_hint("nothing was written")
        return
    order = [*(name for name in copied.members if name != copied.leader), copied.leader]
    print_hint(
        f"now let Patroni find its store here and start it again, node by node: {', '.join(order)}. "
        f"Then `patronictl resume --wait {cluster}`, and `keyplan patroni adopt {cluster}`"
    )


def _keys(source: str, cluster: str) -> Keys:
    if source.startswith(("http://", "https://")):
        return keys_of_v2(source, cluster)
    with Store(open_engine(source, create=False, readonly=True)) as opened:
        return keys_of_store(opened, cluster)
