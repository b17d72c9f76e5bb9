"""Index states and builds: refused while unready, built beside writers, resumed, shared, never readable when incomplete."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Commit, Engine, MemoryEngine, Put, Snapshot, WrappedEngine
from keyplan.errors import (
    CommitConflictError,
    IndexNotReadyError,
    InvalidInputError,
    TargetTakenError,
    UnknownNameError,
)
from keyplan.jobs import Pace, Progress
from keyplan.layout import lint
from keyplan.maintenance import (
    BuildReport,
    FindingKind,
    build_index,
    check,
    drop_index,
    list_indexes,
    prepare_index,
)
from keyplan.store import Backoff, IndexStates, Store
from keyplan.testing.faults import FakeClock
from tests.maintenance.layouts import Blade, BladeKey, Site, dump, write

STATE_KEY = b"\x00ki/site/\x00by_serial"


def fill(store: Store, count: int) -> Site:
    """Records with whole indexes, then those of by_serial taken away, as if it were new."""
    site = Site(store)
    with site.transaction() as transaction:
        for number in range(count):
            transaction.blades.insert(BladeKey("r", f"{number:05}"), Blade(f"s{number:05}", ["t"]))
    prepare_index(store, site, "by_serial")
    write(store, *[key for key in dump(store) if key.startswith(b"/site/by-serial/")])
    return site


def serials(store: Store) -> int:
    return sum(key.startswith(b"/site/by-serial/") for key in dump(store))


def test_a_store_whose_indexes_are_readable_holds_no_states(store: Store, site: Site) -> None:
    assert [(status.name, status.stage) for status in list_indexes(store, site)] == [
        ("by_serial", "readable"),
        ("by_tag", "readable"),
        ("member_serial", "readable"),
    ]
    assert all(key.startswith(b"/site/") for key in dump(store))


def test_the_state_stands_in_the_system_area_by_root_and_name(store: Store, site: Site) -> None:
    assert prepare_index(store, site, "by_serial")
    assert STATE_KEY in dump(store)
    assert b'"write-only"' in dump(store)[STATE_KEY][0]
    assert not prepare_index(store, site, "by_serial")


def test_keyplans_own_layout_has_nothing_that_lint_finds() -> None:
    assert lint(IndexStates.spec).failures() == ()


@pytest.mark.parametrize(
    "read",
    [
        lambda site: site.by_serial.one("s1"),
        lambda site: site.by_serial.require("s1"),
        lambda site: site.by_serial.key_of("s1"),
        lambda site: list(site.by_serial.list()),
        lambda site: list(site.by_serial.keys()),
        lambda site: site.by_serial.count(),
    ],
    ids=["one", "require", "key_of", "list", "keys", "count"],
)
def test_a_reader_of_an_index_that_is_not_built_is_refused(
    store: Store, site: Site, read: Callable[[Site], object]
) -> None:
    prepare_index(store, site, "by_serial")
    layout = Site(store)
    with pytest.raises(IndexNotReadyError) as refused:
        read(layout)
    assert (refused.value.index, refused.value.state) == ("by_serial", "write-only")
    with layout.snapshot() as pinned, pytest.raises(IndexNotReadyError):
        read(pinned)
    with pytest.raises(IndexNotReadyError), layout.transaction() as transaction:
        read(transaction)
    assert list(layout.by_tag.list("red")) != []


def test_writers_keep_an_index_that_is_not_built(store: Store, site: Site) -> None:
    prepare_index(store, site, "by_serial")
    site.blades.insert(BladeKey("r9", "9"), Blade("s9"))
    site.blades.delete(BladeKey("r1", "1"))
    assert b"/site/by-serial/s9" in dump(store)
    assert b"/site/by-serial/s1" not in dump(store)


def test_a_snapshot_from_before_the_end_of_a_build_stays_refused(store: Store) -> None:
    site = fill(store, 3)
    with site.snapshot() as pinned:
        build_index(store, site, "by_serial")
        with pytest.raises(IndexNotReadyError):
            pinned.by_serial.count()
    assert Site(store).by_serial.count() == 3


def test_a_build_writes_every_entry_and_leaves_no_state(store: Store) -> None:
    site = fill(store, 300)
    told: list[Progress] = []
    report = build_index(store, site, "by_serial", progress=told.append)
    assert (report.is_readable, report.entries_written, report.contested) == (True, 300, ())
    assert (told[0].stage, told[0].done) == ("building", 128)
    assert [progress.stage for progress in told if progress.done == 300] == ["building", "verifying", "sweeping"]
    assert STATE_KEY not in dump(store)
    assert list(check(store, site)) == []
    assert Site(store).by_serial.key_of("s00007") == BladeKey("r", "00007")


def test_a_check_does_not_miss_entries_of_an_index_that_is_being_built(store: Store) -> None:
    site = fill(store, 3)
    assert list(check(store, site)) == []
    write(store, puts={b"/site/by-serial/odd": b"rack/x/blades/1"})
    assert [finding.kind for finding in check(store, site)] == [FindingKind.DANGLING_ENTRY]


class Breaking(WrappedEngine):
    """Loses the machine at commit number `breaks_at`."""

    breaks_at = 0

    def commit(self, commit: Commit) -> int:
        self.breaks_at -= 1
        if self.breaks_at == 0:
            raise KeyboardInterrupt
        return self.inner.commit(commit)


@pytest.mark.parametrize("breaks_at", range(1, 15))
def test_a_build_that_is_interrupted_anywhere_goes_on(breaks_at: int) -> None:
    engine = Breaking(MemoryEngine())
    with Store(engine) as store:
        site = fill(store, 300)
        engine.breaks_at = breaks_at
        is_interrupted = False
        try:
            build_index(store, site, "by_serial")
        except KeyboardInterrupt:
            is_interrupted = True
            with pytest.raises(IndexNotReadyError):
                Site(store).by_serial.count()
            assert build_index(store, site, "by_serial").is_readable
        assert is_interrupted
        assert serials(store) == 300
        assert list(check(store, site)) == []


def test_a_resumed_build_does_not_begin_anew() -> None:
    engine = Breaking(MemoryEngine())
    with Store(engine) as store:
        site = fill(store, 600)
        engine.breaks_at = 6  # state, take, write, take, write, take
        with pytest.raises(KeyboardInterrupt):
            build_index(store, site, "by_serial")
        (status, *_) = list_indexes(store, site)
        assert (status.stage, status.records) == ("building", 256)
        assert build_index(store, site, "by_serial").entries_written == 600 - 256


def test_two_builders_share_a_build(store: Store) -> None:
    site = fill(store, 1500)
    reports = []
    start = threading.Barrier(2)

    def build() -> None:
        start.wait()
        reports.append(build_index(store, site, "by_serial", backoff=Backoff(sleep=lambda _: None)))

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.is_readable for report in reports] == [True, True]
    assert sum(report.entries_written for report in reports) == 1500
    assert list(check(store, site)) == []


def test_a_build_beside_writers_ends_with_a_whole_index(store: Store) -> None:
    site = fill(store, 400)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def write_on() -> None:
        turn = 0
        try:
            while not is_over.is_set() and turn < 2000:
                number = turn * 7 % 400
                key = BladeKey("r", f"{number:05}")
                if turn % 4 == 0:
                    site.blades.delete(key, missing_ok=True)
                else:
                    site.blades.put(key, Blade(f"s{number:05}-{turn % 3}", []))
                turn += 1
        except BaseException as error:
            failures.append(error)
            raise

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        report = build_index(store, site, "by_serial")
    finally:
        is_over.set()
        writer.join()
    assert failures == []
    assert report.is_readable
    assert list(check(store, site)) == []


class WritingBetween(WrappedEngine):
    """Another writer changes a record just before each commit that writes its entry."""

    act: Callable[[Engine], object] | None = None

    def commit(self, commit: Commit) -> int:
        is_entry = any(isinstance(put, Put) and put.key == b"/site/by-serial/s00001" for put in commit.mutations)
        if self.act is not None and is_entry:
            act, self.act = self.act, None
            act(self.inner)
        return self.inner.commit(commit)


def test_a_record_that_changes_under_a_builder_gets_the_entry_of_its_new_state() -> None:
    engine = WritingBetween(MemoryEngine())
    with Store(engine) as store:
        site = fill(store, 3)
        engine.act = lambda inner: Site(Store(inner)).blades.put(BladeKey("r", "00001"), Blade("changed"))
        assert build_index(store, site, "by_serial").is_readable
        assert [key for key in dump(store) if b"by-serial" in key] == [
            b"/site/by-serial/changed",
            b"/site/by-serial/s00000",
            b"/site/by-serial/s00002",
        ]


def test_two_claims_of_one_entry_keep_the_index_unreadable_until_they_are_settled(store: Store) -> None:
    site = fill(store, 3)
    write(store, puts={b"/site/rack/z/blades/1": b'{"serial":"s00001"}'})
    report = build_index(store, site, "by_serial")
    assert not report.is_readable
    assert [(finding.raw_key, finding.record_key) for finding in report.contested] == [
        (b"/site/by-serial/s00001", b"/site/rack/z/blades/1")
    ]
    write(store, b"/site/rack/z/blades/1")
    assert build_index(store, site, "by_serial").is_readable
    assert list(check(store, site)) == []


def test_what_two_records_claim_is_named_by_a_build_that_goes_on_behind_it(store: Store) -> None:
    site = fill(store, 300)
    write(store, puts={b"/site/rack/a/blades/1": b'{"serial":"s00001"}'})

    class KilledError(Exception):
        pass

    def killed(now: Progress) -> None:
        if now.stage == "verifying":
            raise KilledError

    with pytest.raises(KilledError):
        build_index(store, site, "by_serial", progress=killed)
    report = build_index(store, site, "by_serial")
    assert not report.is_readable
    assert [finding.raw_key for finding in report.contested] == [b"/site/by-serial/s00001"]


def test_entries_that_nobody_calls_for_are_swept_before_the_index_is_readable(store: Store) -> None:
    site = fill(store, 3)
    write(store, puts={b"/site/by-serial/old": b"rack/r/blades/00001", b"/site/by-serial/gone": b"rack/q/blades/1"})
    assert build_index(store, site, "by_serial").is_readable
    assert list(check(store, site)) == []


def test_a_build_under_another_layout_begins_anew(store: Store) -> None:
    fill(store, 3)

    class Renamed(keyplan.Layout, root="/site/"):
        blades = keyplan.Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)
        by_serial = keyplan.Unique("serials/{serial}", of=blades, key=str)

    assert build_index(store, Renamed(store), "by_serial").entries_written == 3
    assert Renamed(store).by_serial.count() == 3


def test_a_definition_and_not_the_rest_of_the_layout_tells_builds_apart(store: Store) -> None:
    site = fill(store, 300)

    class Wider(Site, root="/site/"):
        more = keyplan.Table("more/{name}", key=str, value=str)

    told: list[Progress] = []

    def helped(now: Progress) -> None:
        told.append(now)
        if len(told) == 1:
            build_index(store, Wider.bound(), "by_serial")

    assert build_index(store, site, "by_serial", progress=helped).is_readable
    assert list(check(store, site)) == []


def test_of_two_builders_with_two_definitions_the_later_goes_on_and_the_other_ends(store: Store) -> None:
    fill(store, 300)

    class Renamed(keyplan.Layout, root="/site/"):
        blades = keyplan.Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)
        by_serial = keyplan.Unique("serials/{serial}", of=blades, key=str)

    class HaltedError(Exception):
        pass

    def halt(_now: Progress) -> None:
        raise HaltedError

    def meanwhile(_now: Progress) -> None:
        with suppress(HaltedError):
            build_index(store, Renamed.bound(), "by_serial", progress=halt)

    with pytest.raises(TargetTakenError):
        build_index(store, Site.bound(), "by_serial", progress=meanwhile)
    assert build_index(store, Renamed.bound(), "by_serial").is_readable
    assert Renamed(store).by_serial.count() == 300


def test_a_build_that_another_definition_has_ended_meanwhile_is_not_reported_readable(store: Store) -> None:
    fill(store, 300)

    class Renamed(keyplan.Layout, root="/site/"):
        blades = keyplan.Table("rack/{rack}/blades/{slot}", key=BladeKey, value=Blade)
        by_serial = keyplan.Unique("serials/{serial}", of=blades, key=str)

    reports: list[BuildReport] = []

    def meanwhile(_now: Progress) -> None:
        if not reports:
            reports.append(build_index(store, Renamed.bound(), "by_serial"))

    with pytest.raises(TargetTakenError, match="by another definition"):
        build_index(store, Site.bound(), "by_serial", progress=meanwhile)
    assert reports[0].is_readable


def test_a_build_that_the_same_definition_has_ended_meanwhile_is_readable(store: Store) -> None:
    fill(store, 300)
    reports: list[BuildReport] = []

    def meanwhile(_now: Progress) -> None:
        if not reports:
            reports.append(build_index(store, Site.bound(), "by_serial"))

    assert build_index(store, Site.bound(), "by_serial", progress=meanwhile).is_readable
    assert reports[0].is_readable


def test_an_index_that_is_readable_is_not_built(store: Store, site: Site) -> None:
    with pytest.raises(InvalidInputError):
        build_index(store, site, "by_serial")
    with pytest.raises(UnknownNameError):
        build_index(store, site, "nothing")


def test_dropping_removes_the_entries_and_nothing_else(store: Store, site: Site) -> None:
    before = dump(store)
    assert drop_index(store, site, "by_serial") == 2
    after = dump(store)
    assert set(before) - set(after) == {b"/site/by-serial/s1", b"/site/by-serial/s2"}
    assert set(after) - set(before) == {STATE_KEY}
    assert build_index(store, site, "by_serial").is_readable
    assert dump(store) == before


def test_a_build_keeps_to_its_pace() -> None:
    clock = FakeClock()
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    with keyplan.open("memory:") as store:
        site = fill(store, 100)
        build_index(store, site, "by_serial", pace=Pace(50, clock=clock, sleep=sleep))
    assert waited == [2.0, 2.0, 2.0]  # a hundred records in each of three stages


def test_a_leased_records_entry_is_built_on_its_lease(store: Store, site: Site) -> None:
    lease = store.engine.lease(600.0)
    site.members.put("m", Blade("x"), lease=lease.id)
    drop_index(store, site, "member_serial")
    assert build_index(store, site, "member_serial").is_readable
    assert dump(store)[b"/site/member-serial/x"] == (b"m", lease.id)


def test_an_engine_with_small_commits_gets_small_commits() -> None:
    sizes: list[int] = []

    class Noting(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            sizes.append(max(len(commit.guards), len(commit.mutations)))
            return self.inner.commit(commit)

    profile = replace(MemoryEngine().profile, commit_operations_max=10)
    with Store(Noting(MemoryEngine(profile=profile))) as store:
        site = Site(store)
        for number in range(40):
            site.blades.insert(BladeKey("r", f"{number:03}"), Blade(f"s{number:03}"))
        drop_index(store, site, "by_serial")
        sizes.clear()
        assert build_index(store, site, "by_serial").is_readable
    assert max(sizes) <= 10


class AtStep(WrappedEngine):
    """Somebody else does `act` whole before the step of this number: a snapshot or a commit."""

    def __init__(self, inner: Engine, step: int, act: Callable[[Engine], object]) -> None:
        super().__init__(inner)
        self._left = step
        self._act = act

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act(self.inner)

    def snapshot(self) -> Snapshot:
        self._step()
        return self.inner.snapshot()

    def commit(self, commit: Commit) -> int:
        self._step()
        return self.inner.commit(commit)


def built(engine: Engine) -> None:
    with suppress(InvalidInputError):
        build_index(Store(engine), Site.bound(), "by_serial", backoff=Backoff(sleep=lambda _: None))


def dropped(engine: Engine) -> None:
    with suppress(CommitConflictError):
        drop_index(Store(engine), Site.bound(), "by_serial")


@pytest.mark.parametrize(("first", "second"), [(dropped, built), (built, dropped), (dropped, dropped)])
@pytest.mark.parametrize("begins", ["readable", "write-only"])
def test_a_drop_beside_a_build_never_leaves_a_readable_index_without_its_entries(
    url: str, first: Callable[[Engine], object], second: Callable[[Engine], object], begins: str
) -> None:
    for step in range(1, 30):
        with keyplan.open(url if url == "memory:" else f"{url}-{step}") as store:
            site = Site(store)
            for number in range(3):
                site.blades.insert(BladeKey("r", str(number)), Blade(f"s{number}", ["t"]))
            if begins == "write-only":
                prepare_index(store, site, "by_serial")
            first(AtStep(store.engine, step, second))
            (status, *_) = list_indexes(store, site)
            assert not status.is_readable or serials(store) == 3, f"at step {step}"
            assert list(check(store, site)) == [] or not status.is_readable


def test_a_drop_on_an_engine_without_revisions_knows_its_own_state(tmp_path: Path) -> None:
    """There equal bytes are the same revision: a drop's state is of that drop alone."""
    with keyplan.open(f"lmdb:{tmp_path / 'plain'}", history="off") as store:
        site = Site(store)
        site.blades.insert(BladeKey("r", "1"), Blade("s1", ["t"]))

        def drop_and_build(engine: Engine) -> None:
            dropped(engine)
            built(engine)
            prepare_index(Store(engine), site, "by_serial")

        with pytest.raises(CommitConflictError):
            drop_index(Store(AtStep(store.engine, 5, drop_and_build)), site, "by_serial")
        assert serials(store) == 1
