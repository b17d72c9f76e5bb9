"""ls, tree, get, list and count."""

import re
import shlex
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, Put
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Site


def put_raw(folder: Path, key: bytes, value: bytes) -> None:
    with keyplan.open(f"lmdb:{folder}/site.kv") as store:
        store.engine.commit(Commit(mutations=(Put(key, value),)))


# ---- ls --------------------------------------------------------------------------------------------------------------


def test_ls_counts_every_item_in_tab_separated_lines(site: Keyplan) -> None:
    assert site("ls").lines == [
        "boxes\ttable\t3\tboxes/{room}/{number}",
        "notes\ttable\t2\tnotes/{note}",
        "flags\ttable\t1\tflags/{flag}",
        "holders\ttable\t0\tholders/{holder}",
        "raw\ttable\t0\traw",
        "by_name\tunique\t3\tby-name/{name}",
        "by_tag\tindex\t3\tby-tag/{tag}/{room}/{number}",
        "tickets\tcounter\t102\ttickets",
    ]


def test_ls_as_json_has_an_object_for_each_item(site: Keyplan) -> None:
    assert site("ls", "--json").document[6:] == [
        {"item": "by_tag", "kind": "index", "number": 3, "template": "by-tag/{tag}/{room}/{number}"},
        {"item": "tickets", "kind": "counter", "number": 102, "template": "tickets"},
    ]


def test_ls_of_an_item_has_each_value_of_the_next_field_once(site: Keyplan) -> None:
    assert site("ls", "boxes").lines == ["a", "b"]
    assert site("ls", "boxes", "a").lines == ["1", "2"]
    assert site("ls", "by_tag").lines == ["blue", "red"]
    assert site("ls", "boxes", "a", "--json").document == [1, 2]


def test_ls_says_that_there_are_more_values(site: Keyplan) -> None:
    answer = site("ls", "boxes", "--limit", "1")
    assert (answer.lines, answer.err) == (["a"], "keyplan: there are more than 1 values; --limit shows more\n")
    assert site("ls", "boxes", "--limit", "2").err == ""


def test_ls_of_a_whole_key_refers_to_get(site: Keyplan) -> None:
    answer = site("ls", "boxes", "a", "1")
    assert (answer.code, answer.err) == (
        5,
        "keyplan: the input is not valid: the key is whole: use `keyplan get boxes` (source FIELD)\n",
    )


def test_ls_of_a_counter_refers_to_get(site: Keyplan) -> None:
    answer = site("ls", "tickets")
    assert (answer.code, "use `keyplan get tickets`" in answer.err) == (5, True)


def test_ls_shows_binary_keys(binary: Keyplan) -> None:
    assert binary("ls").lines == ["pairs\ttable\t2\t{group}{number}"]
    assert binary("ls", "pairs").lines == ["00000000-0000-0000-0000-000000000001"]
    assert binary("ls", "pairs", "00000000-0000-0000-0000-000000000001").lines == ["7", "300"]


# ---- tree ------------------------------------------------------------------------------------------------------------


def test_tree_shows_records_by_their_fields(site: Keyplan) -> None:
    assert site("tree", "boxes", "holders").lines == [
        "Site  /site/",
        "  boxes  boxes/{room}/{number}",
        "    a",
        "      1",
        "      2",
        "    b",
        "      1",
        "  holders  holders/{holder}  (none)",
    ]


def test_tree_is_bounded_in_depth_and_breadth(site: Keyplan) -> None:
    assert site("tree", "boxes", "--depth", "1", "--limit", "1").lines[2:] == ["    a", "    ..."]


def test_tree_as_json_nests_the_values(site: Keyplan) -> None:
    assert site("tree", "boxes", "--json", "--limit", "1").document == {
        "layout": "Site",
        "root": "/site/",
        "tables": {
            "boxes": {
                "values": [{"value": "a", "below": {"values": [{"value": "1"}], "has_more": True}}],
                "has_more": True,
            }
        },
    }


def test_tree_of_an_index_fails(site: Keyplan) -> None:
    assert site("tree", "by_name").code == 5


# ---- get -------------------------------------------------------------------------------------------------------------

CUPS = {
    "name": "cups",
    "size": 3,
    "label": None,
    "tags": ["red", "blue"],
    "place": {"room": "cellar", "height": 2},
    "secret": "",
}


def test_get_in_a_pipe_prints_the_record_and_nothing_else(site: Keyplan) -> None:
    assert site("get", "boxes", "a", "1").document == CUPS


def test_get_as_json_has_the_key_and_the_history(site: Keyplan) -> None:
    assert site("get", "boxes", "a", "1", "--json").document == {
        "table": "boxes",
        "key": {"room": "a", "number": 1},
        "record": CUPS,
        "revision": 1,
        "create_revision": 1,
        "version": 1,
        "lease": 0,
    }


def test_get_finds_by_a_unique_index_and_by_an_index_with_its_whole_key(site: Keyplan) -> None:
    assert site("get", "by_name", "cups").document == CUPS
    assert site("get", "by_tag", "blue", "a", "1", "--json").document["key"] == {"room": "a", "number": 1}


def test_get_by_an_index_without_the_entry_finds_nothing_though_the_record_is_there(site: Keyplan) -> None:
    assert site("get", "by_tag", "green", "a", "1").code == 3


def test_get_of_a_counter_prints_its_next_number(site: Keyplan) -> None:
    assert site("get", "tickets").lines == ["102"]
    assert site("get", "tickets", "--json").document == {"item": "tickets", "next": 102}


def test_get_of_nothing_fails_with_3(site: Keyplan) -> None:
    answer = site("get", "boxes", "z", "9")
    assert (answer.code, answer.out, answer.err) == (
        3,
        "",
        "keyplan: there is no such record (item boxes, key z 9)\n",
    )


def test_get_with_a_wrong_number_of_words_names_the_fields(site: Keyplan) -> None:
    answer = site("get", "boxes", "a")
    assert (answer.code, answer.err) == (
        5,
        "keyplan: the key is not valid: the key is ROOM NUMBER, 2 words; 1 given\n",
    )


def test_get_with_a_word_that_is_no_number_names_the_field(site: Keyplan) -> None:
    answer = site("get", "boxes", "a", "x", "--json")
    assert (answer.code, answer.error["facts"]["field"], answer.error["facts"]["problem"]) == (
        5,
        "number",
        "must be a whole number, got 'x'",
    )


def test_get_of_a_key_without_fields(site: Keyplan) -> None:
    assert site("put", "raw", "a\\x00b").code == 0
    assert site("get", "raw").document == "a\\x00b"


# ---- list and count --------------------------------------------------------------------------------------------------


def test_list_prints_a_record_a_line_and_escapes_what_does_not_print(site: Keyplan) -> None:
    assert site("list", "boxes").lines == [
        "a\t1\tname=cups  size=3  tags=[red blue]  place={room=cellar height=2}  secret=",
        "a\t2\tname=plates  size=5  tags=[red]  secret=",
        "b\t1\tname=forks  size=0  label=cut\\x1blery  tags=[]  secret=",
    ]


def test_list_of_a_prefix_is_exact(site: Keyplan) -> None:
    assert [line.split("\t")[:2] for line in site("list", "boxes", "b").lines] == [["b", "1"]]


def test_list_of_records_without_a_value_has_keys_alone(site: Keyplan) -> None:
    assert site("list", "flags").lines == ["on\t"]
    assert site("list", "flags", "--keys-only").lines == ["on"]


def test_list_by_an_index_takes_limit_reverse_and_starts_with(site: Keyplan) -> None:
    assert site("list", "by_tag", "red", "--keys-only").lines == ["a\t1", "a\t2"]
    assert site("list", "by_tag", "red", "--keys-only", "--reverse", "--limit", "1").lines == ["a\t2"]
    assert site("list", "by_name", "--starts-with", "cu", "--keys-only").lines == ["a\t1"]


def test_list_as_json_has_an_object_a_line(site: Keyplan) -> None:
    assert site("list", "notes", "--json").documents == [
        {"key": {"note": "hello"}, "record": "world"},
        {"key": {"note": "help"}, "record": "needed"},
    ]
    assert site("list", "notes", "--json", "--keys-only", "-n", "1").documents == [{"key": {"note": "hello"}}]


def test_bounds_keep_what_is_at_least_and_below(binary: Keyplan, site: Keyplan) -> None:
    assert site("list", "notes", "--at-least", "help", "--keys-only").lines == ["help"]
    assert site("list", "notes", "--below", "help", "--keys-only").lines == ["hello"]
    assert site("count", "notes", "--at-least", "h", "--below", "i").lines == ["2"]


def test_bounds_of_numbers_in_binary_keys(binary: Keyplan) -> None:
    group = "00000000-0000-0000-0000-000000000001"
    assert binary("list", "pairs", group, "--at-least", "8").lines == [f"{group}\t300\ttext"]
    assert binary("list", "pairs", group, "--below", "8").lines == [f"{group}\t7\t\\x00\\xff"]


def test_bounds_on_an_index_fail(site: Keyplan) -> None:
    answer = site("list", "by_name", "--at-least", "a")
    assert (answer.code, answer.err) == (
        5,
        "keyplan: the input is not valid: by_name is an index; only a table's list has bounds (source --at-least)\n",
    )


def test_narrowing_a_whole_key_fails(site: Keyplan) -> None:
    assert site("list", "notes", "hello", "--starts-with", "x").code == 5


def test_count_counts_and_so_does_its_json(site: Keyplan) -> None:
    assert site("count", "boxes", "a").lines == ["2"]
    assert site("count", "by_tag", "--json").document == {"item": "by_tag", "count": 3}


def test_count_of_an_unknown_item_names_those_there_are(site: Keyplan) -> None:
    answer = site("count", "box", "--json")
    assert (answer.code, answer.error) == (
        6,
        {
            "code": "unknown-name",
            "summary": "there is nothing of that name",
            "facts": {
                "kind": "item",
                "name": "box",
                "known": ["boxes", "notes", "flags", "holders", "raw", "by_name", "by_tag", "tickets"],
                "layout": "Site",
            },
        },
    )


# ---- the wrong layout, the wrong store, damaged bytes ------------------------------------------------------------------


def test_a_layout_that_knows_no_key_of_the_store_gives_a_hint(site: Keyplan) -> None:
    for command in (("ls",), ("list", "racks"), ("count", "racks"), ("tree",), ("ls", "racks")):
        answer = site(*command, "--layout", "cloudchamber")
        assert answer.code == 0
        assert answer.err == (
            "keyplan: the store holds keys, none of which CloudChamber knows: wrong --layout or --parameter?"
            " The first is /site/boxes/a/1; `keyplan explain` tries every installed layout on it.\n"
        )


def test_an_empty_table_beside_others_and_an_empty_store_give_no_hint(run: Keyplan, site: Keyplan) -> None:
    assert site("list", "holders").err == ""
    keyplan.open("lmdb:empty.kv").close()
    assert site("ls", "--store", "lmdb:empty.kv").err == ""


def test_reading_commands_make_no_store(run: Keyplan, tmp_path: Path) -> None:
    for command in (
        ("ls",),
        ("tree",),
        ("get", "racks", "r"),
        ("list", "racks"),
        ("count", "racks"),
        ("dump",),
        ("explain", "k"),
        ("delete", "racks", "r"),
    ):
        answer = run(*command, "--layout", "cloudchamber", "--store", "lmdb:mistyped.kv")
        assert (answer.code, "there is no store here" in answer.err) == (7, True)
    assert not (tmp_path / "mistyped.kv").exists()


def test_reading_commands_ask_to_read_only(site: Keyplan, tmp_path: Path) -> None:
    # Why: where the folder may not be written, or another user's permissions rule, reading must go on.
    before = (tmp_path / "site.kv" / "data.mdb").read_bytes()
    for command in (("ls",), ("get", "notes", "hello"), ("dump",), ("explain", "/site/notes/hello")):
        assert site(*command).code == 0
    assert (tmp_path / "site.kv" / "data.mdb").read_bytes() == before


@pytest.mark.leaves("damaged-record")
def test_a_damaged_value_is_told_with_its_raw_key_and_never_its_content(site: Keyplan, tmp_path: Path) -> None:
    put_raw(tmp_path, b"/site/boxes/a/2", b'{"name": SECRET')
    for command in (("list", "boxes"), ("get", "boxes", "a", "2")):
        answer = site(*command, "--json")
        assert answer.code == 8
        assert answer.error["facts"]["raw_key"] == b"/site/boxes/a/2".hex()
        assert answer.error["facts"]["table"] == "boxes"
        assert "SECRET" not in answer.err


@pytest.mark.leaves("damaged-record")
@pytest.mark.parametrize("item", ["boxes", "by_name", "by_tag"])
def test_a_damaged_record_does_not_end_a_list(site: Keyplan, tmp_path: Path, item: str) -> None:
    whole = site("list", item).lines
    put_raw(tmp_path, b"/site/boxes/a/2", b"?")
    answer = site("list", item)
    assert (answer.code, answer.lines) == (8, [line for line in whole if not line.startswith("a\t2\t")])
    assert "`keyplan raw quarantine /site/boxes/a/2` sets it aside" in answer.err
    documents = site("list", item, "--json")
    assert (documents.code, len(documents.lines)) == (8, len(answer.lines))
    assert documents.error["facts"]["raw_key"] == b"/site/boxes/a/2".hex()
    assert site("list", item, "--keys-only").code == 0, "keys can be read"
    assert site("count", item).lines == [str(len(whole))]


@pytest.mark.leaves("damaged-record")
def test_the_command_that_a_damaged_record_is_reported_with_mends_it(site: Keyplan, tmp_path: Path) -> None:
    key = "/site/notes/it's a note"
    put_raw(tmp_path, key.encode(), b"\xff")
    commands = re.findall("`keyplan ([^`]*)`", site("list", "notes").err)
    assert [command.split()[0] for command in commands] == ["extract", "raw", "raw"]
    assert site(*shlex.split(commands[1]), "--yes").code == 0
    assert site("list", "notes").code == 0
    put_raw(tmp_path, key.encode(), b"\xff")


@pytest.mark.leaves("index-not-ready")
def test_an_index_that_cannot_be_read_ends_no_list_of_items(site: Keyplan) -> None:
    whole = site("ls").lines
    assert site("index", "prepare", "by_tag").code == 0
    answer = site("ls")
    assert answer.code == 4
    assert answer.lines == [line.replace("index\t3", "index\t?") for line in whole]
    assert "`keyplan index build by_tag` builds it" in answer.err
    document = site("ls", "--json")
    assert (document.code, document.document[6]["number"], document.document[7]["number"]) == (4, None, 102)
    for command in (("ls", "by_tag"), ("count", "by_tag"), ("list", "by_tag"), ("get", "by_tag", "pink", "a", "1")):
        refused = site(*command)
        assert (refused.code, refused.lines) == (4, []), command


@pytest.mark.leaves("damaged-counter")
def test_a_damaged_counter_ends_no_list_of_items(site: Keyplan, tmp_path: Path) -> None:
    put_raw(tmp_path, b"/site/tickets", b"?")
    answer = site("ls")
    assert (answer.code, answer.lines[-1]) == (8, "tickets\tcounter\t?\ttickets")


def test_the_layouts_class_is_what_the_store_was_written_with(site: Keyplan, tmp_path: Path) -> None:
    with keyplan.open(f"lmdb:{tmp_path}/site.kv") as store:
        assert Site(store).notes.require("hello") == "world"
