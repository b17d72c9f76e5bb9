"""Promise: a store says which one it is, and of which line of commits its revisions are."""

from collections.abc import Callable

from keyplan.engine import Capability, Engine
from keyplan.testing.engine_suite.promise import Promise, needs, put

__all__ = ["LineagePromises"]


class LineagePromises(Promise):
    """The identity of a store. That an epoch ends when a store goes back is for each engine's own tests."""

    def test_a_store_has_one_lineage_whatever_is_written(self, engine: Engine) -> None:
        before = engine.lineage()
        put(engine, b"a")
        with engine.snapshot() as snapshot:
            snapshot.get(b"a")
        assert before.store
        assert engine.lineage() == before

    @needs(Capability.DURABLE)
    def test_a_store_that_is_opened_again_has_its_lineage(self, engine: Engine, reopen: Callable[[], Engine]) -> None:
        put(engine, b"a")
        before = engine.lineage()
        with reopen() as again:
            assert again.lineage() == before

    def test_snapshots_of_one_epoch_say_the_same(self, engine: Engine) -> None:
        with engine.snapshot() as first:
            first.get(b"a")
            put(engine, b"a")
            with engine.snapshot() as second:
                second.get(b"a")
                assert first.epoch == second.epoch
