"""The router: its decisions and HAProxy's configuration as values, and both switchboards with real connections."""

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Member, MemberKey
from keyplan.apps.patroni.router_agent import Switchboard
from keyplan.apps.patroni.router_haproxy import (
    HAProxy,
    Reads,
    Switch,
    configuration,
    find_haproxy,
    has_same_listeners,
    has_same_replicas,
    switches,
)
from keyplan.apps.patroni.router_routes import (
    Leader,
    ReplicaRoute,
    Route,
    Seen,
    candidates,
    health_of,
    replica_routes,
    routes,
)
from tests.apps.patroni.greeters import Greeter, greeting, heard
from tests.servers.etcd import free_port

N1 = Member(
    role="primary", conn_url=Secret("postgres://127.0.0.1:25432/postgres"), api_url="http://127.0.0.1:28008/patroni"
)
N2 = Member(
    role="replica", conn_url=Secret("postgres://127.0.0.1:25433/postgres"), api_url="http://127.0.0.1:28009/patroni"
)
TO_N1 = Leader("127.0.0.1", 25432, "127.0.0.1:28008")
TO_N2 = Leader("127.0.0.1", 25433, "127.0.0.1:28009")


def seen(leader: str | None) -> Seen:
    members = {MemberKey("f1", "n1"): N1, MemberKey("f1", "n2"): N2}
    return Seen({"f1": 33006}, {} if leader is None else {"f1": leader}, members)


@pytest.mark.parametrize(("leader", "place"), [("n1", TO_N1), ("n2", TO_N2)])
def test_a_port_leads_to_the_member_that_the_leader_key_names(leader: str, place: Leader) -> None:
    state = seen(leader)
    assert routes(state, candidates(state)) == (Route("f1", 33006, place),)


@pytest.mark.parametrize("leader", [None, "n3"], ids=["no leader key", "a leader without a member record"])
def test_without_a_leader_the_listener_stays_and_leads_to_nobody(leader: str | None) -> None:
    state = seen(leader)
    assert routes(state, candidates(state)) == (Route("f1", 33006, None),)


def test_a_leader_that_is_not_confirmed_gets_no_connections() -> None:
    assert routes(seen("n1"), {}) == (Route("f1", 33006, None),)


def test_a_cluster_without_an_allocated_port_has_no_route() -> None:
    state = seen("n1")._replace(allocations={})
    assert routes(state, candidates(state)) == ()


def test_routes_are_those_of_before_when_only_positions_in_the_log_changed() -> None:
    state = seen("n1")
    moved = Member(role="primary", conn_url=N1.conn_url, api_url=N1.api_url, xlog_location=83886336, timeline=7)
    later = state._replace(members={**state.members, MemberKey("f1", "n1"): moved})
    assert routes(later, candidates(later)) == routes(state, candidates(state))


@pytest.mark.parametrize(
    ("conn_host", "api_url", "health"),
    [
        ("10.244.21.8", "http://127.0.0.1:8008/patroni", ""),
        ("10.244.21.8", "http://10.244.21.8:8008/patroni", "10.244.21.8:8008"),
        ("127.0.0.1", "http://127.0.0.1:8008/patroni", "127.0.0.1:8008"),
        ("10.244.21.8", "http://10.244.21.8:port/", ""),
        ("10.244.21.8", "", ""),
    ],
    ids=["the document's: another machine's loopback", "reachable", "all on this machine", "no port", "none"],
)
def test_health_is_asked_only_where_it_can_be(conn_host: str, api_url: str, health: str) -> None:
    assert health_of(Member(api_url=api_url), conn_host) == health


# ---- reads ----------------------------------------------------------------------------------------------------------------

N3 = Member(
    role="replica",
    state="running",
    conn_url=Secret("postgres://127.0.0.1:25434/postgres"),
    api_url="http://127.0.0.1:28010/",
)
FAR = Member(
    role="replica",
    state="streaming",
    conn_url=Secret("postgres://10.0.0.9:5432/postgres"),
    api_url="http://127.0.0.1:8008/",
)
TO_N3 = Leader("127.0.0.1", 25434, "127.0.0.1:28010")
TO_FAR = Leader("10.0.0.9", 5432)


def reads_of(leader: str | None, **members: Member) -> tuple[ReplicaRoute, ...]:
    leaders = {} if leader is None else {"f1": leader}
    of_cluster = {MemberKey("f1", name): member for name, member in members.items()}
    return replica_routes(Seen({"f1": 33006}, leaders, of_cluster, {"f1": 34006}))


def test_reads_lead_to_members_that_follow_and_never_to_the_leader() -> None:
    running = Member(role="replica", state="streaming", conn_url=N2.conn_url, api_url=N2.api_url)
    expected = ReplicaRoute("f1", 34006, (TO_N1, TO_N2, TO_N3), (TO_N2, TO_N3), TO_N1)
    assert reads_of("n1", n1=N1, n2=running, n3=N3) == (expected,)


@pytest.mark.parametrize("state", ["starting", "stopped", "crashed", "creating replica", ""])
def test_reads_do_not_lead_to_a_member_that_does_not_run(state: str) -> None:
    member = Member(role="replica", state=state, conn_url=N2.conn_url, api_url=N2.api_url)
    assert reads_of("n1", n1=N1, n2=member)[0].following == ()


def test_a_member_that_cannot_be_asked_is_read_from_when_the_store_says_that_it_follows() -> None:
    (found,) = reads_of("n1", n1=N1, far=FAR, gone=Member(role="replica", state="running"))
    assert found.following == (TO_FAR,)
    assert found.servers == (TO_N1, TO_FAR)


def test_without_members_the_port_for_reads_stays_and_leads_to_nobody() -> None:
    assert reads_of("n1") == (ReplicaRoute("f1", 34006, (), ()),)


def test_before_somebody_leads_nobody_is_read_from() -> None:
    assert reads_of(None, n1=N1, n3=N3) == (ReplicaRoute("f1", 34006, (), ()),)


def test_a_cluster_without_a_port_for_reads_has_no_route_for_them() -> None:
    assert replica_routes(seen("n1")) == ()


CHECKED = "inter 1s fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions"
READS = f"""
# f1, reads
frontend port_34006
  bind 10.0.0.1:34006
  default_backend replicas_34006
backend replicas_34006
  balance leastconn
  option httpchk OPTIONS /replica
  http-check expect status 200
  server replica1 127.0.0.1:25432 check port 28008 {CHECKED} disabled
  server replica2 127.0.0.1:25433 check port 28009 {CHECKED}
  server replica3 10.0.0.9:5432
"""


def test_the_configuration_for_reads_is_this_text() -> None:
    reads = ReplicaRoute("f1", 34006, (TO_N1, TO_N2), (TO_N2, TO_FAR), TO_N1)
    given = [Route("f1", 33006, TO_N1)]
    assert configuration(given, [reads], bind="10.0.0.1", connections_max=500) == HEAD + F1 + READS


def test_a_switchover_closes_the_new_leader_to_readers_and_opens_the_old_one_when_it_says_so() -> None:
    before = Reads("f1", 34006, (TO_N1, TO_N2), TO_N1)
    after = before._replace(leader=TO_N2)
    assert has_same_replicas([before], [after])
    assert after.commands(before) == [
        "set server replicas_34006/replica2 state maint",
        "shutdown sessions server replicas_34006/replica2",
        "set server replicas_34006/replica1 state ready",
        "set server replicas_34006/replica1 health down",
    ]
    assert not has_same_replicas([before], [before._replace(servers=(TO_N1,))])


HEAD = """\
# Written by keyplan patroni router: changes are overwritten.
global
  maxconn 500

defaults
  mode tcp
  maxconn 500
  retries 2
  option clitcpka
  option srvtcpka
  timeout client 30m
  timeout server 30m
  timeout connect 4s
  timeout check 5s
"""
F1 = """
# f1
frontend port_33006
  bind 10.0.0.1:33006
  default_backend leader_33006
backend leader_33006
  option httpchk OPTIONS /primary
  http-check expect status 200
  server leader 127.0.0.1:25432 check port 28008 inter 1s fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions
"""
G2 = """
# g2
frontend port_33007
  bind 10.0.0.1:33007
  default_backend leader_33007
backend leader_33007
  option httpchk OPTIONS /primary
  http-check expect status 200
  server leader 127.0.0.1:1 check port 1 inter 1s fastinter 200ms fall 2 rise 1 on-marked-down shutdown-sessions disabled
"""
UNCHECKED = """
# h3
frontend port_33008
  bind 10.0.0.1:33008
  default_backend leader_33008
backend leader_33008
  # the leader's REST interface cannot be reached
  server leader 10.244.21.8:32768
"""


def test_the_configuration_of_haproxy_is_this_text() -> None:
    given = [
        Route("f1", 33006, TO_N1),
        Route("g2", 33007, None),
        Route("h3", 33008, Leader("10.244.21.8", 32768)),
    ]
    assert configuration(given, bind="10.0.0.1", connections_max=500) == HEAD + F1 + G2 + UNCHECKED


def test_a_name_with_a_line_end_cannot_add_to_the_configuration() -> None:
    text = configuration([Route("f1\n  bind :80", 33006, None)])
    assert "# f1?  bind :80\n" in text
    assert "\n  bind :80" not in text


def test_a_change_of_leader_closes_the_old_one_first_and_cuts_its_sessions() -> None:
    before, after = [Route("f1", 33006, TO_N1)], [Route("f1", 33006, TO_N2)]
    assert has_same_listeners(before, after)
    assert [switch.commands for switch in switches(before, after)] == [
        [
            "set server leader_33006/leader state maint",
            "shutdown sessions server leader_33006/leader",
            "set server leader_33006/leader addr 127.0.0.1 port 25433",
            "set server leader_33006/leader check-port 28009",
            "set server leader_33006/leader state ready",
            "set server leader_33006/leader health up",
        ]
    ]


def test_without_a_leader_the_server_is_closed_and_nothing_else() -> None:
    assert Switch(33006, None).commands == [
        "set server leader_33006/leader state maint",
        "shutdown sessions server leader_33006/leader",
    ]


@pytest.mark.parametrize(
    "after",
    [
        [Route("f1", 33006, TO_N1), Route("g2", 33007, None)],
        [],
        [Route("f1", 33006, Leader("10.244.21.8", 32768))],
    ],
    ids=["another port", "no port", "a leader that cannot be asked"],
)
def test_what_commands_cannot_change_needs_a_reload(after: list[Route]) -> None:
    assert not has_same_listeners([Route("f1", 33006, TO_N1)], after)


def test_sessions_of_a_port_that_is_closed_are_cut() -> None:
    assert [switch.cut for switch in switches([Route("f1", 33006, TO_N1)], [])] == [
        "shutdown sessions server leader_33006/leader"
    ]


# ---- with real connections ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_port_follows_its_leader_and_nobody_stays_with_the_old_one(
    switchboard: Switchboard, greeters: tuple[Greeter, Greeter]
) -> None:
    a, b = greeters
    port, other = free_port(), free_port()
    with ExitStack() as stack:
        switchboard.apply([Route("f1", port, a.leader)])
        first, said = greeting(port, stack)
        assert said == b"a"
        # A second instance is a second listener; who is connected stays connected.
        switchboard.apply([Route("f1", port, a.leader), Route("g2", other, b.leader)])
        assert greeting(other, stack)[1] == b"b"
        assert greeting(port, stack)[1] == b"a"
        first.settimeout(0.3)
        with pytest.raises(TimeoutError):
            first.recv(1)
        first.settimeout(60)
        switchboard.apply([Route("f1", port, b.leader), Route("g2", other, b.leader)])
        assert heard(first) == b""
        assert greeting(port, stack)[1] == b"b"
        # Without a leader the port answers, and refuses at once.
        switchboard.apply([Route("f1", port, None), Route("g2", other, b.leader)])
        assert greeting(port, stack)[1] == b""
        assert greeting(other, stack)[1] == b"b"


@pytest.mark.slow
def test_a_port_for_reads_leads_to_replicas_by_turns_and_nobody_stays_with_one_that_leads(
    switchboard: Switchboard, greeters: tuple[Greeter, Greeter]
) -> None:
    a, b = (each.leader for each in greeters)
    port, reads = free_port(), free_port()

    def read_from(*places: Leader) -> ReplicaRoute:
        return ReplicaRoute("f1", reads, (), places)

    with ExitStack() as stack:
        switchboard.apply([Route("f1", port, a)], [read_from(a, b)])
        assert {greeting(reads, stack)[1] for _ in range(4)} == {b"a", b"b"}
        switchboard.apply([Route("f1", port, a)], [read_from(b)])
        reader, said = greeting(reads, stack)
        assert said == b"b"
        assert greeting(port, stack)[1] == b"a"
        # b leads now: who reads there is cut, and the port answers, and refuses.
        switchboard.apply([Route("f1", port, b)], [read_from()])
        assert heard(reader) == b""
        assert greeting(reads, stack)[1] == b""
        assert greeting(port, stack)[1] == b"b"
        switchboard.apply([Route("f1", port, b)])
    until_refused(reads)


@pytest.mark.slow
def test_a_port_that_is_given_back_is_closed(switchboard: Switchboard, greeters: tuple[Greeter, Greeter]) -> None:
    port, other = free_port(), free_port()
    switchboard.apply([Route("f1", port, greeters[0].leader), Route("g2", other, None)])
    switchboard.apply([Route("g2", other, None)])
    until_refused(port)
    switchboard.apply([])
    until_refused(other)


def until_refused(port: int) -> None:
    wait = threading.Event()
    for _ in range(1_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return
        wait.wait(0.05)
    raise AssertionError(f"port {port} is open still")


@pytest.mark.slow
def test_haproxy_goes_on_without_its_router_and_the_next_one_leads_it(
    tmp_path: Path, greeters: tuple[Greeter, Greeter]
) -> None:
    program = find_haproxy()
    if program is None:
        pytest.skip("needs HAProxy: apt-get install haproxy")
    a, b = greeters
    port = free_port()
    board: Callable[[], HAProxy] = lambda: HAProxy(tmp_path / "haproxy", program=program)  # noqa: E731
    former, latter = board(), board()
    try:
        with ExitStack() as stack:
            former.apply([Route("f1", port, a.leader)])
            first, said = greeting(port, stack)
            assert said == b"a"
            latter.apply([Route("f1", port, b.leader)])
            assert heard(first) == b""
            assert greeting(port, stack)[1] == b"b"
            assert latter.file.stat().st_mode & 0o777 == 0o600
    finally:
        for each in (latter, former):
            each.stop()
