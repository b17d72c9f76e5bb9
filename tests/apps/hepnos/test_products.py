"""Products: types and their bytes, labels, modes, ids, references: cases 25 to 32 of the specification."""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.errors import CorruptionError, InvalidInputError

NOTHING = "ff" * 8


class Hit(msgspec.Struct):
    """A hit, as a Struct."""

    x: float
    tags: list[str]


@dataclass
class Track:
    """A track, as a dataclass."""

    length: float


hepnos.register_type("tests.Track", Track)

CONTAINERS: dict[str, Callable[[hepnos.DataSet], hepnos.Container]] = {
    "data set": lambda dataset: dataset,
    "run": lambda dataset: dataset.runs.handle(1),
    "subrun": lambda dataset: dataset.runs.handle(1).subruns.handle(2),
    "event": lambda dataset: dataset.runs.handle(1).subruns.handle(2).events.handle(5),
}


@pytest.fixture
def event(dataset: hepnos.DataSet) -> hepnos.Event:
    return dataset.create_run(1).create_subrun(2).create_event(5)


@pytest.mark.leaves("no-container")
@pytest.mark.parametrize("where", CONTAINERS, ids=str)
def test_two_types_live_under_one_label_and_a_third_is_missing(dataset: hepnos.DataSet, where: str) -> None:
    container = CONTAINERS[where](dataset)
    container.store("x", 5)
    container.store("x", "five")
    assert (container.load("x", "int64"), container.load("x", str)) == (5, "five")
    assert container.load("x", "float64") is None
    assert container.load("x", "float64", 7.0) == 7.0
    with pytest.raises(KeyError, match="x#float64"):
        container.load("x", "float64", missing="raise")


@pytest.mark.leaves("no-dataset")
@pytest.mark.parametrize(
    ("where", "item"),
    [
        ("data set", NOTHING * 3),
        ("run", "0000000000000001" + NOTHING * 2),
        ("subrun", "00000000000000010000000000000002" + NOTHING),
        ("event", "000000000000000100000000000000020000000000000005"),
    ],
)
def test_ids_are_the_document_s_keys_and_say_what_they_are(store: hepnos.DataStore, where: str, item: str) -> None:
    uuid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    container = CONTAINERS[where](hepnos.DataSet(store, "d", uuid))
    product = container.store("hits", np.float32(1))
    assert product.raw.hex() == "00112233445566778899aabbccddeeff" + item + "6869747323" + b"float32".hex()
    numbers = {"data set": (), "run": (1,), "subrun": (1, 2), "event": (1, 2, 5)}[where]
    padded = (*numbers, None, None, None)[:3]
    assert (product.run, product.subrun, product.event) == padded
    assert (product.dataset, product.label, product.type) == (uuid, "hits", "float32")
    names = ("run", "subrun", "event")
    expected = {"dataset_id": str(uuid), **dict(zip(names, numbers, strict=False)), "label": "hits", "type": "float32"}
    assert product.to_json() == expected
    assert hepnos.ProductID.of(uuid, "hits", "float32", *numbers) == product
    assert store.load_product(product) == 1.0


def test_an_empty_id_is_false_and_null() -> None:
    nothing = hepnos.ProductID()
    assert not nothing
    assert json.dumps(nothing.to_json()) == "null"
    with pytest.raises(CorruptionError):
        _ = nothing.label


def test_a_label_with_a_hash_is_refused_and_a_type_with_one_is_read_back(event: hepnos.Event) -> None:
    with pytest.raises(ValueError) as caught:
        event.store("x#y", 1)
    assert isinstance(caught.value, hepnos.InvalidLabelError)
    odd = hepnos.product_type(bytes).renamed("Odd#Type")
    product = event.store("x", b"1", type=odd)
    assert (product.label, product.type) == ("x", "Odd#Type")
    assert event.load("x", odd) == b"1"
    assert event.store("", 1).label == ""


def test_modes_of_storing(event: hepnos.Event) -> None:
    event.store("x", 1, mode="exist")
    assert event.load("x", "int64") is None
    event.store("x", 1, mode="new")
    event.store("x", 2, mode="new")
    assert event.load("x", "int64") == 1
    event.store("x", 3, mode="exist")
    assert event.load("x", "int64") == 3
    event.store("x", 4)
    assert event.load("x", "int64") == 4
    with pytest.raises(InvalidInputError):
        event.store("x", 5, mode="sometimes")
    assert (event.delete_product("x", "int64"), event.delete_product("x", "int64")) == (True, False)


def test_parts_of_vectors(event: hepnos.Event) -> None:
    numbers = np.arange(10, dtype="f8")
    event.store("part", numbers, start=1, end=5)
    assert event.load("part", hepnos.vector("f8")).tolist() == [1.0, 2.0, 3.0, 4.0]
    event.store("none", numbers, start=3, end=3)
    assert event.load("none", hepnos.vector("f8")).tolist() == []
    event.store("texts", ["a", "b", "c"], start=1)
    assert event.load("texts", hepnos.vector(str)) == ["b", "c"]
    for start, end in ((-1, 2), (3, 2), (0, 11)):
        with pytest.raises(InvalidInputError):
            event.store("bad", numbers, start=start, end=end)
    with pytest.raises(TypeError):
        event.store("bad", 5, start=0, end=1)


def test_a_scalar_is_never_read_as_a_vector(event: hepnos.Event) -> None:
    event.store("x", np.float32(1))
    event.store("y", np.ones(2, "f4"))
    assert event.load("x", hepnos.vector("f4")) is None
    assert event.load("y", "float32") is None


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (hepnos.vector("f4"), b""),
        (hepnos.vector("f4"), bytes.fromhex("0200000000000000 00000000")),
        (hepnos.product_type("float64"), b"\x00" * 7),
        (hepnos.product_type(str), bytes.fromhex("0500000000000000 6869")),
        (hepnos.product_type(str), bytes.fromhex("0100000000000000 ff")),
        (hepnos.product_type(str), bytes.fromhex("0100000000000000 6161")),
        (hepnos.vector(str), bytes.fromhex("0200000000000000 0100000000000000 78")),
        (hepnos.vector(str), bytes.fromhex("ffffffffffffffff")),
        (hepnos.product_type(Hit), b"\xc1"),
        (hepnos.product_type(dict), b"{"),
    ],
)
def test_damaged_bytes_are_an_error_and_never_a_value(kind: hepnos.ProductType, raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        kind.decode(raw)


def test_lists_of_products(dataset: hepnos.DataSet, event: hepnos.Event) -> None:
    assert list(event.products()) == []
    for label in ("a", "a!", "ab"):
        event.store(label, 1)
        event.store(label, 1.0)
    dataset.runs.handle(1).store("a", 1)
    dataset.runs.handle(1).subruns.handle(2).store("a", 1)
    assert [(p.label, p.type) for p in event.products("a")] == [("a", "float64"), ("a", "int64")]
    # Why in this order: "!" comes before the "#" that ends a label, and "b" after it; keys sort by their bytes.
    assert [p.label for p in event.products("a", is_prefix=True)] == ["a!", "a!", "a", "a", "ab", "ab"]
    assert list(event.products("none")) == []
    for number in range(300):
        event.store(f"many{number:03d}", 1)
    assert [p.label for p in event.products("many", is_prefix=True)] == [f"many{n:03d}" for n in range(300)]
    assert [p.label for p in dataset.runs.handle(1).products()] == ["a"]


# ---- types ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?", ">i4", ">f8", "f2"])
def test_numbers_of_every_type_come_back(event: hepnos.Event, dtype: str) -> None:
    array = np.array([0, 1, 1, 0], dtype)
    event.store("v", array)
    event.store("s", array[1])
    found = event.load("v", hepnos.vector(dtype))
    assert found.tolist() == array.tolist()
    assert found.dtype == np.dtype(dtype).newbyteorder("<")
    assert event.load("s", dtype) == array[1]


def test_structured_strided_and_big_endian_arrays_come_back(event: hepnos.Event) -> None:
    dtype = np.dtype([("x", ">f4"), ("n", "<u8")])
    rows = np.array([(1.5, 2), (2.5, 2**63), (3.5, 4)], dtype)
    product = event.store("rows", rows[::2])
    assert product.type == "vector<struct{x:float32,n:uint64}>"
    assert event.datastore.load_product(product).tolist() == [(1.5, 2), (3.5, 4)]
    assert event.load("rows", hepnos.vector(dtype)).tolist() == [(1.5, 2), (3.5, 4)]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (5, "int64"),
        (True, "bool"),
        (2.5, "float64"),
        ("text é", "str"),
        (b"raw", "bytes"),
        (["x", "yz"], "vector<str>"),
        ({"a": [1, None]}, "json"),
        ([], "json"),
        ([1, "mixed"], "json"),
        (Hit(1.0, ["a"]), f"{__name__}:Hit"),
        ([Hit(1.0, []), Hit(2.0, ["b"])], f"vector<{__name__}:Hit>"),
        (Track(3.0), "tests.Track"),
        ([Track(3.0)], "vector<tests.Track>"),
    ],
)
def test_values_have_stable_type_names_and_come_back(event: hepnos.Event, value: Any, name: str) -> None:
    kind = hepnos.type_of_value(value)
    assert kind.name == name
    product = event.store("x", value)
    assert product.type == name
    assert event.load("x", kind) == value


def test_a_value_is_not_bent_to_fit_a_type(event: hepnos.Event) -> None:
    for value, kind in ((300, "uint8"), (1.5, "int32"), ("text", "float64"), (np.ones(2), "float64"), (b"", Hit)):
        with pytest.raises(TypeError):
            event.store("x", value, type=kind)
    with pytest.raises(TypeError):
        event.store("x", np.ones(2, "f8"), type=hepnos.vector("f4"))
    assert list(event.products()) == []
    event.store("x", 5, type="uint8")
    assert event.load("x", "uint8") == 5


def test_what_is_no_type_is_refused() -> None:
    for given in ("no such type", object, np.dtype("V8"), np.dtype([("a", "u1"), ("b", "f8")], align=True)):
        with pytest.raises(TypeError):
            hepnos.product_type(given)
    with pytest.raises(TypeError):
        hepnos.type_named("some.module:Unknown")
    with pytest.raises(TypeError):
        hepnos.register_type("tests.Track", Hit)


# ---- the C++ program's bytes ----------------------------------------------------------------------------------------------


def test_strings_of_the_c_plus_plus_program() -> None:
    assert len(hepnos.CXX_STRING.name) == 79
    assert len(hepnos.CXX_STRING_VECTOR.name) == 191
    raw = bytes.fromhex("0500000000000000 68656c6c6f")
    assert hepnos.CXX_STRING.decode(raw) == "hello"
    assert hepnos.CXX_STRING.encode("hello") == raw
    many = bytes.fromhex("0200000000000000 0100000000000000 78 0200000000000000 797a")
    assert hepnos.CXX_STRING_VECTOR.decode(many) == ["x", "yz"]
    assert hepnos.CXX_STRING_VECTOR.encode(["x", "yz"]) == many


def test_plain_data_of_the_c_plus_plus_program(event: hepnos.Event) -> None:
    pod = np.dtype([("id", "u8"), ("values", "f8", 7)])
    assert pod.itemsize == 64
    kind = hepnos.cxx_type("std::vector<P64, std::allocator<P64> >", pod)
    rows = np.zeros(2, pod)
    rows["id"] = (7, 8)
    product = event.store("v", rows, type=kind)
    stored = event.datastore.raw_product(product.raw)
    assert stored is not None
    assert len(stored) == 136
    assert stored[:16].hex() == "02000000000000000700000000000000"
    assert event.load("v", kind)["id"].tolist() == [7, 8]
    padded = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    one = hepnos.cxx_type("Padded", padded)
    event.store("p", np.array([(1, 2.5)], padded)[0], type=one)
    assert len(one.encode(np.array([(1, 2.5)], padded)[0])) == 16
    assert event.load("p", one)["b"] == 2.5


# ---- references -----------------------------------------------------------------------------------------------------------


def test_references_are_stored_and_lead_to_products_and_to_elements(event: hepnos.Event) -> None:
    store = event.datastore
    vector = event.store("v", np.arange(5, dtype="f8"))
    whole, element = hepnos.Ref.to(vector), hepnos.Ref.to(vector, 1)
    event.store("refs", [whole, element])
    event.store("ref", element)
    assert {p.type for p in event.products()} == {"ref", "vector<ref>", "vector<float64>"}
    first, second = event.load("refs", hepnos.vector(hepnos.Ref))
    assert store.resolve(first).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert store.resolve(second) == 1.0
    assert store.load_product(event.product_id("ref", hepnos.Ref)) == element
    assert pickle.loads(pickle.dumps(element)).load(store) == 1.0
    assert whole == element  # they are of one product


def test_a_reference_to_nothing_fails_when_it_is_used(event: hepnos.Event) -> None:
    gone = hepnos.Ref.to(event.product_id("gone", "float64"))
    event.store("ref", gone)
    with pytest.raises(hepnos.MissingError):
        event.load("ref", hepnos.Ref).load(event.datastore)
    short = hepnos.Ref.to(event.store("v", np.ones(1)), 5)
    with pytest.raises(hepnos.MissingError):
        short.load(event.datastore)
    with pytest.raises(InvalidInputError):
        hepnos.Ref.to(hepnos.ProductID())


def test_what_is_no_reference_and_a_wrong_type_of_one_are_told(event: hepnos.Event) -> None:
    store = event.datastore
    vector, number = event.store("v", [1.5, 2.5]), event.store("n", 5)
    assert hepnos.Ref.to(vector, np.int64(1)).load(store) == 2.5
    wrong: Any = [("text", None), (vector, "1"), (vector, True), (vector, -1)]
    for product, index in wrong:
        with pytest.raises(InvalidInputError, match="the id of a product"):
            hepnos.Ref.to(product, index)
    with pytest.raises(InvalidInputError, match=r"it is a hepnos\.Ref, not ProductID"):
        store.resolve(vector)  # type: ignore[arg-type] # Why: that is what is told.
    with pytest.raises(hepnos.TypeMismatchError, match="stored as vector<float64>"):
        store.resolve(hepnos.Ref.to(vector), str)
    with pytest.raises(hepnos.TypeMismatchError, match="without an index"):
        store.resolve(hepnos.Ref.to(number, 0))


# ---- types whose name must say all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ([("a", "<i4"), ("b", "<f4", (3,))], "struct{a:int32,b:float32[3]}"),
        ([("a", "u1"), ("m", "<u2", (2, 3))], "struct{a:uint8,m:uint16[2][3]}"),
        ([("v", [("x", "<i4"), ("y", "<f4")]), ("n", "<i2")], "struct{v:struct{x:int32,y:float32},n:int16}"),
        ([("a:b", "i1"), ("a,b", "<i2"), ('"', "?")], 'struct{"a:b":int8,"a,b":int16,"\\"":bool}'),
        ([("t", "S3"), ("u", "<U2"), ("s", [("z", "?", (1,))])], "struct{t:bytes24,u:str64,s:struct{z:bool[1]}}"),
    ],
    ids=["array", "matrix", "nested", "odd-names", "text"],
)
def test_a_struct_is_found_by_the_name_of_its_type_alone(event: hepnos.Event, dtype: Any, name: str) -> None:
    values = np.zeros(2, dtype)
    values.view(np.uint8)[::3] = 1 if values.dtype.hasobject else 65
    if "u" in (values.dtype.names or ()):
        values["u"] = "ab"
    product = event.store("struct", values)
    assert product.type == f"vector<{name}>"
    found = event.datastore.load_product(product)
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "name",
    [
        *("struct{a:int32", "struct{a}", "struct{:int32}}", "struct{a:bytes25}", "struct{a:int32[]}", "float32[3]"),
        *("bytes25", "table<int32>", "option<option<int8>>", "struct{a:" * 2_000 + "int8" + "}" * 2_000),
        *("table<struct{a:bytes24,b:str}>", "struct{a:" * 31 + "int8" + "[1]" * 32 + ("}" + "[1]" * 32) * 31),
    ],
    ids=lambda name: name[:20],
)
def test_a_name_that_is_none_of_a_type_is_refused(name: str) -> None:
    with pytest.raises(hepnos.TypeMismatchError):
        hepnos.type_named(name)


@pytest.mark.parametrize(
    "value",
    [
        np.array([(1, "x")], [("a", "i4"), ("b", "O")]),
        np.zeros(1, []),
        np.zeros(1, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0]}),
        np.ma.array([1, 2], mask=[False, True]),
        "\ud800",
        {"x": float("nan")},
        [1.0, [float("inf")]],
    ],
    ids=["object", "empty", "order", "masked", "surrogate", "nan", "infinite"],
)
def test_a_value_that_would_come_back_as_another_is_refused(event: hepnos.Event, value: Any) -> None:
    with pytest.raises(hepnos.TypeMismatchError):
        event.store("odd", value)
    assert list(event.products()) == []


def test_a_null_is_no_reason_to_refuse_json(event: hepnos.Event) -> None:
    event.store("j", {"x": None, "y": ["null", 1.5, {"z": ()}]})
    assert event.load("j", dict) == {"x": None, "y": ["null", 1.5, {"z": []}]}


def test_python_s_numbers_are_stored_exactly_or_refused(event: hepnos.Event) -> None:
    event.store("n", [1, 2**64 - 1], type=hepnos.vector("u8"))
    assert event.load("n", hepnos.vector("u8")).tolist() == [1, 2**64 - 1]
    for value, dtype in (([1, 2**64], "u8"), ([-1, 2**63], "i8"), ([1e300], "f4"), ([70_000], "f2")):
        with pytest.raises(hepnos.TypeMismatchError, match="out of range"):
            event.store("n", value, type=hepnos.vector(dtype))
    event.store("inf", [float("inf")], type=hepnos.vector("f4"))
    assert event.load("inf", hepnos.vector("f4")).tolist() == [float("inf")]
