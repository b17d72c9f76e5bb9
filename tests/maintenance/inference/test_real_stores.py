"""What real programs left: Patroni's keys as captured from its etcd, and a store that etcdctl filled."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyplan.cli.main import main
from keyplan.engine import open_engine
from keyplan.layout import bind_layout
from keyplan.maintenance import audit, infer
from tests.maintenance.inference.foreign_stores import inferred, templates
from tests.servers.etcd import EtcdServer

PARTS = ["config", "failover", "failsafe", "history", "initialize", "leader", "members/{member:text}", "status", "sync"]


def leaves(node: dict[str, Any]) -> dict[bytes, bytes]:
    """Keys and values of a node of etcd's v2 API, and of those below it."""
    if not node.get("dir"):
        return {node["key"].encode(): node["value"].encode()}
    return {key: value for inner in node["nodes"] for key, value in leaves(inner).items()}


@pytest.fixture
def captured(shared: Path) -> dict[bytes, bytes]:
    """One cluster, f1, with two members."""
    return leaves(json.loads((shared / "data" / "etcd-v2" / "patroni-keys.json").read_text())["node"])


def test_a_patroni_cluster_is_inferred_and_that_it_is_the_only_one_is_doubted(captured: dict[bytes, bytes]) -> None:
    found = inferred(captured)
    assert templates(found) == [f"/service/f1/{part}" for part in PARTS]
    assert [note.reason for note in found.doubts] == [
        "'f1' is the only word seen here: literal, or the first value",
    ]


def test_two_patroni_clusters_show_what_varies(captured: dict[bytes, bytes]) -> None:
    other = {key.replace(b"/f1/", b"/f2/"): value for key, value in captured.items() if b"failover" not in key}
    assert templates(inferred(captured | other)) == [f"/service/{{service:text}}/{part}" for part in PARTS]


def test_what_etcdctl_wrote_is_inferred_with_its_leases(etcd_server: EtcdServer) -> None:
    lease = etcd_server.etcdctl("lease", "grant", "600").split()[1]
    for number in range(4):
        etcd_server.etcdctl("put", f"/adopted/jobs/{number}", '{"owner": "a", "retries": 2}')
        etcd_server.etcdctl("put", f"/adopted/workers/w{number}", "busy", f"--lease={lease}")
    try:
        with open_engine(etcd_server.url) as engine, engine.snapshot() as snapshot:
            found = infer(snapshot, prefix=b"/adopted/")
            report = audit(snapshot, bind_layout(found.spec), prefix=b"/adopted/")
    finally:
        etcd_server.etcdctl("del", "--prefix", "/adopted/")
        etcd_server.etcdctl("lease", "revoke", lease)
    assert [(item["template"], item["lease"]) for item in found.description["items"]] == [
        ("jobs/{job:decimal}", False),
        ("workers/{worker:text}", True),
    ]
    assert (report.keys, report.percent) == (8, 100.0)


def test_the_go_program_s_inventory_is_inferred(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    definition = shared / "data" / "cloudchamber" / "Extended.yaml"
    url = f"lmdb:{tmp_path / 'inventory'}"
    assert main(["cloudchamber", "import", str(definition), "--into", "go", "--store", url]) == 0
    capsys.readouterr()
    with open_engine(url, readonly=True) as engine, engine.snapshot() as snapshot:
        found = infer(snapshot)
    data, index = "data/region/{region:text}", "index/region/{region:text}"
    zone, rack = "/zone/{zone:text}", "/zone/{zone:text}/rack/{rack:text}"
    assert found.description["root"] == "/CloudChamber/v0.1/inventory/definition/"
    assert {item["template"]: found.table_keys[item["name"]] for item in found.description["items"]} == {
        data: 2,
        f"{data}{zone}": 6,
        f"{data}{rack}": 24,
        f"{data}{rack}/blade/{{blade:decimal}}": 192,
        f"{data}{rack}/pdu/{{pdu:decimal}}": 36,
        f"{data}{rack}/tor/{{tor:decimal}}": 36,
        f"{index}{rack}/blades/{{blade:decimal}}": 192,
        f"{index}{rack}/pdus/{{pdu:decimal}}": 36,
        f"{index}{rack}/tors/{{tor:decimal}}": 36,
        f"{index}{zone}/racks/{{rack:text}}": 24,
        f"{index}/zones/{{zone:text}}": 6,
        "index/regions/{region:text}": 2,
    }
