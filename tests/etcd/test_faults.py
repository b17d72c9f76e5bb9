"""Servers are killed and halted under a writer and a watcher: what was told is true, and everything goes on."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.engine import ALL_KEYS, Commit, DeleteRange, Engine, KeyAbsent, Put, open_engine
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError, HistoryCompactedError
from keyplan.testing.engine_suite import eventually
from tests.etcd.workload import Workload
from tests.servers.etcd import EtcdCluster, EtcdServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Own = Callable[[EtcdServer], EtcdServer]


@pytest.fixture(scope="module")
def shared_cluster(etcd_program: None) -> Iterator[EtcdCluster]:
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: EtcdCluster) -> Iterator[EtcdCluster]:
    """Three members that run, and run again afterwards."""
    yield shared_cluster
    for member in shared_cluster.members:
        if member.is_paused:
            member.resume()
    shared_cluster.start()


@pytest.fixture
def engine(cluster: EtcdCluster) -> Iterator[Engine]:
    with open_engine(f"{cluster.url}?timeout=4") as engine:
        engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
        yield engine


def serving(cluster: EtcdCluster) -> EtcdServer:
    """The member that the engine speaks to: the first of its URL, where a stream of its watch is."""
    return cluster.members[0]


def other(cluster: EtcdCluster) -> EtcdServer:
    """A member that the engine does not speak to, and that does not lead where there is a choice."""
    return next(member for member in cluster.followers() if member is not serving(cluster))


@pytest.mark.parametrize(
    "choose", [EtcdCluster.leader, serving, other], ids=["the leader", "the server in use", "another member"]
)
@pytest.mark.parametrize("fault", ["killed", "halted"])
def test_writes_and_watches_outlive_a_member(
    cluster: EtcdCluster, engine: Engine, choose: Callable[[EtcdCluster], EtcdServer], fault: str
) -> None:
    with Workload(engine) as workload:
        workload.let_write(20)
        member = choose(cluster)
        if fault == "killed":
            member.kill()
        else:
            member.pause()
        workload.let_write(20)
        if fault == "killed":
            member.restart(wait=False)
        else:
            member.resume()
        workload.let_write(20)


def test_writes_and_watches_outlive_a_restart_of_all_members(cluster: EtcdCluster, engine: Engine) -> None:
    with Workload(engine) as workload:
        workload.let_write(20)
        cluster.restart_all()
        workload.let_write(20)


def test_a_lease_outlives_its_leader(cluster: EtcdCluster, engine: Engine) -> None:
    lease = engine.lease(30)
    engine.commit(Commit((), (Put(b"a", b"", lease.id),)))
    cluster.leader().kill()
    eventually(lambda: is_kept_alive(lease.keep_alive))
    with engine.snapshot() as snapshot:
        assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"a"]


def is_kept_alive(keep_alive: Callable[[], float]) -> bool:
    """Ask once; while the members elect, there is no answer."""
    try:
        return keep_alive() >= 30
    except EngineUnavailableError:
        return False


def test_a_store_opens_and_lists_while_a_member_is_down(cluster: EtcdCluster, engine: Engine) -> None:
    engine.load((b"%05d" % number, b"v" * 100) for number in range(3_000))
    with engine.snapshot() as snapshot:
        scan = snapshot.scan(ALL_KEYS)
        head = [next(scan).key for _ in range(50)]
        cluster.members[0].kill()
        assert head + [entry.key for entry in scan] == [b"%05d" % number for number in range(3_000)]
    with open_engine(cluster.url) as again, again.snapshot() as snapshot:
        assert snapshot.count(ALL_KEYS) == 3_000


def test_what_a_halted_server_may_have_done_is_unknown_and_what_it_was_not_sent_is_not_done(own_servers: Own) -> None:
    server = own_servers(EtcdServer())
    # Why two seconds: a busy machine shall not take longer for the first commit.
    with open_engine(f"{server.url}?timeout=2") as engine:
        engine.commit(Commit((), (Put(b"before", b""),)))
        server.pause()
        with pytest.raises(CommitOutcomeUnknownError) as unknown:
            engine.commit(Commit((KeyAbsent(b"perhaps"),), (Put(b"perhaps", b"secret value"),)))
        assert unknown.value.facts["mutations"] == 1
        assert "secret value" not in str(unknown.value)
        for key in (b"never", b"neither"):
            with pytest.raises(EngineUnavailableError):
                engine.commit(Commit((), (Put(key, b""),)))
        with engine.snapshot() as snapshot, pytest.raises(EngineUnavailableError):
            snapshot.get(b"before")
        server.resume()

        def keys() -> list[bytes]:
            with engine.snapshot() as snapshot:
                return [entry.key for entry in snapshot.scan(ALL_KEYS)]

        def is_back() -> bool:
            try:
                return keys() in ([b"before"], [b"before", b"perhaps"])
            except EngineUnavailableError:
                return False

        eventually(is_back)
        assert b"never" not in keys()


def test_a_watch_whose_history_is_gone_when_it_comes_back_says_so(own_servers: Own) -> None:
    server = own_servers(EtcdServer())
    with open_engine(server.url) as engine:
        start = engine.commit(Commit((), (Put(b"a", b"1"),)))
        watch = engine.watch(ALL_KEYS, after=start)
        server.kill()
        server.restart()
        server.etcdctl("put", "a", "2")
        server.etcdctl("put", "a", "3")
        server.etcdctl("compact", str(start + 2))
        with pytest.raises(HistoryCompactedError) as caught:
            watch.poll(30)
        assert caught.value.facts == {"revision": start, "compacted_revision": start + 2}
        with pytest.raises(HistoryCompactedError):
            watch.poll(5)
        watch.close()
