"""A store that goes back to an earlier state: what was read before it did guards no commit after it.

The engine here is one that counts on from where it was put back, as etcd does: a revision alone may come again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import (
    Commit,
    Engine,
    KeyAbsent,
    MemoryEngine,
    RangeEmpty,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import CommitConflictError, MigrationRefusedError, TargetTakenError
from keyplan.maintenance import (
    RawChange,
    build_index,
    carry_out,
    carry_out_change,
    check,
    copy_store,
    drop_index,
    plan_delete,
    plan_put,
    plan_quarantine,
    plan_repairs,
    restore_store,
)
from keyplan.store import Store
from tests.maintenance.backups import content_of, write_backup
from tests.maintenance.evolving import Moved, Old, cleaned, fill, switched
from tests.maintenance.layouts import Blade, BladeKey, Site, write


class Rewound(WrappedEngine):
    """An engine whose epoch tests change. It refuses a commit of another epoch, and one that has a revision and no epoch.

    `at`: before the commit of this number (1 is the next one) the store goes back.
    """

    def __init__(self, at: int = 0) -> None:
        super().__init__(MemoryEngine())
        self.epoch = 1
        self.at = at
        self.commits = 0

    def snapshot(self) -> Snapshot:
        return _Rewound(self.inner.snapshot(), str(self.epoch))

    def commit(self, commit: Commit) -> int:
        self.commits += 1
        self.at -= 1
        if self.at == 0:
            self.epoch += 1
        names_revision = any(not isinstance(guard, KeyAbsent | RangeEmpty) for guard in commit.guards)
        assert commit.epoch or not names_revision, commit.guards
        if commit.epoch and commit.epoch != str(self.epoch):
            raise CommitConflictError(failed=())
        return self.inner.commit(commit)


class _Rewound(WrappedSnapshot):
    def __init__(self, inner: Snapshot, epoch: str) -> None:
        super().__init__(inner)
        self._epoch = epoch

    @property
    def epoch(self) -> str:
        return self._epoch


@pytest.fixture
def engine() -> Iterator[Rewound]:
    with Rewound() as engine:
        yield engine


def filled_site(engine: Engine, count: int = 3) -> Store:
    store = Store(engine)
    for number in range(count):
        Site(store).blades.insert(BladeKey("r", f"{number:04}"), Blade(f"s{number:04}", ["t"]))
    return store


def test_builds_drops_and_repairs_name_the_epoch_of_what_they_read(engine: Rewound) -> None:
    store = filled_site(engine)
    drop_index(store, Site.bound(), "by_serial")
    assert build_index(store, Site.bound(), "by_serial").is_readable
    write(store, b"/site/by-serial/s0001", puts={b"/site/by-tag/x/r/0001": b""})
    repairs = plan_repairs(store, Site.bound(), check(store, Site.bound()))
    assert [outcome.result.value for outcome in carry_out(store, Site.bound(), repairs)] == ["repaired", "repaired"]


def test_a_drop_does_not_go_on_in_a_store_that_went_back(engine: Rewound) -> None:
    store = filled_site(engine)
    # Why the second: the first one takes the index, and the next remove entries.
    engine.at = 2
    with pytest.raises(CommitConflictError):
        drop_index(store, Site.bound(), "by_serial")
    assert sum(key.startswith(b"/site/by-serial/") for key in content_of(engine)) == 3


def test_a_build_goes_on_from_what_it_finds_in_a_store_that_went_back(engine: Rewound) -> None:
    store = filled_site(engine)
    drop_index(store, Site.bound(), "by_serial")
    for number in range(1, 8):
        engine.at = number
        assert build_index(store, Site.bound(), "by_serial").is_readable
        assert not list(check(store, Site.bound()))
        drop_index(store, Site.bound(), "by_serial")


PLANS: dict[str, Callable[[Engine], RawChange]] = {
    "put": lambda engine: plan_put(engine, b"/site/rack/r/blades/0000", b"{}", layout=Site.bound()),
    "put of bytes": lambda engine: plan_put(engine, b"/x", b""),
    "delete": lambda engine: plan_delete(engine, b"/site/rack/r/blades/0000", layout=Site.bound()),
    "quarantine": lambda engine: plan_quarantine(engine, b"/site/rack/r/blades/0000"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_change_by_hand_is_not_carried_out_in_a_store_that_went_back(engine: Rewound, name: str) -> None:
    filled_site(engine)
    before = content_of(engine)
    change = PLANS[name](engine)
    engine.epoch += 1
    with pytest.raises(CommitConflictError):
        carry_out_change(engine, change)
    assert content_of(engine) == before


def migrated(engine: Rewound) -> None:
    switched(Store(engine), Old, Moved)
    cleaned(Store(engine), Old, Moved)


def test_a_migration_ends_in_a_store_that_went_back_and_is_finished_by_another_run() -> None:
    with Rewound() as engine:
        fill(Store(engine), 3)
        done = engine.commits
        migrated(engine)
        count, expected = engine.commits - done, content_of(engine)
    refused = 0
    for at in range(1, count + 1):
        with Rewound() as engine:
            fill(Store(engine), 3)
            engine.at = at
            try:
                migrated(engine)
            except (CommitConflictError, MigrationRefusedError):
                refused += 1
                migrated(engine)
            assert content_of(engine).keys() == expected.keys()
    assert refused > count // 2


def test_a_copy_and_a_restore_end_in_a_store_that_went_back_and_go_on(tmp_path: Path) -> None:
    with MemoryEngine() as source:
        filled_site(source)
        path = write_backup(source, tmp_path / "all.kpb")
        works: list[Callable[[Engine], object]] = [
            lambda target: copy_store(source, target, source_name="a"),
            lambda target: restore_store(target, path),
        ]
        for work in works:
            with Rewound(at=2) as target:
                with pytest.raises(TargetTakenError):
                    work(target)
                work(target)
                assert content_of(target) == content_of(source)
