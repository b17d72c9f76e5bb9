"""The command for upgrades: it writes an operation, and follows it."""

from typing import Annotated, NamedTuple

import typer

from keyplan.apps.patroni.backups.cli import go_back, remove_former
from keyplan.apps.patroni.cli_actions import ActionOptions, Consent, begin_and_follow
from keyplan.apps.patroni.records import Operation
from keyplan.apps.patroni.upgrades.plans import UpgradePlans
from keyplan.cli import spread
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.store import Store

__all__ = ["add_upgrades"]


def add_upgrades(app: typer.Typer) -> None:
    """Add the command to those of `keyplan patroni`."""
    app.command("upgrade")(_upgrade)


class _UpgradeOptions(NamedTuple):
    """What is done: there, tried or not; and back, or the end."""

    to: Annotated[
        str, typer.Option("--to", metavar="VERSION", help="The major version of PostgreSQL, as 18.", show_default=False)
    ] = ""
    is_check: Annotated[
        bool, typer.Option("--check", help="Have the cells try whether it can be made, and change nothing.")
    ] = False
    is_back: Annotated[bool, typer.Option("--back", help="Return to what was there before an upgrade.")] = False
    is_final: Annotated[bool, typer.Option("--finish", help="Remove what was there before, with its data.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False

    def require_one(self) -> None:
        """Raise InvalidInputError where it is not one thing that is asked for."""
        if sum([bool(self.to), self.is_back, self.is_final]) != 1:
            raise InvalidInputError(source="upgrade", problem="pass one of --to VERSION, --back and --finish")
        if self.is_check and not self.to:
            raise InvalidInputError(source="--check", problem="belongs to --to")


@spread
def _upgrade(
    instance: Annotated[str, typer.Argument(help="The instance.")], chosen: _UpgradeOptions, options: ActionOptions
) -> None:
    """Upgrade a cluster to another major version of PostgreSQL, of a copy of its data. Writes are refused meanwhile.

    What --check tries is tried first. Port, users, bindings and configuration stay; the nodes are new. Those that were there
    are halted, with their data, until --finish, and --back returns to them.
    """
    chosen.require_one()
    if chosen.is_back:
        go_back(instance, options, is_agreed=chosen.yes)
        return
    if chosen.is_final:
        remove_former(instance, options, is_agreed=chosen.yes)
        return

    def begin(store: Store, *, is_trial: bool) -> Operation:
        plans = UpgradePlans(store, SYSTEM_CLOCK)
        return plans.upgrade(instance, chosen.to, is_check=chosen.is_check, is_trial=is_trial)

    question = f"Halt {instance}, and make it one of PostgreSQL {chosen.to}?"
    begin_and_follow(
        instance,
        options,
        lambda store: begin(store, is_trial=options.is_trial),
        None if chosen.is_check else Consent(question, chosen.yes, lambda store: begin(store, is_trial=True).steps),
    )
