"""`keyplan cloudchamber import --into go`, `export`, `migrate` and `pairs` as people and programs see them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import keyplan
from keyplan.apps.cloudchamber import NotRepresentableError
from keyplan.apps.cloudchamber.cli import app
from keyplan.engine import Commit, Delete, Put
from keyplan.errors import InvalidInputError
from tests.apps.cloudchamber.conftest import raw_entries


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def lines(result: Result) -> list[str]:
    assert result.exception is None, result.exception
    return result.output.splitlines()


def contents(url: str) -> dict[bytes, bytes]:
    with keyplan.open(url) as store:
        return {entry.key: entry.value for entry in raw_entries(store)}


@pytest.fixture
def go_url(tmp_path: Path, samples: Path) -> str:
    url = f"lmdb:{tmp_path / 'go.kv'}"
    told = lines(run("import", samples / "inventory.yaml", "--into", "go", "--store", url))
    assert told[2:4] == [
        "  + standard/standard/rack1  rack, pdu, tor, 8 blades, 11 list keys",
        "  + standard/standard/rack2  rack, pdu, tor, 8 blades, 11 list keys",
    ]
    assert told[-1] == "180 created, in one commit. The store is at revision 1."
    return url


def test_there_and_back(go_url: str, tmp_path: Path) -> None:
    """AC-46 on the command line."""
    document, again, sidecar = f"lmdb:{tmp_path / 'd.kv'}", f"lmdb:{tmp_path / 'b.kv'}", tmp_path / "aside.json"
    there = ("migrate", "--from", "go", "--to", "document", "--store", go_url, "--to-store", document)
    assert isinstance(run(*there).exception, NotRepresentableError)
    assert not (tmp_path / "d.kv").exists()
    told = lines(run(*there, "--dry-run"))
    assert told[0].startswith(
        "  ! a region has no place there: /CloudChamber/v0.1/inventory/definition/data/region/standard, "
    )
    assert told[-1] == "88 keys to write. This was a dry run: nothing was written."
    told = lines(run(*there, "--aside", sidecar))
    assert told[-2] == f"4 things that the target has no place for are in {sidecar}."
    assert told[-1].startswith("88 keys written in 1 commit; all 88 read back, sha256 ")
    told = lines(run(*there, "--aside", sidecar))
    assert told[-1].startswith("0 keys written in 0 commits, 88 were there; all 88 read back, sha256 ")
    back = ("migrate", "--from", "document", "--to", "go", "--store", document, "--to-store", again)
    assert len(lines(run(*back, "--from-aside", sidecar))) == 1
    assert contents(again) == contents(go_url)
    assert lines(run("pairs", "--store", again)) == ["All records and list keys agree."]


def test_json_tells_what_is_left_over_and_what_was_read_back(go_url: str, tmp_path: Path) -> None:
    there = ("migrate", "--from", "go", "--to", "document", "--store", go_url, "--json")
    planned = json.loads(run(*there, "--dry-run").output)
    assert (planned["from"], planned["to"], planned["keys"], planned["dry_run"]) == ("go", "document", 88, True)
    assert len(planned["left_over"]) == 4
    done = json.loads(run(*there, "--leave-behind").output)
    assert (done["written"], done["others"], done["commits"], done["read_back"]["keys"]) == (88, 0, 1, 88)
    assert len(contents(go_url)) == 268


def test_an_export_is_imported_again_without_a_change(go_url: str, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    (told,) = lines(run("export", file, "--from", "go", "--store", go_url))
    assert told == f"{file}: 180 records, {len(file.read_bytes()):,} bytes."
    assert isinstance(run("export", file, "--from", "go", "--store", go_url).exception, InvalidInputError)
    lines(run("export", file, "--from", "go", "--store", go_url, "--replace"))
    said = lines(run("import", file, "--into", "go", "--store", go_url))
    assert said[-1].startswith("Nothing to do: the store has all 180 records as the file says")


def test_pairs_that_do_not_agree_are_told_with_exit_code_1(go_url: str) -> None:
    root = b"/CloudChamber/v0.1/inventory/definition/index/region/standard/zone/standard/"
    with keyplan.open(go_url) as store:
        store.engine.commit(Commit((), (Delete(root + b"rack/rack1/blades/3"), Put(root + b"racks/rack2", b"x"))))
    result = run("pairs", "--store", go_url)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == "2 keys to look at."
    found = [json.loads(line) for line in run("pairs", "--store", go_url, "--json").output.splitlines()]
    assert {entry["table"] for entry in found} == {"blades", "listed_racks"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("migrate", "--from", "go", "--to", "go"),
        ("migrate", "--from", "go", "--to", "document", "--view", "elsewhere"),
        ("migrate", "--from", "go", "--to", "document", "--from-aside", "none.json"),
    ],
)
def test_what_cannot_be_done_is_an_error_of_keyplan(go_url: str, arguments: tuple[str, ...]) -> None:
    assert isinstance(run(*arguments, "--store", go_url).exception, InvalidInputError)


def test_options_of_the_documents_keys_are_refused_for_the_go_programs(go_url: str, samples: Path) -> None:
    result = run("import", samples / "Simple.yaml", "--into", "go", "--rack-ids", "region.zone.rack", "--store", go_url)
    assert isinstance(result.exception, InvalidInputError)
