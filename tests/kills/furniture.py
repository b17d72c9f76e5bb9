"""What the scenes of kills share: a store with something of everything, engines of small commits, work that is left open."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.engine import ALL_KEYS, MEMORY_PROFILE, Commit, KeyRange, MemoryEngine, Profile, Put
from keyplan.layout import BoundLayout, Layout
from keyplan.maintenance import Migrations, list_indexes, unfinished_work
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.killing import KillScenario
from tests.maintenance.layouts import Blade, BladeKey, Site

__all__ = ["SMALL", "Scene", "fill_site", "folder", "nothing_is_open", "small_profile"]


class Scene(NamedTuple):
    """A scenario of kills with its name. `is_long`: left to `python -m tests.kills.run`."""

    name: str
    scenario: KillScenario
    is_long: bool = False


@cache
def folder() -> Path:
    """Return a folder for files of the scenes, which is the process's own and goes with it."""
    made = tempfile.TemporaryDirectory(prefix="keyplan-kills-")
    _FOLDERS.append(made)
    return Path(made.name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def small_profile(operations: int) -> Profile:
    """The memory's profile with commits of at most so many operations, so that a few records take several."""
    return replace(MEMORY_PROFILE, commit_operations_max=operations)


SMALL: Final = small_profile(12)


def fill_site(store: Store) -> None:
    """Blades with unique and plain entries, a member on a lease, a counter, and keys of others on both sides."""
    store.engine.commit(Commit((), (Put(b"/before", b"other"), Put(b"/tail", b"other"))))
    site = Site(store)
    for number in range(4):
        site.blades.insert(BladeKey("r", str(number)), Blade(f"s{number}", ["red", f"t{number}"]))
    site.ports.next(3)
    site.members.insert("m", Blade("ms"), lease=store.engine.lease(100_000.0).id)


def nothing_is_open(store: Store, *layouts: type[Layout] | BoundLayout, leases: int = 0) -> None:
    """Fail where work is left open: claims, states of migrations, indexes that are not readable, leases of processes."""
    with store.engine.snapshot() as snapshot:
        assert unfinished_work(snapshot, [b""]) == []
        prefixes = [entry.key for entry in snapshot.scan(KeyRange.of_prefix(b"\x00ktc"))]
        assert not prefixes, f"claims are left: {prefixes}"
        left = [entry.key for entry in snapshot.scan(ALL_KEYS) if entry.key[:4] in _OF_MIGRATIONS_UNDER_WAY]
        assert not left, f"marks, hints or turns are left: {left}"
    under_way = [state for _, state in Migrations(store).states.list() if not state.is_cleaned]
    assert not under_way, f"migrations are under way: {under_way}"
    if layouts:
        assert_healthy(store, *layouts, has_others=True)
        unready = [index.name for layout in layouts for index in list_indexes(store, _bound(layout)) if index.state]
        assert not unready
    assert isinstance(store.engine, MemoryEngine)
    assert len(store.engine.memory.leases) == leases


_OF_MIGRATIONS_UNDER_WAY: Final = {b"\x00kmc", b"\x00kmm", b"\x00kmr"}


def _bound(layout: type[Layout] | BoundLayout) -> BoundLayout:
    return layout.bound() if isinstance(layout, type) else layout
