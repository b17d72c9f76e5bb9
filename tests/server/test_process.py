"""`keyplan serve` as a real process: addresses, bounds, callers, failures, figures, logs, and how it stops."""

import json
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keyplan.engine import open_engine
from tests.server.probe import install_probe
from tests.servers.keyplan_server import KeyplanServer

pytestmark = pytest.mark.slow

ADMIN = {"Authorization": "Bearer an-admin-token-of-a-test"}
TOKENS = {"KEYPLAN_ADMIN_TOKEN": "an-admin-token-of-a-test", "KEYPLAN_CLIENT_TOKEN": "a-client-token-of-a-test"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[KeyplanServer]:
    """A server with the probe, on TCP and on a unix socket."""
    environment = {**install_probe(folder), **TOKENS}
    arguments = ("--app", "probe", "--setting", f"probe.diary={folder / 'diary'}")
    listen = ("--listen", "127.0.0.1:0", "--listen", f"unix:{folder / 'socket'}")
    with KeyplanServer(f"lmdb:{folder / 'store.kv'}", *arguments, *listen, environment=environment) as started:
        yield started


@pytest.fixture
def client(server: KeyplanServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as opened:
        yield opened


def error_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["code", "message", "detail"]
    return answer.status_code, body["error"]["code"]


def log_lines(server: KeyplanServer) -> list[dict[str, object]]:
    return [json.loads(line) for line in server.log.splitlines()]


# ---- where it listens ------------------------------------------------------------------------------------------------


def test_the_addresses_are_printed_with_the_port_that_was_free(server: KeyplanServer, folder: Path) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    assert not server.url.endswith(":0")
    assert server.addresses[1] == f"unix:{folder / 'socket'}"


def test_a_unix_socket_is_the_owners_alone_and_answers_curl(server: KeyplanServer, folder: Path) -> None:
    path = folder / "socket"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    command = ["curl", "-sS", "--unix-socket", str(path), "http://any.example/probe/who"]
    assert json.loads(subprocess.check_output(command)) == {"role": "client", "name": "local"}


def refused(*arguments: str) -> str:
    with pytest.raises(AssertionError) as caught:
        KeyplanServer("memory:", *arguments).start()
    return str(caught.value)


def test_an_address_that_others_can_reach_is_refused_without_tokens() -> None:
    log = refused("--listen", "0.0.0.0:0")
    assert "can be reached from other machines" in log
    assert "--tokens" in log


def test_with_a_token_it_listens_anywhere_and_then_asks_everybody_for_one() -> None:
    with KeyplanServer("memory:", "--listen", "0.0.0.0:0", environment=TOKENS) as server:
        port = server.url.rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            far = {"Host": "store.example"}
            assert error_of(client.get("/metrics", headers=far)) == (401, "unauthorized")
            assert client.get("/metrics", headers={**far, **ADMIN}).status_code == 200
            assert client.get("/health", headers=far).json() == {"status": "ok"}


def test_the_socket_of_a_server_that_was_killed_is_taken_over(folder: Path) -> None:
    path = folder / "killed"
    with KeyplanServer("memory:", "--listen", f"unix:{path}") as first:
        first.process.kill()
        first.process.wait()
        assert path.exists()
    with KeyplanServer("memory:", "--listen", f"unix:{path}") as second:
        assert second.addresses == [f"unix:{path}"]
    assert not path.exists()


# ---- who asks --------------------------------------------------------------------------------------------------------


def test_the_caller_is_known_to_services(client: httpx.Client) -> None:
    assert client.get("/probe/who").json() == {"role": "client", "name": "local"}
    assert client.get("/probe/who", headers=ADMIN).json() == {"role": "admin", "name": "admin"}
    assert error_of(client.get("/probe/admin")) == (403, "forbidden")
    assert client.get("/probe/admin", headers=ADMIN).status_code == 200


def test_a_wrong_token_is_refused_although_the_request_is_local(client: httpx.Client) -> None:
    answer = client.get("/probe/who", headers={"Authorization": "Bearer an-admin-token-of-a-tess"})
    assert error_of(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith('Bearer realm="keyplan"')


# ---- failures --------------------------------------------------------------------------------------------------------


def test_what_is_not_there_or_not_allowed_is_said_as_json(client: httpx.Client) -> None:
    assert error_of(client.get("/nothing")) == (404, "not_found")
    assert error_of(client.get("/health/")) == (404, "not_found")
    answer = client.post("/probe/who", json={})
    assert error_of(answer) == (405, "method_not_allowed")
    assert "GET" in answer.headers["allow"]


def test_a_fault_is_answered_without_its_text_and_logged_with_it(server: KeyplanServer, client: httpx.Client) -> None:
    answer = client.get("/probe/fail", headers={"X-Request-Id": "fault-7"})
    assert error_of(answer) == (500, "internal_error")
    assert answer.json()["error"]["detail"] == {"request_id": "fault-7"}
    assert answer.headers["x-request-id"] == "fault-7"
    (line,) = [line for line in log_lines(server) if line["message"] == "a request failed"]
    assert line["request_id"] == "fault-7"
    assert "RuntimeError" in str(line["trace"])


def test_a_body_is_json_of_the_right_kind_or_refused(client: httpx.Client) -> None:
    assert client.put("/probe/notes/a", json={"text": "x"}).status_code == 200
    for body in (b"", b"{", b"[]", b'{"text": 1}', b"\xff", b"[" * 100_000):
        answer = client.put("/probe/notes/a", content=body, headers={"content-type": "application/json"})
        assert error_of(answer) == (400, "invalid_argument")
    answer = client.put("/probe/notes/a", content=b'{"text": "x"}', headers={"content-type": "text/plain"})
    assert error_of(answer) == (415, "unsupported_media_type")


def test_an_error_of_the_engine_has_its_own_status_and_code(client: httpx.Client) -> None:
    answer = client.put("/probe/notes/" + "k" * 600, json={"text": "x"})
    assert error_of(answer) == (413, "engine_limit")
    assert answer.json()["error"]["detail"]["allowed"] == 511


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_a_body_that_says_that_it_is_too_large_is_refused(client: httpx.Client) -> None:
    answer = client.put("/probe/notes/a", content=b'"' + b"x" * (1 << 20), headers={"content-type": "application/json"})
    assert error_of(answer) == (413, "body_too_large")
    assert answer.json()["error"]["detail"] == {"bytes_max": 1048576}


def test_a_body_that_does_not_say_how_large_it_is_is_refused_when_it_is_too_large(client: httpx.Client) -> None:
    parts = (b"x" * 65_536 for _ in range(17))
    answer = client.put("/probe/notes/a", content=parts, headers={"content-type": "application/json"})
    assert error_of(answer) == (413, "body_too_large")


def test_a_route_may_take_more(client: httpx.Client) -> None:
    assert client.post("/probe/large", content=b"x" * (2 << 20)).json() == {"bytes": 2 << 20}
    assert error_of(client.post("/probe/large", content=b"x" * (3 << 20) + b"x")) == (413, "body_too_large")


def test_large_headers_are_refused(client: httpx.Client) -> None:
    assert error_of(client.get("/probe/who", headers={"X-Large": "x" * 40_000})) == (431, "headers_too_large")
    assert error_of(client.get("/probe/who?" + "x" * 40_000)) == (431, "headers_too_large")


def talk(server: KeyplanServer, *parts: bytes) -> bytes:
    """Send bytes as they are, and return what comes until the connection is closed."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        heard = bytearray()
        while part := connection.recv(65_536):
            heard += part
        return bytes(heard)


def test_a_head_that_never_ends_is_refused_before_it_is_whole(server: KeyplanServer) -> None:
    endless = (b"X-%d: %s\r\n" % (number, b"x" * 1_000) for number in range(400))
    try:
        heard = talk(server, b"GET /health HTTP/1.1\r\nHost: x\r\n", *endless)
    except ConnectionError:  # Why: the refusal may be lost when the rest of the head is still on its way.
        return
    assert heard.startswith(b"HTTP/1.1 431 ")


def test_what_is_no_http_is_refused_as_json(server: KeyplanServer) -> None:
    heard = talk(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n")
    head, _, body = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_request"


# ---- figures, descriptions, logs ------------------------------------------------------------------------------------


def test_the_version_names_the_services(client: httpx.Client) -> None:
    answer = client.get("/version").json()
    assert (answer["program"], answer["services"]) == ("keyplan", ["keyspaces", "probe"])


def test_the_description_holds_every_services_paths(client: httpx.Client) -> None:
    description = client.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0"
    assert {"/health", "/probe/who"} <= description["paths"].keys()


def test_the_figures_count_by_route_and_never_by_path(client: httpx.Client) -> None:
    for number in range(3):
        client.put(f"/probe/notes/counted-{number}", json={"text": "x"})
        client.get(f"/unknown/{number}")
    client.request("BREW", "/probe/who")
    text = client.get("/metrics").text
    name = 'keyplan_requests_total{method="PUT",route="/probe/notes/{name}",status="200"}'
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    assert float(line.rpartition(" ")[2]) >= 3
    assert 'route="none",status="404"' in text
    assert "counted-" not in text
    assert "unknown" not in text
    assert "BREW" not in text
    assert "keyplan_worker_calls_pending 0.0" in text
    assert 'keyplan_build_info{version="' in text


def test_the_log_is_json_and_holds_no_token_no_query_and_no_value(server: KeyplanServer, client: httpx.Client) -> None:
    client.put("/probe/notes/logged?token=swordfish-in-query", json={"text": "swordfish-in-body"}, headers=ADMIN)
    client.get("/probe/who", headers={"Authorization": "Bearer swordfish-in-header"})
    lines = [line for line in log_lines(server) if line.get("path") == "/probe/notes/logged"]
    assert len(lines) == 1
    expected = {"level": "info", "method": "PUT", "route": "/probe/notes/{name}", "status": 200, "caller": "admin"}
    assert expected.items() <= lines[0].items()
    assert "swordfish-in" not in server.log
    assert TOKENS["KEYPLAN_ADMIN_TOKEN"] not in server.log


# ---- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_a_request_end_tells_streams_and_closes_the_store(tmp_path: Path, with_signal: int) -> None:
    store, diary = f"lmdb:{tmp_path / 'store.kv'}", tmp_path / "diary"
    server = KeyplanServer(
        store, "--app", "probe", "--setting", f"probe.diary={diary}", environment=install_probe(tmp_path)
    ).start()
    host, port = server.url.removeprefix("http://").split(":")
    body = b'{"text": "half"}'
    head = b"PUT /probe/notes/half HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
        client.stream("GET", "/probe/stream") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "first"
        connection.sendall(head % len(body) + body[:5])
        client.get("/health")  # Why: answered after the half request was read.
        server.process.send_signal(with_signal)
        assert next(lines) == "last"
        connection.sendall(body[5:])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert server.process.wait(60) == 0
    server.stop()
    assert diary.read_text().splitlines() == ["began", "stream ended", "ended"]
    assert log_lines(server)[-1]["signal"] == signal.Signals(with_signal).name
    with open_engine(store) as engine, engine.snapshot() as snapshot:
        assert snapshot.value(b"note-half") == b"half"
        assert snapshot.get(b"probe-ended") is not None


def test_a_request_that_does_not_end_is_cut_when_the_grace_is_over(tmp_path: Path) -> None:
    server = KeyplanServer("memory:", "--grace", "1").start()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"POST /keyspaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Content-Length: 100\r\n\r\n{")
        httpx.get(server.url + "/health", trust_env=False)
        assert server.stop() == 0


def test_the_command_without_its_extra_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from keyplan.cli.main import main\nsys.exit(main(['serve', '--store', 'memory:']))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 69
    assert "pip install 'keyplan[server]'" in ran.stderr
