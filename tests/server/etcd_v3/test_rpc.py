"""The gateway over gRPC: who may ask, what is refused, streams of watches, and what a client can do to it."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, KeyAbsent, MemoryEngine, Put, open_engine
from keyplan.errors import CommitConflictError, InvalidInputError
from keyplan.protobuf import ETCD
from keyplan.server import (
    Access,
    Application,
    EdgeBounds,
    PolicyAccess,
    Role,
    RpcTerms,
    Token,
    TrustedProxies,
    etcd_v3,
)
from keyplan.server.connections import Connections
from tests.server.etcd_v3.json_client import JsonClient, b64
from tests.server.etcd_v3.rpc_client import RpcClient, RpcWatch
from tests.servers.authority import Authority
from tests.servers.gateways import GatewayServer

SPEAKS: Final = {"etcd-v3.grpc": "127.0.0.1:0"}
TOKEN: Final = "a-token-of-very-many-characters-as-there-must-be"
ACCESS: Final = Access((Token.of_text(Role.CLIENT, "patroni", TOKEN),), local_role=None)
EVERYTHING: Final = {"key": b64("\x00"), "range_end": b64("\x00")}
Code: Final = grpc.StatusCode


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def server(engine: MemoryEngine) -> Iterator[GatewayServer]:
    with GatewayServer(engine, settings=SPEAKS) as served:
        yield served


@pytest.fixture
def client(server: GatewayServer) -> Iterator[RpcClient]:
    with RpcClient(server.endpoint) as opened:
        yield opened


def commit(engine: Engine, key: bytes, value: bytes) -> int:
    return engine.commit(Commit((), (Put(key, value),)))


# ---- the same store, the same callers ----------------------------------------------------------------------------------


def test_what_one_front_writes_the_other_reads(server: GatewayServer, client: RpcClient) -> None:
    client.put("/a", "1")
    with JsonClient(server.url) as json:
        assert json.call("/v3/kv/range", {"key": b64("/a")}) == client.call("/v3/kv/range", {"key": b64("/a")})
        (ours,) = client.call("/v3/cluster/member/list", {})["members"]
        (theirs,) = json.call("/v3/cluster/member/list", {})["members"]
    assert (ours["ID"], ours["clientURLs"]) == (theirs["ID"], [f"http://{server.endpoint}"])
    status = client.call("/v3/maintenance/status", {})
    assert (status["version"], status["leader"]) == ("3.4.23", ours["ID"])
    assert "alarms" not in client.call("/v3/maintenance/alarm", {})


def test_who_asks_is_asked_for_a_token(engine: MemoryEngine) -> None:
    key = {"key": b64("/a")}
    with GatewayServer(engine, access=ACCESS, settings=SPEAKS) as server:
        with RpcClient(server.endpoint) as nobody:
            assert nobody.post("/v3/kv/range", key) == (Code.INVALID_ARGUMENT, "etcdserver: user name is empty")
            given = nobody.call("/v3/auth/authenticate", {"name": "patroni", "password": TOKEN})["token"]
            wrong = nobody.post("/v3/auth/authenticate", {"name": "patroni", "password": "wrong"})
            assert wrong[0] is Code.INVALID_ARGUMENT
        with RpcClient(server.endpoint, token="no-token-of-anybody-here") as stranger:
            assert stranger.post("/v3/kv/range", key) == (Code.UNAUTHENTICATED, "etcdserver: invalid auth token")
            assert stranger.post("/v3/lease/keepalive", {"ID": "1"})[0] is Code.UNAUTHENTICATED
        with RpcWatch(server.endpoint, key, token="no-token-of-anybody-here") as watch:
            assert watch.next() == (Code.UNAUTHENTICATED, "etcdserver: invalid auth token")
        with RpcClient(server.endpoint, token=given) as somebody:
            somebody.put("/a", "1")
            assert somebody.call("/v3/kv/range", key)["count"] == "1"


def test_a_principal_sees_their_own_keys_and_loses_a_stream_with_the_right_to_it(
    engine: MemoryEngine, tmp_path: Path
) -> None:
    file = tmp_path / "access"
    file.write_text(_access("/shop/"))
    file.chmod(0o600)
    commit(engine, b"/shop/a", b"1")
    others = engine.lease(60.0)
    engine.commit(Commit((), (Put(b"/other/a", b"1", others.id),)))
    access = PolicyAccess.of_file(file)
    with (
        GatewayServer(engine, access=access, settings=SPEAKS) as server,
        RpcClient(server.endpoint, token=TOKEN) as shop,
    ):
        own = {"key": b64("/shop/"), "range_end": b64("/shop0")}
        assert shop.call("/v3/kv/range", own)["count"] == "1"
        denied = (Code.PERMISSION_DENIED, "etcdserver: permission denied")
        assert shop.post("/v3/kv/range", {"key": b64("/other/a")}) == denied
        assert shop.post("/v3/kv/put", {"key": b64("/other/a")}) == denied
        mine = shop.call("/v3/lease/grant", {"TTL": "60"})["ID"]
        assert shop.call("/v3/lease/leases", {})["leases"] == [{"ID": mine}]
        assert shop.post("/v3/lease/revoke", {"ID": str(others.id)})[0] is Code.NOT_FOUND
        with RpcWatch(server.endpoint, {"key": b64("/other/a")}, own, token=TOKEN) as watch:
            assert "permission denied" in watch.next()["result"]["cancel_reason"]
            assert watch.next()["result"]["created"] is True
            shop.put("/shop/b", "1")
            assert [event["kv"]["key"] for event in watch.events(1)] == [b64("/shop/b")]
            file.write_text(_access("/elsewhere/"))
            code, _ = watch.next()
            assert code is Code.UNAUTHENTICATED


def _access(prefix: str) -> str:
    digest = sha256(TOKEN.encode()).hexdigest()
    grants = f'["prefix:{prefix}"]'
    return f'[principals.shop]\ntokens = ["sha256:{digest}"]\nread = {grants}\nwrite = {grants}\n'


def test_tls_is_that_of_http(engine: MemoryEngine, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    files = (authority.certificate("server"), authority.key("server"))
    with GatewayServer(engine, settings=SPEAKS, tls=files) as server:
        credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
        with grpc.secure_channel(server.endpoint, credentials) as channel:
            raw = channel.unary_unary("/etcdserverpb.Maintenance/Status", bytes, bytes)(b"", timeout=20)
        assert ETCD.classes.StatusResponse.FromString(raw).version == "3.4.23"


def test_keyplans_own_engine_reads_commits_and_leases_over_it(engine: MemoryEngine, server: GatewayServer) -> None:
    """Its watches and snapshots beside writers ask for revisions that are not the current one: those need etcd itself."""
    with open_engine(f"etcd://{server.endpoint}") as over:
        revision = over.commit(Commit((KeyAbsent(b"/a"),), (Put(b"/a", b"1"), Put(b"/b", b"2"))))
        with pytest.raises(CommitConflictError):
            over.commit(Commit((KeyAbsent(b"/a"),), (Put(b"/a", b"3"),)))
        lease = over.lease(30.0)
        over.commit(Commit((), (Put(b"/leased", b"1", lease.id),)))
        assert lease.keep_alive() == 30.0
        with over.snapshot() as theirs, engine.snapshot() as ours:
            assert list(theirs.scan(ALL_KEYS)) == [one for one in ours.scan(ALL_KEYS) if one.key >= b"/"]
            assert theirs.revision > revision
        lease.revoke()
        assert engine.value(b"/leased") is None


# ---- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/etcdserverpb.Maintenance/Snapshot", "/etcdserverpb.Maintenance/Defragment", "/v3lockpb.Lock/Lock", "/none/None"],
)
def test_what_is_not_spoken_is_told(client: RpcClient, path: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.send(path, b"")
    failed: Any = refused.value
    assert failed.code() is Code.UNIMPLEMENTED
    assert "is not served here" in failed.details()


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x28\x63", b"\x0a" * 4_000])
def test_bytes_that_are_no_message_are_refused(client: RpcClient, raw: bytes) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.send("/etcdserverpb.KV/Range", raw)
    failed: Any = refused.value
    assert failed.code() is Code.INVALID_ARGUMENT
    assert "no message of this call" in failed.details()
    client.put("/a", "1")


def test_a_message_that_is_too_large_is_refused(client: RpcClient) -> None:
    status, text = client.post("/v3/kv/put", {"key": b64("/a"), "value": b64("x" * (1_100 << 10))})
    assert (status, text) == (Code.INVALID_ARGUMENT, "etcdserver: request is too large")
    status, text = client.post("/v3/kv/put", {"key": b64("/a"), "value": b64("x" * (4 << 20))})
    assert status is Code.RESOURCE_EXHAUSTED
    client.put("/a", "1")


def listen(engine: Engine, address: str) -> None:
    application = Application.build(engine, {"etcd-v3": etcd_v3.build}, settings={"etcd-v3.grpc": address})

    async def briefly() -> None:
        calls = Connections(EdgeBounds(), TrustedProxies(), application.refusals)
        terms = RpcTerms(calls, application.closing)
        async with application.running(), application.listening_for_rpcs(terms):
            pass

    asyncio.run(briefly())


def test_an_address_for_others_needs_callers_who_are_known(engine: MemoryEngine) -> None:
    with pytest.raises(InvalidInputError, match="can be reached from other machines"):
        listen(engine, "0.0.0.0:0")
    with pytest.raises(InvalidInputError, match="is not HOST:PORT"):
        listen(engine, "here")
    taken = pytest.raises(InvalidInputError, match="cannot be listened on")
    with GatewayServer(engine, settings=SPEAKS) as server, taken:
        listen(engine, server.endpoint)


@pytest.mark.parametrize(("module", "package"), [("grpc", "grpcio"), ("google.protobuf", "protobuf")])
def test_without_the_package_what_to_install_is_told(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    builders = {"etcd-v3": etcd_v3.build}
    Application.build(engine, builders)
    with pytest.raises(InvalidInputError, match=rf"{package}.*pip install 'keyplan\[etcd\]'"):
        Application.build(engine, builders, settings=SPEAKS)


# ---- streams -----------------------------------------------------------------------------------------------------------


def test_leases_are_renewed_on_one_stream(client: RpcClient) -> None:
    lease = int(client.call("/v3/lease/grant", {"TTL": "60"})["ID"])
    request, response = ETCD.classes.LeaseKeepAliveRequest, ETCD.classes.LeaseKeepAliveResponse
    stream = client.channel.stream_stream("/etcdserverpb.Lease/LeaseKeepAlive", bytes, bytes)
    raw = [request(ID=number).SerializeToString() for number in (lease, 4_242, lease)]
    told = [response.FromString(one) for one in stream(iter(raw), timeout=20)]
    assert [(one.ID, one.TTL) for one in told] == [(lease, 60), (4_242, 0), (lease, 60)]


def test_events_come_in_parts_for_who_asks(engine: MemoryEngine, server: GatewayServer) -> None:
    mutations = tuple(Put(b"/w/%d" % number, b"x" * (700 << 10)) for number in range(3))
    watched = {"key": b64("/w/"), "range_end": b64("/w0")}
    with RpcWatch(server.endpoint, {**watched, "fragment": True}, watched) as watch:
        assert [watch.next()["result"]["created"] for _ in range(2)] == [True, True]
        engine.commit(Commit((), mutations))
        answers = [watch.next()["result"] for _ in range(4)]
    parts = [one for one in answers if one.get("watch_id", "0") == "0"]
    assert [(len(one["events"]), one.get("fragment", False)) for one in parts] == [(1, True), (1, True), (1, False)]
    (whole,) = [one for one in answers if one not in parts]
    assert (len(whole["events"]), whole.get("fragment", False)) == (3, False)


def test_progress_is_told_behind_what_it_says(engine: MemoryEngine, server: GatewayServer) -> None:
    with RpcWatch(server.endpoint, {"key": b64("/w")}) as watch:
        watch.next()
        reached = 0
        for number in range(200):
            reached = commit(engine, b"/w" if number % 2 else b"/other", b"%d" % number)
            if number % 20 == 0:
                watch.ask(progress_request={})
        watch.ask(progress_request={})
        seen = 0
        told = 0
        while told < reached:
            answer = watch.next()["result"]
            revision = int(answer["header"]["revision"])
            if answer.get("watch_id") == "-1":
                told = revision
                assert seen >= told - 1
            else:
                (seen,) = {int(event["kv"]["mod_revision"]) for event in answer["events"][-1:]}
                assert seen > told


def test_a_watch_from_before_the_history_is_cancelled_and_others_go_on() -> None:
    with MemoryEngine(history_revisions_max=5) as engine, GatewayServer(engine, settings=SPEAKS) as server:
        for number in range(20):
            commit(engine, b"/w", b"%d" % number)
        with RpcWatch(server.endpoint, {"key": b64("/w")}, {"key": b64("/w"), "start_revision": "2"}) as watch:
            answers = [watch.next()["result"] for _ in range(3)]
            assert [one.get("canceled", False) for one in answers] == [False, False, True]
            assert int(answers[2]["compact_revision"]) > 2
            commit(engine, b"/w", b"more")
            assert len(watch.events(1)) == 1


def test_a_client_that_does_not_read_is_cut(engine: MemoryEngine, server: GatewayServer) -> None:
    """Its events are not kept without end: the stream ends, and a client that reads again begins where it was."""
    channel = grpc.insecure_channel(server.endpoint, [("grpc.max_receive_message_length", -1)])
    asked = ETCD.classes.WatchRequest()
    asked.create_request.key = b"/w"
    hold = threading.Event()

    def requests() -> Iterator[bytes]:
        yield asked.SerializeToString()
        hold.wait()

    call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch", bytes, bytes)(requests())
    next(call)
    for number in range(90):
        commit(engine, b"/w", b"%d" % number * (512 << 10))
    with pytest.raises(grpc.RpcError):
        for _ in call:
            pass
    assert call.code() is Code.UNAVAILABLE
    hold.set()
    channel.close()


def test_a_client_that_leaves_in_an_answer_is_no_fault(
    engine: MemoryEngine, server: GatewayServer, client: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(16):
        commit(engine, b"/big/%d" % number, b"x" * (1 << 20))
    asked = ETCD.classes.RangeRequest(key=b"/big/", range_end=b"/big0").SerializeToString()
    for _ in range(8):
        with grpc.insecure_channel(server.endpoint) as channel:
            call: Any = channel.unary_unary("/etcdserverpb.KV/Range", bytes, bytes).future(asked)
            with pytest.raises(grpc.RpcError):
                # What it may take is less than that, so that it leaves before it has all.
                call.result(timeout=20)
    client.put("/a", "1")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_caller_has_so_many_watches(engine: MemoryEngine) -> None:
    bounds = EdgeBounds(connections_max=8, connections_per_address_max=3)
    with GatewayServer(engine, settings=SPEAKS, bounds=bounds) as server, RpcWatch(server.endpoint) as watch:
        for number in range(5):
            watch.ask(create_request={"key": b64(f"/w/{number}")})
        answers = [watch.next()["result"] for _ in range(5)]
        assert [one.get("canceled", False) for one in answers] == [False] * 3 + [True] * 2
        assert "you have 3 watches" in answers[3]["cancel_reason"]
        watch.ask(cancel_request={"watch_id": "0"})
        assert watch.next()["result"]["canceled"] is True
        watch.ask(create_request={"key": b64("/w/again")})
        assert "canceled" not in watch.next()["result"]


def test_an_address_has_so_many_calls_under_way(engine: MemoryEngine, caplog: pytest.LogCaptureFixture) -> None:
    bounds = EdgeBounds(connections_max=8, connections_per_address_max=2)
    with GatewayServer(engine, settings=SPEAKS, bounds=bounds) as server, RpcClient(server.endpoint) as client:
        with (
            RpcWatch(server.endpoint, {"key": b64("/a")}) as first,
            RpcWatch(server.endpoint, {"key": b64("/b")}) as second,
        ):
            assert [one.next()["result"]["created"] for one in (first, second)] == [True, True]
            status, text = client.post("/v3/kv/range", {"key": b64("/a")})
            assert (status, "--connections-per-address" in text) == (Code.RESOURCE_EXHAUSTED, True)
            assert "request refused" in caplog.messages
        while client.post("/v3/kv/range", {"key": b64("/a")})[0] is not Code.OK:
            pass


def test_calls_through_a_trusted_proxy_are_not_those_of_one_address(engine: MemoryEngine) -> None:
    """As over HTTP: many ask through each."""
    access = replace(ACCESS, proxies=TrustedProxies.of_texts(["127.0.0.1"]))
    bounds = EdgeBounds(connections_max=8, connections_per_address_max=1)
    with (
        GatewayServer(engine, settings=SPEAKS, access=access, bounds=bounds) as server,
        RpcWatch(server.endpoint, {"key": b64("/a")}, token=TOKEN) as watch,
        RpcClient(server.endpoint, token=TOKEN) as client,
    ):
        assert watch.next()["result"]["created"] is True
        client.put("/a", "1")


def test_messages_that_are_announced_and_do_not_come_keep_nobody_else_out(engine: MemoryEngine) -> None:
    held = threading.Event()

    def nothing() -> Iterator[bytes]:
        held.wait()
        yield b""

    with (
        GatewayServer(engine, access=ACCESS, settings=SPEAKS) as server,
        RpcClient(server.endpoint) as nobody,
        RpcClient(server.endpoint, token=TOKEN) as somebody,
    ):
        call = nobody.channel.stream_stream("/etcdserverpb.Auth/Authenticate", bytes, bytes)
        waiting: list[Any] = [call(nothing()) for _ in range(300)]
        status = None
        # Why until nobody gets an answer: only then have all of them begun.
        while status is not Code.DEADLINE_EXCEEDED:
            with pytest.raises(grpc.RpcError) as refused:
                nobody.channel.unary_unary("/etcdserverpb.Auth/Authenticate", bytes, bytes)(b"", timeout=0.5)
            failed: Any = refused.value
            status = failed.code()
        somebody.put("/a", "1")
        for one in waiting:
            one.cancel()
        held.set()


def test_a_stream_ends_when_the_server_stops(engine: MemoryEngine) -> None:
    with GatewayServer(engine, settings=SPEAKS) as server, RpcWatch(server.endpoint, {"key": b64("/w")}) as watch:
        watch.next()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        code, _ = watch.next()
        assert code is Code.UNAVAILABLE
        stopping.join()
