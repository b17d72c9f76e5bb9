"""What Patroni keeps of a cluster in the store."""

from keyplan.apps.patroni.layout import Broker

__all__ = ["erase_cluster_keys"]


def erase_cluster_keys(broker: Broker, instance: str) -> None:
    """Delete all that Patroni has written of a cluster: otherwise the next one of this name joins a dead cluster."""
    for member in list(broker.members.keys(instance)):
        broker.members.delete(member)
    for one in (
        *(broker.leaders, broker.initializations, broker.configurations, broker.statuses, broker.histories),
        *(broker.failovers, broker.syncs, broker.failsafes, broker.optimes),
    ):
        one.delete(instance)
