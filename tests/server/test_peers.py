"""Who is at the other end of a connection: of a unix socket by the system's word, of TLS by a certificate; as a process."""

import json
import os
import pwd
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyplan.access import read_policy
from keyplan.cli.main import main
from keyplan.server.peers import Peer, User
from keyplan.testing.engine_suite import eventually
from tests.servers.authority import Authority
from tests.servers.keyplan_server import KeyplanServer

TOKEN = "the-token-of-ada-0123456789abcdef"
POLICY = f"""\
[principals.ada]
tokens = ["sha256:{sha256(TOKEN.encode()).hexdigest()}"]
read = ["everything"]
administer = ["everything"]

[principals.me]
users = [{os.geteuid()}]
read = ["operation:getMetrics"]

[principals.named]
certificates = ["DNS:client.example"]
read = ["operation:getMetrics"]

[principals.subject]
certificates = ['subject:CN=Zo\u00eb \\"\\, Inc.,O=Example+OU=Shop,C=DE']
read = ["operation:getMetrics"]
"""


class Transport:
    """A connection that knows only what a test says."""

    def __init__(self, **facts: Any) -> None:
        self._facts = facts

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._facts.get(name, default)


class Tls:
    """A TLS connection whose client has shown a certificate."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def getpeercert(self) -> Any:
        return ssl._ssl._test_decode_cert(str(self._path))  # type: ignore[attr-defined]


def test_the_user_at_the_other_end_is_the_systems_word() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        peer = Peer(Transport(socket=one))  # type: ignore[arg-type]
        assert peer.user == User(os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name)
        assert peer.certificate is None


def test_over_tcp_there_is_no_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        peer = Peer(Transport(socket=one))  # type: ignore[arg-type]
        assert peer.user is None
        assert peer.certificate is None
    assert Peer(Transport()).user is None  # type: ignore[arg-type]


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(POLICY)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("arguments", "variables", "problem"),
    [
        (["--tokens", "tokens"], {}, "leave out --tokens"),
        (["--local-role", "client"], {}, "leave out --local-role"),
        ([], {"KEYPLAN_ADMIN_TOKEN": TOKEN}, "leave out KEYPLAN_ADMIN_TOKEN"),
        (["--tls-client-ca", "ca.pem"], {}, "--tls-certificate"),
        (["--listen", "127.0.0.1:0", "--tls-client-ca", "/none", "--tls-certificate", "/none"], {}, "(source /none)"),
    ],
)
def test_an_access_file_alone_says_who_may_ask(
    file: Path,
    arguments: list[str],
    variables: dict[str, str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("KEYPLAN_ADMIN_TOKEN", "KEYPLAN_CLIENT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["serve", "--store", "memory:", "--access", str(file), *arguments]) == 5
    assert problem in capsys.readouterr().err


def test_an_access_file_that_is_not_sound_is_refused_at_the_start(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(POLICY + "oops")
    assert main(["serve", "--store", "memory:", "--access", str(file)]) == 5
    assert f"{file}:{POLICY.count(chr(10)) + 1}" in capsys.readouterr().err


# ---- a process -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority.create(tmp_path_factory.mktemp("authority"))
    made.issue("named", "extendedKeyUsage=clientAuth\nsubjectAltName=DNS:Client.Example,URI:urn:x\n")
    made.issue("subject", "extendedKeyUsage=clientAuth\n", subject='/C=DE/O=Example+OU=Shop/CN=Zo\u00eb ", Inc.')
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[KeyplanServer]:
    """A server with the access file, over TLS and on a unix socket of its own process, which has no TLS."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / "access.toml").write_text(POLICY)
    (folder / "access.toml").chmod(0o600)
    tls = ("--tls-certificate", str(authority.certificate("server")), "--tls-key", str(authority.key("server")))
    arguments = (
        "--access",
        str(folder / "access.toml"),
        *tls,
        "--tls-client-ca",
        str(authority.ca),
        "--app",
        "explorer",
    )
    with KeyplanServer("memory:", *arguments, "--listen", "127.0.0.1:0") as started:
        yield started


def asking(server: KeyplanServer, authority: Authority, certificate: str = "") -> httpx.Client:
    context = ssl.create_default_context(cafile=authority.ca)
    if certificate:
        context.load_cert_chain(authority.certificate(certificate), authority.key(certificate))
    return httpx.Client(base_url=server.url, verify=context, trust_env=False)


@pytest.mark.slow
@pytest.mark.parametrize("certificate", ["named", "subject"])
def test_a_certificate_of_the_authority_is_its_principals(
    server: KeyplanServer, authority: Authority, certificate: str
) -> None:
    with asking(server, authority, certificate) as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/config").json()["error"]["detail"]["who"] == certificate
        # A token goes before it, also one that is nobody's.
        assert client.get("/config", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401


@pytest.mark.slow
def test_without_a_certificate_or_with_one_that_is_not_named_nobody_asks(
    server: KeyplanServer, authority: Authority
) -> None:
    for certificate in ("", "client"):
        with asking(server, authority, certificate) as client:
            assert client.get("/metrics").status_code == 401
            assert client.get("/health").status_code == 200


@pytest.mark.slow
def test_a_certificate_of_another_authority_is_refused_by_tls(
    server: KeyplanServer, authority: Authority, tmp_path: Path
) -> None:
    other = Authority.create(tmp_path / "other")
    other.issue("named", "extendedKeyUsage=clientAuth\nsubjectAltName=DNS:client.example\n")
    context = ssl.create_default_context(cafile=authority.ca)
    context.load_cert_chain(other.certificate("named"), other.key("named"))
    with (
        httpx.Client(base_url=server.url, verify=context, trust_env=False) as client,
        pytest.raises(httpx.TransportError),
    ):
        client.get("/metrics")
    # Why again and again: the client may know of it before the server does.
    eventually(lambda: "tls_failed" in server.log)


@pytest.mark.slow
def test_the_log_says_what_is_open_to_whom(server: KeyplanServer) -> None:
    (line,) = [json.loads(one) for one in server.log.splitlines() if '"who may ask"' in one]
    told = {name: line[name] for name in ("administrators", "others", "anybody_else", "whole_store_by")}
    assert told == {
        "administrators": ["ada"],
        "others": ["me", "named", "subject"],
        "anybody_else": "nothing",
        "whole_store_by": [],
    }


@pytest.mark.slow
def test_a_user_of_a_unix_socket_is_a_principal_until_the_file_says_otherwise(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with KeyplanServer("memory:", "--access", str(file), "--listen", f"unix:{path}") as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://any.example", trust_env=False) as client:
            assert client.get("/metrics").status_code == 200
            assert client.get("/config").json()["error"]["detail"]["who"] == "me"
            file.write_text(POLICY.replace("[principals.me]", "[principals.renamed]"))
            eventually(lambda: client.get("/config").json()["error"]["detail"]["who"] == "renamed")
        assert '"the access file has changed"' in server.log


@pytest.mark.slow
def test_without_an_access_file_the_log_says_who_may_ask_too() -> None:
    with KeyplanServer("memory:", "--app", "explorer", environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        (line,) = [json.loads(one) for one in server.log.splitlines() if '"who may ask"' in one]
    assert line["without_token"] == "who runs this server, on this machine, as client"
    assert (line["administrators"], line["clients"], line["whole_store_by"]) == (["admin"], [], [])


def test_alternative_names_are_compared_in_one_spelling(authority: Authority) -> None:
    names = "DNS:Shop.Example,URI:spiffe://a/B,email:Ops@shop.example,IP:::1,IP:192.0.2.7,RID:1.2.3"
    authority.issue("names", f"extendedKeyUsage=clientAuth\nsubjectAltName={names}\n")
    peer = Peer(Transport(ssl_object=Tls(authority.certificate("names"))))  # type: ignore[arg-type]
    assert peer.certificate is not None
    assert peer.certificate.names == (
        "DNS:shop.example",
        "URI:spiffe://a/B",
        "email:Ops@shop.example",
        "IP:::1",
        "IP:192.0.2.7",
    )
    text = '[principals.a]\ncertificates = ["IP:0:0:0:0:0:0:0:1", "DNS:SHOP.example"]\n'
    (principal,) = read_policy(text, source="f").principals
    assert principal.certificates == ("IP:::1", "DNS:shop.example")


def test_a_subject_is_written_as_openssl_prints_it(authority: Authority) -> None:
    for number, subject in enumerate(
        ["/CN=\\ x\\#\\+\\;<>", "/CN=#1/O=  /OU=a b ", "/DC=org/DC=example/UID=u/emailAddress=a@b/serialNumber=7"]
    ):
        name = f"odd{number}"
        authority.issue(name, "extendedKeyUsage=clientAuth\n", subject=subject)
        command = [
            "openssl",
            "x509",
            "-noout",
            "-subject",
            "-nameopt",
            "RFC2253,-esc_msb",
            "-in",
            str(authority.certificate(name)),
        ]
        printed = subprocess.check_output(command, text=True).removeprefix("subject=").rstrip("\n")
        peer = Peer(Transport(ssl_object=Tls(authority.certificate(name))))  # type: ignore[arg-type]
        assert peer.certificate is not None
        assert peer.certificate.subject == printed
