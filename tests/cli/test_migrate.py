"""`keyplan migrate` on a terminal and in a pipe: what is printed, what is asked, which exit code."""

import io
import json
from pathlib import Path

import pytest

import keyplan
from keyplan.errors import LayoutMismatchError
from keyplan.layout import describe
from keyplan.maintenance import check
from keyplan.store import LayoutWarning
from tests.cli.conftest import Keyplan
from tests.maintenance.evolving import Box, Crate, Moved, Old, Shelf, Stated

LAYOUTS = "tests.maintenance.evolving"
SETTLED = "switched: `keyplan migrate finish` follows when no program needs the old layout any more"
MOVE = ("--from", f"{LAYOUTS}:Old", "--to", f"{LAYOUTS}:Moved")


def enlarged(box: Box) -> Crate:
    return Crate(box.name, len(box.name), box.tags)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    url = f"lmdb:{tmp_path}/old.kv"
    with keyplan.open(url) as store, Old(store).transaction() as old:
        for number in range(3):
            old.boxes.insert(Shelf("a", number), Box(f"box{number}", ["red"]))
    monkeypatch.setenv("KEYPLAN_STORE", url)
    return url


def test_a_layout_in_production_may_be_a_file(run: Keyplan, url: str, tmp_path: Path) -> None:
    described = tmp_path / "old.json"
    described.write_text(json.dumps(describe(Old.spec)))
    assert run("diff", "--layout", f"{LAYOUTS}:Old", "--against", str(described)).code == 0
    answer = run("migrate", "switch", "--from", str(described), "--to", f"{LAYOUTS}:Moved", "--yes")
    assert (answer.code, answer.lines[-1]) == (0, SETTLED)


def test_a_migration_in_three_runs(run: Keyplan, url: str) -> None:
    first = run("migrate", "run", *MOVE, "--yes")
    assert first.code == 0
    assert first.lines[-2:] == [
        "records: 3 copied",
        "filled: upgrade the programs, then `keyplan migrate switch`",
    ]
    refused = run("migrate", "finish", *MOVE, "--yes")
    assert refused.code == 4
    assert "`keyplan migrate switch` first" in refused.err
    second = run("migrate", "switch", *MOVE, "--yes")
    assert second.code == 0
    assert second.lines[-1] == SETTLED
    assert second.lines[-2].startswith("boxes: verified, 3 records, digest ")
    third = run("migrate", "finish", *MOVE, "--yes")
    assert (third.code, third.lines[-1]) == (0, "removed 3 records, 3 index entries, 0 numbers")
    assert run("migrate", "run", *MOVE, "--yes").lines[-1] == "the migration is over: nothing of the old layout is left"
    with keyplan.open(url) as store:
        assert Moved(store).boxes.count() == 3
        assert list(check(store, Moved(store))) == []


def test_a_plan_is_printed_and_nothing_written_unless_somebody_agrees(run: Keyplan, url: str) -> None:
    planned = run("migrate", "plan", *MOVE)
    assert planned.code == 0
    assert "beside programs of the old layout:" in planned.lines
    assert run("migrate", "run", *MOVE).code == 5  # there is nobody to ask
    with keyplan.open(url) as store:
        assert Moved(store).boxes.count() == 0


class Person(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def test_somebody_is_asked_and_may_decline(run: Keyplan, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Person("n\n"))
    declined = run("migrate", "run", *MOVE)
    assert declined.code == 0
    assert "Take 1 steps?" in declined.err
    assert "nothing was written" in declined.err
    with keyplan.open(url) as store:
        assert Moved(store).boxes.count() == 0
    monkeypatch.setattr("sys.stdin", Person("y\n"))
    assert run("migrate", "run", *MOVE).lines[-2].strip() == "records: 3 copied"


def test_a_store_that_was_never_migrated_is_noted_by_a_command(run: Keyplan, url: str) -> None:
    note = "migrate", "note", "--layout"
    assert run(*note, f"{LAYOUTS}:Old").out == f"noted: programs use Old ({Old.bound().fingerprint})\n"
    assert "the store notes another layout for /s/" in run(*note, f"{LAYOUTS}:Moved").err
    with (
        keyplan.open(url, layout_check="refuse") as store,
        pytest.raises(LayoutMismatchError, match="another one is noted"),
    ):
        Moved(store)


def test_a_migration_within_a_key_space_concerns_nobody_else(run: Keyplan, tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/spaces.kv"
    for name in ("one", "two"):
        assert run("keyspace", "create", name, "--application", "shop", "--store", url).code == 0
        with keyplan.open(url, keyspace=name, application="shop") as space:
            Old(space).boxes.insert(Shelf("a", 1), Box(name))
    assert run("migrate", "switch", *MOVE, "--store", url, "--keyspace", "one", "--yes").code == 0
    assert run("migrate", "finish", *MOVE, "--store", url, "--keyspace", "one", "--yes").code == 0
    with keyplan.open(url, keyspace="one", application="shop") as one:
        assert Moved(one).boxes.require(Shelf("a", 1)) == Box("one")
        with pytest.warns(LayoutWarning, match="has led away from it"):
            old = Old(one)
        assert old.boxes.count() == 0
    with keyplan.open(url, keyspace="two", application="shop") as two:
        assert (Moved(two).boxes.count(), Old(two).boxes.count()) == (0, 1)


def test_a_migration_as_json_has_a_line_for_the_plan_and_one_for_what_was_done(run: Keyplan, url: str) -> None:
    plan, done = run("migrate", "switch", *MOVE, "--yes", "--json").documents
    assert [step["phase"] for step in plan["steps"]] == ["fill", "switch", "contract", "contract"]
    assert (done["is_settled"], done["counts"], done["contested"]) == (True, {"copied": 3}, [])
    assert done["verified"][0]["expected"] == done["verified"][0]["found"]
    _, cleaned = run("migrate", "finish", *MOVE, "--yes", "--json").documents
    assert (cleaned["is_cleaned"], cleaned["records"], cleaned["left"]) == (True, 3, [])


def test_a_function_is_named_with_its_version(run: Keyplan, url: str) -> None:
    state = ("--from", f"{LAYOUTS}:Old", "--to", f"{LAYOUTS}:Stated")
    assert run("migrate", "plan", *state).code == 1
    for wrong in (
        "boxes",
        "boxes=tests.cli.test_migrate",
        "boxes=tests.cli.test_migrate:enlarged@x",
        "boxes=tests.cli.test_migrate:enlarged@²",
        "boxes=tests.cli.test_migrate:enlarged@" + "9" * 5_000,
        "boxes=none:none",
    ):
        assert run("migrate", "plan", *state, "--function", wrong).code == 5
    answer = run("migrate", "switch", *state, "--function", "boxes=tests.cli.test_migrate:enlarged@1", "--yes")
    assert answer.code == 0, answer
    with keyplan.open(url) as store:
        assert Stated(store).boxes.require(Shelf("a", 0)) == Crate("box0", 4, ["red"])


def test_what_is_left_to_decide_is_told_and_fails(run: Keyplan, url: str) -> None:
    with keyplan.open(url) as store:
        Moved(store).boxes.insert(Shelf("a", 1), Box("mine"))
    answer = run("migrate", "switch", *MOVE, "--yes")
    assert answer.code == 1
    assert "left: /s/boxes/a/1 and /s/crates/a/1: another record stands at its new key" in answer.lines
