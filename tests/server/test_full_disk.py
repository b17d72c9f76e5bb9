"""A full disk below `keyplan serve`: what cannot be written is refused, the rest goes on, and nothing acknowledged is lost."""

import os
from base64 import b64encode
from pathlib import Path

import httpx
import pytest

from keyplan.access import AccessFile
from keyplan.audit_log import AuditLog, Event, read_lines
from keyplan.errors import AuditLogError
from keyplan.server import note_access_file
from tests.servers.full_disk import full_disk, largest_file_bytes
from tests.servers.keyplan_server import KeyplanServer

_WRITES_MAX = 10_000


@pytest.mark.slow
def test_on_a_full_disk_reads_go_on_writes_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with (
        KeyplanServer(f"lmdb:{folder}", "--app", "etcd-v2", "--app", "etcd-v3") as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.put("/v2/keys/kept/first", data={"value": "1"}).status_code == 201
        acknowledged = {"/kept/first"}
        with full_disk(server.process.pid, file_bytes_max=largest_file_bytes(folder)):
            while (
                refused := client.put(f"/v2/keys/kept/{len(acknowledged)}", data={"value": "x" * 20_000})
            ).is_success:
                acknowledged.add(f"/kept/{len(acknowledged)}")
                assert len(acknowledged) < _WRITES_MAX
            assert (refused.status_code, refused.json()["errorCode"]) == (500, 300)
            put = {"key": b64encode(b"/v3").decode(), "value": b64encode(b"x" * 20_000).decode()}
            refused = client.post("/v3/kv/put", json=put)
            assert (refused.status_code, refused.json()["code"]) == (503, 14)
            # What reads, reads.
            assert client.get("/v2/keys/kept/first").json()["node"]["value"] == "1"
            assert client.get("/v2/keys/kept/none").status_code == 404
            (found,) = client.post("/v3/kv/range", json={"key": b64encode(b"/kept/first").decode()}).json()["kvs"]
            assert found["value"] == b64encode(b"1").decode()
            assert client.get("/health").status_code == 200
            refused = client.get("/v2/keys/kept?recursive=true&sorted=true")
            assert {node["key"] for node in refused.json()["node"]["nodes"]} == acknowledged
        # There is room again: nobody has to be started anew.
        assert client.put("/v2/keys/kept/last", data={"value": "1"}).status_code == 201
        assert client.post("/v3/kv/put", json=put).status_code == 200
        listed = client.get("/v2/keys/kept?recursive=true").json()["node"]["nodes"]
        assert {node["key"] for node in listed} == acknowledged | {"/kept/last"}


def test_a_changed_access_file_counts_without_its_line_which_comes_before_any_change(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / "access.toml"

    def write(text: str) -> None:
        nonlocal now
        now += 2
        path.write_text(text)
        path.chmod(0o600)

    write("[principals.ada]\n")
    file = AccessFile(path, monotonic=lambda: now)
    with AuditLog(tmp_path / "log", wall=lambda: 0.0, syncs=False) as log:
        note_access_file(log, file)
        log.append(Event.BEGUN, who="ada").result()
        with full_disk(os.getpid(), file_bytes_max=(tmp_path / "log").stat().st_size + 20):
            write("[principals.bob]\n")
            assert (file.policy.named("ada"), file.policy.named("bob") is None) == (None, False)
            with pytest.raises(AuditLogError, match="nothing was changed"):
                log.append(Event.BEGUN, who="bob").result()
        log.append(Event.BEGUN, who="bob").result()
    told = [
        (line.record.event, line.record.who or line.record.subject)
        for line in read_lines([tmp_path / "log"])
        if line.record
    ]
    assert told[1:-1] == [("begun", "ada"), ("done", "ada"), ("done", "bob"), ("begun", "bob")]
