"""Cells of paper: programs that hold to what broker and cells have agreed on in the store, and start no process.

A node that is ordered is reported and becomes a member of its cluster at once, as Patroni would write it; the first one leads.
With `postgresql`, a leader's address is that of one real server, whose superuser gets the instance's password.
"""

from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Self

from keyplan import Secret
from keyplan.apps.patroni import Broker, Cell, Member, MemberKey, NodeReport, OrderKey, RegistrationKey
from keyplan.errors import AlreadyExistsError, KeyplanError
from keyplan.store import Store

LEASE_SECONDS = 60.0


class PaperCells:
    """Some cells on one store, in one thread. `refuses` are names of cells that refuse every node."""

    def __init__(
        self,
        store: Store,
        *names: str,
        zones: dict[str, str] | None = None,
        refuses: tuple[str, ...] = (),
        silent: tuple[str, ...] = (),
        postgresql: Callable[[str], str] | None = None,
    ) -> None:
        self._store = store
        self._broker = Broker(store)
        self._names = names
        self._zones = zones or {}
        self._refuses = refuses
        self._silent = silent
        self._postgresql = postgresql
        self._stop = Event()
        self._thread = Thread(target=self._run, name="paper-cells")
        self.order_counts: dict[str, int] = {}
        self.failure: KeyplanError | None = None

    def __enter__(self) -> Self:
        self._lease = self._store.lease(LEASE_SECONDS)
        for name in self._names:
            zone = self._zones.get(name, "z1")
            self._broker.cells.put(name, Cell(availability_zone=zone, host="127.0.0.1"), lease=self._lease)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._lease.revoke()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                for name in self._names:
                    if name not in self._silent:
                        self._follow(name)
            except KeyplanError as error:
                self.failure = error
                return

    def _follow(self, cell: str) -> None:
        orders = {key.node: order for key, order in self._broker.orders.list(cell)}
        reported = {key.node for key in self._broker.reports.keys(cell)}
        for node, order in orders.items():
            if order.remove:
                self._end(cell, node, order.instance)
            elif node not in reported:
                self._begin(cell, node, order.instance)

    def _begin(self, cell: str, node: str, instance: str) -> None:
        self.order_counts[node] = self.order_counts.get(node, 0) + 1
        key = OrderKey(cell, node)
        if cell in self._refuses:
            self._broker.reports.put(
                key, NodeReport(instance=instance, state="refused", message="no room"), lease=self._lease
            )
            return
        address = self._postgresql(instance) if self._postgresql is not None else "127.0.0.1:5432"
        report = NodeReport(instance=instance, state="running", address=address)
        self._broker.reports.put(key, report, lease=self._lease)
        registration = RegistrationKey("postgresql-patroni", cell, f"cf-{node}", 5432)
        self._broker.registrations.put(registration, address, lease=self._lease)
        try:
            self._broker.leaders.insert(instance, node, lease=self._lease)
            role = "primary"
        except AlreadyExistsError:
            role = "replica"
        member = Member(
            role=role,
            state="running",
            conn_url=Secret(f"postgres://{address}/postgres"),
            xlog_location=100,
            replication_state="streaming" if role == "replica" else None,
        )
        self._broker.members.put(MemberKey(instance, node), member, lease=self._lease)
        self._broker.initializations.put(instance, "7710453740755543520")

    def _end(self, cell: str, node: str, instance: str) -> None:
        self._broker.registrations.delete(RegistrationKey("postgresql-patroni", cell, f"cf-{node}", 5432))
        if self._broker.leaders.get(instance) == node:
            self._broker.leaders.delete(instance)
        self._broker.orders.delete(OrderKey(cell, node))
        self._broker.reports.delete(OrderKey(cell, node))
