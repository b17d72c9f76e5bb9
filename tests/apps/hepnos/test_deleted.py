"""A deleted data set: nothing is made in it any more, what is left of it can be removed, one made again is another."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.column_types import type_of_dtype
from keyplan.apps.hepnos.databases import Databases
from keyplan.apps.hepnos.examine import examine
from keyplan.apps.hepnos.keys import Kind, dataset_key, number_key
from keyplan.apps.hepnos.pieces import Job, Piece, pieces_of, work
from keyplan.apps.hepnos.sweep import _empty_notes, is_under_way, leftovers, sweep
from keyplan.apps.hepnos.table_notes import note_table
from keyplan.apps.hepnos.types import rows_type
from keyplan.engine import ALL_KEYS, Commit, KeyRange, Put
from keyplan.errors import CorruptionError, InvalidInputError, RingMismatchError, StoppedError, TargetTakenError
from keyplan.jobs import Progress
from keyplan.maintenance import open_jobs
from keyplan.ring import OWN_PREFIX, rebalance
from keyplan.store import Backoff
from tests.apps.hepnos.served import HepnosServer


@pytest.fixture(params=[None, {"events": 3, "datasets": 2}], ids=["one", "ring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hepnos.DataStore]:
    with hepnos.open(f"lmdb:{tmp_path / 'store'}?durability=none", databases=request.param) as opened:
        yield opened


def handle(dataset: hepnos.DataSet) -> hepnos.SubRun:
    return dataset.runs.handle(1).subruns.handle(1)


MAKES: dict[str, Callable[[hepnos.DataSet], object]] = {
    "run": lambda dataset: dataset.create_run(1),
    "subrun": lambda dataset: dataset.runs.handle(1).create_subrun(1),
    "event": lambda dataset: handle(dataset).create_event(1),
    "items": lambda dataset: dataset.create_items(np.array([1]), np.array([1]), np.array([1])),
    "events": lambda dataset: handle(dataset).create_events(np.array([1, 2])),
    "data set": lambda dataset: dataset.create_dataset("in it"),
    "path": lambda dataset: dataset.ensure("in it/and below"),
    "product": lambda dataset: dataset.store("label", 1),
    "product of an event": lambda dataset: handle(dataset).events.handle(1).store("label", 1),
    "products": lambda dataset: hepnos.store_products(dataset, "l", int, ([1], [1], [1]), [bytes(8)]),
    "table": lambda dataset: dataset.store_table("t", {"x": np.arange(2.0)}, run=[1, 1], subrun=[1, 1], event=[1, 1]),
}

READS: dict[str, Callable[[hepnos.DataSet], object]] = {
    "run": lambda dataset: 1 in dataset.runs,
    "runs": lambda dataset: list(dataset.runs),
    "last": lambda dataset: dataset.runs.last(),
    "count": lambda dataset: handle(dataset).events.count(),
    "subrun": lambda dataset: dataset.runs.handle(1).get(1),
    "event": lambda dataset: handle(dataset).events[1],
    "events": lambda dataset: dataset.events().to_numpy(),
    "product": lambda dataset: handle(dataset).events.handle(1).load("label", int),
    "product list": lambda dataset: list(dataset.products()),
    "products": lambda dataset: list(hepnos.load_products(dataset, "label", int)),
    "tables": lambda dataset: list(dataset.tables),
    "data sets": lambda dataset: list(dataset.datasets),
    "data set": lambda dataset: dataset.get("in it"),
    "pieces": lambda dataset: list(pieces_of(dataset, 10)),
    "work": lambda dataset: work(
        Job(
            "",
            dataset.datastore.address,
            "z",
            dataset.uuid,
            (),
            is_vectorised=False,
            function=repr,
            keeps_results=False,
        ),
        Piece(0, dataset.uuid.bytes, dataset.uuid.bytes + b"\xff"),
    ),
}


def raw(store: hepnos.DataStore) -> list[tuple[Kind, int, bytes, bytes]]:
    """Every key and value, wherever they are, but what databases keep of those that were deleted."""
    found: list[tuple[Kind, int, bytes, bytes]] = []
    for kind, database in store.databases:
        with store.databases.snapshot(kind, database) as snapshot:
            pairs = snapshot.pairs(ALL_KEYS)
            found += [(kind, database, pair[0], pair[1]) for pair in pairs if not pair[0].startswith(OWN_PREFIX)]
    return found


def remade(store: hepnos.DataStore) -> hepnos.DataSet:
    """A handle of a data set that another has deleted, and made again with all of it."""
    stale = store.root.create_dataset("z")
    with hepnos.open_at(store.address) as another:
        another["z"].delete()
        fresh = another.root.create_dataset("z")
        fresh.create_run(1).create_subrun(1).create_event(1).store("label", 5)
        fresh.create_dataset("in it")
    return stale


def test_nothing_is_made_in_a_data_set_that_was_deleted_and_readers_are_told(store: hepnos.DataStore) -> None:
    dataset = store.root.create_dataset("z")
    for make in MAKES.values():
        make(dataset)
    for read in READS.values():
        read(dataset)
    own = store["z"]
    dataset.delete()
    assert raw(store) == []
    assert not own.exists()
    assert not handle(own).events.handle(1).exists()
    refused = [
        each for each in (*MAKES.values(), *READS.values()) for one in (dataset, own) if not is_refused(each, one)
    ]
    assert refused == []
    assert raw(store) == []


def is_refused(act: Callable[[hepnos.DataSet], object], dataset: hepnos.DataSet) -> bool:
    try:
        act(dataset)
    except hepnos.DeletedError:
        return True
    return False


def test_one_that_was_made_again_is_another_for_readers_and_writers(store: hepnos.DataStore) -> None:
    stale = remade(store)
    before = raw(store)
    assert [name for name, act in {**MAKES, **READS}.items() if not is_refused(act, stale)] == []
    assert raw(store) == before
    assert (stale == store["z"], stale.exists(), store["z"].exists()) == (False, False, True)


def test_what_was_looked_at_before_the_deletion_is_written_by_nobody(store: hepnos.DataStore) -> None:
    """Batches and background writers look at the data set once; the commit itself is what is refused."""
    for is_atomic in (False, True):
        dataset = store.root.create_dataset("z")
        batch = store.batch(atomic=is_atomic)
        dataset.create_run(1, into=batch)
        store["z"].delete()
        with pytest.raises((hepnos.BatchError, hepnos.DeletedError)) as caught:
            batch.flush()
        assert isinstance(caught.value, hepnos.DeletedError) or isinstance(caught.value.__cause__, hepnos.DeletedError)
    dataset = store.root.create_dataset("z")
    dataset.require()
    store["z"].delete()
    writing = store.async_engine()
    handle(dataset).create_event(3, into=writing)
    with pytest.raises(hepnos.BatchError) as failed:
        writing.__exit__(None, None, None)
    assert isinstance(failed.value.__cause__, hepnos.DeletedError)
    assert raw(store) == []


def test_keys_of_several_data_sets_are_fenced_one_by_one(store: hepnos.DataStore) -> None:
    kept, gone = store.root.create_dataset("kept"), store.root.create_dataset("gone")
    gone.delete()
    batch = store.batch()
    for dataset in (kept, gone):
        batch.write(Kind.RUN, number_key(dataset.uuid, (1,)), b"", "new")
    with pytest.raises(hepnos.BatchError):
        batch.flush()
    assert not [1 for pair in raw(store) if gone.uuid.bytes in repr(pair).encode()]


@pytest.mark.parametrize("frames", ["true", "false"])
def test_a_server_refuses_who_has_a_handle_of_a_deleted_data_set(frames: str) -> None:
    settings = {"store": "memory:", "databases": "datasets=2", "frames": frames}
    with HepnosServer(settings) as server, hepnos.open(server.url) as store:
        test_nothing_is_made_in_a_data_set_that_was_deleted_and_readers_are_told(store)
        test_one_that_was_made_again_is_another_for_readers_and_writers(store)


def test_databases_that_are_added_know_what_was_deleted(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'store'}?durability=none"
    with hepnos.open(url) as store:
        gone, kept = store.root.create_dataset("z"), store.root.create_dataset("kept")
        gone.delete()
        kept.create_items(np.arange(40), np.arange(40), np.arange(40))
        address = store.address
    engines = [address.engine(Kind.EVENT, index, create=True) for index in range(3)]
    rebalance(engines)
    for engine in engines:
        engine.close()
    with hepnos.open(url) as store:
        stale = hepnos.DataSet(store, "z", gone.uuid)
        assert len(store.databases.rings[Kind.EVENT].databases) == 3
        for number in range(20):  # Why so many: they are in all three databases.
            event = stale.runs.handle(number).subruns.handle(0).events.handle(1)
            with pytest.raises(hepnos.DeletedError):
                store.write(Kind.EVENT, event.raw_key, b"", "new")
        assert store["kept"].events().count() == 40
        assert list(examine(store)) == []


def test_a_deletion_that_was_killed_is_seen_and_gone_on_with(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store.root.create_dataset("z")
    dataset.create_dataset("in it").create_run(1)
    handle(dataset).create_event(1)

    def killed(_uuid: UUID) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "remove_contents", killed)
        with pytest.raises(KeyboardInterrupt):
            dataset.delete()
    assert {found.finding for found in examine(store)} == {"deleting"}
    with pytest.raises(hepnos.DeletedError, match="not finished"):
        store.root.create_dataset("z")
    with pytest.raises(hepnos.DeletedError):
        store["z"].create_run(2)
    store["z"].delete()
    assert raw(store) == []


def test_a_stale_handle_deletes_nothing_of_a_data_set_that_was_made_again(store: hepnos.DataStore) -> None:
    stale = store.root.create_dataset("z")
    store["z"].delete()
    fresh = store.root.create_dataset("z")
    fresh.create_run(1)
    fresh.create_dataset("below").create_run(2)
    stale.delete()
    assert fresh.exists()
    assert [run.number for run in fresh.runs] == [1]
    assert [run.number for run in store["z/below"].runs] == [2]


def orphan(store: hepnos.DataStore) -> UUID:
    """What a writer of an earlier version leaves behind that came between, or a database that was restored alone."""
    uuid = uuid4()
    for number in range(3):
        store.write(Kind.RUN, number_key(uuid, (number,)), b"", "new")
    store.write(Kind.PRODUCT, number_key(uuid, (1, 1, 1)) + b"label#int64", bytes(8), "new")
    return uuid


def test_what_belongs_to_no_data_set_is_swept_and_nothing_else(store: hepnos.DataStore) -> None:
    kept = store.root.create_dataset("kept")
    kept.create_run(1)
    kept.create_dataset("in it").store("label", 1)
    before = raw(store)
    orphans = sorted(str(orphan(store)) for _ in range(2))
    found = [("orphan", name, 4) for name in orphans]
    assert list(leftovers(store)) == found
    assert list(sweep(store)) == found
    assert (raw(store), list(leftovers(store)), list(examine(store))) == (before, [], [])
    with pytest.raises(hepnos.DeletedError):
        store.write(Kind.RUN, number_key(UUID(orphans[0]), (9,)), b"", "new")


def test_a_check_goes_on_when_somebody_deletes_the_data_set_that_it_looks_at(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store.root.ensure("d")
    dataset.create_items([1, 1], [1, 1], [1, 2])
    place, deleted = Databases.place, list[hepnos.DataSet]()

    def beside_a_deletion(databases: Databases, kind: Kind, key: bytes) -> int:
        if kind is Kind.EVENT and not deleted:
            deleted.append(dataset)
            dataset.delete()  # after the check's snapshot of the events, and before its look at their subrun
        return place(databases, kind, key)

    monkeypatch.setattr(Databases, "place", beside_a_deletion)
    assert list(examine(store)) == []
    assert deleted == [dataset]


def test_nothing_is_swept_while_the_record_of_a_data_set_cannot_be_read(store: hepnos.DataStore) -> None:
    dataset = store.root.create_dataset("z")
    dataset.create_run(1)
    ring = store.databases.rings[Kind.DATASET]
    ring.commit(Commit((), (Put(dataset_key("z"), b"damaged"),)))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        list(sweep(store))
    assert [run.number for run in dataset.runs] == [1]


def test_a_sweep_that_is_stopped_is_gone_on_with_by_another_and_loaders_write_meanwhile(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyplan.apps.hepnos.sweep._BATCH_KEYS", 2)
    for _ in range(4):
        orphan(store)
    dataset = store.root.create_dataset("loaded")
    stop = Event()

    def told(progress: Progress) -> None:
        dataset.create_run(progress.done)
        if progress.done > 2:
            stop.set()

    with pytest.raises(StoppedError):
        list(sweep(store, progress=told, stop=stop, command=("hepnos", "sweep")))
    (job,) = open_jobs(store.databases.rings[Kind.DATASET].databases[0])
    assert (job.command, job.subject) == (("hepnos", "sweep"), "the sweep of a HEPnOS store")
    first, second = sweep(store), sweep(store)
    assert [next(each).what for each in (first, second)] == ["orphan"] * 2
    with pytest.raises(TargetTakenError):
        list(first)
    assert [each.what for each in second] == ["orphan"]
    assert open_jobs(store.databases.rings[Kind.DATASET].databases[0]) == []
    assert list(examine(store)) == []
    assert dataset.runs.count() == 2


def test_a_note_without_a_table_is_swept_when_asked_for_and_put_back_for_a_loader(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store.root.create_dataset("z")

    def store_table(label: str) -> None:
        dataset.store_table(label, {"x": np.arange(2.0)}, run=[1, 1], subrun=[1, 1], event=[1, 1], create=True)

    for label in ("kept", "empty", "loaded"):
        store_table(label)
    for label in ("empty", "loaded"):
        assert dataset.runs[1].subruns[1].events[1].delete_product(label, dataset.tables[label].types[0])
    assert list(sweep(store)) == []
    assert list(leftovers(store, has_notes=True)) == [("note", "z empty", 1), ("note", "z loaded", 1)]
    remove = Databases.remove

    def removed(databases: Databases, kind: Kind, raw_key: bytes, **options: Any) -> bool:
        """A loader that has noted its table writes it between the look and the removal of the note."""
        if b"loaded" in raw_key:
            monkeypatch.undo()
            rows = np.zeros(2, [("x", float)])
            dataset.runs[1].subruns[1].events[1].store("loaded", rows, type=dataset.tables["loaded"].types[0])
        return remove(databases, kind, raw_key, **options)

    monkeypatch.setattr(Databases, "remove", removed)
    assert list(sweep(store, has_notes=True)) == [("note", "z empty", 1)]
    assert list(dataset.tables) == ["kept", "loaded"]
    assert dataset.load_table("loaded").rows["x"].tolist() == [0.0, 0.0]


def test_what_no_layout_explains_is_nobody_s_to_sweep(store: hepnos.DataStore) -> None:
    strange = b"another program's key of many bytes"
    engine = store.databases.rings[Kind.RUN].databases[0]
    engine.commit(Commit((), (Put(strange, b"theirs"),)))
    orphans = orphan(store)
    assert [each.name for each in leftovers(store)] == [str(orphans)]
    assert [each.name for each in sweep(store)] == [str(orphans)]
    assert engine.value(strange) == b"theirs"
    assert [(each.finding, each.raw_key) for each in examine(store)] == [("unreadable", strange)]


def test_a_note_that_is_another_by_now_is_not_swept(store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = store.root.create_dataset("z")
    note_table(dataset, "t", rows_type(type_of_dtype(np.dtype([("x", "f8")]))))
    (label, raw_key, _suffix) = _empty_notes(dataset)[0]
    until_committed = Backoff.until_committed

    def changed_first(backoff: Backoff, attempt: Callable[[], Any]) -> Any:
        """Another has removed the note and written one between the look and the removal."""
        if store.raw_value(Kind.PRODUCT, raw_key) is not None:
            store.write(Kind.PRODUCT, raw_key, b"newer", "overwrite")
        return until_committed(backoff, attempt)

    monkeypatch.setattr(Backoff, "until_committed", changed_first)
    list(sweep(store, has_notes=True))
    assert (label, store.raw_value(Kind.PRODUCT, raw_key)) == ("t", b"newer")


def test_a_sweep_whose_ring_has_grown_is_told_so(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'store'}?durability=none"
    with hepnos.open(url) as store:
        for _ in range(2):
            orphan(store)
        going = sweep(store)
        assert next(going).what == "orphan"
        engines = [store.address.engine(Kind.PRODUCT, index, create=True) for index in range(2)]
        rebalance(engines)
        for engine in engines:
            engine.close()
        with pytest.raises(RingMismatchError):
            list(going)
        with pytest.raises(RingMismatchError):
            store.root.create_dataset("z").delete()


def test_one_record_of_a_data_set_that_is_damaged_is_named_and_a_strange_key_is_no_child(
    store: hepnos.DataStore,
) -> None:
    for name in "ab":
        store.root.create_dataset(name)
    for engine in store.databases.rings[Kind.DATASET].databases:
        engine.commit(Commit((), (Put(b"\x00\xff\xfe", bytes(16)), Put(b"\x00a/b", bytes(16)))))
    assert [each.name for each in store.root.datasets] == ["a", "b"]
    assert store.root.datasets.last() == store["b"]
    place = store.databases.place(Kind.DATASET, dataset_key("b"))
    store.databases.put(Kind.DATASET, place, [dataset_key("b")], [b"damaged"])
    with pytest.raises(CorruptionError) as told:
        list(store.root.datasets)
    assert told.value.facts["key"] == "b"


def test_the_products_of_no_container_s_numbers_are_unreadable(store: hepnos.DataStore) -> None:
    dataset = store.root.create_dataset("z")
    strange = dataset.uuid.bytes + b"\xff" * 8 + bytes(7) + b"\x05" + b"\xff" * 8 + b"label#int64"
    store.write(Kind.PRODUCT, strange, bytes(8), "new")
    assert [(each.finding, each.raw_key) for each in examine(store)] == [("unreadable", strange)]


def test_a_range_that_begins_in_a_deleted_data_set_and_goes_on_behind_it_is_no_range_of_it(
    store: hepnos.DataStore,
) -> None:
    gone = store.root.create_dataset("z")
    gone.delete()
    with store.databases.snapshot(Kind.RUN, 0) as snapshot:
        assert list(snapshot.keys(KeyRange(gone.uuid.bytes, None))) == []
        with pytest.raises(hepnos.DeletedError):
            list(snapshot.keys(KeyRange.of_prefix(gone.uuid.bytes)))


def test_a_sweep_that_was_killed_at_a_note_goes_on_when_its_data_set_is_gone(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store.root.create_dataset("z")
    note_table(dataset, "t", rows_type(type_of_dtype(np.dtype([("x", "f8")]))))

    def killed(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Databases, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            list(sweep(store, has_notes=True))
    assert is_under_way(store)
    dataset.delete()
    assert list(sweep(store)) == []
    assert not is_under_way(store)


def test_a_note_that_a_killed_sweep_has_removed_is_put_back_for_a_loader_that_was_killed_too(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store.root.create_dataset("z")
    kind = rows_type(type_of_dtype(np.dtype([("x", "f8")])))
    note_table(dataset, "t", kind)
    remove = Databases.remove

    def killed(databases: Databases, *arguments: Any, **options: Any) -> bool:
        remove(databases, *arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Databases, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            list(sweep(store, has_notes=True))
    assert list(dataset.tables) == []
    event = dataset.create_run(1).create_subrun(1).create_event(1)
    event.store("t", np.zeros(2, [("x", float)]), type=kind)
    assert list(sweep(store)) == []
    assert list(dataset.tables) == ["t"]


def test_values_of_a_deleted_data_set_are_told_in_whatever_way_they_are_read(store: hepnos.DataStore) -> None:
    kept, gone = (store.root.ensure(name).create_run(1).create_subrun(1).create_event(1) for name in ("kept", "gone"))
    keys = [event.store("n", 7).raw for event in (kept, gone)]
    store["gone"].delete()
    place = store.databases.place(Kind.PRODUCT, keys[1])
    with store.databases.snapshot(Kind.PRODUCT, place) as snapshot:
        for read in (snapshot.values, snapshot.get_many, lambda given: snapshot.values_within(given, 1_000)):
            with pytest.raises(hepnos.DeletedError):
                read(keys[1:])
    with store.databases.snapshot(Kind.PRODUCT, store.databases.place(Kind.PRODUCT, keys[0])) as snapshot:
        none = kept.product_id("none", "int64").raw
        # Why not told: what is behind the bytes was not read, so that nothing is known of it.
        assert snapshot.values_within([none, *keys], 1) == [None, (7).to_bytes(8, "little")]
