"""KS-55: what counts as "there is no registry", and what is a failure and must never be taken for that."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keyplan.client import HttpKeySpaces
from keyplan.engine import MemoryEngine
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineOpenError,
    EngineUnavailableError,
    ForbiddenError,
    InvalidInputError,
    KeyplanError,
    KeySpaceApiDisabledError,
    KeySpaceNotFoundError,
    SelfRegistrationDisabledError,
    UnauthorizedError,
)
from keyplan.keyspace import open_key_space
from keyplan.server import PolicyAccess, service_builders
from tests.attacks.world import SHOP, TOKENS, World
from tests.servers.gateways import GatewayServer
from tests.servers.keyplan_server import KeyplanServer

VERSION = json.dumps({"program": "keyplan", "version": "0.0.9", "services": []})
DISABLED = json.dumps({"error": {"code": "keyspace_api_disabled", "message": "m", "detail": {"problem": "p"}}})
NOT_FOUND = json.dumps({"error": {"code": "keyspace_not_found", "message": "m", "detail": {"name": "orders"}}})


class Scripted:
    """A host that answers each path with fixed bytes; None: it closes the connection instead."""

    def __init__(self, answers: dict[str, bytes | None]) -> None:
        self._answers = answers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rb") as heard:
                line = heard.readline().decode()
                if not line:
                    return
                length = 0
                while (header := heard.readline().strip().lower()) != b"":
                    length = int(header.partition(b":")[2]) if header.startswith(b"content-length") else length
                heard.read(length)
                answer = self._answers.get(line.split()[1])
                if answer is not None:
                    connection.sendall(answer)

    def close(self) -> None:
        # Why: a connection without a request ends the thread.
        socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2]))).close()
        self._thread.join()
        self._listening.close()


def answer(status: int, body: str, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()


@contextmanager
def registry_at(answers: dict[str, bytes | None]) -> Iterator[HttpKeySpaces]:
    host = Scripted(answers)
    try:
        with HttpKeySpaces(host.url, timeout_seconds=5) as registry:
            yield registry
    finally:
        host.close()


def raised(answers: dict[str, bytes | None]) -> KeyplanError:
    with registry_at(answers) as registry, pytest.raises(KeyplanError) as caught:
        registry.get("orders")
    return caught.value


PLACE = "/keyspaces/orders"
OLD_KEYPLAN = answer(200, VERSION)


@pytest.mark.parametrize(
    "answers",
    [
        {PLACE: answer(501, DISABLED)},
        {PLACE: answer(404, DISABLED)},
    ],
    ids=["501", "404"],
)
def test_positive_evidence(answers: dict[str, bytes | None]) -> None:
    assert isinstance(raised(answers), KeySpaceApiDisabledError)


@pytest.mark.parametrize(
    "answers",
    [
        {PLACE: answer(404, "<h1>Not Found</h1>", "text/html")},
        # A proxy before a keyplan server: the 404 is the proxy's, /version the server's.
        {PLACE: answer(404, "<h1>Not Found</h1>", "text/html"), "/version": OLD_KEYPLAN},
        {PLACE: answer(404, '{"detail": "Not Found"}'), "/version": OLD_KEYPLAN},
        {PLACE: answer(200, "[" * 200_000)},
        {PLACE: answer(200, "9" * 5_000)},
        {PLACE: b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\nConnection: close\r\n\r\nnonsense"},
        {PLACE: answer(404, "Not Found"), "/version": answer(200, "<h1>Welcome to the hotel</h1>", "text/html")},
        {PLACE: answer(404, "Not Found"), "/version": answer(200, '{"etcdserver": "3.4.23"}')},
        {PLACE: answer(404, "Not Found"), "/version": answer(200, "[]")},
        {PLACE: answer(500, DISABLED)},
        {PLACE: answer(503, DISABLED)},
        {PLACE: answer(200, DISABLED, "text/html"), "/version": OLD_KEYPLAN},
        {PLACE: answer(501, "<h1>Not Implemented</h1>", "text/html"), "/version": OLD_KEYPLAN},
        {PLACE: answer(501, '{"error": "keyspace_api_disabled"}'), "/version": OLD_KEYPLAN},
        {PLACE: answer(502, "Bad Gateway"), "/version": OLD_KEYPLAN},
        {PLACE: answer(301, ""), "/version": OLD_KEYPLAN},
        {PLACE: answer(200, "<h1>Log in</h1>", "text/html"), "/version": OLD_KEYPLAN},
        {PLACE: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "/version": OLD_KEYPLAN},
        {PLACE: b"garbage\r\n\r\n", "/version": OLD_KEYPLAN},
        {PLACE: None, "/version": OLD_KEYPLAN},
        {PLACE: answer(503, NOT_FOUND)},
    ],
)
def test_whatever_else_goes_wrong_is_a_failure(answers: dict[str, bytes | None]) -> None:
    error = raised(answers)
    assert not isinstance(error, KeySpaceApiDisabledError | KeySpaceNotFoundError)
    assert isinstance(error, EngineUnavailableError) or type(error).__name__ == "InvalidInputError"


def test_a_refused_connection_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with HttpKeySpaces(f"http://127.0.0.1:{port}") as registry, pytest.raises(EngineUnavailableError):
        registry.get("orders")


def test_a_host_that_does_not_answer_is_a_failure() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        HttpKeySpaces(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.2) as registry,
        pytest.raises(EngineUnavailableError),
    ):
        registry.get("orders")


OVERLOADED = json.dumps({"error": {"code": "overloaded", "message": "m", "detail": {}}})


@pytest.mark.parametrize(
    "lost",
    [
        None,
        answer(502, "Bad Gateway"),
        answer(500, "{}"),
        # What proxies say when the server behind them broke off: it may have been done.
        answer(503, "upstream connect error or disconnect/reset before headers", "text/plain"),
        answer(520, "<h1>Unknown error</h1>", "text/html"),
        # Something says that it was done, and not what.
        answer(200, "<h1>Welcome</h1>", "text/html"),
        answer(200, "["),
        answer(201, '{"name": "orders"}'),
        answer(201, "[]"),
    ],
    ids=["cut", "502", "500", "503", "520", "page", "half", "other", "list"],
)
def test_a_write_whose_answer_was_lost_may_have_been_done(lost: bytes | None) -> None:
    with registry_at({"/keyspaces": lost}) as registry, pytest.raises(CommitOutcomeUnknownError):
        registry.create("orders", "shop")


def test_a_write_that_the_server_had_no_time_for_was_not_done() -> None:
    with registry_at({"/keyspaces": answer(503, OVERLOADED)}) as registry, pytest.raises(EngineUnavailableError):
        registry.create("orders", "shop")


@pytest.mark.parametrize(
    "use",
    [
        lambda registry: registry.create("orders", "\udcff"),
        lambda registry: registry.create("orders", "shop", description=float("nan")),
        lambda registry: registry.configure({"reservations": object()}),
        lambda registry: registry.list(page_token="\udcff"),
        lambda registry: registry.list(page_token="1" * 100_000),
    ],
    ids=["surrogate", "nan", "object", "query", "length"],
)
def test_what_no_request_can_say_is_refused_before_it_is_sent(use: Callable[[HttpKeySpaces], object]) -> None:
    with registry_at({}) as registry, pytest.raises(InvalidInputError, match="cannot be sent"):
        use(registry)


@pytest.mark.parametrize("name", ["\udcff", "a" * 100_000])
def test_a_name_that_no_url_can_have_is_not_found(name: str) -> None:
    with registry_at({}) as registry, pytest.raises(KeySpaceNotFoundError):
        registry.get(name)


ENTRY = {"number": 1, "digest": "d", "at": "x", "actor": "a", "act": "b", "name": "n", "detail": {}, "previous": "p"}


@pytest.mark.parametrize(
    "entries",
    [[{}], [ENTRY | {"number": "one"}], [ENTRY | {"number": None}], {"a": 1}, [ENTRY, ENTRY]],
    ids=["empty", "word", "null", "object", "twice"],
)
def test_a_log_of_another_form_is_no_log(entries: object) -> None:
    page = answer(200, json.dumps({"entries": entries}))
    with registry_at({"/audit?after=0&limit=2": page}) as registry, pytest.raises(InvalidInputError):
        list(registry.audit(limit=2))


def test_a_verdict_of_another_form_is_none() -> None:
    with (
        registry_at({"/audit:verify": answer(200, '{"is_whole": true}')}) as registry,
        pytest.raises(InvalidInputError),
    ):
        registry.verify_audit()
    with (
        registry_at(
            {
                "/audit:verify": answer(
                    200, '{"is_whole": "no", "entries": 1, "broken_at": null, "problem": "", "head": ""}'
                )
            }
        ) as registry,
        pytest.raises(InvalidInputError),
    ):
        registry.verify_audit()


def test_a_write_that_could_not_be_sent_was_not_done() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with HttpKeySpaces(f"http://127.0.0.1:{port}") as registry, pytest.raises(EngineUnavailableError):
        registry.create("orders", "shop")


def test_a_client_that_was_closed_says_so() -> None:
    registry = HttpKeySpaces("http://127.0.0.1:1")
    registry.close()
    registry.close()
    with pytest.raises(EngineUnavailableError, match="the client was closed"):
        registry.get("orders")
    with pytest.raises(EngineUnavailableError, match="the client was closed"):
        registry.create("orders", "shop")


def test_a_redirect_is_not_followed_so_that_a_token_goes_nowhere_else() -> None:
    there = b"HTTP/1.1 307 X\r\nLocation: /version\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert isinstance(raised({PLACE: there, "/version": OLD_KEYPLAN}), EngineUnavailableError)


def test_an_answer_of_another_form_is_no_key_space() -> None:
    assert type(raised({PLACE: answer(200, '{"name": "orders"}')})).__name__ == "InvalidInputError"


@pytest.mark.parametrize("url", ["127.0.0.1:8210", "ftp://host", "", "http://[::1"])
def test_what_is_no_url_of_a_server_cannot_be_opened(url: str) -> None:
    with pytest.raises(EngineOpenError):
        HttpKeySpaces(url)


# ---- with a real server ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_client_meets_the_flags_and_its_token_of_a_real_server(tmp_path: Path) -> None:
    environment = {"KEYPLAN_ADMIN_TOKEN": "an-admin-token-of-a-test"}
    path = tmp_path / "socket"
    listen = ("--listen", "127.0.0.1:0", "--listen", f"unix:{path}")
    with (
        KeyplanServer(f"lmdb:{tmp_path}/store.kv", *listen, environment=environment) as server,
        HttpKeySpaces(server.url, token="an-admin-token-of-a-test") as admin,
        HttpKeySpaces(f"unix:{path}") as client,
        HttpKeySpaces(server.url, token="not-a-token-of-this-one") as stranger,
    ):
        with pytest.raises(KeySpaceApiDisabledError):
            client.get("orders")
        admin.configure({"keyspace-api-enabled": True, "self-registration-enabled": False})
        with pytest.raises(KeySpaceNotFoundError):
            client.get("orders")
        with pytest.raises(SelfRegistrationDisabledError):
            client.ensure("orders", "shop")
        with pytest.raises(ForbiddenError):
            client.configuration()
        with pytest.raises(UnauthorizedError, match="does not know the token"):
            stranger.get("orders")
        admin.create("orders", "shop")
        assert client.get("orders").application == "shop"


def opening(**options: Any) -> Any:
    return open_key_space(MemoryEngine(), "orders", "shop", session_seconds=None, **options)


def test_opening_falls_back_on_evidence_and_raises_on_failure() -> None:
    with registry_at({PLACE: answer(501, DISABLED)}) as registry:
        assert opening(registry=registry, default_prefix="2f").mode.value == "fallback"
    with registry_at({PLACE: answer(502, "Bad Gateway")}) as registry, pytest.raises(EngineUnavailableError):
        opening(registry=registry, default_prefix="2f")


def test_an_application_opens_its_key_space_by_what_an_access_file_grants_it(tmp_path: Path) -> None:
    with MemoryEngine() as engine:
        access = PolicyAccess.of_file(World(engine, tmp_path / "access.toml").file)
        with GatewayServer(engine, access=access, builders=service_builders([])) as server:
            with (
                HttpKeySpaces(server.url, token=TOKENS[SHOP.application]) as registry,
                open_key_space(engine, SHOP.keyspace, SHOP.application, registry=registry) as store,
            ):
                assert store.mode.value == "registry"
            for token in (TOKENS["bank"], None):
                with HttpKeySpaces(server.url, token=token) as registry, pytest.raises(KeyplanError) as caught:
                    open_key_space(engine, SHOP.keyspace, SHOP.application, registry=registry)
                assert caught.value.code == ("access-denied" if token else "unauthorized")
