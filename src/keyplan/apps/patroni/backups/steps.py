"""The steps of an operation that make backups, or a cluster from one: what the broker asks of cells, and waits for.

What a cell does is found done when it is asked for again; so a broker that goes on with a step asks by the same name.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import psycopg

from keyplan.apps.patroni.backups.books import end_span, leaders_report, put_book
from keyplan.apps.patroni.backups.log_switch import switch_log
from keyplan.apps.patroni.backups.records import Archive, NodeTask, TaskAnswer, Verification
from keyplan.apps.patroni.backups.task_orders import WORK_SECONDS_MAX, TaskOrders
from keyplan.apps.patroni.bootstraps import BootstrapWatch
from keyplan.apps.patroni.clusters import RUNNING, leader_of
from keyplan.apps.patroni.layout import BookKey, Broker, OrderKey
from keyplan.apps.patroni.operation_progress import OperationProgress, StepFailedError
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.records import Operation, Step
from keyplan.errors import InvalidInputError
from keyplan.layout import Binding

__all__ = ["BackupSteps"]

_HOPELESS: Final = 2
"""How many bootstraps fail before a cluster is given up. Why no more: each may take hours, and writes wait meanwhile."""
_TRIES: Final = 5
"""How many leaders one backup is asked of, when each is a leader no more in the middle."""


class BackupSteps:
    """The steps by their words. Each raises StepFailedError, StoppedError, SupersededError, and KeyplanError of the store."""

    def __init__(self, progress: OperationProgress, ports: PortAllocator | None) -> None:
        self._progress = progress
        self._latest = progress.latest
        self._instance = progress.instance
        self._ports = ports
        self._tasks = TaskOrders(progress)
        self.steps: Final[Mapping[str, Callable[[Step], None]]] = {
            "equip": self._equip,
            "back_up": self._back_up,
            "verify_backup": self._verify,
            "flush": self._flush,
            "allocate": self._allocate,
            "wait_recovered": self._wait_recovered,
            "wait_upgraded": self._wait_recovered,
        }

    # ---- an archive -----------------------------------------------------------------------------------------------------

    def _equip(self, _step: Step) -> None:
        """Tell every node where to archive. Where one cannot, all are told what they were told before."""
        archive = self._progress.current().archive
        if archive is None:
            raise StepFailedError("the operation names no archive")
        self._progress.commit(lambda broker, _operation: _order_archive(broker, self._instance, archive))
        try:
            self._progress.until(partial(self._untold, archive), self._progress.waits.step_seconds_max)
        except StepFailedError:
            former = self._latest.instances.require(self._instance).archive
            self._progress.commit(lambda broker, _operation: _order_archive(broker, self._instance, former))
            raise

        def equipped(broker: Broker) -> None:
            state, now = broker.instances.require(self._instance), self._progress.clock.wall()
            if state.archive is not None and state.archive.stanza != archive.stanza:
                end_span(broker, self._instance, state.archive, now)
            state.archive = archive
            broker.instances.put(self._instance, state)
            put_book(broker, self._instance, state, archive, since=now)

        self._progress.complete(equipped)

    def _untold(self, archive: Archive) -> str:
        waiting: list[str] = []
        for key, cell in self._latest.nodes.list(self._instance):
            report = self._latest.reports.get(OrderKey(cell, key.node))
            if report is None:
                waiting.append(f"{key.node}: cell {cell} does not answer")
            elif report.archive is None or report.archive.stanza != archive.stanza:
                waiting.append(f"{key.node}: {report.message or 'it has not heard of it'}")
        return "; ".join(waiting)

    # ---- a backup -------------------------------------------------------------------------------------------------------

    def _back_up(self, step: Step) -> None:
        for _ in range(_TRIES):
            if not step.mark:
                self._progress.until(self._missing_leader, self._progress.waits.step_seconds_max)
                step.node = self._latest.leaders.get(self._instance) or ""
                self._order(step, "backup")
            answer = self._tasks.answer(step)
            if answer.state == "done":
                self._progress.complete(partial(self._noted, step, answer))
                return
            # Why forgotten: whoever leads now is asked.
            self._tasks.forget_failed(step)
            if self._latest.leaders.get(self._instance) == step.node:
                raise StepFailedError(answer.message)
        raise StepFailedError(f"the leader has changed {_TRIES} times meanwhile")

    def _verify(self, step: Step) -> None:
        """Have one node after the other try the backup, until one has found out what it is good for."""
        reasons: dict[str, str] = {}
        while True:
            if not step.mark:
                node = next((name for name in self._nodes_to_verify() if name not in reasons), None)
                if node is None:
                    why = "; ".join(reasons.values()) or "no cell of a node is alive"
                    # Why so many words: it is no word against the backup.
                    raise StepFailedError(f"the verification of backup {step.target} could not be made: {why}")
                step.node = node
                self._order(step, "verify")
            answer = self._tasks.answer(step)
            if answer.state == "done":
                break
            reasons[step.node] = f"{step.node}: {answer.message}"
            self._tasks.forget_failed(step)
        if answer.problem:
            # Why no complete step: the operation has failed, whoever ends it.
            self._progress.commit(partial(self._verified, step, answer))
            raise StepFailedError(f"backup {step.target}: {answer.problem}")
        self._progress.complete(lambda broker: self._verified(step, answer, broker))

    def _nodes_to_verify(self) -> list[str]:
        """Return the nodes that may try a backup, the leader last: it has enough to do."""
        leader = self._latest.leaders.get(self._instance)
        placed = [(key.node, cell) for key, cell in self._latest.nodes.list(self._instance)]
        alive = [node for node, cell in placed if self._latest.cells.exists(cell)]
        return sorted(alive, key=lambda node: (node == leader, node))

    def _order(self, step: Step, kind: str) -> None:
        archive = self._latest.instances.require(self._instance).archive
        if archive is None:
            raise StepFailedError("the instance has no archive")
        self._tasks.order(step, NodeTask(id=archive.stanza, kind=kind, archive=archive, wanted=step.target))

    def _noted(self, step: Step, answer: TaskAnswer, broker: Broker) -> None:
        state = broker.instances.require(self._instance)
        if state.archive is not None:
            book = put_book(broker, self._instance, state, state.archive, since=state.created_at)
            former = {backup.label for backup in book.backups}
            book.unverified += sum(backup.label not in former for backup in answer.backups)
            book.backups = answer.backups
            there = {backup.label for backup in answer.backups}
            book.verifications = {label: each for label, each in book.verifications.items() if label in there}
            book.looked_at = self._progress.clock.wall()
            broker.backup_books.put(BookKey(self._instance, state.archive.stanza), book)
        self._tasks.forget(broker, step)

    def _verified(self, step: Step, answer: TaskAnswer, broker: Broker, _operation: Operation | None = None) -> None:
        state = broker.instances.require(self._instance)
        if state.archive is not None:
            book = put_book(broker, self._instance, state, state.archive, since=state.created_at)
            found = Verification(
                verified_at=self._progress.clock.wall(), seconds=answer.seconds, problem=answer.problem
            )
            book.verifications[step.target] = found
            if not answer.problem:
                labels = [backup.label for backup in book.backups]
                book.unverified = len(labels) - 1 - labels.index(step.target) if step.target in labels else 0
            broker.backup_books.put(BookKey(self._instance, state.archive.stanza), book)
        self._tasks.forget(broker, step)

    # ---- a cluster from a backup ----------------------------------------------------------------------------------------

    def _flush(self, step: Step) -> None:
        """Have the leader of the instance `node` archive what it has written so far, where there is a leader."""
        found = leader_of(self._latest, step.node)
        if found is not None:
            if not step.mark:
                step.mark = self._switched(step.node)
                self._progress.note(step)
            self._progress.until(partial(self._unarchived, step), self._progress.waits.step_seconds_max)
        self._progress.complete()

    def _switched(self, instance: str) -> str:
        found = leader_of(self._latest, instance)
        address = found[1].address if found is not None else None
        if address is None:
            raise StepFailedError(f"nobody leads {instance} who could be asked")
        try:
            return switch_log(address, self._latest.instances.require(instance).superuser_credentials)
        except psycopg.Error as error:
            raise StepFailedError(f"{instance} takes no statement: {type(error).__name__}") from error

    def _unarchived(self, step: Step) -> str:
        report = leaders_report(self._latest, step.node)
        state = report.archive if report is not None else None
        if state is not None and state.last_wal >= step.mark and step.mark[8:] >= state.whole_since:
            return ""
        return f"{step.node} has not archived {step.mark} of its log; `keyplan patroni doctor` tells how its archive is"

    def _allocate(self, _step: Step) -> None:
        ports = self._ports
        if ports is None:
            raise StepFailedError("this broker has no ports to give")

        def work(binding: Binding) -> int:
            port = ports.allocate_in(binding, self._instance)
            ports.allocate_reads_in(binding, self._instance, port)
            return port

        try:
            port = self._progress.store.run(work)
        except InvalidInputError as error:
            raise StepFailedError(str(error)) from error

        def allocated(broker: Broker) -> None:
            state = broker.instances.require(self._instance)
            state.allocated_port = port
            broker.instances.put(self._instance, state)

        self._progress.complete(allocated)

    def _wait_recovered(self, _step: Step) -> None:
        watch = BootstrapWatch(self._progress)
        self._progress.until(partial(self._unrecovered, watch), WORK_SECONDS_MAX)

        def recovered(broker: Broker) -> None:
            operation, state = broker.operations.require(self._instance), broker.instances.require(self._instance)
            if operation.is_called_off:
                # Why here, too: who has called it off was told that it is.
                raise StepFailedError("it was called off")
            state.recovery = state.upgrade = None
            broker.instances.put(self._instance, state)

        self._progress.complete(recovered)

    def _unrecovered(self, watch: BootstrapWatch) -> str:
        self._progress.require_wanted()
        # Why no second try: what was there before takes its place again, and the operation can be asked for once more.
        if self._progress.current().kind != "provision" and (hung := watch.look()) and watch.has_lasted():
            raise StepFailedError(hung)
        problem = self._missing_leader()
        if problem and (reasons := self._failures_of_all()):
            raise StepFailedError("; ".join(reasons))
        return problem

    def _failures_of_all(self) -> list[str]:
        """Return why nobody can make the cluster, once every node of a living cell has failed, and two have, or one twice.

        Why by their counts: nodes take turns, and what fails after hours is tried by another one while the first waits.
        """
        placed = [(key.node, OrderKey(cell, key.node)) for key, cell in self._latest.nodes.list(self._instance)]
        reports = {node: self._latest.reports.get(place) for node, place in placed}
        said = {node: report for node, report in reports.items() if report is not None}
        # Why so: a cell says that a node has failed, and counts nothing, where the node cannot be looked after.
        counts = [_HOPELESS if report.state == "failed" else report.failures for report in said.values()]
        if not all(counts) or sum(counts) < _HOPELESS:
            return []
        return [f"{node}: {report.message or 'Patroni ends by itself'}" for node, report in said.items()]

    def _missing_leader(self) -> str:
        found = leader_of(self._latest, self._instance)
        if found is None:
            return "the cluster has no leader"
        name, member = found
        return "" if member.state in RUNNING and member.is_primary else f"the leader {name} is {member.state}"


def _order_archive(broker: Broker, instance: str, archive: Archive | None) -> None:
    for key, cell in list(broker.nodes.list(instance)):
        place = OrderKey(cell, key.node)
        order = broker.orders.get(place)
        if order is not None and not order.remove and order.archive != archive:
            order.archive = archive
            broker.orders.put(place, order)
