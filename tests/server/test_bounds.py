"""Who asks is known before anything is done for them; what they send is bounded before it is parsed; long work is for threads.

Counted, not timed: what is read, by which thread, and what is parsed.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from keyplan.engine import Commit, Entry, KeyRange, MemoryEngine, Put, Snapshot
from keyplan.engine.wrap import WrappedEngine, WrappedSnapshot
from keyplan.server import Access, Role, Token
from keyplan.server.etcd_v3 import messages
from keyplan.server.etcd_v3.admission import check_transaction
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.messages import MESSAGES_MAX, RECORDS, message_in, messages_in
from keyplan.server.reading import ReadAllowance
from tests.server.etcd_v3.json_client import JsonClient, b64
from tests.servers.gateways import GatewayServer

TOKEN = "an-admin-token-of-a-test"
GUARDED = Access([Token.of_text(Role.ADMIN, "ada", TOKEN)], local_role=None)
_IN_THE_LOOP = "gateway"
_READ_AT_ONCE_MAX = 200


class CountingEngine(WrappedEngine):
    """Counts the entries that are read, by thread, and how many of them with a value."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.read: Counter[str] = Counter()
        self.values = 0

    def snapshot(self) -> Snapshot:
        return _CountingSnapshot(self.inner.snapshot(), self)


class _CountingSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, engine: CountingEngine) -> None:
        super().__init__(inner)
        self._engine = engine

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        for entry in self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only):
            self._engine.read[threading.current_thread().name] += 1
            self._engine.values += not keys_only
            yield entry


@pytest.fixture
def engine() -> Iterator[CountingEngine]:
    with CountingEngine() as opened:
        puts = tuple(Put(b"/wide/%04d" % number, b"value") for number in range(2_000))
        opened.commit(Commit((), puts))
        yield opened


@pytest.fixture
def server(engine: CountingEngine) -> Iterator[GatewayServer]:
    with GatewayServer(engine) as served:
        yield served


WIDE = {"key": b64("/wide/"), "range_end": b64("/wide0")}


# ---- who asks, before what they ask ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v3/kv/range", "/v3/kv/put", "/v3/kv/txn", "/v3/lease/keepalive", "/v3/watch", "/v3/cluster/member/list"]
)
def test_who_is_not_known_is_refused_before_the_body_is_there(engine: CountingEngine, path: str) -> None:
    with (
        GatewayServer(engine, access=GUARDED) as server,
        socket.create_connection(("127.0.0.1", server.port)) as opened,
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        opened.sendall(head.encode())  # And nothing of the body.
        opened.settimeout(30)
        assert opened.recv(64).startswith((b"HTTP/1.1 400", b"HTTP/1.1 401"))


def test_what_is_sent_for_a_token_is_short(engine: CountingEngine) -> None:
    with GatewayServer(engine, access=GUARDED) as server:
        answer = httpx.post(f"{server.url}/v3/auth/authenticate", content=b"{}" * 5_000, trust_env=False)
        assert answer.status_code == 413


# ---- bounds, before parsing --------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each value began that was parsed."""
    positions: list[int] = []
    decoder = json.JSONDecoder()

    class Counting:
        def raw_decode(self, text: str, position: int) -> tuple[object, int]:
            positions.append(position)
            return decoder.raw_decode(text, position)

    monkeypatch.setattr(messages, "_DECODER", Counting())
    return positions


def test_of_a_call_that_takes_one_message_one_is_parsed(parsed: list[int]) -> None:
    assert message_in(b'{"key": "YQ=="}' + b" {}" * 100_000, RECORDS.RangeRequest).key == b"a"
    assert parsed == [0]


def test_of_a_stream_as_many_messages_are_parsed_as_it_may_have(parsed: list[int]) -> None:
    assert len(messages_in(b"{} \n" * MESSAGES_MAX, RECORDS.LeaseKeepAliveRequest)) == MESSAGES_MAX
    parsed.clear()
    with pytest.raises(CallFailure, match=f"at most {MESSAGES_MAX} messages"):
        messages_in(b"{}" * 500_000, RECORDS.LeaseKeepAliveRequest)
    assert len(parsed) == MESSAGES_MAX + 1


def transaction(*, levels: int, width: int = 1) -> dict[str, Any]:
    """So many transactions, one in the other, each with so many operations."""
    message: dict[str, Any] = {"success": [{"request_range": {"key": "YQ=="}}] * width}
    for _ in range(levels):
        message = {"success": [{"request_txn": message}, *([{"request_range": {"key": "YQ=="}}] * (width - 1))]}
    return message


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (transaction(levels=20), None),
        (transaction(levels=21), "nested too deeply"),
        (transaction(levels=0, width=128), None),
        (transaction(levels=0, width=129), "too many operations"),
        (transaction(levels=1, width=64), None),
        (transaction(levels=1, width=65), "too many operations"),
    ],
)
def test_a_transaction_has_a_bound_in_depth_and_width(asked: dict[str, Any], refusal: str | None) -> None:
    request = message_in(json.dumps(asked).encode(), RECORDS.TxnRequest)
    if refusal is None:
        check_transaction(request)
        return
    with pytest.raises(CallFailure, match=refusal):
        check_transaction(request)


# ---- long work, in threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["range_end", "rangeEnd", "range\\u005fend", "\\u0072ange_end"])
def test_a_range_is_read_in_a_thread_however_its_name_is_written(
    engine: CountingEngine, server: GatewayServer, name: str
) -> None:
    body = f'{{"key": "{b64("/wide/")}", "{name}": "{b64("/wide0")}"}}'
    answer = httpx.post(f"{server.url}/v3/kv/range", content=body, trust_env=False, timeout=60)
    assert len(answer.json()["kvs"]) == 2_000
    assert engine.read[_IN_THE_LOOP] == 0


@pytest.mark.parametrize(
    ("asked", "read", "values"),
    [
        ({"limit": 1}, 1, 1),
        ({"limit": 3, "sort_order": "DESCEND"}, 3, 3),
        ({"count_only": True}, 0, 0),
        ({"limit": 2, "keys_only": True}, 2, 0),
    ],
)
def test_no_more_is_read_than_is_shown(
    engine: CountingEngine, server: GatewayServer, asked: dict[str, Any], read: int, values: int
) -> None:
    with JsonClient(server.url) as client:
        client.call("/v3/kv/range", {"key": b64("/wide/0000")})
        engine.read.clear()
        engine.values = 0
        answer = client.call("/v3/kv/range", {**WIDE, **asked})
    assert answer["count"] == "2000"
    assert answer.get("more", False) is ("limit" in asked)
    assert (engine.read.total(), engine.values) == (read, values)


def test_the_last_of_a_range_come_first_where_that_is_asked_for(server: GatewayServer) -> None:
    with JsonClient(server.url) as client:
        answer = client.call("/v3/kv/range", {**WIDE, "limit": 2, "sort_order": "DESCEND", "sort_target": "KEY"})
    assert [entry["key"] for entry in answer["kvs"]] == [b64("/wide/1999"), b64("/wide/1998")]


@pytest.mark.parametrize("query", ["", "?recursive=true"])
def test_a_long_directory_is_listed_in_a_thread(engine: CountingEngine, server: GatewayServer, query: str) -> None:
    httpx.get(f"{server.url}/v2/keys/wide/0000", trust_env=False, timeout=60)  # Counting begins with the first request.
    engine.read.clear()
    answer = httpx.get(f"{server.url}/v2/keys/wide{query}", trust_env=False, timeout=60)
    assert len(answer.json()["node"]["nodes"]) == 2_000
    assert 0 < engine.read[_IN_THE_LOOP] <= _READ_AT_ONCE_MAX
    assert engine.read.total() >= 2_000


# ---- how much is read --------------------------------------------------------------------------------------------------

LARGE_RANGE: Final = {"key": b64("/large/"), "range_end": b64("/large0")}
READS: Final = [{"request_range": LARGE_RANGE}] * 20
COMPARES: Final = [{**LARGE_RANGE, "target": "VERSION", "version": 1}] * 20
MIB: Final = 1 << 20


def revision_of(engine: CountingEngine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.revision


@pytest.fixture
def large(engine: CountingEngine, monkeypatch: pytest.MonkeyPatch) -> CountingEngine:
    """A store with ten keys of 100 KiB below /large/, of which a request may read a MiB and a bit."""
    monkeypatch.setattr(ReadAllowance.__init__, "__kwdefaults__", {"bytes_max": MIB + 10_000})
    engine.commit(Commit((), tuple(Put(b"/large/%d" % number, b"x" * (100 << 10)) for number in range(10))))
    return engine


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("txn", {"success": READS}),
        ("txn", {"success": [{"request_txn": {"success": READS}}], "compare": COMPARES[:1]}),
        ("txn", {"compare": COMPARES}),
        ("txn", {"success": [{"request_range": {"key": b64("/large/1")}}] * 20}),
        ("range", {"key": b64("/"), "range_end": b64("0")}),
        ("range", {"key": b64("/"), "range_end": b64("0"), "sort_target": "VALUE"}),
        ("deleterange", {"key": b64("/"), "range_end": b64("0"), "prev_kv": True}),
    ],
)
def test_a_call_that_would_read_too_much_is_refused_and_nothing_is_done(
    large: CountingEngine, server: GatewayServer, call: str, message: dict[str, Any]
) -> None:
    large.commit(Commit((), (Put(b"/more", b"x" * 100_000),)))
    before = revision_of(large)
    answer = httpx.post(f"{server.url}/v3/kv/{call}", json=message, trust_env=False, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (429, 8)
    assert answer.json()["error"] == "keyplan: the call reads more than 1 MiB: ask for less at once, with a limit"
    assert revision_of(large) == before


def test_what_is_within_the_bound_is_answered_and_a_deletion_shows_no_values(
    large: CountingEngine, server: GatewayServer
) -> None:
    large.commit(Commit((), (Put(b"/more", b"x" * 100_000),)))
    with JsonClient(server.url) as client:
        assert len(client.call("/v3/kv/range", LARGE_RANGE)["kvs"]) == 10
        assert (
            client.call("/v3/kv/range", {"key": b64("/"), "range_end": b64("0"), "keys_only": True})["count"] == "2011"
        )
        assert client.call("/v3/kv/deleterange", {"key": b64("/"), "range_end": b64("0")})["deleted"] == "2011"


@pytest.mark.parametrize("query", ["", "?recursive=true"])
def test_a_listing_that_would_read_too_much_is_refused(
    large: CountingEngine, server: GatewayServer, query: str
) -> None:
    url = f"{server.url}/v2/keys/large{query}"
    assert len(httpx.get(url, trust_env=False, timeout=60).json()["node"]["nodes"]) == 10
    large.commit(Commit((), (Put(b"/large/more", b"x" * 100_000),)))
    answer = httpx.get(url, trust_env=False, timeout=60)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, 210)
    assert answer.json()["cause"] == "keyplan: the listing reads more than 1 MiB: list its directories one by one"
