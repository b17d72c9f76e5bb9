"""The commands that act on a cluster that runs: each writes an operation, which a broker carries out, and follows it."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import typer

from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.clusters import cells_away
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logins import BINDINGS, KEEP_SECONDS, KEEP_SECONDS_MAX, LoginKind
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.operation_progress import STEP_TITLES
from keyplan.apps.patroni.operations import IN_PROGRESS, SUCCESS
from keyplan.apps.patroni.records import Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.cli import ConfigOption, StoreOption, agreed, print_hint, print_text, spread, store_of_option
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.signals import told_by_signals, wait_for
from keyplan.store import Store

__all__ = ["ActionOptions", "Consent", "add_actions", "begin_and_follow"]

_LOOK_SECONDS: Final = 0.25
_FAILED: Final = 1

_Instance = Annotated[str, typer.Argument(help="The instance.")]


class ActionOptions(NamedTuple):
    """Which store an action is begun in, and whether it is: begun at all, and waited for."""

    is_trial: Annotated[bool, typer.Option("--dry-run", help="Print the steps, and begin nothing.")] = False
    no_wait: Annotated[bool, typer.Option("--no-wait", help="End when it has begun; `status` tells how far it is.")] = (
        False
    )
    store: StoreOption = None
    config: ConfigOption = None


class Consent(NamedTuple):
    """What somebody is asked before an operation begins, whether they have said yes already, and what they are shown of it."""

    question: str
    is_given: bool
    show: Callable[[Store], Sequence[Step]]


def add_actions(app: typer.Typer) -> None:
    """Add the commands to those of `keyplan patroni`."""
    for name, command in (
        ("switchover", _switchover),
        ("restart", _restart),
        ("reinit", _reinitialise),
        ("move", _move),
        ("configure", _configure),
        ("pause", _pause),
        ("resume", _resume),
        ("synchronous", _synchronous),
        ("scale", _scale),
        ("rotate", _rotate),
    ):
        app.command(name)(command)


@spread
def _switchover(
    instance: _Instance,
    options: ActionOptions,
    to: Annotated[
        str,
        typer.Option("--to", metavar="NODE", help="Who is to lead; the best replica without it.", show_default=False),
    ] = "",
) -> None:
    """Hand over the lead of a cluster, when all its members follow. Writes wait for some seconds."""
    _act(instance, Action(kind=ActionKind.SWITCHOVER, node=to), options)


@spread
def _restart(
    instance: _Instance,
    options: ActionOptions,
    node: Annotated[str, typer.Argument(help="One node; all, the leader last, without it.", show_default=False)] = "",
) -> None:
    """Restart PostgreSQL of a cluster's nodes, one after the other, the leader last. The lead stays where it is."""
    _act(instance, Action(kind=ActionKind.RESTART, node=node), options)


@spread
def _reinitialise(
    instance: _Instance, node: Annotated[str, typer.Argument(help="The replica.")], options: ActionOptions
) -> None:
    """Have a replica give up its data and copy the leader anew."""
    _act(instance, Action(kind=ActionKind.REINITIALISE, node=node), options)


@spread
def _move(
    instance: _Instance,
    node: Annotated[str, typer.Argument(help="The node.")],
    to: Annotated[str, typer.Option("--to", metavar="CELL", help="The cell that it moves to.")],
    options: ActionOptions,
) -> None:
    """Make a new node on another cell, and remove the old one with its data when all that stay follow. The lead moves along."""
    _act(instance, Action(kind=ActionKind.MOVE, node=node, cell=to), options)


@spread
def _configure(
    instance: _Instance,
    change: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...", help="As postgresql.parameters.work_mem=8MB or ttl=30; null removes a setting."
        ),
    ],
    options: ActionOptions,
) -> None:
    """Change Patroni's dynamic configuration of a cluster. What PostgreSQL takes at its start alone waits for `restart`."""
    _act(instance, Action(kind=ActionKind.CONFIGURE, configuration=changes_of(change)), options)


@spread
def _pause(instance: _Instance, options: ActionOptions) -> None:
    """Have Patroni leave a cluster alone: no failover until `resume`, also where its leader dies."""
    _act(instance, Action(kind=ActionKind.CONFIGURE, configuration={"pause": True}), options)


@spread
def _resume(instance: _Instance, options: ActionOptions) -> None:
    """Have Patroni look after a cluster again."""
    _act(instance, Action(kind=ActionKind.CONFIGURE, configuration={"pause": None}), options)


@spread
def _synchronous(
    instance: _Instance,
    state: Annotated[Literal["on", "off"], typer.Argument(help="on or off.")],
    options: ActionOptions,
) -> None:
    """Have writes wait for a replica, so that a failover loses none that was acknowledged; or no longer."""
    _act(instance, Action(kind=ActionKind.CONFIGURE, configuration={"synchronous_mode": state == "on"}), options)


@spread
def _scale(
    instance: _Instance,
    nodes: Annotated[int, typer.Argument(metavar="NODES", help="How many nodes there are to be.")],
    options: ActionOptions,
) -> None:
    """Add nodes to a cluster, or remove some with their data: replicas, those first that cannot be counted on."""
    _act(instance, Action(kind=ActionKind.SCALE, node_count=nodes), options)


@spread
def _rotate(
    instance: _Instance,
    options: ActionOptions,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="WHAT",
            help=f"{', '.join([*LoginKind, BINDINGS])} or binding:ID; repeatable. All without it.",
            show_default=False,
        ),
    ] = None,
    keep_seconds: Annotated[
        float,
        typer.Option(
            "--keep-seconds", metavar="N", min=0, max=KEEP_SECONDS_MAX, help="How long the former ones count."
        ),
    ] = KEEP_SECONDS,
) -> None:
    """Replace what a cluster's programs and its bindings log in with. No connection is refused meanwhile; nothing is shown."""
    _act(instance, Action(kind=ActionKind.ROTATE, only=only or [], keep_seconds=keep_seconds), options)
    with store_of_option(options.store, options.config, create=False) as opened:
        # Why after it: a token is replaced all the same, and its former one may end before they are back.
        for cell in cells_away(Broker(opened), instance):
            print_hint(f"cell {cell} is not alive: its nodes are told when it is back")


def changes_of(texts: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE, the parts of a name divided by dots, a value as JSON or else as text. Raises InvalidInputError."""
    found: dict[str, Any] = {}
    for text in texts:
        name, given, value = text.partition("=")
        *path, last = name.split(".")
        if not given or not last or not all(path):
            raise InvalidInputError(source=text, problem="a change is NAME=VALUE, as ttl=30")
        at = found
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise InvalidInputError(source=text, problem=f"{part} is given a value and settings below it")
        if last in at:
            raise InvalidInputError(source=text, problem="the setting is given twice")
        at[last] = _value_of(value)
    return found


def _value_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def _act(instance: str, action: Action, options: ActionOptions) -> None:
    def begin(store: Store) -> Operation:
        actions = Actions(store, SYSTEM_CLOCK)
        if options.is_trial:
            return Operation(id="", kind=action.kind, steps=actions.planned(instance, action))
        return actions.begin(instance, action)

    begin_and_follow(instance, options, begin)


def begin_and_follow(
    instance: str, options: ActionOptions, begin: Callable[[Store], Operation], consent: Consent | None = None
) -> None:
    """Print the steps of an operation that `begin` plans, or begins where it is no trial, and follow it to its end.

    With `consent` they are shown first, and it begins when somebody agrees.
    """
    with store_of_option(options.store, options.config, create=False) as opened:
        try:
            if consent is not None and not options.is_trial:
                _print_steps(consent.show(opened))
                if not agreed(consent.question, is_agreed=consent.is_given):
                    return
            begun = begin(opened)
        except RefusedError as error:
            raise InvalidInputError(source=instance, problem=error.description) from error
        if consent is None or options.is_trial:
            _print_steps(begun.steps)
        if options.is_trial:
            print_hint("nothing was begun")
        elif options.no_wait:
            print_hint(f"begun: `keyplan patroni status {instance}` tells how far it is")
        elif not _followed(opened, instance, begun.id):
            raise typer.Exit(_FAILED)


def _print_steps(steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps, 1):
        words = (STEP_TITLES[step.kind], step.node, f"({step.target})" if step.target else "")
        print_text(f"{number}. {' '.join(filter(None, words))}")


def _followed(store: Store, instance: str, operation: str) -> bool:
    """Print how far an operation is, as it goes on, until it ends; return whether it succeeded. A signal ends the looking."""
    broker, told, stop = Broker(store), "", Event()
    with told_by_signals(stop, logger=LOGGER):
        while True:
            now = broker.operations.get(instance)
            if now is None or now.id != operation:
                print_hint("another operation has begun since")
                return False
            if now.message != told:
                told = now.message
                print_hint(told)
            if now.status != IN_PROGRESS:
                return now.status == SUCCESS
            if wait_for(stop, _LOOK_SECONDS):
                print_hint(f"it goes on: `keyplan patroni status {instance}` tells how far it is")
                raise KeyboardInterrupt
