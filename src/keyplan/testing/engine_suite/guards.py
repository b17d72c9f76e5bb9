"""Promise: guards are checked in the same instant as the writes; one that fails is named, with what was found."""

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Capability,
    Delete,
    Engine,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.errors import CommitConflictError, UnsupportedByEngineError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, put

__all__ = ["GuardPromises"]

B_KEYS = KeyRange.of_prefix(b"b")


class GuardPromises(Promise):
    """The four kinds of guards."""

    def test_key_absent_holds_only_without_the_key(self, engine: Engine) -> None:
        commit(engine, Put(b"a", b"1"), guards=[KeyAbsent(b"a")])
        assert_refused(engine, KeyAbsent(b"a"), key=b"a", actual_revision=revision_of(engine, b"a"))
        commit(engine, Delete(b"a"))
        commit(engine, Put(b"a", b"2"), guards=[KeyAbsent(b"a")])
        assert revision_of(engine, b"a") != 0

    def test_key_unchanged_holds_only_at_the_revision_that_was_read(self, engine: Engine) -> None:
        put(engine, b"a", value=b"1")
        read = revision_of(engine, b"a")
        commit(engine, Put(b"a", b"2"), guards=[KeyUnchanged(b"a", read)])
        assert_refused(engine, KeyUnchanged(b"a", read), key=b"a", actual_revision=revision_of(engine, b"a"))

    def test_key_unchanged_fails_for_a_key_that_is_gone(self, engine: Engine) -> None:
        put(engine, b"a")
        read = revision_of(engine, b"a")
        commit(engine, Delete(b"a"))
        assert_refused(engine, KeyUnchanged(b"a", read), key=b"a", actual_revision=0)
        assert_refused(engine, KeyUnchanged(b"a", 0), key=b"a", actual_revision=0)

    @needs(Capability.REVISIONS)
    def test_key_unchanged_sees_a_key_that_was_deleted_and_written_again(self, engine: Engine) -> None:
        read = put(engine, b"a", value=b"same")
        commit(engine, Delete(b"a"))
        again = put(engine, b"a", value=b"same")
        assert_refused(engine, KeyUnchanged(b"a", read), key=b"a", actual_revision=again)

    def test_range_empty_holds_only_without_keys(self, engine: Engine) -> None:
        put(engine, b"a", b"c")
        commit(engine, Put(b"b1", b""), guards=[RangeEmpty(B_KEYS)])
        assert_refused(engine, RangeEmpty(B_KEYS), key=b"b1", actual_revision=revision_of(engine, b"b1"))
        commit(engine, Delete(b"b1"), guards=[RangeEmpty(KeyRange(b"b", b"a"))])

    @needs(Capability.REVISIONS)
    def test_range_unchanged_holds_while_nothing_in_the_range_is_written(self, engine: Engine) -> None:
        guard = self.read_b_keys(engine)
        put(engine, b"a", b"c")
        commit(engine, Put(b"d", b""), guards=[guard])
        commit(engine, Put(b"b2", b"changed by the guarded commit itself"), guards=[guard])

    @needs(Capability.REVISIONS)
    @pytest.mark.parametrize(
        ("change", "culprit"),
        [
            (Put(b"b0", b"first"), b"b0"),
            (Put(b"b15", b"between"), b"b15"),
            (Put(b"b9", b"last"), b"b9"),
            (Put(b"b2", b"rewritten"), b"b2"),
            (Delete(b"b1"), b"b1"),
            (Delete(b"b3"), b"b3"),
        ],
        ids=["phantom before", "phantom between", "phantom after", "update", "delete first", "delete last"],
    )
    def test_range_unchanged_fails_after_any_change_in_the_range(
        self, engine: Engine, change: Put | Delete, culprit: bytes
    ) -> None:
        guard = self.read_b_keys(engine)
        commit(engine, change)
        actual = revision_of(engine, culprit)
        failure = refusal(engine, guard)
        assert failure.guard == guard
        assert failure.key in (culprit, None)
        assert failure.actual_revision == (actual if failure.key is not None else failure.actual_revision)

    @needs(Capability.REVISIONS)
    def test_range_unchanged_fails_when_a_key_was_deleted_and_written_again(self, engine: Engine) -> None:
        guard = self.read_b_keys(engine)
        commit(engine, Delete(b"b2"))
        put(engine, b"b2")
        assert refusal(engine, guard).guard == guard

    @needs(Capability.REVISIONS)
    def test_range_unchanged_of_nothing_is_range_empty(self, engine: Engine) -> None:
        revision = put(engine, b"a")
        guard = RangeUnchanged(B_KEYS, revision, ())
        commit(engine, Put(b"c", b""), guards=[guard])
        put(engine, b"b")
        assert refusal(engine, guard).guard == guard

    def test_without_revisions_range_unchanged_is_refused(self, engine: Engine) -> None:
        if engine.profile.claims(Capability.REVISIONS):
            pytest.skip("the engine claims REVISIONS")
        put(engine, b"b1")
        with pytest.raises(UnsupportedByEngineError):
            commit(engine, Put(b"x", b""), guards=[RangeUnchanged(B_KEYS, 0, (b"b1",))])
        assert [entry.key for entry in everything(engine)] == [b"b1"]

    def test_every_guard_that_failed_is_named_and_no_other(self, engine: Engine) -> None:
        put(engine, b"a", b"b1")
        a, b1 = revision_of(engine, b"a"), revision_of(engine, b"b1")
        guards: list[Guard] = [
            KeyAbsent(b"a"),
            KeyAbsent(b"x"),
            KeyUnchanged(b"a", a + 1),
            KeyUnchanged(b"b1", b1),
            RangeEmpty(B_KEYS),
            RangeEmpty(KeyRange.of_prefix(b"x")),
        ]
        with pytest.raises(CommitConflictError) as caught:
            commit(engine, Put(b"y", b""), guards=guards)
        assert caught.value.failed == (
            FailedGuard(guards[0], b"a", a),
            FailedGuard(guards[2], b"a", a),
            FailedGuard(guards[4], b"b1", b1),
        )

    def test_a_refused_commit_writes_nothing(self, engine: Engine) -> None:
        put(engine, b"a", b"b")
        before = everything(engine)
        with engine.snapshot() as snapshot:
            revision = snapshot.revision
        with pytest.raises(CommitConflictError):
            commit(engine, Put(b"c", b""), Delete(b"a"), Put(b"b", b"new"), guards=[KeyAbsent(b"x"), KeyAbsent(b"a")])
        assert everything(engine) == before
        with engine.snapshot() as snapshot:
            assert snapshot.revision == revision

    def test_guards_alone_are_a_commit_that_only_checks(self, engine: Engine) -> None:
        revision = put(engine, b"a")
        assert commit(engine, guards=[KeyUnchanged(b"a", revision_of(engine, b"a")), KeyAbsent(b"b")]) == revision
        with pytest.raises(CommitConflictError):
            commit(engine, guards=[KeyAbsent(b"a")])

    def test_a_guard_looks_at_the_state_before_the_commits_own_writes(self, engine: Engine) -> None:
        commit(engine, Put(b"a", b""), guards=[KeyAbsent(b"a"), RangeEmpty(ALL_KEYS)])
        commit(engine, Delete(b"a"), guards=[KeyUnchanged(b"a", revision_of(engine, b"a"))])
        assert everything(engine) == []

    def read_b_keys(self, engine: Engine) -> RangeUnchanged:
        """Fill the range, read it, and return the guard that a transaction would make of that."""
        revision = put(engine, b"b1", b"b2", b"b3")
        return RangeUnchanged(B_KEYS, revision, (b"b1", b"b2", b"b3"))


def revision_of(engine: Engine, key: bytes) -> int:
    """Return the mod revision of a key, 0 when it is absent."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
        return 0 if entry is None else entry.mod_revision


def refusal(engine: Engine, guard: Guard) -> FailedGuard:
    """Return how the engine refuses a commit that `guard` alone breaks."""
    before = everything(engine)
    with pytest.raises(CommitConflictError) as caught:
        commit(engine, Put(b"refused", b""), guards=[guard])
    assert everything(engine) == before
    failed = caught.value.failed
    assert isinstance(failed, tuple)
    (failure,) = failed
    assert isinstance(failure, FailedGuard)
    return failure


def assert_refused(engine: Engine, guard: Guard, *, key: bytes, actual_revision: int) -> None:
    """Check that `guard` does not hold, and that the refusal names it, its key and the revision found."""
    assert refusal(engine, guard) == FailedGuard(guard, key, actual_revision)
