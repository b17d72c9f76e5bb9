"""Promise: a load writes what a commit of the same puts would, fast, and refuses what is out of order or there already."""

from collections.abc import Iterator

import pytest

from keyplan.engine import ALL_KEYS, Capability, Engine
from keyplan.errors import CommitConflictError, EngineLimitError, InvalidInputError
from keyplan.testing.engine_suite.promise import Promise, everything, needs, polled, put

__all__ = ["LoadPromises"]


class LoadPromises(Promise):
    """Loads."""

    def test_loaded_entries_are_read_like_others(self, engine: Engine) -> None:
        pairs = [(b"%06d" % number, b"value %d" % number) for number in range(2_500)]
        assert engine.load(pairs) == 2_500
        found = everything(engine)
        assert [(entry.key, entry.value) for entry in found] == pairs
        if engine.profile.claims(Capability.REVISIONS):
            assert {entry.version for entry in found} == {1}
            assert all(entry.create_revision == entry.mod_revision > 0 for entry in found)
        put(engine, b"000100", value=b"new")
        assert everything(engine)[100].value == b"new"

    def test_loading_nothing_does_nothing(self, engine: Engine) -> None:
        assert engine.load([]) == 0
        assert everything(engine) == []

    def test_a_load_takes_any_iterable(self, engine: Engine) -> None:
        def pairs() -> Iterator[tuple[bytes, bytes]]:
            yield b"a", b"1"
            yield b"b", b"2"

        assert engine.load(pairs()) == 2
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(b"a", b"1"), (b"b", b"2")]

    def test_a_load_may_fill_a_gap_between_keys(self, engine: Engine) -> None:
        put(engine, b"a", b"z")
        assert engine.load([(b"b", b""), (b"y", b"")]) == 2
        assert [entry.key for entry in everything(engine)] == [b"a", b"b", b"y", b"z"]

    @pytest.mark.parametrize("second", [b"a", b"b"], ids=["descending", "twice"])
    def test_keys_out_of_order_are_refused(self, engine: Engine, second: bytes) -> None:
        with pytest.raises(InvalidInputError):
            engine.load([(b"b", b""), (second, b"")])
        assert everything(engine) == []

    @pytest.mark.parametrize("present", [b"b", b"d"], ids=["among them", "the last"])
    def test_a_key_that_exists_is_refused(self, engine: Engine, present: bytes) -> None:
        put(engine, present)
        with pytest.raises(CommitConflictError):
            engine.load([(key, b"loaded") for key in (b"a", b"b", b"c", b"d")])
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(present, b"value")]

    def test_a_key_over_the_limit_is_refused(self, engine: Engine) -> None:
        limit = engine.profile.key_bytes_max
        if limit is None:
            pytest.skip("the engine has no limit for keys")
        with pytest.raises(EngineLimitError):
            engine.load([(b"a", b""), (b"b" * (limit + 1), b"")])
        assert everything(engine) == []

    @needs(Capability.WATCH)
    def test_a_watch_sees_what_is_loaded(self, engine: Engine) -> None:
        start = put(engine, b"a")
        watch = engine.watch(ALL_KEYS, after=start)
        keys = [b"b%04d" % number for number in range(1_500)]
        engine.load((key, key) for key in keys)
        with engine.snapshot() as snapshot:
            revision = snapshot.revision
        assert [(e.key, e.entry and e.entry.value) for e in polled(watch, until=revision)] == [(k, k) for k in keys]
        watch.close()
