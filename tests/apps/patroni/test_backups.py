"""Archives, backups and restores, on paper: how they are judged, begun, asked of cells, and told."""

import os
import shlex
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

from keyplan.apps.patroni import BookKey, NodeKey, NodeOrder, NodeReport, Operation, OrderKey, Step
from keyplan.apps.patroni.backups.access_keys import read_access_keys
from keyplan.apps.patroni.backups.archive import AccessKeys, archiving, pgbackrest_configuration, recovering
from keyplan.apps.patroni.backups.archive_state import (
    ArchiveLook,
    archive_state,
    is_failing,
    led_timeline,
    unsafe_since,
)
from keyplan.apps.patroni.backups.books import chosen_backup
from keyplan.apps.patroni.backups.cli import time_of
from keyplan.apps.patroni.backups.log_gaps import whole_since
from keyplan.apps.patroni.backups.plans import BackupPlans
from keyplan.apps.patroni.backups.records import (
    Archive,
    ArchiveState,
    BackupBook,
    BackupPolicy,
    NodeTask,
    Recovery,
    Repository,
    S3Store,
    TaskAnswer,
    new_archive,
)
from keyplan.apps.patroni.backups.schedule import BackupSchedule, due_kind
from keyplan.apps.patroni.clusters import clusters
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.layout import OUTSIDE
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.codec import Secret
from keyplan.engine import SYSTEM_CLOCK, Commit, Put
from keyplan.errors import InvalidInputError
from tests.apps.patroni.archived import ARCHIVE, POLICY, archived, backup, cells_alive, made_cluster, words
from tests.apps.patroni.paper_cluster import PaperCluster

BUCKET = Repository(folder="/clusters", s3=S3Store(bucket="b", endpoint="s3.example:9000", is_path_style=True))
FIRST, SECOND = "0000000100000000000000A1", "0000000100000000000000A2"


@pytest.fixture
def cluster() -> PaperCluster:
    return made_cluster()


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def segment(data: Path, name: str, made_at: float) -> None:
    file = data / "pg_wal" / "archive_status" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (made_at, made_at))


# ---- what is said of an archive -------------------------------------------------------------------------------------------


def test_what_is_safe_is_told_by_when_the_last_archived_segment_was_complete(tmp_path: Path) -> None:
    segment(tmp_path, f"{FIRST}.done", 100)
    segment(tmp_path, f"{SECOND}.ready", 160)
    segment(tmp_path, f"{FIRST}.00000028.backup.ready", 10)
    found = archive_state(tmp_path, "f1-ab", None)
    assert found == ArchiveState(stanza="f1-ab", last_wal=FIRST, safe_until=100, waiting=1, waiting_since=160)
    # An archive that has caught up after hours has just archived something, and is no newer for that.
    (tmp_path / "pg_wal" / "archive_status" / f"{SECOND}.ready").rename(
        tmp_path / "pg_wal" / "archive_status" / f"{SECOND}.done"
    )
    found = archive_state(tmp_path, "f1-ab", found)
    assert (found.last_wal, found.safe_until, found.waiting) == (SECOND, 160, 0)
    # PostgreSQL removes what is old, and the archive has it still.
    (tmp_path / "pg_wal" / "archive_status" / f"{SECOND}.done").unlink()
    assert archive_state(tmp_path, "f1-ab", found).safe_until == 160
    assert archive_state(tmp_path, "f1-cd", found).safe_until == 100
    assert archive_state(tmp_path / "nowhere", "f1-ab", None) == ArchiveState(stanza="f1-ab")


def test_a_standby_says_nothing_of_the_archive(tmp_path: Path) -> None:
    segment(tmp_path, f"{FIRST}.done", 100)
    (tmp_path / "standby.signal").touch()
    assert archive_state(tmp_path, "f1-ab", None) == ArchiveState(stanza="f1-ab")


def test_who_came_to_lead_says_nothing_of_the_archive_before_somebody_has_looked_there(tmp_path: Path) -> None:
    """PostgreSQL notes all that a standby receives as archived, whether its leader has archived it or died before."""
    segment(tmp_path, f"{FIRST}.done", 100)
    segment(tmp_path, "00000002.history.done", 130)
    segment(tmp_path, f"00000002{SECOND[8:]}.ready", 160)
    former = archive_state(tmp_path, "f1-ab", ArchiveState(stanza="f1-ab", last_wal=FIRST, safe_until=90))
    assert former == ArchiveState(stanza="f1-ab", waiting=1, waiting_since=160)
    for other in (ArchiveLook("f1-cd", 2, "x"), ArchiveLook("f1-ab", 3, "x")):
        assert archive_state(tmp_path, "f1-ab", former, other).last_wal == ""
    found = archive_state(tmp_path, "f1-ab", former, ArchiveLook("f1-ab", 2, SECOND[8:]))
    assert (found.last_wal, found.safe_until, found.whole_since) == (FIRST, 100, SECOND[8:])
    assert led_timeline(tmp_path) == 2
    (tmp_path / "standby.signal").touch()
    assert led_timeline(tmp_path) == 0


def test_an_archive_is_whole_since_the_first_segment_behind_one_that_it_lacks() -> None:
    def names(timeline: int, *numbers: int) -> list[str]:
        return [f"{timeline:08X}{number // 256:08X}{number % 256:08X}" for number in numbers]

    place = "{:08X}{:08X}".format
    archived = [*names(1, 252, 253, 254, 255), *names(2, 258)]
    assert whole_since(archived, names(1, 256), 2) == place(1, 2), "256 and 257 are in no archive"
    assert whole_since([*archived, *names(1, 256, 257)], [], 2) == place(0, 252)
    assert whole_since(names(1, 4, 5), names(1, 5), 2) == place(0, 4), "nothing of the timeline is archived yet"
    assert whole_since(names(1, 4, 5), names(1, 5, 6), 2) == place(0, 7)
    assert whole_since(names(1, 63, 64), [], 2, segment_bytes=64 * 2**20) == place(0, 63)
    assert whole_since(names(3, 4), names(1, 4), 2) == place(0, 5), "the archive of a timeline that is not this one's"
    assert whole_since([], [], 2) == place(0, 0)


def test_a_backup_is_due_at_once_where_the_log_behind_the_last_one_has_a_gap(cluster: PaperCluster) -> None:
    now = SYSTEM_CLOCK.wall()
    last = replace(backup("x", now - 60), first_wal=FIRST, last_wal=FIRST)
    archived(cluster, last)
    key = BookKey("f1", ARCHIVE.stanza)
    cluster.broker.backup_books.put(key, replace(cluster.broker.backup_books.require(key), looked_at=now))
    schedule = BackupSchedule(cluster.store, SYSTEM_CLOCK)

    def whole(since: str) -> None:
        state = ArchiveState(stanza="f1-ab", last_wal=SECOND, safe_until=now - 5, whole_since=since)
        report = NodeReport(instance="f1", state="running", archive=state)
        cluster.broker.reports.put(OrderKey("cell-b", "b"), report, lease=cluster.lease)

    whole(FIRST[8:])
    assert schedule.begin_due() == []
    (view,) = clusters(cluster.broker)
    assert "in no archive" not in (view.archive.text if view.archive is not None else "")
    whole(SECOND[8:])
    (view,) = clusters(cluster.broker)
    assert view.archive is not None
    assert view.archive.lost_since == last.ended_at
    assert "at most: a part of the log behind it is in no archive" in view.archive.text
    assert "a leader died before its log was archived" in str(diagnose(cluster.store))
    assert schedule.begin_due() == ["f1"]
    assert words(cluster.broker.operations.require("f1")) == ["back_up incr"]


def test_a_restore_loses_what_was_written_since_and_nothing_where_nobody_writes() -> None:
    state = ArchiveState(stanza="f1-ab", last_wal=FIRST, safe_until=1000)
    assert unsafe_since(ARCHIVE, state, 1030) == 1000
    assert unsafe_since(ARCHIVE, state, 1000 + 60 + 61) is None
    waiting = ArchiveState(stanza="f1-ab", last_wal=FIRST, safe_until=1000, waiting=1, waiting_since=1060)
    assert unsafe_since(ARCHIVE, waiting, 9000) == 1000
    assert unsafe_since(ARCHIVE, None, 9000) == 0
    assert [is_failing(ARCHIVE, waiting, now) for now in (1060 + 180, 1060 + 181)] == [False, True]
    assert not is_failing(ARCHIVE, state, 9000)


# ---- which backup -----------------------------------------------------------------------------------------------------------


def test_the_newest_backup_that_had_ended_by_then_is_chosen() -> None:
    book = BackupBook(archive=ARCHIVE, backups=[backup("a", 100), backup("b", 200), backup("c", 300, has_errors=True)])
    assert chosen_backup(book, None).label == "b"
    assert chosen_backup(book, at(500)).label == "b"
    # pgBackRest tells whole seconds: a backup of second 200 may have ended at 200.9.
    assert chosen_backup(book, at(200.95)).label == "a"
    assert chosen_backup(book, at(201)).label == "b"
    with pytest.raises(RefusedError, match="the oldest backup ended at 1970-01-01T00:01:41Z"):
        chosen_backup(book, at(100.5))
    with pytest.raises(RefusedError, match="there is no backup to begin from"):
        chosen_backup(BackupBook(archive=ARCHIVE), None)


def test_a_time_says_its_zone() -> None:
    assert time_of("2026-11-24T02:13:05Z") == time_of("2026-11-24T03:13:05+01:00")
    with pytest.raises(InvalidInputError, match="has no time zone"):
        time_of("2026-11-24T02:13:05")
    with pytest.raises(InvalidInputError, match="is no time"):
        time_of("yesterday")


# ---- what pgBackRest and Patroni are told -----------------------------------------------------------------------------------


def test_a_bucket_is_opened_with_the_cells_keys_and_by_many_at_a_time() -> None:
    keys = AccessKeys(Secret("AK"), Secret("SK"))
    archive = Archive(stanza="f1-ab", policy=BackupPolicy(repository=BUCKET, keep=7))
    text = pgbackrest_configuration(archive, keys, home=Path("/n/home"), port=5433, user="postgres")
    lines = text.splitlines()
    for line in ("repo1-type=s3", "repo1-s3-key=AK", "repo1-s3-key-secret=SK", "repo1-s3-uri-style=path"):
        assert line in lines
    assert {"repo1-retention-full=7", "archive-async=y", "spool-path=/n/home/pgbackrest/spool"} <= set(lines)
    assert lines[-4:] == ["[f1-ab]", "pg1-path=/n/home/data", "pg1-port=5433", "pg1-user=postgres"]
    folder = pgbackrest_configuration(ARCHIVE, AccessKeys(), home=Path("/n/home"), port=5433, user="postgres")
    assert "repo1-path=/srv/backups" in folder.splitlines()
    assert "s3" not in folder


def test_a_recovery_follows_the_latest_history_and_leads_from_its_time_on() -> None:
    recovery = Recovery(archive=ARCHIVE, label="20261124-021137F", target="2026-11-24 02:13:05.000000+00")
    told = recovering(recovery, folder=Path("/n"), roles=["postgres", "replicator"])
    settings = told[told["method"]]["recovery_conf"]
    assert settings["recovery_target_time"] == "2026-11-24 02:13:05.000000+00"
    assert (settings["recovery_target_timeline"], settings["recovery_target_action"]) == ("latest", "promote")
    assert "--set=20261124-021137F" in told[told["method"]]["command"].split()
    assert "IN ('postgres', 'replicator')" in shlex.split(told["post_bootstrap"])[-1]
    everything = recovering(Recovery(archive=ARCHIVE, label="x"), folder=Path("/n"), roles=[])["pgbackrest"][
        "recovery_conf"
    ]
    assert "recovery_target_time" not in everything


@pytest.mark.parametrize("folder", ["", "backups", "/srv/../etc", "/srv/", "/srv\nrepo1-cipher-pass=x"])
def test_a_folder_that_is_no_absolute_path_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        Repository(folder=folder)


def test_a_part_of_a_buckets_place_with_white_space_is_refused() -> None:
    with pytest.raises(ValueError, match="white space"):
        Repository(folder="/x", s3=S3Store(bucket="b\nrepo1-path=/", endpoint="e"))


def test_keys_come_from_a_private_file_or_a_command(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("AK\nSK\n")
    file.chmod(0o600)
    assert read_access_keys(str(file)) == (Secret("AK"), Secret("SK"))
    assert read_access_keys("command:printf 'AK\\nSK\\n'") == (Secret("AK"), Secret("SK"))
    for source, problem in (
        ("command:echo one", "two lines"),
        ("command:false", "ended with 1"),
        ("command:/nowhere/at-all", "cannot be run"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            read_access_keys(source)
    file.chmod(0o644)
    with pytest.raises(InvalidInputError, match="chmod 600"):
        read_access_keys(str(file))


def test_archives_of_one_instance_have_names_of_their_own_that_are_names_of_files() -> None:
    names = {new_archive("a/b c" * 50, POLICY).stanza for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) < 60 and "/" not in name and " " not in name for name in names)


# ---- how it begins ----------------------------------------------------------------------------------------------------------


def test_a_cluster_that_archived_nothing_is_restarted_with_the_leader_last_and_backed_up(cluster: PaperCluster) -> None:
    plans = BackupPlans(cluster.store, SYSTEM_CLOCK)
    begun = plans.archive("f1", POLICY)
    restarts = [step.node for step in begun.steps if step.kind == "restart"]
    assert restarts == ["a", "c", "b"]
    assert (words(begun)[:2], words(begun)[-1]) == (["equip", "configure"], "back_up full")
    assert begun.configuration["postgresql"]["parameters"]["archive_mode"] == "on"
    assert cluster.broker.operations.require("f1").archive == begun.archive


def test_a_cluster_whose_nodes_no_cell_runs_is_backed_up_by_others(cluster: PaperCluster) -> None:
    cluster.broker.nodes.put(NodeKey("f1", "a"), OUTSIDE)
    with pytest.raises(RefusedError, match="no cell runs a: others back it up"):
        BackupPlans(cluster.store, SYSTEM_CLOCK).archive("f1", POLICY)


def test_other_numbers_of_an_archive_are_told_and_nothing_is_restarted(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    cluster.broker.configurations.put("f1", archiving(ARCHIVE))
    plans = BackupPlans(cluster.store, SYSTEM_CLOCK)
    changed = BackupPolicy(repository=POLICY.repository, keep=5)
    same = plans.archive("f1", changed, is_trial=True)
    assert words(same) == ["equip", "configure"]
    assert same.archive == Archive(stanza="f1-ab", policy=changed)
    moved = plans.archive("f1", BackupPolicy(repository=BUCKET), is_trial=True)
    assert words(moved) == ["equip", "configure", "back_up full"]
    assert moved.archive is not None
    assert moved.archive.stanza != "f1-ab"


def test_an_archive_that_failed_halfway_restarts_who_waits_and_makes_its_first_backup_when_it_is_asked_for_again(
    cluster: PaperCluster,
) -> None:
    archived(cluster)
    cluster.broker.configurations.put("f1", archiving(ARCHIVE))
    cluster.say("b", pending_restart=True)
    again = BackupPlans(cluster.store, SYSTEM_CLOCK).archive("f1", POLICY, is_trial=True)
    assert again.archive == ARCHIVE
    assert [step.node for step in again.steps if step.kind == "restart"] == ["a", "c", "b"]
    assert words(again)[-1] == "back_up full"


def test_a_restore_makes_another_instance_from_the_backup_and_the_time(cluster: PaperCluster) -> None:
    archived(cluster, backup("old", 100), backup("new", 2000))
    cluster.broker.configurations.put("f1", {"ttl": 33, "pause": True})
    plans = BackupPlans(cluster.store, SYSTEM_CLOCK)
    assert plans.restore_as("f1", "f2", at(150), is_trial=True).kind == "provision"
    assert not cluster.broker.instances.exists("f2")
    begun = plans.restore_as("f1", "f2", at(150))
    assert [step.kind for step in begun.steps] == [
        *("flush", "allocate", "add", "add", "wait_recovered", "wait_members", "wait_leader", "back_up")
    ]
    state = cluster.broker.instances.require("f2")
    assert state.recovery == Recovery(
        archive=ARCHIVE, label="old", target="1970-01-01 00:02:30.000000+00", configuration={"ttl": 33}
    )
    assert state.archive is not None
    assert state.archive.stanza.startswith("f2-")
    assert state.superuser_credentials.password.reveal()
    with pytest.raises(RefusedError, match="there is an instance f2"):
        plans.restore_as("f1", "f2", at(150))
    with pytest.raises(RefusedError, match="is yet to come"):
        plans.restore_as("f1", "f3", at(SYSTEM_CLOCK.wall() + 60))
    with pytest.raises(RefusedError, match="nothing is known of backups of f9"):
        plans.restore_as("f9", "f3", None)


def test_an_instance_that_was_deleted_is_restored_from_what_is_known_of_its_backups(cluster: PaperCluster) -> None:
    archived(cluster, backup("a", 100))
    cluster.broker.instances.delete("f1")
    cluster.broker.leaders.delete("f1")
    begun = BackupPlans(cluster.store, SYSTEM_CLOCK).restore_as("f1", "f1b", None)
    assert [step.kind for step in begun.steps[:3]] == ["allocate", "add", "add"]
    assert begun.plan_id == "p"


def test_an_instance_without_an_archive_is_not_backed_up(cluster: PaperCluster) -> None:
    with pytest.raises(RefusedError, match="the instance has no archive"):
        BackupPlans(cluster.store, SYSTEM_CLOCK).back_up("f1", "full")


# ---- by the clock ---------------------------------------------------------------------------------------------------------


def test_a_backup_is_due_when_the_last_one_is_old_and_a_full_one_when_the_last_full_one_is() -> None:
    hour = 3600.0
    policy = BackupPolicy(repository=POLICY.repository, every_hours=24, full_every_hours=168)
    full, later = backup("f", 1000), backup("i", 1000 + 160 * hour)
    later.kind = "incr"
    began = full.began_at
    assert due_kind(policy, BackupBook(archive=ARCHIVE, backups=[full]), began + 23.9 * hour) is None
    assert due_kind(policy, BackupBook(archive=ARCHIVE, backups=[full]), began + 24 * hour) == "incr"
    assert due_kind(policy, BackupBook(archive=ARCHIVE, backups=[full, later]), began + 170 * hour) is None
    assert due_kind(policy, BackupBook(archive=ARCHIVE, backups=[full, later]), began + 190 * hour) == "full"
    assert due_kind(policy, BackupBook(archive=ARCHIVE), began) == "full"
    ahead = BackupBook(archive=ARCHIVE, backups=[full, backup("a", began + 9_999 * hour)], looked_at=began + hour)
    assert due_kind(policy, ahead, began + 24 * hour) is None
    assert due_kind(policy, ahead, began + 25 * hour) == "incr", "the clock of the machine that made it was ahead"
    never = BackupPolicy(repository=POLICY.repository, every_hours=0)
    assert due_kind(never, BackupBook(archive=ARCHIVE), began) is None


def test_what_is_due_is_begun_once_and_not_while_something_goes_on_or_has_just_failed(cluster: PaperCluster) -> None:
    schedule, operations = BackupSchedule(cluster.store, SYSTEM_CLOCK), cluster.broker.operations
    assert schedule.begin_due() == []
    archived(cluster, backup("x", 1000))
    state = cluster.broker.instances.require("f1")
    broken = replace(state, instance_id="f0", archive=replace(ARCHIVE, stanza="f0"))
    cluster.broker.instances.put("f0", broken)
    cluster.broker.backup_books.put(BookKey("f0", "f0"), BackupBook(archive=ARCHIVE, backups=[backup("x", 1000)]))
    operations.put("f0", Operation(id="p", kind="provision", status="success"))
    cluster.store.engine.commit(Commit(mutations=(Put(b"/service/f0/leader", b"\xff"),)))
    assert schedule.begin_due() == ["f1"], "a record of another instance that cannot be read keeps none from its backup"
    cluster.broker.instances.delete("f0")
    begun = operations.require("f1")
    assert (begun.kind, words(begun)) == ("backup", ["back_up full"])
    assert schedule.begin_due() == []
    begun.status, begun.ended_at = "failed", SYSTEM_CLOCK.wall() - 590
    operations.put("f1", begun)
    assert schedule.begin_due() == []
    begun.ended_at -= 20
    operations.put("f1", begun)
    assert schedule.begin_due() == ["f1"]


# ---- what cells are asked for ---------------------------------------------------------------------------------------------


def test_a_backup_is_asked_of_the_cell_of_the_leader_and_what_it_answers_is_kept(cluster: PaperCluster) -> None:
    archived(cluster)
    cells_alive(cluster)
    asked: list[NodeTask] = []

    def answer() -> None:
        task = cluster.broker.tasks.get(OrderKey("cell-b", "b"))
        if task is not None:
            asked.append(task)
            done = TaskAnswer(id=task.id, state="done", backups=[backup("x", 100)])
            cluster.broker.task_answers.put(OrderKey("cell-b", "b"), done)

    cluster.on_pause = answer
    ended = cluster.made(Step(kind="back_up", target="incr"))
    assert (ended.status, ended.message) == ("success", "done")
    assert (asked[0].kind, asked[0].wanted, asked[0].archive) == ("backup", "incr", ARCHIVE)
    book = cluster.broker.backup_books.require(BookKey("f1", "f1-ab"))
    assert ([each.label for each in book.backups], book.unverified) == (["x"], 1)
    assert list(cluster.broker.tasks.keys()) == list(cluster.broker.task_answers.keys()) == []


def test_whoever_leads_then_is_asked_when_the_leader_changes_in_the_middle(cluster: PaperCluster) -> None:
    archived(cluster)
    cells_alive(cluster)

    def answer() -> None:
        for key, task in list(cluster.broker.tasks.list()):
            failed = TaskAnswer(id=task.id, state="failed", message="unable to find primary cluster")
            done = TaskAnswer(id=task.id, state="done", backups=[backup("x", 100)])
            if key.node == "b":
                cluster.lead("a", 4)
                cluster.follow("b", 4)
            cluster.broker.task_answers.put(key, failed if key.node == "b" else done)

    cluster.on_pause = answer
    assert cluster.made(Step(kind="back_up", target="full")).status == "success"
    assert list(cluster.broker.tasks.keys()) == []


def test_a_backup_that_fails_with_its_leader_in_place_fails_with_its_words(cluster: PaperCluster) -> None:
    archived(cluster)
    cells_alive(cluster)

    def answer() -> None:
        task = cluster.broker.tasks.get(OrderKey("cell-b", "b"))
        if task is not None:
            failed = TaskAnswer(id=task.id, state="failed", message="no space left")
            cluster.broker.task_answers.put(OrderKey("cell-b", "b"), failed)

    cluster.on_pause = answer
    ended = cluster.made(Step(kind="back_up", target="full"))
    assert (ended.status, ended.message.endswith("no space left")) == ("failed", True)


def test_a_cell_that_takes_no_task_on_fails_the_backup(cluster: PaperCluster) -> None:
    archived(cluster)
    ended = cluster.made(Step(kind="back_up", target="full"))
    assert ended.status == "failed"
    assert "cell cell-b does not take it on" in ended.message


def test_all_nodes_are_told_where_to_archive_or_none(cluster: PaperCluster) -> None:

    for node in ("a", "b", "c"):
        cluster.broker.orders.put(OrderKey(f"cell-{node}", node), NodeOrder(instance="f1"))
    report = NodeReport(instance="f1", state="failed", message="postgres cannot write there")
    cluster.broker.reports.put(OrderKey("cell-a", "a"), report, lease=cluster.lease)
    ended = cluster.carried_out(Operation(id="o", kind="archive", steps=[Step(kind="equip")], archive=ARCHIVE))
    assert ended.status == "failed"
    assert "a: postgres cannot write there" in ended.message
    assert [order.archive for _, order in cluster.broker.orders.list()] == [None, None, None]
    for node in ("a", "b", "c"):
        told = NodeReport(instance="f1", state="running", archive=ArchiveState(stanza="f1-ab"))
        cluster.broker.reports.put(OrderKey(f"cell-{node}", node), told, lease=cluster.lease)
    ended = cluster.carried_out(Operation(id="p", kind="archive", steps=[Step(kind="equip")], archive=ARCHIVE))
    assert ended.status == "success"
    assert cluster.broker.instances.require("f1").archive == ARCHIVE
    assert {order.archive for _, order in cluster.broker.orders.list()} == {ARCHIVE}


def test_status_and_doctor_tell_of_a_failing_archive_and_a_lack_of_backups(cluster: PaperCluster) -> None:
    now = SYSTEM_CLOCK.wall()
    archived(cluster, backup("x", now - 5000))
    state = ArchiveState(stanza="f1-ab", last_wal=FIRST, safe_until=now - 4000, waiting=3, waiting_since=now - 3000)
    report = NodeReport(instance="f1", state="running", archive=state)
    cluster.broker.reports.put(OrderKey("cell-b", "b"), report, lease=cluster.lease)
    (view,) = clusters(cluster.broker)
    assert view.archive is not None
    assert "backup x of" in view.archive.text
    assert "a restore would lose what was written since" in view.archive.text
    assert (view.archive.backup, view.archive.lost_seconds(now)) == ("x", 4000)
    found = {fault.kind.value: fault.text for fault in diagnose(cluster.store)}
    assert found["archive-failing"].startswith("3 segments of the leader's log wait, the oldest since")
    assert "no-backup" not in found
    archived(cluster, backup("x", now, has_errors=True))
    (view,) = clusters(cluster.broker)
    assert view.archive is not None
    assert view.archive.text == "no backup: a restore would lose everything"
    assert view.archive.lost_seconds(now) == inf
    assert "no-backup" in {fault.kind.value for fault in diagnose(cluster.store)}
