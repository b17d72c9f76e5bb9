"""What is done to a site: each fault is a context, healed when it is left."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Final, Literal, NamedTuple

from tests.apps.patroni.campaign.hosts import CENTRE, Host
from tests.apps.patroni.campaign.parts import Part
from tests.apps.patroni.campaign.site import TTL_SECONDS, Node, Site
from tests.apps.patroni.campaign.wall_clock import why_no_clock
from tests.apps.patroni.campaign.writers import write_bulk
from tests.processes import children_of

__all__ = ["FAULTS", "Fault", "chosen_faults", "end_patroni", "switched_to"]

LONGER_THAN_TTL: Final = TTL_SECONDS + 6.0
_SWITCHES_MAX: Final = 4
_CLOCK_STEPS: Final = (3600, -3600, 45, -45)

Target = Literal["leader", "replica", "centre"]


class Fault(NamedTuple):
    """One kind: whom it meets, how long it lasts, and what is done; `kind` groups them in the report."""

    kind: str
    target: Target
    seconds: float
    done: Callable[[Site, Node, random.Random], AbstractContextManager[None]]

    @property
    def name(self) -> str:
        """The kind with its target."""
        return self.kind if self.target == "centre" else f"{self.kind} ({self.target})"


# ---- kill ------------------------------------------------------------------------------------------------------------------


@contextmanager
def _kill_postgresql(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    _send(node.pid("postmaster"), signal.SIGKILL)
    yield


@contextmanager
def _kill_patroni(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    end_patroni(node)
    yield


@contextmanager
def _kill_both(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    _send(node.pid("patroni"), signal.SIGKILL)
    _send(node.pid("postmaster"), signal.SIGKILL)
    yield


@contextmanager
def _lose_machine(site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    """Everything on it ends at once, and comes again when the fault is healed."""
    part = site.parts[node.host.name]
    with _held(part):
        node.host.kill_all()
        part.kill()
        yield


@contextmanager
def _kill_store(site: Site, _node: Node, _draw: random.Random) -> Iterator[None]:
    with _killed(site.parts["store"]):
        yield


@contextmanager
def _kill_store_without_replica(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    """The leader cannot ask all members whether it may lead on, and must give up."""
    with _cut_from_others(site, node, draw), _kill_store(site, node, draw):
        yield


@contextmanager
def _kill_broker(site: Site, _node: Node, _draw: random.Random) -> Iterator[None]:
    with _killed(site.parts["broker"]):
        yield


@contextmanager
def _kill_router(site: Site, _node: Node, _draw: random.Random) -> Iterator[None]:
    """The agent and HAProxy."""
    with _held(site.parts["router"]):
        site.parts["router"].kill()
        for pid in site.haproxy():
            _send(pid, signal.SIGKILL)
        yield


@contextmanager
def _kill_store_and_leader(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    with _lose_machine(site, node, draw):
        with _killed(site.parts["store"]):
            _pass(site, 3)
        yield


# ---- stop ------------------------------------------------------------------------------------------------------------------


@contextmanager
def _stop_node(site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    agent = site.parts[node.host.name].pid
    with node.host.stopped(lambda: node.host.processes(but={agent})):
        yield


@contextmanager
def _stop_patroni(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    with node.host.stopped(lambda: [node.pid("patroni")]):
        yield


@contextmanager
def _stop_postgresql(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    postmaster = node.pid("postmaster")
    with node.host.stopped(lambda: [postmaster, *children_of(postmaster)]):
        yield


@contextmanager
def _stop_store(site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    with node.host.stopped(lambda: [site.parts["store"].pid]):
        yield


@contextmanager
def _stop_router_and_kill_both(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    """HAProxy goes on, and leads where it led."""
    with node.host.stopped(lambda: [site.parts["router"].pid]), _kill_both(site, node, draw):
        yield


# ---- disk, network, clock ----------------------------------------------------------------------------------------------------


@contextmanager
def _fill_disk(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    with node.host.full():
        yield


@contextmanager
def _unplug(_site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    with node.host.unplugged():
        yield


@contextmanager
def _cut_from_store(site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    """Clients and replicas still reach it."""
    with node.host.cut_from([CENTRE], site.store_ports):
        yield


def _others(site: Site, host: Host) -> list[str]:
    return [each.address for each in site.hosts if each is not host]


@contextmanager
def _cut_all_from_store(site: Site, _node: Node, _draw: random.Random) -> Iterator[None]:
    """Broker and router still reach it, and see all leases end."""
    with ExitStack() as cut:
        for host in site.hosts:
            cut.enter_context(host.cut_from([CENTRE], site.store_ports))
        yield


@contextmanager
def _cut_all_and_kill_router(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    """The next router finds no leader key of a cluster that leads on."""
    with _cut_all_from_store(site, node, draw):
        _pass(site, LONGER_THAN_TTL)
        with _kill_router(site, node, draw):
            _pass(site, 1)
        yield


@contextmanager
def _cut_from_store_and_replica(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    """One replica sees the store and not the leader, and comes to lead: the leader must have given up before."""
    others = [each for each in site.hosts if each is not node.host]
    with _cut_from_store(site, node, draw), draw.choice(others).cut_from([node.host.address]):
        yield


@contextmanager
def _cut_from_others(site: Site, node: Node, _draw: random.Random) -> Iterator[None]:
    """Clients and the store still reach it."""
    with node.host.cut_from(_others(site, node.host)):
        yield


@contextmanager
def _lose_behind(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    """A leader whose replicas fell behind is lost: what only it has is what the lag bound speaks of."""
    with node.host.cut_from(_others(site, node.host)):
        _pass(site, 4)
        with _lose_machine(site, node, draw):
            yield


@contextmanager
def _lose_too_far_behind(site: Site, node: Node, draw: random.Random) -> Iterator[None]:
    """A leader is lost whose replicas lack more than the lag bound allows: none of them may take its place."""
    with node.host.cut_from(_others(site, node.host)):
        writing = threading.Thread(target=write_bulk, args=(site.uri,), daemon=True)
        writing.start()
        # Why so long: what the leader has written must stand in the store before it is lost.
        _pass(site, 8)
        with _lose_machine(site, node, draw):
            yield
        writing.join(60)


@contextmanager
def _set_clock(site: Site, _node: Node, draw: random.Random) -> Iterator[None]:
    """The first machine's; who leads there is for `switched_to`."""
    assert site.clock is not None
    try:
        site.clock.set(draw.choice(_CLOCK_STEPS))
        yield
    finally:
        site.clock.set(0)
    # Why: that it is set right is one more step, of which nothing may come before the TTL is over.
    _pass(site, LONGER_THAN_TTL)


# ---- all -------------------------------------------------------------------------------------------------------------------

FAULTS: Final = (
    Fault("kill PostgreSQL", "leader", 0, _kill_postgresql),
    Fault("kill Patroni", "leader", 0, _kill_patroni),
    Fault("kill Patroni and PostgreSQL", "leader", 0, _kill_both),
    Fault("lose the machine", "leader", LONGER_THAN_TTL, _lose_machine),
    Fault("lose the machine", "replica", LONGER_THAN_TTL, _lose_machine),
    Fault("replicas fall behind, lose the machine", "leader", LONGER_THAN_TTL, _lose_behind),
    Fault("replicas fall too far behind, lose the machine", "leader", LONGER_THAN_TTL, _lose_too_far_behind),
    Fault("kill the store", "centre", 3, _kill_store),
    Fault("lose the store for longer than the TTL", "centre", LONGER_THAN_TTL, _kill_store),
    Fault("lose the store, cut from the other nodes", "replica", LONGER_THAN_TTL, _kill_store_without_replica),
    Fault("kill the broker", "centre", 2, _kill_broker),
    Fault("kill the router", "centre", 3, _kill_router),
    Fault("kill the store, lose the machine", "leader", LONGER_THAN_TTL, _kill_store_and_leader),
    Fault("stop Patroni and PostgreSQL", "leader", LONGER_THAN_TTL, _stop_node),
    Fault("stop Patroni alone", "leader", LONGER_THAN_TTL, _stop_patroni),
    Fault("stop PostgreSQL alone", "leader", LONGER_THAN_TTL, _stop_postgresql),
    Fault("stop the store", "centre", LONGER_THAN_TTL, _stop_store),
    Fault("stop the router, kill Patroni and PostgreSQL", "leader", LONGER_THAN_TTL, _stop_router_and_kill_both),
    Fault("full disk", "leader", 15, _fill_disk),
    Fault("full disk", "replica", 15, _fill_disk),
    Fault("no network", "leader", LONGER_THAN_TTL, _unplug),
    Fault("no network", "replica", LONGER_THAN_TTL, _unplug),
    Fault("cut from the store", "leader", LONGER_THAN_TTL, _cut_from_store),
    Fault("cut all nodes from the store", "centre", LONGER_THAN_TTL, _cut_all_from_store),
    Fault("cut all nodes from the store, kill the router", "centre", LONGER_THAN_TTL, _cut_all_and_kill_router),
    Fault("cut from the store and a replica", "leader", LONGER_THAN_TTL, _cut_from_store_and_replica),
    Fault("cut from the other nodes", "leader", LONGER_THAN_TTL, _cut_from_others),
    Fault("clock set wrongly", "leader", LONGER_THAN_TTL, _set_clock),
    Fault("clock set wrongly", "replica", LONGER_THAN_TTL, _set_clock),
)


def chosen_faults(draw: random.Random, only: str = "") -> Iterator[Fault]:
    """Draw faults for ever: each of them once, in an order of its own, and again."""
    able = [fault for fault in FAULTS if why_no_clock() is None or fault.done is not _set_clock]
    able = [fault for fault in able if only in fault.name]
    while True:
        yield from draw.sample(able, len(able))


def switched_to(site: Site, fault: Fault, draw: random.Random) -> Node:
    """Return the node that a fault meets. A clock can be set on the first machine alone: it is made what the fault asks for."""
    leader = site.leader()
    assert leader is not None
    if fault.done is _set_clock:
        return _first_as(site, fault.target)
    if fault.target == "replica":
        return draw.choice([node for node in site.nodes() if node.name != leader.name])
    return leader


def end_patroni(node: Node) -> None:
    """End Patroni of a node; PostgreSQL goes on."""
    _send(node.pid("patroni"), signal.SIGKILL)


def _first_as(site: Site, target: Target) -> Node:
    """Make the first machine's node what a fault asks for, and return it."""
    first = next(node for node in site.nodes() if node.host is site.hosts[0])
    for _ in range(_SWITCHES_MAX):
        leader = site.leader()
        assert leader is not None
        if (target == "leader") is (leader.name == first.name):
            break
        # Why the synchronous one: where there is one, Patroni hands over to no other; the next one may be the first.
        others = [node for node in site.nodes() if node.name != leader.name]
        able = [node for node in others if (node.told() or {}).get("sync_standby")] or others
        wanted = first if target == "leader" and first in able else able[0]
        wanted.switch_over(leader.name)
        site.until(site.is_complete, "the cluster is complete after a switchover")
    return first


# ---- processes -------------------------------------------------------------------------------------------------------------


@contextmanager
def _held(part: Part) -> Iterator[None]:
    part.is_held = True
    try:
        yield
    finally:
        part.is_held = False
        part.start()


@contextmanager
def _killed(part: Part) -> Iterator[None]:
    with _held(part):
        part.kill()
        yield


def _pass(site: Site, seconds: float) -> None:
    end = time.monotonic() + seconds
    site.until(lambda: time.monotonic() >= end, "the time passes", seconds + 60)


def _send(pid: int, number: signal.Signals) -> None:
    # Trap: 0 would be every process of the group.
    if pid > 1:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
