"""Promise: a closed engine says so, and lets go of everything; what it acknowledged is there when it is opened again."""

from collections.abc import Callable
from threading import Thread

import pytest

from keyplan.engine import ALL_KEYS, Capability, Commit, Engine, Fences, Put
from keyplan.errors import EngineUnavailableError, KeyplanError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, polled, put

__all__ = ["ClosePromises"]


class Unfenced:
    """Has a fence that holds in an empty store."""

    fences: Fences = ((b"fence", None),)


class ClosePromises(Promise):
    """Closing and opening again."""

    def test_closing_twice_is_harmless(self, engine: Engine) -> None:
        engine.close()
        engine.close()

    @pytest.mark.parametrize(
        "call",
        [
            lambda engine: engine.snapshot(),
            lambda engine: engine.commit(Commit((), (Put(b"a", b""),))),
            lambda engine: engine.watch(ALL_KEYS, after=0),
            lambda engine: engine.lease(60),
            lambda engine: engine.compact(0),
            lambda engine: engine.load([(b"a", b"")]),
            lambda engine: engine.value(b"a"),
            lambda engine: engine.fenced_value(b"a", ((b"fence", b"1"),)),
            lambda engine: engine.fenced_reader(b"", Unfenced(), lambda key: key)(b"a"),
            lambda engine: engine.fenced_snapshot(b"", ((b"fence", b"1"),)) or engine.snapshot(),
            lambda engine: engine.put_sorted([b"a"]),
        ],
        ids=[
            "snapshot",
            "commit",
            "watch",
            "lease",
            "compact",
            "load",
            "value",
            "fenced_value",
            "fenced_reader",
            "fenced_snapshot",
            "put_sorted",
        ],
    )
    def test_a_closed_engine_does_nothing_more(self, engine: Engine, call: Callable[[Engine], object]) -> None:
        engine.close()
        with pytest.raises(EngineUnavailableError):
            call(engine)

    def test_a_closed_engine_still_tells_its_profile(self, engine: Engine) -> None:
        profile = engine.profile
        engine.close()
        assert engine.profile == profile

    def test_a_snapshot_of_a_closed_engine_is_not_read(self, engine: Engine) -> None:
        put(engine, b"a")
        snapshot = engine.snapshot()
        engine.close()
        with pytest.raises(KeyplanError):
            snapshot.get(b"a")
        snapshot.close()

    @needs(Capability.WATCH)
    def test_closing_ends_a_poll_that_waits(self, engine: Engine) -> None:
        # Why not from the beginning: the history of a server that several tests share may be compacted.
        watch = engine.watch(ALL_KEYS, after=put(engine, b"a"))
        ended: list[Exception] = []

        def wait() -> None:
            try:
                # Why until it fails: the first polls may bring what is there already, in parts.
                while True:
                    watch.poll(30)
            except EngineUnavailableError as error:
                ended.append(error)

        waiting = Thread(target=wait)
        waiting.start()
        engine.close()
        waiting.join(timeout=20)
        assert len(ended) == 1

    def test_closing_while_threads_read_and_write_ends_them_with_that_error(self, engine: Engine) -> None:
        engine.load((b"%04d" % number, b"") for number in range(500))
        errors: list[Exception] = []

        def until_closed(call: Callable[[], object]) -> None:
            try:
                while True:
                    call()
            except KeyplanError as error:
                errors.append(error)

        calls: list[Callable[[], object]] = [lambda: everything(engine), lambda: put(engine, b"a")]
        threads = [Thread(target=until_closed, args=(call,)) for call in calls * 2]
        for thread in threads:
            thread.start()
        put(engine, b"b")
        engine.close()
        for thread in threads:
            thread.join(timeout=20)
        assert [type(error) for error in errors] == [EngineUnavailableError] * 4

    @needs(Capability.LEASES)
    def test_a_lease_of_a_closed_engine_cannot_be_kept_alive_by_it(self, engine: Engine) -> None:
        lease = engine.lease(60)
        engine.close()
        with pytest.raises(EngineUnavailableError):
            lease.keep_alive()

    def test_an_engine_is_a_context_that_closes_it(self, engine: Engine) -> None:
        with engine as entered:
            assert entered is engine
        with pytest.raises(EngineUnavailableError):
            engine.snapshot()

    @needs(Capability.DURABLE)
    def test_what_was_committed_is_there_after_opening_again(
        self, engine: Engine, reopen: Callable[[], Engine]
    ) -> None:
        put(engine, b"a", b"b", value=b"1")
        put(engine, b"a", value=b"2")
        before = everything(engine)
        with engine.snapshot() as snapshot:
            revision = snapshot.revision
        with reopen() as again:
            assert everything(again) == before
            with again.snapshot() as snapshot:
                assert snapshot.revision == revision
            assert put(again, b"c") == (revision + 1 if again.profile.claims(Capability.REVISIONS) else 0)

    @needs(Capability.DURABLE)
    def test_history_and_leases_survive_opening_again(self, engine: Engine, reopen: Callable[[], Engine]) -> None:
        if not engine.profile.claims(Capability.LEASES) or not engine.profile.claims(Capability.WATCH):
            pytest.skip("the engine claims neither leases nor watches")
        start = put(engine, b"a")
        lease = engine.lease(600).id
        last = commit(engine, Put(b"b", b"", lease))
        with reopen() as again:
            watch = again.watch(ALL_KEYS, after=start)
            assert [event.key for event in polled(watch, until=last)] == [b"b"]
            watch.close()
            again.lease(600, resume=lease).revoke()
            assert [entry.key for entry in everything(again)] == [b"a"]
