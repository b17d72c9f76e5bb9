"""Certificates of a cell's nodes: what is refused at the start, and what another pair of files comes to without a restart."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.apps.patroni import Broker, NodeOrder, OrderKey
from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.cell_reach import cell_store
from keyplan.apps.patroni.certificates import ServedCertificate, TlsFiles, read_authorities, read_pair
from keyplan.apps.patroni.cli_up import broker_tls_settings
from keyplan.apps.patroni.node_config import Gateway
from keyplan.apps.patroni.node_host import Host
from keyplan.errors import InvalidInputError
from keyplan.store import open_store
from tests.servers.authority import Authority
from tests.servers.patroni import until

SLEEPER = """
import signal, time
signal.signal(signal.SIGHUP, lambda *_: open("{told}", "a").write("told\\n"))
open("{told}", "a").close()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> TlsFiles:
    files = TlsFiles(tmp_path / "site.crt", tmp_path / "site.key")
    put(authority, files, "server")
    return files


def put(authority: Authority, files: TlsFiles, name: str) -> None:
    files.certificate.write_text(authority.certificate(name).read_text())
    files.key.write_text(authority.key(name).read_text())


def test_another_pair_is_taken_when_both_files_are_there(authority: Authority, files: TlsFiles) -> None:
    served = ServedCertificate(files)
    first = served.pair
    files.certificate.write_text(authority.certificate("client").read_text())
    served.look()
    assert served.pair == first, "the key is that of the former certificate"
    files.key.unlink()
    served.look()
    assert served.pair == first
    files.key.write_text(authority.key("client").read_text())
    served.look()
    assert served.pair.certificate == authority.certificate("client").read_text()
    assert served.pair.key == authority.key("client").read_text()
    assert "PRIVATE" not in repr(served.pair)


def test_what_postgresql_could_not_use_is_refused_and_names_the_file(authority: Authority, files: TlsFiles) -> None:
    files.key.write_text(authority.key("client").read_text())
    with pytest.raises(InvalidInputError, match="no certificate that belongs to the key"):
        read_pair(files)
    places = ["-in", str(authority.key("server")), "-out", str(files.key)]
    subprocess.run(["openssl", "ec", "-aes256", "-passout", "pass:abcdef", *places], check=True, capture_output=True)
    with pytest.raises(InvalidInputError, match="must not be encrypted"):
        read_pair(files)
    files.certificate.write_bytes(b"x" * 300_000)
    with pytest.raises(InvalidInputError, match="more than 262144 bytes"):
        read_pair(files)
    for content in ("", "none"):
        files.certificate.write_text(content)
        with pytest.raises(InvalidInputError, match="no certificates of authorities"):
            read_authorities(files.certificate)
    files.certificate.write_text(authority.ca.read_text() + authority.key("server").read_text())
    with pytest.raises(InvalidInputError, match="private key"):
        read_authorities(files.certificate)
    assert read_authorities(authority.ca) == authority.ca.read_text()


def test_up_says_in_bindings_that_there_is_tls_unless_a_setting_says_otherwise(authority: Authority) -> None:
    mode, file = "patroni-broker.sslmode=", "patroni-broker.tls-authority="
    assert broker_tls_settings([], None, has_tls=False) == []
    assert broker_tls_settings(["x.y=1"], None, has_tls=True) == [f"{mode}require"]
    assert broker_tls_settings([f"{mode}prefer"], None, has_tls=True) == []
    assert broker_tls_settings([f"{file}/x"], None, has_tls=True) == []
    assert broker_tls_settings([], authority.ca, has_tls=True) == [f"{file}{authority.ca}"]
    with pytest.raises(InvalidInputError):
        broker_tls_settings([], authority.ca, has_tls=False)


@pytest.fixture
def agent(files: TlsFiles, tmp_path: Path) -> Iterator[CellAgent]:
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER.format(told=tmp_path / "told"))
    with open_store("memory:") as store:
        Broker(store).orders.put(OrderKey("c1", "n1"), NodeOrder(instance="f1"))
        settings = CellSettings(name="c1", folder=tmp_path / "cell", gateway=Gateway("127.0.0.1:1"), tls=files)
        host = Host(Path("/usr/bin"), sys.executable, script)
        made = CellAgent(cell_store(store, "c1", hostname="localhost"), settings, host)
        made.open()
        try:
            yield made
        finally:
            for node in made.nodes:
                node.kill()
            made.close()
            until(lambda: all(node.process is None for node in made.nodes), 30, lambda: "its processes have ended")


def test_a_node_that_runs_is_told_of_another_certificate_once(
    agent: CellAgent, authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    told, node = tmp_path / "told", tmp_path / "cell" / "nodes" / "n1"

    def is_so(text: str) -> bool:
        agent.step(0.02)
        return told.exists() and told.read_text() == text

    until(lambda: is_so(""), 30, lambda: "the node runs")
    before = agent.nodes[0].process
    assert (node / "server.crt").read_text() == authority.certificate("server").read_text()
    put(authority, files, "client")
    until(lambda: is_so("told\n"), 30, lambda: "the node is told")
    for _ in range(5):
        agent.step()
    assert is_so("told\n")
    assert (node / "server.crt").read_text() == authority.certificate("client").read_text()
    assert (node / "server.key").read_text() == authority.key("client").read_text()
    assert agent.nodes[0].process == before, "it was not started anew"
