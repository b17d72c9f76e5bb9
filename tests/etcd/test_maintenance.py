"""Maintenance on a real etcd: a history that is compacted under a copy, and an etcd that went back under a plan."""

from collections.abc import Iterator

import pytest

from keyplan.engine import Commit, Engine, KeyRange, MemoryEngine, Put, open_engine
from keyplan.errors import CommitConflictError, MigrationRefusedError, TargetNotEmptyError
from keyplan.jobs import Progress
from keyplan.maintenance import (
    build_index,
    carry_out,
    carry_out_change,
    check,
    clean_up_migration,
    copy_store,
    drop_index,
    migrate,
    plan_delete,
    plan_repairs,
)
from keyplan.store import Store
from tests.etcd.test_lineage import Restorable
from tests.maintenance.evolving import Moved, Old, fill, plan
from tests.maintenance.layouts import Blade, BladeKey, Site, write
from tests.servers.etcd import EtcdServer

pytestmark = pytest.mark.slow

KEYS = 3000
"""Why: a scan of them takes more than one page, and a page that follows is asked of the revision of the first."""


@pytest.fixture
def restorable() -> Iterator[Restorable]:
    with EtcdServer(name="maintained") as server:
        yield Restorable(server)


@pytest.fixture
def engine(restorable: Restorable) -> Iterator[Engine]:
    with open_engine(restorable.server.url) as engine:
        yield engine


def test_a_copy_outlives_a_compaction_of_its_source(restorable: Restorable, engine: Engine) -> None:
    for start in range(0, KEYS, 100):
        engine.commit(Commit((), tuple(Put(b"/s/%05d" % number, b"v") for number in range(start, start + 100))))
    compacted: list[int] = []

    def compact(now: Progress) -> None:
        if now.stage == "copying" and not compacted:
            compacted.append(engine.commit(Commit((), (Put(b"/s/last", b"v"), Put(b"/s/00000", b"w")))))
            restorable.server.etcdctl("compact", str(compacted[0]), "--physical")

    with MemoryEngine() as target:
        report = copy_store(engine, target, source_name="a", prefix=b"/s/", progress=compact)
        assert compacted
        assert report.revision >= compacted[0]
        with engine.snapshot() as source, target.snapshot() as copy:
            key_range = KeyRange.of_prefix(b"/s/")
            assert dict(source.pairs(key_range)) == dict(copy.pairs(key_range))
        assert report.tally.count == KEYS + 1


def test_a_copy_into_etcd_refuses_what_a_stranger_writes_meanwhile(engine: Engine) -> None:
    with MemoryEngine() as source:
        source.commit(Commit((), tuple(Put(b"/s/%05d" % number, b"v") for number in range(KEYS))))

        def intrude(now: Progress) -> None:
            if now.stage == "copying" and now.done == 256:
                engine.commit(Commit((), (Put(b"/s/02999", b"theirs"),)))

        with pytest.raises(TargetNotEmptyError, match="/s/02999"):
            copy_store(source, engine, source_name="a", prefix=b"/s/", progress=intrude)
        assert engine.value(b"/s/02999") == b"theirs"


def test_a_build_a_repair_and_a_migration_are_whole(engine: Engine) -> None:
    store = Store(engine)
    site = Site(store)
    for start in range(0, 300, 25):
        with site.transaction() as transaction:
            for number in range(start, start + 25):
                transaction.blades.insert(BladeKey("r", f"{number:04}"), Blade(f"s{number:04}", ["t"]))
    assert drop_index(store, Site.bound(), "by_serial") == 300
    assert build_index(store, Site.bound(), "by_serial").is_readable
    write(store, b"/site/by-serial/s0001", puts={b"/site/by-tag/x/r/0001": b""})
    outcomes = list(carry_out(store, Site.bound(), plan_repairs(store, Site.bound(), check(store, Site.bound()))))
    assert [outcome.result.value for outcome in outcomes] == ["repaired", "repaired"]
    assert not list(check(store, Site.bound()))
    fill(store, 200)
    assert migrate(store, plan(store, Old, Moved), is_switched=True).is_settled
    assert clean_up_migration(store, plan(store, Old, Moved)).is_cleaned
    assert Moved(store).boxes.count() == 200


def test_a_plan_by_hand_is_refused_after_etcd_went_back_though_the_revision_came_again(
    restorable: Restorable, engine: Engine
) -> None:
    engine.commit(Commit((), (Put(b"/x", b""),)))
    restorable.keep()
    bad = engine.commit(Commit((), (Put(b"/a", b"bad"),)))
    change = plan_delete(engine, b"/a")
    # Why another: a store that is back at the highest revision that was seen cannot be told from one that stayed.
    engine.commit(Commit((), (Put(b"/y", b""),)))
    restorable.put_back()
    with open_engine(restorable.server.url) as other:
        good = other.commit(Commit((), (Put(b"/a", b"good"),)))
    assert good == bad
    with pytest.raises(CommitConflictError):
        carry_out_change(engine, change)
    assert engine.value(b"/a") == b"good"


def test_a_migration_is_refused_after_etcd_went_back_and_is_done_by_another_run(
    restorable: Restorable, engine: Engine
) -> None:
    store = Store(engine)
    fill(store, 200)
    made = plan(store, Old, Moved)
    is_kept: list[str] = []

    def back(now: Progress) -> None:
        if not is_kept and now.done:
            is_kept.append(now.stage)
            restorable.keep()
            write(store, puts={b"/s/later": b""})
            restorable.put_back()

    with pytest.raises(MigrationRefusedError):
        migrate(store, made, is_switched=True, progress=back)
    assert is_kept
    assert migrate(store, plan(store, Old, Moved), is_switched=True).is_settled
    assert Moved(store).boxes.count() == 200


def test_a_build_goes_on_after_etcd_went_back(restorable: Restorable, engine: Engine) -> None:
    store = Store(engine)
    site = Site(store)
    for number in range(150):
        site.blades.insert(BladeKey("r", f"{number:04}"), Blade(f"s{number:04}", ["t"]))
    drop_index(store, Site.bound(), "by_serial")
    restorable.keep()
    went_back: list[str] = []

    def back(now: Progress) -> None:
        if not went_back:
            went_back.append(now.stage)
            restorable.put_back()

    assert build_index(store, Site.bound(), "by_serial", progress=back).is_readable
    assert not list(check(store, Site.bound()))
