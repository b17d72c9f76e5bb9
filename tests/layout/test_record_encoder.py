"""A record, encoded, is what its key, its value and each of its indexes say one by one; these are the reference here."""

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.errors import InvalidKeyError, InvalidRecordError, RecordError
from keyplan.layout import BoundTable, Index, Layout, Table, Unique
from tests.layout.layouts import Blade, BladeKey, Capacity, Label, Site

SITE = Site.bound()
BLADES = SITE.tables["blades"]

words = st.sampled_from(["a", "b", "on", "", "a/b", "ü", "secret", "x" * 300])
blades = st.builds(
    Blade,
    serial=st.none() | words,
    tags=st.lists(words, max_size=3),
    state=words,
    capacity=st.none() | st.builds(Capacity, cores=st.integers(0, 9), arch=words),
    labels=st.lists(st.builds(Label, name=words, text=words), max_size=2),
    notes=st.dictionaries(words, words, max_size=2),
)


def one_by_one(table: BoundTable, key: object, record: object) -> object:
    """What the encoded record should be, by the functions of the parts; or the class of what they raise."""
    try:
        raw_key, raw_value = table.keys.encode(key), table.form.encode(record)
        entries = [(index, *entry) for index in table.indexes for entry in index.entries(key, record)]
    except RecordError as error:
        return type(error), str(error)
    index_entries = {raw: (index.name, value) for index, raw, value in entries}
    return raw_key, raw_value, index_entries, {raw for index, raw, _ in entries if index.spec.is_unique}


def at_once(table: BoundTable, key: object, record: object) -> object:
    try:
        raw_key, raw_value, index_entries, unique = table.encoded_record(key, record)
    except RecordError as error:
        return type(error), str(error)
    assert all(index_entries[raw] == index_entry for raw, index_entry in unique.items())
    shown = {raw: (index_entry.source.name, index_entry.raw_value) for raw, index_entry in index_entries.items()}
    return raw_key, raw_value, shown, set(unique)


@given(rack=words, slot=st.integers(-1, 9), blade=blades)
def test_it_says_what_the_parts_say_and_raises_what_they_raise(rack: str, slot: int, blade: Blade) -> None:
    key = BladeKey(rack, slot)

    assert at_once(BLADES, key, blade) == one_by_one(BLADES, key, blade)


def test_it_spells_key_value_and_entries() -> None:
    raw_key, _, index_entries, unique = BLADES.encoded_record(BladeKey("r1", 7), Blade("s9", tags=["t"]))

    assert raw_key == b"/site/rack/r1/blades/7"
    assert index_entries[b"/site/by-serial/s9"].raw_value == b"rack/r1/blades/7"
    assert b"/site/by-tag/on/t/r1/7" in index_entries
    assert set(unique) == {b"/site/by-serial/s9"}


class Pair(NamedTuple):
    left: UUID
    right: int


class Many(Layout, root=b"M"):
    """Fixed-width keys in several templates, the same fields under other names, and an index made by a function."""

    pairs = Table(b"p{left}{right:u16}", key=Pair, value=dict[str, Any])
    by_number = Unique(b"n{number:u32}", of=pairs, key=int)
    by_size = Index(b"r{size:u16}{left}{right:u16}", of=pairs, key=int)
    by_word = Unique(
        b"w{digit:u8}", of=pairs, key=int, on=lambda _key, record: [len(word) for word in record["words"]], version=1
    )


PAIRS = Many.bound().tables["pairs"]
LEFT = UUID(int=5)


@pytest.mark.parametrize(
    "record",
    [
        {"number": 1, "size": 2, "words": ["a", "bb", "c"]},
        {"number": None, "size": 2, "words": []},
        {"number": 1 << 40, "size": 2, "words": []},
        {"number": 1, "size": "2", "words": []},
    ],
    ids=["usual", "one is None", "too large", "no number"],
)
def test_binary_keys_and_functions_are_no_exception(record: dict[str, Any]) -> None:
    assert at_once(PAIRS, Pair(LEFT, 3), record) == one_by_one(PAIRS, Pair(LEFT, 3), record)


@pytest.mark.parametrize(
    "unfit_key", [("r1", 7, 8), "r1", None, ("r1", "x")], ids=["too long", "no tuple", "None", "wrong type"]
)
def test_an_unfit_key_is_named_as_ever(unfit_key: object) -> None:
    with pytest.raises(InvalidKeyError) as expected:
        BLADES.keys.encode(unfit_key)
    with pytest.raises(InvalidKeyError) as caught:
        BLADES.encoded_record(unfit_key, Blade("s"))

    assert caught.value.facts == expected.value.facts


def test_a_record_of_another_class_is_refused_before_its_fields_are_read() -> None:
    with pytest.raises(InvalidRecordError):
        BLADES.encoded_record(BladeKey("r1", 7), {"serial": "s"})


def test_a_stored_value_is_not_encoded_again() -> None:
    assert BLADES.encoded_record(BladeKey("r1", 7), Blade("s"), b"as stored")[1] == b"as stored"
