"""TLS, client certificates, users and tokens, on real servers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, EngineUrl, Put, open_engine
from keyplan.engine.etcd import EtcdEngine, options_of
from keyplan.engine.etcd.client import EtcdClient
from keyplan.errors import EngineOpenError, EngineRefusedError
from keyplan.testing.engine_suite import eventually
from tests.servers.authority import Authority
from tests.servers.etcd import EtcdServer, url_of

Own = Callable[[EtcdServer], EtcdServer]

pytestmark = pytest.mark.slow


def client_of(engine: Engine) -> EtcdClient:
    """The client of an engine, to look at its token."""
    assert isinstance(engine, EtcdEngine)
    return engine._client


def test_a_client_certificate_of_the_right_authority_is_let_in(
    own_servers: Own, authority: Authority, tmp_path: Path
) -> None:
    server = own_servers(EtcdServer(tls=authority))
    with open_engine(server.url) as engine:
        engine.commit(Commit((), (Put(b"a", b"1"),)))
        assert server.etcdctl("get", "a", "--print-value-only") == "1\n"
    with pytest.raises(EngineOpenError, match="no server answers"):
        open_engine(f"etcd://{server.client_endpoint}")
    with pytest.raises(EngineOpenError, match="no server answers"):
        open_engine(f"etcd://{server.client_endpoint}?ca={authority.ca}")
    other = Authority.create(tmp_path / "other")
    with pytest.raises(EngineOpenError) as caught:
        open_engine(url_of(server.endpoints, tls=other))
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
    with pytest.raises(EngineOpenError, match="no server answers"):
        open_engine(f"etcd://localhost:{server.client_port}?ca={authority.ca}&server_name=elsewhere")


def test_the_certificates_may_come_from_the_environment(own_servers: Own, authority: Authority) -> None:
    server = own_servers(EtcdServer(tls=authority))
    environment = {
        "KEYPLAN_ETCD_CA": str(authority.ca),
        "KEYPLAN_ETCD_CERT": str(authority.certificate("client")),
        "KEYPLAN_ETCD_KEY": str(authority.key("client")),
    }
    url = EngineUrl.parse(f"etcd://localhost:{server.client_port}")
    with EtcdEngine(options_of(url, environment)) as engine:
        assert engine.commit(Commit((), (Put(b"a", b"1"),))) == 2


def test_a_wrong_password_is_said_when_the_store_is_opened_and_not_shown(own_servers: Own) -> None:
    server = own_servers(EtcdServer(root_password="correct horse"))
    with pytest.raises(EngineOpenError) as caught:
        open_engine(f"etcd://{server.client_endpoint}?user=root&password=battery-staple")
    assert "no log-in: etcdserver: authentication failed" in str(caught.value)
    assert "staple" not in f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"
    with open_engine(f"etcd://{server.client_endpoint}") as engine, pytest.raises(EngineRefusedError) as refused:
        engine.commit(Commit((), (Put(b"a", b""),)))
    assert "user name is empty" in str(refused.value)


def test_a_token_that_is_too_old_is_renewed_by_whatever_needs_it(own_servers: Own) -> None:
    server = own_servers(EtcdServer(root_password="secret", arguments=["--auth-token-ttl", "1"]))
    with open_engine(server.url) as engine:
        client = client_of(engine)
        for use in (
            lambda: engine.commit(Commit((), (Put(b"a", b"2"),))),
            lambda: list(engine.snapshot().scan(ALL_KEYS)),
        ):
            before = client._metadata
            assert before is not None
            # Why: the server tells nobody when it drops a token, and asking with it would prolong its life.
            client.transport.wait(2.2)
            use()
            assert client._metadata not in (None, before)


def test_a_watch_goes_on_with_another_token_when_its_connection_broke(own_servers: Own) -> None:
    server = own_servers(EtcdServer(root_password="secret", arguments=["--auth-token-ttl", "1"]))
    with open_engine(server.url) as engine:
        start = engine.commit(Commit((), (Put(b"a", b"1"),)))
        watch = engine.watch(ALL_KEYS, after=start)
        server.kill()
        server.restart()  # which has forgotten all tokens
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"a"]
        last = engine.commit(Commit((), (Put(b"a", b"2"),)))
        seen: list[int] = []

        def has_come() -> bool:
            seen.extend(event.revision for event in watch.poll(0.2))
            return bool(seen)

        eventually(has_come)
        assert seen == [last]


def test_a_user_of_few_rights_is_refused_elsewhere_and_served_there(own_servers: Own) -> None:
    server = own_servers(EtcdServer(root_password="secret"))
    for words in ("role add few", "role grant-permission few --prefix=true readwrite mine/", "user add guest:guest"):
        server.etcdctl(*words.split())
    server.etcdctl("user", "grant-role", "guest", "few")
    with open_engine(f"etcd://guest:guest@{server.client_endpoint}") as engine:
        revision = engine.commit(Commit((), (Put(b"mine/a", b"1"),)))
        with engine.snapshot() as snapshot:
            entry = snapshot.get(b"mine/a")
            assert entry is not None
            assert (entry.value, entry.mod_revision) == (b"1", revision)
            with pytest.raises(EngineRefusedError, match="permission denied"):
                snapshot.get(b"other")
        with pytest.raises(EngineRefusedError, match="permission denied"):
            engine.commit(Commit((), (Put(b"other", b""),)))
        with pytest.raises(EngineRefusedError, match="permission denied"):
            engine.watch(ALL_KEYS, after=revision)
