"""The conformance suite itself: it cannot be weakened, and it notices engines that break their promises."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from keyplan.engine import (
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    KeyRange,
    MemoryEngine,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import CommitConflictError
from keyplan.testing.engine_suite import EngineSuite

A_TEST = "test_a_new_store_is_empty"


# ---- it cannot be weakened ------------------------------------------------------------------------------------------------


def subclass(*bases: type, **names: object) -> type:
    return type("TestOfSomeEngine", bases or (EngineSuite,), {"__module__": "elsewhere", **names})


def test_a_subclass_may_supply_fixtures_and_tests_of_its_own() -> None:
    subclass(
        engine=pytest.fixture(lambda self: MemoryEngine()),
        test_something_of_its_own=lambda self: None,
        known_deviations={A_TEST: "it is never empty, issue 7"},
    )


@pytest.mark.parametrize("replacement", [lambda self: None, None], ids=["emptied", "None"])
def test_a_test_cannot_be_replaced(replacement: object) -> None:
    with pytest.raises(TypeError, match=f"changes what the engine suite promises: {A_TEST}"):
        subclass(**{A_TEST: replacement})


def test_a_test_cannot_be_replaced_by_a_class_that_comes_before_the_suite() -> None:
    before = type("Before", (), {A_TEST: lambda self: None})
    with pytest.raises(TypeError, match=A_TEST):
        subclass(before, EngineSuite)


def test_a_test_cannot_be_replaced_in_a_second_generation() -> None:
    with pytest.raises(TypeError, match=A_TEST):
        subclass(subclass(), **{A_TEST: None})


def test_the_suites_own_machinery_cannot_be_replaced() -> None:
    with pytest.raises(TypeError, match="_apply_profile"):
        subclass(_apply_profile=None)


def test_the_suite_cannot_be_switched_off() -> None:
    with pytest.raises(TypeError, match="switches the engine suite off"):
        subclass(__test__=False)


def test_a_deviation_must_name_a_test() -> None:
    with pytest.raises(TypeError, match="test_that_does_not_exist"):
        subclass(known_deviations={"test_that_does_not_exist": "reason"})


MODULE = """
import pytest
from keyplan.engine import MemoryEngine
from keyplan.testing.engine_suite import EngineSuite

class TestEngine(EngineSuite):
    known_deviations = {"test_a_new_store_is_empty": "it is not, issue 7"}

    @pytest.fixture
    def engine(self):
        engine = MemoryEngine()
        engine.load(LOADED)
        return engine
"""


@pytest.mark.parametrize(
    ("loaded", "outcome"),
    [("[(b'a', b'')]", "1 xfailed"), ("[]", "1 failed")],
    ids=["while it fails", "when it does not fail any more"],
)
def test_a_known_deviation_is_expected_to_fail(tmp_path: Path, loaded: str, outcome: str) -> None:
    (tmp_path / "test_engine.py").write_text(MODULE.replace("LOADED", loaded))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", A_TEST, "test_engine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert outcome in done.stdout.splitlines()[-1]


# ---- it notices broken engines --------------------------------------------------------------------------------------------


class ForgetsGuards(WrappedEngine):
    def commit(self, commit: Commit) -> int:
        return self.inner.commit(structs.replace(commit, guards=()))


class NamesOneFailure(WrappedEngine):
    def commit(self, commit: Commit) -> int:
        try:
            return self.inner.commit(commit)
        except CommitConflictError as error:
            raise CommitConflictError(failed=error.failed[:1]) from error  # type: ignore[index]  # a tuple of failures


class SplitsCommits(WrappedEngine):
    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(Commit(commit.guards))
        for mutation in commit.mutations:
            revision = self.inner.commit(Commit((), (mutation,)))
        return revision


class DeletesPrefixesByFf(WrappedEngine):
    def commit(self, commit: Commit) -> int:
        mutations = tuple(
            DeleteRange(KeyRange(mutation.range.start, mutation.range.start + b"\xff"))
            if isinstance(mutation, DeleteRange)
            else mutation
            for mutation in commit.mutations
        )
        return self.inner.commit(structs.replace(commit, mutations=mutations))


class CountsDeletesOfNothing(WrappedEngine):
    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(commit)
        return revision + any(isinstance(mutation, Delete) for mutation in commit.mutations)


class ReadsLatest(WrappedEngine):
    def snapshot(self) -> Snapshot:
        return _LatestSnapshot(self.inner)


class _LatestSnapshot(WrappedSnapshot):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.snapshot())
        self._engine = engine

    def get(self, key: bytes) -> Entry | None:
        return self._engine.snapshot().get(key)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        return self._engine.snapshot().scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)


class IncludesTheEnd(WrappedEngine):
    def snapshot(self) -> Snapshot:
        return _WideSnapshot(self.inner.snapshot())


class _WideSnapshot(WrappedSnapshot):
    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        wide = key_range if key_range.end is None else KeyRange(key_range.start, key_range.end + b"\x00")
        return self.inner.scan(wide, limit=limit, reverse=reverse, keys_only=keys_only)


class LoadsOverWhatIsThere(WrappedEngine):
    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        pairs = list(entries)
        self.inner.commit(Commit((), tuple(Delete(key) for key, _ in pairs)))
        return self.inner.load(pairs)


@pytest.mark.usefixtures("brief_failures")
@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (ForgetsGuards, lambda suite, engine: suite.test_key_absent_holds_only_without_the_key(engine)),
        (ForgetsGuards, lambda suite, engine: suite.test_random_commits_agree_with_a_dict(engine)),
        (NamesOneFailure, lambda suite, engine: suite.test_every_guard_that_failed_is_named_and_no_other(engine)),
        (SplitsCommits, lambda suite, engine: suite.test_all_keys_of_a_commit_have_one_revision(engine)),
        (SplitsCommits, lambda suite, engine: suite.test_events_of_a_commit_come_in_one_batch_in_key_order(engine)),
        (
            DeletesPrefixesByFf,
            lambda suite, engine: suite.test_deleting_a_prefix_removes_exactly_the_keys_that_begin_with_it(
                engine, b"a\xff"
            ),
        ),
        (
            CountsDeletesOfNothing,
            lambda suite, engine: suite.test_a_commit_that_changes_nothing_keeps_the_revision(engine, (Delete(b"x"),)),
        ),
        (ReadsLatest, lambda suite, engine: suite.test_a_snapshot_does_not_see_later_commits(engine)),
        (
            IncludesTheEnd,
            lambda suite, engine: suite.test_a_range_holds_its_start_and_not_its_end(engine, b"a", b"b", [b"a", b"aa"]),
        ),
        (LoadsOverWhatIsThere, lambda suite, engine: suite.test_a_key_that_exists_is_refused(engine, b"b")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_engine_is_noticed(broken: type[WrappedEngine], test: Callable[[EngineSuite, Engine], None]) -> None:
    engine = broken(MemoryEngine())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(EngineSuite(), engine)
