"""The steps of an operation that ask something of Patroni, and those that wait until the store shows that it is so.

A step that asks notes first what it will be known by; so a broker that goes on with it does not ask for what is done already.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from keyplan.apps.patroni import patroni_rest
from keyplan.apps.patroni.bootstraps import BootstrapWatch
from keyplan.apps.patroni.clusters import RUNNING, leader_of, member_of, members_astray
from keyplan.apps.patroni.layout import OUTSIDE, Broker, MemberKey, OrderKey
from keyplan.apps.patroni.operation_progress import OperationProgress, Patience, StepFailedError
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError
from keyplan.apps.patroni.readable import readable_of
from keyplan.apps.patroni.records import Credentials, Member, Step
from keyplan.engine import SYSTEM_CLOCK

__all__ = ["ClusterSteps", "is_changed"]

Ask = Callable[[Member | None, Credentials], None]
"""A call of Patroni's REST API at a member, which raises PatroniRefusedError."""

_DOWN: Final = "-"
"""The mark of a member whose PostgreSQL did not run when the step began."""


class ClusterSteps:
    """The steps by their words. Each raises StepFailedError, StoppedError, SupersededError, and KeyplanError of the store."""

    def __init__(self, progress: OperationProgress) -> None:
        self._progress = progress
        self._latest = progress.latest
        self._instance = progress.instance
        self.steps: Final[Mapping[str, Callable[[Step], None]]] = {
            "wait_members": self._wait_members,
            "wait_leader": self._wait_leader,
            "wait_synchronous": self._wait_synchronous,
            "wait_pause": self._wait_pause,
            "switch": self._switch,
            "restart": partial(self._start_anew, ask=patroni_rest.restart),
            "reinitialise": self._reinitialise,
            "configure": self._configure,
        }

    # ---- waiting --------------------------------------------------------------------------------------------------------

    def _wait_members(self, step: Step) -> None:
        watch = BootstrapWatch(self._progress) if self._progress.current().kind == "provision" else None

        def problem() -> str:
            missing = self._missing_members()
            if not missing or watch is None:
                return missing
            hung = watch.look()
            return "" if watch.is_cancelled() or watch.has_replaced() else hung or missing

        self._progress.until(problem, self._progress.waits.step_seconds_max, self.positions)
        if self._progress.current().steps[self._progress.current().completed_steps].kind == step.kind:
            self._progress.complete()

    def positions(self) -> dict[str, int]:
        """Return how far the members have come that cannot be counted on yet: the bytes of their data, the WAL that they have.

        Why not of the others: a healthy cluster's grow all the time.
        """
        found: dict[str, int] = {}
        with self._progress.store.snapshot() as state:
            broker = Broker(state)
            placed = {key.node: cell for key, cell in broker.nodes.list(self._instance)}
            for node in members_astray(broker, self._instance, sorted(placed)):
                member, report = (
                    member_of(broker, self._instance, node),
                    readable_of(broker.reports, OrderKey(placed[node], node)),
                )
                found[f"{node} bytes"] = report.data_bytes if report is not None else 0
                found[f"{node} WAL"] = (member.xlog_location if member is not None else None) or 0
        return found

    def _missing_members(self) -> str:
        """Return which members cannot be counted on: all that stay must follow; those that the operation removes need not."""
        operation = self._progress.current()
        removals = [step.node for step in operation.steps[operation.completed_steps :] if step.kind == "remove"]
        with self._progress.store.snapshot() as state:
            broker = Broker(state)
            placed = {key.node: cell for key, cell in broker.nodes.list(self._instance)}
            staying = sorted(placed.keys() - set(removals))
            astray = members_astray(broker, self._instance, staying)
            leader = broker.leaders.get(self._instance)
            others = sorted({key.member for key in broker.members.keys(self._instance)} - placed.keys())
            reports = [broker.reports.get(OrderKey(placed[node], node)) for node in staying]
            absent = {node for node in astray if not broker.members.exists(MemberKey(self._instance, node))}
            dead = sorted({placed[node] for node in absent if not broker.cells.exists(placed[node])} - {OUTSIDE})
            is_reached = any(True for _ in broker.members.keys(self._instance, limit=1))
        # Why so many: those are the first that a step chooses whose node is not named yet.
        if len(astray) <= removals.count("") and leader not in astray and not others:
            return ""
        faults = [f"{node}: {problem}" for node, problem in astray.items()]
        faults += [report.message for report in reports if report is not None and report.state == "failed"]
        faults += [f"cell {cell} is not alive" for cell in dead]
        if not is_reached:
            faults.append("no node has reached its store through its gateway")
        if others:
            faults.append(f"others run too: {', '.join(others)}")
        return "; ".join([f"{len(staying) - len(astray)} of {len(staying)} members can be counted on", *faults])

    def missing_without(self, node: str) -> str:
        """Return why a node that has handed over cannot go yet. The lead may come back to it while others are waited for."""
        missing = self._missing_members()
        return missing or (f"{node} leads again" if self._latest.leaders.get(self._instance) == node else "")

    def _wait_leader(self, _step: Step) -> None:
        self._progress.until(self._missing_leader, self._progress.waits.step_seconds_max)
        self._progress.complete()

    def _missing_leader(self) -> str:
        found = leader_of(self._latest, self._instance)
        if found is None:
            return "the cluster has no leader"
        name, member = found
        return "" if member.state in RUNNING and member.is_primary else f"the leader {name} is {member.state}"

    def _wait_synchronous(self, step: Step) -> None:
        self._progress.until(partial(self._missing_standby, step.target), self._progress.waits.step_seconds_max)
        self._progress.complete()

    def _missing_standby(self, wanted: str) -> str:
        found = self._latest.syncs.get(self._instance)
        is_synchronous = found is not None and bool(found.sync_standby)
        if is_synchronous is (wanted == "on"):
            return ""
        return "no replica is synchronous yet" if wanted == "on" else "a replica is synchronous still"

    def _wait_pause(self, step: Step) -> None:
        self._progress.until(partial(self._missing_pause, step.target), self._progress.waits.step_seconds_max)
        self._progress.complete()

    def _missing_pause(self, wanted: str) -> str:
        with self._progress.store.snapshot() as state:
            members = Broker(state).members.list(self._instance)
            late = [key.member for key, member in members if bool(member.unknown.get("pause")) is not (wanted == "on")]
        return f"not heard of it yet: {', '.join(late)}" if late else ""

    # ---- asking ---------------------------------------------------------------------------------------------------------

    def _switch(self, step: Step) -> None:
        self.hand_over(step.node, step.target)
        leader = self._latest.leaders.get(self._instance)
        if step.target and leader != step.target:
            raise StepFailedError(f"{leader} has come to lead, and not {step.target}; ask for it again")
        self._progress.complete()

    def hand_over(self, node: str, candidate: str = "") -> None:
        """Wait until somebody else leads. The node is asked for it, where it leads, once all that stay follow it."""

        def problem() -> str:
            return "the leader did not change" if self._latest.leaders.get(self._instance) in {node, None} else ""

        def ask(member: Member | None, credentials: Credentials) -> None:
            patroni_rest.switch_over(member, node, credentials, candidate)

        self._asking(problem, partial(self._asked, node, ask, "the leader did not hand over"), self._missing_members)

    def _reinitialise(self, step: Step) -> None:
        if self._latest.leaders.get(self._instance) == step.node:
            raise StepFailedError(f"{step.node} has come to lead, and is what others copy; hand over the lead first")
        self._start_anew(step, patroni_rest.reinitialise)

    def _start_anew(self, step: Step, ask: Ask) -> None:
        """Ask a member for something that its PostgreSQL is started anew by, and wait until it was.

        Why not again while PostgreSQL does not run: it may be starting, for minutes, and would be stopped or copied once more.
        """
        if not step.mark:
            self._progress.until(partial(self._noted_start, step), self._progress.waits.step_seconds_max)

        def problem() -> str:
            try:
                started = self._started_at(step.node)
            except PatroniRefusedError as error:
                return f"{step.node}: {error}"
            if started in {"", step.mark}:
                return f"{step.node}: PostgreSQL " + ("was not started anew" if started else "does not run")
            return ""

        def asked() -> str:
            try:
                is_coming = step.is_asked and self._started_at(step.node) != step.mark
            except PatroniRefusedError as error:
                return f"{step.node}: {error}"
            refusal = "" if is_coming else self._asked(step.node, ask, f"{step.node} refuses")
            if not refusal and not step.is_asked:
                step.is_asked = True
                self._progress.note(step)
            return refusal

        self._asking(problem, asked)
        self._progress.complete()

    def _noted_start(self, step: Step) -> str:
        """Write down when a member's PostgreSQL was started; return why that is not known."""
        try:
            step.mark = self._started_at(step.node) or _DOWN
        except PatroniRefusedError as error:
            return f"{step.node}: {error}"
        self._progress.note(step)
        return ""

    def _started_at(self, node: str) -> str:
        return patroni_rest.started_at(self._latest.members.get(MemberKey(self._instance, node)))

    def _configure(self, _step: Step) -> None:
        changes = self._progress.current().configuration

        def problem() -> str:
            found = self._latest.configurations.get(self._instance)
            return "" if is_changed(found or {}, changes) else "the configuration is not changed"

        def asked() -> str:
            leader = self._latest.leaders.get(self._instance)
            if leader is None:
                return "nobody leads the cluster, who could be asked"
            return self._asked(
                leader, lambda member, log_in: patroni_rest.configure(member, log_in, changes), "refused"
            )

        self._asking(problem, asked)
        self._progress.complete()

    def _asking(
        self, problem: Callable[[], str], ask: Callable[[], str], hindered: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait until `problem` is empty. Meanwhile ask, every few seconds, where nothing hinders; each tells what is wrong."""
        waits = self._progress.waits
        patience = Patience(waits.step_seconds_max, self.positions)
        next_try, refusal = 0.0, ""
        while text := problem():
            if patience.is_over():
                raise StepFailedError(refusal or text)
            if found := hindered():
                refusal = found
            elif SYSTEM_CLOCK.monotonic() >= next_try:
                refusal = ask()
                next_try = SYSTEM_CLOCK.monotonic() + waits.switch_again_seconds
            self._progress.pause()

    def _asked(self, node: str, ask: Ask, words: str) -> str:
        """Ask Patroni at a member; return why it refused, after these words."""
        state = self._latest.instances.require(self._instance)
        member = self._latest.members.get(MemberKey(self._instance, node))
        try:
            ask(member, state.admin_credentials)
        except PatroniRefusedError as error:
            return f"{words}: {error}"
        return ""


def is_changed(found: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Tell whether a configuration is what changes make of one: None removes a key, an object changes what is in it.

    Values count as equal that are spelled alike, as 100 and "100": Patroni leaves such as they are.
    """
    for name, value in changes.items():
        if value is None:
            # Why not by its name: Patroni keeps a null that came with an object which it had not.
            if found.get(name) is not None:
                return False
        elif isinstance(value, dict):
            inner = found.get(name, {})
            if not isinstance(inner, dict) or not is_changed(inner, value):
                return False
        elif name not in found or str(found[name]) != str(value):
            return False
    return True
