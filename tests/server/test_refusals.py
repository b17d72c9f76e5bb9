"""A line for each refused request: who, where, what and why; one, without secrets, and so few that a flood fills no disk."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, Final

import httpx
import pytest

from keyplan.engine import Engine
from keyplan.server import Application, service_builders
from keyplan.server.refusals import LINES_MAX, REFUSED, UNTOLD, RefusalLog
from tests.server.conftest import ADMIN_TOKEN
from tests.servers.edge import EdgeServer


class Hand:
    """A clock that stands still, and the lines of a log."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lines: list[tuple[str, Mapping[str, Any]]] = []
        self.log = RefusalLog(lambda said, facts: self.lines.append((said, facts)), monotonic=lambda: self.seconds)


@pytest.fixture
def hand() -> Hand:
    return Hand()


# ---- how many ----------------------------------------------------------------------------------------------------------


def test_an_address_has_some_lines_for_each_reason_and_the_next_one_tells_how_many_have_none(hand: Hand) -> None:
    for _ in range(LINES_MAX + 30):
        hand.log.tell("192.0.2.1", "unauthorized", {"status": 401})
    assert [said for said, _ in hand.lines] == [REFUSED] * LINES_MAX
    hand.log.tell("192.0.2.1", "access_denied", {"status": 403})
    hand.log.tell("192.0.2.2", "unauthorized", {"status": 401})
    assert len(hand.lines) == LINES_MAX + 2
    hand.seconds = 3.1
    hand.log.tell("192.0.2.1", "unauthorized", {"status": 401})
    assert hand.lines[-1] == (REFUSED, {"status": 401, "untold": 30})


def test_what_has_no_line_is_told_when_no_more_of_it_comes(hand: Hand) -> None:
    for address in ("192.0.2.1", "192.0.2.2"):
        for _ in range(LINES_MAX + 5):
            hand.log.tell(address, "unauthorized", {})
    hand.lines.clear()
    hand.log.tell_rest_if_due()
    assert hand.lines == []
    hand.seconds = 61.0
    hand.log.tell_rest_if_due()
    assert hand.lines == [(UNTOLD, {"requests": 10, "addresses": 2})]
    hand.log.tell_rest()
    assert len(hand.lines) == 1


def test_many_addresses_have_so_many_lines_together(hand: Hand) -> None:
    for number in range(30_000):
        hand.log.tell(f"192.0.{number // 250}.{number % 250}", "unauthorized", {})
    assert len(hand.lines) == 1_000
    hand.log.tell_rest()
    said, facts = hand.lines[-1]
    assert (said, facts["requests"]) == (UNTOLD, 29_000)


# ---- what they say -----------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What is logged, filled as it comes."""
    found: list[tuple[str, dict[str, Any]]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append((record.getMessage(), getattr(record, "facts", {})))

    caplog.set_level(logging.INFO)
    handler = Keeping()
    logging.getLogger("keyplan.server").addHandler(handler)
    yield found
    logging.getLogger("keyplan.server").removeHandler(handler)


def ask(application: Application, runner: asyncio.Runner, method: str, path: str, **options: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(application.asgi, client=("192.0.2.7", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://store.example:8210") as client:
            return await client.request(method, path, **options)

    return runner.run(asked())


ADMIN: Final = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


def test_a_refused_request_has_one_line_that_says_who_what_and_why(
    application: Application, runner: asyncio.Runner, lines: list[tuple[str, dict[str, Any]]]
) -> None:
    ask(application, runner, "GET", "/keyspaces/orders?token=swordfish", headers={"Authorization": "Bearer swordfish"})
    ((said, facts),) = lines
    expected = {"caller": None, "client": "192.0.2.7", "method": "GET", "path": "/keyspaces/orders", "status": 401}
    assert said == REFUSED
    assert expected.items() <= facts.items()
    assert facts["reason"] == "unauthorized"
    assert facts["why"].startswith("a token is needed")
    assert "swordfish" not in json.dumps(lines)


def test_what_is_not_refused_has_the_line_that_it_had(
    application: Application, runner: asyncio.Runner, lines: list[tuple[str, dict[str, Any]]]
) -> None:
    ask(application, runner, "GET", "/version")
    ask(application, runner, "GET", "/nothing", headers=ADMIN)
    assert [(said, facts["status"], facts.get("reason")) for said, facts in lines] == [
        ("request", 200, None),
        ("request", 404, "not_found"),
    ]


def test_a_flood_from_one_address_has_few_lines(
    application: Application, runner: asyncio.Runner, lines: list[tuple[str, dict[str, Any]]]
) -> None:
    for _ in range(10 * LINES_MAX):
        ask(application, runner, "GET", "/keyspaces")
    assert len(lines) == LINES_MAX
    application.refusals.tell_rest()
    assert lines[-1] == (UNTOLD, {"requests": 9 * LINES_MAX, "addresses": 1})


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"\x16\x03\x01\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\n" + b"X-%d: %s\r\n" % (1, b"x" * 8_000) * 60, 431, "headers_too_large"),
    ],
)
def test_what_is_no_request_has_a_line_too(
    engine: Engine, lines: list[tuple[str, dict[str, Any]]], sent: bytes, status: int, reason: str
) -> None:
    with EdgeServer(service_builders(()), engine=engine) as server, closing(server.connect()) as opened:
        with suppress(ConnectionError):
            opened.sendall(sent)
        heard = b"."
        while heard:
            try:
                heard = opened.recv(65_536)
            except ConnectionError:
                heard = b""
    (facts,) = [facts for said, facts in lines if said == REFUSED]
    assert (facts["status"], facts["reason"], facts["client"]) == (status, reason, "127.0.0.1")


def test_requests_for_other_protocols_have_the_line_of_a_request(
    engine: Engine, lines: list[tuple[str, dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    with EdgeServer(service_builders(()), engine=engine) as server, closing(server.connect()) as opened:
        opened.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert b"200 OK" in opened.recv(64)
        opened.shutdown(socket.SHUT_WR)
    assert [said for said, facts in lines if facts.get("path") == "/health"] == ["request"]
    assert "Unsupported upgrade" not in caplog.text
    assert "WebSocket" not in caplog.text
