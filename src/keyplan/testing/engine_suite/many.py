"""Promise: many sorted keys are put as commits would put them, and reads without histories agree with those that have them."""

from collections.abc import Callable
from threading import Thread

import pytest

from keyplan.engine import (
    ALL_KEYS,
    AscendingKeys,
    Capability,
    Delete,
    DeleteRange,
    Engine,
    Fences,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    Snapshot,
)
from keyplan.errors import CommitConflictError, EngineLimitError, InvalidInputError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, polled, put

__all__ = ["ManyKeysPromises"]


class ManyKeysPromises(Promise):
    """`put_sorted`, and `value`, `keys` and `pairs` of a snapshot."""

    def test_keys_that_are_new_and_keys_that_exist_are_put_and_the_new_ones_counted(self, engine: Engine) -> None:
        put(engine, b"0002", b"0005", value=b"old")
        keys = [b"%04d" % number for number in range(300)]
        assert engine.put_sorted(keys, [b"v" + key for key in keys]) == 298
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(key, b"v" + key) for key in keys]
        assert engine.put_sorted(keys, [b"w" + key for key in keys]) == 0
        assert {entry.value[:1] for entry in everything(engine)} == {b"w"}

    def test_without_overwriting_what_exists_is_left(self, engine: Engine) -> None:
        put(engine, b"b", value=b"old")
        assert engine.put_sorted([b"a", b"b", b"c"], [b"1", b"2", b"3"], overwrite=False) == 2
        assert [(entry.key, entry.value) for entry in everything(engine)] == [
            (b"a", b"1"),
            (b"b", b"old"),
            (b"c", b"3"),
        ]
        assert engine.put_sorted([b"a", b"b"], [b"9", b"9"], overwrite=False) == 0
        assert [entry.value for entry in everything(engine)] == [b"1", b"old", b"3"]

    def test_without_values_all_are_empty(self, engine: Engine) -> None:
        assert engine.put_sorted([b"a", b"b"]) == 2
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(b"a", b""), (b"b", b"")]

    def test_putting_no_keys_does_nothing(self, engine: Engine) -> None:
        assert engine.put_sorted([]) == 0
        assert everything(engine) == []

    def test_keys_before_between_and_after_others_are_put(self, engine: Engine) -> None:
        engine.put_sorted([b"m", b"n"])
        assert engine.put_sorted([b"a", b"b"]) == 2
        assert engine.put_sorted([b"b", b"mm", b"z"]) == 2
        assert engine.put_sorted([b"zz"]) == 1
        assert [entry.key for entry in everything(engine)] == [b"a", b"b", b"m", b"mm", b"n", b"z", b"zz"]

    @pytest.mark.parametrize("second", [b"a", b"b"], ids=["descending", "twice"])
    def test_keys_out_of_order_are_not_put(self, engine: Engine, second: bytes) -> None:
        with pytest.raises(InvalidInputError):
            engine.put_sorted([b"b", second])
        assert everything(engine) == []

    def test_keys_that_are_known_to_ascend_are_put_like_others(self, engine: Engine) -> None:
        keys = AscendingKeys([b"%04d" % number for number in range(50)], key_bytes_max=4)
        assert engine.put_sorted(keys, [b"v" + key for key in keys]) == 50
        assert engine.put_sorted(keys, overwrite=False) == 0
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(key, b"v" + key) for key in keys]

    def test_keys_that_are_known_to_be_too_long_are_not_put(self, engine: Engine) -> None:
        allowed = engine.profile.key_bytes_max
        if allowed is None:
            pytest.skip("the engine takes keys of any length")
        with pytest.raises(EngineLimitError):
            engine.put_sorted(AscendingKeys([b"a", b"b" * (allowed + 1)], key_bytes_max=allowed + 1))
        assert everything(engine) == []

    def test_a_value_is_read_together_with_its_fence(self, engine: Engine) -> None:
        put(engine, b"fence", value=b"1")
        put(engine, b"a", value=b"x")
        assert engine.fenced_value(b"a", ((b"fence", b"1"),)) == (True, b"x")
        assert engine.fenced_value(b"b", ((b"fence", b"1"),)) == (True, None)
        assert not engine.fenced_value(b"a", ((b"fence", b"2"),))[0]
        assert not engine.fenced_value(b"a", ((b"no fence", b"1"),))[0]
        put(engine, b"a", value=b"y")
        assert engine.fenced_value(b"a", ((b"fence", b"1"),)) == (True, b"y")
        put(engine, b"fence", value=b"2")
        assert not engine.fenced_value(b"a", ((b"fence", b"1"),))[0]
        assert engine.fenced_value(b"a", ((b"fence", b"2"),)) == (True, b"y")

    def test_all_of_several_fences_must_hold(self, engine: Engine) -> None:
        put(engine, b"a", b"f", b"g", value=b"1")
        both: Fences = ((b"f", b"1"), (b"g", b"1"))
        assert engine.fenced_value(b"a", both) == (True, b"1")
        assert engine.fenced_value(b"a", ()) == (True, b"1")
        for one in (b"f", b"g"):
            put(engine, one, value=b"2")
            assert engine.fenced_value(b"a", both) == (False, None)
            with engine.snapshot() as snapshot:
                assert not snapshot.holds(both)
            put(engine, one, value=b"1")
            # Why the same tuple: an engine may remember that it held, and must have noticed that it did not meanwhile.
            assert engine.fenced_value(b"a", both) == (True, b"1")
            with engine.snapshot() as snapshot:
                assert snapshot.holds(both)

    def test_a_fence_may_be_that_nothing_is_there(self, engine: Engine) -> None:
        put(engine, b"a", b"f", value=b"1")
        absent: Fences = ((b"f", b"1"), (b"g", None))
        for _ in range(2):
            assert engine.fenced_value(b"a", absent) == (True, b"1")
            assert engine.fenced_value(b"none", absent) == (True, None)
            put(engine, b"g", value=b"")
            assert engine.fenced_value(b"a", absent) == (False, None)
            commit(engine, Delete(b"g"))
        for key in (b"", b"k" * 100_000):  # what no entry can have is not there
            assert engine.fenced_value(b"a", ((key, None),)) == (True, b"1")
            assert engine.fenced_value(b"a", ((key, b"1"),)) == (False, None)

    def test_a_fence_is_looked_at_again_after_every_way_to_write(self, engine: Engine) -> None:
        fences: Fences = ((b"f", b"1"),)
        ways: list[Callable[[], object]] = [
            lambda: put(engine, b"f", value=b"2"),
            lambda: engine.put_sorted([b"f"], [b"2"]),
            lambda: commit(engine, Delete(b"f")),
            lambda: commit(engine, DeleteRange(KeyRange.of_prefix(b"f"))),
        ]
        for way in ways:
            put(engine, b"f", value=b"1")
            assert engine.fenced_value(b"a", fences) == (True, None)
            way()
            assert engine.fenced_value(b"a", fences) == (False, None)
        commit(engine, Delete(b"f"))
        absent: Fences = ((b"f", None),)
        assert engine.fenced_value(b"a", absent) == (True, None)
        engine.load([(b"f", b"1")])
        assert engine.fenced_value(b"a", absent) == (False, None)

    def test_a_reader_goes_by_the_fences_that_its_holder_has_then(self, engine: Engine) -> None:
        class Holder:
            fences: Fences = ((b"f", b"1"), (b"g", None))

        holder = Holder()
        put(engine, b"pa", value=b"x")
        put(engine, b"f", value=b"1")
        read = engine.fenced_reader(b"p", holder, lambda key: b"otherwise " + key)
        for _ in range(2):
            assert [read(b"a"), read(b"b"), read(b"k" * 100_000)] == [b"x", None, None]
            put(engine, b"pa", value=b"y")
            assert read(b"a") == b"y"
            put(engine, b"f", value=b"2")
            assert read(b"a") == b"otherwise a"
            holder.fences = ((b"f", b"2"),)
            assert read(b"a") == b"y"
            put(engine, b"f", value=b"1")
            put(engine, b"pa", value=b"x")
            assert read(b"a") == b"otherwise a"
            holder.fences = Holder.fences
        holder.fences = ((b"f", b"1"), (b"f", b"2"))
        assert read(b"a") == b"otherwise a"

    def test_a_reader_reads_its_own_fence_and_what_begins_with_it(self, engine: Engine) -> None:
        class Holder:
            fences: Fences = ((b"pf", b"1"),)

        put(engine, b"p", b"pf", b"pf2", b"pf21", value=b"1")
        for prefix in (b"p", b"pf", b""):
            read = engine.fenced_reader(prefix, Holder(), lambda key: b"otherwise " + key)
            below = [key[len(prefix) :] for key in (b"pf", b"pf2", b"pf21", b"pf3")]
            assert [read(key) for key in below] == [b"1", b"1", b"1", None]

    def test_a_reader_tells_a_fence_from_what_is_read_whichever_of_the_two_is_there(self, engine: Engine) -> None:
        class Holder:
            fences: Fences = ((b"f", b"1"),)

        put(engine, b"f", b"pa", value=b"1")
        read = engine.fenced_reader(b"p", Holder(), lambda key: b"otherwise " + key)
        both = (b"a", b"b")
        assert [read(key) for key in both] == [b"1", None]
        for change in (Put(b"f", b"2"), Delete(b"f")):
            commit(engine, change)
            assert [read(key) for key in both] == [b"otherwise a", b"otherwise b"]

    def test_the_fences_of_a_snapshot_are_of_its_state(self, engine: Engine) -> None:
        put(engine, b"f", value=b"1")
        fences: Fences = ((b"f", b"1"), (b"g", None))
        with engine.snapshot() as before:
            assert before.revision >= 0
            put(engine, b"f", b"g", value=b"2")
            with engine.snapshot() as after:
                for _ in range(2):
                    assert before.holds(fences)
                    assert not after.holds(fences)
            put(engine, b"f", value=b"1")
            commit(engine, Delete(b"g"))
            assert before.holds(fences)
            with engine.snapshot() as latest:
                assert latest.holds(fences)

    def test_a_fenced_snapshot_is_of_the_keys_below_its_prefix_in_a_state_in_which_the_fences_hold(
        self, engine: Engine
    ) -> None:
        put(engine, b"f", b"o", b"p", b"pa", b"pb", b"q", value=b"1")
        fences: Fences = ((b"f", b"1"), (b"none", None))
        for _ in range(2):
            snapshot = engine.fenced_snapshot(b"p", fences)
            if snapshot is not None:
                with snapshot:
                    put(engine, b"f", b"pa", value=b"2")
                    assert [entry[:2] for entry in snapshot.scan(ALL_KEYS)] == [(b"", b"1"), (b"a", b"1"), (b"b", b"1")]
                    assert list(snapshot.pairs(KeyRange(b"a", None), reverse=True)) == [(b"b", b"1"), (b"a", b"1")]
                    assert list(snapshot.keys(ALL_KEYS, limit=2)) == [b"", b"a"]
                    columns = snapshot.columns(KeyRange(b"", b"b"))
                    assert [pair for keys, values in columns for pair in zip(keys, values, strict=True)] == [
                        (b"", b"1"),
                        (b"a", b"1"),
                    ]
                    assert snapshot.get_many([b"b", b"f", b"pa"])[1:] == [None, None]
                    assert (snapshot.value(b"a"), snapshot.count(ALL_KEYS)) == (b"1", 3)
                    assert snapshot.holds(((b"a", b"1"), (b"f", None)))
                assert engine.fenced_snapshot(b"p", fences) is None
            put(engine, b"f", b"pa", value=b"1")

    @pytest.mark.parametrize("first", ["get", "get_many", "value", "scan", "keys", "count"])
    def test_what_is_read_along_is_of_the_snapshot_s_state(self, engine: Engine, first: str) -> None:
        put(engine, b"a", b"f", value=b"1")
        reads: dict[str, Callable[[Snapshot], object]] = {
            "get": lambda snapshot: snapshot.get(b"a"),
            "get_many": lambda snapshot: snapshot.get_many([b"a", b"f", b"none", b"a"]),
            "value": lambda snapshot: snapshot.value(b"a"),
            "scan": lambda snapshot: list(snapshot.scan(ALL_KEYS, limit=1)),
            "keys": lambda snapshot: list(snapshot.keys(ALL_KEYS, reverse=True)),
            "count": lambda snapshot: snapshot.count(ALL_KEYS),
        }
        with engine.snapshot() as plain, engine.snapshot() as snapshot:
            expected = reads[first](plain)
            entry = plain.get(b"f")
            put(engine, b"f", b"none", value=b"2")
            snapshot.read_along([b"f", b"none", b"", b"k" * 100_000])
            assert reads[first](snapshot) == expected
            assert snapshot.get(b"f") == entry
            assert snapshot.get_many([b"none", b"f"]) == [None, entry]
            assert snapshot.values([b"f", b"none", b""]) == [b"1", None, None]
            assert snapshot.value(b"f") == b"1"
            assert snapshot.value(b"none") is None
            assert snapshot.holds(((b"f", b"1"), (b"none", None)))
            assert reads[first](snapshot) == expected

    def test_a_key_that_no_entry_can_have_is_behind_a_fence_as_well(self, engine: Engine) -> None:
        put(engine, b"fence", value=b"1")
        for key in (b"", b"k" * 100_000):
            assert engine.fenced_value(key, ((b"fence", b"1"),)) == (True, None)

    def test_as_many_values_as_keys_are_asked_for(self, engine: Engine) -> None:
        with pytest.raises(InvalidInputError):
            engine.put_sorted([b"a", b"b"], [b"1"])
        assert everything(engine) == []

    def test_a_key_that_is_too_long_keeps_all_from_being_put(self, engine: Engine) -> None:
        limit = engine.profile.key_bytes_max
        if limit is None:
            pytest.skip("the engine has no limit for keys")
        with pytest.raises(EngineLimitError) as caught:
            engine.put_sorted([b"a", b"b" * (limit + 1)])
        assert caught.value.facts == {"limit": "key_bytes_max", "allowed": limit, "actual": limit + 1}
        assert everything(engine) == []

    def test_a_guard_that_fails_keeps_all_from_being_put(self, engine: Engine) -> None:
        put(engine, b"fence")
        (fence,) = everything(engine)
        guard = KeyUnchanged(b"fence", fence.mod_revision)
        assert engine.put_sorted([b"a", b"b"], guards=[guard]) == 2
        put(engine, b"fence", value=b"moved")
        with pytest.raises(CommitConflictError) as caught:
            engine.put_sorted([b"c", b"d"], guards=[guard, KeyAbsent(b"x")])
        failed = caught.value.facts["failed"]
        assert isinstance(failed, tuple)
        assert [failure.guard for failure in failed] == [guard]
        assert [entry.key for entry in everything(engine)] == [b"a", b"b", b"fence"]

    def test_threads_that_put_the_same_keys_count_each_as_new_once(self, engine: Engine) -> None:
        counts: list[int] = []
        keys = [b"%03d" % number for number in range(120)]
        threads = [Thread(target=lambda: counts.append(engine.put_sorted(keys, overwrite=False))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(counts) == 120
        assert [entry.key for entry in everything(engine)] == keys

    @needs(Capability.WATCH)
    def test_a_watch_sees_the_keys_that_are_put(self, engine: Engine) -> None:
        start = put(engine, b"a")
        watch = engine.watch(ALL_KEYS, after=start)
        keys = [b"b%04d" % number for number in range(200)]
        engine.put_sorted(keys)
        with engine.snapshot() as snapshot:
            revision = snapshot.revision
        assert [event.key for event in polled(watch, until=revision)] == keys
        watch.close()

    @needs(Capability.DURABLE)
    def test_keys_that_were_put_are_there_after_a_restart(self, engine: Engine, reopen: Callable[[], Engine]) -> None:
        engine.put_sorted([b"a", b"b"], [b"1", b"2"])
        with reopen() as again:
            assert [(entry.key, entry.value) for entry in everything(again)] == [(b"a", b"1"), (b"b", b"2")]

    @pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reversed"])
    @pytest.mark.parametrize("limit", [None, 0, 3, 5_000])
    @pytest.mark.parametrize(
        ("start", "end"),
        [
            (b"", None),
            (b"0010", b"0011"),
            (b"0010", b"0900"),
            (b"0900", None),
            (b"0500", b"0400"),
            (b"0007x", b"0009x"),
        ],
    )
    def test_keys_and_pairs_are_those_of_a_scan(
        self, engine: Engine, start: bytes, end: bytes | None, limit: int | None, *, reverse: bool
    ) -> None:
        present = [b"%04d" % number for number in range(0, 1_000, 2)]
        engine.put_sorted(present, [b"v" + key for key in present])
        expected = [key for key in present if key >= start and (end is None or key < end)]
        expected = (expected[::-1] if reverse else expected)[:limit]
        with engine.snapshot() as snapshot:
            key_range = KeyRange(start, end)
            assert list(snapshot.keys(key_range, limit=limit, reverse=reverse)) == expected
            pairs = list(snapshot.pairs(key_range, limit=limit, reverse=reverse))
        assert pairs == [(key, b"v" + key) for key in expected]

    def test_a_value_is_that_of_the_entry(self, engine: Engine) -> None:
        put(engine, b"a", value=b"")
        put(engine, b"b", value=b"stored")
        with engine.snapshot() as snapshot:
            assert [snapshot.value(key) for key in (b"a", b"b", b"c")] == [b"", b"stored", None]
