"""The seconds that the specification bounds (cases 13, 36 to 38), measured with real clusters: see scripts/patroni-bounds.

No test: seconds of one machine say nothing of another. What they are seconds of is tested: `tests/server/test_patroni.py`,
`tests/apps/patroni/test_router_agent.py`.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

import keyplan
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.router_haproxy import HAProxy, find_haproxy
from keyplan.apps.patroni.router_routes import Leader, ReplicaRoute, Route
from keyplan.store import Store
from tests.servers.etcd import free_port
from tests.servers.keyplan_server import KeyplanServer
from tests.servers.patroni import Mode, PatroniCluster, until, why_no_patroni
from tests.servers.routed_writer import RoutedWriter

_SECONDS_MAX: Final = 120.0
_TTL_SECONDS: Final = 20.0


class Measured(NamedTuple):
    """One figure beside its bound."""

    case: str
    what: str
    seconds: float
    seconds_max: float

    @property
    def is_kept(self) -> bool:
        """Whether the bound holds."""
        return self.seconds <= self.seconds_max


class TimedBoard(HAProxy):
    """HAProxy, and when it was last led elsewhere."""

    led_at: float = 0.0
    led_to: Sequence[Route] = ()

    def apply(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute] = ()) -> None:
        """Lead, and take the time."""
        super().apply(routes, replicas)
        if routes != self.led_to:
            self.led_at, self.led_to = time.monotonic(), routes


def measured(mode: Mode, folder: Path) -> list[Measured]:
    """Return the figures of one mode."""
    number = {"etcd": "36", "etcd3": "37"}[mode]
    address, port = f"127.0.0.1:{free_port()}", free_port()
    store_url, program = f"lmdb:{folder / mode}", find_haproxy()
    assert program is not None, "needs HAProxy: apt-get install haproxy"
    with ExitStack() as stack:
        server = KeyplanServer(
            store_url, "--app", "etcd-v2", "--app", "etcd-v3", "--local-role", "client", "--listen", address
        )
        stack.enter_context(server)
        store = stack.enter_context(keyplan.open(store_url))
        cluster = PatroniCluster("f1", store=address, modes=(mode, mode))
        stack.callback(cluster.remove)
        first, second = cluster.nodes
        first.start()
        found = [Measured(number, f"{mode}: bootstrap", until(first.is_primary, _SECONDS_MAX, cluster.logs), 15)]
        second.start()
        found += [Measured(number, f"{mode}: replica", until(second.is_replica, _SECONDS_MAX, cluster.logs), 20)]
        board = TimedBoard(folder / f"haproxy-{mode}", program=program)
        stack.callback(board.stop)
        Broker(store).allocations.put("f1", port)
        stack.enter_context(_Following(Router(store, board)))
        writer = stack.enter_context(TimedWriter(port))
        until(lambda: len(writer.done_at) > 20, _SECONDS_MAX, cluster.logs)
        return found + _switched(mode, store, cluster, board, writer)


def _switched(
    mode: Mode, store: Store, cluster: PatroniCluster, board: TimedBoard, writer: "TimedWriter"
) -> list[Measured]:
    first, second = cluster.nodes
    broker, began = Broker(store), time.monotonic()
    before = len(broker.histories.get("f1") or [])
    until(lambda: first.post("/switchover", {"leader": "n1", "candidate": "n2"})[0] == 200, _SECONDS_MAX, cluster.logs)
    until(lambda: broker.leaders.get("f1") == "n2" and second.is_primary(), _SECONDS_MAX, cluster.logs)
    takes_writes_at = time.monotonic()
    place = Leader("127.0.0.1", second.port, f"127.0.0.1:{second.rest_port}")
    until(lambda: [route.leader for route in board.led_to] == [place], _SECONDS_MAX, cluster.logs)
    until(lambda: writer.done_at[-1] > board.led_at, _SECONDS_MAX, cluster.logs)
    until(lambda: len(broker.histories.get("f1") or []) == before + 1, _SECONDS_MAX, cluster.logs)
    until(cluster.is_complete, _SECONDS_MAX, cluster.logs)
    found = [
        Measured("13", f"{mode}: HAProxy leads to the new leader", max(0.0, board.led_at - takes_writes_at), 2),
        Measured("38", f"{mode}: gap of a switchover", writer.gap_since(began), 10),
    ]
    halted_at = time.monotonic()
    second.halt(with_postgresql=True)
    until(first.is_primary, _SECONDS_MAX, cluster.logs)
    found += [Measured("4.1", f"{mode}: a halted leader is replaced", time.monotonic() - halted_at, _TTL_SECONDS + 3)]
    second.go_on()
    until(cluster.is_complete, _SECONDS_MAX, cluster.logs)
    return found


class TimedWriter(RoutedWriter):
    """A writer that knows when it was acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.done_at: list[float] = [time.monotonic()]

    def _write(self, number: int) -> int:
        server = super()._write(number)
        self.done_at.append(time.monotonic())
        return server

    def gap_since(self, moment: float) -> float:
        """The longest time between two acknowledged rows, from a moment on."""
        times = [done for done in self.done_at if done >= moment]
        return max((after - before for before, after in pairwise([moment, *times])), default=0.0)


class _Following:
    """A router that runs for the length of a block."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._stop = Event()
        self._thread = Thread(target=router.run, args=(self._stop,), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._router.close()


def main() -> int:
    """Measure, and print a line for each figure; 1 when a bound is exceeded."""
    parser = argparse.ArgumentParser(prog="scripts/patroni-bounds", description=__doc__)
    parser.add_argument("--mode", choices=("etcd", "etcd3"), action="append", help="one mode alone")
    modes: list[Mode] = parser.parse_args().mode or ["etcd", "etcd3"]
    if (problem := why_no_patroni()) is not None:
        print(problem, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="keyplan-bounds-") as folder:
        found = [figure for mode in modes for figure in measured(mode, Path(folder))]
    for figure in found:
        word = "kept" if figure.is_kept else "EXCEEDED"
        print(f"{figure.case:>4}  {figure.what:<45} {figure.seconds:6.2f} s of {figure.seconds_max:4.0f} s  {word}")
    return 0 if all(figure.is_kept for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
