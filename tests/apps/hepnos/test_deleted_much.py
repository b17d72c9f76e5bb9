"""Deletions of more than goes into one commit: parts of a bounded size, each as sound as the whole when it ends there."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos import access
from keyplan.apps.hepnos.examine import examine
from keyplan.apps.hepnos.keys import Kind
from keyplan.engine import ALL_KEYS, Commit, DeleteRange
from keyplan.ring import OWN_PREFIX, RingEngine
from tests.apps.hepnos.served import HepnosServer


@pytest.fixture(params=["lmdb", "ring", "server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hepnos.DataStore]:
    databases = {"events": 3, "datasets": 2} if request.param == "ring" else None
    if request.param == "server":
        with HepnosServer({"store": "memory:"}) as server, hepnos.open(server.url) as opened:
            yield opened
    else:
        with hepnos.open(f"lmdb:{tmp_path / 'store'}?durability=none", databases=databases) as opened:
            yield opened


def raw(store: hepnos.DataStore) -> list[tuple[Kind, int, bytes, bytes]]:
    """Every key and value, but what databases keep of their own."""
    found: list[tuple[Kind, int, bytes, bytes]] = []
    for kind, database in store.databases:
        with store.databases.snapshot(kind, database) as snapshot:
            pairs = snapshot.pairs(ALL_KEYS)
            found += [(kind, database, pair[0], pair[1]) for pair in pairs if not pair[0].startswith(OWN_PREFIX)]
    return found


@pytest.fixture
def three_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_REMOVED_AT_ONCE", 3)


@pytest.mark.usefixtures("three_at_once")
@pytest.mark.parametrize("is_run", [True, False])
@pytest.mark.parametrize("killed_at", [None, *range(10)])
def test_much_is_removed_by_commits_of_a_bounded_size_and_gone_on_with(
    store: hepnos.DataStore, monkeypatch: pytest.MonkeyPatch, killed_at: int | None, *, is_run: bool
) -> None:
    dataset, kept = store.root.create_dataset("z"), store.root.create_dataset("y")
    for each in (dataset, kept):
        each.create_items(np.arange(20) // 10, np.arange(20) // 4, np.arange(20))
        hepnos.store_products(each, "l", int, (np.arange(20) // 10, np.arange(20) // 4, np.arange(20)), [bytes(8)] * 20)
    held = raw(store)
    removed: list[int] = []
    real = RingEngine.commit_in

    def counted(ring: RingEngine, number: int, commit: Commit) -> None:
        is_own = ring in store.databases.rings.values()  # Why: a server's are in this process, too.
        ranges = [each.range for each in commit.mutations if isinstance(each, DeleteRange) and is_own]
        if ranges:
            with ring.open_snapshot(number) as snapshot, suppress(hepnos.DeletedError):
                removed.append(sum(snapshot.count(each) for each in ranges))
            if killed_at is not None and len(removed) == killed_at + 1:
                raise KeyboardInterrupt
        real(ring, number, commit)

    what: Any = dataset.runs[0] if is_run else dataset
    monkeypatch.setattr(RingEngine, "commit_in", counted)
    with nullcontext() if killed_at is None else pytest.raises(KeyboardInterrupt):
        what.delete()
    assert removed
    assert max(removed) <= 3
    if killed_at is not None:
        killed_at = None
        what.delete()
    left = raw(store)
    assert all(each in held for each in left)
    assert kept.events().count() == 20
    assert [run.number for run in kept.runs] == [0, 1]
    if is_run:
        assert [event.number for event in sorted_events(dataset)] == list(range(10, 20))
        assert len(list(hepnos.load_products(dataset, "l", int))) == 10
    else:
        assert dataset.uuid.bytes not in b"".join(each[2] for each in left)
        with pytest.raises(hepnos.DeletedError):
            dataset.create_run(7)
        for number in range(20):  # Why each: every database that had much is to know.
            with pytest.raises(hepnos.DeletedError):
                hepnos.Event(dataset, (number // 10, number // 4, number)).store("n", number)
    assert list(examine(store)) == []


def sorted_events(dataset: hepnos.DataSet) -> list[hepnos.Event]:
    return sorted(dataset.events(), key=lambda event: event.number)
