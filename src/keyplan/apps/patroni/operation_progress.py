"""How the work on an operation is written down: every commit guarded by operation and claim, how far it is, how it ended.

A broker that lost its claim, or whose operation was replaced, writes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Final, TypeVar

from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.operations import IN_PROGRESS, SUCCESS, note_progress
from keyplan.apps.patroni.records import Operation, Step
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = [
    "STEP_TITLES",
    "OperationProgress",
    "Patience",
    "StepFailedError",
    "StoppedError",
    "SupersededError",
    "Waits",
]

R = TypeVar("R")

Positions = Callable[[], Mapping[str, int]]
"""How far what is waited for has come, as numbers that grow, by name."""

_WAIT_SECONDS_MAX: Final = 7 * 86_400.0
"""Why: terabytes are copied in days, and what grows for ever is no copy."""

_MESSAGE_CHARACTERS_MAX: Final = 1_000
"""Why: what members and servers say is in it, and a record that is too large for the store would keep it from its end."""

STEP_TITLES: Final[Mapping[str, str]] = {
    "add": "add a node",
    "remove": "remove a node",
    "discard": "remove a node whose data were not completed",
    "begin_again": "let the cluster begin again",
    "wait_members": "wait for all members",
    "wait_leader": "wait for the leader",
    "switch": "hand over the lead",
    "restart": "restart PostgreSQL",
    "reinitialise": "copy the leader anew",
    "configure": "change the configuration",
    "wait_synchronous": "wait for synchronous replication, or its end",
    "wait_pause": "wait until members have paused, or gone on",
    "make_logins": "make other logins, and tell the nodes",
    "wait_logins": "wait until all nodes use them",
    "end_logins": "let the former logins end",
    "rotate_binding": "give a binding another user",
    "renew_data": "keep the data about it again, where the broker has callbacks",
    "equip": "tell all nodes where to archive",
    "back_up": "back up the leader",
    "verify_backup": "verify a backup by restoring it beside a node",
    "flush": "have all that is written archived",
    "allocate": "allocate a port",
    "halt": "halt all nodes, and keep their data",
    "lay_aside": "lay the halted cluster aside",
    "change_places": "let the former cluster take its place again",
    "resume": "let all nodes run",
    "discard_former": "remove the nodes of the former cluster, with their data",
    "settle_bindings": "make the users of all bindings, and end those of bindings that are gone",
    "wait_recovered": "restore the backup, and the log up to the time",
    "check_upgrade": "try whether a node can be made of the version beside",
    "wait_upgraded": "upgrade a copy of the data, and wait for the leader",
    "analyze": "make the statistics of all databases anew",
    "copy": "copy the backups that it is made from",
    "keep_data": "keep the data about it",
    "erase": "erase the records",
}
"""What each kind of step does, in words."""


class SupersededError(Exception):
    """The operation was replaced by another one, or its claim is held by another broker: stop, and write nothing."""


class StoppedError(Exception):
    """The broker stops: another one, or this one after its start, goes on at the same step."""


class StepFailedError(Exception):
    """A step cannot be made. The text is for people, in the operation's message."""


@dataclass(frozen=True)
class Waits:
    """How long steps wait, in seconds, and how often they look. What comes nearer, as a copy, is waited for longer."""

    step_seconds_max: float = 300.0
    cell_seconds_max: float = 30.0
    look_seconds: float = 0.25
    switch_again_seconds: float = 5.0
    hang_seconds: float = 15.0
    """Why 15: nodes take a turn every five or ten seconds, and the member of one that died goes with its TTL of 20 or 30."""


class Patience:
    """When a wait is given up: when nothing has come nearer for so many seconds; after a week in any case.

    `positions` are numbers by name, of which only what was never so large counts: what fails and begins anew, again and again,
    comes no nearer.
    """

    def __init__(self, seconds_max: float, positions: Positions = dict) -> None:
        self._seconds_max = seconds_max
        self._positions = positions
        self._furthest = dict(positions())
        self._ends_at = SYSTEM_CLOCK.monotonic() + _WAIT_SECONDS_MAX
        self._give_up = SYSTEM_CLOCK.monotonic() + seconds_max

    def is_over(self) -> bool:
        """Tell whether to give up."""
        now = SYSTEM_CLOCK.monotonic()
        if now <= self._give_up:
            return False
        # Why only now: who looks many times a second need not read what has not to be known yet.
        nearer = {name: at for name, at in self._positions().items() if at > self._furthest.get(name, 0)}
        self._furthest |= nearer
        self._give_up = now + self._seconds_max
        return not nearer or now > self._ends_at


class OperationProgress:
    """One operation in the hands of one broker. `broker` is its name in the claim; `stop` ends waits with StoppedError."""

    def __init__(
        self, store: Store, instance: str, operation: str, *, broker: str, stop: Event, clock: Clock, waits: Waits
    ) -> None:
        self.store = store
        self.latest = Broker(store)
        self.instance = instance
        self.waits = waits
        self.events = EventLog(store, clock)
        self._operation = operation
        self._broker = broker
        self._stop = stop
        self.clock = clock

    # ---- commits -------------------------------------------------------------------------------------------------------

    def commit(self, change: Callable[[Broker, Operation], R]) -> R:
        """Commit what `change` writes, if the operation is still the one, and still this broker's."""

        def work(binding: Binding) -> R:
            broker = Broker(binding)
            operation, claim = broker.operations.get(self.instance), broker.claims.get(self.instance)
            if operation is None or operation.id != self._operation or operation.status != IN_PROGRESS:
                raise SupersededError
            if claim is None or claim.broker != self._broker or claim.operation != self._operation:
                raise SupersededError
            return change(broker, operation)

        return self.store.run(work)

    def current(self) -> Operation:
        """Return the operation as it is. Raises SupersededError."""
        operation = self.latest.operations.get(self.instance)
        if operation is None or operation.id != self._operation or operation.status != IN_PROGRESS:
            raise SupersededError
        return operation

    def require_wanted(self) -> None:
        """Raise StepFailedError where the operation was called off."""
        if self.current().is_called_off:
            raise StepFailedError("it was called off")

    def _save(self, broker: Broker, operation: Operation) -> None:
        broker.operations.put(self.instance, operation)
        state = broker.instances.get(self.instance)
        if state is not None:
            note_progress(state, operation)
            broker.instances.put(self.instance, state)

    def complete(self, change: Callable[[Broker], object] = lambda _broker: None) -> None:
        """Commit the last writes of a step, and that it is done."""

        def completed(broker: Broker, operation: Operation) -> None:
            change(broker)
            operation.completed_steps += 1
            self._save(broker, operation)

        self.commit(completed)

    def tell(self, message: str) -> None:
        """Write down what is being done, in words."""

        def told(broker: Broker, operation: Operation) -> None:
            if operation.message != message:
                operation.message = message[:_MESSAGE_CHARACTERS_MAX]
                self._save(broker, operation)

        self.commit(told)

    def ended(self, status: str, message: str, also: Callable[[Broker, Operation], str] = lambda *_: "") -> Operation:
        """Write down the end of the operation, and what the instance is once it has succeeded. Return the operation.

        `also` is done in the same commit, and returns what is to be said of it behind the message.
        """

        def end(broker: Broker, operation: Operation) -> Operation:
            told = f"{message}{also(broker, operation)}"
            operation.status, operation.ended_at = status, self.clock.wall()
            whole = told if status == SUCCESS else f"{operation.message}: {told}"
            operation.message = whole[:_MESSAGE_CHARACTERS_MAX]
            state = broker.instances.get(self.instance)
            if state is not None and status == SUCCESS:
                state.plan_id, state.node_count, state.cells = operation.plan_id, operation.node_count, operation.cells
                state.parameters = operation.parameters
                broker.instances.put(self.instance, state)
            self._save(broker, operation)
            self.events.ended(broker, self.instance, operation, is_success=status == SUCCESS)
            # Why here: whoever sees the end finds nobody at work any more.
            broker.claims.delete(self.instance)
            return operation

        return self.commit(end)

    # ---- waiting -------------------------------------------------------------------------------------------------------

    def until(self, problem: Callable[[], str], seconds_max: float, positions: Positions = dict) -> None:
        """Wait until `problem` returns an empty text, and longer than `seconds_max` while a position grows.

        Raises StepFailedError with the last text; StoppedError, SupersededError.
        """
        patience = Patience(seconds_max, positions)
        while text := problem():
            if patience.is_over():
                raise StepFailedError(text)
            self.pause()

    def note(self, step: Step) -> None:
        """Write down the step that is being made: what was there before it began, and whether it was asked for."""

        def noted(broker: Broker, operation: Operation) -> None:
            operation.steps[operation.completed_steps] = step
            broker.operations.put(self.instance, operation)

        self.commit(noted)

    def pause(self) -> None:
        """Wait a moment. Raises StoppedError, SupersededError."""
        if self._stop.wait(self.waits.look_seconds):
            raise StoppedError
        self.current()
