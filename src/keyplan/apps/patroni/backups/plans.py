"""How archives, backups and restores begin: what is asked for is judged by what the store knows, and written as an operation.

Nothing is carried out here, and nothing asked of a cell.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import uuid4

from keyplan.apps.patroni.backups.archive import archiving
from keyplan.apps.patroni.backups.books import beginning_of, recovery_target, shown_time, sound_backups
from keyplan.apps.patroni.backups.records import (
    Archive,
    BackupPolicy,
    Recovery,
    new_archive,
)
from keyplan.apps.patroni.clusters import outside_nodes
from keyplan.apps.patroni.dynamic_configuration import is_on
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import BookKey, Broker
from keyplan.apps.patroni.operations import (
    begin_planned,
    new_password,
    operation_on,
    refuse_under_way,
    write_begun,
)
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.records import Credentials, InstanceState, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import Clock
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["BACKUP_OPERATIONS", "BackupKind", "BackupPlans"]

BACKUP_OPERATIONS: Final = ("archive", "backup", "verify-backup", "restore", "restore-back", "restore-finish")
"""The kinds of operations that begin here and in restore_plans.py, but for what makes an instance."""

BackupKind = Literal["full", "diff", "incr"]

_NOT_TAKEN_OVER: Final = ("pause", "standby_cluster", "slots", "permanent_slots", "permanent_replication_slots")
"""What of a cluster's configuration is its own affair, and not that of one which is made from it."""


class BackupPlans:
    """Plans and begins. Raises RefusedError: 404 without the instance, 400 for what cannot be, 422 for not now."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events = EventLog(store, clock)

    def archive(self, instance: str, policy: BackupPolicy, *, is_trial: bool = False) -> Operation:
        """Have an instance archive its log, and be backed up. With `is_trial` nothing is written.

        Another repository is another archive: what lies in the former one stays there.
        """

        def planned(broker: Broker, state: InstanceState) -> Operation:
            if outside := outside_nodes(broker, instance):
                # Why: no cell tells them where to, and their archive is the affair of whoever runs them.
                raise RefusedError(422, f"no cell runs {', '.join(outside)}: others back it up")
            former = state.archive
            is_same = former is not None and former.policy.repository == policy.repository
            archive = (
                Archive(stanza=former.stanza, policy=policy) if former and is_same else new_archive(instance, policy)
            )
            leader = _leader(broker, instance)
            steps = [Step(kind="equip"), Step(kind="configure")]
            # Why also who waits for a restart: an operation that failed may have changed the configuration alone.
            if not _archives(broker.configurations.get(instance) or {}) or _waits_for_restart(broker, instance):
                # Why each: PostgreSQL takes it at its start alone. Why the leader last: as in every restart.
                placed = sorted(
                    (key.node for key, _ in broker.nodes.list(instance)), key=lambda node: (node == leader, node)
                )
                steps += [
                    each for node in placed for each in (Step(kind="restart", node=node), Step(kind="wait_members"))
                ]
                steps.append(Step(kind="wait_leader"))
            book = broker.backup_books.get(BookKey(instance, archive.stanza))
            if book is None or not sound_backups(book):
                steps.append(Step(kind="back_up", target="full"))
            begun = self._operation("archive", steps, state)
            begun.configuration, begun.archive = archiving(archive), archive
            return begun

        return self._begin(instance, planned, is_trial=is_trial)

    def back_up(self, instance: str, kind: BackupKind, *, is_trial: bool = False) -> Operation:
        """Back an instance up. `incr` is what has changed since the last backup; full where there is none."""

        def planned(broker: Broker, state: InstanceState) -> Operation:
            if state.archive is None:
                raise RefusedError(422, "the instance has no archive; `keyplan patroni archive` gives it one")
            _leader(broker, instance)
            return self._operation("backup", [Step(kind="back_up", target=kind)], state)

        return self._begin(instance, planned, is_trial=is_trial)

    def verify(self, instance: str, label: str = "", *, is_trial: bool = False) -> Operation:
        """Verify a backup: restore it beside a node, ask it, and remove it. Without a label it is the newest sound one."""

        def planned(broker: Broker, state: InstanceState) -> Operation:
            if state.archive is None:
                raise RefusedError(422, "the instance has no archive; `keyplan patroni archive` gives it one")
            book = broker.backup_books.get(BookKey(instance, state.archive.stanza))
            there = [] if book is None else book.backups if label else sound_backups(book)
            found = [backup.label for backup in there if label in {"", backup.label}]
            if not found:
                raise RefusedError(400, f"there is no {'' if label else 'sound '}backup {label}".rstrip())
            return self._operation("verify-backup", [Step(kind="verify_backup", target=found[-1])], state)

        return self._begin(instance, planned, is_trial=is_trial)

    def restore_as(self, source: str, new: str, target: datetime | None, *, is_trial: bool = False) -> Operation:
        """Make a new instance of what another one was at a time; at the end of its archive where none is given.

        The other one need not be there any more. What it has not archived yet is archived first, where it is.
        """
        if new == source:
            raise RefusedError(400, "a new instance has another id")

        def work(binding: Binding) -> Operation:
            broker = Broker(binding)
            if broker.instances.exists(new):
                raise RefusedError(409, f"there is an instance {new}")
            refuse_under_way(broker.operations.get(new))
            with self._store.snapshot() as pinned:
                begun, state = self._restored(Broker(pinned), source, new, target)
            if not is_trial:
                write_begun(broker, new, state, begun, self._events)
            return begun

        return self._store.run(work)

    def _restored(
        self, broker: Broker, source: str, new: str, target: datetime | None
    ) -> tuple[Operation, InstanceState]:
        former = broker.instances.get(source)
        if target is not None and target.timestamp() > self._clock.wall():
            raise RefusedError(400, f"{shown_time(target.timestamp())} is yet to come")
        book, backup, until = beginning_of(source, broker.backup_books.list(source), target)
        configuration = {
            name: value
            for name, value in (broker.configurations.get(source) or {}).items()
            if name not in _NOT_TAKEN_OVER
        }
        recovery = Recovery(
            archive=book.archive,
            label=backup.label,
            target=recovery_target(until),
            configuration=configuration,
            version=book.version,
        )
        state = InstanceState(
            instance_id=new,
            service_id=book.service_id,
            plan_id=book.plan_id,
            organization_guid=former.organization_guid if former is not None else "",
            space_guid=former.space_guid if former is not None else "",
            superuser_credentials=Credentials(username="postgres", password=new_password()),
            admin_credentials=Credentials(username="pgadmin", password=new_password()),
            replication_credentials=Credentials(username="replicator", password=new_password()),
            rewind_credentials=Credentials(username="rewinder", password=new_password()),
            node_count=book.node_count,
            archive=new_archive(new, book.archive.policy),
            recovery=recovery,
            version=book.version,
            created_at=self._clock.wall(),
        )
        steps = [
            # Why only while it is led: what a cluster that is gone has not archived is gone with it.
            *([Step(kind="flush", node=source)] if broker.leaders.exists(source) else []),
            Step(kind="allocate"),
            *(Step(kind="add", node=str(uuid4())) for _ in range(book.node_count)),
            *(Step(kind="wait_recovered"), Step(kind="wait_members"), Step(kind="wait_leader")),
            Step(kind="back_up", target="full"),
        ]
        return self._operation("provision", steps, state), state

    def _operation(self, kind: str, steps: Sequence[Step], state: InstanceState) -> Operation:
        return operation_on(self._clock, kind, steps, state)

    def _begin(
        self, instance: str, planned: Callable[[Broker, InstanceState], Operation], *, is_trial: bool
    ) -> Operation:
        return begin_planned(self._store, self._events, instance, planned, is_trial=is_trial)


def _leader(broker: Broker, instance: str) -> str:
    leader = broker.leaders.get(instance)
    if leader is None:
        raise RefusedError(422, "nobody leads the cluster now")
    return leader


def _waits_for_restart(broker: Broker, instance: str) -> bool:
    return any(is_on(member.unknown.get("pending_restart")) for _, member in readable(broker.members.rows(instance)))


def _archives(configuration: dict[str, Any]) -> bool:
    parameters = (configuration.get("postgresql") or {}).get("parameters") or {}
    mode = parameters.get("archive_mode")
    return is_on(mode) or str(mode).lower() == "always"
