"""The cells of a cluster on paper whose nodes halt and go on, as a restore in place and an upgrade have them do."""

from keyplan import Secret
from keyplan.apps.patroni import NodeOrder, NodeReport, OrderKey
from tests.apps.patroni.archived import ARCHIVE
from tests.apps.patroni.paper_cluster import PaperCluster

AT_POSTGRESQL = {"end_logins", "settle_bindings", "renew_data"}
"""The steps that ask PostgreSQL, which is not there."""
PLACES = [OrderKey(f"cell-{node}", node) for node in ("a", "b", "c")]


def ordered(cluster: PaperCluster) -> None:
    """The nodes as their cells run them."""
    for place in PLACES:
        cluster.broker.orders.put(place, NodeOrder(instance="f1", archive=ARCHIVE))
        cluster.broker.reports.put(place, NodeReport(instance="f1", state="running"), lease=cluster.lease)
    cluster.broker.initializations.put("f1", "7710")
    cluster.broker.configurations.put("f1", {"ttl": 33})
    state = cluster.broker.instances.require("f1")
    state.superuser_credentials.username, state.superuser_credentials.password = "postgres_2", Secret("second")
    state.replication_credentials.username = "replicator"
    cluster.broker.instances.put("f1", state)


class HaltingCells:
    """What the cells do: nodes that are ordered to halt do, and those that are ordered anew are there, or are refused."""

    def __init__(self, cluster: PaperCluster, *, refuses: bool = False, stubborn: str = "") -> None:
        self.broker, self.lease = cluster.broker, cluster.lease
        self.refuses, self.stubborn = refuses, stubborn
        self.halted: list[str] = []

    def __call__(self) -> None:
        for place, order in list(self.broker.orders.list()):
            report = self.broker.reports.get(place)
            if order.remove:
                self.broker.orders.delete(place)
                self.broker.reports.delete(place)
            elif order.halted and (report is None or report.state != "halted") and place.node != self.stubborn:
                self.halted.append(place.node)
                self._report(place, "halted")
                if self.broker.leaders.get("f1") == place.node:
                    self.broker.leaders.delete("f1")
            elif not order.halted and report is None:
                self._report(place, "refused" if self.refuses else "running")
            elif not order.halted and report is not None and report.state == "halted":
                self._report(place, "running")

    def _report(self, place: OrderKey, state: str) -> None:
        self.broker.reports.put(place, NodeReport(instance="f1", state=state), lease=self.lease)
