"""Data sets, runs, subruns and events: cases 2 to 24 and 47, 49 of the specification."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.keys import Kind, dataset_key
from keyplan.engine import ALL_KEYS
from keyplan.errors import EngineLimitError, InvalidInputError, RingMismatchError, StoreMissingError
from keyplan.ring import OWN_PREFIX

BIG = 2**64 - 2


def raw(store: hepnos.OpenStore, kind: hepnos.Kind) -> list[list[tuple[bytes, bytes]]]:
    """What each database of a kind has, without the ring's description."""
    found = []
    for engine in store.databases.rings[kind].databases:
        with engine.snapshot() as snapshot:
            found.append([pair for pair in snapshot.pairs(ALL_KEYS) if not pair[0].startswith(OWN_PREFIX)])
    return found


def keys(store: hepnos.OpenStore, kind: hepnos.Kind) -> list[bytes]:
    return [key for database in raw(store, kind) for key, _ in database]


# ---- bytes ----------------------------------------------------------------------------------------------------------------


def test_containers_are_stored_under_the_document_s_keys_without_values(dataset: hepnos.DataSet) -> None:
    store = dataset.datastore
    dataset.create_run(1).create_subrun(2).create_event(5)
    uuid = dataset.uuid.bytes
    one, two, five = (number.to_bytes(8, "big") for number in (1, 2, 5))
    assert [p for d in raw(store, hepnos.Kind.RUN) for p in d] == [(uuid + one, b"")]
    assert [p for d in raw(store, hepnos.Kind.SUBRUN) for p in d] == [(uuid + one + two, b"")]
    assert [p for d in raw(store, hepnos.Kind.EVENT) for p in d] == [(uuid + one + two + five, b"")]
    named = {p for d in raw(store, hepnos.Kind.DATASET) for p in d}
    assert (b"\x01nova/2019", uuid) in named
    assert {key for key, _ in named} == {b"\x00nova", b"\x01nova/2019"}


def test_runs_are_listed_in_numeric_order(dataset: hepnos.DataSet) -> None:
    for number in (300, 1, 2**40, 0, 255, 256):
        dataset.create_run(number)
    assert [run.number for run in dataset.runs] == [0, 1, 255, 256, 300, 2**40]


def test_the_greatest_number_is_listed_last(dataset: hepnos.DataSet) -> None:
    dataset.create_run(BIG)
    dataset.create_run(5)
    assert [run.number for run in dataset.runs] == [5, BIG]
    assert dataset.runs.lower_bound(BIG) == dataset.runs[BIG]
    assert dataset.runs.upper_bound(BIG) is None


@pytest.mark.parametrize("number", [2**64 - 1, -1, 2**64, True, 1.5, "1"])
def test_what_is_no_number_is_refused_everywhere_and_nothing_is_written(dataset: hepnos.DataSet, number: int) -> None:
    run, subrun = dataset.runs.handle(1), dataset.runs.handle(1).subruns.handle(1)
    for create in (dataset.create_run, run.create_subrun, subrun.create_event):
        with pytest.raises(ValueError) as caught:
            create(number)
        assert isinstance(caught.value, hepnos.InvalidNumberError)
    assert [keys(dataset.datastore, kind) for kind in (hepnos.Kind.RUN, hepnos.Kind.SUBRUN, hepnos.Kind.EVENT)] == [
        []
    ] * 3


def test_a_uuid_is_random_and_a_data_set_s_own(open_store: Callable[..., hepnos.DataStore]) -> None:
    first, second = open_store("a"), open_store("b")
    uuids = [first.root.ensure("x").uuid, first.root.ensure("y").uuid, second.root.ensure("x").uuid]
    assert len(set(uuids)) == 3
    assert {uuid.version for uuid in uuids} == {4}
    assert first.root.ensure("x").uuid == uuids[0]


def test_events_of_a_subrun_their_products_and_their_siblings_share_their_databases(
    open_store: Callable[..., hepnos.DataStore],
) -> None:
    store = open_store(runs=8, subruns=8, events=8, products=8)
    dataset = store.root.ensure("d")
    for run in range(6):
        for subrun in range(6):
            place = dataset.create_run(run).create_subrun(subrun)
            for number in range(3):
                place.create_event(number).store("p", 1.0)
    assert sum(bool(database) for database in raw(store, hepnos.Kind.RUN)) == 1
    homes: dict[hepnos.Kind, dict[bytes, set[int]]] = {kind: {} for kind in hepnos.Kind}
    for kind, width in ((hepnos.Kind.SUBRUN, 24), (hepnos.Kind.EVENT, 32), (hepnos.Kind.PRODUCT, 32)):
        for number, pairs in enumerate(raw(store, kind)):
            for key, _ in pairs:
                homes[kind].setdefault(key[:width], set()).add(number)
        assert all(len(numbers) == 1 for numbers in homes[kind].values())
    assert homes[hepnos.Kind.EVENT] == homes[hepnos.Kind.PRODUCT]
    assert len({number for numbers in homes[hepnos.Kind.EVENT].values() for number in numbers}) > 4


# ---- names ----------------------------------------------------------------------------------------------------------------


def test_children_are_the_children_and_no_neighbours(store: hepnos.DataStore) -> None:
    for path in ("aaa/bbbb/x", "aaa/bbb/c", "aaa/bbb/c/d", "aaa/bbb-z/y", "aaa/bbb"):
        store.root.ensure(path)
    assert [child.name for child in store["aaa/bbb"].datasets] == ["c"]
    assert [child.path for child in store["aaa"]] == ["aaa/bbb", "aaa/bbb-z", "aaa/bbbb"]


@pytest.mark.leaves("no-parent")
def test_256_levels_are_the_most(store: hepnos.DataStore) -> None:
    path = "/".join("a" * 256)
    deepest = store.make_dataset(path)
    assert deepest.level == 255
    with pytest.raises(hepnos.InvalidNameError):
        deepest.create_dataset("a")


@pytest.mark.parametrize("name", ["", "a/b", "a\x00b"])
def test_what_is_no_name_is_refused(store: hepnos.DataStore, name: str) -> None:
    with pytest.raises(ValueError):
        store.root.create_dataset(name)
    assert list(store.all_datasets()) == []


def test_odd_names_are_listed_in_byte_order(store: hepnos.DataStore) -> None:
    names = ["#x", "!x", "&", "%x", "é", "日本", "n" * 200, " ", "Z", "a"]
    for name in names:
        store.root.create_dataset(name)
    expected = sorted(names, key=str.encode)
    assert [child.name for child in store.root.datasets] == expected
    assert [child.name for child in store.root.datasets.range(reverse=True)] == expected[::-1]
    assert expected[0] == " "


def test_a_slash_at_either_end_is_taken_off(store: hepnos.DataStore) -> None:
    made = store.root.ensure("/nova/nd/")
    assert made.path == "nova/nd"
    assert store.root.get("/nova/nd") == made
    assert (made.name, made.container, made.level) == ("nd", "nova", 1)


@pytest.mark.leaves("no-container")
def test_a_key_over_the_engine_s_limit_is_refused_before_anything_is_written(
    open_store: Callable[..., hepnos.DataStore],
) -> None:
    store = open_store()
    store.root.create_dataset("n" * 510)  # and the level: 511 bytes
    with pytest.raises(EngineLimitError):
        store.root.create_dataset("n" * 511)
    run = store.root.datasets["n" * 510].runs.handle(1)
    with store.batch() as batch:
        run.store("l" * 465, b"", into=batch)  # 40 bytes, the label, "#bytes"
        with pytest.raises(EngineLimitError):
            run.store("l" * 466, b"", into=batch)
    assert len(list(store.all_datasets())) == 1


def test_the_root_has_neither_runs_nor_products(store: hepnos.DataStore) -> None:
    with pytest.raises(hepnos.InvalidNameError):
        store.root.create_run(1)
    assert store.root.is_root


# ---- finding --------------------------------------------------------------------------------------------------------------


def test_absent_children_are_key_errors_that_name_the_path(dataset: hepnos.DataSet) -> None:
    store = dataset.datastore
    assert isinstance(store, hepnos.DataStore)
    run = dataset.create_run(7)
    for look, path in (
        (lambda: store["nova/none"], "nova/none"),
        (lambda: dataset[8], "nova/2019 8"),
        (lambda: run[3], "nova/2019 7 3"),
        (lambda: run.subruns.handle(3)[5], "nova/2019 7 3 5"),
    ):
        with pytest.raises(KeyError) as caught:
            look()
        assert isinstance(caught.value, hepnos.MissingError)
        assert path in str(caught.value)
    assert store.root.get("nova/none") is None
    assert dataset.runs.get(8) is None
    assert 8 not in dataset.runs
    assert 7 in dataset.runs
    assert "nova/2019" in store.root
    assert dataset[7] == run == dataset.runs.get(7)


def test_bounds_of_data_sets(store: hepnos.DataStore) -> None:
    for name in ("dsB", "dsBx", "dsD"):
        store.root.create_dataset(name)
    view = store.root.datasets

    def name_of(found: hepnos.DataSet | None) -> str | None:
        return None if found is None else found.name

    assert [name_of(view.lower_bound(n)) for n in ("dsC", "dsB", "dsA", "", "dsE")] == [
        "dsD",
        "dsB",
        "dsB",
        "dsB",
        None,
    ]
    assert [name_of(view.upper_bound(n)) for n in ("dsB", "dsD", "dsBx", "")] == ["dsBx", None, "dsD", "dsB"]
    assert [name_of(view.before(n)) for n in ("dsB", "dsC", "zz")] == [None, "dsBx", "dsD"]
    assert [name_of(view.first()), name_of(view.last())] == ["dsB", "dsD"]
    assert [child.name for child in view.range(starts_with="dsB")] == ["dsB", "dsBx"]
    assert (name_of(view["dsB"].next()), name_of(view["dsB"].previous()), view["dsD"].next()) == ("dsBx", None, None)


def number_of(found: hepnos.Run | hepnos.SubRun | hepnos.Event | None) -> int | None:
    return None if found is None else found.number


@pytest.mark.leaves("no-parent")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_bounds_of_numbers(dataset: hepnos.DataSet, depth: int) -> None:
    def views(base: int) -> hepnos.Numbers:  # type: ignore[type-arg]  # Why: of runs, subruns or events.
        run = dataset.runs.handle(base)
        return (dataset.runs, run.subruns, run.subruns.handle(base).events)[depth - 1]

    view = views(1)
    for number in (47, 42, 59, 53, 45):
        view.create(number)
    if depth > 1:
        views(0).create(99)  # neighbours, which must not be entered
        views(2).create(1)

    assert [each.number for each in view] == [42, 45, 47, 53, 59]
    assert [each.number for each in view.range(reverse=True)] == [59, 53, 47, 45, 42]
    assert [number_of(view.lower_bound(n)) for n in (0, 42, 43, 59, 60, BIG)] == [42, 42, 45, 59, None, None]
    assert [number_of(view.upper_bound(n)) for n in (0, 42, 46, 59, BIG)] == [42, 45, 47, None, None]
    assert [number_of(view.before(n)) for n in (42, 43, 100)] == [None, 42, 59]
    assert [number_of(view[42].next()), number_of(view[42].previous())] == [45, None]
    assert [number_of(view[59].next()), number_of(view[59].previous())] == [None, 53]
    assert [each.number for each in view.range(45, 53)] == [45, 47]
    assert (view.count(), number_of(view.first()), number_of(view.last())) == (5, 42, 59)
    view.create(0)
    assert number_of(view.lower_bound(0)) == 0
    assert number_of(view.upper_bound(0)) == 42


def test_a_list_sees_one_state_while_others_append(dataset: hepnos.DataSet) -> None:
    subrun = dataset.create_run(1).create_subrun(1)
    subrun.create_events(range(0, 100, 2))
    seen = []
    for event in subrun.events:
        seen.append(event.number)
        subrun.create_event(event.number + 1)
    assert seen == list(range(0, 100, 2))
    assert subrun.events.count() == 100


@pytest.mark.parametrize(("cache", "batch"), [(16, 16), (16, 10), (1, 1), (1_000, 7), (10**6, 64)])
def test_reading_ahead_changes_nothing_in_the_order(dataset: hepnos.DataSet, cache: int, batch: int) -> None:
    subrun = dataset.create_run(1).create_subrun(1)
    subrun.create_events(range(500))
    with dataset.datastore.prefetch(cache=cache, batch=batch) as prefetch:
        assert [event.number for event in prefetch(subrun.events)] == list(range(500))


# ---- event sets -----------------------------------------------------------------------------------------------------------


@pytest.mark.leaves("no-parent")
def test_an_event_set_by_database_is_disjoint_complete_and_sorted(dataset: hepnos.DataSet) -> None:
    expected = {(run, subrun, event) for run in range(4) for subrun in range(4) for event in range(5)}
    expected.add((0, 0, 0))
    for run, subrun, event in expected:
        dataset.runs.handle(run).subruns.handle(subrun).create_event(event)
    parts = [[event.numbers for event in part] for part in dataset.events().targets()]
    assert len(parts) == 4
    assert all(part == sorted(part) for part in parts)
    assert sorted(numbers for part in parts for numbers in part) == sorted(expected)
    whole = [event.numbers for event in dataset.events()]
    assert whole == sorted(expected)
    assert dataset.events().count() == len(expected)
    assert [tuple(row) for row in dataset.events().to_numpy().tolist()] == whole
    assert [tuple(row) for batch in dataset.events().batches(7) for row in batch.tolist()] == whole


def test_an_event_set_without_events_yields_none(dataset: hepnos.DataSet) -> None:
    assert list(dataset.events()) == []
    dataset.create_run(1).create_subrun(1)
    assert list(dataset.events()) == []
    assert len(dataset.events().to_numpy()) == 0
    for target in (4, -2):
        with pytest.raises(InvalidInputError):
            dataset.events(target)


def test_events_of_a_data_set_whose_uuid_differs_in_its_last_byte_are_others(store: hepnos.DataStore) -> None:
    first = hepnos.DataSet(store, "a", UUID("00112233-4455-6677-8899-aabbccddeeff"))
    second = hepnos.DataSet(store, "b", UUID("00112233-4455-6677-8899-aabbccddee00"))
    for dataset, number in ((first, 1), (second, 2)):
        store.write(Kind.DATASET, dataset_key(dataset.path), dataset.uuid.bytes, "new")
        dataset.create_run(number).create_subrun(1).create_event(number)
    assert [event.numbers for event in first.events()] == [(1, 1, 1)]
    assert [run.number for run in second.runs] == [2]
    assert first.runs[1].next() is None


# ---- removing, and opening again -------------------------------------------------------------------------------------------


def test_deleting_takes_what_is_held_along_and_nothing_else(dataset: hepnos.DataSet) -> None:
    for run in (1, 2):
        for subrun in (1, 2):
            place = dataset.create_run(run).create_subrun(subrun)
            place.store("s", 1)
            place.create_event(3).store("e", 2)
    dataset.store("d", 3)
    dataset.runs[1].delete()
    assert [event.numbers for event in dataset.events()] in ([(2, 1, 3), (2, 2, 3)], [(2, 2, 3), (2, 1, 3)])
    dataset.runs[2].subruns[1].delete()
    assert len(keys(dataset.datastore, hepnos.Kind.PRODUCT)) == 3
    dataset.runs[2].subruns[2].events[3].delete()
    assert [kept.label for kept in dataset.products()] == ["d"]
    dataset.create_dataset("inner").create_run(5)
    dataset.delete()
    assert [len(keys(dataset.datastore, kind)) for kind in hepnos.Kind] == [1, 0, 0, 0, 0]
    store = dataset.datastore
    assert isinstance(store, hepnos.DataStore)
    again = store.root.ensure("nova/2019")
    assert again.uuid != dataset.uuid
    assert not dataset.exists()


def test_a_store_opens_again_with_its_own_numbers_of_databases_only(
    open_store: Callable[..., hepnos.DataStore], tmp_path: Path
) -> None:
    with open_store(events=3, products=2) as store:
        store.root.ensure("d").create_run(1).create_subrun(2).create_event(3).store("x", 4.5)
    with open_store() as again:
        assert again.counts() == {"datasets": 1, "runs": 1, "subruns": 1, "events": 3, "products": 2}
        assert next(iter(again["d"].events())).load("x", float) == 4.5
    with pytest.raises(RingMismatchError):
        open_store(events=4)
    url = f"lmdb:{tmp_path}/store?durability=none"
    with hepnos.open(url, readonly=True) as readonly:
        assert next(iter(readonly["d"].events())).numbers == (1, 2, 3)
    with pytest.raises(StoreMissingError):
        hepnos.open(f"lmdb:{tmp_path}/none", create=False)


def test_databases_may_have_urls_of_their_own(tmp_path: Path) -> None:
    kinds = {"datasets": 1, "runs": 1, "subruns": 1, "events": 2, "products": 2}
    urls = {
        kind: [f"lmdb:{tmp_path}/{kind}-{number}?history=off&durability=none" for number in range(count)]
        for kind, count in kinds.items()
    }
    with hepnos.open_databases(urls) as store:
        store.root.ensure("d").create_run(1).create_subrun(1).create_events(range(10))
        assert store.counts() == kinds
    urls["events"].reverse()
    with pytest.raises(RingMismatchError):
        hepnos.open_databases(urls)


def test_a_store_in_memory_and_one_below_prefixes_of_one_engine() -> None:
    with hepnos.open("memory:", databases={"events": 2}) as store:
        subrun = store.root.ensure("d").create_run(1).create_subrun(1)
        assert subrun.create_events([3, 1, 2, 1]) == 3
        assert [event.number for event in subrun] == [1, 2, 3]


_MAKER = """
import sys
from keyplan.apps import hepnos
from keyplan.apps.hepnos.keys import Kind, dataset_key
with hepnos.open(sys.argv[1]) as store:
    for number in range(60):
        print(store.root.ensure(f"d{number}/x").uuid)
"""


@pytest.mark.slow
def test_processes_that_create_the_same_data_sets_agree_on_their_uuids(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/shared?durability=none"
    hepnos.open(url, databases={"datasets": 2}).close()
    running = [
        subprocess.Popen([sys.executable, "-c", _MAKER, url], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [process.communicate()[0].split() for process in running]
    assert len(answers[0]) == 60
    assert answers[0] == answers[1]


# ---- as numpy and the C++ program have it -----------------------------------------------------------------------------------


def test_numpy_s_whole_numbers_are_numbers_and_its_truth_values_are_not(dataset: hepnos.DataSet) -> None:
    seven: Any = np.int32(7)
    great: Any = np.uint64(BIG)
    run = dataset.create_run(seven)
    assert run.create_subrun(great).numbers == (7, BIG)
    assert dataset.runs[seven] == run == dataset.runs.get(seven)
    assert [type(each) for each in run.numbers] == [int]
    wrongs: list[Any] = [np.True_, np.float64(1.0), np.int64(-1)]
    for wrong in wrongs:
        with pytest.raises(hepnos.InvalidNumberError):
            dataset.create_run(wrong)


def test_a_list_with_small_numbers_and_great_ones_is_taken_exactly(dataset: hepnos.DataSet) -> None:
    subrun = dataset.create_run(1).create_subrun(1)
    assert subrun.create_events([3, BIG, 2**63 + 1]) == 3
    assert [event.number for event in subrun] == [3, 2**63 + 1, BIG]
    for wrong in ([1, 2**64 - 1, 2**63], [1, 2**64], [1.0, 2**63], [1, None]):
        with pytest.raises(hepnos.InvalidNumberError):
            subrun.create_events(wrong)


def test_the_end_of_a_range_may_lie_behind_the_greatest_number(dataset: hepnos.DataSet) -> None:
    dataset.create_items([0, 5, BIG])
    assert [run.number for run in dataset.runs.range(1, 2**64 - 1)] == [5, BIG]
    assert [run.number for run in dataset.runs.range(1, 2**64)] == [5, BIG]
    ends: list[Any] = [2**64 + 1, -1, False, 1.0]
    for wrong in ends:
        with pytest.raises(hepnos.InvalidNumberError):
            list(dataset.runs.range(0, wrong))
    beginnings: list[Any] = [-1, False, 0.0, 2**64 - 1]
    for wrong in beginnings:
        with pytest.raises(hepnos.InvalidNumberError):
            list(dataset.runs.range(wrong))


def test_runs_and_subruns_are_asked_for_their_children_like_views(dataset: hepnos.DataSet) -> None:
    subrun = dataset.create_run(1).create_subrun(2)
    subrun.create_events([3, 4, 5, 9])
    assert 2 in subrun.run
    assert 3 not in subrun.run
    assert 4 in subrun
    assert 6 not in subrun
    assert subrun.run.get(2) == subrun
    assert subrun.get(6) is None
    assert [event.number for event in subrun.range(4, 9)] == [4, 5]
    assert [each.number for each in subrun.run.range(reverse=True)] == [2]
    four = subrun[4]
    assert subrun.events.next(four) == subrun[5] == four.next()
    assert subrun.events.prev(four) == subrun[3] == four.prev()
    assert subrun[3].prev() is None


def test_minus_one_is_all_event_databases_as_in_cpp(dataset: hepnos.DataSet) -> None:
    dataset.create_items([1] * 4, [1, 2, 3, 4], [1] * 4)
    assert dataset.events(-1).count() == dataset.events().count() == 4


@pytest.mark.parametrize("path", ["p//q", "p/q\0", "p/" + "/".join("q" * 256), "p/" + "q" * 600])
def test_a_path_that_cannot_be_is_refused_before_its_beginning_is_made(
    open_store: Callable[..., hepnos.DataStore], path: str
) -> None:
    store = open_store()
    with pytest.raises((hepnos.InvalidNameError, EngineLimitError)):
        store.root.ensure(path)
    assert list(store.all_datasets()) == []


def test_a_slice_with_a_step_is_refused_and_a_handle_of_another_store_is_another(
    dataset: hepnos.DataSet, open_store: Callable[..., hepnos.DataStore]
) -> None:
    run = dataset.create_run(1)
    with pytest.raises(InvalidInputError, match="without a step"):
        dataset.runs[0:9:2]
    assert dataset.runs[0:9] == [run]
    twin = hepnos.DataSet(open_store(), dataset.path, dataset.uuid)
    assert (twin == dataset, twin.runs.handle(1) == run) == (False, False)
