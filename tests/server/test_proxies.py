"""A server behind a proxy: who is not known by being on this machine, and whose word counts for where a request comes from."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyplan.errors import InvalidInputError
from keyplan.server import TrustedProxies
from keyplan.server.loopback import can_tell_users, uid_at
from keyplan.server.proxies import address_of
from tests.servers.keyplan_server import KeyplanServer

TOKEN = "an-admin-token-of-a-test"
GATEWAYS = ("--app", "etcd-v2", "--app", "etcd-v3")
_NOBODY = 65_534
_ASK = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket() as opened:
    opened.connect(("127.0.0.1", int(sys.argv[1])))
    opened.sendall(sys.stdin.buffer.read())
    sys.stdout.buffer.write(opened.makefile("rb").read())
"""

needs_users = pytest.mark.skipif(
    os.geteuid() != 0 or not can_tell_users(),
    reason="only root becomes another user, and only Linux tells whose a connection is",
)


def request(port: int, method: str, path: str, body: bytes = b"", *, version: str = "1.1", **headers: str) -> bytes:
    """A request as a proxy sends it on: to the address that it was told, and nothing said about itself."""
    lines = [f"{method} {path} HTTP/{version}", f"Host: 127.0.0.1:{port}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def ask(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as opened:
        opened.sendall(sent)
        return opened.makefile("rb").read()


def ask_as_nobody(port: int, sent: bytes) -> bytes:
    return subprocess.run(
        [sys.executable, "-c", _ASK, str(port), str(_NOBODY)], input=sent, stdout=subprocess.PIPE, check=True
    ).stdout


def port_of(server: KeyplanServer) -> int:
    return int(server.url.rpartition(":")[2])


def last_line(server: KeyplanServer, message: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in server.log.splitlines()]
    return next(line for line in reversed(lines) if line["message"] == message)


@pytest.fixture(scope="module")
def server() -> Iterator[KeyplanServer]:
    with KeyplanServer("memory:", *GATEWAYS, environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as started:
        yield started


WRITES = [
    ("PUT", "/v2/keys/a?value=1", b""),
    ("POST", "/v3/kv/put", b'{"key": "YQ==", "value": "Yg=="}'),
    ("GET", "/v2/keys/", b""),
    ("POST", "/v3/kv/range", b'{"key": "AA==", "range_end": "AA=="}'),
    ("GET", "/keyspaces", b""),
]


# ---- nginx, as it is when nobody has told it anything else -------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_what_nginx_passes_on_by_default_is_nobodys(server: KeyplanServer, method: str, path: str, body: bytes) -> None:
    port = port_of(server)
    answer = ask(port, request(port, method, path, body, version="1.0"))
    assert status_of(answer) in {400, 401}, answer
    assert b"user name is empty" in answer or b"nsufficient credentials" in answer or b"unauthorized" in answer


@needs_users
@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_what_a_process_of_another_user_passes_on_is_nobodys(
    server: KeyplanServer, method: str, path: str, body: bytes
) -> None:
    port = port_of(server)
    answer = ask_as_nobody(port, request(port, method, path, body))
    assert status_of(answer) in {400, 401}, answer


@needs_users
def test_a_token_counts_from_every_user_and_through_every_proxy(server: KeyplanServer) -> None:
    port = port_of(server)
    asked = request(port, "PUT", "/v2/keys/b?value=1", Authorization=f"Bearer {TOKEN}")
    assert status_of(ask_as_nobody(port, asked)) == 201
    asked = request(
        port, "GET", "/v2/keys/b", version="1.0", Authorization=f"Bearer {TOKEN}", X_Forwarded_For="192.0.2.1"
    )
    assert status_of(ask(port, asked)) == 200


def test_who_runs_the_server_asks_it_without_a_token(server: KeyplanServer) -> None:
    port = port_of(server)
    assert status_of(ask(port, request(port, "PUT", "/v2/keys/c?value=1"))) == 201
    said = last_line(server, "who may ask")["without_token"]
    assert said == "who runs this server, on this machine, as client"


@needs_users
def test_a_server_that_is_told_the_role_of_this_machine_asks_no_user_of_it() -> None:
    with KeyplanServer("memory:", *GATEWAYS, "--local-role", "client") as server:
        port = port_of(server)
        assert status_of(ask_as_nobody(port, request(port, "PUT", "/v2/keys/a?value=1"))) == 201
        assert last_line(server, "who may ask")["without_token"] == "whoever is on this machine, as client"
        # What nginx passes on is not this machine's for that.
        assert status_of(ask(port, request(port, "GET", "/v2/keys/a", version="1.0"))) == 401


@pytest.mark.skipif(not can_tell_users(), reason="only Linux tells whose a connection is")
def test_a_connection_that_its_process_has_closed_is_nobodys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asking = socket.create_connection(listening.getsockname())
        answering, _ = listening.accept()
        with answering:
            other, own = answering.getpeername(), answering.getsockname()
            assert uid_at(other, own) == os.geteuid()
            asking.close()
            assert uid_at(other, own) is None
            # One that listens on the port is another one.
            assert uid_at(own, other) == os.geteuid()
    assert uid_at(own, other) is None


# ---- proxies that are trusted ------------------------------------------------------------------------------------------


def test_a_forwarded_address_is_not_believed_unless_the_proxy_is_trusted(server: KeyplanServer) -> None:
    port = port_of(server)
    asked = request(port, "GET", "/keyspaces", X_Forwarded_For="192.0.2.9", Authorization=f"Bearer {TOKEN}")
    assert status_of(ask(port, asked)) == 200
    assert last_line(server, "request")["client"] == "127.0.0.1"


def test_a_trusted_proxy_says_where_requests_come_from_and_none_of_them_is_local(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listen = ("--listen", "127.0.0.1:0", "--listen", f"unix:{path}")
    trusted = ("--trusted-proxy", "127.0.0.0/8", "--trusted-proxy", "unix")
    environment = {"KEYPLAN_ADMIN_TOKEN": TOKEN}
    with KeyplanServer("memory:", *GATEWAYS, *listen, *trusted, environment=environment) as server:
        port = port_of(server)
        named = request(
            port,
            "GET",
            "/keyspaces",
            X_Forwarded_For="127.0.0.1, 192.0.2.9, 127.0.0.3",
            Authorization=f"Bearer {TOKEN}",
        )
        assert status_of(ask(port, named)) == 200
        assert last_line(server, "request")["client"] == "192.0.2.9"
        assert status_of(ask(port, request(port, "PUT", "/v2/keys/a?value=1"))) == 401
        with socket.socket(socket.AF_UNIX) as opened:
            opened.connect(str(path))
            opened.sendall(request(port, "PUT", "/v2/keys/a?value=1", X_Forwarded_For="127.0.0.1"))
            assert status_of(opened.makefile("rb").read()) == 401
        assert last_line(server, "who may ask")["trusted_proxies"] == ["127.0.0.0/8", "unix"]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ((), "10.0.0.1"),
        (("192.0.2.9",), "192.0.2.9"),
        (("192.0.2.9:4711",), "192.0.2.9"),
        (("[2001:db8::1]:4711",), "2001:db8::1"),
        (("::ffff:192.0.2.9",), "192.0.2.9"),
        (("127.0.0.1, 192.0.2.9", "10.0.0.2"), "192.0.2.9"),
        (("192.0.2.8, made up, 192.0.2.9",), "192.0.2.9"),
        (("192.0.2.8, made up",), "10.0.0.1"),
        (("made up, 10.0.0.2",), "10.0.0.2"),
        (("192.0.2.8, " + "10.0.0.2, " * 100 + "10.0.0.3",), "10.0.0.2"),
    ],
)
def test_the_last_address_that_is_no_trusted_proxys_counts(forwarded: tuple[str, ...], client: str) -> None:
    proxies = TrustedProxies.of_texts(["10.0.0.0/24"])
    headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
    scope: dict[str, Any] = {"type": "http", "headers": headers, "client": ("10.0.0.1", 5), "server": ("10.0.0.9", 80)}
    proxies.locate(scope)
    assert address_of(scope) == client


@pytest.mark.parametrize("text", ["localhost", "10.0.0.1/8", "", "unix:/x"])
def test_a_proxy_is_an_address_a_network_or_unix(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no address"):
        TrustedProxies.of_texts([text])
