"""Index entries are a pure function of key and record, and lead back to the key."""

from uuid import UUID

import pytest

from keyplan.errors import CorruptionError, InvalidRecordError, LayoutError
from keyplan.layout import Index, Layout, Table, Unique, bind_layout, describe, layout_of_description
from tests.layout.layouts import Blade, BladeKey, Capacity, Label, Site

SITE = Site.bound()
KEY = BladeKey("r1", 7)


def entries(index: str, record: Blade) -> dict[bytes, bytes]:
    return dict(SITE.indexes[index].entries(KEY, record))


def test_a_unique_entry_of_a_key_of_several_fields_holds_the_key_below_the_root() -> None:
    assert entries("by_serial", Blade("s9")) == {b"/site/by-serial/s9": b"rack/r1/blades/7"}


def test_a_unique_entry_leads_back_to_its_record() -> None:
    assert SITE.indexes["by_serial"].primary_key(b"/site/by-serial/s9", b"rack/r1/blades/7") == KEY


@pytest.mark.parametrize("value", [b"", b"rack/r1", b"racks/r1", b"\xff"])
def test_a_unique_entry_that_names_no_record_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        SITE.indexes["by_serial"].primary_key(b"/site/by-serial/s9", value)
    assert caught.value.facts["raw_key"] == b"/site/by-serial/s9".hex()


def test_a_nested_attribute_is_reached_by_its_path() -> None:
    record = Blade("s", capacity=Capacity(cores=4, arch="x64"))
    assert entries("by_arch", record) == {b"/site/by-arch/x64/r1/7": b""}


def test_there_is_no_entry_while_a_component_is_none() -> None:
    assert entries("by_arch", Blade("s")) == {}


def test_a_collection_fans_out_and_repeated_items_make_one_entry() -> None:
    record = Blade("s", tags=["b", "a", "b"])
    assert entries("by_tag", record) == {b"/site/by-tag/on/b/r1/7": b"", b"/site/by-tag/on/a/r1/7": b""}


def test_there_is_no_entry_while_a_condition_does_not_hold() -> None:
    assert entries("by_tag", Blade("s", tags=["a"], state="off")) == {}
    assert entries("by_label", Blade("s", labels=[Label("n", "t")], project="secret")) == {}


def test_a_mapping_fans_out_into_its_pairs() -> None:
    assert entries("by_note", Blade("s", notes={"a": "1", "b": "2"})) == {
        b"/site/by-note/a/1/r1/7": b"",
        b"/site/by-note/b/2/r1/7": b"",
    }


def test_a_collection_of_records_fans_out_by_attribute() -> None:
    assert entries("by_label", Blade("s", labels=[Label("n", "t")])) == {b"/site/by-label/n/t/r1/7": b""}


def test_an_index_entry_leads_back_to_its_record() -> None:
    assert SITE.indexes["by_tag"].primary_key(b"/site/by-tag/on/a/r1/7", b"") == KEY


def test_a_described_layout_makes_the_same_entries_from_plain_records() -> None:
    described = bind_layout(layout_of_description(describe(Site.spec)))
    record = {
        "serial": "s",
        "tags": ["a"],
        "state": "on",
        "capacity": {"arch": "x64"},
        "labels": [{"name": "n", "text": "t"}],
    }
    for name, expected in {
        "by_tag": b"/site/by-tag/on/a/r1/7",
        "by_arch": b"/site/by-arch/x64/r1/7",
        "by_label": b"/site/by-label/n/t/r1/7",
    }.items():
        assert described.indexes[name].entries(("r1", 7), record) == ((expected, b""),)


class Words(Layout, root="w/"):
    lines = Table("lines/{line}", key=int, value=str)
    by_word = Index(
        "by-word/{word}/{line}", of=lines, key=str, on=lambda _line, text: text.lower().split() or None, version=1
    )
    by_first = Unique("by-first/{first}", of=lines, key=str, on=lambda _line, text: text[:1] or None, version=2)


def test_a_function_gives_the_fields_of_the_entries() -> None:
    words = Words.bound()
    assert dict(words.indexes["by_word"].entries(3, "To be to")) == {b"w/by-word/to/3": b"", b"w/by-word/be/3": b""}
    assert words.indexes["by_first"].entries(3, "To") == ((b"w/by-first/T", b"3"),)
    assert words.indexes["by_first"].entries(3, "") == ()


def test_a_described_layout_refuses_to_guess_what_a_function_gave() -> None:
    words = bind_layout(layout_of_description(describe(Words.spec)))
    with pytest.raises(LayoutError, match="Python function"):
        words.indexes["by_word"].entries(3, "x")


def test_a_function_that_returns_too_many_fields_is_refused() -> None:
    class Odd(Layout):
        lines = Table("lines/{line}", key=int, value=str)
        broken = Index("b/{word}/{line}", of=lines, key=str, on=lambda _line, text: [(text, text)], version=1)

    with pytest.raises(InvalidRecordError, match="2 fields, not 1"):
        Odd.bound().indexes["broken"].entries(1, "x")


def test_a_scalar_primary_key_is_the_value_of_its_unique_entry() -> None:
    class Named(Layout, root="n/"):
        things = Table("things/by-id/{id}/record", key=UUID, value=str)
        by_name = Unique("things/by-name/{name}", of=things, key=str, bind={"name": ""})

    index = Named.bound().indexes["by_name"]
    id_ = UUID("54b8d8d7-e24c-4379-9bbf-70c16e921e52")
    entry = (b"n/things/by-name/rhel", b"54b8d8d7e24c43799bbf70c16e921e52")
    assert index.entries(id_, "rhel") == (entry,)
    assert index.primary_key(*entry) == id_
