"""Typed watches: what a change says, tokens that resume, indexes, records that cannot be read, closing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keyplan.engine import Commit, Delete, Put
from keyplan.errors import (
    CorruptionError,
    EngineUnavailableError,
    HistoryCompactedError,
    InvalidInputError,
    InvalidWatchTokenError,
    UnsupportedByEngineError,
)
from keyplan.layout import Changes, Index, Layout, Table
from keyplan.store import Store, open_store
from tests.store.layouts import Blade, BladeKey, Rack, Site
from tests.store.watching import (
    CHANGED,
    INSERTED,
    ONE,
    OTHER,
    RAW_ONE,
    REMOVED,
    TWO,
    damaged,
    three_in_one_revision,
    told,
)

# ---- what is told -------------------------------------------------------------------------------------------------------


def test_a_record_is_inserted_changed_and_removed_with_what_it_was(site: Site) -> None:
    with site.blades.watch("r1") as changes:
        site.blades.insert(ONE, Blade("s1"))
        site.blades.update(ONE, Blade("s2"))
        site.blades.insert(OTHER, Blade("s3"))
        site.racks.put("r1", Rack("a"))
        site.blades.delete(ONE)
        assert told(changes.poll()) == [
            (INSERTED, ONE, None, Blade("s1"), 1),
            (CHANGED, ONE, Blade("s1"), Blade("s2"), 2),
            (REMOVED, ONE, Blade("s2"), None, 5),
        ]
        assert changes.poll() == []


def test_a_watch_begins_now_unless_told_otherwise(site: Site) -> None:
    site.blades.insert(ONE, Blade())
    with site.blades.watch() as changes, site.blades.watch(after=0) as all_changes:
        site.blades.insert(TWO, Blade())
        assert told(changes.poll()) == [(INSERTED, TWO, None, Blade(), 2)]
        assert [change.key for change in all_changes.poll()] == [ONE, TWO]


def test_starts_with_narrows_the_next_field(site: Site) -> None:
    with site.blades.watch("r1", starts_with="1") as changes:
        for slot in ("1", "2", "10"):
            site.blades.insert(BladeKey("r1", slot), Blade())
        assert [change.key.slot for change in changes.poll()] == ["1", "10"]


def test_a_record_written_again_as_it_was_is_changed(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    with site.blades.watch() as changes:
        site.blades.put(ONE, Blade("s1"))
        assert told(changes.poll()) == [(CHANGED, ONE, Blade("s1"), Blade("s1"), 2)]


def test_two_writes_of_one_record_in_one_transaction_are_one_change(site: Site) -> None:
    with site.blades.watch() as changes:
        with site.transaction() as tx:
            tx.blades.insert(ONE, Blade("s1"))
            tx.blades.update(ONE, Blade("s2"))
        assert told(changes.poll()) == [(INSERTED, ONE, None, Blade("s2"), 1)]


def test_a_rename_is_removed_and_inserted_in_one_revision(site: Site) -> None:
    site.blades.insert(TWO, Blade("s1"))
    with site.blades.watch() as changes:
        site.blades.rename(TWO, ONE)
        assert told(changes.poll()) == [(INSERTED, ONE, None, Blade("s1"), 2), (REMOVED, TWO, Blade("s1"), None, 2)]


def test_a_table_without_values_tells_keys(site: Site) -> None:
    with site.flags.watch() as changes:
        site.flags.insert("on", None)
        site.flags.delete("on")
        assert [change[:5] for change in changes.poll()] == [
            (INSERTED, "on", None, None, 1),
            (REMOVED, "on", None, None, 2),
        ]


# ---- indexes ------------------------------------------------------------------------------------------------------------


def test_an_index_tells_of_records_that_get_keep_and_lose_an_entry(site: Site) -> None:
    first, tagged, kept, without = Blade("s1"), Blade("s1", ["a"]), Blade("s1", ["a", "b"], 5), Blade("s1", ["b"])
    with site.by_tag.watch("a") as changes:
        site.blades.insert(ONE, first)
        site.blades.update(ONE, tagged)
        site.blades.update(ONE, kept)
        site.blades.update(ONE, without)
        site.blades.update(ONE, tagged)
        site.blades.delete(ONE)
        assert told(changes.poll()) == [
            (INSERTED, ONE, first, tagged, 2),
            (CHANGED, ONE, tagged, kept, 3),
            (REMOVED, ONE, kept, without, 4),
            (INSERTED, ONE, without, tagged, 5),
            (REMOVED, ONE, tagged, None, 6),
        ]


def test_a_record_with_two_entries_in_the_list_is_one_change(site: Site) -> None:
    with site.by_tag.watch() as changes:
        site.blades.insert(ONE, Blade(None, ["a", "b"]))
        site.blades.update(ONE, Blade(None, ["b"]))
        site.blades.update(ONE, Blade(None, []))
        assert [change.kind for change in changes.poll()] == [INSERTED, CHANGED, REMOVED]


def test_a_unique_index_tells_of_a_record_that_takes_the_entry_of_another(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    site.blades.insert(TWO, Blade("s2"))
    with site.by_serial.watch("s1") as changes:
        with site.transaction() as tx:
            tx.blades.update(ONE, Blade("s3"))
            tx.blades.update(TWO, Blade("s1"))
        assert told(changes.poll()) == [
            (REMOVED, ONE, Blade("s1"), Blade("s3"), 3),
            (INSERTED, TWO, Blade("s2"), Blade("s1"), 3),
        ]


# ---- resuming -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "watch", [lambda site, **k: site.blades.watch(**k), lambda site, **k: site.by_tag.watch("a", **k)]
)
def test_a_token_resumes_in_the_middle_of_a_revision(
    site: Site, watch: Callable[..., Changes[BladeKey, Blade]]
) -> None:
    three_in_one_revision(site)
    with watch(site, after=0) as changes:
        tokens = [next(changes).token for _ in range(3)]
        assert changes.token == tokens[2]
    site.blades.update(TWO, Blade("s", ["a"]))
    for delivered, token in enumerate(tokens, start=1):
        with watch(site, after=token) as changes:
            slots = [change.key.slot for change in changes.poll()]
        assert slots == [*["1", "2", "3"][delivered:], "2"]


def test_the_token_of_a_watch_moves_on_over_what_does_not_concern_it(site: Site, store: Store) -> None:
    with site.blades.watch() as changes:
        site.racks.put("r1", Rack("a"))
        assert changes.poll() == []
        token = changes.token
    store.engine.compact(1)
    site.blades.insert(ONE, Blade())
    with site.blades.watch(after=token) as changes:
        assert [change.key for change in changes.poll()] == [ONE]


def test_the_token_of_a_closed_watch_can_be_read(site: Site) -> None:
    three_in_one_revision(site)
    changes = site.blades.watch(after=0)
    token = next(changes).token
    changes.close()
    assert changes.token == token


def other_lists(site: Site) -> list[Changes[object, object]]:
    return [site.racks.watch(), site.blades.watch("r1"), site.by_tag.watch("a"), site.by_tag.watch()]  # type: ignore[list-item]  # Why: of several tables.


def test_tokens_of_other_lists_and_damaged_ones_are_refused(site: Site) -> None:
    site.blades.insert(ONE, Blade())
    tokens = []
    for changes in other_lists(site):
        tokens.append(changes.token)
        changes.close()
    with site.blades.watch() as own:
        tokens += [own.token[:-1], own.token + "A", "", "no token!", "é"]
    for token in tokens:
        with pytest.raises(InvalidWatchTokenError):
            site.blades.watch(after=token)


def test_a_page_token_is_not_a_watch_token(site: Site) -> None:
    three_in_one_revision(site)
    with pytest.raises(InvalidWatchTokenError):
        site.blades.watch(after=site.blades.page(limit=1).next_token)


def test_a_token_of_a_store_that_is_further_is_refused(site: Site) -> None:
    three_in_one_revision(site)
    with site.blades.watch() as changes:
        token = changes.token
    with open_store("memory:") as younger, pytest.raises(InvalidWatchTokenError, match="another store"):
        Site(younger).blades.watch(after=token)


def test_a_revision_below_zero_is_refused(site: Site) -> None:
    with pytest.raises(InvalidInputError):
        site.blades.watch(after=-1)


def test_compacted_history_is_said_with_its_revision(site: Site, store: Store) -> None:
    three_in_one_revision(site)
    with site.blades.watch(after=0) as changes:
        token = next(changes).token
    last = site.blades.put(ONE, Blade())
    store.engine.compact(last)
    for after in (0, 1, token):
        with pytest.raises(HistoryCompactedError) as caught:
            site.blades.watch(after=after).poll(10)
        assert caught.value.compacted_revision == last


# ---- records that cannot be read ----------------------------------------------------------------------------------------


def mended(store: Store) -> None:
    store.engine.commit(Commit((), (Put(RAW_ONE, b'{"serial":"s1","tags":["a"]}'),)))


def test_an_unreadable_record_is_an_error_in_its_place_and_iteration_goes_on(site: Site, store: Store) -> None:
    with site.blades.watch() as changes:
        site.blades.insert(TWO, Blade())
        revision = damaged(store)
        site.blades.put(TWO, Blade(None, [], 1))
        assert next(changes).key == TWO
        with pytest.raises(CorruptionError) as caught:
            next(changes)
        assert (caught.value.table, caught.value.key) == ("blades", ONE)
        assert (caught.value.raw_key, caught.value.revision) == (RAW_ONE.hex(), revision)
        assert next(changes).kind is CHANGED
    store.engine.commit(Commit((), (Delete(RAW_ONE),)))


def test_a_poll_returns_what_comes_before_an_unreadable_record_and_then_raises(site: Site, store: Store) -> None:
    with site.blades.watch() as changes:
        site.blades.insert(TWO, Blade())
        damaged(store)
        site.blades.delete(TWO)
        assert [change.kind for change in changes.poll()] == [INSERTED]
        before = changes.token
        with pytest.raises(CorruptionError):
            changes.poll()
        behind = changes.token
        assert [change.kind for change in changes.poll()] == [REMOVED]
    with site.blades.watch(after=before) as again, pytest.raises(CorruptionError):
        again.poll()
    with site.blades.watch(after=behind) as again:
        assert [change.kind for change in again.poll()] == [REMOVED]
    store.engine.commit(Commit((), (Delete(RAW_ONE),)))


def test_a_record_that_was_unreadable_is_told_without_what_it_was(site: Site, store: Store) -> None:
    damaged(store)
    start = store.revision
    mended(store)
    store.engine.commit(Commit((), (Put(RAW_ONE, b"["),)))
    store.engine.commit(Commit((), (Delete(RAW_ONE),)))
    with site.blades.watch(after=start) as changes:
        assert told(changes.poll()) == [(CHANGED, ONE, None, Blade("s1", ["a"]), start + 1)]
        with pytest.raises(CorruptionError):
            changes.poll()
        assert told(changes.poll()) == [(REMOVED, ONE, None, None, start + 3)]
    with site.by_tag.watch("a", after=start) as changes:
        assert told(changes.poll()) == [(INSERTED, ONE, None, Blade("s1", ["a"]), start + 1)]
        with pytest.raises(CorruptionError):
            changes.poll()
        assert changes.poll() == []


def picky(_key: str, rack: Rack) -> str:
    """An index's function with a fault in it."""
    if rack.height < 0:
        raise ZeroDivisionError
    return rack.room


class Picky(Layout, root="/picky/"):
    racks = Table("racks/{rack}", key=str, value=Rack)
    by_room = Index("by-room/{room}/{rack}", of=racks, key=str, on=picky, version=1)


@pytest.mark.leaves("key-outside")
def test_a_record_that_an_indexs_function_refuses_is_an_error_in_its_place(store: Store) -> None:
    picky_site = Picky(store)
    picky_site.racks.insert("a", Rack("x"))
    store.engine.commit(Commit((), (Put(b"/picky/racks/b", b'{"room":"x","height":-1}'),)))
    picky_site.racks.insert("c", Rack("x"))
    changes = picky_site.by_room.watch("x", after=0)
    assert next(changes).key == "a"
    with pytest.raises(CorruptionError) as caught:
        next(changes)
    assert caught.value.facts["problem"] == "the index's function raised ZeroDivisionError"
    assert caught.value.facts["index"] == "by_room"
    assert next(changes).key == "c"
    changes.close()


# ---- waiting and closing ------------------------------------------------------------------------------------------------


def test_an_iteration_waits_for_the_next_change(site: Site) -> None:
    with site.blades.watch() as changes, ThreadPoolExecutor(1) as pool:
        found = pool.submit(next, changes)
        site.blades.insert(ONE, Blade())
        assert found.result(timeout=30).key == ONE


def test_closing_in_another_thread_ends_the_iteration(site: Site) -> None:
    changes = site.blades.watch()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(list, changes)
        site.blades.insert(ONE, Blade())
        changes.close()
        changes.close()
        assert [change.key for change in found.result(timeout=30)] in ([], [ONE])
    assert list(changes) == []
    with pytest.raises(EngineUnavailableError):
        changes.poll()


def test_closing_the_store_is_an_error_for_who_waits(store: Store) -> None:
    with open_store("memory:") as other:
        changes = Site(other).blades.watch()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(next, changes)
            other.close()
            with pytest.raises(EngineUnavailableError):
                found.result(timeout=30)


@pytest.mark.parametrize("name", ["blades", "by_serial", "by_tag"])
def test_only_a_store_can_be_watched(site: Site, name: str) -> None:
    with site.snapshot() as pinned, pytest.raises(UnsupportedByEngineError):
        pinned.view(name).watch()
    with site.transaction() as tx, pytest.raises(UnsupportedByEngineError):
        tx.view(name).watch()
    with site.snapshot() as pinned, pytest.raises(UnsupportedByEngineError):
        pinned.blades.follow()


def test_an_engine_without_history_cannot_be_watched(tmp_path: Path) -> None:
    with open_store(f"lmdb:{tmp_path}", history="off") as store:
        for watch in (Site(store).blades.watch, Site(store).by_tag.watch, Site(store).blades.follow):
            with pytest.raises(UnsupportedByEngineError):
                watch()
