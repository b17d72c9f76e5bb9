"""Figures of the service for Prometheus: calls by name and status, how long they took, and whether the store answers.

Labels take few values: calls are declared, statuses are gRPC's; never a name, a user or a partition.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from keyplan.grpc_status import GrpcStatus

__all__ = ["Figures"]

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Why from so little: a get takes less than a millisecond, and a store that hangs a second or more."""


class Figures:
    """What one server counts, in a registry of its own. For all threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        GCCollector(self.registry)
        PlatformCollector(self.registry)
        ProcessCollector(registry=self.registry)
        self._calls = Counter(
            "keyplan_runm_calls", "Calls that have ended.", ("call", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "keyplan_runm_call_seconds",
            "How long calls took that are not streams.",
            ("call",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._streams = Gauge("keyplan_runm_streams", "Streams that are being sent.", registry=self.registry)
        self._store = Gauge("keyplan_runm_store_answers", "1 while the store can be reached.", registry=self.registry)
        self._store.set(1)

    def ended(self, call: str, status: GrpcStatus, seconds: float | None = None) -> None:
        """Count a call that has ended; `seconds` of one that is no stream."""
        self._calls.labels(call, status.name).inc()
        if seconds is not None:
            self._seconds.labels(call).observe(seconds)

    @contextmanager
    def stream(self) -> Generator[None, None, None]:
        """Count a stream for the length of a block."""
        with self._streams.track_inprogress():
            yield

    def tell_store(self, answers: bool) -> None:  # noqa: FBT001  # Why: what it is called with is its only word.
        """Say whether the store answers."""
        self._store.set(int(answers))
