"""`keyplan diff` and `keyplan lock`: what fails, what a review sees, and what a lock file refuses."""

import html
import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from keyplan import Layout, Table
from keyplan.cli.diff import FailOn
from keyplan.layout import Impact, LayoutChange, changes_in_markdown, describe, differences, layout_of_file, lock_text
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Binary, Rooted, Site
from tests.maintenance.evolving import Moved, Old

LAYOUTS = "tests.maintenance.evolving"
OLD, MOVED = f"{LAYOUTS}:Old", f"{LAYOUTS}:Moved"


def test_diff_fails_from_a_class_on(run: Keyplan) -> None:
    answer = run("diff", "--layout", MOVED, "--against", OLD)
    assert answer.code == 1
    assert answer.lines[-1] == "Old to Moved: 3 changes, 2 at readers-first or beyond"
    codes = {
        name: run("diff", "-l", MOVED, "--against", OLD, "--fail-on", name).code for name in ("rewrite", "breaking")
    }
    assert codes == {"rewrite": 1, "breaking": 0}
    assert run("diff", "-l", MOVED, "--against", OLD, "--fail-on", "never").lines[-1] == "Old to Moved: 3 changes"
    same = run("diff", "-l", OLD, "--against", OLD)
    assert (same.code, same.lines) == (0, ["Old to Old: 0 changes, 0 at readers-first or beyond"])
    assert run("diff", "-l", OLD, "--against", OLD, "--rename", "boxes").code == 5


def test_each_class_of_changes_can_fail() -> None:
    assert [one.value for one in FailOn] == [*(impact.value for impact in Impact), "never"]
    for impact in Impact:
        assert [one.is_reached(impact) for one in FailOn] == [place <= impact.rank for place in range(len(Impact))] + [
            False
        ]


def test_diff_as_json_is_one_document(run: Keyplan) -> None:
    answer = run("diff", "--layout", MOVED, "--against", OLD, "--json")
    assert (answer.document["impact"], answer.document["failures"]) == ("rewrite", 2)
    change = answer.document["changes"][1]
    assert (change["code"], change["item"], change["witness"], change["second"]) == (
        "E6",
        "boxes",
        "/s/boxes/a/0",
        "/s/crates/a/0",
    )
    assert run("diff", "--layout", MOVED, "--against", OLD, "--json", "--format", "github").code == 5


# ---- the lock ------------------------------------------------------------------------------------------------------------


def test_a_lock_is_current_until_the_layout_changes(run: Keyplan, tmp_path: Path) -> None:
    assert run("lock", "--layout", OLD, "--write", "site.lock.json").lines == ["wrote site.lock.json"]
    assert run("lock", "--layout", OLD, "--check", "site.lock.json").lines == ["site.lock.json is current"]
    stale = run("lock", "--layout", MOVED, "--check", "site.lock.json")
    assert (stale.code, stale.out.startswith("site.lock.json is stale")) == (1, True)
    assert run("lock", "--layout", OLD).out == (tmp_path / "site.lock.json").read_text()


def test_diff_and_other_commands_read_a_lock(run: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "site.lock.json").write_text(lock_text(Old.spec))
    assert run("diff", "--layout", OLD, "--against", "site.lock.json").code == 0
    assert run("diff", "--layout", MOVED, "--against", "site.lock.json", "--fail-on", "rewrite").code == 1
    assert run("map", "--layout", "site.lock.json").out == run("map", "--layout", OLD).out


@pytest.mark.parametrize("layout", [Old, Moved, Site, Binary])
def test_a_lock_holds_the_layout_whatever_the_order_of_its_names(layout: type[Layout]) -> None:
    lock = json.loads(lock_text(layout.spec))
    assert lock_text(layout_of_file(lock, source="lock")) == lock_text(layout.spec)
    assert lock["fingerprint"] == layout.bound().fingerprint
    backwards = json.loads(lock_text(layout.spec), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert lock_text(layout_of_file(backwards, source="lock")) == lock_text(layout.spec)
    assert differences(layout_of_file(backwards, source="lock"), layout) == ()


def test_records_told_apart_by_a_tag_are_the_same_in_a_lock() -> None:
    kinds: list[Any] = [
        msgspec.defstruct(name, [("always", Literal["x"]), ("zone", int)], tag=name) for name in ("One", "Two")
    ]

    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{name}", key=str, value=kinds[0] | kinds[1])

    assert differences(layout_of_file(json.loads(lock_text(Made.spec)), source="lock"), Made) == ()


def changed(path: Path, **parts: object) -> None:
    path.write_text(json.dumps({**json.loads(lock_text(Old.spec)), **parts}))


def test_a_lock_of_a_newer_keyplan_or_changed_by_hand_is_refused(run: Keyplan, tmp_path: Path) -> None:
    lock = tmp_path / "site.lock.json"
    changed(lock, format="keyplan-lock/2")
    newer = run("diff", "--layout", OLD, "--against", "site.lock.json")
    assert (newer.code, "keyplan-lock/2; this keyplan reads keyplan-lock/1: upgrade keyplan" in newer.err) == (5, True)
    changed(lock, layout={**describe(Old.spec), "note": "mine"})
    by_hand = run("diff", "--layout", OLD, "--against", "site.lock.json")
    assert (by_hand.code, "changed by hand" in by_hand.err, "site.lock.json" in by_hand.err) == (5, True, True)
    changed(lock, layout=None)
    assert "a lock file without a layout" in run("diff", "--layout", OLD, "--against", "site.lock.json").err
    lock.write_text(lock_text(Old.spec)[:-40])
    assert "not JSON" in run("diff", "--layout", OLD, "--against", "site.lock.json").err


def test_a_lock_is_judged_by_what_it_says_and_what_is_none_is_not_to_be_written_anew(
    run: Keyplan, tmp_path: Path
) -> None:
    lock, text = tmp_path / "site.lock.json", lock_text(Old.spec)
    for same in (text.replace("\n", "\r\n"), "\ufeff" + text, text.rstrip()):
        lock.write_bytes(same.encode())
        assert run("lock", "--layout", OLD, "--check", "site.lock.json").lines == ["site.lock.json is current"]
    lines = text.splitlines()
    lock.write_text("\n".join([*lines[:2], "<<<<<<< HEAD", lines[2], "=======", lines[2], ">>>>>>> other", *lines[3:]]))
    for command in (("diff", "--against"), ("lock", "--check")):
        conflict = run(command[0], "--layout", OLD, command[1], "site.lock.json")
        assert (conflict.code, "the marks of a merge conflict: take the whole file" in conflict.err) == (5, True)
    changed(lock, layout={**describe(Old.spec), "note": "mine"})
    by_hand = run("lock", "--layout", OLD, "--check", "site.lock.json")
    assert (by_hand.code, "bring it back as it was released" in by_hand.err) == (5, True)
    lock.write_text(json.dumps(describe(Old.spec)))
    assert run("lock", "--layout", OLD, "--check", "site.lock.json").code == 1
    both = run("lock", "--layout", OLD, "--check", "site.lock.json", "--write", "other.json")
    assert (both.code, (tmp_path / "other.json").exists()) == (5, False)


def test_a_layout_whose_root_has_no_default_has_a_lock() -> None:
    lock = json.loads(lock_text(Rooted.spec))
    assert lock["fingerprint"] is None
    assert differences(layout_of_file(lock, source="lock"), Rooted) == ()


# ---- a review ------------------------------------------------------------------------------------------------------------


def test_a_review_has_a_row_for_each_change_the_worst_first(run: Keyplan) -> None:
    lines = run("diff", "--layout", MOVED, "--against", OLD, "--fail-on", "rewrite", "--format", "github").lines
    assert lines[0] == "### Old to Moved"
    assert lines[2] == "3 changes, 2 at rewrite or beyond"
    assert lines[4] == "| Class | Code | Of | Change | Witness | Remedy |"
    assert [line.split(" | ")[0] for line in lines[6:]] == ["| **rewrite**", "| **rewrite**", "| compatible"]
    assert "<code>/s/boxes/a/0</code> → <code>/s/crates/a/0</code>" in lines[6]


def test_no_text_of_a_layout_leaves_its_cell() -> None:
    hostile = "a|b`c`\n<script>@octocat [x](y) *bold* _it_ #12 in_a_word `one"
    change = LayoutChange("E6", "bo|xes", Impact.REWRITE, hostile, hostile, "", b"/s/|`\n<", b"|")
    text = changes_in_markdown(hostile, [change], [change], hostile)
    heading, _, _, _, head, rule, row = text.split("\n")
    assert heading.startswith("### ")
    assert head.count("|") == rule.count("|") == row.count("|") == 7
    for active in ["<script>", "@", "[", "*", "#", "\\", "`"]:
        assert active not in row.replace("**rewrite**", "").replace("&#", "&")
    assert "in_a_word" in row
    assert " _it_" not in row


@pytest.mark.parametrize(
    "name",
    ["@octocat", "owner/repo#12", "GH-1", "https://evil.example", "www.evil.example", "ann@evil.example", ":tada:"],
)
def test_a_name_calls_nobody_and_links_nowhere(name: str) -> None:
    # Why not by its entities: GitHub looks for these when a page is made, in its texts, where entities are characters again.
    change = LayoutChange("E6", name, Impact.REWRITE, name, name, "", name.encode())
    page = html.unescape(changes_in_markdown(name, [change], [], name))
    assert name not in page
    assert name in page.replace("<!-- -->", "")


def test_a_review_is_no_longer_than_github_takes() -> None:
    changes = [LayoutChange("E4", f"table{number}", Impact.COMPATIBLE, "new", "nothing") for number in range(700)]
    text = changes_in_markdown("a to b", changes, [], "700 changes")
    assert text.endswith("\n200 more changes are not shown.")
    assert len(text) < 2**20
