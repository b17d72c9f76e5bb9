"""HEPnOS's keys byte for byte: those that the document describes, and those that the C++ program was seen to write."""

from typing import Final, NamedTuple
from uuid import UUID

import pytest

from keyplan.apps.hepnos import (
    CPP_LAYOUTS,
    INVALID_NUMBER,
    LAYOUTS,
    DataSetKey,
    EventKey,
    HEPnOSCppDataSets,
    HEPnOSCppEvents,
    HEPnOSCppProducts,
    HEPnOSCppRuns,
    HEPnOSCppSubRuns,
    HEPnOSDataSets,
    HEPnOSEvents,
    HEPnOSProducts,
    HEPnOSRuns,
    HEPnOSSubRuns,
    ProductKey,
    RunKey,
    SubRunKey,
)
from keyplan.errors import InvalidKeyError
from keyplan.layout import CompiledKeys, Kind, Layout, describe, layout_of_description

DATASET: Final = UUID("00112233-4455-6677-8899-aabbccddeeff")
RAW_UUID: Final = "00112233445566778899aabbccddeeff"
NOTHING: Final = "ffffffffffffffff"
VECTOR_TYPE: Final = "std::vector<P64, std::allocator<P64> >"


class Golden(NamedTuple):
    """A key in hexadecimal digits, the layout it belongs to, and the Python key."""

    name: str
    layout: type[Layout]
    key: object
    raw: str


GOLDEN: Final = (
    # hepnos.md 2.1
    Golden("aaa", HEPnOSDataSets, DataSetKey("", "aaa"), "00 616161"),
    Golden("aaa/bbb", HEPnOSDataSets, DataSetKey("aaa", "bbb"), "01 6161612f626262"),
    Golden("aaa/bbb/ccc", HEPnOSDataSets, DataSetKey("aaa/bbb", "ccc"), "02 6161612f6262622f636363"),
    Golden("run 1", HEPnOSRuns, RunKey(DATASET, 1), f"{RAW_UUID} 0000000000000001"),
    Golden(
        "subrun 2 of run 300",
        HEPnOSSubRuns,
        SubRunKey(DATASET, 300, 2),
        f"{RAW_UUID} 000000000000012c 0000000000000002",
    ),
    Golden(
        "event 5",
        HEPnOSEvents,
        EventKey(DATASET, 1, 2, 5),
        f"{RAW_UUID} 0000000000000001 0000000000000002 0000000000000005",
    ),
    Golden(
        "product of an event",
        HEPnOSProducts,
        ProductKey(DATASET, 1, 2, 5, "hits", "float32"),
        f"{RAW_UUID} 0000000000000001 0000000000000002 0000000000000005 6869747323 666c6f61743332",
    ),
    Golden(
        "product of a run",
        HEPnOSProducts,
        ProductKey(DATASET, 1, INVALID_NUMBER, INVALID_NUMBER, "cal", "calib"),
        f"{RAW_UUID} 0000000000000001 {NOTHING} {NOTHING} 63616c23 63616c6962",
    ),
    Golden(
        "product of a data set",
        HEPnOSProducts,
        ProductKey(DATASET, INVALID_NUMBER, INVALID_NUMBER, INVALID_NUMBER, "meta", "str"),
        f"{RAW_UUID} {NOTHING} {NOTHING} {NOTHING} 6d65746123 737472",
    ),
    # rulings 8 to 10
    Golden("the last run", HEPnOSRuns, RunKey(DATASET, 2**64 - 2), f"{RAW_UUID} fffffffffffffffe"),
    Golden(
        "a product of a subrun without a label",
        HEPnOSProducts,
        ProductKey(DATASET, 1, 2, INVALID_NUMBER, "", "a#b"),
        f"{RAW_UUID} 0000000000000001 0000000000000002 {NOTHING} 23 612362",
    ),
    # hepnos.md 2.2
    Golden("C++ aaa", HEPnOSCppDataSets, DataSetKey("", "aaa"), "01 616161"),
    Golden("C++ aaa/bbb", HEPnOSCppDataSets, DataSetKey("aaa", "bbb"), "02 2f6161612f626262"),
    Golden("C++ aaa/bbbb", HEPnOSCppDataSets, DataSetKey("aaa", "bbbb"), "02 2f6161612f62626262"),
    Golden("C++ aaa/bbb/ccc", HEPnOSCppDataSets, DataSetKey("aaa/bbb", "ccc"), "03 2f6161612f6262622f636363"),
    Golden("C++ aaa/bbbb/xyz", HEPnOSCppDataSets, DataSetKey("aaa/bbbb", "xyz"), "03 2f6161612f626262622f78797a"),
    Golden("C++ run 1", HEPnOSCppRuns, RunKey(DATASET, 1), f"{RAW_UUID} 0000000000000001 {NOTHING} {NOTHING}"),
    Golden("C++ run 300", HEPnOSCppRuns, RunKey(DATASET, 300), f"{RAW_UUID} 000000000000012c {NOTHING} {NOTHING}"),
    Golden(
        "C++ a large run",
        HEPnOSCppRuns,
        RunKey(DATASET, 0x0102030405060708),
        f"{RAW_UUID} 0102030405060708 {NOTHING} {NOTHING}",
    ),
    Golden(
        "C++ subrun",
        HEPnOSCppSubRuns,
        SubRunKey(DATASET, 1, 2),
        f"{RAW_UUID} 0000000000000001 0000000000000002 {NOTHING}",
    ),
    Golden(
        "C++ event",
        HEPnOSCppEvents,
        EventKey(DATASET, 1, 2, 5),
        f"{RAW_UUID} 0000000000000001 0000000000000002 0000000000000005",
    ),
    Golden(
        "C++ product",
        HEPnOSCppProducts,
        ProductKey(DATASET, 1, 2, 5, "v", VECTOR_TYPE),
        f"{RAW_UUID} 0000000000000001 0000000000000002 0000000000000005 7623 {VECTOR_TYPE.encode().hex()}",
    ),
)


def keys_of(layout: type[Layout]) -> CompiledKeys:
    """The keys of a layout's only table."""
    (table,) = layout.bound().tables.values()
    return table.keys


def listed(layout: type[Layout], keys: list[object], *fields: object) -> list[object]:
    """What a list by these fields gives of a store that holds the keys: the range, in byte order, read by the template."""
    compiled = keys_of(layout)
    start, end = compiled.range(fields)
    held = sorted(compiled.encode(key) for key in keys)
    return [compiled.decode(raw) for raw in held if start <= raw and (end is None or raw < end)]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_a_key_has_the_documented_bytes_and_they_mean_it(golden: Golden) -> None:
    raw = bytes.fromhex(golden.raw)
    compiled = keys_of(golden.layout)
    assert compiled.encode(golden.key) == raw
    assert compiled.decode(raw) == golden.key
    meaning = golden.layout.bound().meaning(raw)
    assert (meaning.kind, meaning.key) == (Kind.RECORD, golden.key)


def test_every_layout_has_a_documented_key() -> None:
    assert {golden.layout for golden in GOLDEN} == {*LAYOUTS, *CPP_LAYOUTS}


@pytest.mark.parametrize(
    ("layout", "width"),
    [(HEPnOSRuns, 24), (HEPnOSSubRuns, 32), (HEPnOSEvents, 40), (HEPnOSCppRuns, 40), (HEPnOSCppSubRuns, 40)],
)
def test_numbered_keys_have_a_fixed_width(layout: type[Layout], width: int) -> None:
    assert keys_of(layout).template.language.width == width


@pytest.mark.parametrize(
    ("layout", "width"),
    [(HEPnOSRuns, 16), (HEPnOSSubRuns, 24), (HEPnOSEvents, 32), (HEPnOSProducts, 32)],
)
def test_a_key_is_placed_by_its_first_bytes(layout: type[Layout], width: int) -> None:
    """`selected by consistent hashing` of the UUID, of UUID and run, of UUID, run and subrun, and that for products too."""
    ((table,), compiled) = (layout.spec.tables.values(), keys_of(layout))
    assert table.place == compiled.template.field_names[: len(table.place)]
    assert len(compiled.prefix((DATASET, 1, 2)[: len(table.place)])) == width


def test_a_data_set_is_placed_by_its_whole_key() -> None:
    assert HEPnOSDataSets.spec.tables["datasets"].place == ("parent.level", "parent", "name")


@pytest.mark.parametrize("layout", [HEPnOSRuns, HEPnOSCppRuns])
def test_runs_list_in_numeric_order(layout: type[Layout]) -> None:
    keys: list[object] = [RunKey(DATASET, number) for number in (300, 1, 2**40, 0, 255, 256, 2**64 - 2)]
    assert listed(layout, keys, DATASET) == [
        RunKey(DATASET, number) for number in (0, 1, 255, 256, 300, 2**40, 2**64 - 2)
    ]


@pytest.mark.parametrize("number", [2**64 - 1, -1, 2**64, True, 1.5, "1", None])
@pytest.mark.parametrize(
    ("layout", "fields"),
    [(HEPnOSRuns, (DATASET,)), (HEPnOSSubRuns, (DATASET, 1)), (HEPnOSEvents, (DATASET, 1, 2))],
    ids=["run", "subrun", "event"],
)
def test_what_is_no_number_of_a_container_is_refused(
    layout: type[Layout], fields: tuple[object, ...], number: object
) -> None:
    with pytest.raises(InvalidKeyError):
        keys_of(layout).encode((*fields, number))


def test_the_invalid_number_is_not_read_as_a_run() -> None:
    assert keys_of(HEPnOSRuns).decode(bytes.fromhex(RAW_UUID + NOTHING)) is None
    assert keys_of(HEPnOSCppRuns).decode(bytes.fromhex(RAW_UUID + NOTHING * 3)) is None


def test_runs_of_the_last_data_set_are_listed_to_the_end_of_the_database() -> None:
    last, before = UUID(int=2**128 - 1), UUID(int=2**128 - 2)
    keys: list[object] = [RunKey(before, 7), RunKey(last, 0), RunKey(last, 2**64 - 2)]
    assert keys_of(HEPnOSRuns).range((last,))[1] is None
    assert listed(HEPnOSRuns, keys, last) == [RunKey(last, 0), RunKey(last, 2**64 - 2)]


# ---- data sets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [HEPnOSDataSets, HEPnOSCppDataSets])
def test_the_children_of_a_data_set_are_listed_without_those_of_names_that_begin_alike(layout: type[Layout]) -> None:
    """`we list all the keys that start with [2]aaa/bbb`: read with its slash, or aaa/bbbb/x would be listed too."""
    paths = ["aaa/bbb", "aaa/bbbb", "aaa/bbbb/x", "aaa/bbb/c", "aaa/bbb/c/d", "aaa/bbb-z/y", "aaa/bbb/a", "c"]
    keys: list[object] = [DataSetKey.of_path(path) for path in paths]
    assert listed(layout, keys, "aaa/bbb") == [DataSetKey("aaa/bbb", "a"), DataSetKey("aaa/bbb", "c")]
    assert listed(layout, keys, "") == [DataSetKey("", "c")]


def test_the_children_are_read_by_one_prefix() -> None:
    assert keys_of(HEPnOSDataSets).range(("aaa/bbb",)) == (b"\x02aaa/bbb/", b"\x02aaa/bbb0")
    assert keys_of(HEPnOSDataSets).range(("",)) == (b"\x00", b"\x01")


def test_children_list_in_byte_order_of_their_names_those_before_the_ampersand_too() -> None:
    names = ["é", "#x", "日本", "!x", "&", "%x", "B", "a", "z" * 200]
    assert listed(HEPnOSDataSets, [DataSetKey("p", name) for name in names], "p") == [
        DataSetKey("p", name) for name in ["!x", "#x", "%x", "&", "B", "a", "z" * 200, "é", "日本"]
    ]


@pytest.mark.parametrize(("layout", "level"), [(HEPnOSDataSets, 255), (HEPnOSCppDataSets, 255)])
def test_the_deepest_level_fits_one_byte(layout: type[Layout], level: int) -> None:
    depth = 256 if layout is HEPnOSDataSets else 255
    deepest = DataSetKey.of_path("/".join(["d"] * depth))
    raw = keys_of(layout).encode(deepest)
    assert raw[0] == level
    assert keys_of(layout).decode(raw) == deepest
    with pytest.raises(InvalidKeyError):
        keys_of(layout).encode(DataSetKey.of_path("/".join(["d"] * (depth + 1))))


@pytest.mark.parametrize(
    ("parent", "name"), [("", ""), ("", "a/b"), ("", "a\x00"), ("/a", "b"), ("a/", "b"), ("a//b", "c"), ("a\x00", "b")]
)
def test_what_is_no_name_of_a_data_set_is_refused(parent: str, name: str) -> None:
    with pytest.raises(InvalidKeyError):
        keys_of(HEPnOSDataSets).encode(DataSetKey(parent, name))


@pytest.mark.parametrize("raw", ["01616161", "006161612f62", "00", "ff616161", "006161612f", "002f616161", "00ff"])
def test_a_level_that_does_not_count_the_slashes_is_no_data_set(raw: str) -> None:
    assert keys_of(HEPnOSDataSets).decode(bytes.fromhex(raw)) is None


def test_a_path_is_split_at_its_last_slash_and_joined_again() -> None:
    assert DataSetKey.of_path("aaa/bbb/ccc") == DataSetKey("aaa/bbb", "ccc")
    assert DataSetKey.of_path("aaa").path == "aaa"
    assert DataSetKey("aaa/bbb", "ccc").path == "aaa/bbb/ccc"


# ---- products --------------------------------------------------------------------------------------------------------------


def test_the_first_hash_sign_ends_the_label() -> None:
    raw = bytes.fromhex(RAW_UUID) + bytes(24) + b"v#a#b#"
    assert keys_of(HEPnOSProducts).decode(raw) == ProductKey(DATASET, 0, 0, 0, "v", "a#b#")


@pytest.mark.parametrize(("label", "kind"), [("a#b", "t"), ("#", "t"), ("a", ""), ("a\x00", "t")])
def test_what_would_be_misread_is_no_product(label: str, kind: str) -> None:
    with pytest.raises(InvalidKeyError):
        keys_of(HEPnOSProducts).encode(ProductKey(DATASET, 1, 2, 3, label, kind))


def test_products_are_listed_by_container_and_by_whole_label() -> None:
    event = (DATASET, 1, 2, 5)
    named = [("v", "a"), ("v", "b"), ("vec", "a"), ("", "a")]
    elsewhere = [ProductKey(DATASET, 1, 2, 6, "v", "a"), ProductKey(DATASET, 1, 2, INVALID_NUMBER, "v", "a")]
    keys: list[object] = [*(ProductKey(*event, label, kind) for label, kind in named), *elsewhere]
    assert listed(HEPnOSProducts, keys, *event, "v") == [ProductKey(*event, "v", "a"), ProductKey(*event, "v", "b")]
    assert set(listed(HEPnOSProducts, keys, *event)) == {ProductKey(*event, *pair) for pair in named}


def test_long_cpp_type_names_fit() -> None:
    """2.2: keys of 122 and 234 bytes were seen, for type names of 79 and 191 characters."""
    for width in (79, 191):
        key = ProductKey(DATASET, 1, 2, 3, "sp", "x" * width)
        assert len(keys_of(HEPnOSProducts).encode(key)) == 43 + width


# ---- all -------------------------------------------------------------------------------------------------------------------


def test_in_one_database_a_run_would_be_a_data_set_too() -> None:
    both = b"\x00" + b"a" * 23
    assert keys_of(HEPnOSDataSets).decode(both) == DataSetKey("", "a" * 23)
    assert keys_of(HEPnOSRuns).decode(both) == RunKey(UUID(bytes=both[:16]), int.from_bytes(both[16:], "big"))


@pytest.mark.parametrize("layout", [*LAYOUTS, *CPP_LAYOUTS])
def test_every_table_names_its_source(layout: type[Layout]) -> None:
    assert [item.name for item in layout.spec.items if not item.note] == []


@pytest.mark.parametrize("layout", [*LAYOUTS, *CPP_LAYOUTS])
def test_the_description_reads_back(layout: type[Layout]) -> None:
    described = describe(layout.spec)
    assert describe(layout_of_description(described)) == described
