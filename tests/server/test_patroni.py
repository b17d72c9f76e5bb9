"""Real Patroni nodes on `keyplan serve` over LMDB, in both of Patroni's modes and mixed, from bootstrap to removal.

Clients write through a router all the while: what they were acknowledged, and by whom, tells whether two lead at a time.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest

import keyplan
from keyplan.apps.patroni import Broker, MemberKey
from keyplan.apps.patroni.ports import PortAllocator, PortRange
from keyplan.apps.patroni.router_agent import Router, Switchboard
from keyplan.apps.patroni.router_forward import Forwarder
from keyplan.apps.patroni.router_haproxy import HAProxy, find_haproxy
from keyplan.engine import SYSTEM_CLOCK, KeyRange
from keyplan.engine.lmdb import LmdbEngine, LmdbOptions
from keyplan.store import Store
from tests.servers.etcd import free_port
from tests.servers.full_disk import full_disk
from tests.servers.gateways import GatewayServer
from tests.servers.keyplan_server import KeyplanServer
from tests.servers.patroni import Mode, PatroniCluster, PatroniNode, until, why_no_patroni
from tests.servers.routed_writer import RoutedWriter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(why_no_patroni() is not None, reason=f"needs Patroni and PostgreSQL: {why_no_patroni()}"),
]

MODES: dict[str, tuple[Mode, Mode]] = {"f2": ("etcd", "etcd"), "f3": ("etcd3", "etcd3"), "mixed": ("etcd", "etcd3")}
TTL_SECONDS = 20


class SteppedClock:
    """The machine's clock, whose wall time is set by steps, as an administrator or NTP sets it."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, float], float] = {}

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + sum(self._steps.values())

    def epoch(self) -> bytes:
        return SYSTEM_CLOCK.epoch()

    def step(self, who: str, seconds: float) -> None:
        self._steps[who, seconds] = seconds


class Site(NamedTuple):
    """Clusters, their store, and where its gateways answer."""

    clusters: list[PatroniCluster]
    store_url: str
    address: str
    ports: dict[str, int]

    def served(self) -> KeyplanServer:
        """Return the server, for a `with` block."""
        return KeyplanServer(
            self.store_url, "--app", "etcd-v2", "--app", "etcd-v3", "--local-role", "client", "--listen", self.address
        )

    @contextmanager
    def served_by_a_clock(self) -> Iterator[tuple[Store, SteppedClock]]:
        """The gateways in this process, on the same store and at the same address, by a clock that can be set."""
        clock = SteppedClock()
        folder, port = Path(self.store_url.removeprefix("lmdb:")), int(self.address.rpartition(":")[2])
        with (
            LmdbEngine(folder, LmdbOptions(clock=clock)) as engine,
            GatewayServer(engine, clock=clock, port=port),
        ):
            yield Store(engine, clock=clock), clock


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        clusters = [PatroniCluster(scope, store=address, modes=modes) for scope, modes in MODES.items()]
        for cluster in clusters:
            stack.callback(cluster.remove)
        yield Site(clusters, f"lmdb:{tmp_path / 'store'}", address, {scope: free_port() for scope in MODES})


def told(line: str) -> None:
    """Times for whoever looks; pytest shows them with -s."""
    print(line, file=sys.stderr)


def test_real_clusters_elect_switch_over_fail_over_outlive_their_store_and_are_removed(site: Site) -> None:
    clusters = site.clusters
    with site.served() as server, keyplan.open(site.store_url) as store:
        broker = Broker(store)
        # The first one's port is the router's to give: nobody has ordered that cluster.
        for cluster in clusters[1:]:
            broker.allocations.insert(cluster.scope, site.ports[cluster.scope])
        for cluster in clusters:
            cluster.start()
        at_once(partial(_begin, store), clusters)
        at_once(partial(_switch_over, broker), clusters)
        _lose_leaders(clusters, store, site.ports)
        _outlive_a_full_disk(server, clusters)
        # The leader of a failsafe cluster asks its members instead of the store.
        _leader(clusters[-1]).patronictl("edit-config", "mixed", "--set", "failsafe_mode=true", "--force")
        until(lambda: set(broker.failsafes.get("mixed") or ()) == {"n1", "n2"}, 30, clusters[-1].logs)
        _until_heard(clusters[-1], time.time() + 1)
    _outlive_the_store(clusters)
    with site.served_by_a_clock() as (store, clock):
        at_once(partial(_return, clock), clusters)
        at_once(partial(_remove, store), clusters)


def at_once(work: Callable[[PatroniCluster], None], clusters: list[PatroniCluster]) -> None:
    """Do the same with every cluster, each in a thread: most of the time all of them wait."""
    with ThreadPoolExecutor(len(clusters)) as threads:
        for _ in threads.map(work, clusters):
            pass


def _begin(store: Store, cluster: PatroniCluster) -> None:
    taken = until(cluster.is_complete, 180, cluster.logs)
    told(f"{cluster.scope}: complete after {taken:.1f} s more")
    _check_records(cluster, store)
    _leader(cluster).query("create table kept (number int); insert into kept values (1)")


def _return(clock: SteppedClock, cluster: PatroniCluster) -> None:
    """A cluster comes back with its store, and takes no notice when the clock of the store's machine is set."""
    taken = until(cluster.is_complete, 120, cluster.logs)
    told(f"{cluster.scope}: complete again {taken:.1f} s after its store came back")
    leader = _leader(cluster)
    timeline = leader.query("select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)")
    for seconds in (3600.0, -7200.0):
        clock.step(cluster.scope, seconds)
        # Why four seconds: more loops than it takes to lose a leader key that is over.
        _until_heard(cluster, time.time() + 4)
        assert _leader(cluster) is leader
        # Why: whoever takes over, itself or another one, begins a timeline.
        assert leader.query("select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)") == timeline
    assert leader.query("insert into kept values (2); select count(*) from kept") == "2"


def _until_heard(cluster: PatroniCluster, after: float) -> None:
    """Wait until every node has read its store after a time."""
    until(lambda: all(node.store_seen_at() > after for node in cluster.nodes), 60, cluster.logs)


def _check_records(cluster: PatroniCluster, store: Store) -> None:
    """The keys of a cluster after its bootstrap are those that etcd has then (5.3)."""
    leader, scope, broker = _leader(cluster), cluster.scope, Broker(store)
    assert _keys(store, scope) == ["config", "initialize", "leader", "members/n1", "members/n2", "status"]
    assert broker.leaders.get(scope) == leader.name
    member = broker.members.get(MemberKey(scope, leader.name))
    assert member is not None
    assert member.address == f"127.0.0.1:{leader.port}"
    identifier = leader.query("select system_identifier from pg_control_system()")
    assert broker.initializations.get(scope) == identifier
    listed = json.loads(leader.patronictl("list", "-f", "json"))
    assert {row["Member"]: row["Role"] for row in listed} == {
        node.name: "Leader" if node is leader else "Replica" for node in cluster.nodes
    }


def _keys(store: Store, scope: str) -> list[str]:
    prefix = f"/service/{scope}/".encode()
    with store.engine.snapshot() as snapshot:
        found = snapshot.scan(KeyRange.of_prefix(prefix), keys_only=True)
        return [entry.key.removeprefix(prefix).decode() for entry in found]


def _leader(cluster: PatroniCluster) -> PatroniNode:
    leader = cluster.leader()
    assert leader is not None, cluster.logs()
    return leader


def _switch_over(broker: Broker, cluster: PatroniCluster) -> None:
    leader = _leader(cluster)
    assert not broker.histories.exists(cluster.scope)
    (candidate,) = cluster.replicas()
    leader.patronictl("switchover", "--leader", leader.name, "--candidate", candidate.name, "--force", cluster.scope)
    until(candidate.is_primary, 60, cluster.logs)
    assert broker.leaders.get(cluster.scope) == candidate.name
    taken = until(cluster.is_complete, 60, cluster.logs)
    told(f"{cluster.scope}: switched over, complete again after {taken:.1f} s")
    until(lambda: broker.histories.exists(cluster.scope), 30, cluster.logs)
    assert [(entry[0], entry[-1]) for entry in broker.histories.require(cluster.scope)] == [(1, candidate.name)]


def _lose_leaders(clusters: list[PatroniCluster], store: Store, ports: dict[str, int]) -> None:
    """Lose every cluster's leader at once: the others lead when the TTL is over, and clients write to one leader at a time.

    One is killed. One is halted for longer than its TTL, PostgreSQL too, and goes on. Of the third Patroni alone is halted, so
    that its PostgreSQL goes on taking writes from whoever still reaches it: through the router nobody does.
    """
    killed, halted, headless = clusters
    broker = Broker(store)
    _replicate_synchronously(halted, broker)
    with ExitStack() as stack:
        stack.enter_context(routed(store, ports[killed.scope]))
        writers = {one.scope: stack.enter_context(RoutedWriter(ports[one.scope])) for one in clusters}
        for one in clusters:
            until(lambda one=one: len(writers[one.scope].acknowledged) > 5, 60, one.logs)  # type: ignore[misc]
        former = {one.scope: _leader(one) for one in clusters}
        latter = {one.scope: next(node for node in one.nodes if node is not former[one.scope]) for one in clusters}
        former[killed.scope].kill()
        former[halted.scope].halt(with_postgresql=True)
        former[headless.scope].halt(with_postgresql=False)
        for one in clusters:
            taken = until(latter[one.scope].is_primary, TTL_SECONDS + 60, one.logs)
            told(f"{one.scope}: failed over after {taken:.1f} s")
            assert broker.leaders.get(one.scope) == latter[one.scope].name
            until(lambda one=one: latter[one.scope].port in writers[one.scope].servers, 60, one.logs)  # type: ignore[misc]
        assert former[headless.scope].query("select pg_is_in_recovery()") == "f"  # the danger is real
        former[killed.scope].start()
        for one in (halted, headless):
            former[one.scope].go_on()
        for one in clusters:
            until(one.is_complete, 90, one.logs)
            # Why waited for: what it told the store before it was halted still says that it runs.
            until(partial(_is_standby, former[one.scope]), 60, one.logs)
            goes_on_after = len(writers[one.scope].acknowledged)
            until(lambda one=one, least=goes_on_after: len(writers[one.scope].acknowledged) > least, 60, one.logs)  # type: ignore[misc]
        for one in clusters:
            writers[one.scope].stop()
            # Invariant: one leader at a time, and nobody comes back.
            assert writers[one.scope].servers == [former[one.scope].port, latter[one.scope].port]
            kept = {int(line) for line in latter[one.scope].query("select number from written").split()}
            lost = {each.number for each in writers[one.scope].acknowledged} - kept
            told(
                f"{one.scope}: {len(writers[one.scope].acknowledged)} rows were acknowledged, {len(lost)} of them are lost"
            )
            # Why of one alone: asynchronous replication promises less, and a killed leader may take its last rows with it.
            assert one is not halted or not lost


def _replicate_synchronously(cluster: PatroniCluster, broker: Broker) -> None:
    leader = _leader(cluster)
    (standby,) = cluster.replicas()
    leader.patronictl("edit-config", cluster.scope, "--set", "synchronous_mode=true", "--force")

    def is_synchronous() -> bool:
        found = broker.syncs.get(cluster.scope)
        return found is not None and found.sync_standby == standby.name

    until(is_synchronous, 60, cluster.logs)


@contextmanager
def routed(store: Store, port: int) -> Iterator[None]:
    """A router for the length of a block, HAProxy where it is installed, with one port to give."""
    folder, program = Path(tempfile.mkdtemp(prefix="keyplan-router-")), find_haproxy()
    board: Switchboard = Forwarder()
    if program is not None:
        board.stop()
        board = HAProxy(folder, program=program, is_root=os.geteuid() == 0)
    stop, following = Event(), Router(store, board, ports=PortAllocator(store, PortRange(port, port)))
    thread = Thread(target=following.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        following.close()
        board.stop()
        shutil.rmtree(folder)


def _outlive_a_full_disk(server: KeyplanServer, clusters: list[PatroniCluster]) -> None:
    """When nothing can be written to the store, leaders give up writing, as if it were gone; with room they come back."""
    with full_disk(server.process.pid, file_bytes_max=4_096):
        for cluster in clusters:
            taken = until(lambda nodes=cluster.nodes: not any(node.is_primary() for node in nodes), 60, cluster.logs)  # type: ignore[misc]
            told(f"{cluster.scope}: read-only {taken:.1f} s after its store's disk was full")
    for cluster in clusters:
        taken = until(cluster.is_complete, 120, cluster.logs)
        told(f"{cluster.scope}: complete again {taken:.1f} s after there was room")


def _outlive_the_store(clusters: list[PatroniCluster]) -> None:
    """Without their store leaders give up writing, but for the one of a failsafe cluster."""
    *ordinary, failsafe = clusters
    stays = _leader(failsafe)
    for cluster in ordinary:
        leaders = [node for node in cluster.nodes if node.is_primary()]
        taken = until(lambda nodes=leaders: not any(node.is_primary() for node in nodes), 40, cluster.logs)  # type: ignore[misc]
        told(f"{cluster.scope}: read-only {taken:.1f} s after its store went")
        until(lambda nodes=leaders: all(_is_standby(node) for node in nodes), 30, cluster.logs)  # type: ignore[misc]
    assert stays.is_primary(), failsafe.logs()
    assert stays.query("select pg_is_in_recovery()") == "f"


def _is_standby(node: PatroniNode) -> bool:
    """Whether it takes connections and no writes."""
    try:
        return node.query("select pg_is_in_recovery()") == "t"
    except AssertionError:
        return False  # Why: PostgreSQL is between its two lives.


def _remove(store: Store, cluster: PatroniCluster) -> None:
    """`patronictl remove` of a cluster whose nodes are gone leaves none of its keys."""
    leader = _leader(cluster)
    for node in cluster.nodes:
        node.kill()
    answers = [cluster.scope, "Yes I am aware", leader.name]
    leader.patronictl("remove", cluster.scope, typed="\n".join(answers) + "\n")
    assert _keys(store, cluster.scope) == []
