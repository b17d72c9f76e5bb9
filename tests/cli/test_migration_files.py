"""`keyplan migrate` by files: drafted, run, looked at, and refused, as a user types it."""

from pathlib import Path

import pytest

import keyplan
from keyplan.errors import LayoutMismatchError
from keyplan.maintenance import check
from tests.cli.conftest import Keyplan
from tests.maintenance import filed

FILED = "tests.maintenance.filed"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    url = f"lmdb:{tmp_path}/plain.kv"
    with keyplan.open(url) as store:
        plain = filed.Plain(store)
        for number in range(3):
            plain.entries.insert(str(number), filed.Entry(f"title{number}", "ann"))
        plain.notes.insert("n", "note")
    monkeypatch.setenv("KEYPLAN_STORE", url)
    return url


def drafted(run: Keyplan, *layouts: str) -> None:
    run("migrate", "new", layouts[0].lower(), "--from", f"{FILED}:Plain", "--to", f"{FILED}:{layouts[0]}")
    for name in layouts[1:]:
        options = ("--drop", "notes") if name == "Noted" else ()
        assert run("migrate", "new", name.lower(), "--to", f"{FILED}:{name}", *options).code == 0


def test_a_migration_by_a_file_from_its_draft_to_its_end(run: Keyplan, url: str) -> None:
    answer = run("migrate", "new", "moved", "--from", f"{FILED}:Plain", "--to", f"{FILED}:Moved")
    assert answer.lines == ["wrote migrations/0001_moved.py: read it, and commit it with the layout"]
    assert "  entries: 3\n" in Path("migrations/0001_moved.py").read_text()
    assert run("migrate", "status").lines == [
        "0001_moved  due",
        "next: `keyplan migrate run`, beside programs of the old layout",
    ]
    assert run("migrate", "run", "--yes").lines[-2:] == [
        "records: 3 copied",
        "filled: upgrade the programs, then `keyplan migrate switch`",
    ]
    status = run("migrate", "status")
    assert status.lines[0] == "0001_moved  under way, filling"
    assert status.lines[1].endswith(": under way")
    assert status.lines[-1] == "next: `keyplan migrate switch`, when no program writes by the old layout any more"
    assert run("migrate", "switch", "--yes").code == 0
    document = run("migrate", "status", "--json").document
    assert [step["state"] for step in document["steps"]] == ["done", "done", "due"]
    assert (document["stage"], document["next"]) == ("switched", "keyplan migrate finish")
    assert run("migrate", "finish", "--yes").code == 0
    assert run("migrate", "status").lines == ["0001_moved  done", "nothing is due"]
    assert run("migrate", "run", "--yes").lines == ["nothing is due: 1 of 1 migrations are done"]
    assert run("migrate", "plan", "--json").document == {"name": None}
    with keyplan.open(url) as store:
        assert list(check(store, filed.Moved(store))) == []
        assert filed.Moved(store).entries.count() == 3


def test_a_module_that_ends_the_program_is_no_success(run: Keyplan, url: str, tmp_path: Path) -> None:
    drafted(run, "Moved")
    with (tmp_path / "migrations/0001_moved.py").open("a") as file:
        file.write("\nraise SystemExit(0)\n")
    answer = run("migrate", "run", "--yes")
    assert (answer.code, "0001_moved.py:" in answer.err, "SystemExit" in answer.err) == (5, True, True)
    (tmp_path / "ending.py").write_text("import sys\n\nsys.exit()\n")
    answer = run("diff", "--layout", "ending:Site", "--against", f"{FILED}:Plain")
    assert (answer.code, "ending.py:3" in answer.err) == (5, True)


def test_what_is_finished_is_not_rolled_back_and_the_exit_code_says_so(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    for command in ("switch", "finish"):
        assert run("migrate", command, "--yes").code == 0
    for layouts in ((), ("--from", f"{FILED}:Plain", "--to", f"{FILED}:Moved")):
        answer = run("migrate", "rollback", "--yes", *layouts)
        assert (answer.code, "nothing to roll back" in answer.err) == (4, True)


def test_what_keyplan_jobs_prints_goes_on_with_it_from_any_folder(
    run: Keyplan, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drafted(run, "Moved")
    assert run("migrate", "run", "--yes").code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = run("jobs", "--json").document["command"]
    assert command.startswith(f"keyplan migrate run --folder {tmp_path}/migrations ")
    assert run(*command.split()[1:]).code == 0
    assert run("migrate", "switch", *command.split()[3:]).code == 0
    command = run("jobs", "--json").document["command"]
    assert command.startswith("keyplan migrate finish ")
    assert run(*command.split()[1:]).code == 0
    assert run("jobs").lines == ["no job is open"]


def test_several_files_are_planned_as_one_and_it_is_said(run: Keyplan, url: str) -> None:
    drafted(run, "Moved", "Named", "Indexed", "Noted", "Retyped")
    planned = run("migrate", "plan")
    assert planned.code == 0
    assert planned.lines[:2] == [
        "0001_moved to 0004_noted: 4 migrations, planned as one",
        "afterwards 0005_retyped: 0005_retyped has functions, which take records of its own layouts",
    ]
    assert run("migrate", "run", "--yes").code == 0
    states = [line.split("  ")[-1] for line in run("migrate", "status").lines[:5]]
    assert states == ["under way, filling"] * 4 + ["due"]
    assert run("migrate", "switch", "--yes").code == 0
    assert run("migrate", "finish", "--yes").code == 0
    refused = run("migrate", "run", "--yes")
    assert refused.code == 5
    assert "the function articles is not written" in refused.err
    assert "migrations/0005_retyped.py:" in refused.err
    with keyplan.open(url) as store:
        assert filed.Noted(store).by_author.count("ann") == 3


def test_until_ends_the_part_that_is_taken(run: Keyplan, url: str) -> None:
    drafted(run, "Moved", "Named", "Indexed")
    assert run("migrate", "plan", "--until", "2").lines[0] == "0001_moved to 0002_named: 2 migrations, planned as one"
    assert run("migrate", "plan", "--until", "none").code == 5


def test_a_layout_that_has_changed_since_is_refused_with_the_way_out(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    path = Path("migrations/0001_moved.py")
    path.write_text(path.read_text().replace(f"{FILED}:Moved", f"{FILED}:Split"))
    refused = run("migrate", "run", "--yes")
    assert refused.code == 5
    assert f"{FILED}:Split has changed since" in refused.err
    assert "`keyplan migrate new NAME`" in refused.err


def test_options_of_one_way_are_no_options_of_the_other(run: Keyplan, url: str) -> None:
    for wrong in (
        ("--from", f"{FILED}:Plain"),
        ("--to", f"{FILED}:Plain"),
        ("--drop", "notes"),
        ("--from-parameter", "a=b"),
        ("--from", f"{FILED}:Plain", "--to", f"{FILED}:Moved", "--until", "1"),
        ("--from", f"{FILED}:Plain", "--to", f"{FILED}:Moved", "--folder", "migrations"),
    ):
        assert run("migrate", "plan", *wrong).code == 5, wrong
    assert "drafts one" in run("migrate", "plan").err
    assert run("migrate", "new", "x", "--to", f"{FILED}:Moved").code == 5


def test_a_migration_that_needs_no_run_is_done_with_the_one_before(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    for phase in ("switch", "finish"):
        assert run("migrate", phase, "--yes").code == 0
    # The table has another name, and everything stands where it stood.
    assert run("migrate", "new", "named", "--to", f"{FILED}:Named").code == 0
    assert run("migrate", "status").lines[-2:] == ["0002_named  done", "nothing is due"]
    assert run("migrate", "new", "grown", "--to", f"{FILED}:Grown").code == 0
    with keyplan.open(url, layout_check="refuse") as store, pytest.raises(LayoutMismatchError, match="loans"):
        filed.Grown(store)
    assert run("migrate", "run", "--yes").lines == ["nothing is due: 3 of 3 migrations are done"]
    with keyplan.open(url, layout_check="refuse") as store:
        assert [kind(store).notes.count() for kind in (filed.Moved, filed.Named, filed.Grown)] == [1, 1, 1]


def test_what_is_under_way_can_be_rolled_back_and_history_says_so(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    assert run("migrate", "history").lines == []
    assert "the migration was not begun" in run("migrate", "rollback", "--yes").err
    assert run("migrate", "switch", "--yes").code == 0
    with keyplan.open(url) as store:
        filed.Moved(store).entries.put("1", filed.Entry("changed", "bob"))
    answer = run("migrate", "rollback", "--yes")
    assert (answer.code, answer.lines[-1]) == (0, "rolled back: the old layout has everything")
    with keyplan.open(url, layout_check="refuse") as store:
        assert filed.Plain(store).entries.require("1") == filed.Entry("changed", "bob")
        with pytest.raises(LayoutMismatchError, match="0001_moved was rolled back, which led to it"):
            filed.Moved(store)
    with keyplan.open(url, layout_check="off") as store:
        assert filed.Moved(store).entries.count() == 0
    assert run("migrate", "status").lines[0] == "0001_moved  due"
    get = "get", "entries", "1", "--layout", f"{FILED}:Moved"
    assert run(*get, "--layout-check", "refuse").code == 4
    assert "keyplan: the layout is not the one that the store is in" in run(*get).err
    assert "layout is not" not in run(*get, "--layout-check", "off").err
    Path("keyplan.toml").write_text('layout_check = "never"')
    assert "'never' is not warn, refuse, off" in run(*get).err
    Path("keyplan.toml").write_text('layout_check = "refuse"')
    assert run(*get).code == 4
    Path("keyplan.toml").unlink()
    for phase in ("switch", "finish"):
        assert run("migrate", phase, "--yes").code == 0
    past = run("migrate", "history", "--json").documents
    assert [(one["name"], one["is_rolled_back"]) for one in past] == [("0001_moved", True), ("0001_moved", False)]
    rows = [line.split("\t")[1:3] for line in run("migrate", "history", "--layout", f"{FILED}:Plain").lines]
    assert rows == [["rolled back", "0001_moved"], ["done", "0001_moved"]]


def test_a_paused_migration_rests_until_it_is_resumed_in_the_run_that_it_was_in(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    assert run("migrate", "pause").code == 4
    assert run("migrate", "resume", "--yes").code == 4
    assert run("migrate", "run", "--yes").code == 0
    assert run("migrate", "pause").lines == ["0001_moved rests: `keyplan migrate resume` goes on with it"]
    assert run("migrate", "pause").code == 0
    for phase in ("run", "switch", "rollback"):
        refused = run("migrate", phase, "--yes")
        assert refused.code == 130, phase
        assert "was paused at" in refused.err
        assert "`keyplan migrate resume` goes on with it" in refused.err
    (job,) = run("jobs", "--json").documents
    assert job["stage"] == "filling, paused"
    assert job["command"].startswith("keyplan migrate resume --folder ")
    assert run("migrate", "status").lines[-1] == "next: `keyplan migrate resume`"
    assert run(*job["command"].split()[1:]).lines[-1] == "filled: upgrade the programs, then `keyplan migrate switch`"
    assert run("migrate", "switch", "--yes").code == 0
    assert run("migrate", "pause").code == 0
    assert run("migrate", "finish", "--yes").code == 130
    assert run("migrate", "resume", "--yes").lines[-1].startswith("removed 3 records")
    assert run("jobs").lines == ["no job is open"]


def test_a_pace_is_a_number_of_records_or_a_share(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    for wrong in ("0", "-1", "nan", "0%", "101%", "much", "%"):
        refused = run("migrate", "run", "--yes", "--pace", wrong)
        assert refused.code == 5, wrong
        assert "neither a number of records a second" in refused.err
    assert run("migrate", "run", "--yes", "--pace", "1000").code == 0
    assert run("migrate", "switch", "--yes", "--pace", "50%").code == 0


def test_consents_beside_a_file_add_to_what_it_says(run: Keyplan, url: str) -> None:
    drafted(run, "Moved")
    assert run("migrate", "switch", "--yes", "--accept", "gone:entries").code == 0


def test_a_migration_is_tried_on_every_record_before_anything_is_written(run: Keyplan, url: str) -> None:
    drafted(run, "Moved", "Named", "Indexed", "Noted", "Retyped")
    tried = run("migrate", "try", "--until", "3")
    assert (tried.code, tried.lines[1]) == (0, "articles: 3 tried, 3 converted")
    assert "  converted: /f/entries/0 -> /f/articles/0" in tried.lines
    assert tried.lines[-1] == "nothing was written"
    assert run("migrate", "try", "--until", "3", "--sample", "2").lines[1] == "articles: 2 tried, 2 converted"
    assert "notes: 1 dropped" in run("migrate", "try").lines
    assert run("migrate", "try", "--sample", "0").code == 2
    for phase in ("switch", "finish"):
        assert run("migrate", phase, "--yes").code == 0
    path = Path("migrations/0005_retyped.py")
    written = path.read_text().replace("@unwritten", "#")
    made = f"return {FILED}.Typed(record.title, record.author, 5)"
    path.write_text(written.replace("raise NotImplementedError", f"assert record.title != 'title1'; {made}"))
    tried = run("migrate", "try")
    assert (tried.code, tried.lines[1]) == (1, "articles: 3 tried, 2 converted, 1 refused")
    assert "  refused: /f/articles/1" in tried.lines
    assert "    + letters: 5" in tried.lines
    assert not any("title1" in line for line in tried.lines)
    document = run("migrate", "try", "--json").document
    assert document["tables"][0]["refused"] == 1
    with keyplan.open(url) as store:
        assert filed.Noted(store).articles.require("0") == filed.Entry("title0", "ann")
    path.write_text(written.replace("raise NotImplementedError", made))
    assert run("migrate", "try").code == 0


def test_keys_that_collide_and_records_that_are_lost_are_tried_as_well(run: Keyplan, url: str) -> None:
    with keyplan.open(url) as store:
        filed.Plain(store).entries.put("2", filed.Entry("title1", "ann"))
    assert run("migrate", "new", "split", "--from", f"{FILED}:Retyped", "--to", f"{FILED}:Split").code == 0
    path = Path("migrations/0001_split.py")
    made = f"return None if key == '0' else Keyed({FILED}.Byline(record.author, 'one'), record)"
    path.write_text(path.read_text().replace("@unwritten", "#").replace("raise NotImplementedError", made))
    with keyplan.open(url) as store:
        retyped = filed.Retyped(store)
        for number in range(3):
            retyped.articles.insert(str(number), filed.Typed(f"title{number}", "ann", 6))
    tried = run("migrate", "try")
    assert tried.code == 1
    assert tried.lines[1] == "articles: 3 tried, 2 converted, 1 lost, 1 collided"
    assert "  lost: /f/articles/0" in tried.lines
    assert "  collided: /f/articles/2 -> /f/by/ann/one" in tried.lines
    assert "    /f/articles/1 gets it, too" in tried.lines


def test_a_draft_needs_no_store_and_a_parameter_that_no_root_has_is_refused(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYPLAN_STORE", "lmdb:./none.kv")
    drafted(run, "Moved")
    assert "Records in the store" not in Path("migrations/0001_moved.py").read_text()
    refused = run("migrate", "plan", "-p", "zone=a")
    assert (refused.code, "a parameter of a root" in refused.err) == (5, True)


def test_a_key_space_is_migrated_by_the_same_files(run: Keyplan, tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/spaces.kv"
    drafted(run, "Moved")
    for name in ("one", "two"):
        assert run("keyspace", "create", name, "--application", "shop", "--store", url).code == 0
        with keyplan.open(url, keyspace=name, application="shop") as space:
            filed.Plain(space).entries.insert("1", filed.Entry(name, "ann"))
    one = ("--store", url, "--keyspace", "one")
    for phase in ("switch", "finish"):
        assert run("migrate", phase, *one, "--yes").code == 0
    assert run("migrate", "status", *one).lines[-1] == "nothing is due"
    assert run("migrate", "status", "--store", url, "--keyspace", "two").lines[0] == "0001_moved  due"
