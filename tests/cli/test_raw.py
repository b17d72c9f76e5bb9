"""`keyplan raw` and `keyplan extract`: what a check names as remedy mends what it found, from the command line alone."""

import os
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, Put
from tests.cli.conftest import Keyplan

BOX = "/site/boxes/a/1"


@pytest.fixture
def broken(site: Keyplan, tmp_path: Path) -> Keyplan:
    """A record that cannot be read, and a backup from before."""
    assert site("backup", str(tmp_path / "b.kpb")).code == 0
    with keyplan.open(os.environ["KEYPLAN_STORE"]) as store:
        store.engine.commit(Commit((), (Put(BOX.encode(), b"{broken"),)))
    return site


def test_a_damaged_record_is_taken_from_a_backup(broken: Keyplan, tmp_path: Path) -> None:
    assert broken("check").code == 1
    shown = broken("extract", str(tmp_path / "b.kpb"), "--key", BOX)
    assert shown.out.startswith(f"{BOX}  ")
    assert '"name":"cups"' in shown.out
    refused = broken("extract", str(tmp_path / "b.kpb"), "--key", BOX, "--into-store", "--yes")
    assert refused.code == 5
    done = broken("extract", str(tmp_path / "b.kpb"), "--key", BOX, "--into-store", "--overwrite", "--yes")
    assert (done.code, done.lines[-1]) == (0, "1 entries written, 0 were there already")
    assert broken("check").code == 0


def test_a_damaged_record_is_deleted_with_its_entries(broken: Keyplan) -> None:
    planned = broken("raw", "delete", BOX, "--dry-run")
    assert planned.code == 0
    assert "delete  /site/by-name/cups" in planned.out
    assert broken("raw", "delete", BOX).code == 5  # there is no terminal to ask at
    assert broken("raw", "delete", BOX, "--yes").code == 0
    assert broken("check").code == 0
    assert broken("raw", "get", BOX).code == 3


def test_a_damaged_record_is_set_aside_seen_and_put_back(broken: Keyplan) -> None:
    assert broken("raw", "quarantine", BOX, "--reason", "torn", "--yes").code == 0
    assert broken("check").code == 0
    listed = broken("raw", "quarantined", "--json")
    assert [(row["key"], row["reason"]) for row in listed.documents] == [(BOX, "torn")]
    assert broken("raw", "release", BOX, "--yes").code == 0
    assert broken("raw", "get", BOX).out == "{broken"
    assert broken("raw", "put", BOX, '{"name":"mugs"}', "--yes").code == 0
    assert broken("get", "by_name", "mugs", "--value-only").document["name"] == "mugs"
    assert broken("check").code == 0


def test_a_reason_that_is_no_text_is_refused_by_its_option(broken: Keyplan) -> None:
    answer = broken("raw", "quarantine", BOX, "--reason", "torn\udcff", "--yes")
    assert (answer.code, "source --reason" in answer.err) == (5, True)
    assert broken("raw", "quarantined").out == ""
    assert broken("raw", "delete", BOX, "--yes").code == 0


def test_an_unknown_key_and_a_counter_are_mended(site: Keyplan) -> None:
    assert site("raw", "put", "/site/what", "x", "--yes").code == 0
    assert site("raw", "put", "/site/tickets", "5", "--yes").code == 0
    found = site("check", "--json").documents
    assert {row.get("finding") for row in found} == {"unknown-key", "counter-behind", None}
    assert all("keyplan raw" in row["advice"] for row in found if "finding" in row)
    assert site("raw", "delete", "/site/what", "--yes").code == 0
    assert site("raw", "put", "/site/tickets", "102", "--yes", "--json").documents[-1]["revision"] > 0
    assert site("check").code == 0


def test_keys_of_keyplan_are_not_written_unsaid(site: Keyplan) -> None:
    refused = site("raw", "put", r"\x00kix", "x", "--yes", "--json")
    assert refused.code == 5
    assert "--past-fence" in refused.err


def test_a_value_comes_from_a_file_or_as_text_and_not_as_both(site: Keyplan, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"\xff\x00")
    assert site("raw", "put", "/site/raw", "--file", str(tmp_path / "value"), "--yes").code == 0
    assert site("raw", "get", "/site/raw", "--json").document["value"] == "ff00"
    assert site("raw", "put", "/site/raw", "x", "--file", str(tmp_path / "value"), "--yes").code == 5
    assert site("raw", "put", "/site/raw", "--yes").code == 5
    assert site("raw", "get", "zz", "--hex").code == 5


def test_a_value_that_is_no_text_is_refused_with_the_ways_to_write_it(site: Keyplan) -> None:
    refused = site("raw", "put", "/site/x", os.fsdecode(b"\xff"), "--yes")
    assert (refused.code, "--file FILE, or - for standard input" in refused.err) == (5, True)


def test_a_table_is_taken_out_as_json(site: Keyplan, tmp_path: Path) -> None:
    site("backup", str(tmp_path / "b.kpb"))
    rows = site("extract", str(tmp_path / "b.kpb"), "--table", "notes", "--json").documents
    assert [(row["key"], bytes.fromhex(row["value"])) for row in rows] == [
        ("/site/notes/hello", b"world"),
        ("/site/notes/help", b"needed"),
    ]
    assert site("extract", str(tmp_path / "b.kpb"), "--key", "/nothing").code == 3
    assert site("extract", str(tmp_path / "b.kpb"), "--table", "nothing").code != 0


def test_an_extraction_that_was_stopped_in_the_middle_is_finished_by_the_same_command(
    site: Keyplan, tmp_path: Path
) -> None:
    assert site("backup", str(tmp_path / "b.kpb")).code == 0
    assert site("delete", "notes", "help").code == 0
    words = ("extract", str(tmp_path / "b.kpb"), "--table", "notes", "--into-store", "--yes", "--json")
    assert site(*words).documents[-1] == {"written": 1, "there_already": 1}
    assert site("put", "notes", "help", "other").code == 0
    assert site(*words).code == 5
    assert site("get", "notes", "help").document == "other"
