"""What an etcd URL and the environment say, and that nothing secret is shown again."""

from pathlib import Path

import pytest

from keyplan.engine import EngineUrl, default_profile, open_engine
from keyplan.engine.etcd import EtcdOptions, options_of
from keyplan.errors import EngineOpenError


def options(url: str, **environment: str) -> EtcdOptions:
    """The options of a URL."""
    return options_of(EngineUrl.parse(url), environment)


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("etcd://a", ("a:2379",)),
        ("etcd://a:1,b,c:3", ("a:1", "b:2379", "c:3")),
        ("etcd:a:1", ("a:1",)),
        ("etcd://a:1/", ("a:1",)),
        ("etcd://[::1]", ("[::1]:2379",)),
        ("etcd://[::1]:7,[fe80::2%25eth0]:8,10.0.0.1", ("[::1]:7", "[fe80::2%eth0]:8", "10.0.0.1:2379")),
        ("etcd://user:p%40ss,w:rd@a:1,b:2", ("a:1", "b:2")),
    ],
)
def test_endpoints_are_hosts_with_ports(url: str, endpoints: tuple[str, ...]) -> None:
    assert options(url).endpoints == endpoints


@pytest.mark.parametrize(
    "url",
    [
        "etcd:",
        "etcd://",
        "etcd://a:1,",
        "etcd://a:b",
        "etcd://a:70000",
        "etcd://::1:2379",
        "etcd://a/b",
        "etcd://a b",
        "etcd://a%01b",
        "etcd://\udcff",
    ],
)
def test_a_host_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(EngineOpenError, match="names its hosts"):
        options(url)


def test_a_user_comes_from_the_host_part_the_options_or_the_environment() -> None:
    for given in (
        options("etcd://root:p%40:ss@a"),
        options("etcd://a?user=root&password=p%40:ss"),
        options("etcd://a", KEYPLAN_ETCD_USER="root", KEYPLAN_ETCD_PASSWORD="p@:ss"),
        options("etcd://root@a", KEYPLAN_ETCD_PASSWORD="p@:ss"),
        options("etcd://a?user=root&password=p%40:ss", KEYPLAN_ETCD_USER="other", KEYPLAN_ETCD_PASSWORD="other"),
    ):
        assert (given.user, given.password) == ("root", "p@:ss")
        assert "p@:ss" not in repr(given)
        assert "p%40" not in repr(given)
        assert not given.has_tls
    assert options("etcd://a").user is None


@pytest.mark.parametrize(
    "url", ["etcd://a?user=%01&password=p", "etcd://a?user=u&password=\udcff", "etcd://a?server_name=a%01b"]
)
def test_what_no_message_can_say_is_refused(url: str) -> None:
    with pytest.raises(EngineOpenError, match="holds a character that is none of a text"):
        options(url)


def test_a_user_without_a_password_is_refused() -> None:
    with pytest.raises(EngineOpenError, match="a user needs a password"):
        options("etcd://root@a")


def test_certificates_are_read_from_files_and_mean_tls(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_bytes(f"the {name}".encode())
    by_url = options(f"etcd://a?ca={tmp_path}/ca&cert={tmp_path}/cert&key={tmp_path}/key&server_name=other")
    by_environment = options(
        "etcd://a?server_name=other",
        KEYPLAN_ETCD_CA=f"{tmp_path}/ca",
        KEYPLAN_ETCD_CERT=f"{tmp_path}/cert",
        KEYPLAN_ETCD_KEY=f"{tmp_path}/key",
    )
    for given in (by_url, by_environment):
        assert (given.ca, given.cert, given.key) == (b"the ca", b"the cert", b"the key")
        assert given.has_tls
        assert given.server_name == "other"
        assert "the key" not in repr(given)
    assert options("etcd://a?tls=true").has_tls
    assert not options("etcd://a?tls=false", KEYPLAN_ETCD_CA=f"{tmp_path}/ca").has_tls


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("etcd://a?cert=/nowhere", "give both cert and key"),
        ("etcd://a?ca=/nowhere", "the file of ca cannot be read"),
        ("etcd://a?tls=false&ca=/nowhere", "mean nothing with tls=false"),
        ("etcd://a?tls=perhaps", "true or false"),
        ("etcd://a?timeout=0", "at least 1"),
        ("etcd://a?operations_max=0", "at least 1"),
        ("etcd://a?request_bytes_max=1000", "at least 32768"),
        ("etcd://a?size=3", "there is no option 'size'"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(url: str, problem: str) -> None:
    with pytest.raises(EngineOpenError, match=problem):
        options(url)


def test_the_default_profile_is_that_of_servers_without_options() -> None:
    profile = default_profile("etcd")
    assert profile.name == "etcd"
    assert profile.commit_operations_max == 128
    assert profile.commit_bytes_max == 1_556_480
    assert not profile.empty_key


def test_a_store_that_nobody_serves_says_so_without_the_password() -> None:
    with pytest.raises(EngineOpenError) as caught:
        open_engine("etcd://root:secret@127.0.0.1:1,127.0.0.1:2?password=hidden&user=a")
    shown = f"{caught.value} {caught.value!r} {caught.value.facts}"
    assert "no server answers; 127.0.0.1:1: " in shown
    assert "secret" not in shown
    assert "hidden" not in shown
