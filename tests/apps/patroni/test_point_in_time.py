"""Backups and a restore to a point in time, with real Patroni, PostgreSQL and pgBackRest; only by what operators see."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.patroni.operated import (
    ROWS,
    backup_folder,
    bind,
    book_of,
    command,
    done,
    faults,
    ids_of,
    now_in,
    operation_of,
    provision,
    superuser_uri,
    why_no_backups,
    write_catalog,
)
from tests.apps.patroni.up_process import UpProcess, psql, up_process
from tests.servers.patroni import until


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where backups go."""
    with backup_folder() as made:
        yield made


@pytest.fixture(scope="module")
def everything(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    problem = why_no_backups()
    if problem is not None:
        pytest.skip(f"needs backups of PostgreSQL clusters: {problem}")
    file = tmp_path_factory.mktemp("catalog") / "catalog.json"
    write_catalog(file, {"folder": str(folder)})
    with up_process(cells=1, settings=[f"catalog={file}"], has_instance_users=False) as process:
        yield process


def unbind(everything: UpProcess, name: str, ids: dict[str, str]) -> None:
    """Take the user back."""
    query = f"service_id={ids['service_id']}&plan_id={ids['plan_id']}"
    assert everything.call("DELETE", f"/v2/service_instances/f1/service_bindings/{name}?{query}")[0] == 200


def _assert_restored_in_place(everything: UpProcess, between: str, bound: tuple[str, str]) -> None:
    """f1 is made again as it was, with the users of the bindings of now; and what it was before comes back."""
    former, latter = bound
    before = superuser_uri(everything, "f1")
    done(everything, f"restore f1 --in-place --to {between} --yes")
    uri = superuser_uri(everything, "f1")
    until(lambda: psql(uri, ROWS) == "1 2", 60, everything.logs)
    assert "password authentication failed" in psql(before, ROWS)
    assert psql(latter, "create table made_since (n int); select 1") == "1"
    assert "password authentication failed" in psql(former, "select 1")
    told = command(everything, "status f1")
    assert "none is verified; a restore would lose" in told
    assert "`restore --back` returns to it" in told

    done(everything, "restore f1 --back --yes")
    assert superuser_uri(everything, "f1") == before
    until(lambda: psql(before, ROWS) == "1 2 3", 60, everything.logs)
    assert psql(latter, "select 1") == "1"
    nodes = [*everything.data.rglob("node.json")]
    done(everything, "restore f1 --finish --yes")
    assert len([file for file in nodes if not file.exists()]) == 1


def _assert_a_bad_backup_is_told_and_a_good_one(everything: UpProcess, folder: Path) -> None:
    """A backup without the end of its log is told before somebody needs it, and one that can be restored."""
    book = book_of(everything)
    (segment,) = folder.glob(f"archive/{book.archive.stanza}/*/*/{book.backups[-1].last_wal}-*")
    away = segment.rename(folder / "away")
    assert "PostgreSQL: FATAL: recovery ended before configured recovery target was reached" in command(
        everything, "verify-backup f1"
    )
    assert {"verification-failed f1", "failed-operation f1"} <= {*faults(everything)}
    away.rename(segment)
    first = book.backups[0].label
    (control,) = folder.glob(f"backup/{book.archive.stanza}/{first}/pg_data/global/pg_control*")
    whole = control.read_bytes()
    control.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "pgbackrest restore: " in command(everything, f"verify-backup f1 --backup {first}")
    assert book_of(everything).verifications[first].problem.startswith("pgbackrest restore: ")
    control.write_bytes(whole)
    done(everything, "verify-backup f1")
    assert [*everything.data.rglob("verification")] == []
    listed = command(everything, "backups f1")
    assert [line.split("\t")[1] for line in listed.splitlines() if "\t" in line] == ["full", "incr"]
    assert "\tverified 2" in listed


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_is_made_again_as_it_was_in_place_and_beside_it_and_what_is_wrong_with_its_backups_is_told(
    everything: UpProcess, folder: Path
) -> None:
    # Why one node: the others of a cluster are made, halted and resumed as in the tests on paper, and take twice as long.
    ids = ids_of(everything, "solo")
    # A plan says where its clusters are backed up: one is made with the first backup.
    provision(everything, "solo")
    former = bind(everything, "b1", "solo")
    uri = superuser_uri(everything, "f1")
    until(lambda: psql(uri, "create table story (n int); select 1") == "1", 60, everything.logs)

    # A role whose place another one has taken has a password that counts no more; in a new cluster it is the first again.
    assert psql(uri, "alter role rewinder valid until '2001-01-01'; insert into story values (1), (2); select 1") == "1"
    between = now_in(everything, uri)
    assert psql(uri, "insert into story values (3); select 1") == "1"
    unbind(everything, "b1", ids)
    _assert_restored_in_place(everything, between, (former, bind(everything, "b2", "solo")))

    # What has come back leads on another timeline, as after a failover.
    assert psql(uri, "insert into story values (4); select 1") == "1"
    # A database of such a name is asked, too, when the backup is verified.
    assert psql(uri, 'create database "- o\'clock"') == ""
    done(everything, "backup f1 --kind incremental")
    assert "begun" in command(everything, f"restore f1 --as f2 --to {between} --no-wait")
    # Why not its end: it needs nothing more of f1 then, and takes a while.
    until(lambda: operation_of(everything, "f2").completed_steps > 1, 60, everything.logs)
    _assert_a_bad_backup_is_told_and_a_good_one(everything, folder)

    assert everything.until_done("f2") == "succeeded", everything.logs()
    restored = superuser_uri(everything, "f2")
    until(lambda: psql(restored, ROWS) == "1 2", 60, everything.logs)
    assert psql(restored, "select rolvaliduntil from pg_roles where rolname = 'rewinder'") == "infinity"
    assert psql(restored, "insert into story values (5); select 1") == "1"
    assert psql(uri, ROWS) == "1 2 3 4"
    assert faults(everything) == []

    # Nobody can write to the repository any more.
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    try:
        assert psql(uri, "insert into story values (6); select 1") == "1"
        # What nobody can read was not tried: it says nothing of the backup, whose verification counts still.
        before = book_of(everything).verifications
        assert "there is no backup" in command(everything, "verify-backup f1")
        assert book_of(everything).verifications == before
        until(lambda: "archive-failing f1" in faults(everything), 60, everything.logs)
    finally:
        away.rename(folder)
    # Why both are written to: PostgreSQL tries again after a minute, or when there is more to archive.
    assert psql(uri, "insert into story values (7); select 1") == "1"
    assert psql(restored, "insert into story values (7); select 1") == "1"
    done(everything, "verify-backup f1")
    until(lambda: faults(everything) == [], 90, everything.logs)
