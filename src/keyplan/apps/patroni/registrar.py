"""What a cell says in the store on its lease: that it is alive, how its nodes are, and where their ports can be reached.

One lease for all. It is kept alive while the agent lives, taken up again by the agent that follows it, and everything goes
with it when nobody does.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.layout import DEFAULT_IMAGE, Broker, OrderKey, RegistrationKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.records import Cell, NodeReport
from keyplan.engine import NO_LEASE
from keyplan.errors import InvalidInputError, LeaseNotFoundError
from keyplan.files import write_whole
from keyplan.layout import Versioned
from keyplan.store import Lease, Store

__all__ = ["CELL_LEASE_SECONDS", "Registrar"]

CELL_LEASE_SECONDS: Final = 15.0
"""How long a cell that died counts as alive. An agent that is started again within it is not missed."""

_POSTGRESQL_PORT: Final = 5432


class Registrar:
    """The records of one cell. Each call writes only what is not so already."""

    def __init__(
        self,
        store: Store,
        name: str,
        cell: Cell,
        *,
        file: Path,
        hostname: str,
        image: str = DEFAULT_IMAGE,
        lease_seconds: float = CELL_LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._broker = Broker(store)
        self._name = name
        self._cell = cell
        self._file = file
        self._hostname = hostname
        self._image = image
        self._lease_seconds = lease_seconds
        self._lease: Lease | None = None
        self._reports: dict[str, NodeReport] = {}
        self._registrations: dict[str, str] = {}

    def announce(self) -> bool:
        """See to it that the cell counts as alive; return False while another agent's lease stands in the way.

        Raises EngineError.
        """
        if self._lease is not None and not self._lease.is_over:
            return True
        lease = self._taken_up() or self._store.lease(self._lease_seconds)
        if not self._put_cell(lease):
            lease.revoke()
            return False
        self._note(lease)
        self._lease = lease
        # Why: what was on a lease that is over is gone, or goes soon.
        self._reports.clear()
        self._registrations.clear()
        return True

    def _note(self, lease: Lease) -> None:
        try:
            write_whole(self._file, f"{lease.id}\n")
        except InvalidInputError as error:
            # Why no more: a full disk would make a cell a dead one whose nodes are well.
            LOGGER.warning("the cell's lease cannot be noted, and the next agent waits until it ends: %s", error)

    def _taken_up(self) -> Lease | None:
        """The lease of the agent before this one, when it lives still."""
        try:
            found = int(self._file.read_text())
        except (OSError, ValueError):
            return None
        try:
            lease = self._store.resume_lease(found)
            lease.keep_alive()
        except LeaseNotFoundError:
            return None
        return lease

    def _put_cell(self, lease: Lease) -> bool:
        # Why not through the table: a record that cannot be read must not keep the cell from being seen.
        with self._store.engine.snapshot() as snapshot:
            there, epoch = snapshot.get(Broker.bound().tables["cells"].keys.encode(self._name)), snapshot.epoch
        if there is None:
            self._broker.cells.put(self._name, self._cell, expected_revision=0, lease=lease)
            return True
        if there.lease not in {lease.id, NO_LEASE}:
            LOGGER.warning("cell %s is announced by another agent, or by one that died just now", self._name)
            return False
        if there.lease == NO_LEASE:
            # Why it may go: an agent announces itself on its lease, so that nobody is alive behind this record.
            LOGGER.error("the record of cell %s hung on no lease; it is replaced", self._name)
        seen = Versioned(
            self._name, self._cell, there.create_revision, there.mod_revision, there.version, there.lease, epoch
        )
        self._broker.cells.put(self._name, self._cell, expected_revision=seen, lease=lease, damaged_ok=True)
        return True

    def report(self, node: str, report: NodeReport) -> None:
        """Say how a node is. Raises EngineError."""
        if self._lease is not None and self._reports.get(node) != report:
            self._broker.reports.put(OrderKey(self._name, node), report, lease=self._lease)
            self._reports[node] = report

    def forget(self, node: str) -> None:
        """Say that nothing is left of a node."""
        self._broker.reports.delete(OrderKey(self._name, node))
        self._reports.pop(node, None)
        self._registrations.pop(node, None)

    def register(self, node: str, address: str) -> None:
        """Announce where a node's PostgreSQL is reached; an empty address takes it back."""
        # Why None counts as neither: an earlier agent may have announced what this one has not.
        if self._lease is None or self._registrations.get(node) == address:
            return
        if address:
            self._broker.registrations.put(self._key(node), address, lease=self._lease)
        else:
            self._broker.registrations.delete(self._key(node))
        self._registrations[node] = address

    def clear(self, *, known: set[str]) -> None:
        """Take back what an earlier agent said of nodes that there are no longer."""
        for key in list(self._broker.reports.keys(self._name)):
            if key.node not in known:
                self._broker.reports.delete(key)
                self._broker.registrations.delete(self._key(key.node))

    def _key(self, node: str) -> RegistrationKey:
        return RegistrationKey(self._image, self._hostname, f"cf-{node}", _POSTGRESQL_PORT)

    def lose(self) -> None:
        """Take the lease as lost: the next `announce` begins anew."""
        self._lease = None

    def end(self) -> None:
        """Take everything back at once."""
        if self._lease is not None:
            self._lease.revoke()
            self._lease = None
        with suppress(OSError):  # Why: what stays names a lease that is over.
            self._file.unlink(missing_ok=True)
