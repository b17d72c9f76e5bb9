"""The audit log of a server as a process: killed, on a full disk, with its file renamed, beside another one."""

import signal
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import keyplan
from keyplan.audit_log import AuditRecord, Event, read_lines, verified_files
from keyplan.engine import ALL_KEYS
from tests.servers.full_disk import full_disk
from tests.servers.keyplan_server import KeyplanServer
from tests.servers.patroni import until

pytestmark = pytest.mark.slow

GATEWAYS = ("--app", "etcd-v2", "--app", "etcd-v3")


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def put(client: httpx.Client, key: str) -> httpx.Response:
    return client.post("/v3/kv/put", json={"key": b64(key), "value": b64("v")})


def records(log: Path) -> list[AuditRecord]:
    return [line.record for line in read_lines([log]) if line.record is not None]


def audited(log: Path, store: str, *arguments: str) -> KeyplanServer:
    environment = {"KEYPLAN_ADMIN_TOKEN": "an-admin-token-of-a-test"}
    return KeyplanServer(store, *GATEWAYS, "--audit-log", str(log), *arguments, environment=environment)


@pytest.mark.parametrize("sync", ["always", "never"])
def test_a_killed_server_leaves_a_line_for_each_change_that_was_acknowledged(tmp_path: Path, sync: str) -> None:
    log, url = tmp_path / "audit.log", f"lmdb:{tmp_path / 'store'}?durability=none"
    acknowledged: list[str] = []

    def write(writer: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for number in range(10_000):
                key = f"/{writer}/{number}"
                try:
                    answer = put(client, key) if writer % 2 else client.put(f"/v2/keys{key}", data={"value": "v"})
                except httpx.HTTPError:
                    return
                assert answer.is_success, answer.text
                acknowledged.append(key)

    with audited(log, url, "--audit-sync", sync) as server, ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, writer) for writer in range(8)]
        until(lambda: len(acknowledged) >= 300, 120, lambda: server.log)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        for writer in writers:
            writer.result()
    found = records(log)
    done = {one.subject for one in found if one.event is Event.DONE}
    begun = {one.subject for one in found if one.event is Event.BEGUN}
    assert set(acknowledged) <= done
    with keyplan.open(url) as store, store.engine.snapshot() as snapshot:
        stored = {key.decode() for key in snapshot.keys(ALL_KEYS) if key.startswith(b"/")}
    assert done <= stored <= begun
    # The next server goes on with the chain, whatever the kill left.
    with audited(log, url) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert put(client, "/after").is_success
    assert verified_files([log]).is_whole


def test_on_a_full_disk_changes_are_refused_before_they_are_made_and_reads_go_on(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with audited(log, "memory:") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        token = {"Authorization": "Bearer an-admin-token-of-a-test"}
        assert put(client, "/first").is_success
        assert client.put("/v2/keys/second", data={"value": "v"}).is_success
        with full_disk(server.process.pid, file_bytes_max=log.stat().st_size + 10):
            refused = put(client, "/third")
            assert (refused.status_code, refused.json()["code"]) == (503, 14)
            refused = client.put("/v2/keys/third", data={"value": "v"})
            assert (refused.status_code, refused.json()["errorCode"]) == (500, 300)
            refused = client.post("/registry:init", json={}, headers=token)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "audit_log")
            assert "File too large" in refused.text
            assert client.post("/v3/kv/range", json={"key": b64("/first")}).json()["count"] == "1"
            assert "count" not in client.post("/v3/kv/range", json={"key": b64("/third")}).json()
            assert client.get("/v2/keys/second").is_success
            assert client.get("/v2/keys/third").status_code == 404
            assert client.get("/audit-log", headers=token).is_success
        # There is room again: nobody has to be started anew.
        assert put(client, "/fourth").is_success
        assert client.post("/registry:init", json={}, headers=token).is_success
    assert {one.subject for one in records(log)} == {"", "/first", "/second", "/fourth"}
    assert verified_files([log]).is_whole


def test_a_change_whose_end_finds_no_room_is_told_as_made_and_its_line_follows(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with audited(log, "memory:") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert put(client, "/k/1").is_success
        begun = log.read_bytes().splitlines()[-2]
        with full_disk(server.process.pid, file_bytes_max=log.stat().st_size + len(begun) + 10):
            answer = put(client, "/k/2")
            assert (answer.status_code, answer.json()["code"]) == (500, 13)
            assert "it was done" in answer.text
            assert client.post("/v3/kv/range", json={"key": b64("/k/2")}).json()["count"] == "1"
        assert put(client, "/k/3").is_success
    told = [(one.event, one.subject) for one in records(log) if one.act]
    assert told == [(event, f"/k/{key}") for key in (1, 2, 3) for event in (Event.BEGUN, Event.DONE)]
    assert verified_files([log]).is_whole


def test_at_sighup_the_log_goes_on_in_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with audited(log, "memory:") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert put(client, "/k/1").is_success
        log.rename(tmp_path / "audit.log.1")
        assert put(client, "/k/2").is_success
        server.process.send_signal(signal.SIGHUP)
        until(lambda: log.exists() and log.stat().st_size > 0, 60, lambda: server.log)
        assert put(client, "/k/3").is_success
        assert server.process.poll() is None
    old = {one.subject for one in records(tmp_path / "audit.log.1")}
    new = {one.subject for one in records(log)}
    assert (old, new) == ({"", "/k/1", "/k/2"}, {"", "/k/3"})
    assert verified_files([log, tmp_path / "audit.log.1"]).is_whole


def test_a_server_leaves_files_by_their_size_and_shows_all_of_them(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    limits = ("--audit-bytes", "2000", "--audit-keep", "3")
    with audited(log, "memory:", *limits) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for number in range(40):
            assert put(client, f"/k/{number}").is_success
        token = {"Authorization": "Bearer an-admin-token-of-a-test"}
        page = client.get("/audit-log?limit=1000", headers=token).json()
    assert len([*tmp_path.glob("audit.log.*")]) == 3
    verdict = verified_files([log])
    assert (verdict.is_whole, verdict.removed) == (True, verdict.first - 1)
    assert verdict.removed > 0
    numbers = [one["number"] for one in page]
    # Why not those of the files exactly: the last file may have been left since.
    assert numbers == [*range(numbers[0], numbers[-1] + 1)]
    assert len(numbers) > 15
    told = [line for line in server.log.splitlines() if "goes on in a new file" in line]
    assert len(told) > 3


def test_two_servers_do_not_write_one_file(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with audited(log, "memory:") as server:
        with pytest.raises(AssertionError, match=f"process {server.process.pid}, since .* writes this audit log"):
            audited(log, "memory:").start()
        assert httpx.get(f"{server.url}/health").is_success


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--audit-log", "none/audit.log"), "it cannot be opened"),
        (("--audit-log", "."), "it cannot be opened"),
        (("--audit-log", "notes"), "another file"),
        (("--audit-log", "audit.log", "--audit-sync", "often"), "not always or never"),
        (("--audit-sync", "never"), "give --audit-log FILE too"),
        (("--audit-bytes", "1000"), "give --audit-log FILE too"),
        (("--audit-log", "audit.log", "--audit-keep", "2"), "give --audit-bytes N too"),
    ],
)
def test_a_log_that_cannot_be_written_keeps_the_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").write_text("notes\n")
    with pytest.raises(AssertionError, match=problem):
        KeyplanServer("memory:", *arguments).start()
    assert Path("notes").read_text() == "notes\n"


def test_the_servers_log_has_the_head(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with audited(log, "memory:") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert put(client, "/k").is_success
        server.stop()
        heads = [line.partition('"head":"')[2][:64] for line in server.log.splitlines() if '"head":"' in line]
    assert len(heads) == 2
    assert all(verified_files([log], head=head).is_whole for head in heads)
