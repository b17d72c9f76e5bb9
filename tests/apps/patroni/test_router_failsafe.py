"""A leader that leads on in failsafe mode, without its leader key: its port leads there for as long as it says so."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Broker, InstanceState, Member, MemberKey, RouterReport, router_checks, router_failsafe
from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.clusters import clusters, role_of
from keyplan.apps.patroni.diagnosis import FaultKind, diagnose
from keyplan.apps.patroni.layout import OUTSIDE, NodeKey
from keyplan.apps.patroni.report import REPORT
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.router_checks import FailsafeChecks
from keyplan.apps.patroni.router_routes import Candidate, Leader
from keyplan.apps.patroni.top_view import lines_of
from keyplan.store import Lease, Store, open_store
from tests.apps.patroni.test_router_agent import Board
from tests.apps.patroni.test_router_checks import Answering
from tests.servers.patroni import until

ORDINARY = b'HTTP/1.0 200 OK\r\n\r\n{"state": "running", "role": "primary"}'
SELF = b'"patroni": {"version": "4.1.5", "scope": "f1", "name": "n1"}'
FAILSAFE = b'HTTP/1.0 200 OK\r\n\r\n{"role": "primary", "failsafe_mode_is_active": true, ' + SELF + b"}"
UNNAMED = FAILSAFE.replace(b', "name": "n1"', b"")
"""As Patroni before 3.2 says it."""
PRIMARY = FAILSAFE.replace(b"true", b"false")
REPLICA = FAILSAFE.replace(b"primary", b"replica").replace(b"n1", b"n2")
DEMOTED = b'HTTP/1.0 503 Service Unavailable\r\n\r\n{"role": "replica", "failsafe_mode_is_active": true, ' + SELF + b"}"


@pytest.fixture
def member() -> Iterator[Answering]:
    answering = Answering(ORDINARY)
    yield answering
    answering.close()


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as opened:
        yield opened


@pytest.fixture
def replica() -> Iterator[Answering]:
    found = Answering(FAILSAFE)
    yield found
    found.close()


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    with store.lease(600, keep_alive=False) as granted:
        yield granted


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (FAILSAFE, True),
        (UNNAMED, True),
        (FAILSAFE.replace(b"f1", b"f2"), False),
        (FAILSAFE.replace(b"n1", b"n2"), False),
        (FAILSAFE.replace(b", " + SELF, b""), False),
        (ORDINARY, False),
        (DEMOTED, False),
        (b"HTTP/1.0 200 OK\r\n\r\n", False),
        (FAILSAFE.replace(b"true", b'"no"'), False),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 60_000, False),
        (b"", False),
    ],
    ids=[
        "failsafe",
        "no name",
        "another cluster",
        "another member",
        "nobody",
        "with its store",
        "demoted",
        "no body",
        "no truth",
        "no end",
        "nothing",
    ],
)
def test_a_member_leads_on_where_it_takes_writes_in_failsafe_mode(
    member: Answering, answer: bytes, *, says: bool
) -> None:
    member.pieces = (answer,)
    asked = Candidate("n1", Leader("127.0.0.1", 5432, member.address))
    assert FailsafeChecks().leads_on("f1", asked) is says


def lead(store: Store, lease: Lease, *apis: str) -> Broker:
    broker = Broker(store)
    broker.allocations.put("f1", 33006)
    broker.replica_ports.put("f1", 34006)
    for name, port, role, api in (("n1", 5001, "primary", apis[0]), ("n2", 5002, "replica", apis[-1])):
        conn_url = Secret(f"postgres://127.0.0.1:{port}/postgres")
        member = Member(role=role, state="running", conn_url=conn_url, api_url=f"http://{api}/patroni")
        broker.members.put(MemberKey("f1", name), member, lease=lease)
    broker.leaders.put("f1", "n1", lease=lease)
    return broker


def lose_all(broker: Broker) -> None:
    """What a cluster has on leases goes when its gateway is away for longer than the TTL."""
    broker.members.delete(MemberKey("f1", "n1"))
    broker.leaders.delete("f1")
    broker.members.delete(MemberKey("f1", "n2"))


def begin(store: Store, lease: Lease, *members: Answering, **given: Any) -> tuple[Broker, Board, Router]:
    broker, board = lead(store, lease, *(member.address for member in members)), Board()
    router = Router(store, board, **given)

    def is_led() -> bool:
        router.step()
        return board.routes[0].leader is not None

    until(is_led, 10, lambda: str(board.routes))
    return broker, board, router


def test_a_port_leads_to_a_leader_without_a_key_for_as_long_as_it_leads_on(
    store: Store, lease: Lease, member: Answering
) -> None:
    broker, board, router = begin(store, lease, member)
    before = (board.routes, board.reads)
    member.pieces = (FAILSAFE,)
    # One after the other: a member's record may go before the leader key, and must not close the port.
    broker.members.delete(MemberKey("f1", "n1"))
    router.step()
    assert (board.routes, board.reads) == before
    lose_all(broker)
    for _ in range(3):
        router.step()
        assert (board.routes, board.reads) == before
    member.pieces = (DEMOTED,)

    def is_closed() -> bool:
        router.step()
        return board.routes[0].leader is None

    until(is_closed, 10, lambda: str(board.routes))
    member.pieces = (FAILSAFE,)
    until(lambda: not is_closed(), 10, lambda: str(board.routes))
    router.close()


def test_a_leader_that_says_no_such_thing_is_left_at_once(store: Store, lease: Lease, member: Answering) -> None:
    broker, board, router = begin(store, lease, member)
    lose_all(broker)
    router.step()
    assert board.routes[0].leader is None
    router.close()


def test_no_session_ends_while_who_led_on_takes_its_key_again(
    store: Store, lease: Lease, member: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, board, router = begin(store, lease, member)
    member.pieces = (FAILSAFE,)
    lose_all(broker)
    before = board.routes
    for answer in (FAILSAFE, PRIMARY, PRIMARY):
        member.pieces = (answer,)
        router.step()
        assert board.routes == before
    # The key may come before the member's record.
    broker.leaders.put("f1", "n1", lease=lease)
    router.step()
    assert board.routes == before
    broker.leaders.delete("f1")
    monkeypatch.setattr(router_checks, "_KEYLESS_SECONDS_MAX", 0.0)

    def is_closed() -> bool:
        router.step()
        return board.routes[0].leader is None

    until(is_closed, 10, lambda: str(board.routes))
    router.close()


def test_who_takes_writes_without_a_key_was_in_failsafe_mode_before_at_the_same_place(member: Answering) -> None:
    checks = FailsafeChecks()
    asked = Candidate("n1", Leader("127.0.0.1", 5001, member.address))
    for answer, candidate, leads_on in (
        (PRIMARY, asked, False),
        (FAILSAFE, asked, True),
        (PRIMARY, asked._replace(leader=asked.leader._replace(port=5002)), False),
        (PRIMARY, asked, True),
    ):
        member.pieces = (answer,)
        assert checks.leads_on("f1", candidate) is leads_on


def test_who_could_not_be_asked_for_a_minute_is_asked_again_now_and_then(
    store: Store, lease: Lease, member: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_failsafe, "_ASKED_SECONDS", 0.0)
    monkeypatch.setattr(router_failsafe, "_ASKED_AGAIN_SECONDS", 3.0)
    broker, board, router = begin(store, lease, member)
    member.pieces = ()
    lose_all(broker)

    def is_closed() -> bool:
        router.step(0.05)
        return board.routes[0].leader is None

    until(is_closed, 10, lambda: str(board.routes))
    gone = time.monotonic()
    until(lambda: is_closed() and time.monotonic() - gone > 2.5, 20, lambda: "it is led to")
    member.pieces = (FAILSAFE,)
    until(lambda: not is_closed(), 20, lambda: str(board.routes))
    router.close()


def test_another_leader_ends_failsafe_mode_also_before_its_record_is_there(
    store: Store, lease: Lease, member: Answering
) -> None:
    broker, board, router = begin(store, lease, member)
    member.pieces = (FAILSAFE,)
    lose_all(broker)
    router.step()
    assert [route.leader for route in board.routes] != [None]
    broker.leaders.put("f1", "n2", lease=lease)
    router.step()
    assert [route.leader for route in board.routes] == [None]
    router.close()


def test_a_router_that_begins_meanwhile_asks_whom_the_one_before_would_have_asked(
    store: Store, lease: Lease, member: Answering, replica: Answering, tmp_path: Path
) -> None:
    file = tmp_path / "last-leaders.json"
    broker, board, router = begin(store, lease, member, replica, last_leaders=file)
    router.close()
    assert "postgres://" not in file.read_text()
    lose_all(broker)
    member.pieces = (FAILSAFE,)
    wanted, reads, board = board.routes, board.reads, Board()
    router = Router(store, board, last_leaders=file)

    def is_led() -> bool:
        router.step()
        return board.routes == wanted

    until(is_led, 10, lambda: str(board.routes))
    # Who says that it is n1 is not read from as n2, and n2 is once it says so.
    assert [place.port for place in board.reads[0].asked] == [5001]
    replica.pieces = (REPLICA,)

    def is_read() -> bool:
        router.step()
        return board.reads == reads

    until(is_read, 10, lambda: str(board.reads))
    # It is known from then on, as to a router that saw its record.
    replica.pieces = ()
    router.step()
    assert board.reads == reads
    router.close()
    # What it says is no evidence: another cluster may be at that address by now.
    member.pieces = (FAILSAFE.replace(b"f1", b"f2"),)
    router = Router(store, board, last_leaders=file)
    router.step()
    assert [route.leader for route in board.routes] == [None]
    router.close()
    file.write_text("[" * 100_000)
    router = Router(store, board, last_leaders=file)
    router.step()
    router.close()


def test_the_next_router_is_told_of_a_bounded_number_of_members_that_can_be_asked(
    store: Store, lease: Lease, member: Answering, tmp_path: Path
) -> None:
    """Whoever has the cluster's token writes as many members as they like."""
    broker, file = Broker(store), tmp_path / "last-leaders.json"
    for number in range(NODES_MAX + 5):
        found = Member(role="replica", conn_url=Secret(f"postgres://127.0.0.1:{number + 1}/postgres"))
        if number > 1:
            found.api_url = f"http://{member.address}/patroni"
        broker.members.put(MemberKey("f1", f"a{number}"), found, lease=lease)
    _, _, router = begin(store, lease, member, last_leaders=file)
    router.close()
    told = json.loads(file.read_text())["f1"][1]
    assert (len(told), {"a0", "a1"} & told.keys()) == (NODES_MAX, set())


def test_who_leads_in_failsafe_mode_is_told_in_place_of_nobody(store: Store, lease: Lease, member: Answering) -> None:
    broker, _, router = begin(store, lease, member, name="r1")
    broker.instances.put("f1", InstanceState())
    broker.configurations.put("f1", {"failsafe_mode": True})
    for node in ("n1", "n2"):
        broker.nodes.put(NodeKey("f1", node), OUTSIDE)
    member.pieces = (FAILSAFE,)
    lose_all(broker)
    router.step()
    (view,) = clusters(broker)
    assert (view.leader, view.failsafe_leader) == ("", "n1")
    assert [role_of(view, node) for node in view.nodes] == ["leader in failsafe mode", ""]
    title, *lines = (line.text for line in lines_of([view], now=0.0))
    assert title.endswith("1 cluster  1 in failsafe mode")
    assert "n1 leads in failsafe mode, without its store" in "\n".join(lines)
    (section,), _ = REPORT.sections(store, 5.0, "")
    assert "n1, in failsafe mode" in {fact.shown.text for fact in section.facts}
    faults = {fault.kind: fault.text for fault in diagnose(store)}
    assert "n1 leads on in failsafe mode" in faults[FaultKind.NO_LEADER]
    # A router's record may be anybody's.
    broker.routers.put("r2", RouterReport(failsafe={"a/b": "n1", "": "n1"}), lease=lease)
    broker.leaders.put("f1", "n2", lease=lease)
    (view,) = clusters(broker)
    assert (view.leader, view.failsafe_leader) == ("n2", "")
    router.close()
