"""Stores in the C++ program's key form, by keys that it was seen to write: read, decoded, brought over."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.dataset_ref import DELETING
from keyplan.apps.hepnos.keys import dataset_key
from keyplan.engine import Commit, Engine, MemoryEngine, Put, WrappedEngine
from keyplan.errors import AlreadyExistsError, CorruptionError, EngineError, InvalidInputError
from keyplan.layout import Kind as MeaningKind

# hepnos.md 2.2: the program's own UUIDs of "aaa" and "aaa/bbb", a hash of their keys.
AAA = bytes.fromhex("403e51b5d44ffb43 00000000002d8fe0")
BBB = bytes.fromhex("271abcda845aa170 00004e8d1c409187")
NOTHING = b"\xff" * 8


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


RUNS = (1, 300, 0x0102030405060708)
EVENT = BBB + number(300) + number(2) + number(5)
DATABASES: dict[str, list[dict[bytes, bytes]]] = {
    "datasets": [{b"\x01aaa": AAA}, {b"\x02/aaa/bbb": BBB, b"odd key": b"x"}],
    "runs": [{BBB + number(run) + NOTHING * 2: b"" for run in RUNS}],
    "subruns": [{BBB + number(300) + number(2) + NOTHING: b""}],
    "events": [{}, {EVENT: b""}],
    "products": [
        {EVENT + b"text#" + hepnos.CXX_STRING.name.encode(): bytes.fromhex("0200000000000000 6869")},
        {BBB + number(300) + NOTHING * 2 + b"cal#calib": b"\x01"},
    ],
}


@pytest.fixture
def cxx() -> Iterator[hepnos.CxxStore]:
    engines: dict[str, list[Engine]] = {}
    for kind, databases in DATABASES.items():
        engines[kind] = [MemoryEngine() for _ in databases]
        for engine, pairs in zip(engines[kind], databases, strict=True):
            engine.commit(Commit((), tuple(Put(key, value) for key, value in pairs.items())))
    yield hepnos.CxxStore(engines)
    for each in engines.values():
        for engine in each:
            engine.close()


def test_its_objects_are_read_through_its_own_layouts(cxx: hepnos.CxxStore) -> None:
    assert list(cxx.datasets()) == [("aaa", UUID(bytes=AAA)), ("aaa/bbb", UUID(bytes=BBB))]
    assert list(cxx.numbers("runs")) == [(UUID(bytes=BBB), (run,)) for run in RUNS]
    assert list(cxx.numbers("subruns")) == [(UUID(bytes=BBB), (300, 2))]
    assert list(cxx.numbers("events")) == [(UUID(bytes=BBB), (300, 2, 5))]
    assert cxx.meaning("datasets", b"\x02/aaa/bbb").fields == {"parent": "aaa", "name": "bbb"}
    assert cxx.meaning("datasets", b"odd key").kind is MeaningKind.UNKNOWN


def test_it_is_brought_over_whole_and_again_without_effect(cxx: hepnos.CxxStore, store: hepnos.DataStore) -> None:
    told: list[int] = []
    migrated = cxx.migrate(store, progress=told.append)
    assert migrated == hepnos.Migrated(2, 3, 1, 1, 2, unknown=1)
    assert sum(told) == 9
    dataset = store["aaa/bbb"]
    assert dataset.uuid == UUID(bytes=BBB)
    assert [run.number for run in dataset.runs] == list(RUNS)
    event = dataset.runs[300].subruns[2].events[5]
    assert event.load("text", hepnos.CXX_STRING) == "hi"
    assert [(p.label, p.type) for p in dataset.runs[300].products()] == [("cal", "calib")]
    assert cxx.migrate(store) == migrated
    assert dataset.runs.count() == 3


def test_a_data_set_of_the_same_name_is_not_mixed_with_it(cxx: hepnos.CxxStore, store: hepnos.DataStore) -> None:
    other = store.root.ensure("aaa/bbb")
    with pytest.raises(AlreadyExistsError):
        cxx.migrate(store)
    assert list(other.runs) == []


class Interrupted(WrappedEngine):
    """Fails at its first write."""

    def put_sorted(self, *_: object, **__: object) -> int:
        raise EngineError(engine="test", problem="the disk is full")


def test_a_migration_that_was_interrupted_is_finished_by_the_next(
    cxx: hepnos.CxxStore, open_store: Callable[..., hepnos.DataStore]
) -> None:
    store = open_store()
    ring = store.databases.rings[hepnos.Kind.EVENT]
    whole = ring.databases
    ring.databases = tuple(map(Interrupted, whole))
    with pytest.raises(EngineError):
        cxx.migrate(store)
    ring.databases = whole
    assert cxx.migrate(store).events == 1
    assert store["aaa/bbb"].events().count() == 1


def test_all_five_kinds_are_needed() -> None:
    with pytest.raises(InvalidInputError):
        hepnos.CxxStore({"datasets": []})


def test_a_product_that_was_changed_since_stays(cxx: hepnos.CxxStore, store: hepnos.DataStore) -> None:
    cxx.migrate(store)
    event = store["aaa/bbb"].runs[300].subruns[2].events[5]
    event.store("text", "newer", type=hepnos.CXX_STRING)
    with pytest.raises(AlreadyExistsError, match="something else"):
        cxx.migrate(store)
    assert event.load("text", hepnos.CXX_STRING) == "newer"


def test_a_data_set_that_somebody_makes_meanwhile_keeps_its_uuid(
    cxx: hepnos.CxxStore, store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Databases.put

    def put_late(databases: Databases, *arguments: Any, **options: Any) -> int:
        monkeypatch.undo()
        store.root.ensure("aaa/bbb").create_run(7)  # between the look and the first write
        return put(databases, *arguments, **options)

    monkeypatch.setattr(Databases, "put", put_late)
    with pytest.raises(AlreadyExistsError, match="aaa"):
        cxx.migrate(store)
    assert [run.number for run in store["aaa/bbb"].runs] == [7]


def test_a_data_set_that_was_deleted_here_is_refused_before_anything_is_written(
    cxx: hepnos.CxxStore, store: hepnos.DataStore
) -> None:
    """Its UUID is made of its name: nothing that has it is written any more."""
    cxx.migrate(store)
    store["aaa"].delete()
    with pytest.raises(hepnos.DeletedError, match="another store"):
        cxx.migrate(store)
    assert list(store.root.datasets) == []


def test_a_key_that_stands_in_two_databases_is_brought_over_once(store: hepnos.DataStore) -> None:
    engines = {kind: [MemoryEngine(), MemoryEngine()] for kind in DATABASES}

    def put(kind: str, number: int, key: bytes, value: bytes) -> None:
        engines[kind][number].commit(Commit((), (Put(key, value),)))

    for at in range(2):
        put("datasets", at, b"\x01aaa", AAA)
        put("runs", at, AAA + number(1) + NOTHING * 2, b"")
        put("products", at, AAA + number(1) + NOTHING * 2 + b"cal#calib", b"\x01")
    cxx = hepnos.CxxStore(engines)
    assert cxx.migrate(store) == hepnos.Migrated(1, 1, 0, 0, 1, unknown=0)
    put("products", 1, AAA + number(1) + NOTHING * 2 + b"cal#calib", b"\x02")
    with pytest.raises(InvalidInputError, match="two databases have other values"):
        cxx.migrate(store)


def test_a_data_set_with_another_uuid_is_refused_before_anything_is_written(
    cxx: hepnos.CxxStore, store: hepnos.DataStore
) -> None:
    store.make_dataset("aaa/bbb")
    with pytest.raises(AlreadyExistsError, match="another UUID"):
        cxx.migrate(store)
    assert store.root.get("aaa") is None
    store.remove(hepnos.Kind.DATASET, dataset_key("aaa/bbb"))


def test_large_objects_are_brought_over_a_few_at_a_time(
    cxx: hepnos.CxxStore, store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyplan.apps.hepnos.cxx._BATCH_BYTES", 10)
    told: list[int] = []
    cxx.migrate(store, progress=told.append)
    assert told[:2] == [1, 1]  # data sets have values of 16 bytes
    assert sum(told) == 9


def test_a_data_set_that_is_deleted_at_this_moment_is_told_so(store: hepnos.DataStore) -> None:
    cxx = of_one_data_set(AAA)
    cxx.migrate(store)
    store.write(hepnos.Kind.DATASET, dataset_key("aaa"), AAA + DELETING, "overwrite")
    with pytest.raises(hepnos.DeletedError, match="at this moment"):
        cxx.migrate(store)
    store.write(hepnos.Kind.DATASET, dataset_key("aaa"), AAA, "overwrite")


@pytest.mark.parametrize("value", [AAA + DELETING, AAA[:15], b""], ids=["marked", "short", "empty"])
def test_a_data_set_whose_uuid_is_none_is_named_and_nothing_is_brought_over(
    store: hepnos.DataStore, value: bytes
) -> None:
    with pytest.raises(CorruptionError, match="16 bytes") as told:
        of_one_data_set(value).migrate(store)
    assert told.value.facts["key"] == "aaa"
    assert list(store.root.datasets) == []


def of_one_data_set(value: bytes) -> hepnos.CxxStore:
    engines = {kind: [MemoryEngine()] for kind in DATABASES}
    engines["datasets"][0].commit(Commit((), (Put(b"\x01aaa", value),)))
    return hepnos.CxxStore(engines)
