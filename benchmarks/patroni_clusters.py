"""How long writers wait at a switchover and at a failover: Patroni on keyplan's JSON gateway, and on plain etcd, in one run.

    python -m benchmarks.patroni_clusters [ROUNDS]

For each store: the seconds until a cluster of two nodes stands, and the median gap, the longest time without an acknowledged
insert, of a switchover and of a leader that is killed with its cell halted. Cells and the router are keyplan's for both, and
`keyplan serve` is a process of its own as etcd is, so that what differs is the store. Needs PostgreSQL, Patroni and etcd.
"""

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import psycopg

from keyplan import Secret
from keyplan.apps.patroni import Broker, Credentials, InstanceState, MemberKey, NodeOrder, OrderKey
from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.node_config import DYNAMIC_DEFAULT, Gateway, merged
from keyplan.apps.patroni.node_host import find_host
from keyplan.apps.patroni.node_ports import PortRange
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError, switch_over
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.router_forward import Forwarder
from keyplan.engine import open_engine
from keyplan.store import Store
from tests.servers.etcd import EtcdServer, free_port
from tests.servers.keyplan_server import KeyplanServer
from tests.servers.patroni import until

PASSWORD = "bench"  # noqa: S105  # of clusters that live for a minute


class Writer(threading.Thread):
    """Inserts every 20 ms through the public port, and remembers when an insert was acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._url = f"postgres://postgres:{PASSWORD}@127.0.0.1:{port}/postgres?connect_timeout=2"
        self.done_at: list[float] = [time.monotonic()]
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    connection.execute("create table if not exists t (x int)")
                    while not self.stop.wait(0.02):
                        connection.execute("insert into t values (1)")
                        self.done_at.append(time.monotonic())
            except psycopg.Error:
                self.stop.wait(0.05)

    def gap_since(self, moment: float) -> float:
        times = [moment, *(at for at in self.done_at if at > moment)]
        return max((after - before for before, after in pairwise(times)), default=0.0)


class Lab:
    """A cluster of two nodes, its cells in threads, its router, and a writer."""

    def __init__(self, stack: ExitStack, store: Store, gateway: str) -> None:
        self.broker = Broker(store)
        self.port = free_port()
        self._halted = threading.Event()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        user = Credentials(username="postgres", password=Secret(PASSWORD))
        copier = Credentials(username="replicator", password=Secret(PASSWORD))
        self.broker.instances.put("f1", InstanceState(superuser_credentials=user, replication_credentials=copier))
        self.broker.allocations.put("f1", self.port)
        self.agents: dict[str, CellAgent] = {}
        self._stops: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}
        self.began = time.monotonic()
        for name in ("c1", "c2"):
            first = free_port()
            settings = CellSettings(
                name, folder / name, Gateway(gateway), ports=PortRange(first, first + 20), parameters={"fsync": "off"},
                dynamic=merged(DYNAMIC_DEFAULT, {"loop_wait": 2}),
            )  # fmt: skip
            self.agents[name] = CellAgent(store, settings, find_host())
            self.agents[name].open()
            self.broker.orders.put(OrderKey(name, name), NodeOrder(instance="f1"))
            self.resume(name)
            stack.callback(self._end, name)
        self._router, stopped = Router(store, Forwarder()), threading.Event()
        thread = threading.Thread(target=self._router.run, args=(stopped,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopped.set)

    def resume(self, name: str) -> None:
        """Start a cell's agent, which starts what it finds ended."""
        self._stops[name] = threading.Event()
        self._threads[name] = threading.Thread(target=self.agents[name].run, args=(self._stops[name],), daemon=True)
        self._threads[name].start()

    def halt(self, name: str) -> None:
        """End a cell's agent, whose nodes go on; return when it starts none of them again."""
        self._stops[name].set()
        self._threads[name].join()

    def node(self, name: str) -> Node:
        """The node of a cell: each has one, by the same name."""
        return next(node for node in self.agents[name].nodes if node.plan.node == name)

    def _end(self, name: str) -> None:
        self.halt(name)
        self.agents[name].stop_nodes(threading.Event())

    def stands(self) -> bool:
        """Whether one leads and the other follows closely enough to take over."""
        states = [member.replication_state for _, member in self.broker.members.list("f1")]
        return len(states) == 2 and "streaming" in states

    def leader(self) -> str:
        return self.broker.leaders.get("f1") or ""

    def settle(self) -> None:
        until(lambda: self.stands() and bool(self.leader()), 120, lambda: "the cluster does not stand")

    # ---- what is done to it -----------------------------------------------------------------------------------------

    def switch(self, leader: str) -> None:
        """Ask for a switchover, again when Patroni refuses: a replica that streams may not be ready in its eyes yet."""

        def has_moved() -> bool:
            try:
                switch_over(self.broker.members.get(MemberKey("f1", leader)), leader, Credentials())
            except PatroniRefusedError:
                return self.leader() not in {"", leader}
            return True

        until(has_moved, 60, lambda: "Patroni refuses a switchover for a minute")

    def kill(self, leader: str) -> None:
        """Kill Patroni and PostgreSQL, as a machine that loses power would."""
        self.halt(leader)
        self.node(leader).kill()


def gap(lab: Lab, writer: Writer, act: Callable[[str], object]) -> float:
    """Do something to the leader; return how long the writer waited."""
    lab.settle()
    leader = lab.leader()
    moment = time.monotonic()
    act(leader)
    until(lambda: lab.leader() not in {"", leader}, 90, lambda: "nobody else leads")
    moved = time.monotonic()
    until(lambda: writer.done_at[-1] > moved + 1, 60, lambda: "nobody takes writes")
    return writer.gap_since(moment)


def measured(name: str, store: Store, gateway: str, rounds: int) -> None:
    """Print one store's figures."""
    with ExitStack() as stack:
        lab = Lab(stack, store, gateway)
        lab.settle()
        provisioned = time.monotonic() - lab.began
        writer = Writer(lab.port)
        writer.start()
        stack.callback(writer.join)
        stack.callback(writer.stop.set)
        until(lambda: len(writer.done_at) > 1, 60, lambda: "nobody takes writes")
        switchovers = [gap(lab, writer, lab.switch) for _ in range(rounds)]
        failovers = []
        for _ in range(rounds):
            leader = lab.leader()
            failovers.append(gap(lab, writer, lab.kill))
            lab.resume(leader)
        print(
            f"{name}: cluster after {provisioned:.1f} s, switchover {_shown(switchovers)}, failover {_shown(failovers)}"
            f" (medians of {rounds})",
            flush=True,
        )


def _shown(gaps: list[float]) -> str:
    each = " ".join(f"{one:.1f}" for one in gaps)
    return f"{statistics.median(gaps):.1f} s ({each})"


def main() -> None:
    """Measure both stores, one after the other."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with (
        tempfile.TemporaryDirectory() as folder,
        KeyplanServer(f"lmdb:{folder}/store", "--app", "etcd-v3") as server,
        Store(open_engine(f"lmdb:{folder}/store", create=False)) as store,
    ):
        measured("keyplan", store, server.url.removeprefix("http://"), rounds)
    with EtcdServer() as etcd, Store(open_engine(etcd.url, create=True)) as store:
        measured("etcd", store, ",".join(etcd.endpoints), rounds)


if __name__ == "__main__":
    main()
