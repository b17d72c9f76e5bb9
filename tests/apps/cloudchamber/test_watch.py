"""Acceptance cases on watches; each quotes its number in the specification's section 7."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from keyplan.apps.cloudchamber import Blade, BladeKey, Capacity, CloudChamber, Tor, User
from keyplan.errors import HistoryCompactedError
from keyplan.layout import ChangeKind
from keyplan.store import Store

NINE = BladeKey("rack1", 9)


def test_a_watch_of_a_racks_blades_sees_them_and_nothing_else(chamber: CloudChamber) -> None:
    """AC-35."""
    empty, full = Blade(), Blade(capacity=Capacity(cores=1))
    with chamber.blades.watch("rack1") as changes:
        chamber.blades.insert(NINE, empty)
        chamber.blades.update(NINE, full)
        chamber.tor.insert("rack1", Tor())
        chamber.blades.insert(BladeKey("rack10", 1), full)
        chamber.blades.delete(NINE)
        assert [change[:5] for change in changes.poll()] == [
            (ChangeKind.INSERTED, NINE, None, empty, 1),
            (ChangeKind.CHANGED, NINE, empty, full, 2),
            (ChangeKind.REMOVED, NINE, full, None, 5),
        ]
        assert changes.poll() == []


def test_two_users_created_in_one_transaction_come_at_one_revision(chamber: CloudChamber) -> None:
    """AC-36."""
    with chamber.users.watch() as changes:
        with chamber.transaction() as tx:
            tx.users.insert("b", User(name="b"))
            tx.users.insert("a", User(name="a"))
        assert [(change.kind, change.key, change.revision) for change in changes.poll()] == [
            (ChangeKind.INSERTED, "a", 1),
            (ChangeKind.INSERTED, "b", 1),
        ]


def test_a_watch_from_the_revision_of_a_list_has_no_gap_and_no_duplicate(chamber: CloudChamber) -> None:
    """AC-37."""
    chamber.users.insert("a", User(name="a"))
    with chamber.snapshot() as pinned:
        listed, revision = dict(pinned.users.list()), pinned.revision
    chamber.users.insert("b", User(name="b"))
    chamber.users.update("a", User(name="a", enabled=True))
    chamber.users.delete("b")
    with chamber.users.watch(after=revision) as changes:
        found = changes.poll()
        assert changes.poll() == []
    assert list(listed) == ["a"]
    assert [(change.kind, change.key, change.revision) for change in found] == [
        (ChangeKind.INSERTED, "b", revision + 1),
        (ChangeKind.CHANGED, "a", revision + 2),
        (ChangeKind.REMOVED, "b", revision + 3),
    ]


def test_compacted_history_is_an_error_with_its_revision(chamber: CloudChamber, store: Store) -> None:
    """AC-38."""
    first = chamber.users.insert("a", User(name="a"))
    last = chamber.users.update("a", User(name="a", enabled=True))
    store.engine.compact(last)
    with pytest.raises(HistoryCompactedError) as caught, chamber.users.watch(after=first) as changes:
        next(changes)
    assert caught.value.compacted_revision == last


def test_closing_a_watch_ends_it_and_closing_it_twice_is_harmless(chamber: CloudChamber) -> None:
    """AC-39; the contract here is that a second close is harmless."""
    changes = chamber.users.watch()
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(list, changes)
        changes.close()
        changes.close()
        assert seen.result(timeout=30) == []
