"""A wall's clock that is set back has Patroni of every node woken, whatever it answers first. No Patroni runs."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from keyplan import Secret
from keyplan.apps.patroni import node_wakeup
from keyplan.apps.patroni.node_config import Gateway, NodePlan
from keyplan.apps.patroni.node_wakeup import NodeWakeup
from keyplan.apps.patroni.records import Credentials
from tests.servers.patroni import until


class SteppingClock:
    """A wall's clock that a test sets."""

    def __init__(self) -> None:
        self.seconds, self.off = 100.0, 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds + self.off

    def epoch(self) -> bytes:
        return b"1"


class Asked(BaseHTTPRequestHandler):
    """Notes each request, and refuses the first ones, as Patroni does whose store does not answer."""

    requests: ClassVar[list[tuple[str, str, object]]]
    refusals: ClassVar[int]

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, self.headers["Authorization"], body))
        self.send_response(200 if len(self.requests) > self.refusals else 503)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@pytest.fixture
def plan() -> Iterator[NodePlan]:
    Asked.requests, Asked.refusals = [], 0
    nobody = Credentials(username="u", password=Secret("p"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield NodePlan(
            instance="f1",
            node="n1",
            port=1,
            rest_port=server.server_port,
            superuser=nobody,
            replication=nobody,
            rest=nobody,
            gateway=Gateway("127.0.0.1:1"),
        )
        server.shutdown()


def test_patroni_is_woken_when_the_clock_was_set_back_and_by_nothing_else(plan: NodePlan) -> None:
    clock = SteppingClock()
    wakeup = NodeWakeup(clock)
    for seconds, off in ((5.0, 1_000.0), (6.0, 4_600.0), (7.0, 4_599.5)):
        clock.seconds, clock.off = 100 + seconds, off
        wakeup.look([plan])
    assert Asked.requests == []
    clock.off = 1_000.0
    wakeup.look([plan])
    until(lambda: len(Asked.requests) == 1, 30, lambda: "nobody is asked")
    path, log_in, changes = Asked.requests[0]
    assert (path, log_in.startswith("Basic ")) == ("/config", True)
    # A null takes away what is not there: nothing is changed.
    assert isinstance(changes, dict)
    assert set(changes.values()) == {None}
    wakeup.look([plan])
    assert len(Asked.requests) == 1


def test_it_is_asked_again_while_its_store_does_not_answer(plan: NodePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_wakeup, "_AGAIN_SECONDS", 0.01)
    Asked.refusals = 3
    clock = SteppingClock()
    wakeup = NodeWakeup(clock)
    clock.off -= 3_600
    wakeup.look([plan])
    until(lambda: len(Asked.requests) == 4, 30, lambda: f"asked {len(Asked.requests)} times")
