"""Lists of any size, of one revision, whatever is compacted; and what a read costs in calls."""

from collections.abc import Iterator

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, EngineUrl, KeyAbsent, KeyRange, Put, Snapshot, open_engine
from keyplan.engine.etcd import (
    EtcdEngine,
    EtcdOptions,
    GrpcTransport,
    Message,
    Metadata,
    Method,
    Stream,
    options_of,
)
from keyplan.errors import EngineLimitError, HistoryCompactedError
from tests.servers.etcd import EtcdServer


class CountingTransport:
    """Grpcio, and a list of what was asked."""

    def __init__(self, options: EtcdOptions) -> None:
        self.inner = GrpcTransport(options)
        self.calls: list[tuple[str, Message]] = []
        self.received_bytes: list[int] = []

    def call(
        self, endpoint: str, method: Method, request: Message, *, timeout_seconds: float, metadata: Metadata
    ) -> Message:
        response = self.inner.call(endpoint, method, request, timeout_seconds=timeout_seconds, metadata=metadata)
        self.calls.append((method.path.rpartition("/")[2], request))
        self.received_bytes.append(response.ByteSize())
        return response

    def stream(self, endpoint: str, method: Method, *, metadata: Metadata) -> Stream:
        return self.inner.stream(endpoint, method, metadata=metadata)

    def wait(self, seconds: float) -> None:
        self.inner.wait(seconds)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def counted(etcd_server: EtcdServer) -> Iterator[tuple[Engine, CountingTransport]]:
    made: list[CountingTransport] = []

    def transport(options: EtcdOptions) -> CountingTransport:
        made.append(CountingTransport(options))
        return made[0]

    with EtcdEngine(options_of(EngineUrl.parse(etcd_server.emptied().url), {}), transport) as engine:
        made[0].calls.clear()
        yield engine, made[0]


def names(transport: CountingTransport) -> list[str]:
    """What was asked since the last time."""
    asked = [name for name, _ in transport.calls if name != "Status"]
    transport.calls.clear()
    transport.received_bytes.clear()
    return asked


def test_a_get_a_commit_and_a_batch_of_gets_are_one_call_each(counted: tuple[Engine, CountingTransport]) -> None:
    engine, transport = counted
    engine.commit(Commit((KeyAbsent(b"a"),), (Put(b"a", b"1"), Put(b"b", b"2"))))
    assert names(transport) == ["Txn"]
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"a") is not None
    assert names(transport) == ["Range"]
    with engine.snapshot() as snapshot:
        assert [entry and entry.value for entry in snapshot.get_many([b"b", b"x", b"a"])] == [b"2", None, b"1"]
        assert snapshot.revision > 0
    assert names(transport) == ["Txn"]
    with engine.snapshot() as snapshot:
        snapshot.get_many([b"%d" % number for number in range(300)])
    assert names(transport) == ["Txn"] * 3


def test_a_snapshot_that_has_read_nothing_does_not_slip_past_a_commit_of_its_engine(etcd: Engine) -> None:
    etcd.commit(Commit((), (Put(b"a", b"1"),)))
    lease = etcd.lease(60)
    etcd.commit(Commit((), (Put(b"leased", b"", lease.id),)))
    with etcd.snapshot() as early, etcd.snapshot() as earlier:
        etcd.commit(Commit((), (Put(b"a", b"2"),)))
        etcd.commit(Commit((), (Delete(b"a"),)))
        lease.revoke()
        with etcd.snapshot() as late:
            assert [entry.key for entry in early.scan(ALL_KEYS)] == [b"a", b"leased"]
            assert (entry := earlier.get(b"a")) is not None
            assert entry.value == b"1"
            assert list(late.scan(ALL_KEYS)) == []
    with etcd.snapshot() as before:
        lease = etcd.lease(60)
        etcd.commit(Commit((), (Put(b"b", b"", lease.id),)))
        with etcd.snapshot() as between:
            lease.revoke()
            assert between.get(b"b") is not None
        assert before.get(b"b") is None


def test_a_snapshot_taken_while_a_commit_is_under_way_has_what_was_acknowledged_before_it(
    counted: tuple[Engine, CountingTransport], etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, transport = counted
    taken: list[Snapshot] = []
    answer = transport.call

    def answer_late(
        endpoint: str, method: Method, request: Message, *, timeout_seconds: float, metadata: Metadata
    ) -> Message:
        response = answer(endpoint, method, request, timeout_seconds=timeout_seconds, metadata=metadata)
        if method.path.endswith("/Txn") and not taken:
            # The commit is applied, and its answer is on the way; now somebody else commits, and is answered first.
            others.commit(Commit((), (Put(b"b", b"acknowledged"),)))
            taken.append(engine.snapshot())
        return response

    with open_engine(etcd_server.url) as others:
        monkeypatch.setattr(transport, "call", answer_late)
        engine.commit(Commit((), (Put(b"a", b""),)))
        later = engine.snapshot()
        last = engine.commit(Commit((), (Put(b"c", b""),)))
    assert [entry.key for entry in taken[0].scan(ALL_KEYS)] == [b"a", b"b"]
    assert [entry.key for entry in later.scan(ALL_KEYS)] == [b"a", b"b"]
    assert (taken[0].revision, later.revision) == (last - 1, last - 1)


def test_a_list_of_many_mebibytes_comes_in_pages_of_about_four(counted: tuple[Engine, CountingTransport]) -> None:
    engine, transport = counted
    keys = [b"%05d" % number for number in range(1_300)]
    engine.load((key, key * 2_000) for key in keys)  # 13 MB
    names(transport)
    with engine.snapshot() as snapshot:
        assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == keys
        assert 2_000_000 < max(transport.received_bytes) < 5_000_000
        assert 4 <= len(names(transport)) <= 10
        assert [entry.key for entry in snapshot.scan(ALL_KEYS, keys_only=True)] == keys
        assert [entry.key for entry in snapshot.scan(ALL_KEYS, reverse=True)] == keys[::-1]
        assert max(transport.received_bytes) < 6_000_000
        names(transport)
        assert [entry.key for entry in snapshot.scan(ALL_KEYS, reverse=True, limit=3)] == keys[:-4:-1]
        assert names(transport) == ["Range"] * 2
        assert [entry.key for entry in snapshot.scan(ALL_KEYS, reverse=True, limit=400)] == keys[:-401:-1]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_a_list_goes_on_when_its_own_revision_is_compacted_and_says_so_when_a_later_one_is(
    etcd: Engine, *, reverse: bool
) -> None:
    keys = [b"%05d" % number for number in range(2_000)]
    etcd.load((key, b"old") for key in keys)
    expected = keys[::-1] if reverse else keys
    with etcd.snapshot() as snapshot:
        scan = snapshot.scan(ALL_KEYS, reverse=reverse)
        head = [next(scan) for _ in range(10)]
        last = etcd.commit(Commit((), tuple(Put(key, b"new") for key in keys[:100])))
        etcd.compact(snapshot.revision)
        whole = [*head, *scan]
        assert [entry.key for entry in whole] == expected
        assert {entry.value for entry in whole} == {b"old"}
        scan = snapshot.scan(ALL_KEYS, reverse=reverse)
        head = [next(scan) for _ in range(10)]
        etcd.compact(last)
        with pytest.raises(HistoryCompactedError) as caught:
            list(scan)
        assert caught.value.facts == {"revision": snapshot.revision, "compacted_revision": last}
    assert [entry.key for entry in head] == expected[:10]


def test_the_limits_of_other_servers_are_told_by_the_url(etcd_server: EtcdServer) -> None:
    url = f"{etcd_server.emptied().url}?operations_max=3&request_bytes_max=100000"
    with open_engine(url) as engine:
        assert (engine.profile.commit_operations_max, engine.profile.commit_bytes_max) == (3, 83_616)
        with pytest.raises(EngineLimitError) as caught:
            engine.commit(Commit((), tuple(Put(b"%d" % number, b"") for number in range(4))))
        assert caught.value.facts == {"limit": "commit_operations_max", "allowed": 3, "actual": 4}
        assert engine.load((b"%d" % number, b"v" * 30_000) for number in range(9)) == 9
        with engine.snapshot() as snapshot:
            assert len(snapshot.get_many([b"%d" % number for number in range(9)])) == 9


def test_a_request_that_is_too_large_by_its_guards_alone_is_refused_with_its_size(etcd: Engine) -> None:
    keys = [b"%03d" % number + b"k" * 7_000 for number in range(120)]
    with pytest.raises(EngineLimitError) as caught:
        etcd.commit(Commit(tuple(KeyAbsent(key) for key in keys), (Put(b"a", b""),)))
    assert caught.value.facts["limit"] == "request_bytes_max"
    assert caught.value.facts["allowed"] == 1_572_864
    actual = caught.value.facts["actual"]
    assert isinstance(actual, int)
    assert 2 * 120 * 7_003 < actual < 2 * 120 * 7_003 + 10_000


def test_servers_that_take_less_than_the_url_says_are_named(etcd_program: None) -> None:
    with (
        EtcdServer(arguments=["--max-txn-ops", "2", "--max-request-bytes", "1000"]) as server,
        open_engine(server.url) as engine,
    ):
        with pytest.raises(EngineLimitError, match="operations_max of the server"):
            engine.commit(Commit((), tuple(Put(b"%d" % number, b"") for number in range(3))))
        with pytest.raises(EngineLimitError, match="request_bytes_max of the server"):
            engine.commit(Commit((), (Put(b"a", b"v" * 2_000),)))
        with engine.snapshot() as snapshot:
            assert snapshot.count(KeyRange(b"", None)) == 0
