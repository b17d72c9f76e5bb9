"""lint, map, docs; how layouts and stores are named: options, environment, settings."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import keyplan
from tests.cli.conftest import SITE, CheckAfter, Keyplan
from tests.cli.layouts import Rooted, Site

COLLIDING = "tests.cli.layouts:Colliding"


# ---- lint --------------------------------------------------------------------------------------------------------------


def test_lint_of_a_sound_layout_exits_with_0(run: Keyplan) -> None:
    answer = run("lint", "--layout", "cloudchamber", "--no-waived")
    assert (answer.code, answer.lines[-1].endswith(" findings, 0 to fix or waive")) == (0, True)
    assert "(waived: " not in answer.out


def test_lint_of_a_collision_exits_with_1_and_shows_the_key(run: Keyplan) -> None:
    answer = run("lint", "--layout", COLLIDING, "--json")
    (finding,) = answer.document["findings"]
    assert (answer.code, answer.document["failures"], finding["rule"], finding["items"], finding["witness"]) == (
        1,
        1,
        "L1",
        ["first", "second"],
        "/c/a/b",
    )


def test_lint_judges_a_prefix_that_somebody_reads(run: Keyplan) -> None:
    answer = run("lint", "--layout", SITE, "--prefix", "/site/boxes/{room}")
    assert (answer.code, "L4" in answer.out) == (1, True)
    assert run("lint", "--layout", SITE, "--prefix", "/site/boxes/{room}/").code == 0


def test_lint_judges_layouts_that_share_a_store(run: Keyplan) -> None:
    assert run("lint", "--layout", SITE, "--beside", "cloudchamber", "--engine", "none").code == 0
    assert run("lint", "--layout", SITE, "--beside", SITE, "--engine", "none").code == 1


def test_lint_for_an_unknown_engine_fails(run: Keyplan) -> None:
    assert run("lint", "--layout", SITE, "--engine", "abacus").code == 7


# ---- map and docs --------------------------------------------------------------------------------------------------------


def test_map_prints_templates_in_key_order(run: Keyplan) -> None:
    answer = run("map", "--layout", SITE)
    assert answer.lines[:2] == ["layout   Site, version 1, text keys", "root     /site/"]
    assert [line for line in answer.lines if line.startswith(("boxes", "by-", "notes"))] == [
        "boxes/{room}/{number}",
        "by-name/{name}",
        "by-tag/{tag}/{room}/{number}",
        "notes/{note}",
    ]


def test_a_written_map_is_current_until_it_is_changed(run: Keyplan, tmp_path: Path) -> None:
    assert run("map", "--layout", SITE, "--write", "site.map").lines == ["wrote site.map"]
    assert run("map", "--layout", SITE, "--check", "site.map").lines == ["site.map is current"]
    (tmp_path / "site.map").write_text("old\n")
    stale = run("map", "--layout", SITE, "--check", "site.map")
    assert (stale.code, stale.out.startswith("site.map is stale")) == (1, True)


def test_a_map_that_cannot_be_read_or_written_fails(run: Keyplan) -> None:
    for option in ("--check", "--write"):
        assert run("map", "--layout", SITE, option, "no/folder/site.map").code == 5


def test_the_described_layout_can_be_used_in_place_of_the_class(site: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "site.json").write_text(site("map", "--json").out)
    assert site("get", "notes", "hello", "--layout", "site.json").document == "world"
    assert site("map", "--layout", "site.json").out == site("map").out


def test_docs_are_printed_or_written(run: Keyplan, tmp_path: Path) -> None:
    printed = run("docs", "--layout", "cloudchamber")
    assert printed.lines[0] == "# CloudChamber"
    assert run("docs", "--layout", "cloudchamber", "--output", "chamber.md").lines == ["wrote chamber.md"]
    assert (tmp_path / "chamber.md").read_text() == printed.out
    assert run("docs", "--layout", "cloudchamber", "--output", "no/folder.md").code == 5


# ---- naming layouts ------------------------------------------------------------------------------------------------------


def test_an_unknown_layout_fails_with_the_installed_ones(run: Keyplan) -> None:
    answer = run("lint", "--layout", "chamber", "--json")
    assert (answer.code, answer.error["code"], "cloudchamber" in answer.error["facts"]["known"]) == (
        6,
        "unknown-name",
        True,
    )


@pytest.mark.parametrize("name", ["no_such_module:Site", "tests.cli.layouts:Nothing", "tests.cli.layouts:Box", ":Site"])
def test_a_layout_that_cannot_be_imported_fails(run: Keyplan, name: str) -> None:
    assert run("lint", "--layout", name).code == 5


def test_a_module_in_the_working_directory_is_found(run: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "warehouse_layout.py").write_text(
        "import keyplan\n\n\nclass Warehouse(keyplan.Layout, root='/w/'):\n"
        "    halls = keyplan.Table('halls/{hall}', key=str, value=str)\n"
    )
    assert run("map", "--layout", "warehouse_layout:Warehouse").lines[1] == "root     /w/"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}'])
def test_a_file_that_describes_no_layout_fails(run: Keyplan, tmp_path: Path, text: str) -> None:
    (tmp_path / "layout.json").write_text(text)
    assert run("lint", "--layout", "layout.json").code == 5
    assert run("lint", "--layout", "missing.json").code == 5


# ---- parameters and settings ----------------------------------------------------------------------------------------------


@pytest.fixture
def rooted(run: Keyplan, monkeypatch: pytest.MonkeyPatch, check_after: CheckAfter) -> Iterator[Keyplan]:
    with keyplan.open("lmdb:rooted.kv") as store:
        Rooted(store, tenant="ada").notes.insert("n", "of ada")
        Rooted(store, tenant="bob").notes.insert("n", "of bob")
    monkeypatch.setenv("KEYPLAN_STORE", "lmdb:rooted.kv")
    monkeypatch.setenv("KEYPLAN_LAYOUT", "tests.cli.layouts:Rooted")
    yield run
    with (
        keyplan.open("lmdb:rooted.kv") as store,
        check_after(store, *(Rooted(store, tenant=tenant) for tenant in ("ada", "bob"))),
    ):
        pass


def test_a_parameter_moves_the_root(rooted: Keyplan) -> None:
    assert rooted("get", "notes", "n", "--parameter", "tenant=bob").document == "of bob"


def test_a_missing_or_unknown_parameter_fails(rooted: Keyplan) -> None:
    assert rooted("get", "notes", "n").code == 5
    answer = rooted("get", "notes", "n", "-p", "tennant=bob", "--json")
    assert (answer.code, answer.error["facts"]["problem"]) == (
        5,
        "'tennant=bob' is not NAME=VALUE with a parameter of Rooted's root: tenant",
    )


def test_settings_name_store_layout_and_parameters(
    rooted: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KEYPLAN_STORE")
    monkeypatch.delenv("KEYPLAN_LAYOUT")
    settings = (
        'store = "lmdb:rooted.kv"\nlayout = "tests.cli.layouts:Rooted"\n[parameters]\ntenant = "ada"\nother = "x"\n'
    )
    (tmp_path / "keyplan.toml").write_text(settings)
    assert rooted("get", "notes", "n").document == "of ada"
    assert rooted("get", "notes", "n", "-p", "tenant=bob").document == "of bob"
    (tmp_path / "keyplan.toml").rename(tmp_path / "elsewhere.toml")
    assert rooted("get", "notes", "n").code == 5
    assert rooted("get", "notes", "n", "--config", "elsewhere.toml").document == "of ada"
    monkeypatch.setenv("KEYPLAN_CONFIG", "elsewhere.toml")
    assert rooted("get", "notes", "n").document == "of ada"


def test_options_come_before_the_environment_and_that_before_the_settings(site: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "keyplan.toml").write_text('store = "lmdb:nowhere"\nlayout = "nothing"\n')
    assert site("get", "notes", "hello").code == 0
    assert site("ls", "--layout", "nothing").code == 6


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("store = 5", "store is not a text"),
        (
            "stor = 'x'",
            "there is no setting 'stor'; the settings are store, layout, secrets, layout_check and parameters",
        ),
        ("parameters = 5", "parameters is not a table of names and texts"),
        ("[parameters]\na = 5", "parameters.a is not a text"),
    ],
)
def test_settings_that_are_wrong_are_refused(run: Keyplan, tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "keyplan.toml").write_text(text)
    answer = run("ls", "--json")
    assert (answer.code, answer.error["facts"]) == (5, {"source": "keyplan.toml", "problem": problem})


def test_settings_that_cannot_be_read_are_refused(run: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "keyplan.toml").write_text("=")
    assert "not TOML" in run("ls").err
    assert run("ls", "--config", "missing.toml").code == 5


def test_an_error_as_json_is_one_object_on_one_line(site: Keyplan) -> None:
    answer = site("get", "notes", "nobody", "--json")
    assert json.loads(answer.err.removesuffix("\n")) == {
        "code": "not-found",
        "summary": "there is no such record",
        "facts": {"item": "notes", "key": "nobody"},
    }
    assert Site.spec.name == "Site"
