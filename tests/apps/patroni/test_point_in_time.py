"""Backups and a restore to a point in time, with real Patroni, PostgreSQL and pgBackRest; only by what operators see."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import keyplan
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG
from keyplan.apps.patroni.diagnosis import diagnose
from tests.apps.patroni.up_process import UpProcess, psql, up_process, why_no_up
from tests.servers.patroni import until


def why_no_backups() -> str | None:
    """Why nothing can be backed up here, None when it can."""
    if shutil.which("pgbackrest") is None:
        return "pgBackRest is not installed: apt-get install pgbackrest"
    return why_no_up()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where backups go: a folder of the user that PostgreSQL runs as."""
    made = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / tmp_path_factory.mktemp("backups").name
    made = made.with_name(f"{made.name}-{os.getpid()}")
    made.mkdir()
    if os.geteuid() == 0:
        shutil.chown(made, "postgres")
    return made


@pytest.fixture(scope="module")
def everything(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    problem = why_no_backups()
    if problem is not None:
        pytest.skip(f"needs backups of PostgreSQL clusters: {problem}")
    catalog = msgspec.to_builtins(BUILT_IN_CATALOG)
    for plan in catalog["services"][0]["plans"]:
        plan["backups"] = {"repository": {"folder": str(folder)}, "archive_seconds": 2}
    file = tmp_path_factory.mktemp("catalog") / "catalog.json"
    file.write_text(json.dumps(catalog))
    try:
        with up_process(cells=2, settings=[f"catalog={file}"], has_instance_users=False) as process:
            yield process
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def command(everything: UpProcess, words: str) -> str:
    return everything.bash(f"keyplan patroni {words} --store lmdb:/srv/clusters/store")


def superuser_uri(everything: UpProcess, instance: str) -> str:
    """How to log in as an instance's superuser, at its leader."""
    with keyplan.open(everything.ready["store"]) as store:
        broker = Broker(store)
        state, port = broker.instances.require(instance), broker.allocations.require(instance)
    user = state.superuser_credentials
    return f"postgres://{user.username}:{user.password.reveal()}@127.0.0.1:{port}/postgres?sslmode=require"


def faults(everything: UpProcess) -> list[str]:
    """What the doctor finds."""
    with keyplan.open(everything.ready["store"]) as store:
        return [f"{fault.kind} {fault.subject}" for fault in diagnose(store)]


def _tear(folder: Path, listed: str) -> None:
    """Change bytes in the middle of a file of the last backup."""
    label = [line.partition("\t")[0] for line in listed.splitlines() if "\t" in line][-1]
    (kept,) = folder.glob(f"backup/f1-*/{label}/pg_data")
    file = max(kept.rglob("*.lz4"), key=lambda path: path.stat().st_size)
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes(len(content) - middle))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_is_made_again_as_it_was_before_a_failover_and_a_broken_archive_is_told(
    everything: UpProcess, folder: Path
) -> None:
    service = everything.call("GET", "/v2/catalog")[1]["services"][0]
    plan = next(plan["id"] for plan in service["plans"] if plan["name"] == "pair")
    ids = {"service_id": service["id"], "plan_id": plan, "organization_guid": "o", "space_guid": "s"}
    assert everything.call("PUT", "/v2/service_instances/f1?accepts_incomplete=true", ids)[0] == 202
    assert everything.until_done("f1") == "succeeded", everything.logs()
    uri = superuser_uri(everything, "f1")
    until(lambda: psql(uri, "create table story (n int); select 1") == "1", 60, everything.logs)

    # A plan says where its clusters are backed up: one was made with the first of them.
    listed = command(everything, "backups f1")
    assert "\tfull\t" in listed
    assert "a restore would lose" in listed
    assert "a restore would lose" in command(everything, "status")

    # A role whose place another one has taken has a password that counts no more; in a new cluster it is the first again.
    assert psql(uri, "alter role rewinder valid until '2001-01-01'; insert into story values (1), (2); select 1") == "1"
    between = psql(uri, "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
    assert psql(uri, "insert into story values (3); select 1") == "1"
    assert command(everything, "switchover f1").endswith("keyplan: done\n")
    until(lambda: psql(uri, "insert into story values (4); select 1") == "1", 60, everything.logs)
    # A database of such a name is asked, too, when the backup is verified.
    assert psql(uri, 'create database "- o\'clock"') == ""
    assert command(everything, "backup f1 --kind incremental").endswith("keyplan: done\n")
    told = command(everything, "verify-backup f1")
    assert told.splitlines()[-1] == "keyplan: done", told + everything.logs()
    assert "\tverified 2" in command(everything, "backups f1")
    assert [*everything.data.rglob("verification")] == []

    assert "has no time zone" in command(everything, f"restore f1 --as f2 --to {between.removesuffix('Z')}")
    told = command(everything, f"restore f1 --as f2 --to {between}")
    assert told.splitlines()[-1] == "keyplan: done", told + everything.logs()
    restored = superuser_uri(everything, "f2")
    until(lambda: psql(restored, "select string_agg(n::text, ' ' order by n) from story") == "1 2", 60, everything.logs)
    assert psql(restored, "select rolvaliduntil from pg_roles where rolname = 'rewinder'") == "infinity"
    assert psql(restored, "insert into story values (5); select 1") == "1"
    assert psql(uri, "select string_agg(n::text, ' ' order by n) from story") == "1 2 3 4"
    assert [line.split("\t")[1] for line in command(everything, "backups f1").splitlines() if "\t" in line] == [
        "full",
        "incr",
    ]
    assert command(everything, "doctor") == "Nothing is wrong.\n"

    # A backup that is torn is told before somebody needs it.
    _tear(folder, command(everything, "backups f1"))
    assert "pgbackrest restore: " in command(everything, "verify-backup f1")
    assert {"verification-failed f1", "failed-operation f1"} == {*faults(everything)}
    assert command(everything, "backup f1 --kind full").endswith("keyplan: done\n")
    assert command(everything, "verify-backup f1").endswith("keyplan: done\n")
    assert faults(everything) == []

    # Nobody can write to the repository any more.
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    try:
        assert psql(uri, "insert into story values (6); select 1") == "1"
        until(lambda: "archive-failing f1" in faults(everything), 60, everything.logs)
    finally:
        away.rename(folder)
    # Why written to: PostgreSQL tries again after a minute, or when there is more to archive.
    assert psql(uri, "insert into story values (7); select 1") == "1"
    until(lambda: faults(everything) == [], 90, everything.logs)
