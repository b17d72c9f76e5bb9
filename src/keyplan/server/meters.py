"""The server's own figures for Prometheus. Labels take few values: methods, route templates and statuses, never a path."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import Scope

from keyplan.server.workers import Workers

__all__ = ["Meters", "route_of"]

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Meters:
    """What is counted and timed, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry, workers: Workers, version: str) -> None:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._requests = Counter(
            "keyplan_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "keyplan_request_seconds",
            "Time until a request's answer was sent whole.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._open = Gauge("keyplan_requests_open", "Requests being answered, streams among them.", registry=registry)
        pending = Gauge("keyplan_worker_calls_pending", "Calls that run in threads or wait for one.", registry=registry)
        pending.set_function(lambda: workers.pending)
        build = Gauge("keyplan_build_info", "1, with the version as a label.", ("version",), registry=registry)
        build.labels(version).set(1)
        self._of_routes: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """Why kept: to find them by their labels takes as long as to count. Their number is that of the labels' values."""

    def began(self) -> None:
        """A request came in."""
        self._open.inc()

    def ended(self, scope: Scope, status: int, seconds: float) -> None:
        """A request was answered."""
        self._open.dec()
        method = scope["method"] if scope["method"] in _METHODS else "other"
        answered = (method, route_of(scope), status)
        own = self._of_routes.get(answered)
        if own is None:
            own = self._requests.labels(*answered), self._seconds.labels(*answered[:2])
            self._of_routes[answered] = own
        own[0].inc()
        own[1].observe(seconds)


def route_of(scope: Scope) -> str:
    """The template of the route that a request was led to, as in /keyspaces/{id}; `none` when there is no such route."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) and path else "none"
