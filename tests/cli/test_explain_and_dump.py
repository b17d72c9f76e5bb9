"""explain and dump."""

from pathlib import Path

import pytest

import keyplan
from keyplan.cli.keys import REGISTRY_HEADER
from keyplan.engine import Commit, Delete, Put
from keyplan.keyspace import KeySpaceRegistry
from keyplan.layout import Only
from tests.cli.conftest import Keyplan


def commit(*mutations: Put | Delete) -> None:
    with keyplan.open("lmdb:site.kv") as store:
        store.engine.commit(Commit(mutations=mutations))


# ---- explain -----------------------------------------------------------------------------------------------------------


@pytest.mark.leaves("missing-entry")
def test_a_records_key_is_explained_with_its_record_and_its_index_entries(site: Keyplan) -> None:
    commit(Delete(b"/site/by-tag/red/a/2"))
    assert site("explain", "/site/boxes/a/2").lines == [
        "/site/boxes/a/2: record of boxes (room=a, number=2)",
        "  template   boxes/{room:text}/{number:decimal}",
        "  room       a",
        "  number     2",
        "  stored     79 bytes, revision 1, version 1",
        "  record     name=plates  size=5  tags=[red]  secret=",
        "  entry      /site/by-name/plates (by_name): present",
        "  entry      /site/by-tag/red/a/2 (by_tag): missing",
    ]


def test_an_index_entry_is_explained_with_what_it_points_at(site: Keyplan) -> None:
    answer = site("explain", "/site/by-name/plates", "--json")
    assert answer.document["kind"] == "index entry"
    assert answer.document["stored"] == {
        "revision": 1,
        "create_revision": 1,
        "version": 1,
        "lease": 0,
        "bytes": 9,
        "points_at": "/site/boxes/a/2",
        "record_state": "present",
    }


def test_a_counter_is_explained_with_its_next_number(site: Keyplan) -> None:
    assert site("explain", "/site/tickets", "--json").document["stored"]["next"] == 102


@pytest.mark.leaves("stale-entry", "wrong-entry")
def test_an_entry_of_another_record_is_told(site: Keyplan) -> None:
    commit(Put(b"/site/by-name/plates", b"boxes/b/1"))
    entries = site("explain", "/site/boxes/a/2", "--json").document["stored"]["index_entries"]
    assert entries[0] == {"index": "by_name", "key": "/site/by-name/plates", "state": "of another record"}


@pytest.mark.leaves("damaged-record")
def test_damage_is_told_and_is_no_error(site: Keyplan) -> None:
    commit(Put(b"/site/boxes/a/2", b"?"))
    answer = site("explain", "/site/boxes/a/2", "--json")
    assert (answer.code, "damaged" in answer.document["stored"]) == (0, True)


def test_an_unknown_key_gets_the_nearest_template(site: Keyplan) -> None:
    answer = site("explain", "/site/boxes/a/x", "--json").document
    assert (answer["kind"], answer["item"], answer["departs_at_byte"], answer["stored"]) == (
        "unknown",
        "boxes",
        14,
        None,
    )


def test_hexadecimal_and_escaped_keys_are_one(binary: Keyplan) -> None:
    key = "01" + "00" * 15 + "01" + "00" * 7 + "07"
    escaped = "".join(f"\\x{key[n : n + 2]}" for n in range(0, len(key), 2))
    assert binary("explain", "--hex", key).out == binary("explain", escaped).out
    assert binary("explain", "--hex", key, "--json").document["fields"] == {
        "group": "00000000-0000-0000-0000-000000000001",
        "number": 7,
    }


@pytest.mark.parametrize("words", [["--hex", "0x1"], ["a\\b"]])
def test_a_key_that_cannot_be_read_is_refused(site: Keyplan, words: list[str]) -> None:
    assert site("explain", *words).code == 5


def test_without_a_store_it_says_that_none_was_looked_at(run: Keyplan) -> None:
    answer = run("explain", "/CloudChamber/V0.1/racks/r1", "--layout", "cloudchamber")
    assert (answer.code, answer.err) == (
        0,
        "keyplan: no store was read: pass --store URL to see the record\n",
    )
    assert run("explain", "x", "--layout", "cloudchamber", "--offline").err == ""


def test_offline_looks_into_no_store(site: Keyplan) -> None:
    assert "stored" not in site("explain", "/site/notes/hello", "--offline", "--json").document


def test_without_a_layout_every_installed_one_that_knows_the_key_answers(run: Keyplan) -> None:
    answer = run("explain", "/CloudChamber/V0.1/racks/r1", "--json", "--offline")
    assert [
        (one["layout"], one["item"], one["fields"]) for one in answer.document if "CloudChamber" in one["layout"]
    ] == [("CloudChamber", "racks", {"rack": "r1"}), ("CloudChamberIndexed", "racks", {"rack": "r1"})]
    text = run("explain", "/CloudChamber/V0.1/racks/r1", "--offline").lines
    assert "CloudChamber: /CloudChamber/V0.1/racks/r1: record of racks (rack=r1)" in text


def test_without_a_layout_an_unknown_key_gets_the_nearest_of_all(run: Keyplan) -> None:
    (one,) = run("explain", "/CloudChamber/V0.1/rackyz", "--json", "--offline").document
    assert (one["layout"], one["kind"], one["departs_at_byte"]) == ("CloudChamber", "unknown", 23)


def test_a_layout_to_which_any_bytes_of_a_length_are_keys_does_not_hide_the_nearest(run: Keyplan) -> None:
    found = run("explain", "/CloudChamber/V0.1/rackz", "--json", "--offline").document
    assert [(one["layout"], one["kind"]) for one in found] == [("CloudChamber", "unknown"), ("HEPnOSRuns", "record")]


def test_a_parameter_without_a_layout_is_refused(run: Keyplan) -> None:
    assert run("explain", "x", "--parameter", "a=b").code == 5


# ---- dump --------------------------------------------------------------------------------------------------------------

HISTORY = {"create_revision": 1, "mod_revision": 1, "version": 1, "lease": 0}


def test_dump_says_of_each_key_what_it_means(site: Keyplan) -> None:
    lines = {line["key"]: line for line in site("dump").documents}
    assert len(lines) == 13
    assert lines["/site/notes/hello"] == {
        "key": "/site/notes/hello",
        "kind": "record",
        "item": "notes",
        "fields": {"note": "hello"},
        "record": "world",
        **HISTORY,
    }
    assert lines["/site/by-name/cups"]["value"] == "boxes/a/1"
    assert lines["/site/tickets"]["kind"] == "counter"


@pytest.mark.leaves("key-outside", "damaged-record")
def test_dump_keeps_what_it_does_not_know_and_what_is_damaged(site: Keyplan) -> None:
    commit(Put(b"/other", b"\x00\x01"), Put(b"/site/boxes/a/2", b"?"))
    lines = {line["key"]: line for line in site("dump").documents}
    history = {"create_revision": 2, "mod_revision": 2, "version": 1, "lease": 0}
    assert lines["/other"] == {"key": "/other", "kind": "unknown", "item": None, "value": "0001", **history}
    assert (lines["/site/boxes/a/2"]["value"], "damaged" in lines["/site/boxes/a/2"]) == ("3f", True)


def test_a_raw_dump_needs_no_layout(site: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEYPLAN_LAYOUT")
    assert site("dump", "/site/notes/", "--raw").documents == [
        {"key": b"/site/notes/hello".hex(), "value": b"world".hex(), **HISTORY},
        {"key": b"/site/notes/help".hex(), "value": b"needed".hex(), **HISTORY},
    ]
    assert site("dump").code == 5


def test_dump_writes_a_new_file_and_never_over_one(site: Keyplan, tmp_path: Path) -> None:
    answer = site("dump", "/site/notes/", "--output", "notes.jsonl")
    assert (answer.code, answer.out) == (0, "")
    assert len((tmp_path / "notes.jsonl").read_text().splitlines()) == 2
    again = site("dump", "--output", "notes.jsonl")
    assert (again.code, again.err) == (
        5,
        "keyplan: the input is not valid: there is a file of this name: give another one, or remove it (source notes.jsonl)\n",
    )


def test_a_dump_that_fails_leaves_no_file(site: Keyplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("keyplan.cli.keys._dump_line", damaged)
    assert site("dump", "--output", "notes.jsonl").code == 74
    assert not (tmp_path / "notes.jsonl").exists()


def test_dump_of_a_prefix_that_cannot_be_read_is_refused(site: Keyplan) -> None:
    assert site("dump", "\\q").code == 5


def test_the_registry_is_looked_for_at_the_key_of_its_layout() -> None:
    assert KeySpaceRegistry.bound().tables["header"].keys.encode(Only()) == REGISTRY_HEADER
