"""Verifications of backups, on paper: when one is due, who is asked, and what is told of it."""

import pytest

from keyplan.apps.patroni import BookKey, Step
from keyplan.apps.patroni.backups.books import chosen_backup
from keyplan.apps.patroni.backups.plans import BackupPlans
from keyplan.apps.patroni.backups.records import BackupBook, BackupPolicy, TaskAnswer, Verification
from keyplan.apps.patroni.backups.schedule import BackupSchedule, is_verification_due
from keyplan.apps.patroni.backups.verification import settings_told
from keyplan.apps.patroni.clusters import clusters
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import SYSTEM_CLOCK
from tests.apps.patroni.archived import ARCHIVE, POLICY, archived, backup, cells_alive, made_cluster, words
from tests.apps.patroni.paper_cluster import PaperCluster


@pytest.fixture
def cluster() -> PaperCluster:
    return made_cluster()


def test_a_backup_that_could_not_be_restored_is_the_last_choice() -> None:
    torn = Verification(verified_at=1, problem="it is torn")
    book = BackupBook(archive=ARCHIVE, backups=[backup("a", 100), backup("b", 200)], verifications={"b": torn})
    assert chosen_backup(book, None).label == "a"
    book.verifications["a"] = torn
    assert chosen_backup(book, None).label == "b"


def test_each_so_manyth_backup_is_verified_once_and_that_of_a_cluster_that_is_busy_waits(cluster: PaperCluster) -> None:
    policy = BackupPolicy(repository=POLICY.repository, verify_every=2)
    book = BackupBook(archive=ARCHIVE, backups=[backup("a", 100), backup("b", 200)], unverified=1)
    assert not is_verification_due(policy, book)
    book.unverified = 2
    assert is_verification_due(policy, book)
    assert not is_verification_due(BackupPolicy(repository=POLICY.repository, verify_every=0), book)
    # What was tried in vain is told, and not tried again and again: the next backup is.
    book.verifications["b"] = Verification(verified_at=1, problem="it is torn")
    assert not is_verification_due(policy, book)

    now = SYSTEM_CLOCK.wall()
    archived(cluster, backup("x", now - 60))
    key = BookKey("f1", ARCHIVE.stanza)
    found = cluster.broker.backup_books.require(key)
    found.unverified, found.looked_at = POLICY.verify_every, now
    cluster.broker.backup_books.put(key, found)
    schedule = BackupSchedule(cluster.store, SYSTEM_CLOCK)
    assert schedule.begin_due() == ["f1"]
    begun = cluster.broker.operations.require("f1")
    assert (begun.kind, words(begun)) == ("verify-backup", ["verify_backup x"])
    assert schedule.begin_due() == []


def test_a_backup_is_verified_by_a_replica_and_by_the_next_node_where_that_cannot(cluster: PaperCluster) -> None:
    archived(cluster, backup("w", 50), backup("x", 100), backup("y", 150))
    cells_alive(cluster)
    asked: list[tuple[str, str, str]] = []
    torn = {"x": "FATAL: it is torn"}

    def answer() -> None:
        for key, task in list(cluster.broker.tasks.list()):
            asked.append((key.node, task.kind, task.wanted))
            has_room = key.node != "a"
            done = TaskAnswer(id=task.id, state="done", problem=torn.get(task.wanted, ""), seconds=3.0)
            full = TaskAnswer(id=task.id, state="failed", message="there is no room")
            cluster.broker.task_answers.put(key, done if has_room else full)

    cluster.on_pause = answer
    assert cluster.made(Step(kind="verify_backup", target="w")).status == "success"
    assert [*dict.fromkeys(asked)] == [("a", "verify", "w"), ("c", "verify", "w")]
    book = cluster.broker.backup_books.require(BookKey("f1", "f1-ab"))
    assert (book.unverified, book.verifications["w"].problem, book.verifications["w"].seconds) == (2, "", 3.0)
    ended = cluster.made(Step(kind="verify_backup", target="x"))
    assert (ended.status, ended.message.endswith("backup x: FATAL: it is torn")) == ("failed", True)
    (view,) = clusters(cluster.broker)
    assert view.archive is not None
    assert (view.archive.backup, view.archive.verified, view.archive.is_well) == ("y", "w", False)
    found = {fault.kind.value: fault.text for fault in diagnose(cluster.store)}
    assert found["verification-failed"].startswith(
        "x could not be restored: FATAL: it is torn; the last that is verified is w"
    )
    assert list(cluster.broker.tasks.keys()) == list(cluster.broker.task_answers.keys()) == []
    assert cluster.made(Step(kind="verify_backup", target="y")).status == "success"
    assert "verification-failed" not in {fault.kind.value for fault in diagnose(cluster.store)}
    with pytest.raises(RefusedError, match="there is no backup z"):
        BackupPlans(cluster.store, SYSTEM_CLOCK).verify("f1", "z")


def test_the_newest_sound_backup_is_verified_where_none_is_named(cluster: PaperCluster) -> None:
    plans = BackupPlans(cluster.store, SYSTEM_CLOCK)
    archived(cluster, backup("w", 50), backup("x", 100, has_errors=True))
    assert words(plans.verify("f1", is_trial=True)) == ["verify_backup w"]
    # One that is named is tried, whatever its pages are: perhaps it can be restored all the same.
    assert words(plans.verify("f1", "x", is_trial=True)) == ["verify_backup x"]
    archived(cluster, backup("x", 100, has_errors=True))
    with pytest.raises(RefusedError, match="there is no sound backup"):
        plans.verify("f1", is_trial=True)


def test_a_verification_that_no_node_can_make_says_nothing_of_the_backup(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    cells_alive(cluster)

    def answer() -> None:
        for key, task in list(cluster.broker.tasks.list()):
            full = TaskAnswer(id=task.id, state="failed", message="there is no room")
            cluster.broker.task_answers.put(key, full)

    cluster.on_pause = answer
    ended = cluster.made(Step(kind="verify_backup", target="x"))
    assert ended.status == "failed"
    assert ended.message.endswith(
        "the verification of backup x could not be made: a: there is no room; c: there is no room; b: there is no room"
    )
    assert cluster.broker.backup_books.require(BookKey("f1", "f1-ab")).verifications == {}


def test_a_recovery_has_room_for_prepared_transactions_as_the_cluster_had() -> None:
    control = "wal_level setting:                    replica\nmax_prepared_xacts setting:           7\n"
    assert settings_told(
        f"{control}max_locks_per_xact setting:           64\ntrack_commit_timestamp setting:  off\n"
    ) == {
        "max_prepared_transactions": "7",
        "max_locks_per_transaction": "64",
    }
    assert settings_told("pg_controldata: error: no such file") == {}
