"""Members that the router asks: one that hangs, lies or is nowhere keeps nobody else's port from being led."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event, Thread

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Broker, Member, MemberKey
from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.router_checks import PrimaryChecks, is_primary
from keyplan.apps.patroni.router_places import Places
from keyplan.apps.patroni.router_routes import Candidate, Leader, Route, Seen, replica_routes
from keyplan.store import Lease, Store, open_store
from tests.apps.patroni.test_router_agent import Board
from tests.servers.patroni import until

HANGING = 15


class Answering:
    """A REST interface that answers each connection with some pieces, and a moment between them."""

    def __init__(self, *pieces: bytes, pause: float = 0.0) -> None:
        self.pieces = pieces
        self._pause = pause
        self._end = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                # Why: what closes a connection with a question unread resets it, and the answer may be lost.
                connection.recv(1_024)
                for piece in self.pieces:
                    connection.sendall(piece)
                    if self._end.wait(self._pause):
                        return
            except OSError:
                return

    def close(self) -> None:
        self._end.set()
        self._listener.close()


@pytest.fixture
def members() -> Iterator[dict[str, str]]:
    """Where members of several kinds are asked."""
    with ExitStack() as stack:
        silent = socket.create_server(("127.0.0.1", 0), backlog=2 * HANGING)
        stack.callback(silent.close)
        found = {"silent": f"127.0.0.1:{silent.getsockname()[1]}"}
        for name, member in {
            "primary": Answering(b"HTTP/1.0 2", b"00 OK\r\n\r\n"),
            "replica": Answering(b"HTTP/1.0 503 Service Unavailable\r\n\r\n"),
            "endless": Answering(*[b"H"] * 1_000, pause=0.2),
            "brief": Answering(),
        }.items():
            stack.callback(member.close)
            found[name] = member.address
        yield found


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as opened:
        yield opened


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    with store.lease(600, keep_alive=False) as granted:
        yield granted


@pytest.mark.parametrize(
    ("name", "says"), [("primary", True), ("replica", False), ("silent", False), ("endless", False), ("brief", False)]
)
def test_a_member_that_takes_writes_says_so_within_a_second_or_does_not_count(
    members: dict[str, str], name: str, *, says: bool
) -> None:
    began = time.monotonic()
    assert is_primary(Leader("127.0.0.1", 5432, members[name])) is says
    # Why so much: the machine may be busy. Piece by piece it would be 200 seconds.
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("place", ["a" * 70 + ":8008", "a..b:1", "nobody.invalid:1", "[::1:1", "127.0.0.1:" + "9" * 30])
def test_what_is_no_place_is_no_primary(place: str) -> None:
    assert not is_primary(Leader("127.0.0.1", 5432, place))


def lead(broker: Broker, lease: Lease, cluster: str, port: int, *, api: str, host: str = "10.0.0.1") -> None:
    member = Member(
        role="primary", state="running", conn_url=Secret(f"postgres://{host}:5432/p"), api_url=f"http://{api}/patroni"
    )
    broker.allocations.put(cluster, port)
    broker.members.put(MemberKey(cluster, "n1"), member, lease=lease)
    broker.leaders.put(cluster, "n1", lease=lease)


def test_a_router_that_begins_closes_no_port_of_a_member_that_answers_within_its_second(
    store: Store, lease: Lease
) -> None:
    slow = Answering(b"HTTP/1.0 2", b"00 OK\r\n\r\n", pause=0.5)
    broker, board = Broker(store), Board()
    lead(broker, lease, "f1", 33000, api=slow.address, host="127.0.0.1")
    router = Router(store, board)
    router.step()
    assert [route.leader is not None for route in board.routes] == [True]
    router.close()
    slow.close()


def test_members_that_hang_delay_no_other_cluster(store: Store, lease: Lease, members: dict[str, str]) -> None:
    broker, board = Broker(store), Board()
    for number in range(HANGING):
        lead(broker, lease, f"h{number:02}", 33000 + number, api=members["silent"], host="127.0.0.1")
    lead(broker, lease, "well", 33999, api=members["primary"], host="127.0.0.1")
    router = Router(store, board)
    wanted = Route("well", 33999, Leader("127.0.0.1", 5432, members["primary"]))

    def is_led() -> bool:
        router.step()
        return wanted in board.routes

    # One after the other they took a second each, before anything was led.
    assert until(is_led, 10, lambda: str(board.routes)) < HANGING / 3
    assert [route.leader for route in board.routes[:HANGING]] == [None] * HANGING
    router.close()


def test_an_answer_of_before_says_nothing_of_who_holds_the_key_now() -> None:
    asked: list[Leader] = []
    answers, begun = Event(), Event()

    def ask(_instance: str, candidate: Candidate) -> bool:
        leader = candidate.leader
        asked.append(leader)
        begun.set()
        return leader.port == 2 or answers.wait(30)

    checks = PrimaryChecks(ask)
    first, second = (Candidate(name, Leader("h", port, "h:1")) for name, port in (("n1", 1), ("n2", 2)))
    assert checks.confirmed({"f1": first}) == set()
    assert begun.is_set()
    assert checks.confirmed({"f1": second}) == {"f1"}
    answers.set()
    until(lambda: checks.confirmed({}) == set(), 10, lambda: "it says so still")
    assert [leader.port for leader in asked] == [1, 2]


def test_a_member_whose_host_is_no_name_ends_no_router(store: Store, lease: Lease, members: dict[str, str]) -> None:
    broker, board, label = Broker(store), Board(), "a" * 70
    lead(broker, lease, "odd", 33001, api=f"{label}:8008", host=label)
    lead(broker, lease, "well", 33002, api=members["primary"], host="127.0.0.1")
    router = Router(store, board)

    def is_led() -> bool:
        router.step()
        return board.routes[-1].leader is not None

    until(is_led, 10, lambda: str(board.routes))
    router.close()
    places = Places("127.0.0.1")
    odd, well = Route("odd", 33001, Leader(label, 5432)), Route("well", 33002, Leader("127.0.0.1", 5432))
    led, _ = places.possible([odd, well], [], held={33001, 33002})
    assert [route.leader for route in led] == [None, well.leader]
    assert f"the address of {label} cannot be found" in places.problems[0]


def test_a_cluster_that_says_it_has_thousands_of_members_is_led_to_some_of_them() -> None:
    names = [f"m{number:04}" for number in range(2_000)]
    found = {
        MemberKey("f1", name): Member(
            role="replica", state="running", conn_url=Secret(f"postgres://10.0.0.1:{5000 + at}/p")
        )
        for at, name in enumerate(names)
    }
    (route,) = replica_routes(Seen({}, {"f1": names[-1]}, found, {"f1": 34000}))
    assert route.leader == Leader("10.0.0.1", 6999)
    assert len(route.following) == NODES_MAX - 1
