"""What HTTP has once in a request is there once: a proxy that looks at the last of two is not outwitted."""

import json
import socket
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from keyplan.engine import MemoryEngine
from keyplan.server import Access, Role, Token
from tests.servers.gateways import GatewayServer

TOKEN: Final = "an-admin-token-of-a-test"
RIGHT: Final = f"Authorization: Bearer {TOKEN}"
WRONG: Final = "Authorization: Bearer wrong"
HOST: Final = "Host: 127.0.0.1"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    access = Access([Token.of_text(Role.ADMIN, "ada", TOKEN)], local_role=None)
    with MemoryEngine() as engine, GatewayServer(engine, access=access) as server:
        found = urlsplit(server.url)
        assert found.hostname
        assert found.port
        yield found.hostname, found.port


def answered(address: tuple[str, int], *headers: str, version: str = "1.1", path: str = "/v2/keys/") -> tuple[int, Any]:
    lines = [f"GET {path} HTTP/{version}", *headers, "Connection: close", "", ""]
    with socket.create_connection(address, timeout=30) as connection, connection.makefile("rb") as answer:
        connection.sendall("\r\n".join(lines).encode())
        head, _, body = answer.read().partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ([HOST, RIGHT, WRONG], "Authorization"),
        ([HOST, WRONG, RIGHT], "Authorization"),
        ([HOST, RIGHT, RIGHT], "Authorization"),
        ([HOST, RIGHT, "Host: other.example"], "Host"),
        ([RIGHT], "Host"),
    ],
)
@pytest.mark.parametrize("path", ["/v2/keys/", "/health", "/keyspaces"])
def test_a_head_with_two_of_them_or_no_host_is_refused(
    address: tuple[str, int], headers: list[str], named: str, path: str
) -> None:
    status, body = answered(address, *headers, path=path)
    assert (status, body["error"]["code"]) == (400, "bad_request")
    assert named in body["error"]["message"]


def test_a_head_with_one_of_them_is_answered_and_http_1_0_needs_no_host(address: tuple[str, int]) -> None:
    assert answered(address, HOST, RIGHT)[0] == 200
    assert answered(address, RIGHT, version="1.0")[0] == 200
