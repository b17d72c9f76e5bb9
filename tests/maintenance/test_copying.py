"""Copies from store to store: verified, resumed after a stop at any step, refused where they do not fit, and followed."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keyplan.engine import (
    MEMORY_PROFILE,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    KeyRange,
    MemoryEngine,
    Put,
    WrappedEngine,
    open_engine,
)
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineLimitError,
    EngineUnavailableError,
    KeyplanError,
    TargetNotEmptyError,
    TargetTakenError,
    UnsupportedByEngineError,
)
from keyplan.jobs import Progress
from keyplan.maintenance import copy_store
from keyplan.testing.faults import FailingEngine
from tests.maintenance.backups import content_of, filled, put_all

CONTENT = {b"\x00kisystem": b"state", **{b"/site/%05d" % number: b"v" * (number % 70) for number in range(1200)}}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Engine]:
    with filled(f"lmdb:{tmp_path}/source.kv", CONTENT) as engine:
        yield engine


@pytest.fixture(params=["memory", "lmdb", "lmdb-raw"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    urls = {"memory": "memory:", "lmdb": f"lmdb:{tmp_path}/t.kv", "lmdb-raw": f"lmdb:{tmp_path}/r.kv?history=off"}
    with open_engine(urls[request.param]) as engine:
        yield engine


def test_a_copy_holds_what_the_source_holds_and_leaves_no_claim(source: Engine, target: Engine) -> None:
    report = copy_store(source, target, source_name="a")
    assert content_of(target) == CONTENT
    assert (report.tally.count, report.written.puts, report.is_resumed) == (1201, 1201, False)


def test_a_prefix_is_copied_alone_beside_what_is_there(source: Engine, target: Engine) -> None:
    put_all(target, {b"/other": b"own"})
    copy_store(source, target, source_name="a", prefix=b"/site/00")
    expected = {key: value for key, value in CONTENT.items() if key.startswith(b"/site/00")}
    assert content_of(target) == {**expected, b"/other": b"own"}


def test_a_target_with_keys_is_refused_unless_it_may_be_overwritten(source: Engine, target: Engine) -> None:
    put_all(target, {b"/site/old": b"own", b"/site/00001": b"v"})
    with pytest.raises(TargetNotEmptyError):
        copy_store(source, target, source_name="a")
    assert content_of(target) == {b"/site/old": b"own", b"/site/00001": b"v"}
    report = copy_store(source, target, source_name="a", is_overwriting=True)
    assert content_of(target) == CONTENT
    assert (report.written.deletes, report.written.unchanged) == (1, 1)


def test_what_the_target_cannot_hold_is_told_with_numbers_before_anything_is_written(tmp_path: Path) -> None:
    with (
        filled("memory:", {b"k" * 700: b"", b"a": b"1", b"l" * 512: b""}) as source,
        open_engine(f"lmdb:{tmp_path}/t.kv") as target,
    ):
        with pytest.raises(EngineLimitError) as raised:
            copy_store(source, target, source_name="a")
        facts = raised.value.facts
        assert (facts["limit"], facts["allowed"], facts["actual"]) == ("key_bytes_max", 511, 700)
        assert facts["pairs_refused"] == 2
        assert content_of(target) == {}


def test_leased_entries_are_left_out_and_counted_unless_they_are_to_be_kept(source: Engine, target: Engine) -> None:
    lease = source.lease(60.0)
    source.commit(Commit((), (Put(b"/site/leased", b"here", lease.id),)))
    assert copy_store(source, target, source_name="a").leased == 1
    assert content_of(target) == CONTENT
    report = copy_store(source, target, source_name="a", is_overwriting=True, keeps_leased=True)
    assert (report.leased, report.written.puts) == (0, 1)
    assert content_of(target)[b"/site/leased"] == b"here"


def test_a_copy_stopped_at_any_step_is_finished_by_the_next(source: Engine) -> None:
    with open_engine("memory:") as inner:
        probe = FailingEngine(inner, closes_inner=False)
        copy_store(source, probe, source_name="a")
        steps = len(probe.steps)
    assert steps > 10
    for step in range(1, steps + 1):
        with open_engine("memory:") as inner:
            try:
                copy_store(source, FailingEngine(inner, at_step=step, closes_inner=False), source_name="a")
            except (EngineUnavailableError, CommitOutcomeUnknownError):
                # What was copied is not copied again; and the source has changed meanwhile.
                source.commit(Commit((), (Put(b"/site/00003", b"step %d" % step), Delete(b"/site/00004"))))
                copy_store(source, inner, source_name="a")
            assert content_of(inner) == content_of(source), step


def test_another_source_does_not_go_on_with_a_stopped_copy(source: Engine) -> None:
    with open_engine("memory:") as inner:
        probe = FailingEngine(inner, closes_inner=False)
        copy_store(source, probe, source_name="a")
        third = [step for step, name in enumerate(probe.steps, start=1) if name == "before commit"][2]
    with open_engine("memory:") as inner:
        with pytest.raises(EngineUnavailableError):
            copy_store(source, FailingEngine(inner, at_step=third, closes_inner=False), source_name="a")
        assert content_of(inner, KeyRange.of_prefix(b"/site/"))
        with pytest.raises(TargetNotEmptyError):
            copy_store(source, inner, source_name="b")
        report = copy_store(source, inner, source_name="a")
        assert report.is_resumed
        assert report.written.unchanged > 0


class Hooked(WrappedEngine):
    """An engine that calls a function before its n-th commit."""

    def __init__(self, inner: Engine, at: int, hook: object) -> None:
        super().__init__(inner, closes_inner=False)
        self.at, self.hook, self.commits = at, hook, 0

    def commit(self, commit: Commit) -> int:
        self.commits += 1
        if self.commits == self.at:
            assert callable(self.hook)
            self.hook()
        return self.inner.commit(commit)


def test_of_two_copies_into_one_target_the_later_has_it_and_the_other_ends(source: Engine) -> None:
    with open_engine("memory:") as inner:
        hooked = Hooked(inner, 2, lambda: copy_store(source, inner, source_name="a", is_overwriting=True))
        with pytest.raises(TargetTakenError):
            copy_store(source, hooked, source_name="a")
        assert content_of(inner) == CONTENT


# ---- following --------------------------------------------------------------------------------------------------------------


class Following:
    """A copy that follows, in a thread of its own, with conditions to wait for."""

    def __init__(self, source: Engine, target: Engine) -> None:
        self.stop = threading.Event()
        self.reached = threading.Condition()
        self.stage, self.revision = "", 0
        self.outcome: object = None
        self._thread = threading.Thread(target=self._run, args=(source, target))

    def _run(self, source: Engine, target: Engine) -> None:
        try:
            self.outcome = copy_store(source, target, source_name="a", follow_until=self.stop, progress=self._told)
        except KeyplanError as error:
            self.outcome = error  # for the thread that asserts

    def _told(self, progress: Progress) -> None:
        with self.reached:
            self.stage, self.revision = progress.stage, max(self.revision, progress.revision)
            self.reached.notify_all()

    def wait_for(self, revision: int) -> None:
        with self.reached:
            assert self.reached.wait_for(lambda: self.stage == "following" and self.revision >= revision, 20.0)

    def __enter__(self) -> "Following":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        self._thread.join(30.0)
        assert not self._thread.is_alive()


def test_changes_are_followed_in_order_until_told_to_end(source: Engine, target: Engine) -> None:
    with Following(source, target) as following:
        following.wait_for(0)
        for number in range(50):
            source.commit(Commit((), (Put(b"/site/counter", b"%d" % number), Put(b"/site/n%d" % number, b""))))
        revision = source.commit(Commit((), (DeleteRange(KeyRange.of_prefix(b"/site/000")),)))
        following.wait_for(revision)
        assert content_of(target, KeyRange.of_prefix(b"/site/")) == content_of(source, KeyRange.of_prefix(b"/site/"))
        source.commit(Commit((), (Put(b"/site/last", b""),)))
    report = following.outcome
    assert getattr(report, "followed", 0) >= 51
    assert content_of(target) == content_of(source)


def test_each_revision_of_the_source_is_one_of_the_target(source: Engine) -> None:
    with open_engine("memory:") as target, Following(source, target) as following:
        following.wait_for(0)
        watch = target.watch(KeyRange.of_prefix(b"/site/"), after=target.snapshot().revision)
        revision = 0
        for number in range(5):
            revision = source.commit(Commit((), (Put(b"/site/a", b"%d" % number), Put(b"/site/b", b"%d" % number))))
        following.wait_for(revision)
        events = list(watch.poll(1.0))
        watch.close()
    seen = [(event.key, event.entry.value) for event in events if event.entry is not None]
    assert seen == [(key, b"%d" % number) for number in range(5) for key in (b"/site/a", b"/site/b")]
    assert len({event.revision for event in events}) == 5


def test_a_following_that_fell_behind_compacted_history_begins_from_a_snapshot(source: Engine) -> None:
    class Compacting(WrappedEngine):
        """Compacts the source before the first watch is opened."""

        is_done = False

        def watch(self, key_range: KeyRange, *, after: int) -> object:  # type: ignore[override]  # Why: as it is.
            if not self.is_done:
                self.is_done = True
                revision = source.commit(Commit((), (Put(b"/site/late", b"1"),)))
                source.commit(Commit((), (Put(b"/site/later", b"1"),)))
                source.compact(revision)
            return super().watch(key_range, after=after)

    with open_engine("memory:") as target:
        with Following(Compacting(source, closes_inner=False), target) as following:
            following.wait_for(source.snapshot().revision)
        assert content_of(target) == content_of(source)
        assert not isinstance(following.outcome, Exception)


def test_an_engine_without_a_watch_cannot_be_followed(tmp_path: Path) -> None:
    with (
        open_engine(f"lmdb:{tmp_path}/raw.kv?history=off") as source,
        open_engine("memory:") as target,
        pytest.raises(UnsupportedByEngineError),
    ):
        copy_store(source, target, source_name="a", follow_until=threading.Event())


def test_a_long_name_of_the_source_counts_in_the_commits_that_hold_it() -> None:
    """A commit holds the claim, too, which names the source: what does not fit beside it is told before anything is written."""
    profile = replace(MEMORY_PROFILE, commit_bytes_max=12_000)
    command = ("copy", "--from", '"' * 290)
    name = "lmdb:/" + '"' * 3_000
    refused = 0
    for size in range(1_000, 12_000, 250):
        content = {b"/a": b"v" * size}
        with filled("memory:", content) as source, MemoryEngine(profile=profile) as target:
            try:
                copy_store(source, target, source_name=name, command=command)
            except EngineLimitError:
                content = {}
            assert content_of(target) == content, size
            refused += not content
    assert 0 < refused < 44
