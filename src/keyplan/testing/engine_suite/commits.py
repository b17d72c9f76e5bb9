"""Promise: a commit is applied whole, at one revision, or not at all."""

import pytest

from keyplan.engine import ALL_KEYS, Capability, Commit, Delete, DeleteRange, Engine, KeyRange, Put
from keyplan.errors import InvalidInputError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, put

__all__ = ["CommitPromises"]


class CommitPromises(Promise):
    """Mutations and revisions."""

    @needs(Capability.REVISIONS)
    def test_all_keys_of_a_commit_have_one_revision(self, engine: Engine) -> None:
        revision = put(engine, b"a", b"b", b"c")
        found = {(entry.create_revision, entry.mod_revision, entry.version) for entry in everything(engine)}
        assert found == {(revision, revision, 1)}

    @needs(Capability.REVISIONS)
    def test_each_commit_that_changes_something_adds_one_to_the_revision(self, engine: Engine) -> None:
        with engine.snapshot() as snapshot:
            start = snapshot.revision
        assert put(engine, b"a") == start + 1
        assert put(engine, b"a") == start + 2, "writing the same value is a write"
        assert commit(engine, Delete(b"a"), Put(b"b", b"")) == start + 3
        assert commit(engine, DeleteRange(ALL_KEYS)) == start + 4
        with engine.snapshot() as snapshot:
            assert snapshot.revision == start + 4

    @pytest.mark.parametrize(
        "nothing",
        [(), (Delete(b"absent"),), (DeleteRange(KeyRange.of_prefix(b"absent")),), (DeleteRange(KeyRange(b"b", b"a")),)],
        ids=["empty", "delete", "delete range", "empty range"],
    )
    def test_a_commit_that_changes_nothing_keeps_the_revision(
        self, engine: Engine, nothing: tuple[Delete | DeleteRange, ...]
    ) -> None:
        revision = put(engine, b"a")
        before = everything(engine)
        assert commit(engine, *nothing) == revision
        assert everything(engine) == before
        with engine.snapshot() as snapshot:
            assert snapshot.revision == revision

    @needs(Capability.REVISIONS)
    @pytest.mark.parametrize("removal", [Delete(b"a"), DeleteRange(ALL_KEYS)], ids=["delete", "delete range"])
    def test_a_key_that_is_written_again_after_its_deletion_begins_a_new_life(
        self, engine: Engine, removal: Delete | DeleteRange
    ) -> None:
        put(engine, b"a")
        put(engine, b"a")
        commit(engine, removal)
        revision = put(engine, b"a")
        (entry,) = everything(engine)
        assert (entry.create_revision, entry.mod_revision, entry.version) == (revision, revision, 1)

    def test_puts_deletes_and_ranges_in_one_commit_are_all_applied(self, engine: Engine) -> None:
        put(engine, b"a", b"b1", b"b2", b"b3", b"c", b"d")
        commit(
            engine,
            Put(b"e", b"new"),
            DeleteRange(KeyRange.of_prefix(b"b")),
            Delete(b"a"),
            Put(b"c", b"new"),
            Delete(b"absent"),
        )
        assert [(entry.key, entry.value) for entry in everything(engine)] == [
            (b"c", b"new"),
            (b"d", b"value"),
            (b"e", b"new"),
        ]

    @pytest.mark.parametrize("prefix", [b"\xff", b"\xff\xff", b"a\xff", b"a\x00"])
    def test_deleting_a_prefix_removes_exactly_the_keys_that_begin_with_it(self, engine: Engine, prefix: bytes) -> None:
        keys = [b"a", b"a\x00", b"a\x00\x00", b"a\x01", b"a\xff", b"a\xff\xff", b"b", b"\xfe", b"\xff", b"\xff\x00"]
        keys += [b"\xff\xff", b"\xff\xff\x00", b"\xff\xff\xff"]
        put(engine, *keys)
        commit(engine, DeleteRange(KeyRange.of_prefix(prefix)))
        assert [entry.key for entry in everything(engine)] == sorted(key for key in keys if not key.startswith(prefix))

    @pytest.mark.parametrize(
        "mutations",
        [
            (Put(b"a", b"1"), Put(b"a", b"2")),
            (Put(b"a", b"1"), Delete(b"a")),
            (Delete(b"a"), Delete(b"a")),
            (Put(b"ab", b"1"), DeleteRange(KeyRange.of_prefix(b"a"))),
            (DeleteRange(KeyRange(b"a", b"b")), Delete(b"a")),
            (DeleteRange(KeyRange(b"a", b"c")), DeleteRange(KeyRange(b"b", b"d"))),
            (DeleteRange(ALL_KEYS), Put(b"\xff", b"1")),
        ],
        ids=["puts", "put, delete", "deletes", "put in range", "delete in range", "ranges", "all keys"],
    )
    def test_a_key_written_twice_is_refused_before_anything_is_written(
        self, engine: Engine, mutations: tuple[Put | Delete | DeleteRange, ...]
    ) -> None:
        put(engine, b"a")
        before = everything(engine)
        with pytest.raises(InvalidInputError):
            commit(engine, *mutations)
        assert everything(engine) == before

    def test_writing_beside_a_deleted_range_is_no_double_write(self, engine: Engine) -> None:
        put(engine, b"a", b"b", b"c", b"d")
        commit(
            engine,
            Put(b"a", b"new"),
            DeleteRange(KeyRange(b"b", b"c")),
            DeleteRange(KeyRange(b"c", b"d")),
            Put(b"d", b"new"),
        )
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(b"a", b"new"), (b"d", b"new")]

    def test_a_commit_of_many_operations_is_applied_whole(self, engine: Engine) -> None:
        count = min(1_000, engine.profile.commit_operations_max or 1_000)
        engine.commit(Commit((), tuple(Put(b"%05d" % number, b"v%d" % number) for number in range(count))))
        found = everything(engine)
        assert [(entry.key, entry.value) for entry in found] == [(b"%05d" % n, b"v%d" % n) for n in range(count)]
        assert len({entry.mod_revision for entry in found}) == (
            1 if engine.profile.claims(Capability.REVISIONS) else count
        )

    def test_a_large_value_is_written_and_replaced(self, engine: Engine) -> None:
        size = min(
            1_000_000, engine.profile.value_bytes_max or 1_000_000, (engine.profile.commit_bytes_max or 10**9) - 1
        )
        put(engine, b"a", value=b"x" * size)
        put(engine, b"a", value=b"y" * size)
        assert everything(engine)[0].value == b"y" * size
        commit(engine, Delete(b"a"))
        assert everything(engine) == []
