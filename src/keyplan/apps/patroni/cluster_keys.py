"""What Patroni keeps of a cluster in the store."""

from typing import Final

from keyplan.apps.patroni.layout import Broker

__all__ = ["cluster_prefix", "erase_cluster_keys"]

_LEADER: Final = b"leader"


def cluster_prefix(instance: str) -> bytes:
    """Return what all of Patroni's keys of a cluster begin with: with a slash at its end, because `f10` begins with `f1`."""
    key = Broker.bound().tables["leaders"].keys.encode(instance)
    assert key.endswith(b"/" + _LEADER)
    return key.removesuffix(_LEADER)


def erase_cluster_keys(broker: Broker, instance: str) -> None:
    """Delete all that Patroni has written of a cluster: otherwise the next one of this name joins a dead cluster."""
    for member in list(broker.members.keys(instance)):
        broker.members.delete(member)
    for one in (
        *(broker.leaders, broker.initializations, broker.configurations, broker.statuses, broker.histories),
        *(broker.failovers, broker.syncs, broker.failsafes, broker.optimes),
    ):
        one.delete(instance)
