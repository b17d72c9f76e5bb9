"""put and delete."""

import io
from pathlib import Path

import pytest

import keyplan
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Box, Shelf, Site


def test_put_writes_the_record_with_its_index_entries(site: Keyplan) -> None:
    assert site("put", "boxes", "c", "1", '{"name": "spoons", "tags": ["red"]}').lines == ["revision 2"]
    assert site("get", "by_name", "spoons", "--json").document["key"] == {"room": "c", "number": 1}
    assert site("count", "by_tag", "red").lines == ["3"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("put", "notes", "n" * 600, "x"), 5),
        (("put", "notes", "n", "x", "--expected-revision", "5"), 4),
        (("keyspace", "create", "a/b", "-a", "shop"), 5),
        (("keyspace", "config", "protected=5"), 5),
    ],
)
def test_a_write_that_is_refused_leaves_no_new_store(
    site: Keyplan, tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    store = f"lmdb:{tmp_path}/new.kv"
    assert site(*words, "--store", store).code == code
    assert not (tmp_path / "new.kv").exists()
    assert site("put", "notes", "n", "x", "--store", store).lines == ["revision 1"]


def test_put_reads_the_record_from_standard_input(site: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "spoons"}\n')))
    assert site("put", "boxes", "c", "1", "-", "--json").document == {"revision": 2}
    assert site("get", "boxes", "c", "1").document["name"] == "spoons"


def test_what_get_prints_can_be_put(site: Keyplan) -> None:
    site("put", "boxes", "c", "1", '{"name": "keys", "secret": "AP8="}')
    printed = site("get", "boxes", "c", "1").out
    assert site("put", "boxes", "c", "1", printed).code == 0
    with keyplan.open("lmdb:site.kv") as store:
        assert Site(store).boxes.require(Shelf("c", 1)) == Box("keys", secret=b"\x00\xff")


def test_put_of_texts_and_of_nothing_takes_bare_words(site: Keyplan) -> None:
    assert site("put", "notes", "n", "two words").code == 0
    assert site("get", "notes", "n").document == "two words"
    assert site("put", "flags", "off").code == 0
    assert site("list", "flags", "--keys-only").lines == ["off", "on"]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ('{"name": 5}', "not a Box: Expected `str`, got `int` - at `$.name`"),
        ('{"size": 5}', "not a Box: Object missing required field `name`"),
        ('{"name": "x", "size": "5"}', "not a Box: Expected `int`, got `str` - at `$.size`"),
        ('{"name": "x", "sise": 5}', "a Box has no field $.sise"),
        ('{"name": "x", "place": {"roof": ""}}', "a Box has no field $.place.roof"),
        ("[]", "not a Box: Expected `object`, got `array`"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_with_its_field(site: Keyplan, record: str, problem: str) -> None:
    answer = site("put", "boxes", "c", "1", record, "--json")
    assert (answer.code, answer.error["facts"]) == (5, {"source": "VALUE", "problem": problem})
    assert site("count", "boxes").lines == ["3"]


def test_what_is_not_json_is_refused(site: Keyplan) -> None:
    answer = site("put", "boxes", "c", "1", "{name: x}", "--json")
    assert answer.code == 5
    assert answer.error["facts"]["problem"].startswith("not JSON, of which a Box is made: JSON is malformed")


def test_a_missing_record_is_told_as_such(site: Keyplan) -> None:
    answer = site("put", "boxes", "c", "1")
    assert (answer.code, "the record is missing" in answer.err) == (5, True)


def test_insert_fails_where_a_record_is(site: Keyplan) -> None:
    assert site("put", "notes", "hello", "again", "--insert").code == 4
    assert site("put", "notes", "new", "again", "--insert").code == 0


def test_expected_revision_is_the_records_own_and_0_means_absent(site: Keyplan) -> None:
    assert site("put", "notes", "hello", "x", "--expected-revision", "0").code == 4
    assert site("put", "notes", "hello", "x", "--expected-revision", "1").lines == ["revision 2"]
    stale = site("put", "notes", "hello", "y", "--expected-revision", "1", "--json")
    assert (stale.code, stale.error["code"], stale.error["facts"]["actual_revision"]) == (4, "stale-record", 2)
    assert site("put", "notes", "new", "y", "--expected-revision", "0").code == 0


def test_insert_and_expected_revision_do_not_go_together(site: Keyplan) -> None:
    assert site("put", "notes", "new", "y", "--expected-revision", "0", "--insert").code == 5


def test_a_unique_name_that_is_taken_is_a_conflict(site: Keyplan) -> None:
    answer = site("put", "boxes", "c", "1", '{"name": "cups"}', "--json")
    assert (answer.code, answer.error["code"]) == (4, "unique-violation")


def test_put_hangs_the_record_on_a_lease(site: Keyplan) -> None:
    with keyplan.open("lmdb:site.kv") as store:
        lease = store.engine.lease(3600)
        number = lease.id
    assert site("put", "holders", "h", "me", "--lease", str(number)).code == 0
    assert site("get", "holders", "h", "--json").document["lease"] == number
    gone = site("put", "holders", "h", "me", "--lease", str(number + 1))
    assert gone.code == 7


def test_explain_prints_the_commit_and_writes_nothing(site: Keyplan) -> None:
    assert site("put", "notes", "new", "text", "--explain").lines == [
        "put  /site/notes/new  4 bytes  record of notes (note=new)"
    ]
    assert site("delete", "boxes", "a", "2", "--explain", "--json").document == {
        "guards": [
            {"guard": "key unchanged", "key": "/site/boxes/a/2", "revision": 1},
            {"guard": "key unchanged", "key": "/site/by-name/plates", "revision": 1},
        ],
        "mutations": [
            {"mutation": "delete", "key": "/site/boxes/a/2"},
            {"mutation": "delete", "key": "/site/by-name/plates"},
            {"mutation": "delete", "key": "/site/by-tag/red/a/2"},
        ],
    }
    assert site("count", "boxes").lines == ["3"]
    assert site("count", "notes").lines == ["2"]


def test_put_makes_a_store_that_is_not_there(site: Keyplan, tmp_path: Path) -> None:
    assert site("put", "notes", "a", "b", "--store", "lmdb:new.kv").code == 0
    assert site("get", "notes", "a", "--store", "lmdb:new.kv").document == "b"


def test_put_into_an_index_fails(site: Keyplan) -> None:
    answer = site("put", "by_name", "x", "y")
    assert (answer.code, answer.err) == (
        5,
        (
            "keyplan: the input is not valid: by_name is not a table; the tables are boxes, notes, flags, holders, raw"
            " (source ITEM)\n"
        ),
    )


def test_delete_removes_the_record_with_its_index_entries(site: Keyplan) -> None:
    assert site("delete", "boxes", "a", "1").lines == ["revision 2"]
    assert [site("count", item).lines for item in ("boxes", "by_name", "by_tag")] == [["2"], ["2"], ["1"]]


def test_delete_of_nothing_fails_unless_that_is_allowed(site: Keyplan) -> None:
    assert site("delete", "notes", "z").code == 3
    assert site("delete", "notes", "z", "--missing-ok", "--json").document == {"revision": 1}


def test_delete_with_a_stale_revision_fails(site: Keyplan) -> None:
    assert site("delete", "notes", "hello", "--expected-revision", "7").code == 4
    assert site("delete", "notes", "hello", "--expected-revision", "1").code == 0


def test_nothing_is_deleted_by_prefix(site: Keyplan) -> None:
    assert site("delete", "boxes", "a").code == 5
    assert site("count", "boxes").lines == ["3"]
