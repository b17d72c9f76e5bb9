"""How an upgrade to another major version begins: judged by what the store knows, and written as an operation."""

from typing import Final
from uuid import uuid4

from keyplan.apps.patroni.backups.books import version_of
from keyplan.apps.patroni.backups.records import new_archive
from keyplan.apps.patroni.backups.restore_plans import (
    SETTLED,
    led_configuration,
    placed_nodes,
    refuse_former,
    refuse_full,
)
from keyplan.apps.patroni.clusters import members_astray
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import Broker, OrderKey
from keyplan.apps.patroni.operations import begin_planned, operation_on
from keyplan.apps.patroni.records import InstanceState, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.upgrades.records import UPGRADE, Upgrade
from keyplan.engine import Clock
from keyplan.store import Store

__all__ = ["UPGRADE_OPERATIONS", "UpgradePlans"]

CHECK: Final = "upgrade-check"
UPGRADE_OPERATIONS: Final = (UPGRADE, CHECK)
"""The kinds of operations that begin here. The way back and the end are `restore-back` and `restore-finish`."""


class UpgradePlans:
    """Plans and begins. Raises RefusedError: 404 without the instance, 400 for what cannot be, 422 for not now."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events = EventLog(store, clock)

    def upgrade(self, instance: str, version: str, *, is_check: bool = False, is_trial: bool = False) -> Operation:
        """Make an instance one of another major version of PostgreSQL, of the data that it has.

        Its nodes are halted with their data, and others made on the same cells; where that fails before one leads, the former
        go on. With `is_check` cells try whether it can be made, and nothing is changed. With `is_trial` nothing is written.
        """

        def planned(broker: Broker, state: InstanceState) -> Operation:
            refuse_former(state)
            configuration = led_configuration(broker, instance)
            placed = placed_nodes(broker, instance)
            former = version_of(broker, instance)
            _refuse_version(former, version)
            _refuse_lacking(broker, placed, former, version)
            refuse_full(broker, placed)
            if astray := members_astray(broker, instance, [place.node for place in placed]):
                node, problem = next(iter(astray.items()))
                raise RefusedError(422, f"{node}: {problem}; all members must follow first")
            leader = broker.leaders.get(instance)
            # Why the leader last: what the others find out takes less.
            placed.sort(key=lambda place: (place.node == leader, place))
            checks = [Step(kind="check_upgrade", node=place.node, target=version) for place in placed]
            if is_check:
                return operation_on(self._clock, CHECK, checks, state)
            first, *others = [Step(kind="add", node=str(uuid4()), target=place.cell) for place in reversed(placed)]
            has_archive = state.archive is not None
            steps = [
                *(*checks, *([Step(kind="flush", node=instance)] if has_archive else [])),
                *(Step(kind="halt"), Step(kind="lay_aside"), first, Step(kind="wait_upgraded")),
                *(*others, Step(kind="wait_members"), Step(kind="wait_leader"), *SETTLED, Step(kind="analyze")),
                *([Step(kind="back_up", target="full")] if has_archive else []),
            ]
            begun = operation_on(self._clock, UPGRADE, steps, state)
            begun.upgrade = Upgrade(former_version=former, version=version, configuration=configuration)
            begun.archive = new_archive(instance, state.archive.policy) if state.archive is not None else None
            return begun

        return begin_planned(self._store, self._events, instance, planned, is_trial=is_trial)


def _refuse_version(former: str, version: str) -> None:
    if not former:
        raise RefusedError(422, "its cells do not say which version it is of: start their agents anew, of this keyplan")
    if not version.isascii() or not version.isdecimal():
        raise RefusedError(400, f"{version} is no major version of PostgreSQL: give one as 18")
    if float(version) <= float(former):
        raise RefusedError(400, f"it is of PostgreSQL {former}: give a newer version")


def _refuse_lacking(broker: Broker, placed: list[OrderKey], former: str, version: str) -> None:
    """Raise RefusedError where a cell has not the programs of both versions: the former ones read the data."""
    for place in placed:
        versions = broker.cells.require(place.cell).versions
        if lacking := [each for each in (former, version) if each not in versions]:
            raise RefusedError(
                422,
                f"cell {place.cell} has no PostgreSQL {' and '.join(lacking)}: install it there, name its folder by "
                "`--also-postgresql` where it is not Debian's, and start the agent anew",
            )
