"""`keyplan jobs`: every kind of work that was killed is listed, and the printed command goes on with it, from anywhere.

And a signal: it ends every kind between two batches, with the command that goes on.
"""

import json
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from msgspec import structs

import keyplan
from keyplan.apps.runm.deployment import Deployment
from keyplan.cli.registries import RegistryOptions
from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, Put, WrappedEngine, open_engine
from keyplan.keyspace import KeySpaces, open_key_space
from keyplan.keyspace.rows import key_of
from keyplan.maintenance import JobKind, open_jobs, unfinished_work
from keyplan.maintenance.claims import CLAIM_FORM, Claim, prefix_claim
from keyplan.maintenance.migration.marks import STATE_FORM, state_key
from keyplan.store import IndexStateKey, IndexStates
from tests.apps.runm.partitions import DOOMED, filled_partition
from tests.cli.conftest import SITE, Keyplan
from tests.cli.layouts import Box, Shelf, Site
from tests.maintenance import evolving

LAYOUTS: Final = "tests.maintenance.evolving"
HUNG_UP: Final = 129
INTERRUPTED: Final = 130
TERMINATED: Final = 143

Prepare: TypeAlias = Callable[[Keyplan], list[str]]
"""Makes what a command needs in the working directory, the store of the job being ./store.kv, and returns its words."""


class Dying(WrappedEngine):
    """The process is killed instead of making one of its commits."""

    left = 0

    def commit(self, commit: Commit) -> int:
        if not Dying.left:
            raise KeyboardInterrupt
        Dying.left -= 1
        return self.inner.commit(commit)


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    def opened(*arguments: Any, **options: Any) -> Engine:
        return Dying(open_engine(*arguments, **options))

    with monkeypatch.context() as patch:
        patch.setattr("keyplan.cli.options.open_engine", opened)
        Dying.left = number
        yield


class Told(WrappedEngine):
    """Signals come while one of the commits is under way. `after` counts the commits behind that one."""

    left = 0
    after = 0
    come: tuple[signal.Signals, ...] = ()

    def commit(self, commit: Commit) -> int:
        Told.left -= 1
        Told.after += Told.left < -1
        if Told.left == -1:
            for number in self.come:
                signal.raise_signal(number)
        return self.inner.commit(commit)


@contextmanager
def told_at(monkeypatch: pytest.MonkeyPatch, number: int, *signals: signal.Signals) -> Iterator[None]:
    def opened(*arguments: Any, **options: Any) -> Engine:
        return Told(open_engine(*arguments, **options))

    with monkeypatch.context() as patch:
        patch.setattr("keyplan.cli.options.open_engine", opened)
        patch.setattr(Told, "come", signals)
        Told.left, Told.after = number, 0
        yield


def content(url: str) -> list[tuple[bytes, bytes]]:
    """What the store holds but for what keyplan keeps itself."""
    with keyplan.open(url) as store, store.engine.snapshot() as snapshot:
        return [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS) if not entry.key.startswith(b"\x00k")]


def boxes_in(url: str) -> None:
    with keyplan.open(url) as store:
        for number in range(1, 7):
            Site(store).boxes.insert(Shelf("a", number), Box(f"box{number}", number, tags=["red"]))
            Site(store).notes.insert(f"note{number}", "x" * 200_000)


def copied(_run: Keyplan) -> list[str]:
    boxes_in("lmdb:./source.kv")
    return ["copy", "--from", "lmdb:./source.kv", "--to", "lmdb:./store.kv", "--prefix", "/site/"]


def restored(run: Keyplan) -> list[str]:
    boxes_in("lmdb:./source.kv")
    assert run("backup", "a.kpb", "--store", "lmdb:./source.kv", "--prefix", "/site/").code == 0
    return ["restore", "a.kpb", "--store", "lmdb:./store.kv", "--layout", SITE]


def overwritten(run: Keyplan) -> list[str]:
    with keyplan.open("lmdb:./store.kv") as store:
        Site(store).notes.insert("old", "goes")
    return [*restored(run), "--overwrite"]


def spaces_in(url: str) -> None:
    with keyplan.open(url) as store:
        for name in ("orders", "users"):
            KeySpaces(store.engine).create(name, "shop")
            with keyplan.open(url) as other, open_key_space(other.engine, name, "shop") as space:
                Site(space).notes.insert("a", "b" * 1_000)


def spaces_restored(run: Keyplan) -> list[str]:
    spaces_in("lmdb:./source.kv")
    assert run("keyspace", "backup", "full.kpb", "--store", "lmdb:./source.kv").code == 0
    return ["keyspace", "restore", "full.kpb", "--store", "lmdb:./store.kv"]


def migrated(phase: str = "run") -> Prepare:
    def prepare(run: Keyplan) -> list[str]:
        with keyplan.open("lmdb:./store.kv") as store, evolving.Old(store).transaction() as old:
            for number in range(3):
                old.boxes.insert(evolving.Shelf("a", number), evolving.Box(f"box{number}", ["red"]))
        names = ["--from", f"{LAYOUTS}:Old", "--to", f"{LAYOUTS}:Moved"]
        options = [*names, "--store", "lmdb:./store.kv", "--yes"]
        if phase == "finish":
            assert run("migrate", "switch", *options).code == 0
        return ["migrate", phase, *options]

    return prepare


def built(run: Keyplan) -> list[str]:
    boxes_in("lmdb:./store.kv")
    at = ["--store", "lmdb:./store.kv", "--layout", SITE]
    assert run("index", "drop", "by_name", *at).code == 0
    return ["index", "build", "by_name", *at, "--pace", "100000"]


def dropped(_run: Keyplan) -> list[str]:
    boxes_in("lmdb:./store.kv")
    return ["index", "drop", "by_name", "--store", "lmdb:./store.kv", "--layout", SITE]


def swept(run: Keyplan) -> list[str]:
    spaces_in("lmdb:./store.kv")
    at = ["--store", "lmdb:./store.kv"]
    assert run("keyspace", "config", "max-client-lease-seconds=0", *at).code == 0
    assert run("keyspace", "delete", "users", "--yes", *at).code == 0
    return ["keyspace", "sweep", *at]


def reindexed(_run: Keyplan) -> list[str]:
    with keyplan.open("lmdb:./store.kv"):
        pass
    return ["runm", "reindex", "--root", "/a/runm/metadata/", "--store", "lmdb:./store.kv"]


def removed(_run: Keyplan) -> list[str]:
    with keyplan.open("lmdb:./store.kv") as store:
        filled_partition(Deployment(store))
    return ["runm", "remove", "doomed", "--yes", "--root", "runm/metadata/", "--store", "lmdb:./store.kv"]


def indexed(_run: Keyplan) -> list[str]:
    with keyplan.open("lmdb:./store.kv"):
        pass
    return ["cloudchamber", "index", "--namespace", "Test/t", "--store", "lmdb:./store.kv"]


STORIES: Final = [
    pytest.param(JobKind.COPY, copied, 3, id="copy"),
    pytest.param(JobKind.RESTORE, restored, 3, id="restore"),
    pytest.param(JobKind.RESTORE, overwritten, 3, id="restore-overwrite"),
    pytest.param(JobKind.RESTORE, spaces_restored, 4, id="keyspace-restore"),
    pytest.param(JobKind.MIGRATION, migrated(), 2, id="migrate"),
    pytest.param(JobKind.MIGRATION, migrated("switch"), 3, id="migrate-switch"),
    pytest.param(JobKind.MIGRATION, migrated("finish"), 3, id="migrate-finish"),
    pytest.param(JobKind.INDEX, built, 4, id="index-build"),
    pytest.param(JobKind.INDEX, dropped, 1, id="index-drop"),
    pytest.param(JobKind.DELETION, swept, 2, id="keyspace-sweep"),
    pytest.param(JobKind.INDEX, reindexed, 4, id="runm-reindex"),
    pytest.param(JobKind.APPLICATION, removed, 4, id="runm-remove"),
    pytest.param(JobKind.INDEX, indexed, 4, id="cloudchamber-index"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "prepare", "least"), STORIES)
def test_what_is_killed_at_any_commit_goes_on_with_the_printed_command(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: JobKind, prepare: Prepare, least: int
) -> None:
    ends: list[tuple[list[tuple[bytes, bytes]], object]] = []
    count = 0
    for number in range(60):
        home = tmp_path / str(number)
        home.mkdir()
        monkeypatch.chdir(home)
        command = prepare(run)
        with killed_at(monkeypatch, number):
            answer = run(*command)
        store = f"lmdb:{home}/store.kv"
        if answer.code == INTERRUPTED:
            monkeypatch.chdir(tmp_path)
            jobs = run("jobs", "--json", "--store", store).documents if Path(f"{home}/store.kv").exists() else []
            count += bool(jobs)
            for job in jobs:
                assert (job["kind"], job["problem"], job["remedy"]) == (kind, None, None)
                assert run(*shlex.split(job["command"])[1:]).code == 0, job["command"]
            if jobs:
                ends.append((content(store), left_open(run, store)))
            continue
        assert answer.code == 0, answer.err
        assert count >= least
        assert ends == [(content(store), left_open(run, store))] * count
        return
    pytest.fail("the command does not end")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "prepare", "least"), STORIES)
def test_what_is_told_to_stop_ends_between_two_batches_and_goes_on_with_the_command_that_it_prints(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: JobKind, prepare: Prepare, least: int
) -> None:
    ends: list[tuple[list[tuple[bytes, bytes]], object]] = []
    stopped = 0
    numbers = sorted({0, 1, least, 2 * least, 100})
    for number in numbers:
        home = tmp_path / str(number)
        home.mkdir()
        monkeypatch.chdir(home)
        command = prepare(run)
        with told_at(monkeypatch, number, signal.SIGTERM):
            answer = run(*command)
        store = f"lmdb:{home}/store.kv"
        if answer.code == TERMINATED:
            # Why one: a batch of an index is taken by one commit and written by the next.
            assert Told.after <= 1, "another batch was begun after the signal"
            again = re.search(r"the work was stopped before its end: .*`(keyplan .*)` goes on with it", answer.err)
            assert again is not None, answer.err
            monkeypatch.chdir(tmp_path)
            assert {job["kind"] for job in run("jobs", "--json", "--store", store).documents} == {kind}
            assert run(*shlex.split(again[1])[1:]).code == 0, again[1]
            stopped += 1
        else:
            assert answer.code == 0, answer.err
        ends.append((content(store), left_open(run, store)))
    assert stopped
    assert ends == ends[-1:] * len(numbers)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGHUP, HUNG_UP)])
def test_ctrl_c_and_the_end_of_the_terminal_stop_too_and_the_error_is_json_where_that_is_asked_for(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    command = copied(run)
    # Why: a test that runs in the background of a shell, or under nohup, has it ignored.
    before = signal.signal(number, signal.default_int_handler)
    try:
        with told_at(monkeypatch, 1, number):
            answer = run(*command, "--json")
    finally:
        signal.signal(number, before)
    assert answer.code == code
    error = json.loads(answer.err.splitlines()[-1])
    here = Path.cwd()
    again = f"keyplan copy --from lmdb:{here}/source.kv --prefix /site/ --to lmdb:{here}/store.kv"
    assert (error["code"], error["facts"]["problem"]) == ("stopped", "the copy into /site/ is not finished")
    assert error["facts"]["remedy"] == f"`{again}` goes on with it; `keyplan jobs` lists what stands open"


def test_a_second_signal_of_either_kind_ends_the_command_at_once(run: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    command = copied(run)
    with told_at(monkeypatch, 1, signal.SIGINT, signal.SIGTERM):
        answer = run(*command)
    assert answer.code == TERMINATED
    assert "stopped before its end" not in answer.err
    assert Told.after == 0
    [job] = run("jobs", "--json", "--store", "lmdb:./store.kv").documents
    assert run(*shlex.split(job["command"])[1:]).code == 0


def test_the_printed_command_names_the_store_of_the_settings_from_any_folder(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(home)
    restored(run)
    Path("keyplan.toml").write_text('store = "lmdb:./store.kv"\n')
    with told_at(monkeypatch, 1, signal.SIGTERM):
        answer = run("restore", "a.kpb")
    assert answer.code == TERMINATED
    again = re.search(r"`(keyplan .*)` goes on with it", answer.err)
    assert again is not None
    monkeypatch.chdir(elsewhere)
    assert run(*shlex.split(again[1])[1:]).code == 0
    assert content(f"lmdb:{home}/store.kv") == content(f"lmdb:{home}/source.kv")
    assert list(elsewhere.iterdir()) == []


def test_the_printed_command_of_a_removal_names_the_partition_by_what_nobody_else_can_have(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    command = removed(run)
    with told_at(monkeypatch, 1, signal.SIGTERM):
        answer = run(*command)
    assert answer.code == TERMINATED
    assert f"`keyplan runm remove {DOOMED.hex} --yes" in answer.err
    [job] = run("jobs", "--json", "--store", "lmdb:./store.kv").documents
    assert f"keyplan runm remove {DOOMED.hex} --yes" in job["command"]


def test_the_printed_command_names_the_registry_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    def passed_over() -> tuple[str, ...]:
        return RegistryOptions(store="lmdb:./a", server="http://s", token_file=Path("t")).passed_over

    monkeypatch.setenv("KEYPLAN_SERVER", "http://s")
    assert passed_over() == ("server", "token_file"), "a store was typed"
    monkeypatch.setenv("KEYPLAN_STORE", "lmdb:./a")
    assert passed_over() == ("store",), "the environment names both, and a server comes first"


def left_open(run: Keyplan, store: str) -> list[tuple[str, str]]:
    """Which jobs are open, with the last word of what goes on with them."""
    return [(job["kind"], job["stage"]) for job in run("jobs", "--json", "--store", store).documents]


# ---- what is printed ---------------------------------------------------------------------------------------------------------


def write(url: str, *mutations: Put | Delete) -> None:
    with keyplan.open(url) as store:
        store.engine.commit(Commit((), mutations))


def test_a_store_without_open_work_says_so(site: Keyplan) -> None:
    assert site("jobs").lines == ["no job is open"]
    assert site("jobs", "--json").out == ""


def test_a_job_is_told_in_words(run: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    command = copied(run)
    with killed_at(monkeypatch, 2):
        assert run(*command).code == INTERRUPTED
    answer = run("jobs", "--store", "lmdb:./store.kv")
    assert answer.lines[0] == "copy into /site/"
    assert "is there" in answer.lines[1]
    assert "; begun at " in answer.lines[1]
    here = Path.cwd()
    goes_on = f"keyplan copy --from lmdb:{here}/source.kv --prefix /site/ --to lmdb:{here}/store.kv"
    assert answer.lines[2] == f"  goes on with: {goes_on}"
    said = run("count", "boxes", "--store", "lmdb:./store.kv", "--layout", SITE).err
    assert f"goes on with `{goes_on}`" in said
    again = run("copy", "--from", "lmdb:./store.kv", "--to", "lmdb:./third.kv")
    assert f"goes on with `{goes_on}`" in again.err


NO_TEXT: Final = "b\udcff"
"""The byte ff, as Python has it in the name of a file."""


def test_a_backup_whose_name_is_no_text_is_restored_and_its_job_is_told_without_a_command(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes_in("lmdb:./source.kv")
    assert run("backup", NO_TEXT, "--store", "lmdb:./source.kv").code == 0
    command = ["restore", NO_TEXT, "--store", "lmdb:./store.kv"]
    with killed_at(monkeypatch, 2):
        assert run(*command).code == INTERRUPTED
    [job] = run("jobs", "--json", "--store", "lmdb:./store.kv").documents
    assert (
        job["command"],
        f"give `keyplan restore FILE --store lmdb:{Path.cwd()}/store.kv` of the backup" in job["remedy"],
    ) == (None, True)
    assert run(*command).code == 0
    assert content("lmdb:./store.kv") == content("lmdb:./source.kv")


def test_a_copy_goes_on_from_anywhere_whose_folder_is_no_text(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / NO_TEXT
    home.mkdir()
    monkeypatch.chdir(home)
    command = copied(run)
    with killed_at(monkeypatch, 2):
        assert run(*command).code == INTERRUPTED
    [job] = run("jobs", "--json", "--store", "lmdb:./store.kv").documents
    monkeypatch.chdir(tmp_path)
    assert "%FF" in job["command"]
    assert run(*shlex.split(job["command"])[1:]).code == 0
    assert run("jobs", "--store", f"lmdb:{tmp_path}/b%FF/store.kv").lines == ["no job is open"]


def test_work_within_a_key_space_is_listed_with_its_name(run: Keyplan) -> None:
    spaces_in("lmdb:./store.kv")
    at = ["--store", "lmdb:./store.kv", "--layout", SITE, "--keyspace", "orders"]
    assert run("index", "drop", "by_name", *at).code == 0
    [job] = run("jobs", "--json", "--store", "lmdb:./store.kv").documents
    assert (job["kind"], job["keyspace"]) == ("index", "orders")
    assert run(*shlex.split(job["command"])[1:]).code == 0
    assert run("jobs", "--store", "lmdb:./store.kv").lines == ["no job is open"]


def test_what_a_program_began_is_told_with_what_is_to_be_done(site: Keyplan) -> None:
    with keyplan.open(f"lmdb:{Path.cwd()}/site.kv") as store:
        for name, claim in (
            (b"/c/", Claim(kind="copy", source="lmdb:/other.kv", begun_at="2026-11-22T00:00:00Z")),
            (b"/r/", Claim(kind="restore", source="backup-7", begun_at="2026-11-22T00:00:00Z")),
        ):
            store.engine.commit(Commit((), (Put(prefix_claim(name), CLAIM_FORM.encode(claim)),)))
        found = {job.subject: job for job in open_jobs(store)}
        assert found["into /c/"].command == ("copy", "--from", "lmdb:/other.kv", "--prefix", "/c/")
        words = "`keyplan restore FILE --prefix /r/ --store URL` of the backup backup-7"
        assert found["into /r/"].remedy == f"give {words}"
        with store.engine.snapshot() as snapshot:
            told = dict(unfinished_work(snapshot, [b"/"]))
        assert told[b"/r/"].endswith(f" goes on with {words}")
        assert told[b"/c/"].endswith(f" goes on with `{found['into /c/'].command_line()}`")
        for name in (b"/c/", b"/r/"):
            store.engine.commit(Commit((), (Delete(prefix_claim(name)),)))


def test_a_migration_whose_stage_nobody_knows_is_a_line_all_the_same(run: Keyplan) -> None:
    command = migrated()(run)
    assert run(*command).code == 0
    key = state_key(bytes.fromhex(run("migrate", "plan", *command[2:-1], "--json").document["migration"]))
    with keyplan.open("lmdb:./store.kv") as store:
        state = STATE_FORM.decode(store.engine.value(key) or b"")
        store.engine.commit(Commit((), (Put(key, STATE_FORM.encode(structs.replace(state, stage="later"))),)))
    answer = run("jobs", "--json", "--store", "lmdb:./store.kv")
    assert (answer.code, answer.document["stage"]) == (0, "later")


def test_records_that_cannot_be_read_are_lines_with_their_key_and_hide_no_other(site: Keyplan) -> None:
    states = IndexStates.bound().tables["states"].keys
    url = f"lmdb:{Path.cwd()}/site.kv"
    damaged = [prefix_claim(b"/x/"), state_key(b"abcdef"), states.encode(IndexStateKey(b"/site/", "by_name"))]
    assert site("index", "drop", "by_tag").code == 0
    write(url, *(Put(key, b"{brok") for key in damaged))
    answer = site("jobs", "--json")
    assert answer.code == 1
    told = {job["key"]: job for job in answer.documents}
    assert [told[key.hex()]["problem"] is not None for key in damaged] == [True] * 3
    assert all(
        f"`keyplan raw quarantine --hex {key.hex()} --past-fence`" in told[key.hex()]["remedy"] for key in damaged
    )
    [own] = [job for job in answer.documents if job["problem"] is None]
    assert own["command"].startswith("keyplan index build ")
    for key in damaged:
        assert site("raw", "quarantine", "--hex", key.hex(), "--past-fence", "--yes").code == 0
    assert site("jobs").code == 0
    assert site(*shlex.split(own["command"])[1:]).code == 0


def test_a_damaged_deletion_and_a_damaged_key_space_are_lines_too(run: Keyplan) -> None:
    spaces_in("lmdb:./store.kv")
    assert run("keyspace", "delete", "users", "--yes", "--store", "lmdb:./store.kv").code == 0
    write("lmdb:./store.kv", Put(key_of("deletions", "users"), b"{brok"), Put(key_of("records", "orders"), b"{brok"))
    answer = run("jobs", "--json", "--store", "lmdb:./store.kv")
    assert answer.code == 1
    assert [(job["subject"], job["problem"] is None) for job in answer.documents] == [
        ("key space orders", False),
        ("key space users", False),
    ]
    assert all("`keyplan doctor --repair`" in job["remedy"] for job in answer.documents)
