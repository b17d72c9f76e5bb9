"""Each long act told to stop at its looks: it ends between two batches, its job stays open, and the same call goes on."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeAlias

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Engine, KeyRange, MemoryEngine, Put, WrappedEngine
from keyplan.errors import StoppedError
from keyplan.files import new_file
from keyplan.jobs import Progress, Stop
from keyplan.keyspace import KeySpaces, Stage, Sweeper
from keyplan.maintenance import (
    back_up_key_spaces,
    back_up_store,
    build_index,
    check,
    clean_up_migration,
    copy_store,
    drop_index,
    migrate,
    open_jobs,
    restore_key_spaces,
    restore_store,
)
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.maintenance import evolving
from tests.maintenance.layouts import Blade, BladeKey, Site

Act: TypeAlias = Callable[[Stop | None], object]
"""A long act, which is told when to stop."""

COUNT: Final = 140
"""More than a batch of those that have the smallest."""


class Looks:
    """Set from the look on that comes after so many."""

    def __init__(self, left: float) -> None:
        self.left = left
        self.count = 0

    def is_set(self) -> bool:
        self.count += 1
        return self.count > self.left


def blades() -> Engine:
    engine = MemoryEngine()
    with Store(engine).transaction() as transaction:
        site = Site(transaction)
        for number in range(COUNT):
            site.blades.insert(BladeKey("r", f"{number:03}"), Blade(f"s{number}", ["red"]))
    return engine


def content(engine: Engine) -> list[tuple[bytes, bytes]]:
    """What the store holds but for what keyplan itself keeps."""
    with engine.snapshot() as snapshot:
        return [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS) if not entry.key.startswith(b"\x00k")]


def copied(_home: Path) -> tuple[Engine, Act]:
    source, target = blades(), MemoryEngine()
    return target, lambda stop: copy_store(source, target, source_name="a", stop=stop)


def restored(home: Path) -> tuple[Engine, Act]:
    file = home / "a.kpb"
    if not file.exists():
        with new_file(file) as output:
            back_up_store(blades(), output)
    target = MemoryEngine()
    return target, lambda stop: restore_store(target, file, layout=Site.bound(), stop=stop)


def lacking(home: Path) -> Path:
    """A backup of a store that lacks entries of an index."""
    file = home / "lacking.kpb"
    if not file.exists():
        engine = blades()
        with engine.snapshot() as snapshot:
            entries = list(snapshot.keys(KeyRange.of_prefix(b"/site/by-tag/")))
        engine.commit(Commit((), tuple(Delete(key) for key in entries[:9])))
        with new_file(file) as output:
            back_up_store(engine, output)
    return file


def mended(home: Path) -> tuple[Engine, Act]:
    target = MemoryEngine()
    return target, lambda stop: restore_store(target, lacking(home), layout=Site.bound(), stop=stop)


def mended_afterwards(home: Path) -> tuple[Engine, Act]:
    target = MemoryEngine()
    restore_store(target, lacking(home))
    return target, lambda stop: restore_store(target, lacking(home), layout=Site.bound(), stop=stop)


def spaces_restored(home: Path) -> tuple[Engine, Act]:
    file = home / "full.kpb"
    if not file.exists():
        source = blades()
        for name in ("orders", "users"):
            space = KeySpaces(source).create(name, "shop")
            source.commit(Commit((), tuple(Put(b"%b%d" % (space.raw_prefix, number), b"x") for number in range(COUNT))))
        with new_file(file) as output:
            back_up_key_spaces(source, output)
    target = MemoryEngine()
    return target, lambda stop: restore_key_spaces(target, file, stop=stop)


def boxes() -> tuple[Store, Any]:
    store = Store(MemoryEngine())
    with store.transaction() as transaction:
        for number in range(COUNT):
            evolving.Old(transaction).boxes.insert(evolving.Shelf("a", number), evolving.Box(f"b{number}", ["red"]))
    return store, evolving.plan(store, evolving.Old, evolving.Moved)


def migrated(_home: Path) -> tuple[Engine, Act]:
    store, plan = boxes()
    return store.engine, lambda stop: migrate(store, plan, stop=stop)


def finished(_home: Path) -> tuple[Engine, Act]:
    store, plan = boxes()
    return store.engine, lambda stop: migrate(store, plan, is_switched=True, stop=stop)


def cleaned_up(_home: Path) -> tuple[Engine, Act]:
    store, plan = boxes()
    migrate(store, plan, is_switched=True)
    return store.engine, lambda stop: clean_up_migration(store, plan, stop=stop)


def built(_home: Path) -> tuple[Engine, Act]:
    engine = blades()
    drop_index(Store(engine), Site.bound(), "by_tag")
    return engine, lambda stop: build_index(Store(engine), Site.bound(), "by_tag", stop=stop)


def dropped(_home: Path) -> tuple[Engine, Act]:
    engine = blades()
    return engine, lambda stop: drop_index(Store(engine), Site.bound(), "by_tag", stop=stop)


def swept(_home: Path) -> tuple[Engine, Act]:
    engine, clock = MemoryEngine(), FakeClock()
    registry = KeySpaces(engine, clock=clock)
    space = registry.create("orders", "shop")
    engine.commit(Commit((), tuple(Put(b"%b%d" % (space.raw_prefix, number), b"x") for number in range(COUNT))))
    registry.delete("orders")
    clock.advance(10_000)
    return engine, lambda stop: Sweeper(registry, batch_keys=64).sweep("orders", stop=stop)


ACTS: Final = [
    copied,
    restored,
    mended,
    mended_afterwards,
    spaces_restored,
    migrated,
    finished,
    cleaned_up,
    built,
    dropped,
    swept,
]


def is_stopped(act: Act, stop: Stop) -> bool:
    try:
        act(stop)
    except StoppedError as error:
        return str(error.facts["problem"]).endswith(" is not finished")
    return False


@pytest.mark.parametrize("prepare", ACTS)
def test_an_act_that_is_told_to_stop_leaves_its_job_and_goes_on(
    tmp_path: Path, prepare: Callable[[Path], tuple[Engine, Act]]
) -> None:
    engine, act = prepare(tmp_path)
    looks = Looks(float("inf"))
    act(looks)
    whole, jobs = content(engine), [job.stage for job in open_jobs(engine)]
    stopped = 0
    for number in {0, 1, *range(2, looks.count, max(1, looks.count // 5)), looks.count - 1}:
        engine, act = prepare(tmp_path)
        before = content(engine)
        if is_stopped(act, Looks(number)):
            stopped += 1
            assert open_jobs(engine) or content(engine) == before, number
            act(None)
        assert (content(engine), [job.stage for job in open_jobs(engine)]) == (whole, jobs), number
    assert stopped >= 2


def test_a_copy_that_follows_is_stopped_and_goes_on() -> None:
    source, target = blades(), MemoryEngine()
    stop = Event()

    def told(now: Progress) -> None:
        if now.stage == "following":
            stop.set()

    with pytest.raises(StoppedError):
        copy_store(source, target, source_name="a", follow_until=Event(), stop=stop, progress=told)
    assert [job.stage for job in open_jobs(target)] == ["begun"]
    assert copy_store(source, target, source_name="a").is_resumed
    assert content(target) == content(source)


def test_a_round_of_the_sweeper_that_is_told_to_stop_is_no_error() -> None:
    engine, _ = swept(Path())
    clock = FakeClock()
    clock.advance(20_000)
    sweeper = Sweeper(KeySpaces(engine, clock=clock), batch_keys=64)
    assert sweeper.sweep_all(stop=Looks(2)) == []
    [done] = sweeper.sweep_all(stop=Looks(100))
    assert (done.stage, done.deleted_keys) == (Stage.COMPLETED, COUNT)


class Slow(WrappedEngine):
    """Tells to stop in the middle of a commit."""

    def __init__(self, inner: Engine, stop: Event) -> None:
        super().__init__(inner)
        self.stop = stop
        self.commits = 0

    def commit(self, commit: Commit) -> int:
        self.commits += 1
        if self.commits == 2:
            self.stop.set()
        return self.inner.commit(commit)


def test_the_commit_under_way_is_made_and_no_other_is_begun() -> None:
    stop = Event()
    target = Slow(MemoryEngine(), stop)
    with pytest.raises(StoppedError):
        copy_store(blades(), target, source_name="a", stop=stop)
    assert target.commits == 2
    assert content(target)


def test_restores_and_checks_tell_how_far_they_are_as_the_others_do(tmp_path: Path) -> None:
    told: list[Progress] = []
    store = Store(blades())
    assert list(check(store, Site.bound(), progress=told.append)) == []
    assert {now.stage for now in told} == {"examining"}
    assert told[-1].done == 3 * COUNT
    told.clear()
    _, act = restored(tmp_path)
    act(None)
    restore_store(MemoryEngine(), tmp_path / "a.kpb", layout=Site.bound(), progress=told.append)
    assert list(dict.fromkeys(now.stage for now in told)) == ["checking", "writing", "verifying", "examining"]
