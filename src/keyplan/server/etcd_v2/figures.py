"""The v2 gateway's figures for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from keyplan.server.etcd_v2.gateway import Gateway

__all__ = ["GatewayFigures"]


class GatewayFigures(Collector):
    """What `/v2/stats/store` tells too, and how many operations are queued. Register it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        operations = CounterMetricFamily(
            "keyplan_etcd_v2_operations", "Operations on keys by kind and result.", labels=("kind", "result")
        )
        for kind, result, number in self._gateway.statistics.operations():
            operations.add_metric((kind, result), number)
        yield operations
        expired = CounterMetricFamily("keyplan_etcd_v2_expired", "Keys and directories whose TTL was over.")
        expired.add_metric((), self._gateway.statistics.expired)
        yield expired
        for name, text, value in (
            ("waiters", "Requests that wait for an event.", self._gateway.hub.waiting),
            ("operations_pending", "Operations that wait for a commit.", self._gateway.pending),
            ("uncounted", "Changes of others that have no number yet.", self._gateway.uncounted),
        ):
            yield GaugeMetricFamily(f"keyplan_etcd_v2_{name}", text, value=value)
