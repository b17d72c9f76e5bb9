"""What a real etcd 3.4.23 answered, request by request and wait by wait, is what the gateway answers."""

import threading
import time
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from keyplan.engine import Engine, open_engine
from tests.server.etcd_v2.recorded_requests import Answer, ask, normal, recorded_requests, recorded_watches
from tests.servers.gateways import GatewayServer

pytestmark = pytest.mark.slow

OWN: Final = {"/v2/stats/self", "/v2/stats/store", "/v2/stats/leader", "/v2/members/leader"}
"""Ids, names, times and counters of that etcd."""

INDEX_BEFORE_WATCHES: Final = 39
PREPARED: Final = {
    8: (("/v2/keys/w/d/e", ("-XPUT", "-d", "value=1")),),
    9: (("/v2/keys/w/t", ("-XPUT", "-d", "value=1", "-d", "ttl=1")),),
    10: (("/v2/keys/w/t", ("-XPUT", "-d", "value=1", "-d", "ttl=60")),),
    19: (
        ("/v2/keys/w/dt2", ("-XPUT", "-d", "dir=true", "-d", "ttl=1")),
        ("/v2/keys/w/dt2/x", ("-XPUT", "-d", "value=1")),
    ),
}
"""What was written before a wait began; the recording holds only what was written after it."""
SILENT: Final = {4, 6, 10}
"""Waits that see nothing, so that curl gave up."""


@pytest.fixture(params=["memory:", "lmdb:"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    url = request.param
    with open_engine(f"lmdb:{tmp_path_factory.mktemp('v2')}" if url == "lmdb:" else url) as opened:
        yield opened


def test_every_recorded_request_is_answered_as_recorded(engine: Engine) -> None:
    with GatewayServer(engine) as server:
        differing = {}
        for recorded in recorded_requests():
            if recorded.path in OWN or ("wait=true&waitIndex" in recorded.path and "none" in recorded.path):
                continue
            answer = ask(server.url, recorded.path, recorded.options)
            if normal(answer) != normal(recorded.answer):
                differing[recorded.title] = (normal(answer), normal(recorded.answer))
        assert differing == {}


def test_every_recorded_wait_is_answered_as_recorded() -> None:
    with open_engine("memory:") as engine, GatewayServer(engine) as server, httpx.Client(base_url=server.url) as client:
        for number in range(INDEX_BEFORE_WATCHES - 3):
            client.put("/v2/keys/filler", data={"value": str(number)})
        for number, watch in enumerate(recorded_watches(), start=1):
            for path, options in PREPARED.get(number, ()):
                ask(server.url, path, options)
            if number == 22:
                write_until(client, 1074)
            seconds_max = 0.6 if number in SILENT | {5, 17} else 10.0
            found = waited(server.url, watch.path, watch.commands, client, seconds_max=seconds_max)
            if number == 17:
                # Why: etcd tells of one old event and then of nothing; here it is all of them.
                assert [line.split(",")[0] for line in found.body.split("\n")] == ['{"action":"update"'] + [
                    '{"action":"set"'
                ] * 3
                continue
            assert normal(found) == normal(watch.answer), watch.title


def write_until(client: httpx.Client, index: int) -> None:
    while int(client.put("/v2/keys/filler", data={"value": "x"}).headers["x-etcd-index"]) < index:
        pass


def watchers_become(client: httpx.Client, number: int) -> None:
    give_up_at = time.monotonic() + 60
    while client.get("/v2/stats/store").json()["watchers"] != number:
        assert time.monotonic() < give_up_at


def waited(
    url: str,
    path: str,
    commands: tuple[tuple[str, tuple[str, ...]], ...],
    client: httpx.Client,
    *,
    seconds_max: float,
) -> Answer:
    """Begin to wait, do the commands once it waits, and return what the wait was answered."""
    # Why: a wait before, whose client has hung up, may still be counted, and would be taken for this one.
    watchers_become(client, 0)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(url, path, (), seconds_max=seconds_max)))
    thread.start()
    if commands:
        watchers_become(client, 1)
    for command_path, options in commands:
        ask(url, command_path, options)
    thread.join()
    return answers[0]
