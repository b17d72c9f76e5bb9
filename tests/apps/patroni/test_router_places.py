"""What HAProxy cannot have stops nothing that it can: host names, ports of others, commands that it does not follow."""

import socket
from contextlib import ExitStack, suppress

import pytest

from keyplan.apps.patroni.router_agent import Switchboard
from keyplan.apps.patroni.router_haproxy import HAProxy
from keyplan.apps.patroni.router_places import Places
from keyplan.apps.patroni.router_routes import Leader, Route
from tests.apps.patroni.greeters import Greeter, greeting
from tests.servers.etcd import free_port


@pytest.mark.slow
def test_a_leader_by_its_host_name_is_followed_to_another_host_name(
    switchboard: Switchboard, greeters: tuple[Greeter, Greeter]
) -> None:
    port = free_port()
    with ExitStack() as stack:
        for greeter in greeters:
            switchboard.apply([Route("f1", port, Leader("localhost", greeter.leader.port))])
            assert greeting(port, stack)[1] == greeter.name


@pytest.mark.slow
def test_a_port_that_another_program_holds_stops_no_other_port(
    switchboard: Switchboard, greeters: tuple[Greeter, Greeter]
) -> None:
    a, b = greeters
    port = free_port()
    with ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as held:
            taken = held.getsockname()[1]
            for greeter in (a, b):
                # Why suppressed: the forwarder says so when everything else is done.
                with suppress(OSError):
                    switchboard.apply([Route("f1", port, greeter.leader), Route("g2", taken, a.leader)])
                assert greeting(port, stack)[1] == greeter.name
        switchboard.apply([Route("f1", port, b.leader), Route("g2", taken, a.leader)])
        assert greeting(taken, stack)[1] == a.name
        assert greeting(port, stack)[1] == b.name


@pytest.mark.slow
def test_a_port_that_two_instances_were_given_stays_with_who_had_it(
    haproxy: HAProxy, greeters: tuple[Greeter, Greeter]
) -> None:
    a, b = greeters
    port, other = free_port(), free_port()
    with ExitStack() as stack:
        haproxy.apply([Route("f2", port, a.leader), Route("g", other, a.leader)])
        haproxy.apply([Route("f1", port, b.leader), Route("f2", port, a.leader), Route("g", other, b.leader)])
        assert greeting(port, stack)[1] == a.name
        assert greeting(other, stack)[1] == b.name


@pytest.mark.slow
def test_a_command_that_haproxy_does_not_follow_is_noticed_and_made_up_for(
    haproxy: HAProxy, greeters: tuple[Greeter, Greeter], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = greeters
    port = free_port()
    with ExitStack() as stack:
        haproxy.apply([Route("f1", port, a.leader)])
        with monkeypatch.context() as patched:
            command = haproxy.command
            patched.setattr(haproxy, "command", lambda text: command(text.replace(" addr ", " no-such-word ")))
            with pytest.raises(OSError, match=f"not to 127.0.0.1:{b.leader.port}"):
                haproxy.apply([Route("f1", port, b.leader)])
        haproxy.apply([Route("f1", port, b.leader)])
        assert greeting(port, stack)[1] == b.name


def test_a_host_without_an_address_is_led_nowhere_and_one_that_had_one_keeps_it() -> None:
    addresses = {"one": "10.0.0.1", "six": "[::1]"}

    def look_up(host: str) -> str:
        try:
            return addresses[host]
        except KeyError:
            raise OSError(f"no {host}") from None

    places = Places("127.0.0.1", look_up=look_up)
    wanted = [Route(name, number, Leader(name, 5432)) for number, name in enumerate(("one", "six", "none"), start=1)]
    found, _ = places.possible(wanted, (), held={1, 2, 3})
    assert [route.leader and route.leader.host for route in found] == ["10.0.0.1", "[::1]", None]
    addresses.clear()
    again, _ = places.possible(wanted, (), held={1, 2, 3})
    assert again == found
    assert [problem for problem in places.problems if "none" in problem] == [
        "the address of none cannot be found: no none"
    ]
