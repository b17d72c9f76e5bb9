"""The router over a store: what it does about changes, in how many looks, and what it says of itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Broker, InstanceState, Member, MemberKey, Operation, RouterReport
from keyplan.apps.patroni.ports import PortAllocator, PortRange
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.router_haproxy import HAProxy, find_haproxy
from keyplan.apps.patroni.router_routes import Leader, ReplicaRoute, Route
from keyplan.engine import Commit, Put
from keyplan.store import Lease, Store, open_store
from keyplan.testing import checked
from tests.servers.etcd import free_port

PLACES = {"n1": Leader("10.0.0.1", 5001), "n2": Leader("10.0.0.2", 5002), "n3": Leader("10.0.0.3", 5003)}


class Board:
    """Remembers where ports lead."""

    def __init__(self) -> None:
        self.routes: Sequence[Route] = ()
        self.reads: Sequence[ReplicaRoute] = ()

    def apply(self, routes: Sequence[Route], replicas: Sequence[ReplicaRoute] = ()) -> None:
        self.routes, self.reads = routes, replicas

    def stop(self) -> None:
        """There is nothing to end."""


@pytest.fixture
def store() -> Iterator[Store]:
    with checked.check_after(open_store("memory:"), Broker) as opened:
        yield opened


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    with store.lease(600, keep_alive=False) as granted:
        yield granted


def say(broker: Broker, name: str, lease: Lease, *, role: str, position: int = 0) -> None:
    """Let a member of f1 say how it is, as Patroni does in each of its loops."""
    place = PLACES[name]
    conn_url = f"postgres://{place.host}:{place.port}/postgres"
    member = Member(role=role, state="running", conn_url=Secret(conn_url), xlog_location=position)
    broker.members.put(MemberKey("f1", name), member, lease=lease)


def begin(store: Store, lease: Lease) -> Broker:
    broker = Broker(store)
    broker.allocations.put("f1", 33006)
    broker.replica_ports.put("f1", 34006)
    for name, role in (("n1", "primary"), ("n2", "replica"), ("n3", "replica")):
        say(broker, name, lease, role=role)
    broker.leaders.put("f1", "n1", lease=lease)
    return broker


def test_one_look_after_the_leader_key_changed_the_port_leads_to_the_new_leader(store: Store, lease: Lease) -> None:
    """Case 13's two seconds are four looks: `run` looks twice a second, and sooner when the store tells of a change."""
    broker, board = begin(store, lease), Board()
    router = Router(store, board)
    router.step()
    assert board.routes == (Route("f1", 33006, PLACES["n1"]),)
    broker.leaders.put("f1", "n2", lease=lease)
    router.step()
    assert board.routes == (Route("f1", 33006, PLACES["n2"]),)
    broker.leaders.delete("f1")
    router.step()
    assert board.routes == (Route("f1", 33006, None),)
    router.close()


def test_reads_never_lead_to_who_led_last_while_nobody_leads(store: Store, lease: Lease) -> None:
    broker, board = begin(store, lease), Board()
    router = Router(store, board)
    router.step()
    before = board.reads
    assert [reads.following for reads in before] == [(PLACES["n2"], PLACES["n3"])]
    broker.leaders.delete("f1")
    # A leader that gives up writing says that it is a replica before somebody else leads.
    say(broker, "n1", lease, role="replica")
    router.step()
    assert board.reads == before
    broker.leaders.put("f1", "n2", lease=lease)
    router.step()
    assert [reads.following for reads in board.reads] == [(PLACES["n1"], PLACES["n3"])]
    router.close()


def appear(broker: Broker, name: str, lease: Lease) -> None:
    """A cluster of somebody else's: a leader and a member below /service, and nothing of the broker's."""
    conn_url = Secret("postgres://10.0.0.9:5009/postgres")
    member = Member(role="primary", state="running", conn_url=conn_url)
    broker.members.put(MemberKey(name, "p1"), member, lease=lease)
    broker.leaders.put(name, "p1", lease=lease)


def test_a_cluster_that_appears_below_service_gets_a_port_and_a_route_without_anybody_s_order(
    store: Store, lease: Lease
) -> None:
    broker, board = begin(store, lease), Board()
    router = Router(store, board, ports=PortAllocator(store))
    router.step()
    appear(broker, "theirs", lease)
    router.step()
    assert board.routes == (
        Route("f1", 33006, PLACES["n1"]),
        Route("theirs", 33007, Leader("10.0.0.9", 5009)),
    )
    assert broker.allocations.get("theirs") == 33007
    router.step()
    assert broker.next_port.peek() == 33008
    router.close()


def test_an_instance_whose_allocation_was_lost_gets_the_port_that_its_bindings_have(store: Store, lease: Lease) -> None:
    broker, allocator = Broker(store), PortAllocator(store)
    broker.instances.put("f2", InstanceState(instance_id="f2", allocated_port=33005))
    appear(broker, "f2", lease)
    assert allocator.allocate_to_appeared("f2") == 33005
    broker.allocations.delete("f2")
    broker.allocations.put("theirs", 33005)
    with pytest.raises(RefusedError, match="port 33005, which the instance had, is another's now"):
        allocator.allocate_to_appeared("f2")


def test_what_is_left_of_a_deleted_instance_gets_no_port_again(store: Store) -> None:
    broker, allocator = Broker(store), PortAllocator(store)
    broker.operations.put("f2", Operation(id="deprovision-1", kind="deprovision", status="success"))
    broker.leaders.put("f2", "n1", lease=store.lease(600, keep_alive=False))
    revision = store.revision
    assert allocator.allocate_to_appeared("f2") is None
    broker.operations.delete("f2")
    assert allocator.allocate_to_appeared("f2") == 33000
    assert allocator.allocate_to_appeared("nobody") is None
    assert store.revision > revision


def test_a_cluster_that_can_have_no_port_ends_no_look_and_takes_nobody_s_route(
    store: Store, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board()
    appear(begin(store, lease), "theirs", lease)
    router = Router(store, board, ports=PortAllocator(store, PortRange(33006, 33006)))
    for _ in range(3):
        router.step()
    assert board.routes == (Route("f1", 33006, PLACES["n1"]),)
    assert caplog.text.count("cluster theirs gets no port") == 1
    router.close()


SEALED = b'{"role":"primary","state":"running","conn_url":{"$sealed":"v1.k.AAAA"}}'
"""What the node of a cluster can write of itself: it would be met where its address is asked for, and end the router."""


@pytest.mark.parametrize(
    ("damaged", "raw"),
    [
        ("leaders", b"\xff"),
        ("members", b"\xff"),
        ("members", SEALED),
        ("allocations", b"\xff"),
        ("replica_ports", b"\xff"),
    ],
)
def test_what_was_known_of_a_damaged_record_stays_in_use_when_watches_begin_anew(
    store: Store, lease: Lease, caplog: pytest.LogCaptureFixture, damaged: str, raw: bytes
) -> None:
    begin(store, lease)
    board = Board()
    router = Router(store, board)
    router.step()
    before = (board.routes, board.reads)
    key = MemberKey("f1", "n1") if damaged == "members" else "f1"
    store.engine.commit(Commit((), (Put(Broker.bound().tables[damaged].keys.encode(key), raw),)))
    router.close()
    caplog.clear()
    router.step()
    assert (board.routes, board.reads) == before
    assert "what was known of it stays in use" in caplog.text
    router.close()
    board = Board()
    router = Router(store, board)
    router.step()
    assert "nothing is known of it" in caplog.text
    router.close()
    Broker(store).view(damaged).delete(key, damaged_ok=True)


def process_ids(haproxy: HAProxy) -> list[str]:
    return [word for word in haproxy.command("show proc").split() if word.isdecimal()]


def test_haproxys_file_stays_as_it_is_when_only_positions_in_the_log_change(
    store: Store, lease: Lease, tmp_path: Path
) -> None:
    program = find_haproxy()
    if program is None:
        pytest.skip("needs HAProxy: apt-get install haproxy")
    broker = begin(store, lease)
    broker.allocations.put("f1", free_port())
    broker.replica_ports.put("f1", free_port())
    haproxy = HAProxy(tmp_path / "haproxy", program=program)
    router = Router(store, haproxy)
    try:
        router.step()
        before, processes = haproxy.file.stat(), process_ids(haproxy)
        for position in (100, 200):
            for name, role in (("n1", "primary"), ("n2", "replica"), ("n3", "replica")):
                say(broker, name, lease, role=role, position=position)
            router.step()
        after = haproxy.file.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert process_ids(haproxy) == processes  # no reload
    finally:
        router.close()
        haproxy.stop()


def test_a_router_says_on_a_lease_how_its_ports_lead(store: Store, lease: Lease) -> None:
    broker = begin(store, lease)
    broker.allocations.put("g2", 33007)
    router = Router(store, Board(), name="r1", by="haproxy")
    router.step()
    assert broker.routers.require("r1") == RouterReport(by="haproxy", ports=2, leading=1, switches=2)
    revision = store.revision
    say(broker, "n1", lease, role="primary", position=7)
    router.step()
    assert store.revision == revision + 1  # the member's own commit: nothing is said when nothing has changed
    broker.leaders.put("f1", "n2", lease=lease)
    router.step()
    assert broker.routers.require("r1").switches == 3
    router.close()
    router.leave()
    assert list(broker.routers.keys()) == []
